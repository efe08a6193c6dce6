//! The profile crate from outside: codec, files, merging.

mod codec;
mod corpus;
mod exercise;
mod file;
mod merge;
mod strategies;

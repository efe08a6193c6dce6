//! The profile crate from outside: codec, merging.

mod codec;
mod corpus;
mod exercise;
mod merge;
mod strategies;

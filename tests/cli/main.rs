//! The command line without privilege: one file for each command or area.

mod compare;
mod device;
mod disk;
mod fetch;
mod generate;
mod help;
mod papers;
mod record;
mod show;
mod sim;

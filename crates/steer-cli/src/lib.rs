//! The `ahead-steer` command: `ahead top` and `ahead steer`, which `ahead` starts from beside itself.
//!
//! Flags come in; tables, JSON and a terminal interface go to standard output, everything else to standard error. Exit statuses are those
//! of `ahead` (`ahead-cli`). What is observed and decided belongs to `ahead-top` and `ahead-steer`.
//!
//! This crate is a library, too: man pages and completions are made from its definition of the command line.

mod cli;
mod steer;
mod top;

pub use ahead_steer::metrics_reference;
pub use cli::{Cli, Command};

//! The `ahead` command: one file for each subcommand, with its flags and its calls of the library.
//!
//! Arguments come in; results go to standard output, everything else to standard error, and `exit.rs` defines the exit status.
//! Decisions belong to the library crates.
//!
//! This crate is a library, too: the other commands (`ahead-lab`, `ahead-steer`) have the same exit statuses, output files and
//! machine lock.
//!
//! It must never start another program of this project except those in its directory (`programs.rs`).

mod account;
mod apps;
mod boot;
mod cached;
mod check;
pub mod cli;
mod cold;
mod compare;
mod evict;
pub mod exit;
mod export;
mod import;
mod list;
pub mod messages;
mod missing;
pub mod output;
mod pack;
pub mod programs;
mod record;
mod replay;
mod resident;
pub mod restore;
mod root;
mod run;
mod show;
pub mod tune;
mod until;
mod window;

pub use ahead_report::log::start as start_log;

/// The arguments by which a program of this project becomes the guardian of another one: `ahead restore --after PID START`.
pub const GUARDIAN_ARGUMENTS: &[&str] = &["restore", "--after"];

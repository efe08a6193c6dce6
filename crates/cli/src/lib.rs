//! The `ahead` command: one file for each subcommand, with its flags and its calls of the library.
//!
//! Arguments come in; results go to standard output, everything else to standard error, and `exit.rs` defines the exit status.
//! Decisions belong to the library crates.
//!
//! This crate is a library, too: the laboratory's command (`ahead-lab`) has the same exit statuses, output files and machine lock.
//!
//! It must never start another program of this project except the one in its own directory (`laboratory.rs`).

mod account;
mod boot;
mod check;
pub mod cli;
mod compare;
pub mod exit;
mod export;
mod import;
mod laboratory;
mod list;
pub mod messages;
mod missing;
pub mod output;
mod record;
mod replay;
pub mod restore;
mod root;
mod run;
mod show;
pub mod tune;
mod until;
mod words;

pub use laboratory::{become_laboratory_with_own_arguments, is_help_of_laboratory};

use std::io::IsTerminal;

/// Messages go to standard error, up to the level in `AHEAD_LOG` (error, warn, info, debug or trace; warn).
pub fn start_log() {
    let level = std::env::var("AHEAD_LOG").ok().and_then(|level| level.parse().ok());
    let level = level.unwrap_or(tracing_subscriber::filter::LevelFilter::WARN);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_max_level(level)
        .without_time()
        .with_target(false)
        .init();
}

/// The arguments by which a program of this project becomes the guardian of another one: `ahead restore --after PID START`.
pub const GUARDIAN_ARGUMENTS: &[&str] = &["restore", "--after"];

//! The `ahead` command: one file per subcommand, each with its flags and what it does with the library.
//!
//! Arguments come in; results go to standard output, everything else to standard error, and the exit status is that of the contract
//! (`exit.rs`). Nothing is decided here that a library crate could decide.
//!
//! It is a library, too: the laboratory's command (`ahead-lab`) has the same exit statuses, output files and waiting for the machine.
//!
//! It must never start another program of ours but the one that lies beside it (`laboratory.rs`).

mod account;
pub mod cli;
mod compare;
mod drives;
pub mod exit;
mod laboratory;
mod list;
pub mod output;
mod patience;
pub mod record;
mod replay;
pub mod restore;
mod run;
mod show;
pub mod tune;
mod until;
mod words;

pub use compare::observe_evictions;
pub use laboratory::{become_laboratory_with_own_arguments, is_help_of_laboratory};

use std::io::IsTerminal;

/// Messages go to standard error, as far as `AHEAD_LOG` asks for them.
pub fn start_log() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("AHEAD_LOG").unwrap_or_else(|_| "warn".into()))
        .without_time()
        .with_target(false)
        .init();
}

/// The arguments by which a program of ours becomes the guardian of another one: `ahead restore --after PID START`.
pub const GUARDIAN_ARGUMENTS: &[&str] = &["restore", "--after"];

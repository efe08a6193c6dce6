//! `ahead-replay`: prefetches the pages of a profile on a small machine, for instance from its init script.
//!
//! ```text
//!     arguments ──▶ input::load ──▶ Prefetcher: two threads ──▶ Account ──▶ one figure per line, on standard output
//! ```
//!
//! The program is one static file (`scripts/embedded`). It records nothing, starts no program and changes nothing on the machine. So it
//! needs no undo, and it is built to abort on a panic: there is no program that a panic could fail.
//!
//! A profile, which is untrusted, comes in; pages in the page cache and an account go out. This program must never use more than two
//! threads, or need a shared library or a file of the C library at run time.

mod account;
mod arguments;
mod input;

use ahead::Prefetcher;
use ahead::prefetch::Options;
use ahead_sys::descriptors;
use ahead_sys::root::Root;
use arguments::{Arguments, Asked};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// A mistake in the command line.
const USAGE: u8 = 2;
/// Not supported on this machine.
const UNAVAILABLE: u8 = 77;

/// Files are opened for reading by their descriptor in this directory.
const DESCRIPTORS: &str = "/proc/self/fd";

fn main() -> ExitCode {
    let began = Instant::now();
    match arguments::parse(lexopt::Parser::from_env()) {
        Err(why) => failed(USAGE, &format!("{why}; see ahead-replay --help")),
        Ok(Asked::Text(text)) => print(text),
        Ok(Asked::Replay(arguments)) => replay(arguments, began),
    }
}

fn replay(arguments: Arguments, began: Instant) -> ExitCode {
    if !Path::new(DESCRIPTORS).is_dir() {
        return failed(UNAVAILABLE, &format!("{DESCRIPTORS} is missing: mount /proc first (mount -t proc proc /proc)"));
    }
    // Before the profile is read from a slow disk: an initramfs may hand the root over meanwhile.
    let options = match options(&arguments, began) {
        Ok(options) => options,
        Err(error) => return failed(1, &error.to_string()),
    };
    let profile = match input::load(&arguments.profile) {
        Ok(profile) => profile,
        Err(error) => return failed(1, &error),
    };
    let prefetcher = Prefetcher::new(profile).options(options);
    prefetcher.reserve_descriptors();
    match prefetcher.start() {
        Ok(running) => print(&account::lines(&running.finish())),
        Err(error) => failed(1, &error.to_string()),
    }
}

/// With a root directory, /proc, /sys and /dev may be moved into it meanwhile, and this process stays outside.
fn options(arguments: &Arguments, began: Instant) -> ahead_sys::Result<Options> {
    let Some(root) = &arguments.root else { return Ok(arguments.options(began)) };
    descriptors::keep_directories()?;
    Ok(Options { root: Root::at(root)?, ..arguments.options(began) })
}

/// Standard error may be closed: then the message has no reader.
fn failed(status: u8, why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "ahead-replay: {why}");
    ExitCode::from(status)
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(1, &format!("write to standard output: {error}")),
        Ok(()) => ExitCode::SUCCESS,
    }
}

//! `ahead-replay`: prefetches the pages of a profile or a list on a small machine, for instance from its init script.
//!
//! ```text
//!     arguments ──▶ input::load ──▶ Profile ─────────────▶ Replay: two threads ──▶ Account ──▶ one figure per line, or JSON,
//!                        └────────▶ List ──▶ lookups ──▶ Profile ──▲                               on standard output
//! ```
//!
//! The program is one static file (`scripts/embedded`). It records nothing, starts no program and changes nothing on the machine. So it
//! needs no undo, and it is built to abort on a panic: there is no program that a panic could fail.
//!
//! A profile or a list, which is untrusted, comes in; pages in the page cache and an account go out. This program must never use more than two
//! threads, or need a shared library or a file of the C library at run time.

mod arguments;
mod input;
mod lines;

use ahead::prefetch::{Options, reserve_descriptors, resolve};
use ahead::{Account, Profile, Replay};
use ahead_files::lists::List;
use ahead_sys::descriptors;
use ahead_sys::root::Root;
use arguments::{Arguments, Asked};
use input::Input;
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
    let root = match root(&arguments) {
        Ok(root) => root,
        Err(error) => return failed(1, &error.to_string()),
    };
    let (options, as_json) = (arguments.options(began), arguments.json);
    let replayed = input::load(&arguments.file, arguments.nul).and_then(|input| {
        let replayed = match input {
            Input::Profile(profile) => replay_profile(*profile, root, options),
            Input::List(list) => replay_list(list, root, options, began),
        };
        replayed.map_err(|error| error.to_string())
    });
    match replayed {
        Ok(account) => match serde_json::to_string_pretty(&account) {
            Ok(json) => print(&if as_json { json + "\n" } else { lines::of(&json) }),
            Err(error) => failed(1, &format!("write the account: {error}")),
        },
        Err(why) => failed(1, &why),
    }
}

fn replay_profile(profile: Profile, root: Root, options: Options) -> ahead::Result<Account> {
    let prefetcher = Replay::new(profile).root(root).options(options);
    prefetcher.reserve_descriptors();
    Ok(prefetcher.start()?.finish())
}

/// Looks up the files of a list in one thread, and prefetches them in one thread afterwards.
fn replay_list(list: List, root: Root, options: Options, began: Instant) -> ahead::Result<Account> {
    reserve_descriptors(list.files().len());
    let mut resolved = resolve(list, &root, &options, || false)?;
    let profile = std::mem::take(&mut resolved.profile);
    let mut account = match profile.files.is_empty() {
        // Nothing is left to read; the thread of the lookups may wait for a device, and another one would be the third.
        true => {
            let mut account = Account::default();
            account.submitted_us = began.elapsed().as_micros() as u64;
            account
        }
        false => Replay::new(profile).root(root).options(options).start()?.finish(),
    };
    account.add_left_out(resolved.left_out, resolved.holes_bytes);
    Ok(account)
}

/// With a root directory, /proc, /sys and /dev may be moved into it meanwhile, and this process stays outside.
fn root(arguments: &Arguments) -> ahead_sys::Result<Root> {
    let Some(root) = &arguments.root else { return Ok(Root::default()) };
    descriptors::keep_directories()?;
    Root::at(root)
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

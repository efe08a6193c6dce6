//! The files that a command uses, seen from outside, without any privilege: the program and its interpreter, arguments that are files, and
//! what its processes have mapped and open whenever they are looked at. A lower bound: a file that is opened, read and closed between two
//! looks is missed.

use crate::error::IoContext;
use crate::until::Until;
use crate::{Result, Stopped};
use ahead_process::{Child, Command, Signals, family};
use ahead_profile::{Extent, File, Profile};
use ahead_sys::{maps, openat};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Maximum number of files: a desktop program maps some thousand.
const MAX_FILES: usize = 1 << 16;
/// Interval of the first looks: a short program lasts a few milliseconds. A look at one process takes some 50 µs.
const FIRST_INTERVAL: Duration = Duration::from_micros(500);
/// Interval of later looks, to which the first one grows by a tenth each time.
const LAST_INTERVAL: Duration = Duration::from_millis(50);
/// Interpreters of interpreters that are followed, as by the kernel (`bprm->recursion_depth` in fs/exec.c).
const INTERPRETERS: usize = 5;

/// Runs the command once. Returns the files that it uses, each as a whole, and its exit status.
///
/// # Errors
/// [`Stopped`]; the program cannot be started.
pub(crate) fn used_files(command: &Command, until: &Until, signals: &Signals) -> Result<(Profile, i32)> {
    let mut paths = named_files(command);
    let (started, watch) = until.prepare(command)?;
    let mut child = Child::spawn_held(&started)?;
    let pid = child.pid();
    child.release(&started)?;
    let (end, ended) = mpsc::channel::<()>();
    let look = move || {
        let (mut seen, mut interval) = (BTreeSet::new(), FIRST_INTERVAL);
        loop {
            let descendants = family::descendants(pid).unwrap_or_default();
            for process in descendants.iter().map(|process| process.pid).chain([pid]) {
                look_at(process, &mut seen);
            }
            if ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return seen;
            }
            interval = (interval + interval / 10).min(LAST_INTERVAL);
        }
    };
    let looker = std::thread::Builder::new().spawn(look).what("start a thread")?;
    let finished = watch.wait(&mut child, signals, None);
    drop(end);
    paths.extend(looker.join().unwrap_or_default());
    let finished = finished?.unless_stopped().map_err(|stopped: Stopped| stopped)?;
    let files = paths.iter().take(MAX_FILES).filter_map(|path| whole_file(path)).collect();
    Ok((Profile { files, ..Profile::default() }, finished.status))
}

/// The program, its interpreters, and arguments that are files.
fn named_files(command: &Command) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut program = command.program_path();
    for _ in 0..INTERPRETERS {
        let Some(path) = program.and_then(|path| path.canonicalize().ok()) else { break };
        program = interpreter(&path);
        found.insert(path);
    }
    found.extend(command.argv.iter().skip(1).filter_map(|word| fs::canonicalize(word).ok()));
    found
}

/// The program that runs a script: `#!/bin/sh`.
fn interpreter(script: &Path) -> Option<PathBuf> {
    /// `BINPRM_BUF_SIZE` of linux/binfmts.h: what the kernel reads of a program.
    const HEAD_BYTES: u64 = 256;
    let handle = openat::handle(script).ok()?.reopen().ok()?;
    let mut line = Vec::new();
    BufReader::new(fs::File::from(handle).take(HEAD_BYTES)).read_until(b'\n', &mut line).ok()?;
    let rest = line.strip_prefix(b"#!")?.trim_ascii_start();
    let name = rest.split(u8::is_ascii_whitespace).next().filter(|name| !name.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Adds what a process has mapped and open now.
fn look_at(process: u32, seen: &mut BTreeSet<PathBuf>) {
    let mapped = maps::files_of(process).into_iter().filter_map(|area| area.path);
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let open = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    for path in mapped.chain(open).filter(|path| path.is_absolute()) {
        if seen.len() < MAX_FILES {
            seen.insert(path);
        }
    }
}

/// A regular file in the page cache, as a whole.
fn whole_file(path: &Path) -> Option<File> {
    let handle = openat::handle(path).ok().filter(openat::Handle::is_regular_file)?;
    let kind = handle.file_system().ok().filter(|kind| kind.has_page_cache())?;
    let identity = handle.identity();
    let extent = Extent { length_bytes: identity.size_bytes, ..Extent::default() };
    Some(File {
        path: path.as_os_str().to_owned().into_vec(),
        fs_type: kind.name.into(),
        device: identity.device,
        inode: identity.inode,
        size_bytes: identity.size_bytes,
        mtime_ns: identity.mtime_ns,
        extents: if identity.size_bytes > 0 { vec![extent] } else { Vec::new() },
        ..File::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_interpreter_and_arguments_are_found() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (script, data) = (home.path().join("script"), home.path().join("data"));
        fs::write(&script, "#! /bin/sh -e\nexit 3\n").unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(&data, "x").unwrap();
        let command = Command::new([script.clone(), data.clone()]);
        let (profile, status) = used_files(&command, &Until::default(), &Signals::none().unwrap()).unwrap();
        let shell = fs::canonicalize("/bin/sh").unwrap();
        for path in [&script.canonicalize().unwrap(), &data.canonicalize().unwrap(), &shell] {
            assert!(profile.files.iter().any(|file| file.path == path.as_os_str().as_bytes()), "{}", path.display());
        }
        assert_eq!(status, 3);
        assert!(profile.files.iter().all(|file| file.inode > 0 && file.extents.len() <= 1));
    }

    #[test]
    fn own_libraries_are_seen() {
        let mut seen = BTreeSet::new();
        look_at(std::process::id(), &mut seen);
        assert!(seen.contains(&fs::canonicalize("/proc/self/exe").unwrap()));
        assert_eq!(interpreter(&fs::canonicalize("/proc/self/exe").unwrap()), None);
    }
}

//! A program as a job: what its profile says that it has read, from the files that are on the target.
//!
//! Calls of what was used, in the order of first use, and nothing in between: what the kernel reads beside that is what the
//! window brings. A profile is a stranger's list: only regular files on the target are opened, and no link is followed.

use crate::target::number_under;
use crate::work::Program;
use crate::{Error, Result, System, Target};
use ahead_kernel::{evict, openat};
use ahead_profile::Profile;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A call reads no more than this, bytes.
const CALL_BYTES: u64 = 128 << 10;

/// The reads of a profile that go to this target.
///
/// Errors: none of them does.
pub(crate) fn of_profile(system: &System, target: &Target, name: &str, profile: &Profile) -> Result<Program> {
    let mounts = system.mounts()?;
    let is_on = |path: &Path| number_under(system, &mounts, path) == Some(target.number);
    let mut program = Program { name: name.into(), ..Program::default() };
    let numbers: Vec<Option<usize>> = profile
        .files
        .iter()
        .map(|file| {
            let path = Path::new(OsStr::from_bytes(&file.path));
            let there = !file.deleted && is_on(path) && open(path).is_ok();
            there.then(|| {
                program.files.push(path.into());
                program.files.len() - 1
            })
        })
        .collect();
    for at in profile.in_order() {
        let Some(file) = numbers[at.file] else { continue };
        let extent = &profile.files[at.file].extents[at.extent];
        program.reads.push((file, extent.offset_bytes, extent.length_bytes));
    }
    if program.reads.is_empty() {
        let why = format!(
            "nothing of what {name} says was read lies on {}; name the disk that the program's files are on",
            target.name
        );
        return Err(Error::Workload(why));
    }
    Ok(program)
}

fn open(path: &Path) -> Result<File> {
    Ok(openat::handle(path)?.reopen()?.into())
}

/// Runs it once, cold, in bytes per second.
pub(crate) fn rate(program: &Program, stop: &AtomicBool) -> Result<f64> {
    for path in &program.files {
        evict::file(open(path)?)?;
    }
    let mut files: Vec<Option<File>> = program.files.iter().map(|_| None).collect();
    let mut buffer = vec![0; CALL_BYTES as usize];
    let (mut read_bytes, mut elapsed) = (0, Duration::ZERO);
    for (number, offset, length) in &program.reads {
        let path = &program.files[*number];
        if files[*number].is_none() {
            files[*number] = Some(open(path)?);
        }
        let Some(file) = &files[*number] else { continue };
        let began = Instant::now();
        let mut at = *offset;
        while at < offset + length {
            if stop.load(Ordering::Relaxed) {
                return Err(ahead_bench::Error::Stopped.into());
            }
            let now = (offset + length - at).min(CALL_BYTES) as usize;
            let got =
                file.read_at(&mut buffer[..now], at).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
            // The file is shorter than it was.
            if got == 0 {
                break;
            }
            (at, read_bytes) = (at + got as u64, read_bytes + got as u64);
        }
        elapsed += began.elapsed();
    }
    Ok(read_bytes as f64 / elapsed.as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_read_and_nothing_more_is_asked_for() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, vec![1; 300_000]).unwrap();
        let program = Program { name: "x".into(), files: vec![path], reads: vec![(0, 200_000, 200_000), (0, 0, 4096)] };
        assert!(rate(&program, &AtomicBool::new(false)).unwrap() > 0.0);
        assert!(matches!(rate(&program, &AtomicBool::new(true)), Err(Error::Bench(ahead_bench::Error::Stopped))));
    }

    #[test]
    fn a_link_and_what_is_no_file_are_not_opened() {
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", home.path().join("link")).unwrap();
        assert!(open(&home.path().join("link")).is_err());
        assert!(open(Path::new("/dev/null")).is_err());
    }
}

//! A profile as a job: the reads of a program, from the files of its profile that lie on the target.
//!
//! The job reads the used ranges in the order of first use, without pauses. Every other page that the kernel reads is an effect of the
//! window. A profile is untrusted: only regular files on the target are opened, and no symbolic link is followed.

use crate::tune::work::{CALL_BYTES, ProfileWorkload, WorkloadResult, touched_bytes};
use crate::tune::{Error, Result};
use ahead_disk::tune::number_under;
use ahead_disk::tune::{System, Target};
use ahead_profile::Profile;
use ahead_sys::openat::Identity;
use ahead_sys::{cache, evict, openat};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The reads of a profile that go to this target.
///
/// Errors: no file of the profile lies on the target.
pub(crate) fn of_profile(system: &System, target: &Target, name: &str, profile: &Profile) -> Result<ProfileWorkload> {
    let mounts = system.mounts()?;
    let is_on = |path: &Path| number_under(system, &mounts, path) == Some(target.number);
    let mut workload = ProfileWorkload { name: name.into(), ..ProfileWorkload::default() };
    let numbers: Vec<Option<usize>> = profile
        .files
        .iter()
        .map(|file| {
            let path = Path::new(OsStr::from_bytes(&file.path));
            let found =
                (!file.deleted && is_on(path)).then(|| open(path).and_then(|file| Ok(openat::identity(&file)?)));
            let identity = found?.ok()?;
            workload.files.push((path.into(), identity));
            Some(workload.files.len() - 1)
        })
        .collect();
    for at in profile.in_order() {
        let Some(file) = numbers[at.file] else { continue };
        let extent = &profile.files[at.file].extents[at.extent];
        workload.reads.push((file, extent.offset_bytes, extent.length_bytes));
    }
    if workload.reads.is_empty() {
        let why =
            format!("{name}: no file of this profile lies on {}; name the disk of the program's files", target.name);
        return Err(Error::Workload(why));
    }
    Ok(workload)
}

fn open(path: &Path) -> Result<File> {
    Ok(openat::handle(path)?.reopen()?.into())
}

/// Opens a file again. A different file at the same path, perhaps on another device, must not be evicted.
fn open_same((path, found): &(PathBuf, Identity)) -> Result<File> {
    let file = open(path)?;
    let now = openat::identity(&file)?;
    match (now.device, now.inode) == (found.device, found.inode) {
        true => Ok(file),
        false => Err(Error::io(format!("open {}", path.display()), std::io::Error::other("the file was replaced"))),
    }
}

/// Bytes of the pages that the workload uses.
pub(crate) fn used_bytes(workload: &ProfileWorkload) -> u64 {
    touched_bytes(workload.reads.iter().map(|(file, offset, length)| (*file, *offset..offset.saturating_add(*length))))
}

/// Runs the job once, cold.
pub(crate) fn run(workload: &ProfileWorkload, stop: &AtomicBool) -> Result<WorkloadResult> {
    for file in &workload.files {
        evict::file(open_same(file)?)?;
    }
    let mut files: Vec<Option<File>> = workload.files.iter().map(|_| None).collect();
    let mut buffer = vec![0; CALL_BYTES as usize];
    let (mut read_bytes, mut elapsed, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    for (number, offset, length) in &workload.reads {
        let found = &workload.files[*number];
        if files[*number].is_none() {
            files[*number] = Some(open_same(found)?);
        }
        let Some(file) = &files[*number] else { continue };
        let mut at = *offset;
        while at < offset + length {
            if stop.load(Ordering::Relaxed) {
                return Err(crate::bench::Error::Stopped.into());
            }
            let now = (offset + length - at).min(CALL_BYTES) as usize;
            let began = Instant::now();
            let got = file
                .read_at(&mut buffer[..now], at)
                .map_err(|e| Error::io(format!("read {}", found.0.display()), e))?;
            let took = began.elapsed();
            (elapsed, longest) = (elapsed + took, longest.max(took));
            // Another process has truncated the file.
            if got == 0 {
                break;
            }
            (at, read_bytes) = (at + got as u64, read_bytes + got as u64);
        }
    }
    let cached = |file: &File| {
        let size_bytes =
            file.metadata().map_err(|e| Error::io(format!("look at a file of {}", workload.name), e))?.len();
        Ok(cache::resident_bytes(file, 0, size_bytes)?)
    };
    Ok(WorkloadResult {
        bytes_per_s: read_bytes as f64 / elapsed.as_secs_f64().max(1e-9),
        longest_call_s: longest.as_secs_f64(),
        cached_bytes: files.iter().flatten().map(cached).sum::<Result<u64>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_used_ranges_are_read() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, vec![1; 300_000]).unwrap();
        let identity = openat::identity(open(&path).unwrap()).unwrap();
        let files = vec![(path.clone(), identity)];
        let program = ProfileWorkload { name: "x".into(), files, reads: vec![(0, 200_000, 200_000), (0, 0, 4096)] };
        let ran = run(&program, &AtomicBool::new(false)).unwrap();
        assert!(ran.bytes_per_s > 0.0 && ran.longest_call_s > 0.0, "{ran:?}");
        // Of the file's 74 pages: the first one, and all from page 48 on.
        assert_eq!(
            used_bytes(&ProfileWorkload { reads: vec![(0, 200_000, 100_000), (0, 0, 4096)], ..program.clone() }),
            27 * 4096
        );
        assert!(matches!(run(&program, &AtomicBool::new(true)), Err(Error::Bench(crate::bench::Error::Stopped))));
    }

    /// Regression: a file that had replaced the recorded one was evicted and read.
    #[test]
    fn replaced_file_is_not_opened() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, "x").unwrap();
        let found = (path.clone(), openat::identity(open(&path).unwrap()).unwrap());
        assert!(open_same(&found).is_ok());
        std::fs::write(home.path().join("other"), "y").unwrap();
        std::fs::rename(home.path().join("other"), &path).unwrap();
        assert!(open_same(&found).unwrap_err().to_string().contains("the file was replaced"));
    }

    #[test]
    fn symbolic_link_and_device_are_not_opened() {
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", home.path().join("link")).unwrap();
        assert!(open(&home.path().join("link")).is_err());
        assert!(open(Path::new("/dev/null")).is_err());
    }
}

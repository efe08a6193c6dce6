//! Profiles and raw traces as workloads of the simulator: the recorded operations of programs, repeated.
//!
//! A profile has the time of first use of each used range, and the processor time of the program. So one process reads the ranges in this
//! order, and computes in between: the processor time is spread over the time between the uses in proportion, because the program waited
//! for the rest of the time. A profile does not record second uses, writes, or threads.
//!
//! This crate must never open or stat a file that a recording names, open a device or a FIFO, invent a read that was not recorded, or
//! keep more than a limited number of operations in memory.

mod trace;

use crate::{Op, Recording, RecordingKind, Recordings, Scenario, ScenarioError, UsedRanges};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use ahead_profile::{Extent, LoadError, Profile};
use ahead_sys::directory::HeldFile;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads recordings from files.
pub struct Files;

impl Recordings for Files {
    fn load(&self, kind: RecordingKind, path: &Path) -> Result<Recording, String> {
        match kind {
            RecordingKind::Profile => {
                let profile = ahead_files::load(path).map_err(|error| reason(error).replace('\n', " "))?;
                Ok(of_profile(&profile))
            }
            RecordingKind::Trace => trace::load(path),
        }
    }
}

/// Why a scenario or a recording cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// A file cannot be opened.
    #[error(transparent)]
    Open(#[from] ahead_sys::Error),
    /// The scenario, or the recording as a scenario, has an error.
    #[error("{}: {source}", path.display())]
    Scenario {
        /// The file.
        path: PathBuf,
        /// The error.
        source: ScenarioError,
    },
    /// A profile or a trace cannot be the workload of a scenario.
    #[error("{}: {reason}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// A scenario cannot name this file.
    #[error("{}: the name of the file is not UTF-8; rename it", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
}

/// The kind of a recording, from its first bytes. `None`: neither a profile nor a trace, or not a regular file.
///
/// Errors: the file cannot be read.
pub fn kind_of(path: &Path) -> Result<Option<RecordingKind>, Error> {
    if !path.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    // Opens without waiting: a FIFO may have replaced the file.
    let file = HeldFile::open(path)?.into_file();
    let read = file.take(ahead_policy::traces::MAGIC.len() as u64).read_to_end(&mut start);
    read.map_err(|source| Error::Io { path: path.into(), source })?;
    Ok(match &start[..] {
        start if start == ahead_profile::MAGIC => Some(RecordingKind::Profile),
        start if start == ahead_policy::traces::MAGIC => Some(RecordingKind::Trace),
        _ => None,
    })
}

/// The policies for a recording without a scenario: none, today's kernel, ours, and the clairvoyant one.
const POLICIES: [&str; 4] = ["none", "linux-6.18", "ahead", "oracle"];

/// Loads a scenario. A profile or a trace becomes a scenario that repeats it on the default machine.
///
/// Errors: see [`Error`].
pub fn load_scenario(path: &Path) -> Result<Scenario, Error> {
    let failed = |source| Error::Scenario { path: path.into(), source };
    let key = match kind_of(path)? {
        None => return Scenario::load_with(path, &Files).map_err(failed),
        Some(RecordingKind::Profile) => "profile",
        Some(RecordingKind::Trace) => "trace",
    };
    let name = path.file_name().and_then(OsStr::to_str).ok_or_else(|| Error::Name { path: path.into() })?;
    // A JSON string is a TOML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let policies = POLICIES.map(quoted).join(", ");
    let text = format!("name = {0}\npolicies = [{policies}]\n[[workload]]\n{key} = {0}\n", quoted(name));
    let directory = path.parent().unwrap_or(Path::new("."));
    Scenario::from_toml_with(&text, directory, &Files).map_err(|error| match error {
        // The line is one of the text above, not of the file; the message begins with the path.
        ScenarioError::Field { message, .. } => {
            let reason = message.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&message);
            Error::Recording { path: path.into(), reason: reason.into() }
        }
        error => failed(error),
    })
}

/// The reason of an error without the path, which the caller adds.
fn reason(error: LoadError) -> String {
    match error {
        LoadError::Io { source, .. } => source.to_string(),
        LoadError::NotAFile { kind, .. } => format!("{kind}, not a profile: name a file that `ahead record` wrote"),
        LoadError::Decode { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// A process that reads the ranges of a profile.
fn of_profile(profile: &Profile) -> Recording {
    // The files lie on the disk in the recorded order, as far as it is known.
    let position = |file: usize| {
        let offsets = profile.files[file].extents.iter().filter_map(|extent| extent.physical_bytes);
        (profile.files[file].device, offsets.min().unwrap_or(u64::MAX))
    };
    let mut on_disk: Vec<usize> = (0..profile.files.len()).collect();
    on_disk.sort_by_key(|file| position(*file));
    let mut uses: Vec<(FileId, &Extent)> = (0_u32..)
        .zip(&on_disk)
        .flat_map(|(id, file)| profile.files[*file].extents.iter().map(move |extent| (FileId(id), extent)))
        .collect();
    uses.sort_by_key(|(_, extent)| extent.first_use_us);
    let file_pages = on_disk.iter().map(|file| file_pages(&profile.files[*file])).collect();
    let used = Some(Arc::new(UsedRanges::of(profile, &on_disk)));
    Recording { file_pages, programs: vec![ops(profile, &uses).into()], used }
}

/// Length of a file, pages: the recorded one, or the end of the last use if that is larger.
fn file_pages(file: &ahead_profile::File) -> u64 {
    let ends = file.extents.iter().map(|extent| extent.end_bytes());
    ends.chain([file.size_bytes]).max().unwrap_or(0).div_ceil(PAGE_BYTES)
}

fn ops(profile: &Profile, uses: &[(FileId, &Extent)]) -> Vec<Op> {
    let recording = &profile.recording;
    // The program may have used several processors; the simulated machine has one.
    let busy_share = match recording.duration_us {
        0 => 0.0,
        duration_us => (recording.cpu_us as f64 / duration_us as f64).min(1.0),
    };
    let compute = |from_us: u64, to_us: u64| {
        let time_ns = (to_us.saturating_sub(from_us) as f64 * busy_share * 1e3) as u64;
        (time_ns > 0).then_some(Op::Compute { time_ns })
    };
    let mut opened = vec![false; profile.files.len()];
    let mut list = Vec::new();
    let mut at_us = 0;
    for (file, extent) in uses {
        list.extend(compute(at_us, extent.first_use_us));
        at_us = at_us.max(extent.first_use_us);
        let (open, file) = (OpenId(file.0), *file);
        if !std::mem::replace(&mut opened[file.0 as usize], true) {
            list.push(Op::Open { open, file });
        }
        let Extent { offset_bytes, length_bytes, .. } = **extent;
        list.push(Op::Read { open, file, offset_bytes, length_bytes });
    }
    list.extend(compute(at_us, recording.duration_us));
    list.extend((0_u32..).zip(opened).filter(|(_, opened)| *opened).map(|(file, _)| Op::Close { open: OpenId(file) }));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{File, Recording as Recorded};

    fn extent(offset_bytes: u64, length_bytes: u64, first_use_us: u64, physical_bytes: u64) -> Extent {
        Extent {
            offset_bytes,
            length_bytes,
            first_use_us,
            runs: 1,
            physical_bytes: Some(physical_bytes),
            warm_use: None,
        }
    }

    #[test]
    fn ranges_are_read_in_order_of_first_use_with_computing_in_between() {
        let mut profile = Profile {
            recording: Recorded { duration_us: 1000, cpu_us: 500, ..Recorded::default() },
            files: vec![File { size_bytes: 10_000, ..File::default() }, File { size_bytes: 5_000, ..File::default() }],
            ..Profile::default()
        };
        profile.files[0].extents = vec![extent(0, 4096, 100, 1 << 30), extent(8192, 4096, 900, 1 << 31)];
        profile.files[1].extents = vec![extent(0, 8192, 300, 4096)];
        let recording = of_profile(&profile);
        // The second file lies before the first one on the disk.
        assert_eq!(recording.file_pages, [2, 3]);
        let compute = |us: u64| Op::Compute { time_ns: us * 1000 };
        let open = |id| Op::Open { open: OpenId(id), file: FileId(id) };
        let read = |id, offset_bytes, length_bytes| {
            let (open, file) = (OpenId(id), FileId(id));
            Op::Read { open, file, offset_bytes, length_bytes }
        };
        let close = |id| Op::Close { open: OpenId(id) };
        let expected = [
            compute(50),
            open(1),
            read(1, 0, 4096),
            compute(100),
            open(0),
            read(0, 0, 8192),
            compute(300),
            read(1, 8192, 4096),
            compute(50),
            close(0),
            close(1),
        ];
        assert_eq!(*recording.programs[0], expected);
        assert!(recording.check().is_ok());
    }
}

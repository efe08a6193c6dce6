//! Whether a program waits for its disk for longer than a prefetch costs.
//!
//! ```text
//!     waits    the recorded run:   ├────── exec to end ──────┤ − its own time     (a recording without read-ahead waits for each page)
//!              its reads:          requests of the kernel's window × access, and the transfer     ──▶ the smaller of both
//!     cost     a process, its threads, and an open(2) for each file
//! ```
//!
//! Both waits are more than the program has without a prefetch. So a prefetch is left out only where it cannot bring more than it costs.

use crate::{Source, from_recording, pieces};
use ahead_model::PAGE_BYTES;
use ahead_profile::Profile;
use std::collections::BTreeMap;

/// What a program waits for its disks without a prefetch, and what the prefetch costs. Microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// At most this.
    pub waits_us: f64,
    /// About this.
    pub cost_us: f64,
}

impl Worth {
    /// Whether the program waits for longer than the prefetch costs.
    pub fn is_gain(&self) -> bool {
        self.waits_us > self.cost_us
    }
}

/// The cost of a prefetch without its files, microseconds: the process, its threads, the profile. SQLite with everything cached takes 7.4 ms more
/// with `ahead run` (docs/results/overhead.md); its profile has 13 files.
const START_US: f64 = 5000.0;

/// The cost of each file, microseconds: open(2), cachestat(2), readahead(2) and close(2) of a cached file, beside the program. Git with 20,000
/// files takes 15.2 ms more, with two processors, so that most of it overlaps with the program.
const FILE_US: f64 = 2.0;

/// The kernel's default window, bytes: a program that reads a page gets its neighbours.
const WINDOW_BYTES: u64 = 128 << 10;

/// Inodes that one request reads, as in [`crate::inodes`]: 16 KiB of inodes of 256 bytes.
const CHUNK_INODES: u64 = 64;

/// What a prefetch of the profile may gain and costs. `None`: the recording does not say what the program waits for.
pub fn worth(profile: &Profile, processors: u32) -> Option<Worth> {
    let waits_us = recorded_us(profile, processors)?.min(reads_us(profile).unwrap_or(f64::INFINITY));
    let cost_us = START_US + FILE_US * (profile.files.len() + profile.lookups.len()) as f64;
    Some(Worth { waits_us, cost_us })
}

/// The duration of a cold recording without the program's own time.
fn recorded_us(profile: &Profile, processors: u32) -> Option<f64> {
    let recording = &profile.recording;
    if !recording.cold || recording.duration_us == 0 || recording.cpu_us == 0 || profile.ready_us().is_some() {
        return None;
    }
    // The threads of a program share the processors. The timeline of a supervisor is that of what runs in the foreground: shorter, never longer.
    let own_us = recording.cpu_us / u64::from(processors.max(1));
    Some(recording.duration_us.saturating_sub(own_us) as f64)
}

/// The time of the devices for what the program reads, with the kernel's window; `None`: a device is unknown.
fn reads_us(profile: &Profile) -> Option<f64> {
    let mut devices: BTreeMap<u64, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    profile.files.iter().enumerate().for_each(|(index, file)| devices.entry(file.device).or_default().0.push(index));
    let metadata = profile.metadata.iter().enumerate();
    metadata.for_each(|(index, metadata)| devices.entry(metadata.device).or_default().1.push(index));
    let mut of_device: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut before: Option<(Source, u64)> = None;
    for piece in pieces(profile, PAGE_BYTES) {
        let device = match piece.source {
            Source::File(index) => profile.files[index].device,
            Source::Metadata(index) => profile.metadata[index].device,
        };
        let (requests, bytes) = of_device.entry(device).or_default();
        let begins =
            before.is_none_or(|(source, end)| source != piece.source || piece.range.start > end + WINDOW_BYTES);
        *requests += u64::from(begins) + piece.bytes() / WINDOW_BYTES;
        *bytes = bytes.saturating_add(piece.bytes());
        before = Some((piece.source, piece.range.end));
    }
    // Where metadata is not in the cache of the block device, a lookup reads it.
    let mut chunks: Vec<(u64, u64)> = profile.lookups.iter().map(|l| (l.device, l.inode / CHUNK_INODES)).collect();
    chunks.sort_unstable();
    chunks.dedup();
    for (device, _) in chunks.into_iter().filter(|(device, _)| devices.get(device).is_none_or(|(_, m)| m.is_empty())) {
        of_device.entry(device).or_default().0 += 1;
    }
    let mut total_us = 0.0;
    for (device, (requests, bytes)) in of_device {
        let (files, metadata) = devices.get(&device)?;
        let description = from_recording::description(profile, files, metadata, None)?;
        total_us += requests as f64 * description.access_us() + description.transfer_us(bytes);
    }
    Some(total_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{DeviceTimes, Extent, File, Milestone, MilestoneKind, Recording};

    /// A recording of this many files of one page on a device with this access time.
    fn profile(files: u64, far_ns: u64, duration_us: u64) -> Profile {
        let file = |index: u64| File {
            path: format!("/{index}").into(),
            device: 1,
            inode: index + 1,
            size_bytes: PAGE_BYTES,
            extents: vec![Extent { length_bytes: PAGE_BYTES, runs: 1, ..Extent::default() }],
            ..File::default()
        };
        let device =
            DeviceTimes { device: 1, far_ns, near_ns: far_ns, request_ns: 10_000, bandwidth_bytes_per_s: 500_000_000 };
        let recording =
            Recording { cold: true, runs: 1, duration_us, cpu_us: 2000, devices: vec![device], ..Recording::default() };
        Profile { recording, files: (0..files).map(file).collect(), ..Profile::default() }
    }

    #[test]
    fn few_reads_of_a_fast_disk_are_not_worth_a_prefetch() {
        assert!(!worth(&profile(20, 90_000, 60_000), 2).unwrap().is_gain());
        assert!(worth(&profile(200, 90_000, 60_000), 2).unwrap().is_gain());
        assert!(worth(&profile(20, 8_000_000, 200_000), 2).unwrap().is_gain());
    }

    #[test]
    fn recorded_run_that_hardly_waited_is_not_worth_a_prefetch() {
        assert!(!worth(&profile(200, 90_000, 4000), 2).unwrap().is_gain());
        // Threads on several processors: the run waited for up to 9 ms.
        let threads = Recording { cpu_us: 10_000, ..profile(200, 90_000, 14_000).recording };
        let threads = Profile { recording: threads, ..profile(200, 90_000, 14_000) };
        assert!(worth(&threads, 2).unwrap().is_gain() && !worth(&threads, 1).unwrap().is_gain());
    }

    #[test]
    fn recording_that_does_not_say_what_waits_decides_nothing() {
        let known = profile(20, 90_000, 60_000);
        let warm = Recording { cold: false, ..known.recording.clone() };
        assert_eq!(worth(&Profile { recording: warm, ..known.clone() }, 2), None);
        let ready = Milestone { kind: MilestoneKind::Ready, time_us: 50_000, ..Milestone::default() };
        assert_eq!(worth(&Profile { milestones: vec![ready], ..known }, 2), None);
    }
}

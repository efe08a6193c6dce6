//! Cuts a profile to the limits of the format, so that a long recording is not discarded because of a few entries.

use crate::check::{MAX_DEVICES, MAX_EXTENTS, MAX_FILES, MAX_LOOKUPS, MAX_MILESTONES};
use crate::layout::MAX_FILE_BYTES;
use crate::model::{Extent, File, Lookup, Metadata, Milestone, Profile, Recording};
use crate::timeline::Timeline;

/// Size of the header, the names of the maps and the numbers that occur once.
const ONCE_BYTES: usize = 64 << 10;

/// Removes entries beyond the limits of the format, the latest first, and returns their number. They count as lost events, so the
/// profile reports that it is incomplete. Files take precedence over lookups.
pub fn fit(profile: &mut Profile) -> u64 {
    fit_within(profile, MAX_FILE_BYTES as usize)
}

fn fit_within(profile: &mut Profile, most_bytes: usize) -> u64 {
    let once_bytes = ONCE_BYTES.min(most_bytes / 2) + recording_bytes(&profile.recording);
    let mut room = Room { bytes: most_bytes.saturating_sub(once_bytes), extents: MAX_EXTENTS };
    if profile.timeline.as_ref().is_some_and(|timeline| !room.take(timeline_bytes(timeline), 0)) {
        profile.remove_timeline();
    }
    let mut cut = 0;
    cut += keep(&mut profile.files, MAX_FILES, |file| room.take(file_bytes(file), file.extents.len()));
    cut += keep(&mut profile.metadata, MAX_DEVICES, |device| room.take(device_bytes(device), device.extents.len()));
    cut += keep(&mut profile.milestones, MAX_MILESTONES, |milestone| room.take(milestone_bytes(milestone), 0));
    cut += keep(&mut profile.lookups, MAX_LOOKUPS, |lookup| room.take(lookup_bytes(lookup), 0));
    profile.recording.lost_events = profile.recording.lost_events.saturating_add(cut);
    cut
}

struct Room {
    bytes: usize,
    extents: usize,
}

impl Room {
    fn take(&mut self, bytes: usize, extents: usize) -> bool {
        let left = self.bytes.checked_sub(bytes).zip(self.extents.checked_sub(extents));
        if let Some((bytes, extents)) = left {
            (self.bytes, self.extents) = (bytes, extents);
        }
        left.is_some()
    }
}

/// Keeps the entries that fit, at most `most`. Returns the number of removed entries.
fn keep<T>(entries: &mut Vec<T>, most: usize, mut fits: impl FnMut(&T) -> bool) -> u64 {
    let (before, mut kept) = (entries.len(), 0);
    entries.retain(|entry| {
        let stays = kept < most && fits(entry);
        kept += usize::from(stays);
        stays
    });
    (before - kept) as u64
}

/// Length of the head of a CBOR item (RFC 8949, section 3).
fn head_bytes(number: u64) -> usize {
    match number {
        0..24 => 1,
        24..0x100 => 2,
        0x100..0x1_0000 => 3,
        0x1_0000..0x1_0000_0000 => 5,
        _ => 9,
    }
}

fn text_bytes(text: &[u8]) -> usize {
    head_bytes(text.len() as u64) + text.len()
}

fn numbers_bytes<const N: usize>(numbers: [u64; N]) -> usize {
    numbers.into_iter().map(head_bytes).sum()
}

/// An entry of [`Recording::devices`]: three numbers, each with a head.
const TIMES_BYTES: usize = 1 + 3 * 9;

fn recording_bytes(recording: &Recording) -> usize {
    let texts = [&recording.kernel, &recording.machine, &recording.source];
    let paths = text_bytes(&recording.directory) + text_bytes(&recording.root);
    let texts = texts.iter().map(|text| text_bytes(text.as_bytes())).sum::<usize>() + paths;
    texts
        + recording.devices.len() * TIMES_BYTES
        + recording.command.iter().map(|argument| text_bytes(argument)).sum::<usize>()
}

fn extents_bytes(extents: &[Extent]) -> usize {
    let bytes = |extent: &Extent| {
        let Extent { offset_bytes, length_bytes, first_use_us, runs, physical_bytes, warm_use } = *extent;
        let warm = warm_use.map_or(0, |warm| numbers_bytes([warm.time_us, warm.thread.into(), warm.cpu_us]));
        1 + warm + numbers_bytes([offset_bytes, length_bytes, first_use_us, runs.into(), physical_bytes.unwrap_or(0)])
    };
    head_bytes(extents.len() as u64) + extents.iter().map(bytes).sum::<usize>()
}

fn file_bytes(file: &File) -> usize {
    let paths = text_bytes(&file.path) + file.seen_path.as_deref().map_or(1, text_bytes) + text_bytes(&file.fs_path);
    let numbers = numbers_bytes([file.device, file.inode, file.size_bytes, file.mtime_ns.unsigned_abs()]);
    // Two bytes: the array's head and the `deleted` flag.
    let content = file.content.as_ref().map_or(0, |content| 5 + 4 * (1 + content.pieces.len()));
    2 + 2 * usize::from(file.in_place)
        + paths
        + text_bytes(file.fs_type.as_bytes())
        + numbers
        + extents_bytes(&file.extents)
        + content
}

fn device_bytes(metadata: &Metadata) -> usize {
    let paths = text_bytes(&metadata.device_path) + text_bytes(&metadata.mount_point);
    1 + paths + text_bytes(metadata.fs_type.as_bytes()) + head_bytes(metadata.device) + extents_bytes(&metadata.extents)
}

fn lookup_bytes(lookup: &Lookup) -> usize {
    let warm_bytes = lookup.warm_use_us.map_or(0, head_bytes);
    2 + warm_bytes + text_bytes(&lookup.path) + numbers_bytes([lookup.inode, lookup.device, lookup.first_use_us])
}

fn milestone_bytes(milestone: &Milestone) -> usize {
    2 + head_bytes(milestone.time_us) + text_bytes(&milestone.path) + milestone.warm_us.map_or(0, head_bytes)
}

/// Threads and wake-ups are small records of numbers: their largest encodings.
fn timeline_bytes(timeline: &Timeline) -> usize {
    const THREAD_BYTES: usize = 1 + 5 + 9 + 9;
    const WAKEUP_BYTES: usize = 1 + 5 + 9 + 5 + 9;
    timeline.threads.len() * THREAD_BYTES + timeline.wakeups.len() * WAKEUP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(files: u64, lookups: u64) -> Profile {
        let extent = Extent { offset_bytes: 1 << 40, length_bytes: 4096, runs: 1, ..Extent::default() };
        let file = |number| File {
            path: format!("/some/directory/file{number}").into_bytes(),
            fs_path: b"/x".to_vec(),
            inode: number,
            mtime_ns: -1 << 60,
            extents: vec![extent, Extent { offset_bytes: 0, physical_bytes: Some(1 << 33), ..extent }],
            ..File::default()
        };
        let lookup = |number| Lookup { path: format!("/looked/up{number}").into(), ..Lookup::default() };
        Profile {
            recording: Recording { runs: 1, command: vec![vec![b'x'; 300]], ..Recording::default() },
            files: (0..files).map(file).collect(),
            lookups: (0..lookups).map(lookup).collect(),
            metadata: vec![Metadata { extents: vec![extent], ..Metadata::default() }],
            milestones: vec![Milestone { path: b"/m".to_vec(), ..Milestone::default() }],
            timeline: None,
        }
    }

    /// Regression: a recording that exceeded the limits of a profile was discarded at its end.
    #[test]
    fn entries_beyond_the_limit_are_removed_and_counted() {
        let mut cut = profile(1000, 5000);
        let most_bytes = 200 << 10;
        let left_out = fit_within(&mut cut, most_bytes);
        assert!(left_out > 500 && cut.recording.lost_events == left_out, "{left_out}");
        assert_eq!((cut.files.len() as u64, cut.lookups.len() as u64 + left_out), (1000, 5000));
        assert_eq!(cut.lookups[0].path, profile(0, 1).lookups[0].path);
        let bytes = crate::encode(&cut).unwrap().len();
        assert!(bytes <= most_bytes, "{bytes}");
        assert_eq!(fit_within(&mut cut, most_bytes), 0);
    }

    #[test]
    fn profile_within_the_limits_is_unchanged() {
        let mut whole = profile(100, 100);
        assert_eq!(fit(&mut whole), 0);
        assert_eq!(whole, profile(100, 100));
    }

    #[test]
    fn estimated_size_is_not_below_the_encoded_size() {
        let empty = crate::encode(&profile(0, 0)).unwrap().len();
        for (files, lookups) in [(50, 0), (0, 50)] {
            let more = profile(files, lookups);
            let estimate: usize = more.files.iter().map(file_bytes).chain(more.lookups.iter().map(lookup_bytes)).sum();
            let written = crate::encode(&more).unwrap().len() - empty;
            assert!((written..written + 60).contains(&(estimate + 2)), "{estimate} for {written}");
        }
    }
}

//! The rules for a profile's content, checked before writing and after reading.
//!
//! The planner relies on them: no sum of lengths overflows, no extent counts a byte twice, no path contains `..`. A rule
//! belongs here if breaking it would make a reader loop, overflow or compute wrong results. Whether a file still exists and is
//! a regular file is checked when it is prefetched.

use crate::error::Invalid;
use crate::model::{Extent, File, Profile};
use crate::timeline::{Timeline, WarmUse};
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Longest path, bytes (`PATH_MAX` of Linux).
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest argument of the command, bytes (`MAX_ARG_STRLEN` of Linux).
pub const MAX_ARGUMENT_BYTES: usize = 128 << 10;
/// Longest text (kernel, machine, source, file system type), bytes.
pub const MAX_TEXT_BYTES: usize = 4096;
/// Maximum number of files in a profile; a boot reads some ten thousand.
pub const MAX_FILES: usize = 1 << 20;
/// Maximum number of extents in a profile, over all files and devices: 400 MB of memory when decoded.
pub const MAX_EXTENTS: usize = 1 << 23;
/// Maximum number of block devices with metadata.
pub const MAX_DEVICES: usize = 1 << 12;
/// Maximum number of lookups.
pub const MAX_LOOKUPS: usize = 1 << 22;
/// Maximum number of milestones.
pub const MAX_MILESTONES: usize = 1 << 20;
/// Maximum number of threads of a timeline: twice the default limit of threads of a machine with 2 GiB (`threads-max`).
pub const MAX_THREADS: usize = 1 << 16;
/// Maximum number of wake-ups of a timeline.
pub const MAX_WAKEUPS: usize = 1 << 20;
/// Maximum number of arguments of the command.
pub const MAX_ARGUMENTS: usize = 1 << 17;
/// Largest offset, size, time and count: the maximum of the kernel's `loff_t`.
pub(crate) const MAX_NUMBER: u64 = i64::MAX as u64;

/// Searched in tens of thousands of paths while the program waits, hence the fast search.
static UPWARDS: LazyLock<Finder> = LazyLock::new(|| Finder::new(b"/.."));

/// Checks whether a path may be in a profile. Recorders call this before they add a path. Errors: the reason.
pub fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.first() != Some(&b'/') {
        return Err("the path is not absolute");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("the path is longer than 4096 bytes");
    }
    if path.contains(&0) {
        return Err("the path contains a NUL byte");
    }
    if UPWARDS.find(path).is_some() && path.split(|byte| *byte == b'/').any(|name| name == b"..") {
        return Err("the path contains \"..\"");
    }
    Ok(())
}

/// Checks all rules. Errors: the first one that the profile breaks.
pub fn check(profile: &Profile) -> Result<(), Invalid> {
    check_recording(profile)?;
    let threads = profile.timeline.as_ref().map_or(0, |timeline| timeline.threads.len());
    let mut totals = Totals { runs: profile.recording.runs, threads, extents: 0, bytes: 0 };
    at_most(profile.files.len(), MAX_FILES, || "files".into())?;
    for (index, file) in profile.files.iter().enumerate() {
        check_file(file, index, &mut totals)?;
    }
    at_most(profile.metadata.len(), MAX_DEVICES, || "metadata".into())?;
    for (index, metadata) in profile.metadata.iter().enumerate() {
        let place = |what: &str| format!("metadata[{index}].{what}");
        path_or_empty(&metadata.device_path, || place("device_path"))?;
        path_or_empty(&metadata.mount_point, || place("mount_point"))?;
        text(&metadata.fs_type, || place("fs_type"))?;
        check_extents(&metadata.extents, || place("extents"), &mut totals)?;
    }
    at_most(profile.lookups.len(), MAX_LOOKUPS, || "lookups".into())?;
    for (index, lookup) in profile.lookups.iter().enumerate() {
        check_path(&lookup.path).map_err(|reason| invalid(format!("lookups[{index}].path"), reason))?;
        number(lookup.first_use_us, || format!("lookups[{index}].first_use_us"))?;
        number(lookup.warm_use_us.unwrap_or(0), || format!("lookups[{index}].warm_use_us"))?;
    }
    at_most(profile.milestones.len(), MAX_MILESTONES, || "milestones".into())?;
    for (index, milestone) in profile.milestones.iter().enumerate() {
        path_or_empty(&milestone.path, || format!("milestones[{index}].path"))?;
        number(milestone.time_us, || format!("milestones[{index}].time_us"))?;
        number(milestone.warm_us.unwrap_or(0), || format!("milestones[{index}].warm_us"))?;
    }
    profile.timeline.as_deref().map_or(Ok(()), check_timeline)
}

/// Threads and wake-ups refer to threads that exist. Whether their times contradict each other is not checked: `plan` then treats the
/// order as unknown.
fn check_timeline(timeline: &Timeline) -> Result<(), Invalid> {
    number(timeline.warm_us, || "timeline.warm_us".into())?;
    number(timeline.reading_ns, || "timeline.reading_ns".into())?;
    at_most(timeline.threads.len(), MAX_THREADS, || "timeline.threads".into())?;
    for (index, thread) in timeline.threads.iter().enumerate() {
        let place = || format!("timeline.threads[{index}]");
        if thread.parent.is_some_and(|parent| parent as usize >= index) {
            return Err(invalid(place(), "a thread that is started later cannot start it"));
        }
        number(thread.parent_cpu_us, place)?;
        number(thread.cpu_us, place)?;
    }
    at_most(timeline.wakeups.len(), MAX_WAKEUPS, || "timeline.wakeups".into())?;
    for (index, wakeup) in timeline.wakeups.iter().enumerate() {
        let place = || format!("timeline.wakeups[{index}]");
        let is_thread = |thread: u32| (thread as usize) < timeline.threads.len();
        if !is_thread(wakeup.by) || !is_thread(wakeup.woken) {
            return Err(invalid(place(), "there is no such thread"));
        }
        number(wakeup.by_cpu_us, place)?;
        number(wakeup.woken_cpu_us, place)?;
    }
    Ok(())
}

/// Counts over all files and devices.
struct Totals {
    runs: u32,
    threads: usize,
    extents: usize,
    bytes: u64,
}

fn check_recording(profile: &Profile) -> Result<(), Invalid> {
    let recording = &profile.recording;
    let place = |what: &str| format!("recording.{what}");
    at_most(recording.command.len(), MAX_ARGUMENTS, || "recording.command".into())?;
    for (index, argument) in recording.command.iter().enumerate() {
        if argument.len() > MAX_ARGUMENT_BYTES || argument.contains(&0) {
            return Err(invalid(format!("recording.command[{index}]"), "longer than 128 KiB, or contains a NUL byte"));
        }
    }
    path_or_empty(&recording.directory, || place("directory"))?;
    path_or_empty(&recording.root, || place("root"))?;
    text(&recording.kernel, || place("kernel"))?;
    text(&recording.machine, || place("machine"))?;
    text(&recording.source, || place("source"))?;
    number(recording.created_unix_s, || place("created_unix_s"))?;
    number(recording.lost_events, || place("lost_events"))?;
    number(recording.duration_us, || place("duration_us"))?;
    number(recording.read_ahead_kb, || place("read_ahead_kb"))?;
    number(recording.cpu_us, || place("cpu_us"))?;
    at_most(recording.devices.len(), MAX_DEVICES, || place("devices"))?;
    for (index, times) in recording.devices.iter().enumerate() {
        number(times.far_ns, || format!("recording.devices[{index}].far_ns"))?;
        number(times.near_ns, || format!("recording.devices[{index}].near_ns"))?;
        number(times.request_ns, || format!("recording.devices[{index}].request_ns"))?;
        number(times.bandwidth_bytes_per_s, || format!("recording.devices[{index}].bandwidth_bytes_per_s"))?;
    }
    if recording.runs == 0 {
        return Err(invalid(place("runs"), "a profile has at least one run"));
    }
    Ok(())
}

fn check_file(file: &File, index: usize, totals: &mut Totals) -> Result<(), Invalid> {
    let place = |what: &str| format!("files[{index}].{what}");
    check_path(&file.path).map_err(|reason| invalid(place("path"), reason))?;
    if let Some(seen) = &file.seen_path {
        check_path(seen).map_err(|reason| invalid(place("seen_path"), reason))?;
    }
    path_or_empty(&file.fs_path, || place("fs_path"))?;
    text(&file.fs_type, || place("fs_type"))?;
    number(file.size_bytes, || place("size_bytes"))?;
    check_extents(&file.extents, || place("extents"), totals)
}

fn check_extents(extents: &[Extent], place: impl Fn() -> String, totals: &mut Totals) -> Result<(), Invalid> {
    totals.extents += extents.len();
    at_most(totals.extents, MAX_EXTENTS, &place)?;
    for (index, extent) in extents.iter().enumerate() {
        check_extent(extent, totals).map_err(|reason| invalid(format!("{}[{index}]", place()), reason))?;
        totals.bytes = totals.bytes.saturating_add(extent.length_bytes);
        if totals.bytes > MAX_NUMBER {
            return Err(invalid(format!("{}[{index}]", place()), "the total length of all extents exceeds 2^63 bytes"));
        }
    }
    check_overlap(extents, place)
}

fn check_overlap(extents: &[Extent], place: impl Fn() -> String) -> Result<(), Invalid> {
    // Fast path: most files are read from beginning to end, so nothing has to be sorted.
    if extents.is_sorted_by(|before, after| before.end_bytes() <= after.offset_bytes) {
        return Ok(());
    }
    let mut by_offset: Vec<usize> = (0..extents.len()).collect();
    by_offset.sort_unstable_by_key(|index| extents[*index].offset_bytes);
    for pair in by_offset.windows(2) {
        let (before, after) = (&extents[pair[0]], &extents[pair[1]]);
        if before.end_bytes() > after.offset_bytes {
            return Err(invalid(format!("{}[{}]", place(), pair[1]), format!("it overlaps with entry {}", pair[0])));
        }
    }
    Ok(())
}

fn check_extent(extent: &Extent, totals: &Totals) -> Result<(), &'static str> {
    let end = extent.offset_bytes.checked_add(extent.length_bytes);
    if extent.length_bytes == 0 {
        Err("its length is 0")
    } else if end.is_none_or(|end| end > MAX_NUMBER) {
        Err("it ends beyond 2^63 bytes")
    } else if extent.first_use_us > MAX_NUMBER || extent.physical_bytes.is_some_and(|at| at > MAX_NUMBER) {
        Err("its time or position is beyond 2^63")
    } else if extent.runs == 0 || extent.runs > totals.runs {
        Err("its number of runs is not between 1 and the runs of the recording")
    } else if extent.warm_use.is_some_and(|warm_use| !is_on_timeline(&warm_use, totals.threads)) {
        Err("its use is not on the timeline")
    } else {
        Ok(())
    }
}

fn is_on_timeline(warm_use: &WarmUse, threads: usize) -> bool {
    (warm_use.thread as usize) < threads && warm_use.time_us.max(warm_use.cpu_us) <= MAX_NUMBER
}

fn path_or_empty(path: &[u8], place: impl FnOnce() -> String) -> Result<(), Invalid> {
    if path.is_empty() { Ok(()) } else { check_path(path).map_err(|reason| invalid(place(), reason)) }
}

fn text(text: &str, place: impl FnOnce() -> String) -> Result<(), Invalid> {
    if text.len() > MAX_TEXT_BYTES { Err(invalid(place(), "longer than 4096 bytes")) } else { Ok(()) }
}

fn number(value: u64, place: impl FnOnce() -> String) -> Result<(), Invalid> {
    if value > MAX_NUMBER { Err(invalid(place(), format!("{value} is beyond 2^63"))) } else { Ok(()) }
}

fn at_most(count: usize, limit: usize, place: impl FnOnce() -> String) -> Result<(), Invalid> {
    if count > limit {
        Err(invalid(place(), format!("{count} entries, more than the {limit} allowed")))
    } else {
        Ok(())
    }
}

fn invalid(place: String, reason: impl Into<String>) -> Invalid {
    Invalid { place, reason: reason.into() }
}

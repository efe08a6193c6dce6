//! Decodes a profile. The bytes are untrusted until every rule is checked.

use crate::check::{self, check};
use crate::error::DecodeError;
use crate::header;
use crate::model::{
    ContentCheck, DeviceTimes, Extent, File, Lookup, MAX_PIECES, Metadata, Milestone, MilestoneKind, Precision,
    Profile, Recording,
};
use crate::reader::{Reader, Result};
use crate::timeline::{Thread, Timeline, TimelineSource, Wakeup, WarmUse};
use bytes::Bytes;

// The smallest encodings of a record, in bytes: one for the array's head and one for each field. They limit the allocation for a
// claimed number of entries.
const SMALLEST_FILE: usize = 1 + 10;
const SMALLEST_TIMES: usize = 1 + 5;
const SMALLEST_EXTENT: usize = 1 + 5;
const SMALLEST_METADATA: usize = 1 + 5;
const SMALLEST_LOOKUP: usize = 1 + 5;
const SMALLEST_MILESTONE: usize = 1 + 3;
const SMALLEST_THREAD: usize = 1 + 3;
const SMALLEST_WAKEUP: usize = 1 + 4;

/// Decodes a whole file (header and body).
///
/// Errors: every [`DecodeError`]. Never panics, and never allocates more than about 20 times the input (at most
/// [`crate::MAX_FILE_BYTES`]).
pub fn decode(bytes: &[u8]) -> std::result::Result<Profile, DecodeError> {
    decode_shared(&Bytes::copy_from_slice(bytes))
}

/// As [`decode`], but the paths of lookups refer to these bytes and are not copied: there may be tens of thousands, and the
/// program waits.
pub fn decode_shared(bytes: &Bytes) -> std::result::Result<Profile, DecodeError> {
    let mut reader = Reader::new(header::unwrap(bytes)?);
    let mut profile = Profile::default();
    let mut extents_left = check::MAX_EXTENTS;
    // Older profiles, and those of an observer without clocks, have no timeline.
    let keys = ["recording", "files", "metadata", "lookups", "milestones", "timeline"];
    reader.map_with_optional(&keys, keys.len() - 1, |reader, key| {
        match key {
            0 => profile.recording = recording(reader)?,
            1 => {
                profile.files =
                    reader.list(check::MAX_FILES, SMALLEST_FILE, |reader| file(reader, &mut extents_left))?
            }
            2 => {
                profile.metadata =
                    reader.list(check::MAX_DEVICES, SMALLEST_METADATA, |reader| metadata(reader, &mut extents_left))?
            }
            3 => profile.lookups = reader.list(check::MAX_LOOKUPS, SMALLEST_LOOKUP, |reader| lookup(reader, bytes))?,
            4 => profile.milestones = reader.list(check::MAX_MILESTONES, SMALLEST_MILESTONE, milestone)?,
            _ => profile.timeline = Some(Box::new(timeline(reader)?)),
        }
        Ok(())
    })?;
    reader.end()?;
    check(&profile)?;
    Ok(profile)
}

fn recording(reader: &mut Reader) -> Result<Recording> {
    let mut recording = Recording::default();
    let keys = [
        "command",
        "directory",
        "created_unix_s",
        "kernel",
        "machine",
        "source",
        "precision",
        "cold",
        "metadata_seen",
        "lost_events",
        "runs",
        "duration_us",
        "read_ahead_kb",
        "cpu_us",
        // Older profiles, and those of the whole machine, do not have it.
        "root",
        // Older profiles, and those without measured times, do not have it.
        "devices",
    ];
    reader.map_with_optional(&keys, keys.len() - 2, |reader, key| {
        match keys[key] {
            "command" => {
                recording.command = reader.list(check::MAX_ARGUMENTS, 1, |reader| {
                    reader.bytes(check::MAX_ARGUMENT_BYTES).map(<[u8]>::to_vec)
                })?
            }
            "directory" => recording.directory = path(reader)?,
            "created_unix_s" => recording.created_unix_s = reader.number()?,
            "kernel" => recording.kernel = text(reader)?,
            "machine" => recording.machine = text(reader)?,
            "source" => recording.source = text(reader)?,
            "precision" => recording.precision = precision(reader)?,
            "cold" => recording.cold = reader.flag()?,
            "metadata_seen" => recording.metadata_seen = reader.flag()?,
            "lost_events" => recording.lost_events = reader.number()?,
            "runs" => recording.runs = reader.number_u32()?,
            "duration_us" => recording.duration_us = reader.number()?,
            "read_ahead_kb" => recording.read_ahead_kb = reader.number()?,
            "cpu_us" => recording.cpu_us = reader.number()?,
            "root" => recording.root = path(reader)?,
            _ => recording.devices = reader.list(check::MAX_DEVICES, SMALLEST_TIMES, device_times)?,
        }
        Ok(())
    })?;
    Ok(recording)
}

fn device_times(reader: &mut Reader) -> Result<DeviceTimes> {
    reader.record(5, |reader| {
        Ok(DeviceTimes {
            device: reader.named("device", Reader::number)?,
            far_ns: reader.named("far_ns", Reader::number)?,
            near_ns: reader.named("near_ns", Reader::number)?,
            request_ns: reader.named("request_ns", Reader::number)?,
            bandwidth_bytes_per_s: reader.named("bandwidth_bytes_per_s", Reader::number)?,
        })
    })
}

fn precision(reader: &mut Reader) -> Result<Precision> {
    let start = reader.position();
    match reader.text(check::MAX_TEXT_BYTES)? {
        "precise" => Ok(Precision::Precise),
        "upper_bound" => Ok(Precision::UpperBound),
        _ => Reader::fault(start, "neither precise nor upper_bound"),
    }
}

fn file(reader: &mut Reader, extents_left: &mut usize) -> Result<File> {
    let fields = |reader: &mut Reader| {
        Ok(File {
            path: reader.named("path", path)?,
            seen_path: reader.named("seen_path", |reader| reader.optional(path))?,
            fs_path: reader.named("fs_path", path)?,
            fs_type: reader.named("fs_type", text)?,
            device: reader.named("device", Reader::number)?,
            inode: reader.named("inode", Reader::number)?,
            size_bytes: reader.named("size_bytes", Reader::number)?,
            mtime_ns: reader.named("mtime_ns", Reader::signed)?,
            deleted: reader.named("deleted", Reader::flag)?,
            extents: extents(reader, extents_left)?,
            content: None,
            in_place: false,
        })
    };
    // Older profiles, and those of programs, have neither.
    reader.record_with_optional(10, fields, |reader, file, number| {
        match number {
            0 => file.content = reader.named("content", |reader| reader.optional(content))?,
            1 => file.in_place = reader.named("in_place", Reader::flag)?,
            _ => reader.skip()?,
        }
        Ok(())
    })
}

fn content(reader: &mut Reader) -> Result<Box<ContentCheck>> {
    let start = reader.position();
    let bytes = reader.bytes(4 * (1 + MAX_PIECES))?;
    let (digests, rest) = bytes.as_chunks::<4>();
    let mut digests = digests.iter().map(|digest| u32::from_le_bytes(*digest));
    match digests.next() {
        Some(layout) if rest.is_empty() => Ok(Box::new(ContentCheck { layout, pieces: digests.collect() })),
        _ => Reader::fault(start, "its length is not a multiple of 4 above 0"),
    }
}

fn metadata(reader: &mut Reader, extents_left: &mut usize) -> Result<Metadata> {
    reader.record(5, |reader| {
        Ok(Metadata {
            device_path: reader.named("device_path", path)?,
            mount_point: reader.named("mount_point", path)?,
            fs_type: reader.named("fs_type", text)?,
            device: reader.named("device", Reader::number)?,
            extents: extents(reader, extents_left)?,
        })
    })
}

fn extents(reader: &mut Reader, left: &mut usize) -> Result<Vec<Extent>> {
    let extents = reader.named("extents", |reader| reader.list(*left, SMALLEST_EXTENT, extent))?;
    *left -= extents.len();
    Ok(extents)
}

fn extent(reader: &mut Reader) -> Result<Extent> {
    let fields = |reader: &mut Reader| {
        Ok(Extent {
            offset_bytes: reader.named("offset_bytes", Reader::number)?,
            length_bytes: reader.named("length_bytes", Reader::number)?,
            first_use_us: reader.named("first_use_us", Reader::number)?,
            runs: reader.named("runs", Reader::number_u32)?,
            physical_bytes: reader.named("physical_bytes", |reader| reader.optional(Reader::number))?,
            warm_use: None,
        })
    };
    reader.record_with_optional(5, fields, |reader, extent, number| {
        let warm_use = || WarmUse::default();
        match number {
            0 => extent.warm_use.get_or_insert_with(warm_use).time_us = reader.named("warm_use_us", Reader::number)?,
            1 => extent.warm_use.get_or_insert_with(warm_use).thread = reader.named("thread", Reader::number_u32)?,
            2 => extent.warm_use.get_or_insert_with(warm_use).cpu_us = reader.named("cpu_us", Reader::number)?,
            _ => reader.skip()?,
        }
        Ok(())
    })
}

fn lookup(reader: &mut Reader, all: &Bytes) -> Result<Lookup> {
    let fields = |reader: &mut Reader| {
        Ok(Lookup {
            path: reader.named("path", |reader| reader.bytes(check::MAX_PATH_BYTES).map(|path| all.slice_ref(path)))?,
            inode: reader.named("inode", Reader::number)?,
            device: reader.named("device", Reader::number)?,
            listed: reader.named("listed", Reader::flag)?,
            first_use_us: reader.named("first_use_us", Reader::number)?,
            warm_use_us: None,
        })
    };
    reader.record_with_optional(5, fields, |reader, lookup, number| {
        match number {
            0 => lookup.warm_use_us = Some(reader.named("warm_use_us", Reader::number)?),
            _ => reader.skip()?,
        }
        Ok(())
    })
}

fn milestone(reader: &mut Reader) -> Result<Milestone> {
    let fields = |reader: &mut Reader| {
        Ok(Milestone {
            time_us: reader.named("time_us", Reader::number)?,
            kind: reader.named("kind", milestone_kind)?,
            path: reader.named("path", path)?,
            warm_us: None,
        })
    };
    reader.record_with_optional(3, fields, |reader, milestone, number| {
        match number {
            0 => milestone.warm_us = Some(reader.named("warm_us", Reader::number)?),
            _ => reader.skip()?,
        }
        Ok(())
    })
}

fn timeline(reader: &mut Reader) -> Result<Timeline> {
    let mut timeline = Timeline::default();
    // Older profiles do not have the time of reading.
    reader.map_with_optional(&["source", "warm_us", "threads", "wakeups", "reading_ns"], 4, |reader, key| {
        match key {
            0 => timeline.source = timeline_source(reader)?,
            1 => timeline.warm_us = reader.number()?,
            2 => timeline.threads = reader.list(check::MAX_THREADS, SMALLEST_THREAD, thread)?,
            3 => timeline.wakeups = reader.list(check::MAX_WAKEUPS, SMALLEST_WAKEUP, wakeup)?,
            _ => timeline.reading_ns = reader.number()?,
        }
        Ok(())
    })?;
    Ok(timeline)
}

fn timeline_source(reader: &mut Reader) -> Result<TimelineSource> {
    let start = reader.position();
    match reader.text(check::MAX_TEXT_BYTES)? {
        "processor_clocks" => Ok(TimelineSource::ProcessorClocks),
        "warm_run" => Ok(TimelineSource::WarmRun),
        _ => Reader::fault(start, "neither processor_clocks nor warm_run"),
    }
}

fn thread(reader: &mut Reader) -> Result<Thread> {
    reader.record(3, |reader| {
        Ok(Thread {
            parent: reader.named("parent", |reader| reader.optional(Reader::number_u32))?,
            parent_cpu_us: reader.named("parent_cpu_us", Reader::number)?,
            cpu_us: reader.named("cpu_us", Reader::number)?,
        })
    })
}

fn wakeup(reader: &mut Reader) -> Result<Wakeup> {
    reader.record(4, |reader| {
        Ok(Wakeup {
            by: reader.named("by", Reader::number_u32)?,
            by_cpu_us: reader.named("by_cpu_us", Reader::number)?,
            woken: reader.named("woken", Reader::number_u32)?,
            woken_cpu_us: reader.named("woken_cpu_us", Reader::number)?,
        })
    })
}

fn milestone_kind(reader: &mut Reader) -> Result<MilestoneKind> {
    reader.number_as("a kind of milestone, 0 to 2", |value| match value {
        0 => Some(MilestoneKind::Exec),
        1 => Some(MilestoneKind::FirstOpen),
        2 => Some(MilestoneKind::Ready),
        _ => None,
    })
}

fn path(reader: &mut Reader) -> Result<Vec<u8>> {
    reader.bytes(check::MAX_PATH_BYTES).map(<[u8]>::to_vec)
}

fn text(reader: &mut Reader) -> Result<String> {
    reader.text(check::MAX_TEXT_BYTES).map(str::to_owned)
}

//! Encodes a profile. The same profile always gives the same bytes.
//!
//! Records that occur many times (files, extents, lookups) are arrays without names, in the order of `docs/reference/profile.md`. Records that
//! occur once are maps with names. A newer version may add keys to the maps and fields to the ends of the arrays.

use crate::cbor::{FALSE, Head, Kind, NULL, TRUE};
use crate::check::check;
use crate::error::SaveError;
use crate::header;
use crate::layout::MAX_FILE_BYTES;
use crate::model::{
    ContentCheck, DeviceTimes, Extent, File, Lookup, Metadata, Milestone, MilestoneKind, Precision, Profile, Recording,
};
use crate::timeline::{Thread, Timeline, TimelineSource, Wakeup, WarmUse};

/// The bytes of the file: header and body.
///
/// Errors: [`SaveError::Invalid`] if the profile breaks a rule that decoding enforces, [`SaveError::TooLarge`].
pub fn encode(profile: &Profile) -> Result<Vec<u8>, SaveError> {
    check(profile)?;
    let mut out = Writer::default();
    out.map(5 + usize::from(profile.timeline.is_some()));
    out.key("recording");
    write_recording(&mut out, &profile.recording);
    out.key("files");
    out.list(&profile.files, write_file);
    out.key("metadata");
    out.list(&profile.metadata, write_metadata);
    out.key("lookups");
    out.list(&profile.lookups, write_lookup);
    out.key("milestones");
    out.list(&profile.milestones, write_milestone);
    if let Some(timeline) = &profile.timeline {
        out.key("timeline");
        write_timeline(&mut out, timeline);
    }
    let bytes = header::wrap(&out.0);
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(SaveError::TooLarge { bytes: bytes.len() as u64, limit: MAX_FILE_BYTES });
    }
    Ok(bytes)
}

fn write_recording(out: &mut Writer, recording: &Recording) {
    let has_root = !recording.root.is_empty();
    let has_devices = !recording.devices.is_empty();
    out.map(14 + usize::from(has_root) + usize::from(has_devices));
    out.key("command");
    out.list(&recording.command, |out, argument| out.bytes(argument));
    out.key("directory");
    out.bytes(&recording.directory);
    out.key("created_unix_s");
    out.number(recording.created_unix_s);
    out.key("kernel");
    out.text(&recording.kernel);
    out.key("machine");
    out.text(&recording.machine);
    out.key("source");
    out.text(&recording.source);
    out.key("precision");
    out.text(match recording.precision {
        Precision::Precise => "precise",
        Precision::UpperBound => "upper_bound",
    });
    out.key("cold");
    out.flag(recording.cold);
    out.key("metadata_seen");
    out.flag(recording.metadata_seen);
    out.key("lost_events");
    out.number(recording.lost_events);
    out.key("runs");
    out.number(recording.runs.into());
    out.key("duration_us");
    out.number(recording.duration_us);
    out.key("read_ahead_kb");
    out.number(recording.read_ahead_kb);
    out.key("cpu_us");
    out.number(recording.cpu_us);
    if has_root {
        out.key("root");
        out.bytes(&recording.root);
    }
    if has_devices {
        out.key("devices");
        out.list(&recording.devices, |out, times| {
            let DeviceTimes { device, far_ns, near_ns, request_ns, bandwidth_bytes_per_s } = *times;
            out.array(5);
            [device, far_ns, near_ns, request_ns, bandwidth_bytes_per_s].into_iter().for_each(|n| out.number(n));
        });
    }
}

fn write_file(out: &mut Writer, file: &File) {
    out.array(if file.in_place { 12 } else { 10 + usize::from(file.content.is_some()) });
    out.bytes(&file.path);
    out.optional(file.seen_path.as_deref(), |out, path| out.bytes(path));
    out.bytes(&file.fs_path);
    out.text(&file.fs_type);
    out.number(file.device);
    out.number(file.inode);
    out.number(file.size_bytes);
    out.signed(file.mtime_ns);
    out.flag(file.deleted);
    out.list(&file.extents, write_extent);
    if file.in_place || file.content.is_some() {
        out.optional(file.content.as_deref(), |out, ContentCheck { layout, pieces }| {
            let digests = std::iter::once(layout).chain(pieces);
            out.bytes(&digests.flat_map(|digest| digest.to_le_bytes()).collect::<Vec<u8>>());
        });
    }
    if file.in_place {
        out.flag(true);
    }
}

fn write_extent(out: &mut Writer, extent: &Extent) {
    out.array(if extent.warm_use.is_some() { 8 } else { 5 });
    out.number(extent.offset_bytes);
    out.number(extent.length_bytes);
    out.number(extent.first_use_us);
    out.number(extent.runs.into());
    out.optional(extent.physical_bytes, Writer::number);
    if let Some(WarmUse { time_us, thread, cpu_us }) = extent.warm_use {
        out.number(time_us);
        out.number(thread.into());
        out.number(cpu_us);
    }
}

fn write_metadata(out: &mut Writer, metadata: &Metadata) {
    out.array(5);
    out.bytes(&metadata.device_path);
    out.bytes(&metadata.mount_point);
    out.text(&metadata.fs_type);
    out.number(metadata.device);
    out.list(&metadata.extents, write_extent);
}

fn write_lookup(out: &mut Writer, lookup: &Lookup) {
    out.array(5 + usize::from(lookup.warm_use_us.is_some()));
    out.bytes(&lookup.path);
    out.number(lookup.inode);
    out.number(lookup.device);
    out.flag(lookup.listed);
    out.number(lookup.first_use_us);
    if let Some(warm_use_us) = lookup.warm_use_us {
        out.number(warm_use_us);
    }
}

fn write_milestone(out: &mut Writer, milestone: &Milestone) {
    out.array(3 + usize::from(milestone.warm_us.is_some()));
    out.number(milestone.time_us);
    out.number(match milestone.kind {
        MilestoneKind::Exec => 0,
        MilestoneKind::FirstOpen => 1,
        MilestoneKind::Ready => 2,
    });
    out.bytes(&milestone.path);
    if let Some(warm_us) = milestone.warm_us {
        out.number(warm_us);
    }
}

fn write_timeline(out: &mut Writer, timeline: &Timeline) {
    out.map(4 + usize::from(timeline.reading_ns > 0));
    out.key("source");
    out.text(match timeline.source {
        TimelineSource::ProcessorClocks => "processor_clocks",
        TimelineSource::WarmRun => "warm_run",
    });
    out.key("warm_us");
    out.number(timeline.warm_us);
    if timeline.reading_ns > 0 {
        out.key("reading_ns");
        out.number(timeline.reading_ns);
    }
    out.key("threads");
    out.list(&timeline.threads, |out, Thread { parent, parent_cpu_us, cpu_us }| {
        out.array(3);
        out.optional(*parent, |out, parent| out.number(parent.into()));
        out.number(*parent_cpu_us);
        out.number(*cpu_us);
    });
    out.key("wakeups");
    out.list(&timeline.wakeups, |out, Wakeup { by, by_cpu_us, woken, woken_cpu_us }| {
        out.array(4);
        out.number((*by).into());
        out.number(*by_cpu_us);
        out.number((*woken).into());
        out.number(*woken_cpu_us);
    });
}

/// Appends CBOR items to memory.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn push(&mut self, kind: Kind, value: u64) {
        Head::write(kind, value, &mut self.0);
    }

    fn map(&mut self, keys: usize) {
        self.push(Kind::Map, keys as u64);
    }

    fn array(&mut self, fields: usize) {
        self.push(Kind::Array, fields as u64);
    }

    fn key(&mut self, name: &str) {
        self.text(name);
    }

    fn text(&mut self, text: &str) {
        self.push(Kind::Text, text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.push(Kind::Bytes, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, value: u64) {
        self.push(Kind::Number, value);
    }

    /// CBOR encodes a negative number n as -1 - n, which is n with every bit inverted.
    fn signed(&mut self, value: i64) {
        if value < 0 {
            self.push(Kind::Negative, !value as u64)
        } else {
            self.push(Kind::Number, value as u64)
        };
    }

    fn flag(&mut self, value: bool) {
        self.push(Kind::Simple, if value { TRUE } else { FALSE });
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl Fn(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.push(Kind::Simple, NULL),
        }
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.array(items.len());
        for item in items {
            write(self, item);
        }
    }
}

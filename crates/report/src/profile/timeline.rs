//! The program's own timeline, as a table and as JSON.

use super::Shown;
use crate::json::add_path;
use crate::number::{self, time};
use crate::table::{Kind, Table};
use crate::text::printable;
use ahead_profile::{Extent, TimelineSource, WarmUse};
use serde_json::{Value, json};

/// A use on the timeline, its extent, and the path of its file; of metadata, the device's node.
struct TimelineUse<'a> {
    warm: WarmUse,
    extent: &'a Extent,
    path: &'a [u8],
    is_metadata: bool,
}

impl Shown<'_> {
    /// All uses on the timeline, in order of time.
    fn uses(&self) -> Vec<TimelineUse<'_>> {
        let profile = self.profile;
        let data = profile.files.iter().map(|file| (&file.path, &file.extents, false));
        let metadata = profile.metadata.iter().map(|device| (&device.device_path, &device.extents, true));
        let all = data.chain(metadata).flat_map(|(path, extents, is_metadata)| {
            extents.iter().filter_map(move |extent| {
                let warm = extent.warm_use?;
                Some(TimelineUse { warm, extent, path, is_metadata })
            })
        });
        let mut uses: Vec<TimelineUse<'_>> = all.collect();
        uses.sort_by_key(|at| (at.warm.time_us, at.warm.thread, at.warm.cpu_us));
        uses
    }

    /// One sentence about the timeline.
    pub fn timeline_summary(&self) -> String {
        let Some(timeline) = &self.profile.timeline else {
            return "No timeline: it needs a recording by BPF of a command that ends.".into();
        };
        let source = match timeline.source {
            TimelineSource::ProcessorClocks => "from the processor clocks of its threads, without waits for a disk",
            TimelineSource::WarmRun => "from a run with everything cached",
        };
        let count = |number: usize, one, many| number::count(number as u64, one, many);
        format!(
            "The program's own timeline: {} ({source}), {}, {}",
            time(timeline.warm_us),
            count(timeline.threads.len(), "thread", "threads"),
            count(timeline.wakeups.len(), "wake-up", "wake-ups"),
        )
    }

    /// A table of the uses in the order in which they come with everything cached.
    pub fn timeline_table(&self) -> Table {
        let columns = [("cached", Kind::Number), ("recorded", Kind::Number), ("thread", Kind::Number)];
        let more =
            [("computed", Kind::Number), ("offset", Kind::Number), ("length", Kind::Number), ("file", Kind::Path)];
        let mut table = Table::new(columns.into_iter().chain(more));
        for TimelineUse { warm, extent, path, .. } in self.uses() {
            table.row([
                time(warm.time_us),
                time(extent.first_use_us),
                warm.thread.to_string(),
                time(warm.cpu_us),
                number::grouped(extent.offset_bytes),
                number::grouped(extent.length_bytes),
                printable(path),
            ]);
        }
        table
    }

    /// `null` without a timeline.
    pub(super) fn timeline_json(&self) -> Value {
        let Some(timeline) = &self.profile.timeline else { return Value::Null };
        let uses = self.uses().into_iter().map(|TimelineUse { warm, extent, path, is_metadata }| {
            let mut row = json!({
                "warm_use_us": warm.time_us,
                "first_use_us": extent.first_use_us,
                "thread": warm.thread,
                "cpu_us": warm.cpu_us,
                "metadata": is_metadata,
                "offset_bytes": extent.offset_bytes,
                "length_bytes": extent.length_bytes,
            });
            add_path(&mut row, "path", path);
            row
        });
        json!({
            "source": timeline.source,
            "warm_us": timeline.warm_us,
            "reading_ns": timeline.reading_ns,
            "threads": timeline.threads,
            "wakeups": timeline.wakeups,
            "uses": uses.collect::<Vec<_>>(),
        })
    }
}

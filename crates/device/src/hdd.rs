//! A rotating disk: an arm that seeks, a platter that turns, a buffer that the drive fills by reading on.
//!
//! The disk serves one request at a time, in order of arrival. A read uses the fastest of three ways:
//!
//! ```text
//!   stream   the head is reading here, or will be soon: wait for it to pass     |start ... head >>> ... limit|
//!   segment  the head read this before it moved: from the buffer                |start ..... end|
//!   seek     command, arm, turn of the platter, transfer                        starts a new stream
//! ```
//!
//! After a read the drive *reads on* until the next command, or for `read_on_kb` beyond the request's end. So a
//! sequential reader that pauses between requests gets the sustained rate. It reads from the buffer at the speed of the
//! interface, but never earlier than the head can have passed. After a longer pause the head has stopped, and the
//! reader waits until the platter has turned to its position. After a buffer hit the drive may read on less far:
//! `hit_read_on_kb`. This is 0 for a drive that fills a segment only when it reads from the platter. A request a little
//! ahead is reached by letting the platter turn, if that is faster than a seek.
//!
//! Writes go to the drive's cache at the speed of the interface. The drive writes them to the platter when no request
//! arrives, or when the cache is full; then the head leaves its stream. With a cache of 0 each write waits for the
//! platter. Not modelled: reordering inside the drive, recalibration, remapped sectors, reading a track from its
//! middle.

pub(crate) mod geometry;
mod write_cache;

use ahead_model::checked_toml::{Accepts, Field};
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::time::{BYTES_PER_MB, later, transfer_ns};
use crate::{Op, Request, Served};
use geometry::{Geometry, SeekCurve};
use write_cache::WriteCache;

/// The figures of a rotating disk. Fields:
///
/// - `rpm`;
/// - `outer_mb_per_s` and `inner_mb_per_s`: sustained rates, including the change of tracks; the inner rate defaults to
///   the outer rate: no zones;
/// - `seek_track_ms`, `seek_average_ms`, `seek_full_ms`; or instead of these `access_ms`, a fixed cost of every access
///   outside the stream, as in rough estimates;
/// - `track_switch_ms`, `overhead_us` (per command), `interface_mb_per_s`, `buffer_kb` in `segments`, `read_on_kb`,
///   `hit_read_on_kb` (after a read from the buffer; default `read_on_kb`), `write_cache_kb`;
/// - `stroke_gb`: size of the real disk, if the emulated disk is its first part (default: the emulated disk fills the
///   stroke).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hdd {
    #[serde(flatten)]
    pub(crate) common: Common,
    rpm: f64,
    pub(crate) outer_mb_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_mb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seek_track_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seek_average_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seek_full_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_ms: Option<f64>,
    #[serde(default)]
    track_switch_ms: f64,
    #[serde(default)]
    overhead_us: f64,
    #[serde(default = "default_interface_mb_per_s")]
    pub(crate) interface_mb_per_s: f64,
    #[serde(default = "default_buffer_kb")]
    buffer_kb: u32,
    #[serde(default = "default_segments")]
    segments: u32,
    #[serde(default = "default_read_on_kb")]
    read_on_kb: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_read_on_kb: Option<u32>,
    #[serde(default = "default_write_cache_kb")]
    write_cache_kb: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    stroke_gb: Option<f64>,
}

/// SATA 6 Gb/s after 8b/10b coding.
fn default_interface_mb_per_s() -> f64 {
    600.0
}

/// As in the built-in `hdd`, like the next three.
fn default_buffer_kb() -> u32 {
    65_536
}

fn default_segments() -> u32 {
    16
}

fn default_read_on_kb() -> u32 {
    2048
}

fn default_write_cache_kb() -> u32 {
    16_384
}

/// How the head reaches a position outside the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Positioning {
    /// The arm moves, the platter turns.
    Arm(SeekCurve),
    /// A fixed cost.
    Fixed(u64),
}

impl Hdd {
    /// Ranges: from the first disks of PCs to beyond the fastest disks.
    pub(crate) const FIELDS: [Field; 16] = [
        Field::required("rpm", Accepts::Number(1000.0, 30_000.0)),
        Field::required("outer_mb_per_s", Accepts::Number(0.1, 2000.0)),
        Field::optional("inner_mb_per_s", Accepts::Number(0.1, 2000.0)),
        Field::optional("seek_track_ms", Accepts::Number(0.01, 1000.0)),
        Field::optional("seek_average_ms", Accepts::Number(0.01, 1000.0)),
        Field::optional("seek_full_ms", Accepts::Number(0.01, 1000.0)),
        Field::optional("access_ms", Accepts::Number(0.01, 1000.0)),
        Field::optional("track_switch_ms", Accepts::Number(0.0, 100.0)),
        Field::optional("overhead_us", Accepts::Number(0.0, 100_000.0)),
        Field::optional("interface_mb_per_s", Accepts::Number(0.1, 10_000.0)),
        Field::optional("buffer_kb", Accepts::Whole(64, 1 << 22)),
        Field::optional("segments", Accepts::Whole(1, 64)),
        Field::optional("read_on_kb", Accepts::Whole(0, 1 << 20)),
        Field::optional("hit_read_on_kb", Accepts::Whole(0, 1 << 20)),
        Field::optional("write_cache_kb", Accepts::Whole(0, 1 << 22)),
        Field::optional("stroke_gb", Accepts::Number(0.001, 60_000.0)),
    ];

    /// Checks that the ranges of single fields cannot express. An error names its field.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.inner_mb_per_s() > self.outer_mb_per_s {
            return Err(("inner_mb_per_s", "inner_mb_per_s must not be above outer_mb_per_s".to_owned()));
        }
        if self.interface_mb_per_s < self.outer_mb_per_s {
            return Err(("interface_mb_per_s", "interface_mb_per_s must not be below outer_mb_per_s".to_owned()));
        }
        let segment_kb = self.buffer_kb / self.segments;
        if self.read_on_kb > segment_kb {
            let message = format!("read_on_kb must not be above buffer_kb / segments, here {segment_kb}");
            return Err(("read_on_kb", message));
        }
        if self.hit_read_on_kb.is_some_and(|hit_kb| hit_kb > self.read_on_kb) {
            return Err((
                "hit_read_on_kb",
                format!("hit_read_on_kb must not be above read_on_kb, here {}", self.read_on_kb),
            ));
        }
        self.positioning().map(drop)
    }

    fn positioning(&self) -> Result<Positioning, (&'static str, String)> {
        let ns = |ms: f64| ms * 1e6;
        match (self.access_ms, self.seek_track_ms, self.seek_average_ms, self.seek_full_ms) {
            (Some(access_ms), None, None, None) => Ok(Positioning::Fixed(ns(access_ms) as u64)),
            (None, Some(track_ms), Some(average_ms), Some(full_ms)) => SeekCurve::fit(
                ns(track_ms),
                ns(average_ms),
                ns(full_ms),
            )
            .map(Positioning::Arm)
            .ok_or_else(|| {
                let message = format!(
                    "no seek curve takes {track_ms} ms for a track, {average_ms} ms on average and {full_ms} ms for \
                         the full stroke: seek_average_ms must lie between the others, near half of seek_full_ms"
                );
                ("seek_average_ms", message)
            }),
            _ => Err((
                "access_ms",
                "give either access_ms, or seek_track_ms, seek_average_ms and seek_full_ms".to_owned(),
            )),
        }
    }

    fn inner_mb_per_s(&self) -> f64 {
        self.inner_mb_per_s.unwrap_or(self.outer_mb_per_s)
    }

    pub(crate) fn overhead_ns(&self) -> u64 {
        (self.overhead_us * 1e3) as u64
    }

    pub(crate) fn fastest_ns(&self, length_bytes: u64) -> u64 {
        self.overhead_ns() + transfer_ns(length_bytes, self.interface_mb_per_s)
    }
}

/// The stream that the head is reading, or after which it stopped.
#[derive(Clone, Copy, Debug)]
struct HddStream {
    /// Its first byte in the buffer.
    start: u64,
    /// Platter time of a byte plus this is the time at which the byte passes the head.
    shift_ns: i64,
    /// The position at which the head stops without further requests.
    limit: u64,
}

/// The state of a rotating disk.
#[derive(Clone, Debug)]
pub(crate) struct HddState {
    pub(crate) geometry: Geometry,
    pub(crate) positioning: Positioning,
    capacity_bytes: u64,
    pub(crate) overhead_ns: u64,
    pub(crate) interface_mb_per_s: f64,
    read_on_bytes: u64,
    hit_read_on_bytes: u64,
    segment_bytes: u64,
    stream: HddStream,
    /// Ranges that were read before the head moved, `(start, end)`; the oldest is replaced.
    segments: Vec<(u64, u64)>,
    oldest: usize,
    busy_until_ns: u64,
    write_cache: WriteCache,
}

/// A way to serve a read.
struct Way {
    end_ns: u64,
    shift_ns: i64,
    /// The bytes belong to the current stream of the head.
    on_stream: bool,
}

impl HddState {
    pub(crate) fn new(hdd: &Hdd, capacity_bytes: u64) -> HddState {
        let turn_ns = (60e9 / hdd.rpm) as u64;
        let stroke_bytes = hdd.stroke_gb.map_or(0, |gb| (gb * 1e9) as u64).max(capacity_bytes);
        let outer = hdd.outer_mb_per_s * BYTES_PER_MB;
        let inner = hdd.inner_mb_per_s() * BYTES_PER_MB;
        let change_ns = (hdd.track_switch_ms * 1e6) as u64;
        HddState {
            geometry: Geometry::new(stroke_bytes, outer, inner, turn_ns, change_ns),
            positioning: hdd.positioning().expect("a model is checked when it is made"),
            capacity_bytes,
            overhead_ns: hdd.overhead_ns(),
            interface_mb_per_s: hdd.interface_mb_per_s,
            read_on_bytes: u64::from(hdd.read_on_kb) << 10,
            hit_read_on_bytes: u64::from(hdd.hit_read_on_kb.unwrap_or(hdd.read_on_kb)) << 10,
            segment_bytes: (u64::from(hdd.buffer_kb) << 10) / u64::from(hdd.segments),
            stream: HddStream { start: 0, shift_ns: 0, limit: 0 },
            segments: vec![(0, 0); hdd.segments as usize - 1],
            oldest: 0,
            busy_until_ns: 0,
            write_cache: WriteCache::new(u64::from(hdd.write_cache_kb) << 10),
        }
    }

    pub(crate) fn serve(&mut self, request: &Request, now_ns: u64) -> Served {
        let start_ns = now_ns.max(self.busy_until_ns);
        let (end_ns, seeked) = match request.op {
            Op::Write => self.write(request.offset_bytes, request.length_bytes, start_ns),
            Op::Read => self.read(request.offset_bytes, request.length_bytes, start_ns),
        };
        self.busy_until_ns = end_ns;
        Served { start_ns, end_ns, seeked, busy_ns: end_ns - start_ns }
    }

    fn read(&mut self, offset: u64, length_bytes: u64, start_ns: u64) -> (u64, bool) {
        let ready_ns = later(start_ns, self.overhead_ns);
        let handed_over_ns = later(ready_ns, transfer_ns(length_bytes, self.interface_mb_per_s));
        if length_bytes == 0 {
            return (handed_over_ns, false);
        }
        let end = offset + length_bytes;
        self.write_while_idle(start_ns);
        if self.write_cache.holds(offset, end) {
            return (handed_over_ns, false);
        }
        let way = match self.by_stream(offset, end, start_ns, ready_ns) {
            // Already in the buffer: no other way is faster.
            Some(stream) if stream.end_ns <= ready_ns => stream,
            _ if self.segments.iter().any(|&(from, to)| from <= offset && end <= to) => return (handed_over_ns, false),
            stream => {
                let seek = self.by_seek(offset, end, start_ns, ready_ns);
                stream.filter(|stream| stream.end_ns <= seek.end_ns).unwrap_or(seek)
            }
        };
        let read_on_bytes =
            if way.on_stream && end <= self.stream.limit { self.hit_read_on_bytes } else { self.read_on_bytes };
        if !way.on_stream {
            self.leave_stream(start_ns);
            self.stream = HddStream { start: offset, shift_ns: way.shift_ns, limit: 0 };
        }
        let limit = (end + read_on_bytes).min(self.capacity_bytes).max(self.stream.limit);
        let start = self.stream.start.max(limit.saturating_sub(self.segment_bytes)).min(offset);
        self.stream = HddStream { start, shift_ns: way.shift_ns, limit };
        self.write_cache.interrupt(way.end_ns);
        (way.end_ns.max(handed_over_ns), !way.on_stream)
    }

    /// The head is reading here, has just read it, or arrives soon: the read waits for the head.
    fn by_stream(&self, offset: u64, end: u64, start_ns: u64, ready_ns: u64) -> Option<Way> {
        let HddStream { start, shift_ns, limit } = self.stream;
        if !(start..=limit).contains(&offset) {
            return None;
        }
        let stops_ns = self.passed_ns(limit, shift_ns);
        let shift_ns = if end <= limit || stops_ns >= start_ns {
            shift_ns
        } else {
            // The head stopped at the limit, and waits until the platter has turned to that position again.
            let resumes_ns = match self.positioning {
                Positioning::Arm(_) => self.geometry.comes_round_ns(limit, ready_ns),
                Positioning::Fixed(_) => ready_ns,
            };
            resumes_ns as i64 - self.geometry.tau_ns(limit) as i64
        };
        Some(Way { end_ns: self.passed_ns(end, shift_ns), shift_ns, on_stream: true })
    }

    /// The arm moves to the position, and the platter turns to it.
    fn by_seek(&self, offset: u64, end: u64, start_ns: u64, ready_ns: u64) -> Way {
        let reads_ns = match self.positioning {
            Positioning::Fixed(access_ns) => ready_ns + access_ns,
            Positioning::Arm(curve) => {
                let from = self.geometry.track(self.head_at(start_ns));
                let distance = from.abs_diff(self.geometry.track(offset));
                let share = distance as f64 / (self.geometry.tracks() - 1).max(1) as f64;
                self.geometry.comes_round_ns(offset, ready_ns + curve.time_ns(share))
            }
        };
        let shift_ns = reads_ns as i64 - self.geometry.tau_ns(offset) as i64;
        Way { end_ns: self.passed_ns(end, shift_ns), shift_ns, on_stream: false }
    }

    /// The time at which the last byte below `end` passes the head.
    fn passed_ns(&self, end: u64, shift_ns: i64) -> u64 {
        later(self.geometry.tau_end_ns(end).saturating_add_signed(shift_ns), 0)
    }

    /// The position of the stream at `now_ns`.
    fn head_at(&self, now_ns: u64) -> u64 {
        let tau_ns = (now_ns as i64 - self.stream.shift_ns).max(0) as u64;
        self.geometry.bytes_passed(tau_ns).min(self.stream.limit)
    }

    /// The bytes that the stream has read stay in the buffer.
    fn leave_stream(&mut self, now_ns: u64) {
        let end = self.head_at(now_ns);
        if end > self.stream.start && !self.segments.is_empty() {
            self.segments[self.oldest] = (self.stream.start, end);
            self.oldest = (self.oldest + 1) % self.segments.len();
        }
    }
}

//! The jobs that windows are measured with, and how long they are.
//!
//! ```text
//!     one stream     ████████████████████▶                         bytes/s     what a copy does
//!     N streams      ███▶ ███▶ ███▶ ███▶                           bytes/s     what a server does
//!     faults         ·      ·   ·        ·     ·    (a mapping)    faults/s    what a database with a mapping does
//!     mixed          ██▶ ██▶ beside faults, 256 KiB each to one    rounds/s    all of it at once
//!     a profile      what a program has read, in its order         bytes/s     what `ahead record` has seen
//! ```
//!
//! A run is as long as it has to be for its window, and no longer: a stream of 64 windows tells what the 65th would take. With a
//! fixed length small windows would take most of the time, which on a rotating disk is minutes. Rates hardly depend on it.

use ahead_bench::{Observed, Part, Variant, Work};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Pattern, Stream};
use ahead_sys::openat::Identity;
use std::ops::Range;
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
/// What a call reads: the smallest window that is tried. A call that is longer than the window makes the kernel read as much as
/// the call asks for, and it would be the call that is measured (cp and cat, with 128 KiB, are hardly slowed by small windows).
pub(crate) const CALL_BYTES: u64 = 16 * KIB;
/// Windows in the run of one stream, and of each of several, at least: the first ones are smaller, and should weigh little.
const WINDOWS_OF_ONE: u64 = 64;
const WINDOWS_OF_MANY: u64 = 8;
/// More of them where an access takes less time: as many as so many times the faults take.
const ACCESSES: u64 = 2;
/// Bytes of each stream at least.
const LEAST_BYTES: u64 = 256 * KIB;
/// The file of each of several streams, as a part of that of one.
const MANY_SHARE: u64 = 4;
/// Faults bring at most one part in so many of the file: of one that is cached already they would tell nothing.
const FAULT_SHARE: u64 = 3;
/// A rate of fewer faults would depend on where they happen to be.
const LEAST_FAULTS: u64 = 6;
/// A round of the mixed job: for one fault each of two streams reads so much.
const ROUND_BYTES: u64 = 256 * KIB;
/// Its streams, and how many rounds it has: as many as eight windows of a stream hold, or one part in eight of the faults.
const MIXED_STREAMS: usize = 2;
const ROUND_WINDOWS: u64 = 8;
const ROUND_SHARE: u64 = 8;
const LEAST_ROUNDS: u64 = LEAST_FAULTS;

/// How long the jobs are on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The file of one stream, and of faults.
    pub stream_bytes: u64,
    /// Streams at the same time.
    pub streams: u64,
    /// Faults at most.
    pub faults: u64,
}

impl Sizes {
    /// Files that the jobs need: one of faults and of one stream, then one for each of several streams.
    pub fn files(&self) -> Vec<u64> {
        let many = std::iter::repeat_n(self.of_many(), self.streams.max(MIXED_STREAMS as u64) as usize);
        std::iter::once(self.stream_bytes).chain(many).collect()
    }

    /// All of them, bytes, by that of one stream.
    pub fn share(streams: u64) -> u64 {
        1 + streams.max(MIXED_STREAMS as u64).div_ceil(MANY_SHARE)
    }

    fn of_many(&self) -> u64 {
        (self.stream_bytes / MANY_SHARE).max(LEAST_ROUNDS * ROUND_BYTES)
    }
}

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OneStream,
    Streams,
    Faults,
    Mixed,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::OneStream, Kind::Streams, Kind::Faults, Kind::Mixed];

    pub fn name(self, sizes: &Sizes) -> String {
        match self {
            Kind::OneStream => "one stream".into(),
            Kind::Streams => format!("{} streams", sizes.streams),
            Kind::Faults => "faults".into(),
            Kind::Mixed => "mixed".into(),
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Kind::OneStream | Kind::Streams => "bytes_per_s",
            Kind::Faults => "faults_per_s",
            Kind::Mixed => "rounds_per_s",
        }
    }

    /// The job under a window.
    pub fn variant(self, sizes: &Sizes, window_kb: u64) -> Variant {
        let window = window_kb * KIB;
        let readers = match self {
            Kind::OneStream => {
                let windows = WINDOWS_OF_ONE.max(ACCESSES * sizes.faults);
                let bytes = (windows * window).max(LEAST_BYTES).min(sizes.stream_bytes);
                vec![vec![sequential(0, bytes)]]
            }
            Kind::Streams => {
                let windows = WINDOWS_OF_MANY.max(ACCESSES * sizes.faults / sizes.streams);
                let bytes = (windows * window).max(LEAST_BYTES).min(sizes.of_many());
                (0..sizes.streams as usize).map(|stream| vec![sequential(stream + 1, bytes)]).collect()
            }
            Kind::Faults => {
                let most = sizes.stream_bytes / FAULT_SHARE / window.max(PAGE_BYTES);
                vec![vec![faults(sizes, most.min(sizes.faults))]]
            }
            Kind::Mixed => {
                let rounds = rounds(sizes, window);
                let streams = (0..MIXED_STREAMS).map(|stream| vec![sequential(stream + 1, rounds * ROUND_BYTES)]);
                streams.chain([vec![faults(sizes, rounds)]]).collect()
            }
        };
        Variant { name: self.name(sizes), readers, timeline: false }
    }

    /// What a run came to, in [`Kind::unit`].
    pub fn rate(self, sizes: &Sizes, window_kb: u64, observed: &Observed) -> f64 {
        let work = match self {
            Kind::OneStream | Kind::Streams => observed.read_bytes,
            Kind::Faults => observed.read_bytes / PAGE_BYTES,
            Kind::Mixed => rounds(sizes, window_kb * KIB),
        };
        work as f64 / (observed.elapsed_ns.max(1) as f64 / 1e9)
    }
}

fn rounds(sizes: &Sizes, window: u64) -> u64 {
    let rounds = (ROUND_WINDOWS * window / ROUND_BYTES).max(sizes.faults / ROUND_SHARE);
    rounds.clamp(LEAST_ROUNDS, sizes.of_many() / ROUND_BYTES)
}

fn sequential(file: usize, bytes: u64) -> Part {
    let pages = (bytes / CALL_BYTES).max(1) * CALL_BYTES / PAGE_BYTES;
    Part { file, stream: Stream::reader(pages, CALL_BYTES / PAGE_BYTES), work: Work::None }
}

fn faults(sizes: &Sizes, count: u64) -> Part {
    let (pattern, most_blocks) = (Pattern::Random, count.max(LEAST_FAULTS));
    let plain = Stream::reader(sizes.stream_bytes / PAGE_BYTES, 1);
    Part { file: 0, stream: Stream { pattern, most_blocks, mapped: true, seed: 1, ..plain }, work: Work::None }
}

/// What a run of a workload came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    /// Bytes that were read by the seconds that were waited for them.
    pub bytes_per_s: f64,
    /// Longest call.
    pub longest_call_s: f64,
    /// Bytes of its files that are cached at the end.
    pub cached_bytes: u64,
}

/// Bytes of pages that ranges of bytes touch, each page once.
pub(crate) fn touched_bytes(ranges: impl IntoIterator<Item = (usize, Range<u64>)>) -> u64 {
    let pages = |(file, bytes): (usize, Range<u64>)| (file, bytes.start / PAGE_BYTES, bytes.end.div_ceil(PAGE_BYTES));
    let mut ranges: Vec<_> = ranges.into_iter().map(pages).collect();
    ranges.sort_unstable();
    let (mut touched, mut reached) = (0, (0, 0));
    for (file, first, end) in ranges {
        let from = if reached.0 == file { first.max(reached.1) } else { first };
        touched += end.saturating_sub(from);
        reached = (file, end.max(from));
    }
    touched * PAGE_BYTES
}

/// What a program has read, as its profile tells: calls on files that are there, in the order of first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its name.
    pub name: String,
    /// The files, and what was there when they were looked for.
    pub files: Vec<(PathBuf, Identity)>,
    /// Number of the file, where in it, how many bytes.
    pub reads: Vec<(usize, u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_sim::Op;

    const MIB: u64 = 1 << 20;

    const SIZES: Sizes = Sizes { stream_bytes: 64 * MIB, streams: 8, faults: 50 };

    fn bytes(part: &Part) -> u64 {
        let of = |op| match op {
            Op::Read { length_bytes, .. } => length_bytes,
            Op::Touch { pages, .. } => pages * PAGE_BYTES,
            _ => 0,
        };
        part.stream.ops().map(of).sum()
    }

    #[test]
    fn every_job_stays_within_its_files() {
        for stream_bytes in [MIB, 16 * MIB, 256 * MIB] {
            let sizes = Sizes { stream_bytes, ..SIZES };
            let files = sizes.files();
            assert!(
                files.iter().sum::<u64>()
                    <= Sizes::share(8) * stream_bytes.max(MANY_SHARE * LEAST_ROUNDS * ROUND_BYTES)
            );
            for (kind, kb) in Kind::ALL.iter().flat_map(|kind| crate::CANDIDATES_KB.map(|kb| (kind, kb))) {
                for part in kind.variant(&sizes, kb).parts() {
                    assert!(part.stream.file_pages * PAGE_BYTES <= files[part.file], "{kind:?} {kb} {stream_bytes}");
                }
            }
        }
    }

    #[test]
    fn small_windows_have_short_runs() {
        let of = |kind: Kind, kb| kind.variant(&SIZES, kb).parts().map(bytes).sum::<u64>();
        assert_eq!(of(Kind::OneStream, 16), 100 * 16 * KIB);
        assert_eq!(of(Kind::OneStream, 16384), 64 * MIB);
        assert_eq!(of(Kind::Streams, 64), 8 * 12 * 64 * KIB);
        assert_eq!(of(Kind::Faults, 16), 50 * PAGE_BYTES);
        assert_eq!(of(Kind::Faults, 16384), LEAST_FAULTS * PAGE_BYTES);
    }

    #[test]
    fn a_round_is_the_same_for_every_window() {
        for kb in crate::CANDIDATES_KB {
            let variant = Kind::Mixed.variant(&SIZES, kb);
            let streams = bytes(&variant.readers[0][0]);
            assert_eq!(streams % ROUND_BYTES, 0);
            let faults = bytes(&variant.readers[2][0]) / PAGE_BYTES;
            assert_eq!(faults, (streams / ROUND_BYTES).max(LEAST_FAULTS), "{kb}");
        }
    }

    #[test]
    fn pages_that_are_touched_twice_count_once() {
        let ranges = [(1, 0..1), (0, 4095..4097), (0, 0..10), (1, 8192..8192), (0, 20_480..20_481)];
        assert_eq!(touched_bytes(ranges), 4 * PAGE_BYTES);
        assert_eq!(touched_bytes([]), 0);
    }

    #[test]
    fn rates_are_work_by_time() {
        let observed = Observed { elapsed_ns: 500_000_000, read_bytes: 10 * PAGE_BYTES, ..Observed::default() };
        assert_eq!(Kind::Faults.rate(&SIZES, 128, &observed), 20.0);
        assert_eq!(Kind::OneStream.rate(&SIZES, 128, &observed), 20.0 * PAGE_BYTES as f64);
        assert_eq!(Kind::Mixed.rate(&SIZES, 16384, &observed), 2.0 * 64.0);
    }
}

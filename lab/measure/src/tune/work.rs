//! The jobs that measure a window, and their lengths.
//!
//! ```text
//!     one stream     ████████████████████▶                         bytes/s     like a copy
//!     N streams      ███▶ ███▶ ███▶ ███▶                           bytes/s     like a server
//!     faults         ·      ·   ·        ·     ·    (a mapping)    faults/s    like a database that maps its file
//!     mixed          ██▶ ██▶ and faults, 256 KiB each for one      rounds/s    all of these at once
//!     a profile      the reads of a program, in its order          bytes/s     from `ahead record`
//! ```
//!
//! The length of a run depends on the window: after 64 windows of a stream the 65th gives no new information. With a fixed length, small
//! windows would take most of the time, minutes on a rotating disk. The length has little effect on the rates.

use crate::bench::{Observed, Part, Variant, Work};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Pattern, Stream};
use ahead_sys::openat::Identity;
use std::ops::Range;
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
/// Size of a read call: the smallest tried window. For a call longer than the window the kernel reads the length of the call, and the
/// result would be that of the call instead of the window. (cp and cat read 128 KiB a call, and small windows hardly slow them down.)
pub(crate) const CALL_BYTES: u64 = 16 * KIB;
/// Fewest windows in a run of one stream, and of each of several. The first windows of a stream are smaller, and should have little
/// weight.
const WINDOWS_OF_ONE: u64 = 64;
const WINDOWS_OF_MANY: u64 = 8;
/// Windows for each fault: a device with shorter accesses gets more of both.
const ACCESSES: u64 = 2;
/// Fewest bytes of each stream.
const MIN_STREAM_BYTES: u64 = 256 * KIB;
/// Divides the file size of one stream: the result is the file size of each of several streams.
const MANY_SHARE: u64 = 4;
/// Faults read at most one part in this many of the file: a fault in a cached part measures nothing.
const FAULT_SHARE: u64 = 3;
/// Fewest faults: with fewer, the rate would depend on their places.
const MIN_FAULTS: u64 = 6;
/// Bytes that each of two streams reads for one fault: a round of the mixed job.
const ROUND_BYTES: u64 = 256 * KIB;
/// Streams of the mixed job. Number of its rounds: the number of rounds in eight windows of a stream, or an eighth of the faults.
const MIXED_STREAMS: usize = 2;
const ROUND_WINDOWS: u64 = 8;
const ROUND_SHARE: u64 = 8;
const MIN_ROUNDS: u64 = MIN_FAULTS;

/// Lengths of the jobs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Size of the file of one stream, and of faults.
    pub stream_bytes: u64,
    /// Streams at the same time.
    pub streams: u64,
    /// Most faults of a run.
    pub faults: u64,
}

impl Sizes {
    /// Sizes of the files: one for faults and one stream, then one for each of several streams.
    pub fn files(&self) -> Vec<u64> {
        let many = std::iter::repeat_n(self.file_of_many(), self.streams.max(MIXED_STREAMS as u64) as usize);
        std::iter::once(self.stream_bytes).chain(many).collect()
    }

    /// The size of all files, divided by that of the first.
    pub fn share(streams: u64) -> u64 {
        1 + streams.max(MIXED_STREAMS as u64).div_ceil(MANY_SHARE)
    }

    fn file_of_many(&self) -> u64 {
        (self.stream_bytes / MANY_SHARE).max(MIN_ROUNDS * ROUND_BYTES)
    }
}

/// The kind of a common job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    OneStream,
    Streams,
    Faults,
    Mixed,
}

impl JobKind {
    pub const ALL: [JobKind; 4] = [JobKind::OneStream, JobKind::Streams, JobKind::Faults, JobKind::Mixed];

    pub fn name(self, sizes: &Sizes) -> String {
        match self {
            JobKind::OneStream => "one stream".into(),
            JobKind::Streams => format!("{} streams", sizes.streams),
            JobKind::Faults => "faults".into(),
            JobKind::Mixed => "mixed".into(),
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            JobKind::OneStream | JobKind::Streams => "bytes_per_s",
            JobKind::Faults => "faults_per_s",
            JobKind::Mixed => "rounds_per_s",
        }
    }

    /// The job under a window.
    pub fn variant(self, sizes: &Sizes, window_kb: u64) -> Variant {
        let window = window_kb * KIB;
        let readers = match self {
            JobKind::OneStream => {
                let windows = WINDOWS_OF_ONE.max(ACCESSES * sizes.faults);
                let bytes = (windows * window).max(MIN_STREAM_BYTES).min(sizes.stream_bytes);
                vec![vec![sequential(0, bytes)]]
            }
            JobKind::Streams => {
                let windows = WINDOWS_OF_MANY.max(ACCESSES * sizes.faults / sizes.streams);
                let bytes = (windows * window).max(MIN_STREAM_BYTES).min(sizes.file_of_many());
                (0..sizes.streams as usize).map(|stream| vec![sequential(stream + 1, bytes)]).collect()
            }
            JobKind::Faults => {
                let most = sizes.stream_bytes / FAULT_SHARE / window.max(PAGE_BYTES);
                vec![vec![faults(sizes, most.min(sizes.faults))]]
            }
            JobKind::Mixed => {
                let rounds = rounds(sizes, window);
                let streams = (0..MIXED_STREAMS).map(|stream| vec![sequential(stream + 1, rounds * ROUND_BYTES)]);
                streams.chain([vec![faults(sizes, rounds)]]).collect()
            }
        };
        Variant { name: self.name(sizes), readers, timeline: false }
    }

    /// The rate of a run, in [`JobKind::unit`].
    pub fn rate(self, sizes: &Sizes, window_kb: u64, observed: &Observed) -> f64 {
        let work = match self {
            JobKind::OneStream | JobKind::Streams => observed.read_bytes,
            JobKind::Faults => observed.read_bytes / PAGE_BYTES,
            JobKind::Mixed => rounds(sizes, window_kb * KIB),
        };
        work as f64 / (observed.elapsed_ns.max(1) as f64 / 1e9)
    }
}

fn rounds(sizes: &Sizes, window: u64) -> u64 {
    let rounds = (ROUND_WINDOWS * window / ROUND_BYTES).max(sizes.faults / ROUND_SHARE);
    rounds.clamp(MIN_ROUNDS, sizes.file_of_many() / ROUND_BYTES)
}

fn sequential(file: usize, bytes: u64) -> Part {
    let pages = (bytes / CALL_BYTES).max(1) * CALL_BYTES / PAGE_BYTES;
    Part { file, stream: Stream::reader(pages, CALL_BYTES / PAGE_BYTES), work: Work::None }
}

fn faults(sizes: &Sizes, count: u64) -> Part {
    let (pattern, most_blocks) = (Pattern::Random, count.max(MIN_FAULTS));
    let plain = Stream::reader(sizes.stream_bytes / PAGE_BYTES, 1);
    Part { file: 0, stream: Stream { pattern, most_blocks, mapped: true, seed: 1, ..plain }, work: Work::None }
}

/// The result of a run of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WorkloadResult {
    /// Bytes read, divided by the time spent in the calls, seconds.
    pub bytes_per_s: f64,
    pub longest_call_s: f64,
    /// Bytes of the workload's files in the cache at the end.
    pub cached_bytes: u64,
}

/// Bytes of the pages that ranges of bytes cover, also in part; each page counts once.
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

/// The reads of a program, from its profile: calls on existing files, in the order of first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileWorkload {
    pub name: String,
    /// The files, and their identities when they were first opened.
    pub files: Vec<(PathBuf, Identity)>,
    /// Index of the file, offset, length, bytes.
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
                files.iter().sum::<u64>() <= Sizes::share(8) * stream_bytes.max(MANY_SHARE * MIN_ROUNDS * ROUND_BYTES)
            );
            for (kind, kb) in JobKind::ALL.iter().flat_map(|kind| crate::tune::CANDIDATES_KB.map(|kb| (kind, kb))) {
                for part in kind.variant(&sizes, kb).parts() {
                    assert!(part.stream.file_pages * PAGE_BYTES <= files[part.file], "{kind:?} {kb} {stream_bytes}");
                }
            }
        }
    }

    #[test]
    fn runs_of_small_windows_are_short() {
        let of = |kind: JobKind, kb| kind.variant(&SIZES, kb).parts().map(bytes).sum::<u64>();
        assert_eq!(of(JobKind::OneStream, 16), 100 * 16 * KIB);
        assert_eq!(of(JobKind::OneStream, 16384), 64 * MIB);
        assert_eq!(of(JobKind::Streams, 64), 8 * 12 * 64 * KIB);
        assert_eq!(of(JobKind::Faults, 16), 50 * PAGE_BYTES);
        assert_eq!(of(JobKind::Faults, 16384), MIN_FAULTS * PAGE_BYTES);
    }

    #[test]
    fn round_of_the_mixed_job_is_equal_for_every_window() {
        for kb in crate::tune::CANDIDATES_KB {
            let variant = JobKind::Mixed.variant(&SIZES, kb);
            let streams = bytes(&variant.readers[0][0]);
            assert_eq!(streams % ROUND_BYTES, 0);
            let faults = bytes(&variant.readers[2][0]) / PAGE_BYTES;
            assert_eq!(faults, (streams / ROUND_BYTES).max(MIN_FAULTS), "{kb}");
        }
    }

    #[test]
    fn page_accessed_twice_counts_once() {
        let ranges = [(1, 0..1), (0, 4095..4097), (0, 0..10), (1, 8192..8192), (0, 20_480..20_481)];
        assert_eq!(touched_bytes(ranges), 4 * PAGE_BYTES);
        assert_eq!(touched_bytes([]), 0);
    }

    #[test]
    fn rate_is_work_divided_by_time() {
        let observed = Observed { elapsed_ns: 500_000_000, read_bytes: 10 * PAGE_BYTES, ..Observed::default() };
        assert_eq!(JobKind::Faults.rate(&SIZES, 128, &observed), 20.0);
        assert_eq!(JobKind::OneStream.rate(&SIZES, 128, &observed), 20.0 * PAGE_BYTES as f64);
        assert_eq!(JobKind::Mixed.rate(&SIZES, 16384, &observed), 2.0 * 64.0);
    }
}

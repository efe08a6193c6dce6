//! Tests a sample of the profile for residency, before the program is delayed noticeably.
//!
//! If a program has run before, all of its pages are usually in the page cache, and each microsecond of a prefetch is a loss. So
//! a few ranges of metadata and data are tested, spread over the run, the largest among them. Some of them may be absent in a
//! warm cache, because later runs did not use them. For this reason, ranges that fewer than half of the recorded runs used are
//! not tested. If more ranges are absent, the test ends. On a cold disk the first ranges are absent already. Metadata is tested
//! first, because that needs no open file: opening a file on a cold disk costs seeks.

use crate::prefetch::shared::as_us;
use crate::prefetch::sources::{Readable, Sources};
use ahead_plan::{Piece, Source};
use ahead_sys::cache;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of ranges that may be absent, of metadata and of data each: 3 % and 6 % of the sample.
const ALLOWED: [usize; 2] = [4, 3];

/// Number of tested metadata ranges: 1 us each.
const METADATA_SAMPLES: usize = 128;

/// Number of tested data ranges: 6 us each, including open(2). If one range in five is absent, 48 ranges miss that in one of 100 runs.
const DATA_SAMPLES: usize = 48;

/// The tested ranges, and the answers so far. Devices are tested in parallel, so that one that does not answer delays no other.
pub struct Sample {
    /// Ranges of metadata and of data, by device.
    pieces: BTreeMap<usize, [Vec<Piece>; 2]>,
    /// Absent ranges of metadata and of data.
    absent: [AtomicUsize; 2],
    resident: AtomicUsize,
    /// Devices with unanswered tests.
    asked: AtomicUsize,
    /// Too many ranges are absent.
    is_cold: AtomicBool,
    /// The longest test, microseconds.
    longest_us: AtomicU64,
}

impl Sample {
    /// A sample of the pieces that [`chosen`] returned.
    pub fn new(chosen: [Vec<Piece>; 2], device_of: impl Fn(Source) -> usize) -> Sample {
        let mut pieces: BTreeMap<usize, [Vec<Piece>; 2]> = BTreeMap::new();
        for (kind, chosen) in chosen.into_iter().enumerate() {
            for piece in chosen {
                pieces.entry(device_of(piece.source)).or_default()[kind].push(piece);
            }
        }
        Sample {
            asked: AtomicUsize::new(pieces.len()),
            pieces,
            absent: Default::default(),
            resident: AtomicUsize::new(0),
            is_cold: AtomicBool::new(false),
            longest_us: AtomicU64::new(0),
        }
    }

    /// The devices of the sample.
    pub fn devices(&self) -> impl Iterator<Item = usize> {
        self.pieces.keys().copied()
    }

    /// Tests the ranges of one device while it `goes_on`. Files that cannot be opened are left out: they would not be prefetched either.
    pub fn ask(&self, device: usize, sources: &Sources, goes_on: impl Fn() -> bool) {
        for (kind, pieces) in self.pieces[&device].iter().enumerate() {
            for piece in pieces {
                if self.is_cold.load(Ordering::Relaxed) || !goes_on() {
                    return;
                }
                let began = Instant::now();
                let resident = is_resident(sources, piece);
                self.longest_us.fetch_max(as_us(began.elapsed()), Ordering::Relaxed);
                match resident {
                    Some(true) => drop(self.resident.fetch_add(1, Ordering::Relaxed)),
                    Some(false) if self.absent[kind].fetch_add(1, Ordering::Relaxed) >= ALLOWED[kind] => {
                        self.is_cold.store(true, Ordering::Relaxed);
                    }
                    Some(false) | None => {}
                }
            }
        }
        self.asked.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the answer is known.
    pub fn is_over(&self) -> bool {
        self.is_cold.load(Ordering::Relaxed) || self.asked.load(Ordering::Acquire) == 0
    }

    /// The longest test so far: it opens a file, which reads its inode.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Ordering::Relaxed))
    }

    /// Whether all but a few of the tested ranges were resident; false if none could be tested.
    pub fn looks_warm(&self) -> bool {
        !self.is_cold.load(Ordering::Relaxed) && self.resident.load(Ordering::Relaxed) > 0
    }
}

/// Selects metadata and data to test, spread over the run, from pieces that at least half of the runs used. `pieces` are in order of
/// first use.
pub fn chosen(pieces: &[Piece]) -> [Vec<Piece>; 2] {
    let usual = pieces.iter().filter(|piece| !piece.late);
    let (metadata, data): (Vec<&Piece>, Vec<&Piece>) = usual.partition(|piece| piece.source.is_metadata());
    let largest = data.iter().max_by_key(|piece| piece.bytes()).copied();
    let data = largest.into_iter().chain(spread(&data, DATA_SAMPLES));
    [spread(&metadata, METADATA_SAMPLES).cloned().collect(), data.cloned().collect()]
}

fn spread<'a>(pieces: &[&'a Piece], count: usize) -> impl Iterator<Item = &'a Piece> {
    let step = pieces.len().div_ceil(count).max(1);
    pieces.iter().step_by(step).copied()
}

/// `None`: it cannot be opened.
fn is_resident(sources: &Sources, piece: &Piece) -> Option<bool> {
    let readable = sources.get(piece.source).ok()?;
    let length = piece.range.end - piece.range.start;
    Some(match cache::resident(&*readable, piece.range.start, length) {
        Ok(resident) => resident == [piece.range.clone()],
        Err(_) => probed(&readable, piece),
    })
}

/// The residency of another user's file can only be tested by a read. The read is not wasted, because its page is in the plan. One
/// page is enough.
fn probed(readable: &Readable, piece: &Piece) -> bool {
    debug_assert!(matches!(piece.source, Source::File(_)), "a block device that we may read tells us what is cached");
    cache::exact_reads(readable).is_ok() && cache::probe(readable, piece.range.start).unwrap_or(false)
}

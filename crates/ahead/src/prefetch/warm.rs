//! Is there anything to do? A sample answers before the program has noticed that it was held.
//!
//! A program that was run before has everything in the page cache, and then every microsecond that we take is a loss. So
//! a few ranges of metadata and of data are asked for, spread over the run, the largest among them. Some may be absent
//! though everything is warm: what the recorded run used and later ones do not (what few of several runs used is not asked
//! for at all). More end the questions. On a cold disk
//! the very first are absent, which is why the metadata is asked first: no file must be opened for that, and opening is
//! what makes a cold disk seek.

use crate::prefetch::sources::{Readable, Sources};
use ahead_plan::{Piece, Source};
use ahead_sys::cache;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Ranges that may be absent, of metadata and of data each: 3 % and 6 % of the sample.
const ALLOWED: [usize; 2] = [4, 3];

/// Metadata ranges asked for: 1 us each.
const METADATA_SAMPLES: usize = 128;

/// Data ranges asked for: 6 us each, with the opening. Were one range in five absent, 48 would miss it once in 100 runs.
const DATA_SAMPLES: usize = 48;

/// What is asked for, and the answers so far. The devices are asked side by side: one that does not answer keeps no other from it.
pub struct Sample {
    /// By device: metadata, and data.
    pieces: BTreeMap<usize, [Vec<Piece>; 2]>,
    /// Of metadata and of data.
    absent: [AtomicUsize; 2],
    resident: AtomicUsize,
    /// Devices that have not answered all of their questions.
    asked: AtomicUsize,
    /// More is absent than may be.
    is_cold: AtomicBool,
}

impl Sample {
    /// Of pieces that [`chosen`] gave.
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
        }
    }

    /// The devices that have something to be asked for.
    pub fn devices(&self) -> impl Iterator<Item = usize> {
        self.pieces.keys().copied()
    }

    /// Asks one device, as long as it `goes_on`. What cannot be opened is passed over: it would not be fetched either.
    pub fn ask(&self, device: usize, sources: &Sources, goes_on: impl Fn() -> bool) {
        for (kind, pieces) in self.pieces[&device].iter().enumerate() {
            for piece in pieces {
                if self.is_cold.load(Ordering::Relaxed) || !goes_on() {
                    return;
                }
                match is_resident(sources, piece) {
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

    /// Whether all but a few were resident, as far as is known. Where nothing could be asked, nothing looks warm.
    pub fn looks_warm(&self) -> bool {
        !self.is_cold.load(Ordering::Relaxed) && self.resident.load(Ordering::Relaxed) > 0
    }
}

/// Metadata and data to ask for, of these pieces, which are in order of first use: of what most runs used, spread over the run.
pub fn chosen(pieces: &[Piece]) -> [Vec<Piece>; 2] {
    let usual = pieces.iter().filter(|piece| !piece.seldom);
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

/// Another user's file can only be probed page by page, and the probe of an absent page reads it. It is a page of the plan, so
/// the read is not wasted; and one page is enough.
fn probed(readable: &Readable, piece: &Piece) -> bool {
    debug_assert!(matches!(piece.source, Source::File(_)), "a block device that we may read tells us what is cached");
    cache::exact_reads(readable).is_ok() && cache::probe(readable, piece.range.start).unwrap_or(false)
}

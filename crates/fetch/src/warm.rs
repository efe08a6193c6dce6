//! Is there anything to do? A sample answers before the program has noticed that it was held.
//!
//! A program that was run before has everything in the page cache, and then every microsecond that we take is a loss. So
//! a few ranges of metadata and of data are asked for, spread over the run, the largest among them. Some may be absent
//! though everything is warm: what the recorded run used and later ones do not (what few of several runs used is not asked
//! for at all). More end the questions. On a cold disk
//! the very first are absent, which is why the metadata is asked first: no file must be opened for that, and opening is
//! what makes a cold disk seek.

use crate::brake::Brake;
use crate::plan::{Piece, Source};
use crate::sources::{Readable, Sources};
use ahead_kernel::cache;

/// Ranges that may be absent, of metadata and of data each: 3 % and 6 % of the sample.
const ALLOWED: [usize; 2] = [4, 3];

/// Metadata ranges asked for: 1 us each.
const METADATA_SAMPLES: usize = 128;

/// Data ranges asked for: 6 us each, with the opening. Were one range in five absent, 48 would miss it once in 100 runs.
const DATA_SAMPLES: usize = 48;

/// Whether a sample of the pieces, which are in order of first use, is resident, but for a few. What cannot be opened is passed
/// over: it would not be fetched either. Where nothing could be asked, nothing looks warm; nor when the time is over.
pub fn looks_warm(sources: &Sources, pieces: &[Piece], brake: &Brake) -> bool {
    let usual = pieces.iter().filter(|piece| !piece.seldom);
    let (metadata, data): (Vec<&Piece>, Vec<&Piece>) = usual.partition(|piece| piece.source.is_metadata());
    let largest = data.iter().max_by_key(|piece| piece.bytes()).copied();
    let mut resident_count = 0;
    let mut few_absent = |pieces: &mut dyn Iterator<Item = &Piece>, allowed: usize| {
        let mut absent = 0;
        for piece in pieces {
            if brake.check().is_err() {
                return false;
            }
            match is_resident(sources, piece) {
                Some(true) => resident_count += 1,
                Some(false) => absent += 1,
                None => {}
            }
            if absent > allowed {
                return false;
            }
        }
        true
    };
    let [metadata_allowed, data_allowed] = ALLOWED;
    few_absent(&mut spread(&metadata, METADATA_SAMPLES), metadata_allowed)
        && few_absent(&mut largest.into_iter().chain(spread(&data, DATA_SAMPLES)), data_allowed)
        && resident_count > 0
}

fn spread<'a>(pieces: &'a [&'a Piece], count: usize) -> impl Iterator<Item = &'a Piece> {
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

/// Of a file of somebody else we may only ask page by page, and asking for an absent page reads it. It is a page of the
/// plan, so nothing is lost; and one is enough.
fn probed(readable: &Readable, piece: &Piece) -> bool {
    debug_assert!(matches!(piece.source, Source::File(_)), "a block device that we may read tells us what is cached");
    cache::exact_reads(readable).is_ok() && cache::probe(readable, piece.range.start).unwrap_or(false)
}

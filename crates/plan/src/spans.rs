//! Joins adjacent pieces of a window into spans.
//!
//! ```text
//!     file      ──[ w1 ]..[ w1 ]────[w2][ w1 ]────────────────[ w1 ]──▶ offset
//!     spans       └── a gap: bridged     ▲                      └ too far: another span
//!                                        └ used in a later window, between pieces of this one: included
//! ```
//!
//! Gaps are bridged smallest first, as long as [`crate::bridging`] allows.

use crate::bridging::{BridgingRule, largest_gap};
use crate::{Piece, Span, total_bytes};
use ahead_model::DeviceDescription;

/// Forms the spans of each window. `pieces`: in the order of source and place; `window_of`: the window of each, below `windows`. Every piece is in
/// exactly one span, which belongs to the same window or to an earlier one.
pub(super) fn form(
    pieces: &[Piece],
    window_of: &[u32],
    windows: u32,
    device: &DeviceDescription,
    rule: BridgingRule,
) -> Vec<Vec<Span>> {
    let mut of_window: Vec<Vec<usize>> = vec![Vec::new(); windows as usize];
    for (index, window) in window_of.iter().enumerate() {
        of_window[*window as usize].push(index);
    }
    let bridging = rule(device, pieces);
    let mut former = Former {
        taken: vec![false; pieces.len()],
        max_gap_bytes: bridging.max_gap_bytes,
        threshold_bytes: largest_gap(pieces, &bridging),
        allowance_bytes: bridging.allowance_bytes(total_bytes(pieces)),
        by_position: device.seeks(),
        max_span_bytes: if device.seeks() { u64::MAX } else { MAX_SPAN_BYTES },
        pieces,
    };
    of_window.into_iter().map(|indices| former.window(indices)).collect()
}

struct Former<'a> {
    /// All pieces, in order of source and place.
    pieces: &'a [Piece],
    /// Pieces that are in a span already.
    taken: Vec<bool>,
    /// Pieces farther apart than this are not joined.
    max_gap_bytes: u64,
    /// Pieces with more unused bytes than this between them are not joined.
    threshold_bytes: u64,
    /// Bytes of gaps that may still be bridged.
    allowance_bytes: u64,
    /// A span must be contiguous on the disk.
    by_position: bool,
    /// Maximum length of a span.
    max_span_bytes: u64,
}

/// Maximum length of a span in the order of first use, bytes: 2 ms at 125 MB/s, so that pages of later use delay the next pages
/// only briefly. Longer requests save nothing: network volumes count up to this size as one request.
const MAX_SPAN_BYTES: u64 = 256 << 10;

impl Former<'_> {
    /// The spans of a window, in the order of its pieces.
    fn window(&mut self, indices: Vec<usize>) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut before: Option<usize> = None;
        for index in indices {
            // An earlier span includes it.
            if self.taken[index] {
                continue;
            }
            let joined = match (before, spans.last_mut()) {
                (Some(before), Some(span)) => self.join(span, before, index),
                _ => false,
            };
            if !joined {
                let piece = &self.pieces[index];
                spans.push(Span {
                    source: piece.source,
                    used: vec![piece.range.clone()],
                    first_use_us: piece.first_use_us,
                    physical_bytes: piece.physical_bytes,
                });
            }
            self.taken[index] = true;
            before = Some(index);
        }
        spans
    }

    /// Extends the span of the piece before by this piece and the gap between them, if that saves time.
    fn join(&mut self, span: &mut Span, before: usize, index: usize) -> bool {
        let (last, piece) = (&self.pieces[before], &self.pieces[index]);
        if last.source != piece.source {
            return false;
        }
        let between = piece.range.start - last.range.end;
        if between > self.max_gap_bytes
            || piece.range.end - span.used[0].start > self.max_span_bytes
            || (self.by_position && !lie_together(last, piece))
        {
            return false;
        }
        let left = (before + 1..index).filter(|index| !self.taken[*index]);
        let gap = between - left.map(|index| self.pieces[index].bytes()).sum::<u64>();
        if gap > 0 && (gap > self.threshold_bytes || gap > self.allowance_bytes) {
            return false;
        }
        self.allowance_bytes -= gap;
        for index in before + 1..=index {
            if std::mem::replace(&mut self.taken[index], true) {
                continue;
            }
            let piece = &self.pieces[index];
            span.first_use_us = span.first_use_us.min(piece.first_use_us);
            match span.used.last_mut() {
                Some(last) if last.end == piece.range.start => last.end = piece.range.end,
                _ => span.used.push(piece.range.clone()),
            }
        }
        true
    }
}

/// Whether two pieces of a file are as far apart on the disk as in the file; true if their places are unknown.
fn lie_together(before: &Piece, after: &Piece) -> bool {
    match (before.physical_bytes, after.physical_bytes) {
        (Some(a), Some(b)) => b.checked_sub(a) == Some(after.range.start - before.range.start),
        _ => true,
    }
}

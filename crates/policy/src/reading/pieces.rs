//! What was requested ahead of one reader, and what is requested next.
//!
//! ```text
//!     sequential    read ├──┤ piece ├────┤ piece ├────┤◀ edge
//!     backward      edge ▶├────┤ piece ├────┤ piece ├──┤ read
//!     stride        read ├┤       ├┤ piece      ├┤ piece, edge: its beginning
//! ```
//!
//! Pieces begin and end at pages. A piece is passed when the reader has moved beyond all of it; its bytes are then no longer held.

use super::Distance;
use crate::pattern::Pattern;
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that cost a device as long as one more request: the number of strided requests ahead is the distance divided by this. 64 KiB at 200 MB/s
/// take 0.3 ms, between the access times of flash and of a rotating disk.
const BYTES_OF_A_REQUEST: u64 = 64 << 10;

/// Least and largest number of strided requests ahead. Devices gain little from more than 32 requests (NCQ has 31).
const STRIDED_REQUESTS: std::ops::RangeInclusive<u64> = 2..=32;

/// A file and the sizes of requests for it.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Length of the file, bytes.
    pub size_bytes: u64,
    /// Length of a page, or of a block for direct reads, bytes.
    pub page_bytes: u64,
}

impl Extent {
    /// The beginning of the page with this offset.
    pub fn floor(&self, offset: u64) -> u64 {
        offset - offset % self.page_bytes
    }

    /// The end of the pages up to this offset.
    pub fn ceil(&self, offset: u64) -> u64 {
        offset.div_ceil(self.page_bytes).saturating_mul(self.page_bytes)
    }
}

/// The next request, and the edge after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its bytes.
    pub piece: Range<u64>,
    edge: u64,
}

/// The requested pieces of one reader, each with a value, in the order in which the reader is expected to use them.
#[derive(Debug)]
pub struct Pieces<T> {
    pieces: VecDeque<(Range<u64>, T)>,
    /// Where the next request begins; `None`: at the reader.
    edge: Option<u64>,
}

impl<T> Default for Pieces<T> {
    fn default() -> Pieces<T> {
        Pieces { pieces: VecDeque::new(), edge: None }
    }
}

impl<T> Pieces<T> {
    /// The end of the piece that is used first.
    pub fn first_end(&self) -> Option<u64> {
        self.pieces.front().map(|(piece, _)| piece.end)
    }

    /// Where the next request begins.
    pub fn edge(&self) -> Option<u64> {
        self.edge
    }

    /// The piece with this offset.
    pub fn find(&mut self, offset: u64) -> Option<&mut (Range<u64>, T)> {
        self.pieces.iter_mut().find(|(piece, _)| piece.contains(&offset))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut (Range<u64>, T)> {
        self.pieces.iter_mut()
    }

    /// Takes the piece with this offset out.
    pub fn remove(&mut self, offset: u64) -> Option<(Range<u64>, T)> {
        let index = self.pieces.iter().position(|(piece, _)| piece.contains(&offset))?;
        self.pieces.remove(index)
    }

    /// Takes the first piece out if the reader has passed it.
    pub fn pop_passed(&mut self, pattern: Pattern, read: &Range<u64>) -> Option<(Range<u64>, T)> {
        let (piece, _) = self.pieces.front()?;
        let is_downward = matches!(pattern, Pattern::Backward | Pattern::Stride(..0));
        let is_passed = if is_downward { piece.start >= read.end } else { piece.end <= read.start };
        if is_passed { self.pieces.pop_front() } else { None }
    }

    /// Takes any piece out, to give up all of them.
    pub fn pop(&mut self) -> Option<(Range<u64>, T)> {
        self.edge = None;
        self.pieces.pop_front()
    }

    /// The next request for a reader whose last read is `read`; `None`: the distance is used up, or the file ends.
    pub fn next(&self, pattern: Pattern, read: &Range<u64>, distance: &Distance, file: Extent) -> Option<Next> {
        let here = file.floor(read.start);
        let (least, limit) = (distance.piece_bytes(), distance.bytes());
        match pattern {
            Pattern::Random => None,
            Pattern::Sequential => {
                let start = self.edge.map_or(here, |edge| edge.max(here));
                let end = start.saturating_add(least).min(file.ceil(file.size_bytes));
                (start < end && end - here <= limit).then_some(Next { piece: start..end, edge: end })
            }
            Pattern::Backward => {
                let end = self.edge.map_or(here, |edge| edge.min(here));
                let start = end.saturating_sub(least);
                (start < end && here - start <= limit).then_some(Next { piece: start..end, edge: start })
            }
            Pattern::Stride(stride) => {
                let most = (limit / BYTES_OF_A_REQUEST).clamp(*STRIDED_REQUESTS.start(), *STRIDED_REQUESTS.end());
                let is_ahead = |edge: &u64| if stride > 0 { *edge >= read.start } else { *edge <= read.start };
                let edge = self.edge.filter(is_ahead).unwrap_or(read.start).checked_add_signed(stride)?;
                let end = file.ceil(edge.saturating_add(read.end - read.start).min(file.size_bytes));
                let piece = file.floor(edge)..end;
                ((self.pieces.len() as u64) < most && piece.start < piece.end).then_some(Next { piece, edge })
            }
        }
    }

    /// Skips a request: its pages are cached.
    pub fn skip(&mut self, next: &Next) {
        self.edge = Some(next.edge);
    }

    /// Notes that a request was submitted.
    pub fn push(&mut self, next: Next, value: T) {
        self.edge = Some(next.edge);
        self.pieces.push_back((next.piece, value));
    }

    /// Notes that the pages of the reader itself were requested, before all others.
    pub fn push_own(&mut self, pattern: Pattern, piece: Range<u64>, value: T) {
        self.edge = (pattern == Pattern::Sequential).then_some(piece.end);
        self.pieces.push_front((piece, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const FILE: Extent = Extent { size_bytes: 1000 * KIB + 1, page_bytes: 4 * KIB };

    /// All requests of a reader that reads `read`, with the initial distance: pieces of 128 KiB, 256 KiB ahead.
    fn requests(ahead: &mut Pieces<()>, pattern: Pattern, read: Range<u64>) -> Vec<Range<u64>> {
        let distance = Distance::new(1 << 20);
        let mut found = Vec::new();
        while let Some(next) = ahead.next(pattern, &read, &distance, FILE) {
            found.push(next.piece.clone());
            ahead.push(next, ());
        }
        found
    }

    #[test]
    fn sequential_pieces_follow_the_reader_and_end_with_the_file() {
        let mut ahead = Pieces::default();
        assert_eq!(requests(&mut ahead, Pattern::Sequential, 5..10), [0..128 * KIB, 128 * KIB..256 * KIB]);
        assert_eq!(requests(&mut ahead, Pattern::Sequential, 100 * KIB..101 * KIB), []);
        assert!(ahead.pop_passed(Pattern::Sequential, &(100 * KIB..101 * KIB)).is_none());
        let read = 128 * KIB..129 * KIB;
        assert!(ahead.pop_passed(Pattern::Sequential, &read).is_some());
        assert_eq!(requests(&mut ahead, Pattern::Sequential, read), [256 * KIB..384 * KIB]);
        // Beyond the edge, requests begin at the reader.
        let tail = [900 * KIB..1004 * KIB];
        assert_eq!(requests(&mut ahead, Pattern::Sequential, 900 * KIB..901 * KIB), tail);
        assert!(ahead.find(1000 * KIB).is_some() && ahead.find(500 * KIB).is_none());
    }

    #[test]
    fn backward_pieces_precede_the_reader() {
        let mut ahead = Pieces::default();
        let read = 200 * KIB + 1..300 * KIB;
        assert_eq!(requests(&mut ahead, Pattern::Backward, read), [72 * KIB..200 * KIB, 0..72 * KIB]);
        let read = 72 * KIB..73 * KIB;
        assert_eq!(requests(&mut ahead, Pattern::Backward, read), []);
        assert!(ahead.pop_passed(Pattern::Backward, &(60 * KIB..72 * KIB)).is_some());
        assert!(ahead.pop_passed(Pattern::Backward, &(60 * KIB..72 * KIB)).is_none());
    }

    #[test]
    fn requests_follow_the_readers_own_piece() {
        let mut ahead = Pieces::default();
        ahead.push_own(Pattern::Sequential, 0..128 * KIB, ());
        assert_eq!(requests(&mut ahead, Pattern::Sequential, 0..4096), [128 * KIB..256 * KIB]);
        let mut ahead = Pieces::default();
        ahead.push_own(Pattern::Backward, 8 * KIB..12 * KIB, ());
        assert_eq!(requests(&mut ahead, Pattern::Backward, 8 * KIB..12 * KIB), [0..8 * KIB]);
        assert_eq!(ahead.remove(8 * KIB), Some((8 * KIB..12 * KIB, ())));
    }

    #[test]
    fn strided_pieces_are_the_pages_of_the_predicted_reads() {
        let mut ahead = Pieces::default();
        let expected = [100 * KIB..108 * KIB, 200 * KIB..208 * KIB, 300 * KIB..308 * KIB, 400 * KIB..408 * KIB];
        assert_eq!(requests(&mut ahead, Pattern::Stride(100 * KIB as i64), 1..6 * KIB), expected);
        let mut ahead = Pieces::default();
        let found = requests(&mut ahead, Pattern::Stride(-(100 * KIB as i64)), 150 * KIB..151 * KIB);
        assert_eq!(found, [48 * KIB..52 * KIB]);
        assert_eq!(requests(&mut ahead, Pattern::Random, 0..1), []);
    }
}

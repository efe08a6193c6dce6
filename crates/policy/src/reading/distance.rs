//! How far ahead to read, and in which pieces: events in, sizes out.
//!
//! The size of a request and the distance between the reader and the last request are separate (PostgreSQL's read stream). Larger requests
//! cost less whether or not the reader waits, so the size doubles with each request that was used. A larger distance only helps a reader that waits,
//! so it doubles with each wait. Both keep what they have learned across seeks.
//!
//! ```text
//!     reader ──────── distance ────────▶ last request
//!     ▲      ├ piece ┤├ piece ┤├ piece ┤
//!     └ waits? the distance doubles, up to the limit
//!
//!     everything cached   for a whole distance, and more: nothing is requested until a page is missing again
//! ```

/// First request, bytes: the kernel's default window, which costs a disk at most a few milliseconds.
pub const FIRST_PIECE_BYTES: u64 = 128 << 10;

/// Largest request of a reader that does not wait, bytes: on a rotating disk (8 ms for an access, 150 MB/s) 1 MiB has 47 % of the bandwidth. One that
/// waits has requests of half its distance: where several readers take turns, 7 MiB have 85 % of the bandwidth.
pub const LARGEST_PIECE_BYTES: u64 = 1 << 20;

/// Distance without waits, in pieces: one is read while the program uses the other, as O'Connor and Tracy's 2n pages (2000).
const LEAST_PIECES: u64 = 2;

/// Cached pieces in a row after which no more is requested. Below, some cached pieces among others are no reason to stop: PostgreSQL holds
/// the decay back for as long.
const CACHED_IN_A_ROW: u32 = 4;

/// Sizes for one reader.
#[derive(Clone, Debug)]
pub struct Distance {
    piece_bytes: u64,
    distance_bytes: u64,
    limit_bytes: u64,
    cached_in_a_row: u32,
}

impl Distance {
    /// `limit_bytes`: the largest distance.
    pub fn new(limit_bytes: u64) -> Distance {
        let piece_bytes = FIRST_PIECE_BYTES.min(limit_bytes);
        let distance_bytes = (LEAST_PIECES * piece_bytes).min(limit_bytes);
        Distance { piece_bytes, distance_bytes, limit_bytes, cached_in_a_row: 0 }
    }

    /// The next request, bytes.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes.min(self.limit_bytes)
    }

    /// How far ahead of the reader requests may end, bytes.
    pub fn bytes(&self) -> u64 {
        self.distance_bytes
    }

    /// Whether all of the last requests were cached already: until a page is missing, nothing is requested.
    pub fn is_cached(&self) -> bool {
        self.cached_in_a_row >= CACHED_IN_A_ROW
    }

    /// A request of absent pages was submitted, and the reader has used the one before.
    pub fn requested(&mut self) {
        self.missed();
        self.passed();
    }

    /// The head of the device has been elsewhere, and is coming back: it reads as much as it can in the time of one access.
    pub fn returned(&mut self) {
        self.piece_bytes = self.piece_bytes.max(LARGEST_PIECE_BYTES).min(self.limit_bytes);
        self.distance_bytes = self.distance_bytes.max(self.piece_bytes);
    }

    /// The reader has used all of a request: the next ones are longer. So a reader that stops soon has not caused much.
    pub fn passed(&mut self) {
        let largest_bytes = LARGEST_PIECE_BYTES.max(self.distance_bytes / LEAST_PIECES);
        self.piece_bytes = (2 * self.piece_bytes).min(largest_bytes).min(self.limit_bytes);
        self.distance_bytes = self.distance_bytes.max((LEAST_PIECES * self.piece_bytes).min(self.limit_bytes));
    }

    /// All pages of the next request were cached.
    pub fn found_cached(&mut self) {
        self.cached_in_a_row = self.cached_in_a_row.saturating_add(1);
    }

    /// A page was absent: requests begin again, with the sizes learned so far.
    pub fn missed(&mut self) {
        self.cached_in_a_row = 0;
    }

    /// The reader had to wait for a requested page.
    pub fn waited(&mut self) {
        self.cached_in_a_row = 0;
        self.distance_bytes = (2 * self.distance_bytes).min(self.limit_bytes);
    }

    /// Another limit applies from now on: readers have come or gone.
    pub fn limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.distance_bytes =
            self.distance_bytes.min(limit_bytes).max((LEAST_PIECES * self.piece_bytes()).min(limit_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn size_grows_with_requests_and_distance_with_waits() {
        let mut distance = Distance::new(16 << 20);
        assert_eq!((distance.piece_bytes(), distance.bytes()), (128 << 10, 256 << 10));
        (0..10).for_each(|_| distance.requested());
        assert_eq!((distance.piece_bytes(), distance.bytes()), (1 << 20, 2 << 20));
        distance.waited();
        assert_eq!((distance.piece_bytes(), distance.bytes()), (1 << 20, 4 << 20));
        (0..10).for_each(|_| distance.waited());
        assert_eq!((distance.piece_bytes(), distance.bytes()), (1 << 20, 16 << 20));
        (0..10).for_each(|_| distance.requested());
        assert_eq!((distance.piece_bytes(), distance.bytes()), (8 << 20, 16 << 20));
    }

    #[test]
    fn cached_pieces_in_a_row_stop_requests_until_a_wait() {
        let mut distance = Distance::new(16 << 20);
        (0..3).for_each(|_| distance.found_cached());
        assert!(!distance.is_cached());
        distance.found_cached();
        assert!(distance.is_cached());
        distance.waited();
        assert!(!distance.is_cached());
        (0..4).for_each(|_| distance.found_cached());
        distance.missed();
        assert!(!distance.is_cached());
    }

    proptest! {
        #[test]
        fn no_size_exceeds_the_limit(first in 1..1u64 << 30, steps in prop::collection::vec((0..5, 1..1u64 << 30), 0..100)) {
            let mut distance = Distance::new(first);
            let mut limit = first;
            for (step, new_limit) in steps {
                match step {
                    0 => distance.requested(),
                    4 => distance.returned(),
                    1 => distance.waited(),
                    2 => distance.found_cached(),
                    _ => {
                        limit = new_limit;
                        distance.limit(limit);
                    }
                }
                prop_assert!(distance.piece_bytes() <= limit && distance.bytes() <= limit);
                prop_assert!(distance.piece_bytes() > 0 && distance.bytes() >= distance.piece_bytes());
            }
        }
    }
}

//! The pattern of an open file, from the last decisions of the kernel.
//!
//! A decision is not an access: within a window a reader causes none, except at the marker.
//!
//! ```text
//!     decided pages      0   32   64   96  128        each at a marker, which lies in the window before: sequential
//!                        9  400   23  711  133        misses in no order: random
//!                      900  896  892  888  884        falling: backward
//!                        0   16   32   48   64        misses with equal steps: stride
//!                        0 5000    4 5004    8        misses of two rising series: interleaved
//! ```

use super::{Class, Steps};

/// Fewer decided pages show no order.
const MIN_DECIDED: usize = 3;
/// The first window of a file begins in these pages: 32 KiB.
const START_PAGES: u64 = 8;
/// Largest number of interleaved series.
const MAX_SERIES: usize = 3;

/// The last decisions of the kernel about an open file. How many pages each of them was about is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample<'a> {
    /// The decided pages, the oldest first.
    pub pages: &'a [u64],
    /// How many of them were decided by a fault of a mapping.
    pub faults: usize,
    /// Accesses to absent pages.
    pub misses: u64,
    /// Accesses to a marker, each of which started the next window.
    pub markers: u64,
    /// Pages that the kernel read ahead or at a miss.
    pub issued_pages: u64,
    /// Length of the file.
    pub file_pages: u64,
}

impl Sample<'_> {
    /// The class, by the order of the decided pages.
    pub fn class(&self) -> Class {
        let pages = self.pages;
        if pages.len() < MIN_DECIDED {
            return Class::Unknown;
        }
        // A fall to the start is another pass over the file.
        let rises = pages.windows(2).all(|pair| pair[0] < pair[1] || pair[1] < START_PAGES);
        // Each marker was reached in order. A miss at the start belongs to every stream.
        let has_markers = self.markers >= self.misses.max(1);
        if rises && has_markers {
            let is_whole = pages[0] == 0 && self.file_pages <= self.issued_pages && self.misses <= 1;
            return if is_whole { Class::OnceOnly } else { Class::Sequential };
        }
        if let Some(found) = self.by_steps() {
            return found;
        }
        match series(pages) {
            2..=MAX_SERIES if 2 * MIN_DECIDED <= pages.len() => Class::Interleaved,
            _ if has_markers => Class::Sequential,
            _ if 2 * self.faults > pages.len() => Class::RandomMapped,
            _ => Class::RandomRead,
        }
    }

    /// Equal or falling steps.
    fn by_steps(&self) -> Option<Class> {
        let pages = self.pages;
        if pages.windows(2).all(|pair| pair[1] < pair[0]) {
            return Some(Class::Backward);
        }
        let steps = pages[1..].iter().fold(Steps::begin(pages[0], 0), |steps, page| steps.next_run(*page, 0));
        let is_equal = steps.repeated as usize + 1 == pages.len();
        // Neighbours: a reader without a window (1 page).
        let are_neighbours = steps.step.unsigned_abs() <= self.issued_pages / self.misses.max(1);
        let found = if are_neighbours { Class::Sequential } else { Class::Stride };
        (is_equal && steps.step > 0).then_some(found)
    }
}

/// The number of rising series that the pages are made of; each page goes to the series whose last page is the nearest below it.
fn series(pages: &[u64]) -> usize {
    let mut last: Vec<u64> = Vec::new();
    // A step within one series is small beside the distance between series: at most an eighth of the whole span.
    let span = pages.iter().max().unwrap_or(&0) - pages.iter().min().unwrap_or(&0);
    for page in pages {
        match last.iter_mut().filter(|end| **end < *page && page - **end <= span / 8).max_by_key(|end| **end) {
            Some(end) => *end = *page,
            None => last.push(*page),
        }
    }
    last.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pages: &[u64], misses: u64, markers: u64) -> Sample<'_> {
        Sample { pages, misses, markers, issued_pages: 8 * (misses + markers), file_pages: 1 << 20, faults: 0 }
    }

    #[test]
    fn patterns_are_found_by_decided_pages() {
        for (pages, misses, markers, expected) in [
            (&[0, 2, 32, 64, 96, 128][..], 1, 5, Class::Sequential),
            (&[192, 448, 832, 0, 64, 192, 448], 2, 6, Class::Sequential),
            (&[900, 896, 892, 888], 4, 0, Class::Backward),
            (&[0, 16, 32, 48, 64], 5, 0, Class::Stride),
            (&[0, 50_000, 4, 50_004, 8, 50_008], 6, 0, Class::Interleaved),
            (&[9, 400_000, 23, 711_000, 133_000, 500_000], 6, 0, Class::RandomRead),
            (&[0, 32], 1, 1, Class::Unknown),
        ] {
            assert_eq!(sample(pages, misses, markers).class(), expected, "{pages:?}");
        }
    }

    #[test]
    fn faults_in_no_order_are_a_random_mapping() {
        let faults = Sample { faults: 5, ..sample(&[9, 400_000, 23, 711_000, 133_000], 5, 0) };
        assert_eq!(faults.class(), Class::RandomMapped);
    }

    #[test]
    fn small_file_read_from_start_to_end_is_once_only() {
        let whole = Sample { issued_pages: 100, file_pages: 100, ..sample(&[0, 4, 36, 68], 1, 3) };
        assert_eq!(whole.class(), Class::OnceOnly);
        assert_eq!(Sample { file_pages: 1000, ..whole }.class(), Class::Sequential);
    }
}

//! The pattern of an open file, from the last decisions of the kernel and the state of its read-ahead.
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
//!
//! Without counts the state alone shows little: the last window, and the last page that a call has read.

use super::{Class, Steps};

/// Fewer decided pages show no order.
const MIN_DECIDED: usize = 3;
/// The first window of a file begins in these pages: 32 KiB.
const START_PAGES: u64 = 8;
/// Largest number of interleaved series.
const MAX_SERIES: usize = 3;

/// A page for which the kernel has decided what to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The page.
    pub page: u64,
    /// By a fault of a mapping, not by a call.
    pub is_fault: bool,
}

/// Decisions of the kernel about an open file. How many pages each of them was about is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample<'a> {
    /// The last decided pages, the oldest first.
    pub decided: &'a [Decided],
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
        if self.decided.len() < MIN_DECIDED {
            return Class::Unknown;
        }
        let pages: Vec<u64> = self.decided.iter().map(|decided| decided.page).collect();
        // A fall to the start is another pass over the file.
        let rises = pages.windows(2).all(|pair| pair[0] < pair[1] || pair[1] < START_PAGES);
        // Each marker was reached in order. A miss at the start belongs to every stream.
        let has_markers = self.markers >= self.misses.max(1);
        if rises && has_markers {
            let is_whole = pages[0] == 0 && self.file_pages <= self.issued_pages && self.misses <= 1;
            return if is_whole { Class::OnceOnly } else { Class::Sequential };
        }
        if let Some(found) = self.by_steps(&pages) {
            return found;
        }
        match series(&pages) {
            2..=MAX_SERIES if 2 * MIN_DECIDED <= pages.len() => Class::Interleaved,
            _ if has_markers => Class::Sequential,
            _ => self.random(),
        }
    }

    /// Equal or falling steps.
    fn by_steps(&self, pages: &[u64]) -> Option<Class> {
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

    fn random(&self) -> Class {
        let faults = self.decided.iter().filter(|decided| decided.is_fault).count();
        if 2 * faults > self.decided.len() { Class::RandomMapped } else { Class::RandomRead }
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

/// The last window of an open file, without any decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastWindow {
    /// Its first page.
    pub start: u64,
    /// Its length; 0: there was none.
    pub pages: u64,
    /// Largest window of this open file.
    pub limit_pages: u64,
    /// The page that was read last by a call; `None`: none.
    pub previous_page: Option<u64>,
}

impl LastWindow {
    /// The class in a file of this length.
    pub fn class(&self, file_pages: u64) -> Class {
        let Some(previous) = self.previous_page else { return Class::Unknown };
        let end = self.start.saturating_add(self.pages);
        // The marker starts the next window before the reader has come to the end of the last one.
        let first = self.start.saturating_sub(self.pages.max(self.limit_pages));
        match (first..=end).contains(&(previous + 1)) {
            // Without any window all pages may have been cached.
            _ if self.pages == 0 => Class::Unknown,
            true if previous.saturating_add(1) >= file_pages && end >= file_pages => Class::OnceOnly,
            true => Class::Sequential,
            // Reads outside of the last window leave it as it is.
            false => Class::RandomRead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(pages: &[u64], is_fault: bool) -> Vec<Decided> {
        pages.iter().map(|&page| Decided { page, is_fault }).collect()
    }

    fn sample(decided: &[Decided], misses: u64, markers: u64) -> Sample<'_> {
        Sample { decided, misses, markers, issued_pages: 8 * (misses + markers), file_pages: 1 << 20 }
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
            assert_eq!(sample(&decided(pages, false), misses, markers).class(), expected, "{pages:?}");
        }
    }

    #[test]
    fn faults_in_no_order_are_a_random_mapping() {
        let faults = decided(&[9, 400_000, 23, 711_000, 133_000], true);
        assert_eq!(sample(&faults, 5, 0).class(), Class::RandomMapped);
    }

    #[test]
    fn small_file_read_from_start_to_end_is_once_only() {
        let pages = decided(&[0, 4, 36, 68], false);
        let whole = Sample { issued_pages: 100, file_pages: 100, ..sample(&pages, 1, 3) };
        assert_eq!(whole.class(), Class::OnceOnly);
        assert_eq!(Sample { file_pages: 1000, ..whole }.class(), Class::Sequential);
    }
}

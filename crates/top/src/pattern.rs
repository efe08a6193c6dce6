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

use crate::{Advice, Counted, Decided, Pattern, Window};

/// Fewer decided pages show no order.
const MIN_DECIDED: usize = 3;
/// The first window of a file begins in these pages: 32 KiB.
const START_PAGES: u64 = 8;
/// Largest number of interleaved series.
const MAX_SERIES: usize = 3;

/// The pattern of an open file of this many pages.
pub fn pattern(window: Option<&Window>, counted: Option<&Counted>, file_pages: u64) -> Pattern {
    if window.and_then(Window::advice).is_some_and(|advice| advice != Advice::Window) {
        return Pattern::Advised;
    }
    let by_counts = counted.map_or(Pattern::Unknown, |counted| by_decisions(counted, file_pages));
    match (by_counts, window) {
        (Pattern::Unknown, Some(window)) => by_state(window, file_pages),
        (found, _) => found,
    }
}

fn by_decisions(counted: &Counted, file_pages: u64) -> Pattern {
    let decided = &counted.decided;
    if decided.len() < MIN_DECIDED {
        return Pattern::Unknown;
    }
    let pages: Vec<u64> = decided.iter().map(|decided| decided.page).collect();
    // A fall to the start is another pass over the file.
    let rises = pages.windows(2).all(|pair| pair[0] < pair[1] || pair[1] < START_PAGES);
    // Each marker was reached in order. A miss at the start belongs to every stream.
    let has_markers = counted.markers >= counted.misses.max(1);
    if rises && has_markers {
        let is_whole = pages[0] == 0 && file_pages <= counted.issued_pages && counted.misses <= 1;
        return if is_whole { Pattern::OnceOnly } else { Pattern::Sequential };
    }
    if let Some(found) = by_steps(&pages, counted) {
        return found;
    }
    match series(&pages) {
        2..=MAX_SERIES if 2 * MIN_DECIDED <= pages.len() => Pattern::Interleaved,
        _ if has_markers => Pattern::Sequential,
        _ => random(decided),
    }
}

/// Equal or falling steps.
fn by_steps(pages: &[u64], counted: &Counted) -> Option<Pattern> {
    let steps: Vec<i128> = pages.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
    let is_equal = steps.iter().all(|step| *step == steps[0]);
    match steps[0] {
        _ if steps.iter().all(|step| *step < 0) => Some(Pattern::Backward),
        // Neighbours: a reader without a window (1 page).
        first
            if is_equal
                && first > 0
                && first <= i128::from(counted.issued_pages) / i128::from(counted.misses.max(1)) =>
        {
            Some(Pattern::Sequential)
        }
        first if is_equal && first > 0 => Some(Pattern::Stride),
        _ => None,
    }
}

/// The number of rising series that the pages are made of; each page goes to the series whose last page is the nearest below it.
fn series(pages: &[u64]) -> usize {
    let mut last: Vec<u64> = Vec::new();
    for page in pages {
        // A step within one series is small beside the distance between series: at most an eighth of the whole span.
        let span = pages.iter().max().unwrap_or(&0) - pages.iter().min().unwrap_or(&0);
        match last.iter_mut().filter(|end| **end < *page && page - **end <= span / 8).max_by_key(|end| **end) {
            Some(end) => *end = *page,
            None => last.push(*page),
        }
    }
    last.len()
}

fn random(decided: &[Decided]) -> Pattern {
    let faults = decided.iter().filter(|decided| decided.is_fault).count();
    if 2 * faults > decided.len() { Pattern::RandomMapped } else { Pattern::RandomRead }
}

fn by_state(window: &Window, file_pages: u64) -> Pattern {
    let Some(previous) = window.previous_page else { return Pattern::Unknown };
    // The marker starts the next window before the reader has come to the end of the last one.
    let first = window.start.saturating_sub(u64::from(window.pages.max(window.limit_pages)));
    let is_in_window = window.pages > 0 && (first..=window.end()).contains(&(previous + 1));
    let is_at_end = previous.saturating_add(1) >= file_pages && window.end() >= file_pages;
    match is_in_window {
        true if is_at_end && window.pages > 0 => Pattern::OnceOnly,
        true => Pattern::Sequential,
        // Reads outside of the last window leave it as it is. Without any window all pages may have been cached.
        false if window.pages > 0 => Pattern::RandomRead,
        false => Pattern::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(pages: &[u64], misses: u64, markers: u64) -> Counted {
        let decided = pages.iter().map(|&page| Decided { page, is_fault: false }).collect();
        Counted { misses, markers, issued_pages: 8 * (misses + markers), decided, ..Counted::default() }
    }

    fn by_counts(counted: &Counted) -> Pattern {
        pattern(Some(&Window { limit_pages: 32, disk_limit_pages: 32, ..Window::default() }), Some(counted), 1 << 20)
    }

    #[test]
    fn patterns_are_found_by_decided_pages() {
        for (pages, misses, markers, expected) in [
            (&[0, 2, 32, 64, 96, 128][..], 1, 5, Pattern::Sequential),
            (&[192, 448, 832, 0, 64, 192, 448], 2, 6, Pattern::Sequential),
            (&[900, 896, 892, 888], 4, 0, Pattern::Backward),
            (&[0, 16, 32, 48, 64], 5, 0, Pattern::Stride),
            (&[0, 50_000, 4, 50_004, 8, 50_008], 6, 0, Pattern::Interleaved),
            (&[9, 400_000, 23, 711_000, 133_000, 500_000], 6, 0, Pattern::RandomRead),
            (&[0, 32], 1, 1, Pattern::Unknown),
        ] {
            assert_eq!(by_counts(&counted(pages, misses, markers)), expected, "{pages:?}");
        }
    }

    #[test]
    fn faults_in_no_order_are_a_random_mapping() {
        let mut faults = counted(&[9, 400_000, 23, 711_000, 133_000], 5, 0);
        faults.decided.iter_mut().for_each(|decided| decided.is_fault = true);
        assert_eq!(by_counts(&faults), Pattern::RandomMapped);
    }

    #[test]
    fn small_file_read_from_start_to_end_is_once_only() {
        let whole = Counted { issued_pages: 100, ..counted(&[0, 4, 36, 68], 1, 3) };
        assert_eq!(pattern(None, Some(&whole), 100), Pattern::OnceOnly);
        assert_eq!(pattern(None, Some(&whole), 1000), Pattern::Sequential);
    }

    #[test]
    fn state_alone_shows_streams_and_advice() {
        let stream = Window {
            limit_pages: 32,
            disk_limit_pages: 32,
            start: 64,
            pages: 32,
            async_pages: 32,
            ..Window::default()
        };
        let at = |previous_page| pattern(Some(&Window { previous_page, ..stream }), None, 1000);
        assert_eq!([70, 40, 95].map(|page| at(Some(page))), [Pattern::Sequential; 3]);
        assert_eq!([700, 10].map(|page| at(Some(page))), [Pattern::RandomRead; 2]);
        assert_eq!(at(None), Pattern::Unknown);
        let read = Window { start: 68, previous_page: Some(99), ..stream };
        assert_eq!(pattern(Some(&read), None, 100), Pattern::OnceOnly);
        assert_eq!(pattern(Some(&Window { is_random: true, ..stream }), None, 1000), Pattern::Advised);
        assert_eq!(pattern(Some(&Window { limit_pages: 64, ..stream }), None, 1000), Pattern::Advised);
        // A window that steer has set is not the program's advice.
        let steered = Window { limit_pages: 1, previous_page: Some(70), ..stream };
        assert_eq!(pattern(Some(&steered), None, 1000), Pattern::Sequential);
        assert_eq!(pattern(None, None, 0), Pattern::Unknown);
    }

    proptest! {
        #[test]
        fn any_state_has_a_pattern(
            pages in proptest::collection::vec(any::<u64>(), 0..9),
            numbers in any::<[u64; 4]>(),
            small in any::<[u32; 4]>(),
            previous_page in proptest::option::of(0..=u64::MAX / 4096),
        ) {
            let [misses, markers, issued_pages, file_pages] = numbers;
            let decided = pages.iter().map(|&page| Decided { page, is_fault: page % 2 == 0 }).collect();
            let counted = Counted { misses, markers, issued_pages, decided, ..Counted::default() };
            let [limit_pages, disk_limit_pages, pages, async_pages] = small;
            let window = Window { limit_pages, disk_limit_pages, start: file_pages, pages, async_pages, previous_page, ..Window::default() };
            pattern(Some(&window), Some(&counted), file_pages);
            pattern(Some(&window), None, file_pages);
        }
    }
}

//! Where the reader is, by the pages that have become mapped. Pure.
//!
//! ```text
//!     earlier look   ■■■■□□□□□□□■■□□□□     ■ mapped
//!     this look      ■■■■□□■■■□□■■□□□□
//!                          ╰── new: the front is behind them, and behind mapped pages that follow without a gap
//! ```
//!
//! Pages that were mapped by an earlier pass show no reader. They are resident and need no read-ahead, so the front goes to the first page
//! that is not mapped: there the reader may need help. The kernel unmaps each page that it evicts, and so the page counts again.
//!
//! The kernel maps up to 16 cached pages around a fault, so that the front may lie 64 KiB before the reader.

use std::ops::Range;

/// Follows one reader in a window.
#[derive(Debug, Default)]
pub struct Watch {
    looked: Range<u64>,
    mapped: Vec<Range<u64>>,
}

impl Watch {
    /// Notes the mapped units of a range, ascending and clipped to it. Returns the new front, and whether the reader has moved.
    pub fn look(&mut self, front: u64, range: Range<u64>, mapped: Vec<Range<u64>>) -> (u64, bool) {
        let known = mapped.iter().map(|run| run.start.max(self.looked.start)..run.end.min(self.looked.end));
        let known: Vec<_> = known.filter(|run| run.start < run.end).collect();
        let newest = new_parts(&known, &self.mapped).last().map(|run| run.end);
        let reached = newest.unwrap_or(front).max(front);
        let reached = mapped.iter().find(|run| run.contains(&reached)).map_or(reached, |run| run.end);
        self.looked = range;
        self.mapped = mapped;
        (reached, reached > front)
    }

    /// Units from the front on that were not mapped at the last look: all that are mapped now are new.
    pub fn unmapped_before(&self, front: u64) -> Range<u64> {
        let start = front.max(self.looked.start);
        let end = self.mapped.iter().find(|run| run.end > start).map_or(self.looked.end, |run| run.start);
        start..end.max(start)
    }

    /// The reader is somewhere else: the next look is the first.
    pub fn restart(&mut self) {
        *self = Watch::default();
    }
}

/// What is in `now` and was not in `before`. Both ascending and disjoint.
pub fn new_parts(now: &[Range<u64>], before: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut new = Vec::new();
    let mut old = before.iter().peekable();
    for run in now {
        let mut start = run.start;
        while let Some(first) = old.peek().filter(|first| first.start < run.end) {
            if start < first.start {
                new.push(start..first.start);
            }
            start = start.max(first.end);
            if first.end > run.end {
                break;
            }
            old.next();
        }
        if start < run.end {
            new.push(start..run.end);
        }
    }
    new
}

/// Pages of one chunk: the kernel has a page table for each.
const CHUNK_PAGES: u64 = 512;

/// Chunks that are examined at a time: 64 MiB, whose entries take the kernel about 0.1 ms if all are mapped.
const CHUNKS_AT_ONCE: u64 = 32;

/// Finds a reader that has left its window: examines the whole region, some chunks at a time, and again.
#[derive(Debug)]
pub struct Survey {
    pages: u64,
    /// Mapped pages of each chunk in the last round.
    counts: Vec<u16>,
    next: usize,
    is_first_round: bool,
    /// The first round finds mapped pages, too: no reader is known yet.
    is_initial: bool,
}

/// Pages became mapped in a chunk.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The pages of the chunk.
    pub chunk: Range<u64>,
    /// Those that are mapped, ascending.
    pub mapped: Vec<Range<u64>>,
    /// None were mapped in the last round.
    pub was_empty: bool,
}

impl Survey {
    /// For a region of this many pages. `is_initial`: any mapped page is the reader's until [`Survey::restart`].
    pub fn new(pages: u64, is_initial: bool) -> Survey {
        Survey { pages, counts: Vec::new(), next: 0, is_first_round: true, is_initial }
    }

    /// Forgets what it has seen: the reader has moved without it.
    pub fn restart(&mut self) {
        (self.next, self.is_first_round, self.is_initial) = (0, true, false);
        self.counts.clear();
    }

    /// The pages to examine now.
    pub fn next(&self) -> Range<u64> {
        let start = self.next as u64 * CHUNK_PAGES;
        start..(start + CHUNKS_AT_ONCE * CHUNK_PAGES).min(self.pages)
    }

    /// Whether the last pages of the region were examined just now.
    pub fn is_round_complete(&self) -> bool {
        self.next == 0
    }

    /// Notes the mapped pages of [`Survey::next`], ascending. Returns the first chunk in which pages became mapped since the last round.
    pub fn examine(&mut self, mapped: &[Range<u64>]) -> Option<Found> {
        let pages = self.next();
        let mut found = None;
        for start in (pages.start..pages.end).step_by(CHUNK_PAGES as usize) {
            let chunk = start..(start + CHUNK_PAGES).min(self.pages);
            let within = mapped.iter().map(|run| run.start.max(chunk.start)..run.end.min(chunk.end));
            let within: Vec<_> = within.filter(|run| run.start < run.end).collect();
            let count = within.iter().map(|run| run.end - run.start).sum::<u64>() as u16;
            let before = match self.counts.get_mut(self.next) {
                Some(known) => std::mem::replace(known, count),
                None => {
                    self.counts.push(count);
                    0
                }
            };
            if (!self.is_first_round || self.is_initial) && found.is_none() && before < count {
                found = Some(Found { chunk, mapped: within, was_empty: before == 0 });
            }
            self.next += 1;
        }
        if pages.end == self.pages {
            (self.next, self.is_first_round) = (0, false);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn new_pages_move_the_front_and_old_ones_do_not() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(0, 0..32, vec![0..4, 11..13]), (4, true));
        assert_eq!(watch.look(4, 4..32, vec![11..13]), (4, false));
        assert_eq!(watch.look(4, 4..32, vec![6..9, 11..13]), (9, true));
        assert_eq!(watch.look(9, 9..32, vec![9..13, 20..21]), (21, true));
    }

    #[test]
    fn mapped_pages_that_follow_are_passed() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(0, 0..8, vec![0..8]), (8, true));
        assert_eq!(watch.look(8, 8..16, vec![8..12, 14..16]), (12, true));
        assert_eq!(watch.look(12, 12..20, vec![14..16]), (12, false), "mapped before the first look");
    }

    #[test]
    fn what_was_not_mapped_is_known() {
        let mut watch = Watch::default();
        assert!(watch.unmapped_before(5).is_empty());
        watch.look(0, 0..32, vec![0..4, 11..13]);
        assert_eq!(
            [4, 11, 12, 13, 40].map(|front| watch.unmapped_before(front)),
            [4..11, 11..11, 12..12, 13..32, 40..40]
        );
    }

    #[test]
    fn growth_of_an_old_run_is_new() {
        let mut watch = Watch::default();
        watch.look(0, 0..32, vec![8..10]);
        assert_eq!(watch.look(0, 0..32, vec![7..10]), (10, true), "its new part reaches the old one");
        watch.restart();
        watch.look(0, 0..32, vec![8..10]);
        assert_eq!(watch.look(0, 0..32, vec![8..12]), (12, true));
    }

    #[test]
    fn survey_finds_the_chunk_in_which_pages_became_mapped() {
        let pages = 100 * CHUNK_PAGES + 7;
        let mut survey = Survey::new(pages, false);
        let round = |survey: &mut Survey, mapped: &[Range<u64>]| {
            let mut found = Vec::new();
            loop {
                let part = survey.next();
                let within: Vec<_> = mapped.iter().map(|r| r.start.max(part.start)..r.end.min(part.end)).collect();
                let within: Vec<_> = within.into_iter().filter(|run| run.start < run.end).collect();
                found.extend(survey.examine(&within));
                if survey.is_round_complete() {
                    return found;
                }
            }
        };
        assert!(round(&mut survey, &[0..5, 600..601]).is_empty(), "the first round only counts");
        assert!(round(&mut survey, &[0..5]).is_empty(), "evicted pages are no reader");
        let chunk = 100 * CHUNK_PAGES..pages;
        let last = Found { chunk, mapped: vec![pages - 2..pages], was_empty: true };
        assert_eq!(round(&mut survey, &[0..5, pages - 2..pages]), [last]);
        let first = Found { chunk: 0..CHUNK_PAGES, mapped: vec![0..7], was_empty: false };
        assert_eq!(round(&mut survey, &[0..7, pages - 2..pages]), [first]);
        survey.restart();
        assert!(round(&mut survey, &[0..50]).is_empty());
        let mapped = vec![5..9];
        let found = Found { chunk: 0..CHUNK_PAGES, mapped, was_empty: true };
        assert_eq!(
            round(&mut Survey::new(pages, true), &[5..9]),
            [found],
            "the first round of a reader that is not known"
        );
    }

    fn runs() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((1..5u64, 1..5u64), 0..10).prop_map(|gaps_and_lengths| {
            let mut at = 0;
            let run = |(gap, length): (u64, u64)| {
                at += gap + length;
                at - length..at
            };
            gaps_and_lengths.into_iter().map(run).collect()
        })
    }

    proptest! {
        /// New parts and old ones are the whole, and have nothing in common.
        #[test]
        fn new_parts_are_the_difference(now in runs(), before in runs()) {
            let of = |runs: &[Range<u64>]| runs.iter().cloned().flatten().collect::<std::collections::BTreeSet<u64>>();
            let new = new_parts(&now, &before);
            prop_assert!(new.iter().all(|run| run.start < run.end) && new.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert_eq!(of(&new), &of(&now) - &of(&before));
        }

        /// The front never goes back, never beyond the looks, and lies at a page that is not mapped unless the range ends there.
        #[test]
        fn front_lies_at_an_absent_page(looks in prop::collection::vec(prop::collection::btree_set(0..64u64, 0..40), 1..20)) {
            let (mut watch, mut front) = (Watch::default(), 0);
            for pages in looks {
                let range = front..(front + 32).min(64);
                let mut mapped: Vec<Range<u64>> = Vec::new();
                for page in pages.iter().copied().filter(|page| range.contains(page)) {
                    match mapped.last_mut() {
                        Some(last) if last.end == page => last.end += 1,
                        _ => mapped.push(page..page + 1),
                    }
                }
                let (reached, has_moved) = watch.look(front, range.clone(), mapped);
                prop_assert_eq!(has_moved, reached > front);
                prop_assert!(reached >= front && reached <= range.end);
                prop_assert!(reached == range.end || !pages.contains(&reached));
                front = reached;
            }
        }
    }
}

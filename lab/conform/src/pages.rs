//! What is cached of the files of a trace, as far as the trace tells.

use ahead_policy::{FileId, Folio, Limits, Memory, PAGE_BYTES, Page, Queue, View};
use ahead_traces::{FileSeen, Use};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// A node of the cache's tree has 64 slots (`XA_CHUNK_SHIFT`).
const NODE_ORDER: u8 = 6;

/// One file.
#[derive(Clone, Debug, Default)]
struct File {
    /// Its folios, by their first page.
    folios: BTreeMap<Page, u8>,
    /// Folios that were evicted by reclaim, which leaves a note of them in their place (a shadow entry).
    evicted: BTreeMap<Page, u8>,
    /// Those that carry a mark; false: perhaps, which cannot be seen from outside.
    marked: FxHashMap<Page, bool>,
    /// Those that came with a decision: by which record, and whose.
    brought: FxHashMap<Page, (u64, u32)>,
    /// Pages that are not cached any more, and since which record: ranges by their first page, with their end.
    gone: BTreeMap<Page, (Page, u64)>,
    pages: u64,
    limits: Limits,
    /// Pages that were cached before the trace began and are still: which ones, and in what folios, is not known.
    unknown_pages: u64,
    /// Smallest folio that its file system takes, as a power of two: that of the policies is a page.
    least_order: u8,
}

/// The folio among these that has a page.
fn covering(folios: &BTreeMap<Page, u8>, page: Page) -> Option<Folio> {
    let (first, order) = folios.range(..=page).next_back()?;
    let folio = Folio { first: *first, order: *order };
    folio.range().contains(&page).then_some(folio)
}

/// The last folio among these that has a page of `wanted`.
fn overlapping(folios: &BTreeMap<Page, u8>, wanted: Folio) -> Option<Folio> {
    let (first, order) = folios.range(..wanted.range().end).next_back()?;
    let folio = Folio { first: *first, order: *order };
    (folio.range().end > wanted.first).then_some(folio)
}

impl File {
    fn folio(&self, page: Page) -> Option<Folio> {
        covering(&self.folios, page)
    }

    /// A folio takes the place of the notes there. That of a larger folio is split first (`__filemap_add_folio`): within a node of the
    /// cache's tree into notes of the new folio's size, all of them; where it fills a node, into halves, of which only the one in
    /// question is split on (`xas_try_split_min_order`).
    fn forget_evicted(&mut self, wanted: Folio) {
        while let Some(mut gone) = overlapping(&self.evicted, wanted) {
            self.evicted.remove(&gone.first);
            while gone.order > wanted.order {
                let least = match gone.order % NODE_ORDER {
                    0 => gone.order - 1,
                    beyond => gone.order - beyond,
                };
                let order = least.max(wanted.order);
                self.evicted.extend(gone.range().step_by(1 << order).map(|first| (first, order)));
                gone = Folio { first: wanted.first >> order << order, order };
                self.evicted.remove(&gone.first);
            }
        }
    }

    /// These pages are cached again, or gone anew: ranges that reach beyond are cut.
    fn forget_gone(&mut self, pages: &Range<Page>) {
        while let Some((&first, &(end, record))) = self.gone.range(..pages.end).next_back()
            && end > pages.start
        {
            self.gone.remove(&first);
            if first < pages.start {
                self.gone.insert(first, (pages.start, record));
            }
            if end > pages.end {
                self.gone.insert(pages.end, (end, record));
            }
        }
    }

    /// Takes away whatever covers these pages. Of a larger folio the halves stay that do not: the kernel has split it to remove a
    /// part (since 6.15 only as far as it must: `folio_split`).
    fn take_out(&mut self, wanted: Folio) {
        while let Some(mut folio) = overlapping(&self.folios, wanted) {
            self.folios.remove(&folio.first);
            while folio.order > wanted.order {
                let order = folio.order - 1;
                let halves = [folio.first, folio.first + (1 << order)].map(|first| Folio { first, order });
                let [low, high] = halves;
                let (kept, next) = if low.range().contains(&wanted.first) { (high, low) } else { (low, high) };
                self.folios.insert(kept.first, kept.order);
                folio = next;
            }
        }
    }
}

/// What is cached: the view that a policy is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    files: Vec<File>,
    /// Threads that take a file out of the cache (`POSIX_FADV_DONTNEED`): which one, and what they have not come to yet.
    dropping: FxHashMap<u32, (u32, Range<Page>)>,
}

impl Pages {
    /// A file is seen for the first time.
    pub(crate) fn see(&mut self, seen: &FileSeen) {
        let file = self.file(seen.file);
        *file = File { unknown_pages: seen.cached_pages, least_order: seen.least_order, ..File::default() };
        file.limits.folio_order = seen.folio_order;
    }

    fn file(&mut self, number: u32) -> &mut File {
        let index = number as usize;
        if self.files.len() <= index {
            self.files.resize_with(index + 1, File::default);
        }
        &mut self.files[index]
    }

    /// The file's length and the disk's settings, as they are now.
    pub(crate) fn settings(&mut self, by: &Use) {
        let file = self.file(by.file);
        let pages = by.file_bytes.div_ceil(PAGE_BYTES);
        if pages < file.pages {
            // What a file loses, notes included, leaves nothing behind.
            file.evicted.split_off(&pages);
        }
        file.pages = pages;
        file.limits.window_pages = by.disk_window.into();
        file.limits.request_pages = by.disk_request.into();
    }

    /// Whether all that is cached of a file is known: nothing was when it was first seen, or all of it has been removed.
    pub(crate) fn is_known(&self, file: u32) -> bool {
        self.files.get(file as usize).is_some_and(|file| file.unknown_pages == 0 && file.least_order == 0)
    }

    /// What comes into the cache of this file is not known any more.
    pub(crate) fn lose(&mut self, file: u32) {
        self.file(file).unknown_pages = u64::MAX;
    }

    /// A folio is cached.
    pub(crate) fn add(&mut self, file: u32, folio: Folio, marked: bool) {
        let file = self.file(file);
        file.take_out(folio);
        file.forget_evicted(folio);
        file.forget_gone(&folio.range());
        file.folios.insert(folio.first, folio.order);
        match marked {
            true => file.marked.insert(folio.first, true),
            false => file.marked.remove(&folio.first),
        };
    }

    /// It came with a decision of this thread, which began with this record.
    pub(crate) fn note(&mut self, file: u32, folio: Folio, record: u64, task: u32) {
        self.file(file).brought.insert(folio.first, (record, task));
    }

    /// Whether it came with a decision of another thread than `task` that began after this record.
    pub(crate) fn is_brought_after(&self, file: u32, folio: Folio, record: u64, task: u32) -> bool {
        let brought = self.files.get(file as usize).and_then(|file| file.brought.get(&folio.first));
        brought.is_some_and(|(at, by)| *at > record && *by != task)
    }

    /// Whether a folio carries a mark cannot be told any more.
    pub(crate) fn doubt(&mut self, file: u32, folio: Folio) {
        if self.folio(FileId(file), folio.first) == Some(folio) {
            self.file(file).marked.insert(folio.first, false);
        }
    }

    /// A folio is not cached any more; `is_reclaimed`: memory was needed.
    pub(crate) fn remove(&mut self, file: u32, folio: Folio, is_reclaimed: bool) {
        let file = self.file(file);
        if overlapping(&file.folios, folio).is_none() {
            // A file that was lost stays lost.
            let is_lost = file.unknown_pages == u64::MAX;
            file.unknown_pages = if is_lost { u64::MAX } else { file.unknown_pages.saturating_sub(folio.pages()) };
        }
        file.take_out(folio);
        file.marked.remove(&folio.first);
        if is_reclaimed {
            file.forget_evicted(folio);
            file.evicted.insert(folio.first, folio.order);
        }
    }

    /// These pages are not cached any more since this record.
    pub(crate) fn note_gone(&mut self, file: u32, folio: Folio, record: u64) {
        let file = self.file(file);
        let pages = folio.range();
        file.forget_gone(&pages);
        file.gone.insert(pages.start, (pages.end, record));
    }

    /// Whether a page went after this record.
    pub(crate) fn is_gone_after(&self, file: u32, page: Page, record: u64) -> bool {
        let before = self.files.get(file as usize).and_then(|file| file.gone.range(..=page).next_back());
        before.is_some_and(|(_, (end, at))| page < *end && *at > record)
    }

    /// A thread begins to take these pages and their notes away (`POSIX_FADV_DONTNEED`), from the first to the last. What is
    /// reclaimed behind it meanwhile leaves a note that stays.
    pub(crate) fn begin_drop(&mut self, task: u32, file: u32, pages: Range<Page>) {
        self.dropping.insert(task, (file, pages));
    }

    /// The thread has taken this folio away.
    pub(crate) fn dropped(&mut self, task: u32, file: u32, folio: Folio) {
        if let Some((_, left)) = self.dropping.get_mut(&task).filter(|(dropped, _)| *dropped == file) {
            let passed = left.start..folio.first;
            left.start = folio.range().end;
            self.forget_notes(file, &passed);
        }
    }

    /// The thread does something else.
    pub(crate) fn end_drop(&mut self, task: u32) {
        if let Some((file, left)) = self.dropping.remove(&task) {
            self.forget_notes(file, &left);
        }
    }

    fn forget_notes(&mut self, file: u32, pages: &Range<Page>) {
        self.file(file).evicted.retain(|first, _| !pages.contains(first));
    }

    /// If the folio of this page has a mark, it may lose it at any time.
    pub(crate) fn doubt_mark(&mut self, file: u32, page: Page) {
        if let Some(folio) = self.folio(FileId(file), page)
            && let Some(mark) = self.file(file).marked.get_mut(&folio.first)
        {
            *mark = false;
        }
    }

    /// Takes the mark of a folio away.
    pub(crate) fn unmark(&mut self, file: u32, folio: Folio) {
        self.file(file).marked.remove(&folio.first);
    }

    /// Whether a folio has a mark; `None`: that cannot be told.
    pub(crate) fn is_marked(&self, file: u32, folio: Folio) -> Option<bool> {
        match self.files.get(file as usize).and_then(|file| file.marked.get(&folio.first)) {
            None => Some(false),
            Some(true) => Some(true),
            Some(false) => None,
        }
    }

    fn of(&self, file: FileId) -> Option<&File> {
        self.files.get(file.0 as usize)
    }
}

impl View for Pages {
    fn now_ns(&self) -> u64 {
        0
    }

    fn file_pages(&self, file: FileId) -> u64 {
        self.of(file).map_or(0, |file| file.pages)
    }

    fn is_present(&self, file: FileId, page: Page) -> bool {
        self.folio(file, page).is_some()
    }

    fn is_locked(&self, _file: FileId, _page: Page) -> bool {
        // Nothing that a kernel decides depends on it but the balance of misses, and that is in the trace.
        false
    }

    fn folio(&self, file: FileId, page: Page) -> Option<Folio> {
        self.of(file)?.folio(page)
    }

    fn evicted(&self, file: FileId, page: Page) -> Option<Folio> {
        covering(&self.of(file)?.evicted, page)
    }

    fn limits(&self, file: FileId) -> Limits {
        self.of(file).map(|file| file.limits).unwrap_or_default()
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn queue(&self, _file: FileId) -> Queue {
        Queue::default()
    }
}

/// What is cached as a thread's decision finds it: without what another thread's should have brought, but has not.
pub(crate) struct Seen<'a> {
    pub(crate) pages: &'a Pages,
    /// What is really cached.
    pub(crate) truth: &'a Pages,
    pub(crate) task: u32,
}

impl View for Seen<'_> {
    fn now_ns(&self) -> u64 {
        0
    }

    fn file_pages(&self, file: FileId) -> u64 {
        self.pages.file_pages(file)
    }

    fn is_present(&self, file: FileId, page: Page) -> bool {
        self.folio(file, page).is_some()
    }

    fn is_locked(&self, _file: FileId, _page: Page) -> bool {
        false
    }

    fn folio(&self, file: FileId, page: Page) -> Option<Folio> {
        let folio = self.pages.folio(file, page)?;
        let is_there = self.truth.is_present(file, page) || !self.pages.is_brought_after(file.0, folio, 0, self.task);
        is_there.then_some(folio)
    }

    fn evicted(&self, file: FileId, page: Page) -> Option<Folio> {
        self.pages.evicted(file, page)
    }

    fn limits(&self, file: FileId) -> Limits {
        self.pages.limits(file)
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn queue(&self, _file: FileId) -> Queue {
        Queue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Pages {
        let mut pages = Pages::default();
        let seen = FileSeen { file: 3, device: 0, inode: 1, cached_pages: 0, folio_order: 9, least_order: 0 };
        pages.see(&seen);
        pages
    }

    #[test]
    fn a_folio_covers_its_pages_until_it_is_removed() {
        let mut pages = file();
        let folio = Folio { first: 16, order: 2 };
        pages.add(3, folio, true);
        assert_eq!(pages.folio(FileId(3), 19), Some(folio));
        assert_eq!(pages.folio(FileId(3), 20), None);
        assert_eq!(pages.is_marked(3, folio), Some(true));
        pages.doubt(3, folio);
        assert_eq!(pages.is_marked(3, folio), None);
        pages.unmark(3, folio);
        assert_eq!(pages.is_marked(3, folio), Some(false));
        pages.remove(3, folio, false);
        assert_eq!(pages.folio(FileId(3), 16), None);
    }

    #[test]
    fn what_is_left_of_a_folio_that_was_split_is_its_halves() {
        let mut pages = file();
        pages.add(3, Folio { first: 16, order: 3 }, false);
        pages.remove(3, Folio::single(18), false);
        let left = [17, 18, 19, 20].map(|page| pages.folio(FileId(3), page));
        let [pair, four] = [Folio { first: 16, order: 1 }, Folio { first: 20, order: 2 }];
        assert_eq!(left, [Some(pair), None, Some(Folio::single(19)), Some(four)]);
    }

    #[test]
    fn a_file_that_was_cached_before_is_not_known() {
        let mut pages = Pages::default();
        let seen = FileSeen { file: 0, device: 0, inode: 1, cached_pages: 1, folio_order: 9, least_order: 0 };
        pages.see(&seen);
        assert!(!pages.is_known(0) && !pages.is_known(7));
        pages.remove(0, Folio::single(8), false);
        assert!(pages.is_known(0), "all that was cached is gone");
    }

    #[test]
    fn reclaim_leaves_a_note_that_is_split_by_what_takes_its_place() {
        let mut pages = file();
        let folio = Folio { first: 16, order: 3 };
        pages.add(3, folio, false);
        pages.remove(3, folio, true);
        assert_eq!(pages.evicted(FileId(3), 23), Some(folio));
        pages.add(3, Folio { first: 18, order: 1 }, false);
        let left = [17, 18, 20].map(|page| pages.evicted(FileId(3), page));
        assert_eq!(left, [Some(Folio { first: 16, order: 1 }), None, Some(Folio { first: 20, order: 1 })]);
        pages.begin_drop(1, 3, 20..24);
        pages.end_drop(1);
        assert_eq!(pages.evicted(FileId(3), 22), None);
    }

    /// A thread takes a file out of the cache while memory is short: what is reclaimed behind it leaves a note that stays, what is
    /// reclaimed before it leaves one that it takes away, too.
    #[test]
    fn what_is_reclaimed_while_a_file_is_dropped_leaves_a_note_only_behind() {
        let mut pages = file();
        for first in 0..8 {
            pages.add(3, Folio::single(first), false);
        }
        pages.begin_drop(1, 3, 0..100);
        pages.dropped(1, 3, Folio::single(3));
        for reclaimed in [1, 6] {
            pages.remove(3, Folio::single(reclaimed), true);
        }
        pages.end_drop(1);
        assert_eq!([1, 6].map(|page| pages.evicted(FileId(3), page).is_some()), [true, false]);
    }

    #[test]
    fn the_note_of_a_folio_that_fills_nodes_is_split_node_by_node() {
        let mut pages = file();
        let folio = Folio { first: 128, order: 7 };
        pages.add(3, folio, false);
        pages.remove(3, folio, true);
        pages.add(3, Folio::single(130), false);
        let orders = [129, 159, 160, 192].map(|page| pages.evicted(FileId(3), page).unwrap().order);
        assert_eq!(orders, [0, 0, 5, 6]);
        assert_eq!(pages.evicted(FileId(3), 130), None);
    }
}

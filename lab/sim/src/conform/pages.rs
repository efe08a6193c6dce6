//! The content of the page cache for the files of a trace, as far as the trace shows.

use ahead_policy::traces::{FileSeen, Use};
use ahead_policy::{FileId, Folio, Limits, Memory, PAGE_BYTES, Page, Queue, View};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// A node of the XArray has 64 slots (`XA_CHUNK_SHIFT`).
const NODE_ORDER: u8 = 6;

/// The cache of one file.
#[derive(Clone, Debug, Default)]
struct File {
    /// Its folios, by their first page.
    folios: BTreeMap<Page, u8>,
    /// Folios that reclaim has evicted; each leaves a shadow entry.
    evicted: BTreeMap<Page, u8>,
    /// Marked folios; `false`: the mark is uncertain.
    marked: FxHashMap<Page, bool>,
    /// Folios that a decision added: the record and the thread.
    added: FxHashMap<Page, (u64, u32)>,
    /// Removed pages: ranges by their first page, with end and record.
    gone: BTreeMap<Page, (Page, u64)>,
    pages: u64,
    limits: Limits,
    /// Number of pages that have been cached since before the trace; their places and folios are unknown.
    unknown_pages: u64,
    /// Smallest folio of the file system, as a power of two; the policies expect single pages.
    least_order: u8,
}

/// The folio among these that contains a page.
fn covering(folios: &BTreeMap<Page, u8>, page: Page) -> Option<Folio> {
    let (first, order) = folios.range(..=page).next_back()?;
    let folio = Folio { first: *first, order: *order };
    folio.range().contains(&page).then_some(folio)
}

/// The last folio among these that overlaps with `wanted`.
fn overlapping(folios: &BTreeMap<Page, u8>, wanted: Folio) -> Option<Folio> {
    let (first, order) = folios.range(..wanted.range().end).next_back()?;
    let folio = Folio { first: *first, order: *order };
    (folio.range().end > wanted.first).then_some(folio)
}

impl File {
    fn folio(&self, page: Page) -> Option<Folio> {
        covering(&self.folios, page)
    }

    /// Removes the shadow entries at the place of a new folio. The kernel first splits the entry of a larger folio
    /// (`__filemap_add_folio`). Within a node of the XArray it splits the entry into entries of the size of the new folio. An entry that
    /// fills nodes is split into halves, and then only the half with the new folio is split again (`xas_try_split_min_order`).
    fn remove_shadow_entries_of(&mut self, wanted: Folio) {
        while let Some(mut entry) = overlapping(&self.evicted, wanted) {
            self.evicted.remove(&entry.first);
            while entry.order > wanted.order {
                let least = match entry.order % NODE_ORDER {
                    0 => entry.order - 1,
                    beyond => entry.order - beyond,
                };
                let order = least.max(wanted.order);
                self.evicted.extend(entry.range().step_by(1 << order).map(|first| (first, order)));
                entry = Folio { first: wanted.first >> order << order, order };
                self.evicted.remove(&entry.first);
            }
        }
    }

    /// Removes these pages from the ranges of removed pages.
    fn forget_removed(&mut self, pages: &Range<Page>) {
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

    /// Removes all folios that overlap with `wanted`. The other halves of a larger folio stay: the kernel splits the folio to remove a
    /// part (since 6.15 only as far as necessary: `folio_split`).
    fn remove_overlapping(&mut self, wanted: Folio) {
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

/// The page cache: the view of a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    files: Vec<File>,
    /// Threads that drop a file from the cache (`POSIX_FADV_DONTNEED`): the file, and the remaining pages.
    dropping: FxHashMap<u32, (u32, Range<Page>)>,
}

impl Pages {
    /// Adds a file.
    pub(crate) fn add_file(&mut self, seen: &FileSeen) {
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

    /// Updates the length of a file and the settings of its disk.
    pub(crate) fn settings(&mut self, by: &Use) {
        let file = self.file(by.file);
        let pages = by.file_bytes.div_ceil(PAGE_BYTES);
        if pages < file.pages {
            // Truncation removes shadow entries, too.
            file.evicted.split_off(&pages);
        }
        file.pages = pages;
        file.limits.window_pages = by.disk_window.into();
        file.limits.request_pages = by.disk_request.into();
    }

    /// Whether the cached pages of a file are known: none were cached at the file's first record, or all of these have been removed.
    pub(crate) fn is_known(&self, file: u32) -> bool {
        self.files.get(file as usize).is_some_and(|file| file.unknown_pages == 0 && file.least_order == 0)
    }

    /// Marks the cached pages of a file as unknown until the end of the run.
    pub(crate) fn set_unknown(&mut self, file: u32) {
        self.file(file).unknown_pages = u64::MAX;
    }

    /// Adds a folio.
    pub(crate) fn add(&mut self, file: u32, folio: Folio, marked: bool) {
        let file = self.file(file);
        file.remove_overlapping(folio);
        file.remove_shadow_entries_of(folio);
        file.forget_removed(&folio.range());
        file.folios.insert(folio.first, folio.order);
        match marked {
            true => file.marked.insert(folio.first, true),
            false => file.marked.remove(&folio.first),
        };
    }

    /// Notes that a decision of this thread, which started with this record, added the folio.
    pub(crate) fn note_added(&mut self, file: u32, folio: Folio, record: u64, task: u32) {
        self.file(file).added.insert(folio.first, (record, task));
    }

    /// Whether a decision of another thread than `task`, which started after this record, added the folio.
    pub(crate) fn is_added_after(&self, file: u32, folio: Folio, record: u64, task: u32) -> bool {
        let added = self.files.get(file as usize).and_then(|file| file.added.get(&folio.first));
        added.is_some_and(|(at, by)| *at > record && *by != task)
    }

    /// Makes the mark of a folio uncertain.
    pub(crate) fn doubt(&mut self, file: u32, folio: Folio) {
        if self.folio(FileId(file), folio.first) == Some(folio) {
            self.file(file).marked.insert(folio.first, false);
        }
    }

    /// Removes a folio; `is_reclaimed`: reclaim has evicted it.
    pub(crate) fn remove(&mut self, file: u32, folio: Folio, is_reclaimed: bool) {
        let file = self.file(file);
        if overlapping(&file.folios, folio).is_none() {
            // An unknown file stays unknown.
            let is_lost = file.unknown_pages == u64::MAX;
            file.unknown_pages = if is_lost { u64::MAX } else { file.unknown_pages.saturating_sub(folio.pages()) };
        }
        file.remove_overlapping(folio);
        file.marked.remove(&folio.first);
        if is_reclaimed {
            file.remove_shadow_entries_of(folio);
            file.evicted.insert(folio.first, folio.order);
        }
    }

    /// Notes that these pages were removed with this record.
    pub(crate) fn note_removed(&mut self, file: u32, folio: Folio, record: u64) {
        let file = self.file(file);
        let pages = folio.range();
        file.forget_removed(&pages);
        file.gone.insert(pages.start, (pages.end, record));
    }

    /// Whether a page was removed after this record.
    pub(crate) fn is_removed_after(&self, file: u32, page: Page, record: u64) -> bool {
        let before = self.files.get(file as usize).and_then(|file| file.gone.range(..=page).next_back());
        before.is_some_and(|(_, (end, at))| page < *end && *at > record)
    }

    /// Starts a thread's drop of these pages and their shadow entries (`POSIX_FADV_DONTNEED`), in ascending order. If reclaim evicts a
    /// page after the thread has passed the page, the shadow entry stays.
    pub(crate) fn begin_drop(&mut self, task: u32, file: u32, pages: Range<Page>) {
        self.dropping.insert(task, (file, pages));
    }

    /// Notes that the thread has dropped this folio.
    pub(crate) fn dropped(&mut self, task: u32, file: u32, folio: Folio) {
        if let Some((_, left)) = self.dropping.get_mut(&task).filter(|(dropped, _)| *dropped == file) {
            let passed = left.start..folio.first;
            left.start = folio.range().end;
            self.remove_shadow_entries(file, &passed);
        }
    }

    /// Ends the drop: the thread has started another operation.
    pub(crate) fn end_drop(&mut self, task: u32) {
        if let Some((file, left)) = self.dropping.remove(&task) {
            self.remove_shadow_entries(file, &left);
        }
    }

    fn remove_shadow_entries(&mut self, file: u32, pages: &Range<Page>) {
        self.file(file).evicted.retain(|first, _| !pages.contains(first));
    }

    /// Makes the mark of this page's folio uncertain, if it has one.
    pub(crate) fn doubt_mark(&mut self, file: u32, page: Page) {
        if let Some(folio) = self.folio(FileId(file), page)
            && let Some(mark) = self.file(file).marked.get_mut(&folio.first)
        {
            *mark = false;
        }
    }

    /// Removes the mark of a folio.
    pub(crate) fn unmark(&mut self, file: u32, folio: Folio) {
        self.file(file).marked.remove(&folio.first);
    }

    /// Whether a folio has a mark; `None`: uncertain.
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
        // Only the balance of misses depends on this value, and the trace has the balance.
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

/// The cache as the decision of a thread sees it: without expected folios of other threads that the kernel did not add.
pub(crate) struct ThreadView<'a> {
    pub(crate) pages: &'a Pages,
    /// The content of the kernel's cache.
    pub(crate) kernel_pages: &'a Pages,
    pub(crate) task: u32,
}

impl View for ThreadView<'_> {
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
        let is_there =
            self.kernel_pages.is_present(file, page) || !self.pages.is_added_after(file.0, folio, 0, self.task);
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
        pages.add_file(&seen);
        pages
    }

    #[test]
    fn folio_covers_its_pages_until_it_is_removed() {
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
    fn split_folio_leaves_its_other_halves() {
        let mut pages = file();
        pages.add(3, Folio { first: 16, order: 3 }, false);
        pages.remove(3, Folio::single(18), false);
        let left = [17, 18, 19, 20].map(|page| pages.folio(FileId(3), page));
        let [pair, four] = [Folio { first: 16, order: 1 }, Folio { first: 20, order: 2 }];
        assert_eq!(left, [Some(pair), None, Some(Folio::single(19)), Some(four)]);
    }

    #[test]
    fn file_cached_before_the_trace_is_unknown() {
        let mut pages = Pages::default();
        let seen = FileSeen { file: 0, device: 0, inode: 1, cached_pages: 1, folio_order: 9, least_order: 0 };
        pages.add_file(&seen);
        assert!(!pages.is_known(0) && !pages.is_known(7));
        pages.remove(0, Folio::single(8), false);
        assert!(pages.is_known(0), "all that was cached is gone");
    }

    #[test]
    fn shadow_entry_is_split_by_a_new_folio() {
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

    /// A thread drops a file under memory pressure. If reclaim evicts a page after the thread has passed the page, the shadow entry
    /// stays. The thread removes the shadow entries of the other pages.
    #[test]
    fn reclaim_during_a_drop_leaves_shadow_entries_only_before_the_cursor() {
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
    fn shadow_entry_that_fills_nodes_is_split_node_by_node() {
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

//! The order of open files.

use crate::{Counted, OpenFile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What decides the order. Numbers: the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Process and descriptor, ascending.
    Pid,
    /// Name of the process.
    Comm,
    Pattern,
    /// Largest window.
    Window,
    /// Accesses.
    Rate,
    /// Accesses to present pages.
    Hits,
    /// Accesses to pages in flight.
    Locked,
    /// Accesses to absent pages.
    Misses,
    /// Time that threads waited.
    Wait,
    /// Pages that the kernel read.
    Issued,
    /// Pages that were evicted unused.
    Wasted,
    /// Read pages for each used page.
    Amplification,
    /// Pages in the page cache.
    Cached,
    /// Length of the file.
    Size,
}

impl SortKey {
    /// All keys with their names.
    pub const NAMES: [(&str, SortKey); 14] = [
        ("pid", SortKey::Pid),
        ("comm", SortKey::Comm),
        ("pattern", SortKey::Pattern),
        ("window", SortKey::Window),
        ("rate", SortKey::Rate),
        ("hits", SortKey::Hits),
        ("locked", SortKey::Locked),
        ("misses", SortKey::Misses),
        ("wait", SortKey::Wait),
        ("issued", SortKey::Issued),
        ("wasted", SortKey::Wasted),
        ("amplification", SortKey::Amplification),
        ("cached", SortKey::Cached),
        ("size", SortKey::Size),
    ];

    pub fn name(self) -> &'static str {
        SortKey::NAMES.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }

    /// Whether it needs counts.
    pub fn needs_counts(self) -> bool {
        use SortKey::{Amplification, Hits, Issued, Locked, Misses, Rate, Wait, Wasted};
        matches!(self, Rate | Hits | Locked | Misses | Wait | Issued | Wasted | Amplification)
    }

    /// The value that is compared; for text the rank of its first bytes, so that all keys are numbers.
    fn value(self, file: &OpenFile) -> u64 {
        let count = |value: fn(&Counted) -> u64| file.counted.as_ref().map_or(0, value);
        match self {
            SortKey::Pid => u64::MAX,
            SortKey::Comm => !prefix(&file.comm),
            SortKey::Pattern => !prefix(file.pattern.name().as_bytes()),
            SortKey::Window => file.window.map_or(0, |window| window.limit_pages),
            SortKey::Rate => count(Counted::accesses),
            SortKey::Hits => count(|counted| counted.hits.unwrap_or(0)),
            SortKey::Locked => count(|counted| counted.locked),
            SortKey::Misses => count(|counted| counted.misses),
            SortKey::Wait => count(|counted| counted.wait_ns),
            SortKey::Issued => count(|counted| counted.issued_pages),
            SortKey::Wasted => count(|counted| counted.wasted_pages),
            SortKey::Amplification => count(|counted| (counted.amplification().unwrap_or(0.0) * 1000.0) as u64),
            SortKey::Cached => file.cached_pages,
            SortKey::Size => file.file_bytes,
        }
    }
}

/// The first eight bytes as a number.
fn prefix(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(bytes)
}

/// The place of a file: by the key, then by process and descriptor.
fn place(key: SortKey, file: &OpenFile) -> (Reverse<u64>, u32, Option<u32>, u64) {
    (Reverse(key.value(file)), file.pid, file.descriptor, file.open)
}

/// Sorts the files.
pub fn sort(files: &mut [OpenFile], key: SortKey) {
    files.sort_by_cached_key(|file| place(key, file));
}

/// Keeps the first `limit` files of the order, sorted, without sorting the others.
pub fn keep(files: &mut Vec<OpenFile>, key: SortKey, limit: usize) {
    if limit < files.len() {
        let mut first = BinaryHeap::with_capacity(limit.saturating_add(1));
        for (index, file) in files.iter().enumerate() {
            first.push((place(key, file), index));
            if first.len() > limit {
                first.pop();
            }
        }
        let mut kept: Vec<usize> = first.into_iter().map(|(_, index)| index).collect();
        kept.sort_unstable();
        let mut index = 0;
        files.retain(|_| {
            index += 1;
            kept.binary_search(&(index - 1)).is_ok()
        });
    }
    sort(files, key);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pid: u32, comm: &str, misses: u64) -> OpenFile {
        let counted = Some(Counted { misses, ..Counted::default() });
        OpenFile { pid, comm: comm.into(), counted, ..OpenFile::default() }
    }

    fn sorted(key: SortKey, limit: usize) -> Vec<u32> {
        let mut files = vec![file(3, "a", 5), file(1, "b", 7), file(2, "ab", 7), file(4, "c", 0)];
        keep(&mut files, key, limit);
        files.into_iter().map(|file| file.pid).collect()
    }

    #[test]
    fn numbers_fall_and_names_rise() {
        assert_eq!(sorted(SortKey::Misses, 9), [1, 2, 3, 4]);
        assert_eq!(sorted(SortKey::Comm, 9), [3, 2, 1, 4]);
        assert_eq!(sorted(SortKey::Pid, 9), [1, 2, 3, 4]);
    }

    #[test]
    fn limit_keeps_the_first_of_the_order() {
        assert_eq!(sorted(SortKey::Misses, 2), [1, 2]);
        assert_eq!(sorted(SortKey::Comm, 1), [3]);
        assert_eq!(sorted(SortKey::Comm, 0), [0; 0]);
    }

    #[test]
    fn every_key_has_a_name() {
        for (name, key) in SortKey::NAMES {
            assert_eq!(key.name(), name);
        }
    }
}

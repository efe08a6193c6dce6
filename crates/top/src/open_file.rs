//! An open file of a process: the state of its read-ahead, and what was counted.

use ahead_model::DeviceNumber;
pub use ahead_observe::AccessCounts as Counted;
use ahead_observe::OpenCounters;
pub use ahead_policy::pattern::Class as Pattern;
use ahead_policy::pattern::Sample;

/// The state of read-ahead of one open file (`struct file_ra_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Largest window of this open file (`ra_pages`).
    pub limit_pages: u64,
    /// The same of its disk now; an open file takes it over when it is opened.
    pub disk_limit_pages: u64,
    /// First page of the last window.
    pub start: u64,
    /// Pages of the last window; 0: there was none.
    pub pages: u64,
    /// Pages behind the marker: the read that reaches it starts the next window.
    pub async_pages: u64,
    /// The page that was read last by a call; `None`: none.
    pub previous_page: Option<u64>,
    /// Faults of mappings that missed, less those that hit (`mmap_miss`).
    pub mapped_misses: u16,
    /// The program has advised random access (`FMODE_RANDOM`).
    pub is_random: bool,
}

impl Window {
    /// Whether nothing was read through this open file.
    pub fn is_unused(&self) -> bool {
        self.pages == 0 && self.previous_page.is_none() && self.mapped_misses == 0
    }

    /// The page that starts the next window when it is read; `None`: there is no marker.
    pub fn marker(&self) -> Option<u64> {
        let behind = self.pages.checked_sub(self.async_pages)?;
        (self.pages > 0 && self.async_pages > 0).then(|| self.start.saturating_add(behind))
    }

    /// The page behind the last window.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.pages)
    }

    /// The pattern in a file of this length. The state shows little: the last window, and the last page that a call has read.
    fn pattern(&self, file_pages: u64) -> Pattern {
        let Some(previous) = self.previous_page else { return Pattern::Unknown };
        // The marker starts the next window before the reader has come to the end of the last one.
        let first = self.start.saturating_sub(self.pages.max(self.limit_pages));
        match (first..=self.end()).contains(&(previous + 1)) {
            // Without any window all pages may have been cached.
            _ if self.pages == 0 => Pattern::Unknown,
            true if previous.saturating_add(1) >= file_pages && self.end() >= file_pages => Pattern::OnceOnly,
            true => Pattern::Sequential,
            // Reads outside of the last window leave it as it is.
            false => Pattern::RandomRead,
        }
    }

    /// What the program has advised for this open file, as far as its state shows it.
    pub fn advice(&self) -> Option<Advice> {
        match (self.limit_pages, self.disk_limit_pages) {
            _ if self.is_random => Some(Advice::Random),
            (own, disk) if own == disk => None,
            (own, disk) if own == 2 * disk => Some(Advice::Sequential),
            _ => Some(Advice::Window),
        }
    }
}

/// Why the window of an open file differs from that of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `POSIX_FADV_RANDOM`: no read-ahead.
    Random,
    /// `POSIX_FADV_SEQUENTIAL`: twice the window of the disk.
    Sequential,
    /// Another window: the disk's was changed after the file was opened, or `ahead steer` has set this one.
    Window,
}

impl Advice {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Advice::Random => "random",
            Advice::Sequential => "sequential",
            Advice::Window => "window",
        }
    }
}

/// An open file of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenFile {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: Vec<u8>,
    /// Its lowest descriptor of this open file. `None`: it has none (any more), see `closed_files` and the mapping.
    pub descriptor: Option<u32>,
    /// The path, where it was looked up and is known.
    pub path: Option<Vec<u8>>,
    /// Address of the kernel's `struct file`; 0: several.
    pub open: u64,
    pub inode_number: u64,
    /// Device of the file system.
    pub device: DeviceNumber,
    /// Length of the file.
    pub file_bytes: u64,
    /// Pages of the file in the page cache.
    pub cached_pages: u64,
    /// Position of the next read(2).
    pub position_bytes: u64,
    /// State of read-ahead; `None`: it has gone with the open file.
    pub window: Option<Window>,
    /// The advice for its mapping (`madvise`), where it was looked up.
    pub mapping_advice: Option<Advice>,
    /// Counts of the interval; `None`: nothing was counted.
    pub counted: Option<Counted>,
    /// The pattern of its accesses.
    pub pattern: Pattern,
    /// Open files that this row stands for because they were closed in the interval; 0: this is one open file.
    pub closed_files: u64,
}

/// The pattern of an open file of this many pages, by the last decisions, or by the state alone.
pub fn pattern(window: Option<&Window>, counters: Option<&OpenCounters>, file_pages: u64) -> Pattern {
    if window.and_then(Window::advice).is_some_and(|advice| advice != Advice::Window) {
        return Pattern::Advised;
    }
    let by_decisions = counters.map_or(Pattern::Unknown, |counters| {
        let pages: Vec<u64> = counters.last_pages.iter().map(|decided| decided.page).collect();
        let faults = counters.last_pages.iter().filter(|decided| decided.is_fault).count();
        let Counted { misses, markers, issued_pages, .. } = counters.counts;
        Sample { pages: &pages, faults, misses, markers, issued_pages, file_pages }.class()
    });
    match (by_decisions, window) {
        (Pattern::Unknown, Some(window)) => window.pattern(file_pages),
        (found, _) => found,
    }
}

/// Totals of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Open files with read-ahead, each process counted.
    pub open_files: u64,
    /// Processes with such a file.
    pub processes: u64,
    /// Pages in the page cache, of the whole machine.
    pub cached_bytes: u64,
    /// Counts of the interval over all files; `None`: nothing was counted.
    pub counted: Option<Counted>,
    /// Pages that were read ahead and neither used nor evicted so far, since the counters were started: the memory footprint of read-ahead
    /// (Wu); `None`: not counted.
    pub unread_pages: Option<u64>,
    pub lost_events: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_observe::DecidedPage;
    use proptest::prelude::*;

    fn window(limit_pages: u64, disk_limit_pages: u64) -> Window {
        Window { limit_pages, disk_limit_pages, ..Window::default() }
    }

    #[test]
    fn marker_is_in_the_last_window() {
        let mut seen = Window { start: 64, pages: 32, async_pages: 32, ..window(32, 32) };
        assert_eq!((seen.marker(), seen.end()), (Some(64), 96));
        seen.async_pages = 8;
        assert_eq!(seen.marker(), Some(88));
        for (pages, async_pages) in [(0, 0), (32, 0), (4, 8)] {
            assert_eq!(Window { pages, async_pages, ..seen }.marker(), None);
        }
    }

    #[test]
    fn advice_is_found_by_the_window() {
        assert_eq!(window(32, 32).advice(), None);
        assert_eq!(window(64, 32).advice(), Some(Advice::Sequential));
        assert_eq!(window(1, 32).advice(), Some(Advice::Window));
        assert_eq!(Window { is_random: true, ..window(32, 32) }.advice(), Some(Advice::Random));
    }

    #[test]
    fn amplification_needs_used_pages() {
        let mut counted = Counted { issued_pages: 64, used_pages: Some(2), ..Counted::default() };
        assert_eq!(counted.amplification(), Some(32.0));
        counted.used_pages = Some(0);
        assert_eq!(counted.amplification(), None);
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
            small in any::<[u32; 4]>().prop_map(|small| small.map(u64::from)),
            previous_page in proptest::option::of(0..=u64::MAX / 4096),
        ) {
            let [misses, markers, issued_pages, file_pages] = numbers;
            let last_pages = pages.iter().map(|&page| DecidedPage { page, is_fault: page % 2 == 0 }).collect();
            let counts = Counted { misses, markers, issued_pages, ..Counted::default() };
            let counters = OpenCounters { counts, last_pages, ..OpenCounters::default() };
            let [limit_pages, disk_limit_pages, pages, async_pages] = small;
            let window = Window { limit_pages, disk_limit_pages, start: file_pages, pages, async_pages, previous_page, ..Window::default() };
            pattern(Some(&window), Some(&counters), file_pages);
            pattern(Some(&window), None, file_pages);
        }
    }
}

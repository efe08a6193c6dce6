//! The paper's statements about the kernel of 2007 (sections 2 and 3): windows, advice.

use super::calls;
use crate::{Bound, Lines, Measure, PaperError, SystemCalls, policy};
use ahead_policy::testing::Cache;
use ahead_policy::{Access, Advice, Event, FileId, OpenId, PAGE_BYTES, Policy, Requests, View};

/// `VM_MAX_READAHEAD`, 128 KB, in pages: the default of `read_ahead_kb`.
const MOST_PAGES: u64 = 32;
const FILE_PAGES: u64 = 4096;
/// Sequential pages before the first seek, and after the last.
const SEEK_AFTER: u64 = 256;
/// Consecutive seeks.
const SEEKS: u64 = 32;

/// A reader of single pages, with the policy that requests pages for it.
struct Reader {
    policy: Box<dyn Policy>,
    cache: Cache,
    at: u64,
    /// Whether requested pages are in the cache when the reader needs them.
    keeps: bool,
}

impl Reader {
    fn new(name: &str) -> Result<Reader, PaperError> {
        let policy = policy(name)?.build(&Default::default())?;
        Ok(Reader { policy, cache: Cache::new(FILE_PAGES, MOST_PAGES), at: 0, keeps: true })
    }

    fn advise(&mut self, advice: Advice) {
        let mut requests = Requests::default();
        self.policy.event(&Event::Advised { open: OpenId(0), file: FileId(0), advice }, &self.cache, &mut requests);
    }

    /// Reads one page; returns the lengths of the requests, pages.
    fn read(&mut self) -> Vec<u64> {
        let mut requests = Requests::default();
        let access = Access::read(self.at, 1, self.cache.found(self.at));
        self.policy.access(&access, &self.cache, &mut requests);
        self.at += 1;
        let list = requests.take();
        list.iter().filter(|_| self.keeps).for_each(|request| self.cache.fill(request));
        list.iter().map(|request| request.pages).collect()
    }

    /// Continues at another page.
    fn seek(&mut self, page: u64) {
        let mut requests = Requests::default();
        let event = Event::Sought { open: OpenId(0), file: FileId(0), offset_bytes: page * PAGE_BYTES };
        self.policy.event(&event, &self.cache, &mut requests);
        self.at = page;
    }

    fn windows(&mut self, pages: u64) -> Vec<u64> {
        (0..pages).flat_map(|_| self.read()).collect()
    }
}

/// `seen`: what the system calls do on the running kernel.
pub(super) fn run(lines: &mut Lines, seen: Option<&SystemCalls>) -> Result<(), PaperError> {
    add_windows(lines)?;
    add_cached_file(lines)?;
    add_seeks(lines)?;
    calls::readahead(lines, seen);
    add_advice_on_file(lines, seen)?;
    add_advice_on_range(lines, seen)?;
    lines.not_shown(
        "2.2: the adaptive patches' window of up to 1 MB, and their access times",
        "up to 1 MB; improvements in most cases",
        "the gain with many streams is shown with Wu's mail of 2005; the cited benchmarks are not in the text",
    );
    Ok(())
}

/// The longest window of a sequential reader, and the shortest window of a reader whose pages are evicted before use.
fn add_windows(lines: &mut Lines) -> Result<(), PaperError> {
    let windows = Reader::new("linux-2.6")?.windows(512);
    let longest = windows.iter().copied().max().unwrap_or(0);
    lines.number(
        "2.1: the ahead window grows up to VM_MAX_READAHEAD",
        "128 KB",
        Measure::new((longest * 4) as f64, "KB", 0),
        Bound::Within(128.0, 0.0),
        "the longest window of a sequential reader",
    );
    // Each prefetched page is evicted before the reader needs it.
    let mut thrashing = Reader::new("linux-2.6")?;
    thrashing.windows(256);
    thrashing.keeps = false;
    let windows = thrashing.windows(512);
    let shrinks = windows.windows(2).filter(|pair| pair[1] < pair[0]).count();
    lines
        .number(
            "2.1: and it is reduced down to VM_MIN_READAHEAD when pages are reclaimed before they are used",
            "16 KB",
            Measure::new((windows.iter().copied().filter(|pages| *pages > 1).min().unwrap_or(0) * 4) as f64, "KB", 0),
            Bound::Within(16.0, 0.0),
            "the shortest window of a reader whose pages are always evicted before use",
        )
        .ours += &format!(", after {shrinks} reductions");
    Ok(())
}

/// The whole file is cached: read-ahead turns itself off.
fn add_cached_file(lines: &mut Lines) -> Result<(), PaperError> {
    let mut cached = Reader::new("linux-2.6")?;
    cached.cache.fill(&ahead_policy::Request { pages: FILE_PAGES, ..ahead_policy::Request::of(FileId(0)) });
    let first = cached.windows(512).len();
    let later = cached.windows(FILE_PAGES - 512).len();
    lines.shape(
        "2.1: where a file is in the page cache, read-ahead is turned off",
        "useless and turned off",
        format!("{first} windows for the first 512 pages, {later} for the {} after them", FILE_PAGES - 512),
        first > 0 && later == 0,
        "none once it is off",
    );
    Ok(())
}

/// "Of course, any seek or random I/O turns off this readahead mode."
fn add_seeks(lines: &mut Lines) -> Result<(), PaperError> {
    let mut reader = Reader::new("linux-2.6")?;
    let before = reader.windows(SEEK_AFTER).into_iter().max().unwrap_or(0);
    // No two of these pages are adjacent, and none is near the pages read before.
    let random: Vec<u64> = (0..SEEKS)
        .flat_map(|index| {
            reader.seek(FILE_PAGES / 2 + (SEEKS - index) * MOST_PAGES);
            reader.read()
        })
        .collect();
    let after = reader.windows(SEEK_AFTER).into_iter().max().unwrap_or(0);
    let longest = random.iter().copied().max().unwrap_or(0);
    lines.shape(
        "2.1: any seek or random I/O turns off this readahead mode",
        "turns off",
        format!(
            "longest window {before} pages before, {longest} in {SEEKS} reads of one page each after a seek, {after} when sequential reads follow"
        ),
        before == MOST_PAGES && longest == 1 && random.len() as u64 == SEEKS && after > 1,
        "after a seek only the wanted page is read",
    );
    Ok(())
}

/// Advice on the whole file changes the window.
fn add_advice_on_file(lines: &mut Lines, seen: Option<&SystemCalls>) -> Result<(), PaperError> {
    // Whether the longest window agrees with the paper, beside that without advice.
    type Holds = fn(u64, u64) -> bool;
    let all: [(Advice, &str, usize, Holds); 3] = [
        (Advice::Sequential, "double the readahead window size", 1, |longest, without| longest == 2 * without),
        (Advice::Normal, "use the default readahead window size", 0, |longest, _| longest == MOST_PAGES),
        (Advice::Random, "disable readahead", 2, |longest, _| longest <= 1),
    ];
    for (advice, quoted, index, holds) in all {
        let mut reader = Reader::new("linux-6.18")?;
        reader.advise(advice);
        let longest = reader.windows(512).into_iter().max().unwrap_or(0);
        let line = lines.shape(
            &format!("3.2: POSIX_FADV_{}", format!("{advice:?}").to_uppercase()),
            quoted,
            format!("longest request {longest} pages, {MOST_PAGES} without advice"),
            holds(longest, MOST_PAGES),
            "exact, with linux-6.18",
        );
        calls::window(line, seen, index, holds);
    }
    Ok(())
}

/// Advice on a region of the file.
fn add_advice_on_range(lines: &mut Lines, seen: Option<&SystemCalls>) -> Result<(), PaperError> {
    let mut reader = Reader::new("linux-2.6")?;
    let (first, end) = (FILE_PAGES / 4, FILE_PAGES / 2);
    let mut requests = Requests::default();
    let event = Event::WillNeed { open: OpenId(0), file: FileId(0), first, pages: end - first };
    reader.policy.event(&event, &reader.cache, &mut requests);
    let list = requests.take();
    list.iter().for_each(|request| reader.cache.fill(request));
    let there: Vec<u64> = (0..FILE_PAGES).filter(|page| reader.cache.is_present(FileId(0), *page)).collect();
    let line = lines.shape(
        "3.2: POSIX_FADV_WILLNEED",
        "initiate a read of the specified region into the page cache",
        format!("{} of {} pages are requested, in {} requests", there.len(), end - first, list.len()),
        there.iter().copied().eq(first..end),
        "exactly the region, with linux-2.6",
    );
    calls::live(line, seen, calls::will_need);
    calls::advice(lines, seen);
    Ok(())
}

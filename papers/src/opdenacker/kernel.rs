//! What the paper says of the kernel of its time (sections 2 and 3): windows, advice.

use crate::{Bound, Lines, Measure, PaperError, policy};
use ahead_policy::testing::Cache;
use ahead_policy::{Access, Advice, Event, FileId, OpenId, Policy, Requests};

/// `VM_MAX_READAHEAD`, 128 KB, in pages: what `read_ahead_kb` is unless somebody set it.
const MOST_PAGES: u64 = 32;
const FILE_PAGES: u64 = 4096;

/// A reader of single pages, and what is asked for on its behalf.
struct Reader {
    policy: Box<dyn Policy>,
    cache: Cache,
    at: u64,
    /// What was asked for is there when it is needed.
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

    /// Reads one page; gives the lengths of the requests, pages.
    fn read(&mut self) -> Vec<u64> {
        let mut requests = Requests::default();
        let access = Access::read(self.at, 1, self.cache.found(self.at));
        self.policy.access(&access, &self.cache, &mut requests);
        self.at += 1;
        let list = requests.take();
        list.iter().filter(|_| self.keeps).for_each(|request| self.cache.fill(request));
        list.iter().map(|request| request.pages).collect()
    }

    fn windows(&mut self, pages: u64) -> Vec<u64> {
        (0..pages).flat_map(|_| self.read()).collect()
    }
}

pub(super) fn run(lines: &mut Lines) -> Result<(), PaperError> {
    let windows = Reader::new("linux-2.6")?.windows(512);
    let longest = windows.iter().copied().max().unwrap_or(0);
    lines.number(
        "2.1: the ahead window grows up to VM_MAX_READAHEAD",
        "128 KB",
        Measure::new((longest * 4) as f64, "KB", 0),
        Bound::Within(128.0, 0.0),
        "the longest window of a reader from front to back",
    );
    // Nothing stays: whatever is read ahead is gone when it is needed.
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
            "the shortest window of a reader whose pages are always gone",
        )
        .ours += &format!(", after {shrinks} reductions");
    // Everything is cached: read-ahead turns itself off.
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
    for (advice, quoted, holds) in [
        (
            Advice::Sequential,
            "double the readahead window size",
            (|longest| longest == 2 * MOST_PAGES) as fn(u64) -> bool,
        ),
        (Advice::Normal, "use the default readahead window size", |longest| longest == MOST_PAGES),
        (Advice::Random, "disable readahead", |longest| longest <= 1),
    ] {
        let mut reader = Reader::new("linux-6.18")?;
        reader.advise(advice);
        let longest = reader.windows(512).into_iter().max().unwrap_or(0);
        lines.shape(
            &format!("3.2: POSIX_FADV_{}", format!("{advice:?}").to_uppercase()),
            quoted,
            format!("longest request {longest} pages, {MOST_PAGES} unless advised"),
            holds(longest),
            "exact, with linux-6.18",
        );
    }
    lines.not_shown(
        "3.1: readahead blocks until all data have been read",
        "blocks",
        "today's Linux returns once the reads are on their way; the simulator has no such call",
    );
    lines.not_shown(
        "2.2: the adaptive patches' window of up to 1 MB, and their access times",
        "up to 1 MB; improvements in most cases",
        "what they bring with many streams is shown with Wu's mail of 2005; the benchmarks that are cited are not in the text",
    );
    Ok(())
}

//! Regressions of the policies: each test names the earlier error.

use ahead_policy::testing::Cache;
use ahead_policy::{Access, Advice, By, Call, Event, FileId, Found, OpenId, Page, Policy, Request, Requests, named};

const FILE_PAGES: u64 = 65536;

struct Driver {
    policy: Box<dyn Policy>,
    cache: Cache,
}

impl Driver {
    fn new(name: &str, window_pages: u64) -> Driver {
        let policy = named(name).unwrap().build(&Default::default()).unwrap();
        let mut driver = Driver { policy, cache: Cache::new(FILE_PAGES, window_pages) };
        driver.event(&Event::Opened { open: OpenId(0), file: FileId(0) });
        driver
    }

    fn event(&mut self, event: &Event) {
        let mut requests = Requests::default();
        self.policy.event(event, &self.cache, &mut requests);
        assert!(requests.is_empty());
    }

    /// Executes the policy's requests at this access; all pages arrive at once.
    fn access(&mut self, access: Access) -> Vec<(Page, u64)> {
        let mut requests = Requests::default();
        self.policy.access(&access, &self.cache, &mut requests);
        let list: Vec<Request> = requests.take();
        list.iter().for_each(|request| self.cache.fill(request));
        list.iter().map(|request| (request.first, request.pages)).collect()
    }

    /// A call, page by page; returns its requests.
    fn read(&mut self, offset_bytes: u64, length_bytes: u64) -> Vec<(Page, u64)> {
        let (first, end) = (offset_bytes / 4096, (offset_bytes + length_bytes).div_ceil(4096));
        let mut asked = Vec::new();
        for page in first..end {
            let found = self.cache.found(page);
            let call = Call { offset_bytes, length_bytes };
            asked.extend(self.access(Access {
                call,
                begins: page == first,
                wanted: end - page,
                ..Access::read(page, 1, found)
            }));
        }
        asked
    }

    fn fault(&mut self, page: Page) -> Vec<(Page, u64)> {
        let by = By::Fault { advice: Advice::Normal, huge: false, executable: false, first: 0, end: FILE_PAGES };
        let found = self.cache.found(page);
        let asked = self.access(Access { by, ..Access::fault(page, FILE_PAGES, found) });
        if self.cache.found(page) == Found::Absent {
            let mut single = Requests::default();
            single.pages(FileId(0), page, 1);
            single.take().iter().for_each(|request| self.cache.fill(request));
        }
        self.event(&Event::Mapped {
            open: OpenId(0),
            by,
            file: FileId(0),
            first: page,
            pages: 1,
            before: 0,
            mapped: 16,
        });
        asked
    }
}

/// Pages with distances that no read-around bridges.
fn far_apart(count: u64) -> impl Iterator<Item = Page> {
    (0..count).map(|index| (index * 7919 + 64) % (FILE_PAGES / 128) * 128)
}

/// Regression: the pages that a fault mapped cancelled the miss of the same fault.
#[test]
fn random_faults_end_read_around_in_7_2_but_not_in_6_18() {
    let mut driver = Driver::new("linux-7.2", 32);
    let around = far_apart(300).map(|page| driver.fault(page).len()).collect::<Vec<_>>();
    assert_eq!((around[..100].iter().sum::<usize>(), around[100..].iter().sum::<usize>()), (100, 0));
    let mut driver = Driver::new("linux-6.18", 32);
    assert_eq!(far_apart(300).map(|page| driver.fault(page).len()).sum::<usize>(), 300);
}

/// Regression: faults were handled like reads of one page.
#[test]
fn a_fault_of_2_6_23_reads_around_the_page() {
    let mut driver = Driver::new("linux-2.6.23", 32);
    assert_eq!(driver.fault(1000), [(984, 32)]);
}

/// Regression: the reader never counted as sequential.
#[test]
fn roudiers_second_read_is_asynchronous() {
    let mut driver = Driver::new("roudier", 0);
    driver.read(0, 65536);
    let asked = driver.read(65536, 65536);
    // While pages are cached, the next eight are requested.
    assert!(asked.iter().filter(|(_, pages)| *pages == 8).count() >= 1, "{asked:?}");
}

/// Regression: a page that was evicted after read-ahead did not make the window smaller.
#[test]
fn first_read_of_2_2_requests_three_more_pages() {
    let mut driver = Driver::new("linux-2.2", 0);
    let found = driver.cache.found(0);
    assert_eq!(driver.access(Access::read(0, 16, found)), [(0, 1), (1, 3)]);
    let mut driver = Driver::new("linux-2.4", 0);
    let found = driver.cache.found(0);
    assert_eq!(driver.access(Access::read(0, 16, found)), [(0, 1), (1, 17)]);
}

/// Regression: the second read within a page counted as a seek.
#[test]
fn reads_of_1_kib_keep_the_windows_of_2_6() {
    let mut driver = Driver::new("linux-2.6", 32);
    let asked: Vec<(Page, u64)> = (0..400).flat_map(|index| driver.read(index * 1024, 1024)).collect();
    let pages: u64 = asked.iter().map(|(_, pages)| pages).sum();
    // A hundred pages, and at most two windows ahead, in few requests.
    assert!(asked.len() <= 10 && (100..=100 + 96).contains(&pages), "{asked:?}");
}

/// Regression: a read that skipped one page (102 after 100) counted as a sequential read.
#[test]
fn skipped_page_is_a_seek_in_2_6_23() {
    let mut driver = Driver::new("linux-2.6.23", 32);
    assert_eq!(driver.read(100 * 4096, 4096), [(100, 1)]);
    assert_eq!(driver.read(102 * 4096, 4096), [(102, 1)]);
    assert_eq!(driver.read(103 * 4096, 4096), [(103, 4)]);
}

/// Regression: after a cached page the policy read the rest of the window, instead of the whole window again.
#[test]
fn window_of_6_12_restarts_after_a_cached_page() {
    for (name, end) in [("linux-6.12", 8 + 32), ("linux-6.18", 32)] {
        let mut driver = Driver::new(name, 32);
        driver.read(8 * 4096, 4096);
        driver.read(0, 65536);
        let last = (0..64).rev().find(|page| driver.cache.found(*page) != Found::Absent);
        assert_eq!(last.map(|last| last + 1), Some(end), "{name}");
    }
}

/// Regression: the distance of a stream with many waits and no further reads overflowed.
#[test]
fn any_number_of_waits_does_not_panic() {
    let mut driver = Driver::new("ahead", 32);
    driver.read(0, 4096);
    for _ in 0..200 {
        driver.event(&Event::Waited { open: OpenId(0), file: FileId(0), page: 0, wait_ns: 1 });
    }
    // The second page is cached; the next pages are requested, but none beyond the end of the file.
    let asked = driver.read(4096 * 4, 4096);
    assert!(asked.iter().all(|(first, pages)| first + pages <= FILE_PAGES), "{asked:?}");
}

/// Regression, found by a trace: the file's end cuts the window of 2048 pages to 512. All of these pages would be
/// before the window's mark.
#[test]
fn request_after_a_cached_page_at_eof_has_no_mark_in_6_18() {
    let mut cache = Cache::new(5120, 2048);
    cache.hold(ahead_policy::Folio::single(4700));
    let mut marked = Vec::new();
    let rest = Some(ahead_policy::Rest { whole: false, look_ahead: 2048 });
    let request = Request { first: 4608, pages: 512, order: 8, mark: Some(4608), rest, ..Request::of(FileId(0)) };
    let present = |page| page == 4608 || page == 4700;
    for (folio, is_marked) in ahead_policy::folios(&request, 9, 5120, present) {
        marked.extend(is_marked.then_some(folio));
    }
    assert_eq!(marked, []);
    let whole = Request {
        pages: 2048,
        mark: Some(4609),
        rest: Some(ahead_policy::Rest { whole: false, look_ahead: 2047 }),
        ..request
    };
    let found: Vec<_> = ahead_policy::folios(&whole, 9, 1 << 20, present).filter(|(_, marked)| *marked).collect();
    assert_eq!(found, [(ahead_policy::Folio::single(4609), true)]);
}

/// Regression, found by a trace: after a cached page the kernel marks the last page of the file, although the mark of
/// the uncut window is beyond that page.
#[test]
fn single_page_window_has_its_mark_before_eof_if_a_page_was_cached() {
    let rest = Some(ahead_policy::Rest { whole: false, look_ahead: 1 });
    let request = Request { first: 5029, pages: 91, mark: None, rest, ..Request::of(FileId(0)) };
    let marked = |is_cached: fn(u64) -> bool| {
        let folios = ahead_policy::folios(&request, 9, 5120, is_cached);
        folios.filter(|(_, marked)| *marked).map(|(folio, _)| folio.first).collect::<Vec<_>>()
    };
    assert_eq!(marked(|page| page == 5040), [5119]);
    assert_eq!(marked(|_| false), []);
}

/// Regression: the policies of 2.6 and 2.6.23 ignored advice on the whole file.
#[test]
fn advice_changes_the_window_of_2_6() {
    for name in ["linux-2.6", "linux-2.6.23"] {
        let advised = |advice| {
            let mut driver = Driver::new(name, 32);
            driver.event(&Event::Advised { open: OpenId(0), file: FileId(0), advice });
            let asked: Vec<_> = (0..64).flat_map(|call| driver.read(call * 16384, 16384)).collect();
            asked.iter().map(|(_, pages)| *pages).max().unwrap_or(0)
        };
        assert_eq!(advised(Advice::Normal), 32, "{name}");
        assert_eq!(advised(Advice::Sequential), 64, "{name}");
        assert_eq!(advised(Advice::Random), 0, "{name}");
        let mut driver = Driver::new(name, 32);
        driver.event(&Event::Advised { open: OpenId(0), file: FileId(0), advice: Advice::Random });
        assert_eq!(driver.fault(1000), [], "{name}");
    }
}

/// Regression: these policies ignored explicit requests, too.
#[test]
fn an_explicit_request_is_read_in_steps_of_2_mib() {
    for name in ["linux-2.6", "linux-2.6.23"] {
        let mut driver = Driver::new(name, 32);
        let mut asked = |pages| {
            let mut requests = Requests::default();
            let event = Event::WillNeed { open: OpenId(0), file: FileId(0), first: 100, pages };
            driver.policy.event(&event, &driver.cache, &mut requests);
            requests.take().iter().map(|request| (request.first, request.pages)).collect::<Vec<_>>()
        };
        assert_eq!(asked(1100), [(100, 512), (612, 512), (1124, 76)], "{name}");
        assert_eq!(asked(u64::MAX).last(), Some(&(65124, FILE_PAGES - 65124)), "{name}");
        driver.cache.memory.free_pages = 600;
        let mut requests = Requests::default();
        let event = Event::WillNeed { open: OpenId(0), file: FileId(0), first: 100, pages: 1100 };
        driver.policy.event(&event, &driver.cache, &mut requests);
        assert_eq!(requests.take().iter().map(|request| request.pages).sum::<u64>(), 300, "{name}");
    }
}

/// Regression: the policy of 2.4 did not handle sequential mappings.
#[test]
fn sequential_mapping_of_2_4_gets_its_next_window_at_the_middle() {
    for (name, first, asks) in [("linux-2.4", 0, true), ("linux-2.4", 64, true), ("linux-2.2", 0, false)] {
        let mut driver = Driver::new(name, 32);
        let mut asked = Vec::new();
        for page in first..first + 60 {
            let by = By::Fault { advice: Advice::Sequential, huge: false, executable: false, first, end: FILE_PAGES };
            let mapped =
                Event::Mapped { open: OpenId(0), by, file: FileId(0), first: page, pages: 1, before: 0, mapped: 1 };
            let mut requests = Requests::default();
            driver.policy.event(&mapped, &driver.cache, &mut requests);
            asked.extend(requests.take().iter().map(|request| (page, request.first, request.pages)));
        }
        // The position in the file is calculated with the mapping's first page added twice.
        let expected = [(first + 16, 2 * first + 32, 32), (first + 48, 2 * first + 64, 32)];
        assert_eq!(asked, if asks { expected.to_vec() } else { vec![] }, "{name}");
    }
}

/// In a mapping with the advice MADV_RANDOM, 2.4 reads no cluster.
#[test]
fn random_mapping_of_2_4_gets_only_the_page() {
    let mut driver = Driver::new("linux-2.4", 32);
    let by = By::Fault { advice: Advice::Random, huge: false, executable: false, first: 0, end: FILE_PAGES };
    assert_eq!(driver.access(Access { by, ..Access::fault(100, FILE_PAGES, Found::Absent) }), []);
    assert_eq!(driver.access(Access::fault(100, FILE_PAGES, Found::Absent)), [(96, 16)]);
}

/// Regression: reads out of order began a separate stream.
#[test]
fn reads_out_of_order_belong_to_one_stream_of_zfs() {
    let mut driver = Driver::new("zfetch", 0);
    let order = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9];
    let asked: Vec<_> = order.iter().flat_map(|block| driver.read(block * 65536, 65536)).collect();
    // Each page once, up to beyond the last block, most of them ahead.
    let end = asked.iter().map(|(first, pages)| first + pages).max();
    assert!(end > Some(11 * 16 + 64), "{asked:?}");
    assert!(driver.read(11 * 65536, 65536).iter().all(|(first, _)| *first > 12 * 16), "{asked:?}");
}

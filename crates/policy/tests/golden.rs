//! Decisions of Linux 6.18.44 on ext4, read from its tracepoints (`readahead:*`), on cold files: a table per case with
//! the program's calls and the kernel's requests.

use ahead_policy::testing::Cache;
use ahead_policy::{Access, Advice, By, Event, FileId, Found, OpenId, Policy, Request, Requests, named};

/// A program that reads by the rules of the kernel's `filemap_read`, over a cache in which all requests arrive at once.
struct Reader {
    policy: Box<dyn Policy>,
    cache: Cache,
    asked: Vec<Request>,
}

impl Reader {
    fn new(policy: &str, window_pages: u64, file_pages: u64) -> Reader {
        let policy = named(policy).unwrap().build(&Default::default()).unwrap();
        let mut reader = Reader { policy, cache: Cache::new(file_pages, window_pages), asked: Vec::new() };
        reader.event(&Event::Opened { open: OpenId(0), file: FileId(0) });
        reader
    }

    fn event(&mut self, event: &Event) {
        let mut requests = Requests::default();
        self.policy.event(event, &self.cache, &mut requests);
        self.carry_out(requests);
    }

    fn carry_out(&mut self, mut requests: Requests) {
        for request in requests.take() {
            self.cache.fill(&request);
            self.asked.push(request);
        }
    }

    fn access(&mut self, access: Access) {
        let mut requests = Requests::default();
        self.policy.access(&access, &self.cache, &mut requests);
        self.carry_out(requests);
        if self.cache.found(access.page) == Found::Absent {
            let mut single = Requests::default();
            single.pages(access.file, access.page, 1);
            self.carry_out(single);
        }
    }

    fn read(&mut self, first: u64, pages: u64) {
        let mut page = first;
        while page < first + pages {
            let found = self.cache.found(page);
            let whole = Access::read(first, pages, found);
            self.access(Access { page, wanted: first + pages - page, begins: page == first, ..whole });
            page = match found {
                Found::Present { folio, .. } => folio.range().end,
                _ => page,
            };
            if found == Found::Absent {
                // The page is cached now: the kernel looks it up again.
                page = match self.cache.found(page) {
                    Found::Present { folio, marked } => {
                        if marked {
                            self.access(Access {
                                page,
                                wanted: first + pages - page,
                                begins: false,
                                found: Found::Present { folio, marked },
                                ..whole
                            });
                        }
                        folio.range().end
                    }
                    _ => page + 1,
                };
            }
        }
    }

    fn fault(&mut self, page: u64, advice: Advice, executable: bool) {
        self.touch(page, advice, false, executable);
    }

    fn touch(&mut self, page: u64, advice: Advice, huge: bool, executable: bool) {
        let found = self.cache.found(page);
        let by = By::Fault { advice, huge, executable, first: 0, end: self.cache.file_pages };
        self.access(Access { by, ..Access::fault(page, 0, found) });
    }

    /// First page, folio order, pages, and pages after the mark, of each request since the last call.
    fn decisions(&mut self) -> Vec<(u64, u8, u64, u64)> {
        let asked = std::mem::take(&mut self.asked);
        let after_mark = |request: &Request| request.mark.map_or(0, |mark| request.first + request.pages - mark);
        asked.iter().map(|request| (request.first, request.order, request.pages, after_mark(request))).collect()
    }
}

const FILE_PAGES: u64 = 65536;

#[test]
fn reads_of_64_kib_with_a_window_of_8_mib() {
    let mut reader = Reader::new("linux-6.18", 2048, FILE_PAGES);
    (0..64).for_each(|index| reader.read(16 * index, 16));
    assert_eq!(
        reader.decisions(),
        [(0, 0, 64, 48), (64, 2, 256, 256), (320, 4, 512, 512), (832, 6, 1024, 1024), (1856, 8, 1984, 1984)]
    );
}

#[test]
fn reads_of_4_kib_with_a_window_of_8_mib() {
    let mut reader = Reader::new("linux-6.18", 2048, FILE_PAGES);
    (0..100).for_each(|page| reader.read(page, 1));
    assert_eq!(
        reader.decisions(),
        [(0, 0, 4, 3), (4, 2, 16, 16), (20, 4, 60, 60), (80, 6, 240, 240), (320, 8, 448, 448)]
    );
}

#[test]
fn reads_of_64_kib_with_the_classic_window() {
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    (0..6).for_each(|index| reader.read(16 * index, 16));
    assert_eq!(reader.decisions()[..4], [(0, 0, 32, 16), (32, 2, 32, 32), (64, 4, 32, 32), (96, 5, 32, 32)]);
}

#[test]
fn random_reads_and_a_consecutive_second_read() {
    let mut reader = Reader::new("linux-6.18", 2048, FILE_PAGES);
    [5000, 100, 7000, 101].into_iter().for_each(|page| reader.read(page, 1));
    assert_eq!(reader.decisions(), [(5000, 0, 1, 0), (100, 0, 1, 0), (7000, 0, 1, 0), (101, 0, 1, 0)]);
    reader.read(102, 1);
    reader.read(103, 1);
    assert_eq!(reader.decisions(), [(102, 0, 4, 3), (106, 2, 14, 14)]);
}

#[test]
fn a_read_that_is_longer_than_the_window() {
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.read(0, 256);
    assert_eq!(reader.decisions(), [(0, 0, 256, 128), (256, 2, 256, 256)]);
}

#[test]
fn faults_read_around_from_a_program_on_and_huge() {
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.fault(1000, Advice::Normal, false);
    assert_eq!(reader.decisions(), [(984, 0, 32, 8)]);
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.fault(1000, Advice::Normal, true);
    assert_eq!(reader.decisions(), [(1000, 0, 32, 0)]);
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.touch(1000, Advice::Normal, true, false);
    assert_eq!(reader.decisions(), [(512, 9, 1024, 512)]);
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.fault(0, Advice::Sequential, false);
    assert_eq!(reader.decisions(), [(0, 0, 32, 16)]);
}

#[test]
fn sequential_faults() {
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    (0..100).for_each(|page| reader.fault(page, Advice::Normal, false));
    // The window around page 0 is the pages after it, and the mark is on its last quarter.
    assert_eq!(reader.decisions()[..3], [(0, 0, 32, 8), (32, 2, 32, 32), (64, 4, 32, 32)]);
}

#[test]
fn without_read_ahead_each_page_is_read_alone() {
    let mut reader = Reader::new("linux-6.18", 0, FILE_PAGES);
    reader.read(0, 16);
    assert_eq!(reader.decisions(), (0..16).map(|page| (page, 0, 1, 0)).collect::<Vec<_>>());
}

#[test]
fn an_explicit_request_is_cut() {
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.event(&Event::WillNeed { open: OpenId(0), file: FileId(0), first: 0, pages: 65536 });
    // max_sectors_kb 4096: 1024 pages, 512 at a time.
    assert_eq!(reader.decisions(), [(0, 0, 512, 0), (512, 0, 512, 0)]);
}

#[test]
fn random_advice_reads_exactly_the_requested_pages() {
    let mut reader = Reader::new("linux-6.18", 32, FILE_PAGES);
    reader.event(&Event::Advised { open: OpenId(0), file: FileId(0), advice: Advice::Random });
    reader.read(0, 16);
    reader.read(16, 16);
    assert_eq!(reader.decisions(), [(0, 0, 16, 0), (16, 0, 16, 0)]);
}

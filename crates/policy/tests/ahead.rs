//! The policy `ahead`, read by read: which pages it requests, and which it does not.

use ahead_policy::testing::Cache;
use ahead_policy::{
    Access, Advice, By, DeviceDescription, Event, FileId, Folio, Found, OpenId, Page, Parameters, Policy, Request,
    Requests, View, named,
};

/// A solid-state disk: 12 pages in the time of an access.
const SSD: DeviceDescription = DeviceDescription {
    access_ns: 100_000,
    bandwidth_bytes_per_s: 500e6,
    parallelism: 8,
    request_ns: 12_500,
    ..DeviceDescription::WU_2010
};

struct Reader {
    policy: Box<dyn Policy>,
    cache: Cache,
    device: DeviceDescription,
    /// All requests, in order.
    asked: Vec<(Page, u64)>,
    misses: u64,
}

impl Reader {
    fn new(device: DeviceDescription, file_pages: u64) -> Reader {
        let parameters = Parameters { device, ..Parameters::default() };
        let policy = named("ahead").unwrap().build(&parameters).unwrap();
        let mut reader = Reader { policy, cache: Cache::new(file_pages, 32), device, asked: vec![], misses: 0 };
        reader.event(&Event::Opened { open: OpenId(0), file: FileId(0) });
        reader
    }

    fn event(&mut self, event: &Event) {
        let mut requests = Requests::default();
        self.policy.event(event, &self.cache, &mut requests);
        assert!(requests.is_empty());
    }

    fn access(&mut self, access: Access) {
        let mut requests = Requests::default();
        self.policy.access(&access, &self.cache, &mut requests);
        let list: Vec<Request> = requests.take();
        list.iter().for_each(|request| self.cache.fill(request));
        self.asked.extend(list.iter().map(|request| (request.first, request.pages)));
        if access.found == Found::Absent {
            self.misses += 1;
            let wait_ns = self.device.access_ns + access.wanted * self.device.page_ns();
            self.cache.now_ns += wait_ns;
            self.event(&Event::Waited { open: OpenId(0), file: FileId(0), page: access.page, wait_ns });
        }
    }

    fn read(&mut self, page: Page, pages: u64) {
        let found = self.cache.found(page);
        self.access(Access::read(page, pages, found));
    }

    /// A fault that maps its own page alone.
    fn fault(&mut self, page: Page) {
        self.fault_around(page, 1);
    }

    /// A fault that maps the cached pages of the aligned group around its page; returns one after the last consecutive
    /// page.
    fn fault_around(&mut self, page: Page, around: u64) -> Page {
        let by =
            By::Fault { advice: Advice::Normal, huge: false, executable: false, first: 0, end: self.cache.file_pages };
        let found = self.cache.found(page);
        self.access(Access { by, ..Access::fault(page, self.cache.file_pages, found) });
        let (open, file) = (OpenId(0), FileId(0));
        let first = page - page % around;
        let end = (page + 1..first + around).find(|page| !self.cache.is_present(file, *page)).unwrap_or(first + around);
        let before = (first..page).rev().take_while(|page| self.cache.is_present(file, *page)).count() as u64;
        let pages = end - page;
        self.event(&Event::Mapped { open, by, file, first: page, pages, before, mapped: before + pages });
        end
    }

    fn asked_pages(&self) -> u64 {
        self.asked.iter().map(|(_, pages)| pages).sum()
    }
}

/// Pages of a file in random order (a linear congruential generator of full period over a power of two).
fn scattered(file_pages: u64) -> impl Iterator<Item = Page> {
    assert!(file_pages.is_power_of_two());
    std::iter::successors(Some(12_345 % file_pages), move |page| Some((page * 1_664_525 + 1_013_904_223) % file_pages))
}

#[test]
fn random_reads_of_a_file_beyond_the_budget_get_only_requested_pages() {
    let mut reader = Reader::new(SSD, 1 << 24);
    scattered(1 << 24).take(1000).for_each(|page| reader.read(page, 1));
    assert!((1000..1020).contains(&reader.asked_pages()), "{}", reader.asked_pages());
}

#[test]
fn random_reads_of_a_file_within_the_budget_fetch_it_during_waits() {
    let file_pages = 1 << 14;
    let mut reader = Reader::new(SSD, file_pages);
    scattered(file_pages).take(file_pages as usize).for_each(|page| reader.read(page, 1));
    // As many misses as accesses fit into the time of transferring the file.
    let least = file_pages / SSD.pages_per_access();
    assert!(reader.misses < least, "{} misses, {least} accesses' worth", reader.misses);
}

#[test]
fn serial_disk_reads_groups_around_misses() {
    let disk = DeviceDescription {
        access_ns: 12_000_000,
        bandwidth_bytes_per_s: 150e6,
        parallelism: 1,
        request_ns: 50_000,
        ..DeviceDescription::WU_2010
    };
    let (file_pages, group) = (1 << 14, disk.pages_per_access());
    // The transfer takes 37 accesses. No useless page is read before an eighth of them.
    let worth = file_pages / group;
    let mut reader = Reader::new(disk, file_pages);
    let mut places = scattered(file_pages);
    places.by_ref().take(worth as usize / 8).for_each(|page| reader.read(page, 1));
    assert_eq!(reader.asked_pages(), reader.misses);
    for page in places.take(file_pages as usize) {
        reader.read(page, 1);
        // At most half of the disk's time is wasted.
        assert!(reader.asked_pages() <= reader.misses * (group + 1));
    }
    // Each group is missed once, in addition to the misses before reading begins.
    assert!(reader.misses <= worth + 1 + worth / 8, "{}", reader.misses);
}

/// Regression: each time the policy read as much as the disk transfers in the time of an access, and the reader used none of it.
#[test]
fn files_read_only_at_their_first_pages_are_detected() {
    let disk = DeviceDescription {
        access_ns: 12_000_000,
        bandwidth_bytes_per_s: 150e6,
        parallelism: 1,
        request_ns: 50_000,
        ..DeviceDescription::WU_2010
    };
    let mut reader = Reader::new(disk, 1 << 14);
    let asked: Vec<u64> = (0..6)
        .map(|_| {
            (reader.cache, reader.asked) = (Cache::new(1 << 14, 32), vec![]);
            reader.event(&Event::Opened { open: OpenId(0), file: FileId(0) });
            reader.read(0, 4);
            reader.asked_pages()
        })
        .collect();
    let worth = disk.pages_per_access() + 4;
    assert_eq!(asked, [worth, worth, worth, 20, 20, 20]);
}

/// Regression: a stream counted absent pages as ahead, and the reader missed them page by page.
#[test]
fn missed_page_is_not_counted_as_in_flight() {
    let mut reader = Reader::new(SSD, 1 << 14);
    (0..40).for_each(|block| reader.read(4 * block, 4));
    (reader.cache, reader.misses) = (Cache::new(1 << 14, 32), 0);
    (40..60).for_each(|block| reader.read(4 * block, 4));
    assert_eq!(reader.misses, 1);
}

/// Regression: one file took the whole budget, and another file got only its requested pages.
#[test]
fn first_stream_leaves_other_streams_their_share() {
    let parameters = Parameters { device: SSD, budget_pages: Some(64), ..Parameters::default() };
    let mut policy = named("ahead").unwrap().build(&parameters).unwrap();
    let mut ahead_of = |file: u32, blocks: u64| {
        let (open, file) = (OpenId(file), FileId(file));
        let mut cache = Cache::new(1 << 14, 32);
        let mut requests = Requests::default();
        policy.event(&Event::Opened { open, file }, &cache, &mut requests);
        for page in (0..blocks).map(|block| 4 * block) {
            policy.access(&Access { open, file, ..Access::read(page, 4, cache.found(page)) }, &cache, &mut requests);
            requests.take().iter().for_each(|request| cache.fill(request));
            let waited = Event::Waited { open, file, page, wait_ns: SSD.access_ns };
            policy.event(&waited, &cache, &mut requests);
        }
        (4 * blocks..1 << 14).take_while(|page| cache.is_present(file, *page)).count()
    };
    assert!(ahead_of(0, 20) > 48);
    assert!((24..=32).contains(&ahead_of(1, 20)));
}

#[test]
fn a_small_mapped_file_is_read_whole_at_its_first_fault() {
    let mut reader = Reader::new(SSD, SSD.pages_per_access());
    reader.fault(5);
    (0..SSD.pages_per_access()).for_each(|page| reader.fault(page));
    assert_eq!(reader.misses, 1);
}

/// Regression: no page was read ahead before the fourth miss, although the disk transfers the file in the time of one
/// miss.
#[test]
fn small_file_costs_one_wait() {
    let mut reader = Reader::new(SSD, SSD.pages_per_access());
    [7, 2, 9, 0, 5, 11].into_iter().for_each(|page| reader.read(page, 1));
    assert_eq!(reader.misses, 2);
}

#[test]
fn first_faults_of_a_file_within_the_budget_are_read_around() {
    for (file_pages, fits) in [(1 << 14, true), (1 << 24, false)] {
        let mut reader = Reader::new(SSD, file_pages);
        reader.fault(1000);
        reader.fault(1003);
        reader.fault(996);
        assert_eq!(reader.misses == 1, fits, "{} misses", reader.misses);
    }
}

/// Regression: pages of a run that were evicted, or had never arrived, were each missed and fetched alone.
#[test]
fn missing_pages_of_a_run_are_fetched_at_once() {
    let mut reader = Reader::new(SSD, 1 << 24);
    for block in scattered(1 << 20).take(20) {
        (0..8).for_each(|page| reader.fault(16 * block + page));
    }
    let block = 1 << 23;
    reader.fault(block);
    (1..8).for_each(|page| reader.cache.evict(block + page));
    let before = reader.misses;
    (1..8).for_each(|page| reader.fault(block + page));
    assert_eq!(reader.misses - before, 1);
}

/// Regression: the distance grew only after the wait, so the additional pages were requested one access time too late.
#[test]
fn distance_grows_before_the_reader_waits() {
    let asked_at_third = |locked: bool| {
        let mut reader = Reader::new(SSD, 1 << 14);
        (0..2).for_each(|read| reader.read(4 * read, 4));
        let mut requests = Requests::default();
        let folio = Folio { first: 8, ..Folio::default() };
        let found =
            if locked { Found::Locked { marked: false, folio } } else { Found::Present { marked: false, folio } };
        reader.policy.access(&Access::read(8, 4, found), &reader.cache, &mut requests);
        requests.take().iter().map(|request| request.pages).sum::<u64>()
    };
    assert!(asked_at_third(true) > asked_at_third(false), "{} {}", asked_at_third(true), asked_at_third(false));
}

#[test]
fn a_small_file_is_read_whole_from_its_first_page_on() {
    let mut reader = Reader::new(SSD, SSD.pages_per_access());
    reader.read(0, 1);
    assert_eq!((reader.asked_pages(), reader.misses), (SSD.pages_per_access(), 1));
    let mut reader = Reader::new(SSD, SSD.pages_per_access());
    reader.read(5, 1);
    assert_eq!(reader.asked_pages(), 1);
}

/// Regression: readers that went backwards in turn took each other's streams.
#[test]
fn readers_that_begin_near_each_other_keep_separate_steps() {
    for apart in [64, 4096] {
        let mut reader = Reader::new(SSD, 1 << 16);
        for block in 0..15 {
            for stream in 1..=4 {
                reader.read(stream * apart - 4 * (block + 1), 4);
            }
        }
        // Three accesses each until the pattern is confirmed.
        assert!(reader.misses <= 4 * 4, "{apart}: {} misses", reader.misses);
    }
}

#[test]
fn gaps_are_read_if_a_request_costs_more() {
    let rationed = DeviceDescription { request_ns: 333_000, ..SSD };
    for (device, bridges) in [(SSD, false), (rationed, true)] {
        let mut reader = Reader::new(device, 1 << 14);
        (0..200).for_each(|record| reader.read(5 * record + 1, 3));
        let contiguous = reader.asked.iter().any(|(_, pages)| *pages > 3);
        assert_eq!(contiguous, bridges);
        assert!(reader.misses < 10, "{}", reader.misses);
    }
}

/// Regression: each of the four pages of every block was missed.
#[test]
fn blocks_of_several_faults_are_steps() {
    let mut reader = Reader::new(SSD, 1 << 14);
    for block in (0..500).rev() {
        (0..4).for_each(|page| reader.fault(4 * block + page));
    }
    assert!(reader.misses <= 12, "{}", reader.misses);
}

/// Regression: if gaps are read, the pages that a fault mapped around its page still counted as unread, and many pages
/// were never requested.
#[test]
fn mapped_records_with_gaps_are_read_completely() {
    let rationed = DeviceDescription { request_ns: 333_000, ..SSD };
    let mut reader = Reader::new(rationed, 1 << 14);
    let mut mapped = 0;
    for page in (0..8000).filter(|page| page % 5 != 4) {
        if page >= mapped {
            mapped = reader.fault_around(page, 16);
        }
    }
    assert!(reader.misses < 20, "{}", reader.misses);
}

#[test]
fn usual_run_length_is_read_at_its_first_page() {
    let mut reader = Reader::new(SSD, 1 << 24);
    for block in scattered(1 << 20).take(200) {
        (0..8).for_each(|page| reader.fault(16 * block + page));
    }
    assert!(reader.misses < 300, "{} misses of 1600", reader.misses);
    assert!(reader.asked_pages() < 1800, "{}", reader.asked_pages());
}

/// Gaps are read only if the disk transfers them in less time than the reader would wait for each record. Regression:
/// useless read-ahead made the waits longer. These waits counted as the records' waits, so read-ahead continued.
#[test]
fn gaps_of_a_skipping_reader_are_read_if_that_is_faster() {
    let gaps = [3, 12, 7, 1, 9, 4, 14, 2, 11, 6];
    let fast = DeviceDescription { bandwidth_bytes_per_s: 3e9, ..SSD };
    for (device, through) in [(SSD, false), (fast, true)] {
        let mut reader = Reader::new(device, 1 << 16);
        let mut page = 100;
        for record in 0..600 {
            reader.read(page, 8);
            page += 8 + gaps[(record * 7 + record / 10) % gaps.len()];
        }
        assert_eq!(reader.misses < 60, through, "{} misses", reader.misses);
    }
}

#[test]
fn abandoned_patterns_raise_the_start_threshold() {
    let mut reader = Reader::new(SSD, 1 << 24);
    for place in scattered(1 << 14).take(1000) {
        (0..2).for_each(|page| reader.read(1024 * place + 1 + page, 1));
    }
    // Two pages each, and few of the pages after them.
    assert!(reader.asked_pages() < 2300, "{}", reader.asked_pages());
}

#[test]
fn the_budget_holds_over_all_files() {
    let parameters = Parameters { device: SSD, budget_pages: Some(100), ..Parameters::default() };
    let mut policy = named("ahead").unwrap().build(&parameters).unwrap();
    let cache = Cache::new(1 << 14, 32);
    let mut requests = Requests::default();
    for file in 0..50 {
        let access = Access::read(0, 4, Found::Absent);
        policy.access(&Access { file: FileId(file), open: OpenId(file), ..access }, &cache, &mut requests);
    }
    let read: u64 = 50 * 4;
    let asked: u64 = requests.take().iter().map(|request| request.pages).sum();
    // A stream may have one access ahead, whatever the other streams have.
    assert!((read + 90..=read + 100 + 50 * 4).contains(&asked), "{asked}");
}

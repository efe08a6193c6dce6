//! Regions of real files: what becomes resident without an access, and what does not.

use ahead_read::advise::{Advised, Behaviour, advise, advise_raw};
use ahead_sys::advice;
use ahead_sys::mapping::Mapping;
use ahead_tests::rig::cold::cold_file;
use std::ops::Range;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Far longer than any request takes: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mapped file whose pages are filled with their number, none of them resident.
struct Cold {
    _file: tempfile::NamedTempFile,
    mapping: Mapping,
    pages: usize,
}

impl Cold {
    /// `None`, with a message, if the file system does not evict.
    fn new(pages: usize) -> Option<Cold> {
        if ahead_sys::machine::page_size() as usize != PAGE {
            eprintln!("skipped: pages of this machine have not 4 KiB");
            return None;
        }
        let content: Vec<u8> = (0..pages).flat_map(|page| [page as u8; PAGE]).collect();
        let file = cold_file(&content)?;
        let mapping = Mapping::new(file.as_file(), pages * PAGE).unwrap();
        Some(Cold { _file: file, mapping, pages })
    }

    fn advise(&self, behaviour: Behaviour, pages: usize) -> Advised {
        let addresses = self.mapping.addresses();
        advise_raw(addresses.start, addresses.len(), behaviour, pages).unwrap()
    }

    fn absent(&self, pages: Range<usize>) -> usize {
        let start = self.mapping.addresses().start;
        let absent = advice::absent(&(start + pages.start * PAGE..start + pages.end * PAGE)).unwrap();
        absent.iter().map(|range| range.len() / PAGE).sum()
    }

    fn wait_until_resident(&self, pages: Range<usize>, advised: &Advised) {
        let began = Instant::now();
        while self.absent(pages.clone()) > 0 {
            assert!(began.elapsed() < PATIENCE, "pages {pages:?} are absent: {:?}", advised.counters());
            std::thread::yield_now();
        }
    }

    /// Reads pages and checks their content.
    fn read(&self, pages: impl IntoIterator<Item = usize>) {
        for page in pages {
            assert_eq!(self.mapping.touch(page * PAGE + 7), Some(page as u8), "page {page}");
        }
    }

    /// The kernel's advice is `MADV_RANDOM`.
    fn is_random(&self) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let prefix = format!("{:x}-", self.mapping.addresses().start);
        let flags =
            smaps.lines().skip_while(|line| !line.starts_with(&prefix)).find(|line| line.starts_with("VmFlags:"));
        flags.unwrap().split_whitespace().any(|flag| flag == "rr")
    }
}

#[test]
fn reported_progress_reads_this_group_and_the_next_and_no_more() {
    let Some(file) = Cold::new(512) else { return };
    let advised = file.advise(Behaviour::Sequential, 16);
    file.wait_until_resident(0..32, &advised);
    for group in [1, 2, 9, 31] {
        advised.progress(group * 16 * PAGE);
        file.wait_until_resident(group * 16..(group * 16 + 32).min(512), &advised);
    }
    assert_eq!(file.absent(64..144), 80, "groups that the reader has skipped");
    assert_eq!(file.absent(176..496), 320);
    assert_eq!(advised.counters().groups, 7);
    file.read(0..512);
}

#[test]
fn reported_progress_backward() {
    let Some(file) = Cold::new(512) else { return };
    let advised = file.advise(Behaviour::Backward, 16);
    file.wait_until_resident(480..512, &advised);
    advised.progress(479 * PAGE);
    file.wait_until_resident(448..480, &advised);
    assert_eq!(file.absent(0..448), 448);
    file.read((0..512).rev());
}

#[test]
fn reported_progress_on_a_stride_in_both_directions() {
    let Some(file) = Cold::new(1024) else { return };
    for (bytes, first, records) in
        [(64 * PAGE as i64, 3, [3, 67, 131, 195]), (-64 * PAGE as i64, 1000, [1000, 936, 872, 808])]
    {
        let advised = file.advise(Behaviour::Stride { bytes }, 2);
        advised.progress(first * PAGE + 5);
        for page in records {
            file.wait_until_resident(page..page + 1, &advised);
            assert_eq!(file.absent(page - 3..page + 4), 6, "only the record is read");
        }
        assert_eq!(advised.counters().groups, 2);
    }
}

#[test]
fn mapped_pages_show_the_reader() {
    let Some(file) = Cold::new(2048) else { return };
    let advised = file.advise(Behaviour::Sequential, 64);
    file.wait_until_resident(0..128, &advised);
    for group in 0..8 {
        file.read(group * 64..group * 64 + 64);
        file.wait_until_resident(group * 64 + 128..group * 64 + 192, &advised);
    }
    assert_eq!(file.absent(704..2048), 1344, "far ahead of the reader");
}

#[test]
fn mapped_pages_show_a_reader_that_goes_backward() {
    let Some(file) = Cold::new(2048) else { return };
    let advised = file.advise(Behaviour::Backward, 64);
    file.wait_until_resident(2048 - 128..2048, &advised);
    file.read((1984..2048).rev());
    file.wait_until_resident(2048 - 192..2048 - 128, &advised);
    assert_eq!(file.absent(0..1792), 1792);
}

#[test]
fn mapped_pages_show_a_stride_its_origin_and_the_length_of_its_records() {
    let Some(file) = Cold::new(4096) else { return };
    let advised = file.advise(Behaviour::Stride { bytes: 32 * PAGE as i64 }, 8);
    let record = |number: usize| 5 + 32 * number..9 + 32 * number;
    for number in 0..64 {
        file.read(record(number));
        file.wait_until_resident(record(number + 1).start..record(number + 1).start + 1, &advised);
    }
    file.wait_until_resident(record(65), &advised);
    assert!(file.absent(0..4096) >= 4096 - 66 * 4 - 16 * 4, "the pages between the records stay on the disk");
}

#[test]
fn a_reader_that_jumps_is_found_again() {
    let Some(file) = Cold::new(8192) else { return };
    let advised = file.advise(Behaviour::Sequential, 16);
    file.read(0..20);
    file.wait_until_resident(20..48, &advised);
    for start in [5000, 700, 8000] {
        // The first access elsewhere may fall into a survey of the page table: the next ones do not.
        let began = Instant::now();
        let mut page = start;
        while file.absent(page + 1..page + 16) > 0 {
            assert!(began.elapsed() < PATIENCE, "{:?}", advised.counters());
            if page < start + 150 {
                page += 1;
                file.read([page]);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn adaptive_read_ahead_delivers_every_page() {
    let Some(file) = Cold::new(8192) else { return };
    let advised = file.advise(Behaviour::Sequential, 0);
    file.read(0..8192);
    let counters = advised.counters();
    assert!(counters.groups > 0 && counters.looks > 0 && counters.requested_bytes > 0, "{counters:?}");
    file.read(0..8192);
    advised.stop();
    assert!(!file.is_random());
}

#[test]
fn will_need_reads_all_in_the_background() {
    let Some(file) = Cold::new(4096 + 3) else { return };
    for pages in [0, 7] {
        let advised = file.advise(Behaviour::WillNeed, pages);
        file.wait_until_resident(0..file.pages, &advised);
        assert!(!file.is_random());
    }
    file.read(0..file.pages);
}

#[test]
fn dont_need_and_normal_keep_the_content() {
    let Some(file) = Cold::new(64) else { return };
    file.read(0..64);
    for behaviour in [Behaviour::DontNeed, Behaviour::Normal] {
        file.advise(behaviour, 0).progress(5);
        assert!(!file.is_random());
        file.read(0..64);
    }
}

#[test]
fn random_reads_only_the_touched_pages() {
    let Some(file) = Cold::new(256) else { return };
    let advised = file.advise(Behaviour::Random, 0);
    assert!(file.is_random());
    file.read([100, 3]);
    assert_eq!(file.absent(0..256), 254);
    drop(advised);
    assert!(!file.is_random());
}

#[test]
fn two_values_for_the_same_pages_both_act_until_each_is_dropped() {
    let Some(file) = Cold::new(512) else { return };
    let first = file.advise(Behaviour::Sequential, 16);
    let second = file.advise(Behaviour::Backward, 16);
    file.wait_until_resident(0..32, &first);
    file.wait_until_resident(480..512, &second);
    drop(first);
    assert!(file.is_random(), "the second value keeps its advice");
    second.progress(460 * PAGE);
    file.wait_until_resident(448..461, &second);
    drop(second);
    assert!(!file.is_random());
}

#[test]
fn regions_do_not_disturb_each_other() {
    let (Some(first), Some(second)) = (Cold::new(512), Cold::new(512)) else { return };
    let (ahead, back) = (first.advise(Behaviour::Sequential, 16), second.advise(Behaviour::Backward, 16));
    ahead.progress(100 * PAGE);
    first.wait_until_resident(100..128, &ahead);
    assert_eq!(second.absent(0..480), 480);
    drop(ahead);
    back.progress(100 * PAGE);
    second.wait_until_resident(80..101, &back);
}

#[test]
fn part_of_a_page_is_a_region() {
    let Some(file) = Cold::new(512) else { return };
    let start = file.mapping.addresses().start;
    let advised = advise_raw(start + 100 * PAGE + 5, 20 * PAGE, Behaviour::Sequential, 4).unwrap();
    file.wait_until_resident(100..108, &advised);
    advised.progress(4 * PAGE - 4);
    file.wait_until_resident(104..112, &advised);
    advised.progress(usize::MAX);
    file.wait_until_resident(120..121, &advised);
    assert_eq!(file.absent(0..100) + file.absent(121..512), 491);
}

#[test]
fn a_value_may_be_dropped_at_any_time() {
    let Some(file) = Cold::new(2048) else { return };
    let behaviours = [
        Behaviour::Sequential,
        Behaviour::WillNeed,
        Behaviour::Backward,
        Behaviour::Random,
        Behaviour::Stride { bytes: -3 * PAGE as i64 },
    ];
    for round in 0..200 {
        let advised = file.advise(behaviours[round % 5], [0, 1, 16, usize::MAX][round % 4]);
        for step in 0..round % 8 {
            if round % 3 == 0 {
                advised.progress((round * 8 + step) * PAGE);
            }
            file.read([(round * 8 + step) % 2048]);
        }
    }
    assert!(!file.is_random());
    file.read(0..2048);
}

#[test]
fn what_cannot_be_read_ahead_is_refused() {
    let memory = vec![1u8; 64 * PAGE];
    let refused = |result: std::io::Result<Advised>, message: &str| {
        let error = result.expect_err("it is refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    refused(advise(&memory, Behaviour::Sequential, 0), "memory without a file");
    refused(advise(&memory, Behaviour::DontNeed, 0), "memory without a file");
    refused(advise(&memory, Behaviour::Stride { bytes: 0 }, 0), "the stride is 0");
    refused(advise_raw(PAGE, usize::MAX - 1, Behaviour::Sequential, 0), "beyond the address space");
    refused(advise_raw(0, PAGE, Behaviour::Sequential, 0), "not mapped");
    assert_eq!(
        advise(&memory[..0], Behaviour::Sequential, 0).unwrap().counters(),
        ahead_read::advise::Counters::default()
    );
}

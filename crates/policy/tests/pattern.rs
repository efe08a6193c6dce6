//! Streams of accesses whose pattern is known, at random places and of random lengths, as each user of the detector sees them: every read in
//! bytes, the kernel's decisions, decided pages alone, and every call to a file.

use ahead_policy::pattern::{Class, Detector, Pattern, Sample, Steps};
use ahead_policy::steering::{Decision, Machine, OpenFile, Readahead, Steering};
use ahead_policy::testing::Cache;
use ahead_policy::{Access, DeviceDescription, Found, PAGE_BYTES, Page, Parameters, Requests, named};
use proptest::prelude::*;

/// So long that accesses in no order are never near each other, and that no part of it is worth a read.
const FILE_PAGES: u64 = 1 << 40;

#[derive(Clone, Debug)]
struct Stream {
    truth: Class,
    step: i64,
    /// The first pages of the accesses, and the length of each.
    pages: Vec<Page>,
    length: u64,
    file_pages: u64,
    readers: usize,
}

/// One reader with equal steps.
fn alone() -> impl Strategy<Value = Stream> {
    let truths = [Class::Sequential, Class::Backward, Class::Stride, Class::OnceOnly].to_vec();
    let place = (1..17u64, 8..12u64, 1u64 << 20..1 << 39);
    (prop::sample::select(truths), 3..200i64, any::<bool>(), place).prop_map(
        |(truth, gap, down, (length, count, at))| {
            let along = length as i64;
            let step = match truth {
                Class::Backward => -along,
                Class::Stride if down => -along - gap,
                Class::Stride => along + gap,
                _ => along,
            };
            let (first, file_pages) = if truth == Class::OnceOnly { (0, count * length) } else { (at, FILE_PAGES) };
            let steps = Steps { step, ..Steps::begin(first, length) };
            let pages = (0..count).filter_map(|number| steps.nth(number)).collect();
            Stream { truth, step, pages, length, file_pages, readers: 1 }
        },
    )
}

/// Two or three sequential readers in turn.
fn interleaved() -> impl Strategy<Value = Stream> {
    (1..24u64, 2..4u64, 6..9u64).prop_map(|(length, readers, rounds)| {
        let pages = (0..rounds * readers).map(|n| ((1 + n % readers) << 30) + n / readers * length).collect();
        let (truth, file_pages, readers) = (Class::Interleaved, FILE_PAGES, readers as usize);
        Stream { truth, step: 0, pages, length, file_pages, readers }
    })
}

/// Places far from each other, in no order, neither all upwards nor all downwards.
fn random() -> impl Strategy<Value = Stream> {
    let order = Just((1..8u64).collect::<Vec<_>>()).prop_shuffle();
    let order = order.prop_filter("an order", |order| !order.is_sorted() && !order.iter().rev().is_sorted());
    let places = (order, prop::collection::vec(0..1u64 << 20, 7));
    (places, 1..24u64, any::<bool>()).prop_map(|((order, beside), length, is_mapped)| {
        let pages = order.iter().zip(beside).map(|(slot, beside)| (slot << 36) + beside).collect();
        let truth = if is_mapped { Class::RandomMapped } else { Class::RandomRead };
        Stream { truth, step: 0, pages, length, file_pages: FILE_PAGES, readers: 1 }
    })
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![3 => alone(), 1 => interleaved(), 1 => random()]
}

impl Stream {
    /// What a detector finds that sees every read of one reader.
    fn by_reads(&self) -> Pattern {
        let mut detector = Detector::default();
        for page in &self.pages {
            detector.read(page * PAGE_BYTES..(page + self.length) * PAGE_BYTES);
        }
        detector.pattern()
    }

    /// What decided pages alone show: all accesses miss, or, if the kernel's windows fit, all but the first reach a marker.
    fn by_decided_pages(&self) -> Class {
        let count = self.pages.len() as u64;
        let has_windows = matches!(self.truth, Class::Sequential | Class::OnceOnly);
        let (misses, markers) = if has_windows { (1, count - 1) } else { (count, 0) };
        let faults = if self.truth == Class::RandomMapped { self.pages.len() } else { 0 };
        let (issued_pages, file_pages) = (count * self.length, self.file_pages);
        Sample { pages: &self.pages, faults, misses, markers, issued_pages, file_pages }.class()
    }

    /// What the kernel's decisions show.
    fn by_decisions(&self) -> Class {
        let (mut steering, mut file) = (Steering::new(&Default::default()), OpenFile::new(32));
        for page in &self.pages {
            let (page, wanted, file_pages) = (*page, self.length, self.file_pages);
            let before = Readahead { window_pages: 32, ..Readahead::default() };
            let decision = Decision { page, wanted, file_pages, before, disk_window_pages: 32, ..Decision::default() };
            steering.decide(&mut file, &decision, &Machine::default());
        }
        file.class()
    }

    /// Whether the policy `ahead` had requested the last access of each reader before, and the pages that it requested in vain.
    fn by_calls(&self) -> (bool, u64) {
        let parameters = Parameters { device: DeviceDescription::FLASH, ..Parameters::default() };
        let mut policy = named("ahead").unwrap().build(&parameters).unwrap();
        let (mut cache, mut requests, mut asked) = (Cache::new(self.file_pages, 32), Requests::default(), 0);
        let mut was_absent = Vec::new();
        for page in &self.pages {
            let found = cache.found(*page);
            was_absent.push(found == Found::Absent);
            policy.access(&Access::read(*page, self.length, found), &cache, &mut requests);
            for request in requests.take() {
                asked += request.pages;
                cache.fill(&request);
            }
        }
        let last = &was_absent[was_absent.len() - self.readers..];
        (!last.contains(&true), asked - asked.min(self.pages.len() as u64 * self.length))
    }
}

proptest! {
    #[test]
    fn every_user_finds_the_pattern(stream in stream()) {
        let expected = match stream.truth {
            Class::Sequential | Class::OnceOnly => Some(Pattern::Sequential),
            Class::Backward => Some(Pattern::Backward),
            Class::Stride => Some(Pattern::Stride(stream.step * PAGE_BYTES as i64)),
            // One reader never goes in turn.
            Class::Interleaved => None,
            _ => Some(Pattern::Random),
        };
        prop_assert_eq!(expected.unwrap_or(stream.by_reads()), stream.by_reads());
        // Without the lengths, steps downwards with gaps are those without.
        let decided = if stream.step < 0 { Class::Backward } else { stream.truth };
        prop_assert_eq!(stream.by_decided_pages(), decided);
        let is_random = matches!(stream.truth, Class::RandomRead | Class::RandomMapped);
        prop_assert_eq!(stream.by_decisions(), if is_random { Class::RandomRead } else { stream.truth });
        let (is_predicted, in_vain) = stream.by_calls();
        prop_assert!(is_predicted != is_random && (in_vain == 0 || !is_random), "{} {}", is_predicted, in_vain);
    }
}

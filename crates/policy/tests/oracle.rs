//! `oracle` searches each future access a few times at most, and searches lost pages again.

use ahead_policy::testing::Cache;
use ahead_policy::{
    Access, Event, FileId, Folio, Found, Limits, Memory, Page, Parameters, Policy, Queue, Request, Requests, View,
    named,
};
use std::cell::Cell;

const FILE: FileId = FileId(0);

/// A cache that counts the lookups of pages: every search makes one at each step.
struct Counting {
    cache: Cache,
    steps: Cell<u64>,
}

impl View for Counting {
    fn now_ns(&self) -> u64 {
        self.cache.now_ns()
    }

    fn file_pages(&self, file: FileId) -> u64 {
        self.cache.file_pages(file)
    }

    fn is_present(&self, file: FileId, page: Page) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.cache.is_present(file, page)
    }

    fn is_locked(&self, file: FileId, page: Page) -> bool {
        self.cache.is_locked(file, page)
    }

    fn limits(&self, file: FileId) -> Limits {
        self.cache.limits(file)
    }

    fn memory(&self) -> Memory {
        self.cache.memory()
    }

    fn queue(&self, file: FileId) -> Queue {
        self.cache.queue(file)
    }
}

fn oracle(future: impl Iterator<Item = Page>) -> Box<dyn Policy> {
    let future = Some(future.map(|page| (FILE, page)).collect());
    named("oracle").unwrap().build(&Parameters { future, ..Parameters::default() }).unwrap()
}

/// Reads a file of `pages` cached pages `passes` times; returns the steps per access.
fn steps_for_each_access(pages: u64, passes: u64, free_pages: u64) -> f64 {
    let mut cache = Cache::new(pages, 32);
    cache.memory = Memory { free_pages, ..Memory::default() };
    (0..pages).for_each(|page| cache.hold(Folio::single(page)));
    let view = Counting { cache, steps: Cell::new(0) };
    let accesses = || (0..passes).flat_map(|_| 0..pages);
    let (mut policy, mut requests) = (oracle(accesses()), Requests::default());
    for page in accesses() {
        let found = Found::Present { marked: false, folio: Folio::single(page) };
        policy.access(&Access::read(page, 1, found), &view, &mut requests);
        assert!(requests.take().is_empty());
    }
    view.steps.get() as f64 / (pages * passes) as f64
}

/// Regression: at each access the oracle searched to the limit of memory, and found no absent page.
#[test]
fn cached_pages_are_not_searched_again_at_each_access() {
    for (pages, passes, free_pages) in [(4096, 4, 1 << 18), (16_384, 4, 1 << 18), (16_384, 4, 256), (64, 400, 64)] {
        let steps = steps_for_each_access(pages, passes, free_pages);
        assert!(steps <= 2.0, "{pages} pages, {passes} passes, {free_pages} free: {steps} for each access");
    }
}

/// A page that was evicted before its use is requested again before the reader misses it.
#[test]
fn page_evicted_before_its_use_is_requested_again() {
    let mut cache = Cache::new(1000, 32);
    let (mut policy, mut requests) = (oracle(0..1000), Requests::default());
    policy.access(&Access::read(0, 1, Found::Absent), &cache, &mut requests);
    let asked = |cache: &mut Cache, requests: &mut Requests| {
        let asked: Vec<Request> = requests.take();
        asked.iter().for_each(|request| cache.fill(request));
        asked.iter().any(|request| (request.first..request.first + request.pages).contains(&500))
    };
    let mut was_asked = asked(&mut cache, &mut requests);
    for page in 1..400 {
        let found = cache.found(page);
        policy.access(&Access::read(page, 1, found), &cache, &mut requests);
        was_asked |= asked(&mut cache, &mut requests);
    }
    assert!(was_asked);
    cache.evict(500);
    policy.event(&Event::Evicted { file: FILE, page: 500, unused: true }, &cache, &mut requests);
    let found = cache.found(400);
    policy.access(&Access::read(400, 1, found), &cache, &mut requests);
    assert!(asked(&mut cache, &mut requests));
}

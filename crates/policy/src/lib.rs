//! Read-ahead policies, which decide what to read next: those of Linux since 1.3, those of the papers, and `ahead`.
//!
//! A policy is a pure state machine. In: an access to a page (or an event: a wait, an arrival, an eviction), the time, and a
//! read-only view of the page cache. Out: requests for pages, with marks; an access to a marked page calls the policy again. The
//! simulator and the live engine supply the view and use the same policy object.
//!
//! ```text
//!                 Access { page, found: absent | locked | present, marked? }      Event { waited, arrived, evicted … }
//!                                   │                                                  │
//!                                   ▼                                                  ▼
//!     View ──────────────▶  Policy::access                                      Policy::event
//!     (what is cached,              │                                                  │
//!      memory, queue, time)         └───────────────▶ Requests ◀───────────────────────┘
//!                                                     pages, folio order, mark, what to do when the queue is full
//! ```
//!
//! The driver of a policy asks it which accesses and events it needs, and calls it for these. The driver executes the requests in
//! their order, except for pages that are cached already. If the accessed page is still absent afterwards, the driver reads it
//! alone.
//!
//! A policy must never do I/O, read a clock, start a thread or log. It must never request a page beyond the file, or
//! panic on any sequence of accesses.
//!
//! ```
//! use ahead_policy::{Access, Found, Policy, Requests, named, testing::Cache};
//!
//! // Linux 6.18 with the classic window of 128 KiB (32 pages), a file of 1000 pages, nothing cached.
//! let mut policy = named("linux-6.18").unwrap().build(&Default::default()).unwrap();
//! let mut cache = Cache::new(1000, 32);
//! let mut requests = Requests::default();
//!
//! // A read of 64 KiB at the file's beginning misses.
//! policy.access(&Access::read(0, 16, Found::Absent), &cache, &mut requests);
//! let request = requests.take().remove(0);
//! assert_eq!((request.first, request.pages, request.mark), (0, 32, Some(16)));
//!
//! // The reader reaches the mark: the next window is requested while half of the first one is unread.
//! cache.fill(&request);
//! policy.access(&Access::read(16, 16, cache.found(16)), &cache, &mut requests);
//! let next = requests.take().remove(0);
//! assert_eq!((next.first, next.pages, next.mark), (32, 32, Some(32)));
//! ```
//!
//! # With another cache
//!
//! A policy works with any cache of pages: a buffer pool, a FUSE file system, a reader over a network. The cache implements
//! [`View`], reports every call and wait, and reads the requested pages. [`policies::ahead`] needs a description of the storage
//! ([`DeviceDescription`]), and the maximum number of unread pages ([`Parameters::budget_pages`]).
//!
//! ```
//! use ahead_policy::{
//!     Access, DeviceDescription, Event, FileId, Found, Limits, Memory, OpenId, Page, Parameters, Queue, Requests, View,
//!     named,
//! };
//! use std::collections::BTreeSet;
//!
//! /// Cached pages of 4 KiB of an object in a store. None is ever in flight.
//! struct Pool(BTreeSet<Page>);
//!
//! impl View for Pool {
//!     fn now_ns(&self) -> u64 { 0 }
//!     fn file_pages(&self, _: FileId) -> u64 { 10_000 }
//!     fn is_present(&self, _: FileId, page: Page) -> bool { self.0.contains(&page) }
//!     fn is_locked(&self, _: FileId, _: Page) -> bool { false }
//!     fn limits(&self, _: FileId) -> Limits { Limits { window_pages: 32, request_pages: 2048, folio_order: 0 } }
//!     fn memory(&self) -> Memory { Memory { free_pages: 4096, ..Memory::default() } }
//!     fn queue(&self, _: FileId) -> Queue { Queue { limit: 64, requests: 0 } }
//! }
//!
//! // A store 30 ms away, 100 MB/s, 16 requests at a time.
//! let device =
//!     DeviceDescription { access_ns: 30_000_000, bandwidth_bytes_per_s: 100e6, parallelism: 16, request_ns: 2_000_000, ..DeviceDescription::WU_2010 };
//! let parameters = Parameters { device, budget_pages: Some(2048), ..Parameters::default() };
//! let mut policy = named("ahead").unwrap().build(&parameters).unwrap();
//! let (mut pool, mut requests, mut misses) = (Pool(BTreeSet::new()), Requests::default(), 0);
//! let (file, open) = (FileId(7), OpenId(0));
//! policy.event(&Event::Opened { open, file }, &pool, &mut requests);
//!
//! // A thousand records of 16 KiB, from the last one to the first.
//! for page in (0..1000).rev().map(|record| 4 * record) {
//!     let missing = !pool.is_present(file, page);
//!     let found = if missing { Found::Absent } else { Found::Present { marked: false, folio: Default::default() } };
//!     policy.access(&Access { file, open, ..Access::read(page, 4, found) }, &pool, &mut requests);
//!     for request in requests.take() {
//!         pool.0.extend(request.first..request.first + request.pages);
//!     }
//!     if missing {
//!         misses += 1;
//!         policy.event(&Event::Waited { open, file, page, wait_ns: 30_000_000 }, &pool, &mut requests);
//!     }
//! }
//! // Three misses until the pattern is confirmed; then the waits increase the distance sufficiently.
//! assert!(misses <= 5, "{misses}");
//! ```
//!
//! # A new policy
//!
//! Only [`Policy::access`] is required. This example uses a cache in which all requests arrive at once. `Scenario::run_with` of
//! `ahead-sim` runs a policy over a scenario's machine, disk and workloads.
//!
//! ```
//! use ahead_policy::{Access, Found, Policy, Request, Requests, View, testing::Cache};
//!
//! /// Requests a window on each miss, and the next one when half of it is used: the reader then reaches its mark.
//! struct Halves;
//!
//! impl Policy for Halves {
//!     fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
//!         let window = view.limits(access.file).window_pages;
//!         // The missing page itself, or the end of the last window.
//!         let Some(first) = view.next_absent(access.file, access.page, window) else { return };
//!         let pages = window.min(view.file_pages(access.file).saturating_sub(first));
//!         requests.add(Request { first, pages, mark: Some(first + window / 2), ..Request::of(access.file) });
//!     }
//! }
//!
//! // A sequential reader. The policy needs only absent and marked pages.
//! let (mut halves, mut cache, mut requests) = (Halves, Cache::new(100, 32), Requests::default());
//! let mut asked = Vec::new();
//! for page in 0..100 {
//!     let found = cache.found(page);
//!     if found == Found::Absent || found.is_marked() {
//!         halves.access(&Access::read(page, 1, found), &cache, &mut requests);
//!     }
//!     for request in requests.drain() {
//!         cache.fill(&request);
//!         asked.push((page, request.first, request.pages));
//!     }
//! }
//! assert_eq!(asked, [(0, 0, 32), (16, 32, 32), (48, 64, 32), (80, 96, 4)]);
//! ```
//!
//! # Catalogue
//!
//! [`CATALOGUE`] has all policies with their sources. Each file under [`policies`] begins with a description of its algorithm and
//! of uncertain constants. To compare policies over a workload, run them in the simulator (`ahead-sim`).

mod access;
mod catalogue;
pub mod groups;
mod parameters;
pub mod pattern;
pub mod reading;
mod request;
pub mod schedule;
pub mod steering;
mod streams;
pub mod testing;
pub mod traces;
mod view;

pub mod policies;

pub use access::{Access, Advice, By, Call, Event, FileId, Folio, Found, OpenId, PAGE_BYTES, Page, Wants};
pub use ahead_model::DeviceDescription;
pub use catalogue::{Argument, CATALOGUE, Choice, Description, UnknownPolicy, named};
pub use parameters::Parameters;
pub use request::{Request, Requests, Rest, WhenFull, folios};
pub use view::{Limits, Memory, Queue, View};

/// An algorithm that decides what to read ahead. One object serves all open files of a machine.
pub trait Policy: Send {
    /// The accesses and events that the policy receives, in addition to absent and marked pages.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// An access of a program to a page.
    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests);

    /// An event other than an access.
    fn event(&mut self, _event: &Event, _view: &dyn View, _requests: &mut Requests) {}
}

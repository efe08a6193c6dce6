//! What to read next: every read-ahead algorithm of Linux since 1.3, those of the papers, and our own.
//!
//! A policy is a pure state machine. In: an access to a page (or an event: a wait, an arrival, an eviction), the time, and
//! a read-only view of the page cache. Out: requests for pages, and the marks on them that will call the policy again. The
//! simulator and the live engines supply the view and drive the very same object.
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
//! Who drives a policy asks it what it [`Wants`] to hear of, calls it then, carries its requests out in their order, leaving
//! out pages that are cached already, and reads the page that was asked for by itself if it is still absent afterwards.
//!
//! What it must never do: I/O, read a clock, start a thread, log; request a page that is not in the file; panic, whatever
//! accesses it is told of.
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
//! // The reader comes to the mark: the next window, while half of the first one is still unread.
//! cache.fill(&request);
//! policy.access(&Access::read(16, 16, cache.found(16)), &cache, &mut requests);
//! let next = requests.take().remove(0);
//! assert_eq!((next.first, next.pages, next.mark), (32, 32, Some(32)));
//! ```

mod access;
mod catalogue;
mod parameters;
mod request;
mod streams;
pub mod testing;
mod view;

pub mod policies;

pub use access::{Access, Advice, By, Call, Event, FileId, Found, OpenId, PAGE_BYTES, Page, Wants};
pub use catalogue::{CATALOGUE, Choice, Description, UnknownPolicy, named};
pub use parameters::{DeviceTraits, Parameters};
pub use request::{Folio, Request, Requests, Rest, WhenFull, folios};
pub use view::{Limits, Memory, Queue, View};

/// An algorithm that decides what to read ahead. One object serves all open files of a machine.
pub trait Policy: Send {
    /// What it wants to be told besides absent and marked pages.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// A program touches a page.
    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests);

    /// Something else has happened.
    fn event(&mut self, _event: &Event, _view: &dyn View, _requests: &mut Requests) {}
}

//! `advise`: true read-ahead for a mapped file, inside the program that reads it.
//!
//! O'Connor and Tracy (2000) gave Linux 2.2 a system call `advise(addr, length, behaviour, pages)`: the file is divided into groups of
//! `pages` pages, and while the program uses group *g*, the kernel reads group *g*+1, whether or not the program had to wait for a page. Here is
//! the call for today's kernels, unmodified and without privilege.
//!
//! ```text
//!     program   touches pages of the mapping ───▶  ■■■■■■■■■■■■■■■■□□□□□□□□□□□□□□□□
//!                                                          group g │    group g+1
//!     helper    sees which pages are mapped (pagemap),             ╰▶ madvise(MADV_WILLNEED)
//!     thread    or is reported by `progress`
//!     kernel    its own read-ahead is off for the mapping (MADV_RANDOM) until the value is dropped
//! ```
//!
//! # Guarantees, and what is not guaranteed
//!
//! - The program never waits for a request: a helper thread, one for each device, submits it. Its looks take about one per cent of a processor, and
//!   up to three while cached pages are read at several GB/s. The requests themselves take 0.3 ms for 1 MiB that is not cached.
//! - A request that the kernel drops is repeated when the reader enters its group.
//! - With `pages` given, memory for two groups is used. (The kernel maps up to 64 KiB of cached pages around an access, so that a reader seems up to
//!   64 KiB ahead of itself, and the requests are, too.) With 0, the distance begins with 256 KiB, and doubles when the reader waits,
//!   up to 16 MiB.
//! - One region has one reader. Several readers in one mapping get the read-ahead of one of them: advise on a part for each. A reader that
//!   jumps is found again after some milliseconds, by a survey of the page table; with [`Advised::progress`] at once.
//! - Pages that are mapped already show no reader. They are resident, so that read-ahead goes on at the next page that is not.
//! - Waits are seen only in files that the user owns or may write: the kernel does not tell others what is cached. In other files a reader
//!   counts as waiting when it has come to the end of the requests, and cached pages are requested in vain, which costs the helper thread
//!   15 µs for 1 MiB.
//! - Two values for the same pages both act. When one is dropped, the pages that both cover keep the advice of the other.
//! - A region may be unmapped while it is advised on: the read-ahead ends. If the file was truncated, the program gets SIGBUS as ever.
//! - In a child made by fork, the kernel's own read-ahead is on again. The first [`Advised::progress`] in the child starts the read-ahead there.
//!
//! # When the kernel alone is better
//!
//! The kernel reads single pages for `MADV_WILLNEED`, and large folios for its own read-ahead. A sequential reader of a disk with more than 1 GB/s and
//! a window of several MiB (`read_ahead_kb`) is up to twice as fast with `MADV_SEQUENTIAL`. Backward readers and strides get no help from the kernel.
//! When all processors are busy, the helper thread comes late, and each page that it did not request is read by itself.

mod fetcher;
mod follower;
mod pace;
mod region;
mod registry;
mod watch;

use crate::advise::fetcher::Fetcher;
use crate::advise::follower::Follower;
use crate::advise::region::Region;
use crate::advise::registry::{Registry, Task};
use ahead_policy::pattern::{Pattern, Route};
use ahead_sys::advice::{self, KernelAdvice};
use ahead_sys::fork_count::fork_count;
use ahead_sys::machine;
use ahead_sys::maps::{self, Area};
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Part of the available memory that `WillNeed` requests at most: the pages before would be evicted by those behind.
const LARGEST_SHARE: u64 = 2;

/// How the program will access a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Behaviour {
    /// In an unknown order. The kernel's own read-ahead (`MADV_NORMAL`).
    Normal,
    /// From the beginning to the end.
    Sequential,
    /// At random: each access reads its page only (`MADV_RANDOM`).
    Random,
    /// All of it soon: it is requested in the background, up to half of the available memory. The kernel's read-ahead stays on.
    WillNeed,
    /// Not soon: its pages are the first that the kernel reclaims (`MADV_COLD`). Pages of a shared mapping of a regular file are also unmapped
    /// (`MADV_DONTNEED`) by [`advise`], but not by [`advise_raw`]. No data is lost: neither touches what a private mapping has changed.
    DontNeed,
    /// From the end to the beginning.
    Backward,
    /// Records whose beginnings lie `bytes` apart; negative: downwards. The first access is to the first record. A record has one page until
    /// the reader has read more of one. Distances up to a page are [`Behaviour::Sequential`] or [`Behaviour::Backward`].
    Stride {
        /// Distance, bytes; not 0.
        bytes: i64,
    },
}

/// What was done for a region so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Groups that were requested.
    pub groups: u64,
    /// Groups that were cached when they were due.
    pub cached_groups: u64,
    /// Bytes of all requests, repeated ones included. The kernel skips resident pages.
    pub requested_bytes: u64,
    /// Ranges that were requested again, because they were absent when the reader entered their group.
    pub retried: u64,
    /// Waits of the reader for requests, at most one for each group.
    pub waits: u64,
    /// Duration of these waits as far as the helper thread has seen them, microseconds.
    pub waited_us: u64,
    /// Looks of the helper thread at the region.
    pub looks: u64,
    /// How far ahead of the reader requests may end now, bytes.
    pub distance_bytes: u64,
}

/// Read-ahead for a region. Ends when the value is dropped: the kernel's own read-ahead is put back (`MADV_NORMAL`).
#[derive(Debug)]
pub struct Advised {
    arguments: Arguments,
    forks: u32,
    /// `None`: nothing goes on.
    region: Option<Arc<Region>>,
    in_child: OnceLock<Option<Box<Advised>>>,
}

#[derive(Clone, Copy, Debug)]
struct Arguments {
    address: usize,
    length_bytes: usize,
    behaviour: Behaviour,
    pages: usize,
}

/// Read-ahead for a mapped region in this process, until the value is dropped.
///
/// `region` may begin and end within pages: their neighbours in the same pages share the advice. `pages`: size of a group in pages, at most 16,384;
/// 0: adapts. The value does not borrow the region: addresses are only passed to the kernel, with advice that changes no content.
///
/// Errors: `InvalidInput`: a part of the region is not a mapped file, or a stride is 0. Others: no helper thread can be started, there is no
/// /proc, or the process has too many mappings.
pub fn advise(region: &[u8], behaviour: Behaviour, pages: usize) -> io::Result<Advised> {
    let advised = advise_raw(region.as_ptr() as usize, region.len(), behaviour, pages)?;
    if behaviour == Behaviour::DontNeed {
        advice::release(region).map_err(io_error)?;
    }
    Ok(advised)
}

/// As [`advise`], for a region that is given by its address. Addresses are only passed to the kernel, never dereferenced: wrong ones are an
/// error, or cost time.
pub fn advise_raw(address: usize, length_bytes: usize, behaviour: Behaviour, pages: usize) -> io::Result<Advised> {
    let arguments = Arguments { address, length_bytes, behaviour, pages };
    let region = start(&arguments)?;
    Ok(Advised { arguments, forks: fork_count(), region, in_child: OnceLock::new() })
}

fn start(arguments: &Arguments) -> io::Result<Option<Arc<Region>>> {
    let Arguments { address, length_bytes, behaviour, .. } = *arguments;
    if behaviour == (Behaviour::Stride { bytes: 0 }) {
        return Err(invalid("advise: the stride is 0; give the distance between two records in bytes"));
    }
    let Some(addresses) = whole_pages(address, length_bytes)? else { return Ok(None) };
    let areas = maps::areas(&addresses).map_err(io_error)?;
    check(&addresses, &areas)?;
    let region = Arc::new(Region::new(addresses, &areas));
    let registry = Registry::current();
    match begin(registry, &region, arguments) {
        Ok(is_kept) => Ok(is_kept.then_some(region)),
        Err(error) => {
            registry.end(&region);
            Err(error)
        }
    }
}

/// The pages of a region; `None`: it is empty.
fn whole_pages(address: usize, length_bytes: usize) -> io::Result<Option<Range<usize>>> {
    let page = machine::page_size() as usize;
    let end = address.checked_add(length_bytes).and_then(|end| end.checked_next_multiple_of(page));
    let end = end.ok_or_else(|| invalid("advise: the region ends beyond the address space"))?;
    Ok((length_bytes > 0).then_some(address / page * page..end))
}

fn check(addresses: &Range<usize>, areas: &[Area]) -> io::Result<()> {
    let mut mapped = addresses.start;
    for area in areas {
        if area.addresses.start > mapped {
            break;
        }
        if !area.is_file() {
            return Err(invalid("advise: the region is memory without a file; only mapped files can be read ahead"));
        }
        mapped = area.addresses.end;
    }
    if mapped < addresses.end {
        return Err(invalid("advise: a part of the region is not mapped"));
    }
    Ok(())
}

/// Starts what the behaviour needs. Returns whether it goes on.
fn begin(registry: &'static Registry, region: &Arc<Region>, arguments: &Arguments) -> io::Result<bool> {
    let (pages, page) = (region.pages(), region.page as u64);
    let pattern = match arguments.behaviour {
        Behaviour::Normal => {
            advice::set_kernel_advice(&region.addresses, KernelAdvice::Normal).map_err(io_error)?;
            return Ok(false);
        }
        Behaviour::Random => {
            registry.advise_kernel(region, KernelAdvice::Random)?;
            return Ok(true);
        }
        Behaviour::DontNeed => {
            // EINVAL: before Linux 5.4, and for locked pages. Nothing is lost without the advice.
            let _ = advice::cool(&region.addresses);
            return Ok(false);
        }
        Behaviour::WillNeed => {
            let limit_bytes = machine::meminfo_bytes("MemAvailable").map_or(u64::MAX, |bytes| bytes / LARGEST_SHARE);
            let fetcher = Fetcher::new(region.clone(), arguments.pages as u64, limit_bytes);
            registry.start(region, Task::Fetch(Box::new(fetcher)))?;
            return Ok(true);
        }
        Behaviour::Backward => Pattern::Backward,
        Behaviour::Stride { bytes } => Pattern::Stride(bytes),
        Behaviour::Sequential => Pattern::Sequential,
    };
    let route = Route::new(pattern, pages, page);
    // Without the page table no reader is found before the program reports its progress: until then the kernel has to read ahead.
    let kernel = match registry.pagemap() {
        Some(_) => KernelAdvice::Random,
        None if route.is_descending() || route.has_unknown_origin() => KernelAdvice::Normal,
        None => KernelAdvice::Sequential,
    };
    registry.advise_kernel(region, kernel)?;
    let follower = Follower::new(region.clone(), route, arguments.pages as u64);
    registry.start(region, Task::Follow(Box::new(follower)))?;
    Ok(true)
}

impl Advised {
    /// Reports that the program has come to a byte of the region: the helper thread need not find it by the mapped pages. Two atomic
    /// stores, and a system call when another group begins. The first call ends the search by mapped pages for this region.
    ///
    /// In a child made by fork, the first call starts the read-ahead there.
    pub fn progress(&self, offset_bytes: usize) {
        let Some(region) = &self.region else { return };
        if fork_count() != self.forks {
            let again = || {
                let Arguments { address, length_bytes, behaviour, pages } = self.arguments;
                advise_raw(address, length_bytes, behaviour, pages).ok().map(Box::new)
            };
            if let Some(child) = self.in_child.get_or_init(again) {
                child.progress(offset_bytes);
            }
            return;
        }
        region.report(offset_bytes.saturating_add(self.arguments.address - region.addresses.start));
    }

    /// What was done so far, in a child made by fork only there.
    pub fn counters(&self) -> Counters {
        if let Some(Some(child)) = self.in_child.get() {
            return child.counters();
        }
        self.region.as_ref().map(|region| region.counters()).unwrap_or_default()
    }

    /// Ends the read-ahead, as dropping the value does.
    pub fn stop(self) {}
}

impl Drop for Advised {
    fn drop(&mut self) {
        // In a child the kernel's read-ahead was put back at the fork, and locks of the parent must not be taken.
        if let Some(region) = self.region.take_if(|_| fork_count() == self.forks) {
            Registry::current().end(&region);
        }
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The same error for callers that know only std.
fn io_error(error: ahead_sys::Error) -> io::Error {
    let kind = error.raw_os_error().map_or(io::ErrorKind::Other, |code| io::Error::from_raw_os_error(code).kind());
    io::Error::new(kind, error)
}

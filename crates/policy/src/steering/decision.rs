//! The input of [`super::Steering`]: a decision of the kernel, as an observer or the simulator reports it, and the state of the machine.

use crate::{Advice, DeviceDescription, PAGE_BYTES, Page};
use ahead_model::DeviceNumber;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The limits of all acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Largest window of an open file, pages.
    pub max_window_pages: u64,
    /// Smallest window, pages; at least 1, so that decisions stay visible.
    pub min_window_pages: u64,
    /// All windows and fetched pages together, as a share of the available memory: from 0 to 1.
    pub memory_share: f64,
}

impl Default for Limits {
    /// Windows up to 16 MiB, a quarter of the available memory.
    fn default() -> Limits {
        Limits { max_window_pages: 4096, min_window_pages: 1, memory_share: 0.25 }
    }
}

/// The access that caused a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A call found no cached page (`page_cache_sync_ra`).
    #[default]
    Miss,
    /// A call or a fault reached the marked page (`page_cache_async_ra`): the reader has used all pages before it.
    Marker,
    /// A fault found no cached page.
    Fault,
}

/// `struct file_ra_state`: the kernel's read-ahead state of an open file. Sizes in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readahead {
    /// First page of the current window.
    pub start: Page,
    /// Size of the current window; 0: none yet.
    pub size: u64,
    /// Pages at the end of the window; the first of them is marked.
    pub async_size: u64,
    /// Largest window (`ra_pages`).
    pub window_pages: u64,
    /// End of the last finished call, bytes; -1: nothing was read yet. Accesses to mappings do not change it.
    pub prev_pos: i64,
    /// Recent faults with an absent page, minus those with a present one.
    pub mmap_miss: u16,
    /// `POSIX_FADV_RANDOM` (`FMODE_RANDOM`).
    pub is_random: bool,
}

impl Readahead {
    /// The last page of the last finished call; `None` before the first one.
    pub fn prev_page(&self) -> Option<Page> {
        u64::try_from(self.prev_pos).ok()?.checked_sub(1).map(|last| last / PAGE_BYTES)
    }
}

/// A mapping of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// First mapped page of the file.
    pub first_page: Page,
    /// After the last mapped page of the file.
    pub end_page: Page,
    /// Address at which `first_page` is mapped.
    pub address: u64,
    /// The program's advice for it (`madvise`).
    pub advice: Advice,
}

impl Mapped {
    /// All its addresses.
    pub fn addresses(&self) -> Range<u64> {
        let bytes = self.end_page.saturating_sub(self.first_page).saturating_mul(PAGE_BYTES);
        self.address..self.address.saturating_add(bytes)
    }
}

/// An open file of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The process.
    pub pid: u32,
    /// The thread in whose table the descriptor is.
    pub tid: u32,
    /// A descriptor for it, so that its window can be set. `None`: it was closed, and only a mapping remains.
    pub descriptor: Option<u32>,
    /// Address of the open file (`struct file`).
    pub open: u64,
    /// Address of the inode whose page cache is read.
    pub inode: u64,
    /// Number of the inode.
    pub inode_number: u64,
    /// Device of the file system, or the block device itself.
    pub device: DeviceNumber,
    /// Whether the pages are those of a block device, and not of a file.
    pub is_block_device: bool,
    /// The mapping of a fault.
    pub mapping: Option<Mapped>,
}

/// A decision of the kernel about an open file. Sizes in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Time since an arbitrary start, nanoseconds; of a live one CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The open file.
    pub target: Target,
    /// The access that caused it.
    pub kind: Kind,
    /// The page of the decision.
    pub page: Page,
    /// Pages that the access requests from this page on; 1 for a fault.
    pub wanted: u64,
    /// The state before the decision.
    pub before: Readahead,
    /// Length of the file, including a partial last page.
    pub file_pages: u64,
    /// Cached pages of the file.
    pub cached_pages: u64,
    /// The window of the disk now (`bdi->ra_pages`).
    pub disk_window_pages: u64,
    /// Whether the page had been issued before: evicted before it was read.
    pub is_thrashed: bool,
    /// Misses of this open file so far, this one included.
    pub misses: u64,
    /// Number of waits of its readers so far.
    pub waits: u64,
    /// Sum of these waits, nanoseconds.
    pub wait_ns: u64,
    /// Pages that the kernel has requested for it before this decision.
    pub issued_pages: u64,
    /// Requested pages that were evicted unused so far.
    pub wasted_pages: u64,
    /// Name of the thread, filled up with 0.
    pub comm: [u8; 16],
}

impl Decision {
    /// Whether the program has given advice for this access.
    pub(super) fn is_advised(&self) -> bool {
        self.before.is_random || self.target.mapping.is_some_and(|mapping| mapping.advice != Advice::Normal)
    }
}

/// The position of the reader of an open file, polled between decisions: cached reads cause none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time of the poll, nanoseconds.
    pub at_ns: u64,
    /// The last page of the last finished call ([`Readahead::prev_page`]).
    pub page: Page,
    /// Number and sum of the waits of its readers so far, nanoseconds; `None`: not known at this time.
    pub waits: Option<(u64, u64)>,
}

/// The state of the machine, or of the memory cgroup of the reader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Available memory, pages: of the machine, or of the cgroup if that is less.
    pub available_pages: u64,
    /// Whether processes wait for memory.
    pub pressure: bool,
    /// The disk under the file.
    pub device: DeviceDescription,
    /// Largest request of the disk, pages (`max_sectors_kb`).
    pub request_pages: u64,
    /// Whether pages of the file may be fetched. Otherwise only windows are set.
    pub can_fetch: bool,
}

impl Default for Machine {
    /// 1 GiB available, no pressure, a solid-state disk, requests of 512 KiB.
    fn default() -> Machine {
        Machine {
            available_pages: 1 << 18,
            pressure: false,
            device: DeviceDescription::FLASH,
            request_pages: 128,
            can_fetch: true,
        }
    }
}

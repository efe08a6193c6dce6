//! The input of [`super::Steering`]: what an observer has seen of an open file, and the state of the machine.

use crate::{Advice, DeviceDescription, Page};

/// The limits of all acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Largest window of an open file, pages.
    pub max_window_pages: u64,
    /// Smallest window, pages; at least 1, so that decisions stay visible.
    pub min_window_pages: u64,
    /// All windows and fetched pages together, as a share of the available memory: from 0 to 1.
    pub memory_share: f64,
    /// Largest number of open files with a state. The least recently seen one is dropped.
    pub max_files: usize,
}

impl Default for Limits {
    /// Windows up to 16 MiB, a quarter of the available memory, 4096 open files.
    fn default() -> Limits {
        Limits { max_window_pages: 4096, min_window_pages: 1, memory_share: 0.25, max_files: 4096 }
    }
}

/// The kind of a decision of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A call found no cached page (`page_cache_sync_ra`).
    #[default]
    Miss,
    /// A call or a fault reached the marked page (`page_cache_async_ra`): the reader has used all pages before it.
    Marker,
    /// A fault found no cached page.
    Fault,
}

/// A decision of the kernel about an open file, with its state before the decision. Sizes in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Time since an arbitrary start, nanoseconds.
    pub at_ns: u64,
    /// The open file: the address of its `struct file`.
    pub open: u64,
    /// The file: the address of its inode.
    pub file: u64,
    /// The kind of the decision.
    pub kind: Kind,
    /// The page of the decision.
    pub page: Page,
    /// Pages that the call requests from this page on; 1 for a fault.
    pub wanted: u64,
    /// `file_ra_state.start` before the decision.
    pub start: Page,
    /// `file_ra_state.size` before the decision.
    pub size: u64,
    /// `file_ra_state.async_size` before the decision.
    pub async_size: u64,
    /// `file_ra_state.ra_pages`: the largest window of this open file.
    pub window_pages: u64,
    /// The last page of the last finished call: `(prev_pos - 1) / 4096`; `None` before the first one.
    pub prev_page: Option<Page>,
    /// `POSIX_FADV_RANDOM` (`FMODE_RANDOM`).
    pub is_random: bool,
    /// Length of the file, including a partial last page.
    pub file_pages: u64,
    /// The window of the disk now (`bdi->ra_pages`).
    pub disk_window_pages: u64,
    /// The window of this open file before the first act.
    pub baseline_window_pages: u64,
    /// Number of waits of its readers so far.
    pub waits: u64,
    /// Sum of these waits, nanoseconds.
    pub wait_ns: u64,
    /// Pages that the kernel has requested for it so far.
    pub issued_pages: u64,
    /// Requested pages that were evicted unused so far.
    pub wasted_pages: u64,
    /// Whether a descriptor is known, so that the window can be set.
    pub has_descriptor: bool,
    /// First page of the mapping and the page after its last one, for an access by mapping.
    pub mapping: Option<(Page, Page)>,
    /// The advice for the mapping.
    pub advice: Advice,
}

/// The position of the reader of an open file, polled between decisions: cached reads cause none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The open file.
    pub open: u64,
    /// Time of the poll, nanoseconds.
    pub at_ns: u64,
    /// The last page of the last finished call, as [`Seen::prev_page`].
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

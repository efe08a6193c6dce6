//! The real page cache instead of the simulated one: the request of a paper, and its result.
//!
//! A program that can mount disks and evict pages supplies a [`Live`]; the papers themselves need no privilege. The
//! policy is that of the running kernel, so only results that do not depend on an old kernel make sense.

pub use ahead_measure::bench::Observed;
use ahead_sim::Scenario;
use std::ops::Range;

/// The file system of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// `ext2`, `ext4`, `xfs`.
    pub name: &'static str,
    /// Block size, bytes.
    pub block_bytes: u64,
}

/// A run that a paper requests.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The disk's model, its window (`read_ahead_kb`), and the workloads, each stream with a separate file that is not
    /// cached. Costs and memory are those of the machine that executes the run.
    pub scenario: &'a Scenario,
    /// The file system of the disk.
    pub filesystem: Filesystem,
    /// Whether the time of each call or touched block is requested.
    pub each: bool,
}

/// The reason why a run failed.
pub type LiveError = Box<dyn std::error::Error + Send + Sync>;

/// The pages that a system call has loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Loaded {
    /// The bytes that the call names.
    pub asked: Range<u64>,
    /// The bytes around these that are in the page cache after the call, or are being read.
    pub loaded: Vec<Range<u64>>,
}

/// The time of a call that requests data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CallTime {
    /// Until the call has returned, nanoseconds.
    pub returned_ns: u64,
    /// Until the data has arrived, nanoseconds; also from the begin of the call.
    pub arrived_ns: u64,
}

/// The effects of the system calls that announce reads, on files that are not cached. Pages have 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SystemCalls {
    /// Maximum number of pages that one read of one page loads, in a sequential file: without advice, after
    /// `POSIX_FADV_SEQUENTIAL`, after `POSIX_FADV_RANDOM`.
    pub longest_pages: [u64; 3],
    /// readahead(2) of bytes that begin and end within pages.
    pub unaligned: Loaded,
    /// readahead(2) of more bytes than the window has.
    pub long: Loaded,
    /// readahead(2) where the file system has to read the place of the data first.
    pub readahead_cold_map: CallTime,
    /// readahead(2) where the place of the data is known.
    pub readahead: Vec<CallTime>,
    /// `POSIX_FADV_WILLNEED`.
    pub will_need: Loaded,
    /// `POSIX_FADV_WILLNEED` where the place of the data is known.
    pub will_need_times: Vec<CallTime>,
    /// `POSIX_FADV_NOREUSE`.
    pub no_reuse: Loaded,
    /// The cached bytes before `POSIX_FADV_DONTNEED` for a part of them.
    pub cached: Range<u64>,
    /// `POSIX_FADV_DONTNEED`: what is still cached afterwards.
    pub dont_need: Loaded,
    /// The same for pages that a process has mapped.
    pub dont_need_mapped: Loaded,
    /// `MADV_WILLNEED`.
    pub map_will_need: Loaded,
    /// `MADV_PAGEOUT` for these mapped pages: what is still cached afterwards.
    pub map_page_out: Loaded,
    /// Touched pages of a mapping, none near another.
    pub touched_pages: u64,
    /// Pages that these touches have loaded: without advice, after `MADV_RANDOM`.
    pub faulted_pages: [u64; 2],
    /// Size of the executable of this program, pages.
    pub program_pages: u64,
    /// Pages of the executable that its start has loaded.
    pub started_pages: u64,
}

/// Runs workloads against the real page cache.
pub trait Live {
    /// Runs the workloads once, from a cold cache.
    ///
    /// Errors: the disk cannot be made, mounted or read.
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError>;

    /// Calls the system calls that announce reads, on files on the disk of this scenario.
    ///
    /// Errors: as [`Live::run`].
    fn system_calls(&self, scenario: &Scenario) -> Result<SystemCalls, LiveError>;
}

//! Counters and events, as the observer reports them.

use crate::state::Readahead;
use ahead_model::DeviceNumber;

/// Number of decided pages that the counters of an open file keep. Enough to see a stride, or two readers that take turns.
pub const LAST_PAGES: usize = 8;

/// The accesses that are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Decisions, waits and evictions. No program runs on a read of cached pages.
    #[default]
    Decisions,
    /// Every access: hits, used and wasted pages are exact.
    Hits,
    /// Accesses to one in this number of 64-page blocks; their counts are multiplied by it. Waits for pages in flight count as hits, too. 1 or
    /// 0: [`Detail::Hits`].
    SampledHits(u32),
}

/// Options of [`crate::Counters::start`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterOptions {
    /// The accesses that are observed.
    pub detail: Detail,
    /// Whether decisions are sent ([`crate::Counters::events`]).
    pub sends: bool,
    /// A process whose accesses are neither counted nor sent: the observer's.
    pub own_pid: u32,
    /// Observe decisions by this source or fail. `None`: by the best one that works here.
    pub source: Option<DecisionSource>,
}

/// How decisions are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionSource {
    /// The tracepoints `readahead:*` (Linux 6.18).
    Tracepoints,
    /// The functions that these tracepoints are in, through a BPF trampoline.
    Fentry,
    /// The same functions, through breakpoints.
    Kprobes,
    /// Not at all: this kernel has or permits none of them.
    Missing,
}

impl DecisionSource {
    /// The sources that an option may name, the best first.
    pub const NAMED: [DecisionSource; 3] =
        [DecisionSource::Tracepoints, DecisionSource::Fentry, DecisionSource::Kprobes];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            DecisionSource::Tracepoints => "tracepoints",
            DecisionSource::Fentry => "fentry",
            DecisionSource::Kprobes => "kprobes",
            DecisionSource::Missing => "missing",
        }
    }
}

/// What this kernel shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// How decisions are observed.
    pub decisions: DecisionSource,
    /// Whether accesses to cached pages are counted.
    pub hits: bool,
    /// What cannot be seen, one sentence each.
    pub missing: Vec<String>,
}

/// The page of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedPage {
    /// Number of the page in its file.
    pub page: u64,
    /// Whether an access to a mapping caused the decision, and not a read.
    pub is_fault: bool,
}

/// Counts of one open file since it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenCounters {
    /// Address of the open file (`struct file`).
    pub open: u64,
    /// Address of the inode whose page cache is read.
    pub inode: u64,
    /// The process that read last.
    pub pid: u32,
    /// Accesses that found their pages cached.
    pub hits: Option<u64>,
    /// Waits for pages that were already being read: the read-ahead came too late.
    pub locked: u64,
    /// Accesses whose page was absent, faults included.
    pub misses: u64,
    /// Accesses to a marked page, which start the next window.
    pub markers: u64,
    /// Misses of accesses to a mapping.
    pub faults: u64,
    /// Time lost in waits.
    pub wait_ns: u64,
    /// Waits for pages, those after misses included.
    pub waits: u64,
    /// Pages that read-ahead and misses have read.
    pub issued_pages: u64,
    /// Issued pages that an access touched.
    pub used_pages: Option<u64>,
    /// Issued pages that were evicted unused. Without observed accesses ([`Detail::Decisions`]) it is an estimate for mappings: a page that was
    /// mapped beside a faulted one counts as used if the kernel's flags show so.
    pub wasted_pages: u64,
    /// Misses of pages that had been issued before: evicted before they were read.
    pub thrashed_pages: u64,
    /// The last decided pages, the latest last; at most [`LAST_PAGES`].
    pub last_pages: Vec<DecidedPage>,
    /// Time of the last decision (CLOCK_MONOTONIC).
    pub last_ns: u64,
}

/// Counts of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCounters {
    /// Accesses: reads and faults.
    pub reads: Option<u64>,
    /// Accesses that found their pages cached.
    pub hits: Option<u64>,
    /// Waits for pages that were already being read.
    pub locked: u64,
    /// Accesses whose page was absent, faults included.
    pub misses: u64,
    /// Misses of accesses to a mapping.
    pub faults: u64,
    /// Accesses to a marked page.
    pub markers: u64,
    /// Pages that read-ahead and misses have read.
    pub issued_pages: u64,
    /// Issued pages that an access touched.
    pub used_pages: Option<u64>,
    /// Issued pages that were evicted unused.
    pub wasted_pages: u64,
    /// Issued pages that are cached and were not used: the memory footprint of read-ahead.
    pub unread_pages: Option<u64>,
    /// Misses of pages that had been issued before.
    pub thrashed_pages: u64,
    /// Waits for pages.
    pub waits: u64,
    /// Time lost in waits.
    pub wait_ns: u64,
    /// Events and counts that were lost: the ring buffer or a table was full, or the kernel skipped a program.
    pub lost_events: u64,
}

/// The access that caused a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionKind {
    /// A read of an absent page.
    Miss,
    /// An access to a marked page.
    Marker,
    /// An access to an absent page of a mapping.
    Fault,
}

/// A program's advice for a mapping (`madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MappingAdvice {
    /// None.
    #[default]
    Normal,
    /// `MADV_SEQUENTIAL`.
    Sequential,
    /// `MADV_RANDOM`.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultMapping {
    /// First mapped page of the file.
    pub first_page: u64,
    /// After the last mapped page of the file.
    pub end_page: u64,
    /// Address at which `first_page` is mapped.
    pub address: u64,
    /// The program's advice.
    pub advice: MappingAdvice,
}

/// A read-ahead decision of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionEvent {
    /// CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Address of the open file (`struct file`).
    pub open: u64,
    /// Address of the inode whose page cache is read.
    pub inode: u64,
    /// Device of the file system, or the block device itself.
    pub device: DeviceNumber,
    pub inode_number: u64,
    /// Whether the pages are those of a block device, and not of a file.
    pub is_block_device: bool,
    /// A descriptor of the process for this open file, in the table of the thread. `None`: it was closed, and only a mapping remains.
    pub descriptor: Option<u32>,
    /// The access that caused the decision.
    pub kind: DecisionKind,
    /// The page that was asked for.
    pub page: u64,
    /// Number of pages that the access asks for, from `page` on.
    pub wanted: u64,
    /// The state before the decision.
    pub before: Readahead,
    /// Size of the file, pages.
    pub file_pages: u64,
    /// Cached pages of the file.
    pub cached_pages: u64,
    /// Window of the disk now (`read_ahead_kb`), pages.
    pub disk_window_pages: u32,
    /// The mapping of a fault.
    pub mapping: Option<FaultMapping>,
    /// Whether `page` had been issued before: evicted before it was read.
    pub is_thrashed: bool,
    /// Misses of this open file so far, this one included.
    pub misses: u64,
    /// Waits of this open file so far.
    pub waits: u64,
    /// Time lost in them.
    pub wait_ns: u64,
    /// Pages issued for this open file before this decision.
    pub issued_pages: u64,
    /// Issued pages of this open file that were evicted unused.
    pub wasted_pages: u64,
    /// Name of the thread, filled up with 0.
    pub comm: [u8; 16],
}

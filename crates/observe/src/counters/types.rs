//! Counters and events, as the observer reports them.

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

//! Counters and events, as the observer reports them.

use std::time::Duration;

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

/// Counts of accesses, of an open file or of the machine, and of the pages that were read for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Accesses that found their pages cached. `None`: not observed.
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
    /// Issued pages that an access touched. `None`: not observed.
    pub used_pages: Option<u64>,
    /// Issued pages that were evicted unused. Without observed accesses ([`Detail::Decisions`]) it is an estimate for mappings: a page that was
    /// mapped beside a faulted one counts as used if the kernel's flags show so.
    pub wasted_pages: u64,
    /// Misses of pages that had been issued before: evicted before they were read.
    pub thrashed_pages: u64,
}

impl AccessCounts {
    /// The counts since an earlier time.
    pub fn since(&self, before: &AccessCounts) -> AccessCounts {
        let optional = |now: Option<u64>, before: Option<u64>| now.map(|now| now.saturating_sub(before.unwrap_or(0)));
        self.combined(before, u64::saturating_sub, optional)
    }

    /// The counts of both. What one of them has not observed is unknown.
    pub fn plus(&self, other: &AccessCounts) -> AccessCounts {
        self.combined(other, u64::saturating_add, |one, other| Some(one?.saturating_add(other?)))
    }

    fn combined(
        &self,
        other: &AccessCounts,
        each: fn(u64, u64) -> u64,
        optional: fn(Option<u64>, Option<u64>) -> Option<u64>,
    ) -> AccessCounts {
        AccessCounts {
            hits: optional(self.hits, other.hits),
            locked: each(self.locked, other.locked),
            misses: each(self.misses, other.misses),
            markers: each(self.markers, other.markers),
            faults: each(self.faults, other.faults),
            wait_ns: each(self.wait_ns, other.wait_ns),
            waits: each(self.waits, other.waits),
            issued_pages: each(self.issued_pages, other.issued_pages),
            used_pages: optional(self.used_pages, other.used_pages),
            wasted_pages: each(self.wasted_pages, other.wasted_pages),
            thrashed_pages: each(self.thrashed_pages, other.thrashed_pages),
        }
    }

    /// Time lost in waits.
    pub fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_ns)
    }

    /// Whether nothing was read, as far as that is observed.
    pub fn is_idle(&self) -> bool {
        self.hits.unwrap_or(0) == 0 && self.locked + self.misses + self.markers + self.issued_pages == 0
    }

    /// Pages that the kernel read for each used page. `None`: not observed, or nothing was used.
    pub fn amplification(&self) -> Option<f64> {
        let used = self.used_pages.filter(|used| *used > 0)?;
        Some(self.issued_pages as f64 / used as f64)
    }

    /// Accesses to present, locked and absent pages.
    pub fn accesses(&self) -> u64 {
        self.hits.unwrap_or(0).saturating_add(self.locked).saturating_add(self.misses)
    }
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
    /// Its accesses.
    pub counts: AccessCounts,
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
    /// Accesses by their state.
    pub counts: AccessCounts,
    /// Issued pages that are cached and were not used: the memory footprint of read-ahead.
    pub unread_pages: Option<u64>,
    /// Events and counts that were lost: the ring buffer or a table was full, or the kernel skipped a program.
    pub lost_events: u64,
}

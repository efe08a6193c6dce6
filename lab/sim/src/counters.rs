//! The counters of a run.

use crate::queue::Served;

/// Processor time of programmed input, nanoseconds, by the interrupted activity. The kernel's clock charges this
/// activity, because its ticks arrive when the interrupt's handler has ended (2.2's IDE handler runs with interrupts
/// off: `SA_INTERRUPT` in ide-probe.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// A program's own work.
    pub from_user_ns: u64,
    /// The kernel's work for a program.
    pub from_system_ns: u64,
    /// No process was running.
    pub from_idle_ns: u64,
}

/// The activity of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtWork {
    /// A program's own work.
    User,
    /// The kernel's work for a program.
    System,
    /// No process can run.
    Idle,
}

impl Moved {
    pub(crate) fn add(&mut self, at_work: AtWork, time_ns: u64) {
        *match at_work {
            AtWork::User => &mut self.from_user_ns,
            AtWork::System => &mut self.from_system_ns,
            AtWork::Idle => &mut self.from_idle_ns,
        } += time_ns;
    }
}

/// All counters of a run. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Counters {
    /// Whether every process has ended. False: the run ended at its time limit.
    pub ended: bool,
    /// From the beginning to the end of the last process.
    pub elapsed_ns: u64,
    /// From the beginning until the disk has completed all requests submitted by the end. The counters in `device` and
    /// the written pages include them. At least `elapsed_ns`.
    pub drained_ns: u64,
    /// Processor time of the programs' own work.
    pub user_ns: u64,
    /// Processor time of the kernel for the programs: calls, faults, copying, requests, programmed input.
    pub system_ns: u64,
    /// Programmed input by the interrupted activity, included in `system_ns`.
    pub moved: Moved,
    /// Bytes that programs have read or touched. Repeated accesses count again.
    pub read_bytes: u64,
    /// Bytes that programs have written. Repeated writes count again.
    pub write_bytes: u64,
    /// Accesses to cached pages: reads, touches, and writes that keep a part of a page.
    pub hits: u64,
    /// Accesses to pages in flight: the process waits.
    pub locked: u64,
    /// Accesses to pages that were not requested before.
    pub misses: u64,
    /// Waits of processes for room in the queue.
    pub queue_waits: u64,
    /// Sum of the processes' waits for pages.
    pub wait_ns: u64,
    /// Blocks that were read to find the places of pages: inodes and pointers, 4 KiB each. They are not included in
    /// `issued_pages`.
    pub metadata_pages: u64,
    /// Waits for these blocks, included in `wait_ns`.
    pub metadata_wait_ns: u64,
    /// Clean pages that were changed, metadata included. A page that is changed under writeback counts again.
    pub dirtied_pages: u64,
    /// Dirtied pages that are now on the disk.
    pub written_pages: u64,
    /// Pointer blocks, included in `written_pages`.
    pub written_metadata_pages: u64,
    /// Dirtied pages that are not on the disk at the end.
    pub unwritten_pages: u64,
    /// Waits of writers because too many pages were dirty.
    pub dirty_waits: u64,
    /// Sum of the waits at the dirty limit and for `fsync`, over all processes.
    pub writeback_wait_ns: u64,
    /// Longest time from the beginning of a call to its end.
    pub latency_most_ns: u64,
    /// Pages requested from the disk.
    pub issued_pages: u64,
    /// Requested pages that were used.
    pub used_pages: u64,
    /// Requested pages that were evicted before their use.
    pub wasted_pages: u64,
    /// Requested pages that are still cached and unused.
    pub unread_pages: u64,
    /// Requested pages that were dropped because the queue was full.
    pub dropped_pages: u64,
    /// Misses on pages that had been evicted unused.
    pub thrashings: u64,
    /// Requests of policies.
    pub decisions: u64,
    /// The counters of the disk.
    pub device: Served,
}

/// A call or a run of touches that has ended. Times in nanoseconds since the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finished {
    /// Number of the process, in the order of the scenario.
    pub process: usize,
    /// The start in the file.
    pub offset_bytes: u64,
    /// Length within the file.
    pub length_bytes: u64,
    /// The time of the start.
    pub began_ns: u64,
    /// The time of the end.
    pub ended_ns: u64,
    /// User time of the whole machine up to the end.
    pub user_ns: u64,
    /// System time of the whole machine up to the end.
    pub system_ns: u64,
}

impl Counters {
    /// Time in which the processor was idle.
    pub fn idle_ns(&self) -> u64 {
        self.elapsed_ns.saturating_sub(self.user_ns + self.system_ns)
    }

    /// All accesses to pages.
    pub fn accesses(&self) -> u64 {
        self.hits + self.locked + self.misses
    }

    /// Bytes per second that programs read and wrote.
    pub fn throughput_bytes_per_s(&self) -> f64 {
        let bytes = self.read_bytes + self.write_bytes;
        if self.elapsed_ns == 0 { 0.0 } else { bytes as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// Bytes read from the disk for each used byte; `None`: no byte was used.
    pub fn amplification(&self) -> Option<f64> {
        (self.used_pages > 0).then(|| self.issued_pages as f64 / self.used_pages as f64)
    }
}

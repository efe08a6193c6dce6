//! A row of the result: medians of some runs, with their spread.

use crate::job::Variant;
use crate::run::{Observed, Sample, Under};
use crate::spread::{Spread, median};
use ahead_live::Counters;
use ahead_policy::PAGE_BYTES;
use serde::Serialize;

/// What a variant came to under somebody. Medians; times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The job.
    pub job: &'static str,
    /// The variant.
    pub variant: String,
    /// Who read ahead.
    pub policy: String,
    /// The window or `n` that was asked for, pages.
    pub pages: Option<u64>,
    /// Readers at the same time.
    pub streams: u64,
    /// What a call reads, bytes.
    pub block_bytes: u64,
    /// How often it was run.
    pub runs: u64,
    /// From beginning to end.
    pub elapsed_s: Spread,
    /// Bytes read and written per second.
    pub throughput_bytes_per_s: Spread,
    /// Throughput by that of the first one of the same round.
    pub ratio: Spread,
    /// Processor time of readers and engine.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
    /// Time in which none of one processor was used; 0 where several readers kept more than one busy.
    pub idle_s: f64,
    /// Processor time by elapsed time.
    pub cpu_percent: f64,
    /// Longest call.
    pub latency_most_s: f64,
    /// Bytes that readers got, again and again included.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Of the file's bytes: read at least once.
    pub used_bytes: u64,
    /// Accesses to pages that were there; null where nobody counted.
    pub hits: Option<u64>,
    /// To pages that were on their way.
    pub locked: Option<u64>,
    /// To pages that nobody had asked for.
    pub misses: Option<u64>,
    /// Waits for room in the queue; null under the kernel.
    pub queue_waits: Option<u64>,
    /// Asked of the disk by the policy.
    pub issued_bytes: Option<u64>,
    /// Of these: never used.
    pub wasted_bytes: Option<u64>,
    /// Of what it wanted: left out, for the queue was full.
    pub dropped_bytes: Option<u64>,
    /// Reads of the device; null where nobody counts.
    pub device_requests: Option<u64>,
    /// What it read.
    pub device_bytes: Option<u64>,
    /// Bytes of the device by bytes used; null where one of them is unknown or nothing was read.
    pub amplification: Option<f64>,
    /// How time went, where that is of interest: of the last run.
    pub timeline: Vec<Sample>,
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

fn throughput(run: &Observed) -> f64 {
    (run.read_bytes + run.write_bytes) as f64 / seconds(run.elapsed_ns).max(1e-9)
}

impl Row {
    /// Of runs, with those of the first one in the same rounds; `found`: how pages were found, if that was counted apart.
    pub(crate) fn of(
        job: &'static str,
        variant: &Variant,
        under: &Under,
        runs: &[Observed],
        first: &[Observed],
        found: Option<[u64; 3]>,
    ) -> Row {
        let time = |of: fn(&Observed) -> u64| Spread::of(runs.iter().map(|run| seconds(of(run)))).median;
        let found_of = |index: usize| {
            let counted: Option<Vec<u64>> = runs.iter().map(|run| run.found.map(|found| found[index])).collect();
            counted.filter(|counted| !counted.is_empty()).map(median).or(found.map(|found| found[index]))
        };
        let engine = |of: fn(&Counters) -> u64| {
            let counted: Option<Vec<u64>> = runs.iter().map(|run| run.counters.as_ref().map(of)).collect();
            counted.map(median)
        };
        let device = |of: fn(&Observed) -> Option<u64>| runs.iter().map(of).collect::<Option<Vec<u64>>>().map(median);
        let device_bytes = device(|run| run.reads.map(|reads| reads.bytes));
        let used_bytes = variant.used_bytes();
        let idle = |run: &Observed| seconds(run.elapsed_ns.saturating_sub(run.user_ns + run.system_ns));
        let cpu = |run: &Observed| (run.user_ns + run.system_ns) as f64 * 100.0 / run.elapsed_ns.max(1) as f64;
        Row {
            job,
            variant: variant.name.clone(),
            policy: under.name(),
            pages: under.pages,
            streams: variant.readers.len() as u64,
            block_bytes: variant.block_bytes(),
            runs: runs.len() as u64,
            elapsed_s: Spread::of(runs.iter().map(|run| seconds(run.elapsed_ns))),
            throughput_bytes_per_s: Spread::of(runs.iter().map(throughput)),
            ratio: Spread::of(runs.iter().zip(first).map(|(run, first)| throughput(run) / throughput(first))),
            user_s: time(|run| run.user_ns),
            system_s: time(|run| run.system_ns),
            idle_s: Spread::of(runs.iter().map(idle)).median,
            cpu_percent: Spread::of(runs.iter().map(cpu)).median,
            latency_most_s: time(|run| run.latency_most_ns),
            read_bytes: median(runs.iter().map(|run| run.read_bytes)),
            write_bytes: median(runs.iter().map(|run| run.write_bytes)),
            used_bytes,
            hits: found_of(0),
            locked: found_of(1),
            misses: found_of(2),
            queue_waits: engine(|counters| counters.queue_waits),
            issued_bytes: engine(|counters| counters.issued_pages * PAGE_BYTES),
            wasted_bytes: engine(|counters| (counters.wasted_pages + counters.unread_pages) * PAGE_BYTES),
            dropped_bytes: engine(|counters| counters.dropped_pages * PAGE_BYTES),
            device_requests: device(|run| run.reads.map(|reads| reads.requests)),
            device_bytes,
            amplification: device_bytes.filter(|_| used_bytes > 0).map(|bytes| bytes as f64 / used_bytes as f64),
            timeline: runs.last().map(|run| run.timeline.clone()).unwrap_or_default(),
        }
    }
}

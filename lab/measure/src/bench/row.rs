//! A row of the result: medians of some runs, with their spread.

use crate::bench::job::Variant;
use crate::bench::live::Counters;
use crate::bench::observed::{Observed, Sample};
use crate::bench::run::ReadAhead;
use ahead_model::Spread;
use ahead_policy::PAGE_BYTES;
use serde::Serialize;

/// The result of a variant under a read-ahead. The time is the median, with its spread. Processor times and counts are those of the run
/// with the median time. For an even number of runs, that is the faster of the middle two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub job: &'static str,
    pub variant: String,
    /// The policy, `kernel` or `direct`.
    pub policy: String,
    /// The requested window, or `n`, pages.
    pub pages: Option<u64>,
    /// Readers at the same time.
    pub streams: u64,
    /// Bytes of a call.
    pub block_bytes: u64,
    pub runs: u64,
    /// Time of a run, seconds.
    pub elapsed_s: Spread,
    /// Bytes read and written per second.
    pub throughput_bytes_per_s: Spread,
    /// Throughput divided by that of the first read-ahead in the same round.
    pub ratio: Spread,
    /// User time of readers and engine.
    pub user_s: f64,
    /// System time of readers and engine.
    pub system_s: f64,
    /// Time without processor use; 0 where several readers kept more than one processor busy.
    pub idle_s: f64,
    /// Processor time divided by elapsed time, percent.
    pub cpu_percent: f64,
    /// Longest call.
    pub latency_most_s: f64,
    /// Bytes read, repeated reads included.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes of the files that were read at least once.
    pub used_bytes: u64,
    /// Accesses to present pages; null where they are not counted.
    pub hits: Option<u64>,
    /// Accesses to pages in flight.
    pub locked: Option<u64>,
    /// Accesses to absent pages.
    pub misses: Option<u64>,
    /// Waits for a free place in the queue; null under the kernel.
    pub queue_waits: Option<u64>,
    /// Bytes that the policy requested.
    pub issued_bytes: Option<u64>,
    /// Requested bytes that were never used.
    pub wasted_bytes: Option<u64>,
    /// Bytes that were not requested because the queue was full.
    pub dropped_bytes: Option<u64>,
    /// Read requests of the device; null where they are not counted.
    pub device_requests: Option<u64>,
    /// Bytes that the device read.
    pub device_bytes: Option<u64>,
    /// Bytes that the device read, divided by bytes used; null where one is unknown or nothing was read.
    pub amplification: Option<f64>,
    /// Most bytes of the files that were evicted during a run, the extra counting run included; unused ones among them were read twice. Null
    /// without an observer.
    pub evicted_bytes: Option<u64>,
    /// Samples of user and system time, if the variant requests samples.
    pub timeline: Vec<Sample>,
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

fn throughput(run: &Observed) -> f64 {
    (run.read_bytes + run.write_bytes) as f64 / seconds(run.elapsed_ns).max(1e-9)
}

/// The run with the median time.
fn median_run(runs: &[Observed]) -> Option<&Observed> {
    let mut sorted: Vec<&Observed> = runs.iter().collect();
    sorted.sort_by_key(|run| run.elapsed_ns);
    sorted.get(runs.len().saturating_sub(1) / 2).copied()
}

impl Row {
    /// Makes a row of these runs. `first`: the runs of the first read-ahead in the same rounds. `counted`: the run that probed the cache.
    pub(crate) fn of(
        job: &'static str,
        variant: &Variant,
        read_ahead: &ReadAhead,
        runs: &[Observed],
        first: &[Observed],
        counted: Option<&Observed>,
    ) -> Row {
        // All figures from one run: medians of single figures would not add up.
        let median = median_run(runs);
        let time = |of: fn(&Observed) -> u64| median.map_or(0.0, |run| seconds(of(run)));
        let found = median.and_then(|run| run.found).or(counted.and_then(|run| run.found));
        let engine = |of: fn(&Counters) -> u64| median.and_then(|run| run.counters.as_ref()).map(of);
        let reads = median.and_then(|run| run.reads);
        let device_bytes = reads.map(|reads| reads.bytes);
        let used_bytes = variant.used_bytes();
        let worked_ns = |run: &Observed| run.user_ns + run.system_ns;
        Row {
            job,
            variant: variant.name.clone(),
            policy: read_ahead.name(),
            pages: read_ahead.pages,
            streams: variant.readers.len() as u64,
            block_bytes: variant.block_bytes(),
            runs: runs.len() as u64,
            elapsed_s: Spread::of(runs.iter().map(|run| seconds(run.elapsed_ns))),
            throughput_bytes_per_s: Spread::of(runs.iter().map(throughput)),
            ratio: Spread::of(runs.iter().zip(first).map(|(run, first)| throughput(run) / throughput(first))),
            user_s: time(|run| run.user_ns),
            system_s: time(|run| run.system_ns),
            idle_s: median.map_or(0.0, |run| seconds(run.elapsed_ns.saturating_sub(worked_ns(run)))),
            cpu_percent: median.map_or(0.0, |run| worked_ns(run) as f64 * 100.0 / run.elapsed_ns.max(1) as f64),
            latency_most_s: Spread::of(runs.iter().map(|run| seconds(run.latency_most_ns))).median,
            read_bytes: median.map_or(0, |run| run.read_bytes),
            write_bytes: median.map_or(0, |run| run.write_bytes),
            used_bytes,
            hits: found.map(|found| found[0]),
            locked: found.map(|found| found[1]),
            misses: found.map(|found| found[2]),
            queue_waits: engine(|counters| counters.queue_waits),
            issued_bytes: engine(|counters| counters.issued_pages * PAGE_BYTES),
            wasted_bytes: engine(|counters| (counters.wasted_pages + counters.unread_pages) * PAGE_BYTES),
            dropped_bytes: engine(|counters| counters.dropped_pages * PAGE_BYTES),
            device_requests: reads.map(|reads| reads.requests),
            device_bytes,
            amplification: device_bytes.filter(|_| used_bytes > 0).map(|bytes| bytes as f64 / used_bytes as f64),
            evicted_bytes: runs.iter().chain(counted).filter_map(|run| run.evicted_bytes).max(),
            timeline: median.map(|run| run.timeline.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: medians of single counts did not add up to the pages that were read.
    #[test]
    fn counts_of_a_row_are_those_of_one_run() {
        let run = |elapsed_ns, found| Observed { elapsed_ns, found: Some(found), ..Observed::default() };
        let runs = [run(9, [7, 2, 1]), run(5, [5, 4, 1]), run(7, [6, 1, 3]), run(1, [0, 0, 10])];
        assert_eq!(median_run(&runs).map(|run| run.elapsed_ns), Some(5));
        assert_eq!(median_run(&runs[..3]).and_then(|run| run.found), Some([6, 1, 3]));
        assert!(median_run(&[]).is_none());
    }

    /// Regression: medians of user, system and idle time did not add up to the elapsed time.
    #[test]
    fn times_of_a_row_add_up() {
        let run = |elapsed_ns, user_ns, system_ns| Observed { elapsed_ns, user_ns, system_ns, ..Observed::default() };
        let runs = [run(9_000, 5_000, 1_000), run(5_000, 1_000, 3_000), run(7_000, 2_000, 2_500)];
        let variant = Variant { name: "x".into(), readers: Vec::new(), timeline: false };
        let row = Row::of(
            "x",
            &variant,
            &ReadAhead { method: crate::bench::Method::Kernel, pages: None },
            &runs,
            &runs,
            None,
        );
        assert!((row.user_s + row.system_s + row.idle_s - row.elapsed_s.median).abs() < 1e-12, "{row:?}");
        assert!((row.cpu_percent - 100.0 * 4.5 / 7.0).abs() < 1e-9);
    }
}

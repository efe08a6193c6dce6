//! A row of the result: medians of some runs, with their spread.

use crate::job::Variant;
use crate::run::{Observed, Sample, Under};
use crate::spread::Spread;
use ahead_live::Counters;
use ahead_policy::PAGE_BYTES;
use serde::Serialize;

/// What a variant came to under somebody. How long it took is the median, with its spread; where that time went, and the counts, are those
/// of the run with the median time, of an even number of runs the faster of the middle two.
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
    /// Most of the files that left the cache during a run, that in which is looked how pages are found included; what had not been used
    /// was read twice. Null where nobody observes.
    pub evicted_bytes: Option<u64>,
    /// How time went, where that is of interest.
    pub timeline: Vec<Sample>,
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

fn throughput(run: &Observed) -> f64 {
    (run.read_bytes + run.write_bytes) as f64 / seconds(run.elapsed_ns).max(1e-9)
}

/// The run with the median time.
fn typical(runs: &[Observed]) -> Option<&Observed> {
    let mut sorted: Vec<&Observed> = runs.iter().collect();
    sorted.sort_by_key(|run| run.elapsed_ns);
    sorted.get(runs.len().saturating_sub(1) / 2).copied()
}

impl Row {
    /// Of runs, with those of the first one in the same rounds; `counted`: a run in which was looked how pages are found.
    pub(crate) fn of(
        job: &'static str,
        variant: &Variant,
        under: &Under,
        runs: &[Observed],
        first: &[Observed],
        counted: Option<&Observed>,
    ) -> Row {
        // What belongs together: medians of each by itself would not add up.
        let typical = typical(runs);
        let time = |of: fn(&Observed) -> u64| typical.map_or(0.0, |run| seconds(of(run)));
        let found = typical.and_then(|run| run.found).or(counted.and_then(|run| run.found));
        let engine = |of: fn(&Counters) -> u64| typical.and_then(|run| run.counters.as_ref()).map(of);
        let reads = typical.and_then(|run| run.reads);
        let device_bytes = reads.map(|reads| reads.bytes);
        let used_bytes = variant.used_bytes();
        let worked_ns = |run: &Observed| run.user_ns + run.system_ns;
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
            idle_s: typical.map_or(0.0, |run| seconds(run.elapsed_ns.saturating_sub(worked_ns(run)))),
            cpu_percent: typical.map_or(0.0, |run| worked_ns(run) as f64 * 100.0 / run.elapsed_ns.max(1) as f64),
            latency_most_s: Spread::of(runs.iter().map(|run| seconds(run.latency_most_ns))).median,
            read_bytes: typical.map_or(0, |run| run.read_bytes),
            write_bytes: typical.map_or(0, |run| run.write_bytes),
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
            timeline: typical.map(|run| run.timeline.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: medians of each count by itself did not add up to the pages that were read.
    #[test]
    fn counts_are_those_of_one_run() {
        let run = |elapsed_ns, found| Observed { elapsed_ns, found: Some(found), ..Observed::default() };
        let runs = [run(9, [7, 2, 1]), run(5, [5, 4, 1]), run(7, [6, 1, 3]), run(1, [0, 0, 10])];
        assert_eq!(typical(&runs).map(|run| run.elapsed_ns), Some(5));
        assert_eq!(typical(&runs[..3]).and_then(|run| run.found), Some([6, 1, 3]));
        assert!(typical(&[]).is_none());
    }

    /// Regression: nor did medians of user, system and idle time add up to that of the whole.
    #[test]
    fn the_times_of_a_row_add_up() {
        let run = |elapsed_ns, user_ns, system_ns| Observed { elapsed_ns, user_ns, system_ns, ..Observed::default() };
        let runs = [run(9_000, 5_000, 1_000), run(5_000, 1_000, 3_000), run(7_000, 2_000, 2_500)];
        let variant = Variant { name: "x".into(), readers: Vec::new(), timeline: false };
        let row = Row::of("x", &variant, &Under { how: crate::How::Kernel, pages: None }, &runs, &runs, None);
        assert!((row.user_s + row.system_s + row.idle_s - row.elapsed_s.median).abs() < 1e-12, "{row:?}");
        assert!((row.cpu_percent - 100.0 * 4.5 / 7.0).abs() < 1e-9);
    }
}

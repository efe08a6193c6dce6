//! The metrics: name, type, unit, help and value in one place.

use crate::counts::Counts;
use crate::refusal::Refusal;
use crate::times::Times;
use ahead_model::PAGE_BYTES;
use ahead_report::metrics::{MetricDescription, MetricValue as Value, TimesValue, reference};
use std::time::Duration;

type Metric = MetricDescription<Counts>;

/// Upper limits of the buckets of times, microseconds: from a short act to one that disturbs.
const BUCKETS_US: [u64; 12] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 10_000, 100_000, 1_000_000];

fn histogram(times: &Times) -> Value {
    let mut below = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BUCKETS_US.len() + 1);
    for limit in BUCKETS_US.map(Duration::from_micros) {
        let up_to = times.count_up_to(limit);
        buckets.push((limit.as_secs_f64(), up_to - below));
        below = up_to;
    }
    buckets.push((f64::INFINITY, times.count() - below));
    Value::Times(TimesValue { buckets, count: times.count(), sum_seconds: times.sum().as_secs_f64() })
}

fn bytes(pages: u64) -> Value {
    Value::Count(pages.saturating_mul(PAGE_BYTES))
}

fn known(value: Option<Value>) -> Value {
    value.unwrap_or(Value::Unknown)
}

/// All metrics, in the order of the page.
pub const METRICS: &[Metric] = &[
    Metric::counter(
        "ahead_steer_decisions_total",
        "decisions",
        "Read-ahead decisions of the kernel that were received",
        |s| Value::Count(s.events),
    ),
    Metric::counter(
        "ahead_steer_lost_events_total",
        "events",
        "Decisions and counts that the observer had no room for",
        |s| Value::Count(s.lost_events),
    ),
    Metric::counter("ahead_steer_files_total", "open files", "Open files of which a decision was seen", |s| {
        Value::Count(s.files)
    }),
    Metric::counter("ahead_steer_acts_total", "acts", "Acts by kind and outcome, as in the log", |s| {
        let labels = |act: &'static str, outcome: &'static str| vec![("act", act), ("outcome", outcome)];
        let all = s.acts.iter();
        Value::Labelled(all.map(|((act, outcome), count)| (labels(act.name(), outcome.name()), *count)).collect())
    })
    .labelled(&["act", "outcome"]),
    Metric::counter(
        "ahead_steer_refusals_total",
        "refusals",
        "Open files and processes that are left alone, and acts that were not done, by reason",
        |s| {
            let all = s.refusals.iter();
            Value::Labelled(all.map(|(why, count)| (vec![("reason", *why)], *count)).collect())
        },
    )
    .labelled(&["reason"]),
    Metric::counter(
        "ahead_steer_undone_total",
        "acts",
        "Windows and fetches that were undone because they did not help",
        |s| Value::Count(s.undone),
    ),
    Metric::counter("ahead_steer_fetched_bytes_total", "bytes", "Bytes that were requested ahead of readers", |s| {
        bytes(s.fetched_pages)
    }),
    Metric::counter(
        "ahead_steer_late_fetches_total",
        "requests",
        "Requests that were dropped because they had waited too long",
        |s| Value::Count(s.expired_fetches),
    ),
    Metric::gauge("ahead_steer_tracked_files", "open files", "Open files that are tracked now", |s| {
        Value::Gauge(s.tracked as f64)
    }),
    Metric::gauge("ahead_steer_steered_windows", "open files", "Open files with a changed window now", |s| {
        Value::Gauge(s.windows as f64)
    }),
    Metric::gauge("ahead_steer_fetched_files", "open files", "Open files whose pages are fetched ahead now", |s| {
        Value::Gauge(s.fetching as f64)
    }),
    Metric::gauge(
        "ahead_steer_own_descriptors",
        "descriptors",
        "Own descriptors of fetched files that are open now",
        |s| Value::Gauge(s.own_descriptors as f64),
    ),
    Metric::gauge("ahead_steer_memory_pressure", "0 or 1", "Whether tasks wait for memory", |s| {
        Value::Gauge(f64::from(u8::from(s.has_pressure)))
    }),
    Metric::times(
        "ahead_steer_decision_to_effect_seconds",
        "Time from a decision whose reader waits to the window that follows from it",
        |s| histogram(&s.latency),
    ),
    Metric::times(
        "ahead_steer_decision_to_fetch_seconds",
        "Time from a decision to the end of the requests that follow from it",
        |s| histogram(&s.fetch_latency),
    ),
    Metric::times(
        "ahead_steer_descriptor_held_seconds",
        "Time for which a descriptor taken from a process was held",
        |s| histogram(&s.held),
    ),
    Metric::times(
        "ahead_steer_disk_setting_exposed_seconds",
        "Time for which the window of a disk had another value; an open file that is opened in it inherits that value",
        |s| histogram(&s.exposed),
    ),
    Metric::counter("ahead_steer_reads_total", "accesses", "Reads and faults; only with --sample-hits", |s| {
        known(s.machine.reads.map(Value::Count))
    }),
    Metric::counter(
        "ahead_steer_hits_total",
        "accesses",
        "Accesses that found their pages cached; only with --sample-hits",
        |s| known(s.machine.counts.hits.map(Value::Count)),
    ),
    Metric::counter("ahead_steer_locked_total", "waits", "Waits for pages that were already being read", |s| {
        Value::Count(s.machine.counts.locked)
    }),
    Metric::counter("ahead_steer_misses_total", "accesses", "Accesses whose page was absent, faults included", |s| {
        Value::Count(s.machine.counts.misses)
    }),
    Metric::counter("ahead_steer_faults_total", "accesses", "Accesses to a mapping whose page was absent", |s| {
        Value::Count(s.machine.counts.faults)
    }),
    Metric::counter(
        "ahead_steer_markers_total",
        "accesses",
        "Accesses to a marked page, which start the next window",
        |s| Value::Count(s.machine.counts.markers),
    ),
    Metric::counter("ahead_steer_waits_total", "waits", "Waits for pages, those after misses included", |s| {
        Value::Count(s.machine.counts.waits)
    }),
    Metric::counter("ahead_steer_wait_seconds_total", "seconds", "Time lost in these waits", |s| {
        Value::Seconds(s.machine.counts.wait_ns as f64 / 1e9)
    }),
    Metric::counter("ahead_steer_issued_bytes_total", "bytes", "Bytes that read-ahead and misses have read", |s| {
        bytes(s.machine.counts.issued_pages)
    }),
    Metric::counter(
        "ahead_steer_used_bytes_total",
        "bytes",
        "Issued bytes that an access touched; only with --sample-hits",
        |s| known(s.machine.counts.used_pages.map(bytes)),
    ),
    Metric::counter("ahead_steer_wasted_bytes_total", "bytes", "Issued bytes that were evicted unused", |s| {
        bytes(s.machine.counts.wasted_pages)
    }),
    Metric::gauge(
        "ahead_steer_unread_bytes",
        "bytes",
        "Issued bytes that are cached and were not used; only with --sample-hits",
        |s| known(s.machine.unread_pages.map(|pages| Value::Gauge(pages as f64 * PAGE_BYTES as f64))),
    ),
    Metric::counter("ahead_steer_thrashed_pages_total", "pages", "Misses of pages that had been issued before", |s| {
        Value::Count(s.machine.counts.thrashed_pages)
    }),
];

/// The table of docs/reference/metrics.md, and the reasons of refusals.
pub fn metrics_reference() -> String {
    let mut text = reference(METRICS);
    text.push_str("\nReasons of `ahead_steer_refusals_total`:\n\n");
    let labels = Refusal::COUNTED.map(|refusal| format!("- {}\n", refusal.label().unwrap_or_default()));
    text.push_str(&labels.concat());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            assert!(metric.name.starts_with("ahead_steer_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind() == "counter", "{}", metric.name);
            assert!(metric.kind() != "histogram" || metric.name.ends_with("_seconds"), "{}", metric.name);
            assert!(!metric.help.ends_with('.') && !metric.help.contains(['|', '\n', '\\']), "{}", metric.name);
        }
        assert_eq!(metrics_reference().lines().count(), METRICS.len() + Refusal::COUNTED.len() + 5);
    }
}

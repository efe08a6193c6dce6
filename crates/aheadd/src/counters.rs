//! What the service counts, and its metrics.

use crate::hold::HoldLosses;
use ahead_report::metrics::{MetricDescription, MetricValue, reference, text};

/// Counts since the start of the service. The loop counts up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Starts that were followed.
    pub starts: u64,
    /// Starts of other users' files, in other mount namespaces, of setuid programs, and those while there was no room.
    pub starts_not_followed: u64,
    pub prefetched_starts: u64,
    /// For comparison.
    pub starts_left_alone: u64,
    pub recordings: u64,
    pub requested_bytes: u64,
    pub wasted_bytes: u64,
    /// Microseconds that followed starts waited for the disk.
    pub waited_us: u64,
    /// Events that the kernel had no room for.
    pub lost_events: u64,
    /// Starts without an account: the kernel's table was full.
    pub lost_starts: u64,
    /// Execs that waited for their head start.
    pub held_execs: u64,
    pub hold_losses: HoldLosses,
    pub is_paused: bool,
}

type Metric = MetricDescription<ServiceCounters>;

/// All metrics, in the order of the page.
const METRICS: &[Metric] = &[
    Metric::counter("aheadd_starts_total", "starts", "Starts of programs that were followed", |c| count(c.starts)),
    Metric::counter(
        "aheadd_starts_not_followed_total",
        "starts",
        "Starts that were left to themselves: setuid programs, containers, no room",
        |c| count(c.starts_not_followed),
    ),
    Metric::counter("aheadd_prefetched_starts_total", "starts", "Starts for which a profile was prefetched", |c| {
        count(c.prefetched_starts)
    }),
    Metric::counter(
        "aheadd_starts_left_alone_total",
        "starts",
        "Starts that were not prefetched, for comparison",
        |c| count(c.starts_left_alone),
    ),
    Metric::counter("aheadd_recordings_total", "recordings", "Starts that were recorded", |c| count(c.recordings)),
    Metric::counter("aheadd_requested_bytes_total", "bytes", "Bytes that were requested ahead of programs", |c| {
        count(c.requested_bytes)
    }),
    Metric::counter("aheadd_wasted_bytes_total", "bytes", "Requested bytes that no start has used", |c| {
        count(c.wasted_bytes)
    }),
    Metric::counter(
        "aheadd_wait_seconds_total",
        "seconds",
        "Time for which followed starts waited for the disk",
        |c| MetricValue::Seconds(c.waited_us as f64 / 1e6),
    ),
    Metric::counter("aheadd_held_execs_total", "execs", "Execs that waited for their head start", |c| {
        count(c.held_execs)
    }),
    Metric::counter(
        "aheadd_execs_not_held_total",
        "execs",
        "Execs of marked programs that did not wait, or not as long as meant, by reason",
        |c| {
            let losses = c.hold_losses;
            let values = [
                ("too many", losses.too_many),
                ("arguments not read in time", losses.unread),
                ("service did not answer in time", losses.unanswered),
                ("queue of the kernel was full", losses.overflows),
            ];
            MetricValue::Labelled(values.map(|(why, count)| (vec![("reason", why)], count)).to_vec())
        },
    )
    .labelled(&["reason"]),
    Metric::counter(
        "aheadd_lost_events_total",
        "events",
        "Execs and ends of starts that the observer had no room for",
        |c| count(c.lost_events),
    ),
    Metric::counter(
        "aheadd_lost_starts_total",
        "starts",
        "Starts without an account, because the table was full",
        |c| count(c.lost_starts),
    ),
    Metric::gauge("aheadd_paused", "0 or 1", "Whether nothing is prefetched or recorded now", |c| {
        MetricValue::Gauge(f64::from(u8::from(c.is_paused)))
    }),
];

fn count(count: u64) -> MetricValue {
    MetricValue::Count(count)
}

impl ServiceCounters {
    /// The text of the metrics.
    pub fn metrics_text(&self) -> String {
        text(METRICS, *self)
    }
}

/// The part of docs/reference/metrics.md about the launch service.
pub fn metrics_reference() -> String {
    format!("\n## The launch service\n\n{}", reference(METRICS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_help_type_and_value() {
        let losses = HoldLosses { unread: 3, ..HoldLosses::default() };
        let counters = ServiceCounters {
            starts: 7,
            waited_us: 1_500_000,
            is_paused: true,
            hold_losses: losses,
            ..ServiceCounters::default()
        };
        let text = counters.metrics_text();
        for line in [
            "aheadd_starts_total 7",
            "aheadd_wait_seconds_total 1.5",
            "aheadd_execs_not_held_total{reason=\"arguments not read in time\"} 3",
            "aheadd_paused 1.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for metric in METRICS {
            assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind() == "counter", "{}", metric.name);
        }
    }
}

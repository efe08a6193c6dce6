//! Metrics in the text format of Prometheus.
//!
//! ```text
//!     METRICS: name, type, unit, help, value ──┬─▶ docs/reference/metrics.md
//!     Counts: the state of now ────────────────┴─▶ text ──┬─▶ file: a temporary one, renamed
//!                                                         └─▶ socket: each connection gets the text, and is closed
//! ```

mod publisher;
mod table;

pub(crate) use publisher::Publisher;
pub use table::{METRICS, MetricDescription, metrics_reference};

use crate::counts::Counts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::Duration;
use table::Value;

/// Upper limits of the buckets of times, microseconds: from a short act to one that disturbs.
const BUCKETS_US: [u64; 12] = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 10_000, 100_000, 1_000_000];

impl Counts {
    /// The text of the metrics.
    pub(crate) fn metrics_text(self) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(self));
        // Writing into a String cannot fail.
        let _ = prometheus_text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in METRICS {
            let value = metric.value(self);
            if matches!(value, Value::Unknown) {
                continue;
            }
            // The encoder adds the suffix of counters.
            let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
            let metric_encoder = encoder.encode_descriptor(name, metric.help, None, metric.kind)?;
            encode_value(metric_encoder, value)?;
        }
        Ok(())
    }
}

fn encode_value(mut encoder: MetricEncoder<'_>, value: Value<'_>) -> fmt::Result {
    match value {
        Value::Count(count) => ConstCounter::new(count).encode(encoder),
        Value::Seconds(seconds) => ConstCounter::new(seconds).encode(encoder),
        Value::Gauge(number) => ConstGauge::new(number).encode(encoder),
        Value::Labelled(values) => values.iter().try_for_each(|(labels, count)| {
            let encoder = encoder.encode_family(labels)?;
            ConstCounter::new(*count).encode(encoder)
        }),
        Value::Times(times) => {
            let mut below = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BUCKETS_US.len() + 1);
            for limit in BUCKETS_US.map(Duration::from_micros) {
                let up_to = times.count_up_to(limit);
                buckets.push((limit.as_secs_f64(), up_to - below));
                below = up_to;
            }
            buckets.push((f64::INFINITY, times.count() - below));
            encoder.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), times.count(), &buckets, None)
        }
        Value::Unknown => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LoggedAct, Outcome};
    use crate::refusal::Refusal;

    fn counts() -> Counts {
        let mut counts = Counts { events: 7, ..Counts::default() };
        counts.act(LoggedAct::Window, Outcome::Done);
        counts.refusal(&Refusal::Advised);
        counts.latency.add(Duration::from_micros(30));
        counts.latency.add(Duration::from_secs(2));
        counts
    }

    #[test]
    fn text_has_help_type_and_values() {
        let text = counts().metrics_text();
        for line in [
            "# TYPE ahead_steer_decisions_total counter",
            "ahead_steer_decisions_total 7",
            "ahead_steer_acts_total{act=\"window\",outcome=\"done\"} 1",
            "ahead_steer_refusals_total{reason=\"the program has set its own advice\"} 1",
            "# TYPE ahead_steer_tracked_files gauge",
            "# TYPE ahead_steer_decision_to_effect_seconds histogram",
            "ahead_steer_decision_to_effect_seconds_count 2",
            "ahead_steer_decision_to_effect_seconds_bucket{le=\"5e-05\"} 1",
            "ahead_steer_decision_to_effect_seconds_bucket{le=\"+Inf\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // Not observed without samples of hits.
        assert!(!text.contains("ahead_steer_hits_total"));
    }

    #[test]
    fn every_metric_appears_when_everything_is_observed() {
        let mut all = counts();
        let machine = &mut all.machine;
        (machine.reads, machine.unread_pages) = (Some(1), Some(1));
        (machine.counts.hits, machine.counts.used_pages) = (Some(1), Some(1));
        let text = all.metrics_text();
        for metric in METRICS {
            assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{}\n{text}", metric.name);
            assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{}", metric.name);
        }
        assert!(text.len() < 64 << 10, "one write to a socket");
    }
}

//! Metrics in the text format of Prometheus.
//!
//! ```text
//!     MetricDescription: name, type, unit, help, value ──┬─▶ reference: docs/reference/metrics.md
//!     the state of now ──────────────────────────────────┴─▶ text
//! ```

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::{self, Debug, Write};

/// A metric, with its value in a state.
#[derive(Debug)]
pub struct MetricDescription<S> {
    pub name: &'static str,
    kind: MetricType,
    /// Unit of its values.
    pub unit: &'static str,
    pub labels: &'static [&'static str],
    /// What it counts.
    pub help: &'static str,
    value: fn(&S) -> MetricValue,
}

/// A value of a metric.
#[derive(Debug)]
pub enum MetricValue {
    Count(u64),
    Seconds(f64),
    Gauge(f64),
    /// Counts by the values of labels.
    Labelled(Vec<(Vec<(&'static str, &'static str)>, u64)>),
    Times(TimesValue),
    /// Not observed: the metric is left out.
    Unknown,
}

/// A histogram of times.
#[derive(Debug)]
pub struct TimesValue {
    /// Upper limits in seconds, with the number of times below each and above the one before.
    pub buckets: Vec<(f64, u64)>,
    pub count: u64,
    pub sum_seconds: f64,
}

impl<S> MetricDescription<S> {
    /// A counter.
    pub const fn counter(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        value: fn(&S) -> MetricValue,
    ) -> Self {
        MetricDescription { name, kind: MetricType::Counter, unit, labels: &[], help, value }
    }

    /// A counter for each value of its labels.
    pub const fn labelled(self, labels: &'static [&'static str]) -> Self {
        let MetricDescription { name, kind, unit, help, value, .. } = self;
        MetricDescription { name, kind, unit, labels, help, value }
    }

    /// A value that goes up and down.
    pub const fn gauge(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        value: fn(&S) -> MetricValue,
    ) -> Self {
        MetricDescription { name, kind: MetricType::Gauge, unit, labels: &[], help, value }
    }

    /// A histogram of times.
    pub const fn times(name: &'static str, help: &'static str, value: fn(&S) -> MetricValue) -> Self {
        MetricDescription { name, kind: MetricType::Histogram, unit: "seconds", labels: &[], help, value }
    }

    /// Its type: `counter`, `gauge` or `histogram`.
    pub fn kind(&self) -> &str {
        self.kind.as_str()
    }
}

/// The text of the metrics.
pub fn text<S: Debug + Send + Sync + 'static>(metrics: &'static [MetricDescription<S>], state: S) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(StateOf { metrics, state }));
    // Writing into a String cannot fail.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

/// The table of docs/reference/metrics.md.
pub fn reference<S>(metrics: &[MetricDescription<S>]) -> String {
    let mut text = String::from("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for metric in metrics {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, unit, help) = (metric.name, metric.kind(), metric.unit, metric.help);
        // Writing into a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {} | {help} |", labels.join(", "));
    }
    text
}

#[derive(Debug)]
struct StateOf<S: 'static> {
    metrics: &'static [MetricDescription<S>],
    state: S,
}

impl<S: Debug + Send + Sync + 'static> Collector for StateOf<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.metrics {
            let value = (metric.value)(&self.state);
            if matches!(value, MetricValue::Unknown) {
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

fn encode_value(mut encoder: MetricEncoder<'_>, value: MetricValue) -> fmt::Result {
    match value {
        MetricValue::Count(count) => ConstCounter::new(count).encode(encoder),
        MetricValue::Seconds(seconds) => ConstCounter::new(seconds).encode(encoder),
        MetricValue::Gauge(number) => ConstGauge::new(number).encode(encoder),
        MetricValue::Labelled(values) => values.iter().try_for_each(|(labels, count)| {
            let encoder = encoder.encode_family(labels)?;
            ConstCounter::new(*count).encode(encoder)
        }),
        MetricValue::Times(times) => {
            encoder.encode_histogram::<NoLabelSet>(times.sum_seconds, times.count, &times.buckets, None)
        }
        MetricValue::Unknown => Ok(()),
    }
}

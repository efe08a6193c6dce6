//! The metrics of steering.

mod table;

pub use table::{METRICS, metrics_reference};

use crate::counts::Counts;

impl Counts {
    /// The text of the metrics.
    pub(crate) fn metrics_text(self) -> String {
        ahead_report::metrics::text(METRICS, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LoggedAct, Outcome};
    use crate::refusal::Refusal;
    use std::time::Duration;

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

//! `ahead steer`: the read-ahead of running programs, set by what they do.

mod lines;

use ahead_cli::messages;
use ahead_model::quantity::{parse_size_with_unit, parse_time};
use ahead_process::{MetricsPlace, Signals};
use ahead_report::text::one_line;
use ahead_steer::{Engine, Helpers, LogEntry, LoggedAct, Rules, RulesError, Settings, metrics_place};
use clap::Args;
use lines::Lines;
use sd_notify::NotifyState;
use serde_json::json;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Steer the read-ahead of running programs: windows of single open files, fetches ahead
///
/// Watches the decisions of the kernel's read-ahead, finds the pattern of each open file, and acts where readers wait or most of what is read
/// is not used: sets the window of that open file alone, or fetches pages that the kernel does not expect. What does not help is undone.
/// Programs that give their own advice are left alone. Runs until a signal; SIGTERM and Ctrl-C put everything back, SIGHUP reads the rules
/// again. No program runs at an access to cached pages, except with --sample-hits. Needs root.
#[derive(Debug, Args)]
pub struct Steer {
    /// Which programs and files are steered, and how far: a file in TOML (see docs/reference/rules.md)
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Change nothing: print what would be done, and why
    #[arg(long)]
    dry_run: bool,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// Print one JSON object for each act, and a summary at the end (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
    /// Publish metrics for Prometheus in this file, which is replaced each second, or on a Unix socket (unix: alone is /run/ahead/steer.sock)
    #[arg(long, value_name = "FILE|unix:SOCKET", value_parser = metrics_place)]
    metrics: Option<MetricsPlace>,
    /// Count accesses to cached pages, too, in one of N blocks of 64 pages; a BPF program then runs at each access
    #[arg(long, value_name = "N")]
    sample_hits: Option<NonZeroU32>,
    /// Largest window, as in 4M; the rules may have a smaller one [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_window)]
    max_window: Option<u64>,
}

/// A window has at least a page, and at most as many as the kernel's counter in `struct file_ra_state` holds with room to double: 1 GiB.
const WINDOWS: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

fn parse_window(text: &str) -> Result<u64, String> {
    let bytes = parse_size_with_unit(text)?;
    let is_window = WINDOWS.contains(&bytes) && bytes % 4096 == 0;
    is_window.then_some(bytes).ok_or_else(|| format!("{text:?} is not a window; write a multiple of 4K up to 1G"))
}

impl Steer {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.settings()?;
        // Before any thread: they inherit the mask, and a process with threads cannot fork a copy of itself that works.
        let signals = Signals::take()?;
        let helpers = (!self.dry_run).then(Helpers::start).transpose()?;
        let is_json = self.json;
        let mut lines = Lines::start(std::io::stdout());
        let mut log = |entry: &LogEntry| match is_json {
            true => lines.put(json!(entry).to_string()),
            // Rules may exclude each program that starts on a machine. The summary counts them.
            false if is_excluded(entry) => {}
            false => lines.put(one_line(&entry.to_string())),
        };
        let mut engine = Engine::new(settings, helpers, &mut log)?;
        self.announce(&engine.sources());
        // Without a service manager there is no socket, and nothing is sent.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        let summary = engine.run(&signals)?;
        // Another one may steer while the reader of the output pauses.
        drop(engine);
        let text = if is_json { json!({ "summary": summary }).to_string() } else { format!("\n{summary}") };
        let dropped = lines.end(text);
        if dropped > 0 {
            messages::print(&format!("{dropped} lines of the log are missing: the reader of the output was too slow"));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Says on standard error what begins.
    fn announce(&self, sources: &[String]) {
        let what = if self.dry_run { "observing only (--dry-run)" } else { "steering" };
        let which = match &self.rules {
            Some(rules) => format!("what {} permits", rules.display()),
            None => "every program".into(),
        };
        let end =
            self.duration.map_or_else(|| "until a signal".into(), |time| format!("for {:.0} s", time.as_secs_f64()));
        messages::print(&format!("{what}: {which}, {end}"));
        for (index, source) in sources.iter().enumerate() {
            messages::print(&if index == 0 { source.clone() } else { format!("not seen: {source}") });
        }
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let rules = self.rules.as_deref().map(load).transpose()?;
        Ok(Settings {
            rules: rules.unwrap_or_default(),
            rules_file: self.rules.clone(),
            max_window_bytes: self.max_window,
            dry_run: self.dry_run,
            duration: self.duration,
            metrics: self.metrics.clone(),
            sample_hits: self.sample_hits,
        })
    }
}

/// Whether the rules exclude it.
fn is_excluded(entry: &LogEntry) -> bool {
    entry.act == LoggedAct::None && entry.reason.contains("rule")
}

/// Loads rules. A mistake in the text is reported with the file.
fn load(path: &Path) -> anyhow::Result<Rules> {
    Rules::load(path).map_err(|error| match error {
        RulesError::Text { .. } | RulesError::TooLarge => {
            anyhow::Error::from(error).context(path.display().to_string())
        }
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_whole_pages_with_a_unit() {
        assert_eq!(parse_window("4M"), Ok(4 << 20));
        for wrong in ["4096", "0", "6K", "2K", "2G", "-4K", "x"] {
            assert!(parse_window(wrong).is_err(), "{wrong}");
        }
    }
}

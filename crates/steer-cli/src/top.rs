//! `ahead top`: the read-ahead of every open file of every process.

mod columns;
mod explained;
mod interface;
mod screen;

use ahead_cli::exit::{Stopped, UsageError};
use ahead_cli::messages;
use ahead_model::quantity::parse_time;
use ahead_process::Signals;
use ahead_report::table::Screen;
use ahead_top::{DecisionSource, Filter, Sample, Sampler, SortKey, file_json, keep, process_exists, totals_json};
use anyhow::bail;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Show the read-ahead of running programs: windows, patterns, hits, misses, waste
///
/// On a terminal the table is live: q ends it, arrows select a file, Enter shows which of its pages are cached. Needs root.
///
/// An access finds its page present (a hit), in flight (locked) or absent (a miss). ISSUED is what the kernel read, USED and WASTED are the
/// parts that were used and that were evicted unused, AMPL is ISSUED by USED. While counts are taken (without --once, or with --interval),
/// a BPF program runs at each access to a cached page, which costs some hundred nanoseconds.
#[derive(Debug, Args)]
pub struct Top {
    /// Print the open files once and end: their states, and with --interval what is counted in that time, or else what a running ahead
    /// steer has counted
    #[arg(long)]
    once: bool,
    /// Count accesses, waits and waste in intervals of this length [default without --once: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    interval: Option<Duration>,
    /// Print JSON (see docs/reference/json.md): with --once one list, otherwise one line for each interval
    #[arg(long)]
    json: bool,
    /// Order of the files, the largest number first [default: wait, without counts cached]
    #[arg(long, value_name = "KEY", value_parser = keys())]
    sort: Option<SortKey>,
    /// Only this process; several times: any of them
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Only files with such a path, as in '/srv/**/*.db' or '*.db'; several times: any of them
    #[arg(long, visible_alias = "file", value_name = "PATTERN")]
    path: Vec<OsString>,
    /// Only files of the file system that this path lies on
    #[arg(long, value_name = "PATH")]
    mount: Vec<PathBuf>,
    /// Only processes of this control group and of those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<OsString>,
    /// Print at most this number of files
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// End after this number of intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "once")]
    count: Option<u64>,
    /// Say in words what the kernel does with each open file of this process, why, and what would be better
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["once", "count", "pid"])]
    explain: Option<u32>,
    /// Count by this source of read-ahead decisions or fail: tracepoints, fentry or kprobes (BPF) [default: the best one that works here]
    #[arg(long, value_name = "SOURCE", value_parser = parse_source)]
    source: Option<DecisionSource>,
}

/// Counts of a shorter interval say little, and each costs a look at every open file. A longer one is a mistake in the unit.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86_400);
/// The default interval.
const INTERVAL: Duration = Duration::from_secs(1);

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_time(text)?;
    let is_possible = INTERVALS.contains(&interval);
    is_possible
        .then_some(interval)
        .ok_or_else(|| format!("{text:?} is not an interval; write a time from 10ms to 1440m"))
}

fn parse_source(text: &str) -> Result<DecisionSource, String> {
    DecisionSource::NAMED.into_iter().find(|source| source.name() == text).ok_or_else(|| {
        let names = DecisionSource::NAMED.map(DecisionSource::name);
        format!("unknown source; expected one of {}", names.join(", "))
    })
}

fn keys() -> impl TypedValueParser<Value = SortKey> {
    let key =
        |name: String| SortKey::NAMES.iter().find(|(known, _)| *known == name).map_or(SortKey::Pid, |(_, key)| *key);
    PossibleValuesParser::new(SortKey::NAMES.map(|(name, _)| name)).map(key)
}

impl Top {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let filter = self.filter()?;
        if let Some(pid) = self.explain {
            return explained::run(pid, self.interval.unwrap_or(INTERVAL), self.source, &filter, self.limit, self.json);
        }
        let counts = !self.once || self.interval.is_some();
        let running = if counts { None } else { ahead_steer::running_counters() };
        let has_counts = counts || running.is_some();
        if let Some(key) = self.sort.filter(|key| key.needs_counts() && !has_counts) {
            let name = key.name();
            bail!(UsageError(format!("--sort {name} needs counts: add --interval 1s, or leave --once out")));
        }
        if self.source.is_some() && !counts {
            bail!(UsageError("--source needs counts: add --interval 1s, or leave --once out".into()));
        }
        // Before any thread: they inherit the mask.
        let signals = Signals::take()?;
        let mut sampler = match running {
            Some((tables, since)) => Sampler::beside(tables, since)?,
            None => Sampler::new(counts, self.source)?,
        };
        sampler.missing().iter().for_each(|missing| messages::print(&format!("not seen: {missing}")));
        if self.once {
            if let Some(interval) = self.interval {
                wait(&signals, interval)?;
            }
            return self.print_once(sampler.sample(&filter)?);
        }
        if !self.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
            return interface::run(&self, sampler, &filter, &signals);
        }
        self.print_intervals(&mut sampler, &filter, &signals)
    }

    fn filter(&self) -> anyhow::Result<Filter> {
        let pids = self.explain.map_or_else(|| self.pid.clone(), |pid| vec![pid]);
        if let Some(pid) = pids.iter().find(|pid| !process_exists(**pid)) {
            bail!("there is no process {pid}");
        }
        let mut filter = Filter::default();
        filter.pids = pids;
        for pattern in &self.path {
            let usage = |why| UsageError(format!("--path {}: {why}", pattern.display()));
            filter.add_path(pattern.as_bytes()).map_err(usage)?;
        }
        self.mount.iter().try_for_each(|path| filter.add_mount(path))?;
        self.cgroup.iter().for_each(|group| filter.add_group(group.as_bytes()));
        Ok(filter)
    }

    fn key(&self, has_counts: bool) -> SortKey {
        self.sort.unwrap_or(if has_counts { SortKey::Wait } else { SortKey::Cached })
    }

    /// Keeps what is printed: in order, at most `--limit` files, with their paths.
    fn arrange(&self, sample: &mut Sample) {
        keep(&mut sample.files, self.key(sample.interval.is_some()), self.limit.unwrap_or(usize::MAX));
        sample.files.iter_mut().for_each(|file| file.look_up_path());
    }

    fn print_once(&self, mut sample: Sample) -> anyhow::Result<ExitCode> {
        self.arrange(&mut sample);
        let text = match self.json {
            true => format!("{:#}\n", Value::Array(files_json(&sample))),
            false => columns::text(&sample, Screen::stdout()),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    fn print_intervals(&self, sampler: &mut Sampler, filter: &Filter, signals: &Signals) -> anyhow::Result<ExitCode> {
        let mut left = self.count;
        while left != Some(0) {
            wait(signals, self.interval.unwrap_or(INTERVAL))?;
            let mut sample = sampler.sample(filter)?;
            self.arrange(&mut sample);
            let text = match self.json {
                true => format!("{}\n", interval_json(&sample)),
                false => columns::text(&sample, Screen::stdout()) + "\n",
            };
            std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush())?;
            left = left.map(|left| left - 1);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits for the end of an interval. A signal that asks for an end is an error.
fn wait(signals: &Signals, interval: Duration) -> anyhow::Result<()> {
    let end = std::time::Instant::now() + interval;
    loop {
        match signals.wait(Some(end.saturating_duration_since(std::time::Instant::now())))? {
            Some(signal) if signal.asks_to_stop() => bail!(Stopped(signal.number)),
            Some(_) => {}
            None => return Ok(()),
        }
    }
}

fn files_json(sample: &Sample) -> Vec<Value> {
    sample.files.iter().map(|file| file_json(file, sample.interval)).collect()
}

fn interval_json(sample: &Sample) -> Value {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time": time.as_secs_f64(),
        "interval_s": sample.interval.map(|interval| interval.as_secs_f64()),
        "totals": totals_json(&sample.totals, sample.interval),
        "files": files_json(sample),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_limits() {
        assert_eq!(parse_interval("1s"), Ok(INTERVAL));
        for wrong in ["1", "0s", "1ms", "1441m", "-1s"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sources_have_names() {
        for source in DecisionSource::NAMED {
            assert_eq!(parse_source(source.name()), Ok(source));
        }
        let refused = parse_source("missing").unwrap_err();
        assert_eq!(refused, "unknown source; expected one of tracepoints, fentry, kprobes");
    }

    #[test]
    fn line_of_an_interval_has_time_totals_and_files() {
        let sample = Sample { interval: Some(INTERVAL), files: vec![Default::default()], ..Sample::default() };
        let value = interval_json(&sample);
        assert!(value["time"].as_f64().unwrap() > 1e9 && value["totals"].is_object(), "{value}");
        assert_eq!((value["files"].as_array().unwrap().len(), &value["interval_s"]), (1, &json!(1.0)));
    }
}

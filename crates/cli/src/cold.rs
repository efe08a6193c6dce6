//! `ahead cold`: flags, and the report of the library's measurement.

use crate::until::UntilArguments;
use crate::{compare, messages};
use ahead::Signals;
use ahead::compare::{ColdAndWarm, ColdReport, Enough, INTERVAL_SHARE, Input, LEAST_RUNS, Measured, Sample};
use ahead_report::json;
use ahead_report::number::{count, grouped, size};
use ahead_report::progress::Progress;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{command_line, printable};
use ahead_sys::user::User;
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Measure any command cold against warm, without a profile
///
/// The first run finds the files that the command uses. Then cold and warm runs are interleaved, until the interval that holds the median
/// with 95 % reaches no further than 3 % to either side, at most 30 of each and three minutes. Root evicts everything before a cold run, and
/// records the first run exactly. Other users evict the data of the files that the first run has used; names and inodes stay cached, and
/// what other processes have mapped. Then the cold times are too short.
///
/// Every run gets the same standard input, as with `ahead compare`. If the command fails, `cold` stops with status 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo ahead cold -- git status
  ahead cold --runs 10 --json -- python3 -c 'import json'
  sudo ahead cold --until-port 8080 -- ./server")]
pub struct Cold {
    /// Rounds [default: until the intervals are small]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Shell command to run before each run, its time not included (to remove what the last run left)
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Go on though the command ends with a status other than 0
    #[arg(short, long)]
    ignore_failure: bool,
    /// Show what the command prints
    #[arg(long, conflicts_with = "json")]
    show_output: bool,
    /// Print JSON with the keys of hyperfine's results
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    until: UntilArguments,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Rows of files that stay cached.
const ROWS: usize = 5;

impl Cold {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let setup = ColdAndWarm::new(self.command.clone())
            .user(User::behind_sudo()?)
            .until(self.until.until())
            .runs(self.runs)
            .prepare(self.prepare.clone())
            .ignore_failure(self.ignore_failure)
            .show_output(self.show_output)
            .input(Input::take(&messages::print)?);
        let report = measure(&setup)?;
        let text = match self.json {
            true => format!("{:#}\n", self.json(&report)?),
            false => self.text(&report),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    fn words(&self) -> Vec<Vec<u8>> {
        self.command.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    /// The schema is documented in docs/reference/json.md.
    fn json(&self, report: &ColdReport) -> anyhow::Result<Value> {
        let words = self.words();
        let mut value = serde_json::to_value(report)?;
        let command = command_line(&words);
        let results = [("cold", &report.cold), ("warm", &report.warm)];
        value["results"] = results.map(|(cache, measured)| result(&command, cache, measured)).to_vec().into();
        value["command"] = json::lossy(&words).into();
        if let Some(percent) = json::percent_where_needed(&words) {
            value["command_percent"] = percent.into();
        }
        let kept = report.kept_files.iter().map(|file| {
            let mut kept = json!({
                "kept_bytes": file.after.map(|after| ahead::cold::bytes_of(after.cached())),
                "reason": file.reason(),
                "mapped_by": file.mapped_by,
            });
            json::add_path(&mut kept, "path", &file.path);
            kept
        });
        value["kept_files"] = kept.collect();
        Ok(value)
    }

    fn text(&self, report: &ColdReport) -> String {
        let screen = Screen::stdout();
        let number = Kind::Number;
        let columns = ["median", "± 95 %", "mean", "min", "max", "user", "system", "requests", "device reads"];
        let mut table = Table::new([("", Kind::Text)].into_iter().chain(columns.map(|name| (name, number))));
        for (name, measured) in [("cold", &report.cold), ("warm", &report.warm)] {
            let figures = Figures::of(measured);
            let seconds = |s: f64| format!("{s:.3} s");
            let interval = figures.interval.map_or("–".into(), |(low, high)| {
                format!("{:.1} %", (high - figures.median).max(figures.median - low) / figures.median * 100.0)
            });
            let times =
                [figures.mean, measured.spread.min, measured.spread.max, figures.user, figures.system].map(seconds);
            let reads = [grouped(measured.device.requests), size(measured.device.bytes)];
            let head = [name.to_owned(), seconds(figures.median), interval];
            table.row(head.into_iter().chain(times).chain(reads));
        }
        let (heading, table) = (screen.heading(&command_line(&self.words())), table.render(screen));
        let remarks: String = remarks(report).into_iter().map(|remark| remark + "\n").collect();
        let ratio = report.cold.spread.median / report.warm.spread.median;
        let verdict = match report.cold_state.is_cold {
            true => format!("cold takes {ratio:.1} times as long as warm"),
            false => "no verdict: not cold, because most of the files stayed cached".into(),
        };
        format!("{heading}\n{}\n\n{table}\n{remarks}{}\n", conditions(report), screen.heading(&verdict))
    }
}

fn measure(setup: &ColdAndWarm) -> anyhow::Result<ColdReport> {
    let (bar, mut done) = (Progress::new(1), 0);
    let mut progress = |step: &str, steps: u64| {
        bar.at(done, steps.max(done), step);
        done += 1;
    };
    setup.measure(&Signals::take()?, &messages::print, &mut progress).map_err(|error| match error {
        ahead::Error::CommandFailed(_) => anyhow::anyhow!("{error}; --ignore-failure measures it"),
        error => error.into(),
    })
}

/// The figures of hyperfine.
struct Figures {
    mean: f64,
    stddev: Option<f64>,
    median: f64,
    user: f64,
    system: f64,
    interval: Option<(f64, f64)>,
}

impl Figures {
    fn of(measured: &Measured) -> Figures {
        let runs = measured.samples.len() as f64;
        let mean_of = |value: fn(&Sample) -> f64| measured.samples.iter().map(value).sum::<f64>() / runs;
        let mean = mean_of(|sample| sample.s);
        let squares: f64 = measured.samples.iter().map(|sample| (sample.s - mean).powi(2)).sum();
        Figures {
            mean,
            // Of a sample, as hyperfine: divided by one run less.
            stddev: (runs > 1.0).then(|| (squares / (runs - 1.0)).sqrt()),
            median: measured.spread.median,
            user: mean_of(|sample| sample.user_s),
            system: mean_of(|sample| sample.system_s),
            interval: ColdReport::interval(measured),
        }
    }
}

/// An entry of hyperfine's `results`, and what it does not have.
fn result(command: &str, cache: &str, measured: &Measured) -> Value {
    let Figures { mean, stddev, median, user, system, interval } = Figures::of(measured);
    json!({
        "command": command,
        "mean": mean,
        "stddev": stddev,
        "median": median,
        "user": user,
        "system": system,
        "min": measured.spread.min,
        "max": measured.spread.max,
        "times": measured.samples.iter().map(|sample| sample.s).collect::<Vec<_>>(),
        "exit_codes": measured.samples.iter().map(|sample| sample.status).collect::<Vec<_>>(),
        "parameters": { "cache": cache },
        "median_interval": interval,
        "device": measured.device,
        "evicted_bytes": measured.evicted_bytes,
        "repeated": measured.repeated,
    })
}

fn conditions(report: &ColdReport) -> String {
    let window = report.read_ahead_kb_seen.first().map_or("unknown".into(), |kb| format!("{kb} KiB"));
    let disk = report
        .model
        .as_deref()
        .map_or(String::new(), |model| format!(", emulated disk: {}", printable(model.as_bytes())));
    let (kernel, machine, runs) = (&report.kernel, &report.machine, report.runs);
    format!("Linux {kernel}, {machine}; read-ahead {window}{disk}; {runs} rounds, interleaved")
}

fn remarks(report: &ColdReport) -> Vec<String> {
    let files = format!("{} of {}", size(report.files_bytes), count(report.files, "file", "files"));
    let mut remarks = vec![match report.files_by {
        "from outside" => {
            format!("used: {files}, seen from outside: a lower bound, and the cold times may be too short")
        }
        by => format!("used: {files}, by {by}"),
    }];
    if !report.is_precise {
        let percent = INTERVAL_SHARE * 100.0;
        remarks.push(match report.enough {
            _ if report.runs < LEAST_RUNS => format!("too few rounds for an interval: it takes {LEAST_RUNS}"),
            Enough::Time => format!("not precise: the intervals are wider than {percent} % after three minutes"),
            _ => format!(
                "not precise: the intervals are wider than {percent} % after {}",
                count(u64::from(report.runs), "round", "rounds")
            ),
        });
    }
    if report.read_ahead_kb_seen.len() > 1 || report.recorded_meanwhile {
        remarks.push("another process changed the read-ahead or recorded meanwhile: measure again".into());
    }
    let repeated = report.cold.repeated.len() + report.warm.repeated.len();
    if repeated > 0 {
        let runs = count(repeated as u64, "run", "runs");
        remarks.push(format!("{runs} measured again, because the kernel evicted pages meanwhile"));
    }
    remarks.extend(compare::coldness(&report.cold_state, report.model.is_some()));
    for file in report.kept_files.iter().take(ROWS) {
        let (path, why) = (printable(&file.path), file.reason().unwrap_or_default());
        remarks.push(format!("  {}: {why}", path));
    }
    if report.kept_files.len() > ROWS {
        remarks.push(format!("  and {}", count((report.kept_files.len() - ROWS) as u64, "more file", "more files")));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_hyperfine() {
        let samples = [1.0, 2.0, 4.0, 5.0].map(|s| {
            let mut sample = Sample::default();
            (sample.s, sample.user_s) = (s, s / 2.0);
            sample
        });
        let mut measured = Measured::default();
        measured.samples = samples.to_vec();
        measured.spread = ahead::compare::Spread::of(samples.iter().map(|sample| sample.s));
        let value = result("x 'a b'", "cold", &measured);
        assert_eq!((&value["mean"], &value["median"], &value["user"]), (&3.0.into(), &3.0.into(), &1.5.into()));
        assert!((value["stddev"].as_f64().unwrap() - (10.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((&value["times"].as_array().unwrap().len(), &value["median_interval"]), (&4, &Value::Null));
        measured.samples.truncate(1);
        assert_eq!(result("x", "warm", &measured)["stddev"], Value::Null);
    }
}

//! `ahead probe`: measures the behaviour of a disk and a kernel.

mod pages;

use crate::interruptible::undisturbed;
use ahead::device_store;
use ahead_cli::exit::{Stopped, UsageError};
use ahead_cli::output::{self, Output};
use ahead_device::Model;
use ahead_measure::probe::figures::pelouin;
use ahead_measure::probe::verify::{self, Check};
use ahead_measure::probe::{Answer, Answers, Error, Part, Run, Subject, Watcher, find};
use ahead_model::quantity::parse_size_with_unit;
use ahead_process::Signals;
use ahead_report::number::{grouped, size};
use ahead_report::progress::Progress;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use ahead_sys::user::User;
use ahead_sys::within::check_answers;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Length of the test file, bytes: sixteen windows of 8 MiB, the largest default of Linux.
const SIZE_BYTES: u64 = 128 << 20;
/// Shortest test file where space is scarce, bytes: some windows of the usual 128 KiB.
const MIN_BYTES: u64 = 8 << 20;

/// Lower limit of --size, bytes: a shorter file gives no results.
const MIN_ASKED_BYTES: u64 = 1 << 20;

/// Time limit of the part `cache` if it is not asked for explicitly: enough for the test file on a disk of 64 MB/s, and a small part of a
/// probe.
const CACHE_TIME: Duration = Duration::from_secs(2);

/// Find out what a disk and a kernel really do: windows, block size, access time, bandwidth
///
/// Reads a test file (or the given file or block device), and measures times and cached pages. It reads no settings: the answers describe the
/// behaviour. An answer that cannot be determined is not guessed. As root it also reads the disk (and never writes it): seeks over the whole
/// disk, and reads of metadata.
#[derive(Debug, Args)]
pub struct Probe {
    /// A directory on the disk (the test file in it has no name), a file, or a block device that is not in use
    path: PathBuf,
    /// Use only times of reads, as Pelouin did: no cachestat, no mincore, no SEEK_HOLE
    #[arg(long)]
    timing_only: bool,
    /// Measure only these parts, separated by commas [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_enum, conflicts_with_all = ["figures", "model", "save"])]
    only: Vec<PartChoice>,
    /// Length of the test file in a directory, at least 1M [default: 128M, or less if space is scarce]
    #[arg(long, value_parser = parse_length)]
    size: Option<u64>,
    /// Compare with sysfs, superblock, FIEMAP and the model of an emulated disk; exit status 1 if a value differs
    #[arg(long)]
    verify: bool,
    /// Write Pelouin's figures 1 to 5, from the data of this disk, to this directory, as SVG and as a page
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Write the disk's twin, a model for `ahead sim` and `ahead disk`, to this file
    #[arg(long, value_name = "OUT.toml")]
    model: Option<PathBuf>,
    /// Keep the description of this device (by the serial number of the disk, or the UUID of the file system), so that `ahead run`, `replay`
    /// and `compare` plan with it: as root for all users (/var/lib/ahead/devices), else for you ($XDG_STATE_HOME/ahead/devices)
    #[arg(long)]
    save: bool,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
}

/// A part of a probe.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PartChoice {
    /// Windows of a sequential reader, explicit requests, read-around of faults
    Windows,
    /// Pages that a fault on cached pages maps
    Faults,
    /// Amount of data that stays cached: reads all of the file, by default for at most 2 seconds
    Cache,
    /// Block size, direct and indirect blocks
    Layout,
    /// Access time, bandwidth, requests at once, seeks, limits
    Disk,
}

impl PartChoice {
    /// The part of the library. `limit`: time limit if all parts are measured.
    fn part(self, limit: Option<Duration>) -> Part {
        match self {
            PartChoice::Windows => Part::Windows,
            PartChoice::Faults => Part::Faults,
            PartChoice::Cache => Part::Cache(limit),
            PartChoice::Layout => Part::Layout,
            PartChoice::Disk => Part::Disk,
        }
    }
}

/// The length of a test file.
fn parse_length(text: &str) -> Result<u64, String> {
    match parse_size_with_unit(text)? {
        bytes @ MIN_ASKED_BYTES.. => Ok(bytes),
        _ => Err(format!("{text} is too short: a test file needs at least 1M")),
    }
}

/// Shows progress, and ends the probe when a signal asks to stop.
struct Watching {
    progress: Progress,
    signals: Signals,
    /// The signal that ended the probe; 0: none.
    stopped: AtomicI32,
}

impl Watcher for Watching {
    fn go_on(&self, what: &str) -> ahead_measure::probe::Result<()> {
        self.progress.say(what);
        match self.signals.poll() {
            Some(signal) if signal.asks_to_stop() => {
                self.stopped.store(signal.number, Ordering::Relaxed);
                Err(Error::Stopped)
            }
            _ => Ok(()),
        }
    }
}

/// Gives a usage error its exit status.
fn as_usage(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Error::Usage(text)) => UsageError(text.clone()).into(),
        _ => error,
    }
}

impl Probe {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        // Before the work: a device that cannot be distinguished from others has no place for its description.
        let identity = self.save.then(|| device_store::identity_of_path(&self.path).map_err(anyhow::Error::msg));
        let identity = identity.transpose()?;
        let model = output::with_rights_of(user.as_ref(), || self.prepare_outputs())?;
        // Before the progress starts: the thread of the spinner must not receive a signal.
        let signals = Signals::take()?;
        let watching = Watching { progress: Progress::spinner(), signals, stopped: AtomicI32::new(0) };
        let worked = undisturbed(|| self.work(&watching));
        // A signal is the reason, whatever the error is.
        match watching.stopped.load(Ordering::Relaxed) {
            0 => {}
            number => bail!(Stopped(number)),
        }
        let (answers, figures, checks) = worked.map_err(as_usage)?;
        drop(watching);
        // Printed before the files are written: a failed write must not lose the results.
        let text = if self.json { json(&answers, &checks)? } else { text(&answers, &checks, Screen::stdout()) };
        std::io::stdout().write_all(text.as_bytes())?;
        output::with_rights_of(user.as_ref(), || self.write_outputs(model.as_ref(), &answers, &figures))?;
        if let Some(identity) = identity {
            let (model, origin) = (self.twin(&answers, "twin")?, format!("ahead probe of {}", shown(&self.path)));
            let saved = device_store::save(&identity, &origin, model.device_description());
            let path = saved.with_context(|| format!("keep the description of {identity}"))?;
            eprintln!("ahead: the description of {} is kept in {}", printable(identity.as_bytes()), path.display());
        }
        Ok(ExitCode::from(u8::from(checks.iter().any(|check| check.agrees == Some(false)))))
    }

    fn work(
        &self,
        watching: &Watching,
    ) -> anyhow::Result<(Answers, Vec<ahead_measure::probe::figures::Figure>, Vec<Check>)> {
        check_answers(&self.path)?;
        let subject = Subject::new(&self.path, self.size_bytes()?, self.timing_only, watching)?;
        let run = Run { subject: &subject, watcher: watching };
        let wanted = if self.only.is_empty() { PartChoice::value_variants() } else { &self.only };
        let limit = self.only.is_empty().then_some(CACHE_TIME);
        let parts: Vec<Part> = wanted.iter().map(|choice| choice.part(limit)).collect();
        let answers = find(&run, &parts)?;
        let figures = match &self.figures {
            Some(_) => pelouin(&run)?,
            None => Vec::new(),
        };
        let checks = if self.verify { verify::check(&subject, &answers)? } else { Vec::new() };
        Ok((answers, figures, checks))
    }

    /// The length of the test file.
    fn size_bytes(&self) -> anyhow::Result<u64> {
        if let Some(bytes) = self.size {
            if self.path.exists() && !self.path.is_dir() {
                let why = "leave out --size, which is for test files, or give a directory";
                return Err(Error::Usage(format!("{} is not a directory; {why}", shown(&self.path))).into());
            }
            return Ok(bytes & !4095);
        }
        let space = rustix::fs::statvfs(&self.path).with_context(|| format!("statfs {}", self.path.display()))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        Ok(SIZE_BYTES.min((free_bytes / 2).max(MIN_BYTES)) & !4095)
    }

    /// Checks the output paths; returns the file for the model.
    fn prepare_outputs(&self) -> anyhow::Result<Option<Output>> {
        let model = self.model.as_deref().map(Output::prepare).transpose()?;
        if let Some(directory) = &self.figures {
            output::check_pages(directory, pages::PAGE)?;
        }
        Ok(model)
    }

    /// The model of the disk that was found.
    fn twin(&self, answers: &Answers, name: &str) -> anyhow::Result<Model> {
        let twin = answers.disk.twin.as_ref().context("too little is known of the disk for a model")?;
        let model = twin.model(name, &format!("result of `ahead probe` for {}", shown(&self.path)));
        model.context("the results give no valid model")
    }

    fn write_outputs(
        &self,
        model: Option<&Output>,
        answers: &Answers,
        figures: &[ahead_measure::probe::figures::Figure],
    ) -> anyhow::Result<()> {
        if let Some((path, output)) = self.model.as_ref().zip(model) {
            let name = path.file_stem().map_or("twin".into(), |stem| printable(stem.as_bytes()));
            output.commit(self.twin(answers, &name)?.to_toml().as_bytes())?;
        }
        if let Some(directory) = &self.figures {
            output::replace_pages(directory, &pages::render(&self.path, figures))?;
        }
        Ok(())
    }
}

fn json(answers: &Answers, checks: &[Check]) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(answers)?;
    let model = answers.disk.twin.as_ref().and_then(|twin| twin.model("twin", "").ok());
    if let Some(model) = model {
        value["device_description"] = serde_json::to_value(model.device_description())?;
    }
    if !checks.is_empty() {
        value["verify"] = serde_json::to_value(checks)?;
    }
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

/// All answers with their names.
fn all(answers: &Answers) -> Vec<(&'static str, &Answer)> {
    let (windows, disk) = (&answers.windows, &answers.disk);
    let mut all = vec![
        ("block size", &answers.block_size),
        ("window", &windows.window),
        ("first window", &windows.initial_window),
        ("trigger before the end", &windows.trigger),
        ("largest request", &windows.max_request),
        ("one WILLNEED reads", &windows.willneed_cap),
        ("read around a fault", &answers.read_around),
        ("mapped by a fault", &answers.fault_around),
        ("stays cached", &answers.page_cache),
        ("direct blocks", &answers.direct_blocks),
        ("access time", &disk.access_time),
        ("bandwidth", &disk.bandwidth),
        ("requests at once", &disk.parallelism),
    ];
    if let Some(rotation) = &disk.rotation {
        all.extend([
            ("turn of the platter", &rotation.turn),
            ("seek to the next track", &rotation.seek_track),
            ("seek on average", &rotation.seek_average),
            ("seek over the full stroke", &rotation.seek_full),
            ("bandwidth at the end", &rotation.inner_bandwidth),
            ("drive reads on", &rotation.read_on),
            ("drive's buffer", &rotation.drive_cache),
        ]);
    }
    if let Some(limits) = &disk.limits {
        all.extend([
            ("limit of requests", &limits.requests),
            ("burst of requests", &limits.burst_requests),
            ("burst of bytes", &limits.burst_bytes),
        ]);
    }
    all
}

fn text(answers: &Answers, checks: &[Check], screen: Screen) -> String {
    let mut table = Table::new([
        ("answer", Kind::Text),
        ("value", Kind::Number),
        ("confidence", Kind::Number),
        ("method", Kind::Path),
    ]);
    for (name, answer) in all(answers).into_iter().filter(|(_, answer)| answer.is_asked()) {
        let sure = answer.confidence.map_or(String::new(), |confidence| format!("{:.0} %", 100.0 * confidence));
        table.row([name.to_owned(), value(answer), sure, answer.method.clone()]);
    }
    let mut text = table.render(screen);
    let growth: Vec<String> = answers.windows.growth.iter().map(|bytes| size(*bytes)).collect();
    if !growth.is_empty() {
        text += &format!("\nwindows grow: {}\n", growth.join(", "));
    }
    if !checks.is_empty() {
        text.push('\n');
        text += &checks_table(checks).render(screen);
    }
    text
}

/// The comparison with the settings of the system.
fn checks_table(checks: &[Check]) -> Table {
    let mut table = Table::new([
        ("answer", Kind::Text),
        ("found", Kind::Number),
        ("expected", Kind::Number),
        ("", Kind::Text),
        ("source", Kind::Text),
    ]);
    for check in checks {
        let verdict = match check.agrees {
            Some(true) => "agrees",
            Some(false) => "differs",
            None => "not determined",
        };
        let number = |number: f64| format!("{number:.0}");
        let (found, said) = (check.found.map_or(String::new(), number), number(check.said));
        table.row([check.what.to_owned(), found, said, verdict.to_owned(), check.by.clone()]);
    }
    table
}

fn value(answer: &Answer) -> String {
    match (answer.value, answer.unit) {
        (None, _) => "not determined".to_owned(),
        (Some(value), "bytes") => size(value.number().round() as u64),
        (Some(value), "us") => format!("{:.1} us", value.number()),
        (Some(value), "bytes_per_s") => format!("{:.1} MB/s", value.number() / 1e6),
        (Some(value), "requests_per_s") => format!("{:.0}/s", value.number()),
        (Some(value), _) => grouped(value.number().round() as u64),
    }
}

/// A path, printable.
pub(super) fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: measured bytes had no unit.
    #[test]
    fn counted_and_measured_bytes_have_a_unit() {
        let bytes = (61_u64 << 20) as f64;
        assert_eq!(value(&Answer::measured(bytes, "bytes", [bytes, bytes], "")), size(61 << 20));
        assert_eq!(value(&Answer::counted(61 << 20, "bytes", (1, 1), "")), size(61 << 20));
        assert_eq!(value(&Answer::none("bytes", "")), "not determined");
    }
}

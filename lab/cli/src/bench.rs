//! `ahead bench`: jobs with real I/O, under the kernel's read-ahead or any policy.

use crate::interruptible::interruptible;
use ahead::compare::observe_evictions;
use ahead_cli::exit::argument_error;
use ahead_cli::messages;
use ahead_cli::output::{self, Output};
use ahead_measure::bench::report::{self, Results};
use ahead_measure::bench::{Evicted, Files, Job, Method, Plan, ReadAhead, Step, jobs, measure, measure_traits};
use ahead_model::quantity::parse_size_with_unit;
use ahead_policy::DeviceDescription;
use ahead_process::{Signals, end_by_signals};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sys::bdi;
use ahead_sys::user::User;
use ahead_sys::within::check_answers;
use anyhow::Context;
use clap::Args;
use clap::error::ErrorKind;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Run jobs with real I/O, under the kernel's read-ahead or any policy
///
/// Runs the programs of the papers on files that it makes and removes again. With --policy the kernel's read-ahead is switched off for
/// these files, and the policy (`ahead sim policies` lists them) drives the page cache. Each run is cold: only the job's files are evicted.
#[derive(Debug, Args)]
pub struct Bench {
    /// The job: mmapit (map a large file and copy each page), bonnie (by characters and blocks), streams (N readers), random, patterns
    #[arg(value_parser = jobs::NAMES.map(|(name, _)| name))]
    job: String,
    /// The read-ahead: kernel, or a policy, in which n stands for each of --pages; or direct, which reads the files past the page cache and
    /// gives the throughput of the disk. The others are compared with the first (may be repeated)
    #[arg(long, value_name = "POLICY", default_value = "kernel", value_parser = parse_policy)]
    policy: Vec<String>,
    /// Directory of the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Length of a file [default: 100M for mmapit, 200M for bonnie, 512M for random, else 128M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Bytes of a call [default: 32K for streams, 4K for random, 16K for patterns; fixed for the others]
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    block: Option<u64>,
    /// Numbers of readers, for streams [default: 1,2,4,8,16]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    streams: Option<Vec<u64>>,
    /// Accesses, for random [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: Option<u64>,
    /// Pages to read ahead: the kernel's window (needs root), the window of policies that have one, and n; each value is run
    /// [default: the current window of the device]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pages: Vec<u64>,
    /// Number of rounds; the result is the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Cache everything before a run, instead of nothing: the time of the processor alone
    #[arg(long)]
    warm: bool,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
    /// Write a page with the rows and the papers' figures to this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

/// Checks the name with any value of n: the values of --pages follow later.
fn parse_policy(text: &str) -> Result<String, String> {
    ReadAhead::named(text, Some(1)).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Limit of --size, bytes.
const MAX_BYTES: u64 = 1 << 42;

fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size_with_unit(text)? {
        bytes if (1..=MAX_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text:?} is not from 1 to 4T")),
    }
}

/// Limit of --block, bytes: Linux reads at most 2 GiB with one call, and each reader has a buffer of this size.
const MAX_BLOCK_BYTES: u64 = 1 << 30;

fn parse_block(text: &str) -> Result<u64, String> {
    match parse_size_with_unit(text)? {
        bytes if (1..=MAX_BLOCK_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text:?} is not from 1 to 1G")),
    }
}

impl Bench {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let read_aheads = self.read_aheads()?;
        self.check_sizes()?;
        let user = User::behind_sudo()?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let Some(job) = jobs::named(&self.job, &self.sizes()) else { unreachable!("clap accepts known jobs only") };
        check_answers(&self.directory)?;
        // Impossible jobs fail before the wait for other processes.
        Files::check(&self.directory, &job.file_sizes())?;
        read_aheads.iter().try_for_each(|read_ahead| read_ahead.check(&self.directory))?;
        // A concurrent recording switches read-ahead off, which would change the figures; only root can record.
        let _lock = ahead::wait_for_machine_as_root(&Signals::take()?, &messages::print)?;
        let results = interruptible(|stop| self.measure(&job, &read_aheads, stop))?;
        end_by_signals();
        let text = if self.json {
            format!("{}\n", serde_json::to_string_pretty(&report::json(&results))?)
        } else {
            report::text(&results, Screen::stdout())
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            let page = report::page(&job, &results);
            output::with_rights_of(user.as_ref(), || html.commit(page.as_bytes()))?;
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }

    fn sizes(&self) -> jobs::Sizes {
        let default = jobs::Sizes::default_of(&self.job);
        jobs::Sizes {
            file_bytes: self.size.unwrap_or(default.file_bytes),
            block_bytes: self.block.unwrap_or(default.block_bytes),
            streams: self.streams.clone().unwrap_or(default.streams),
            count: self.count.unwrap_or(default.count),
            seed: default.seed,
        }
    }

    /// Refuses a flag that the job would ignore, and a size that it would change.
    fn check_sizes(&self) -> anyhow::Result<()> {
        let refuse = |why: String| Err(argument_error(ErrorKind::ValueValidation, why));
        if self.block.is_some() && ["mmapit", "bonnie"].contains(&self.job.as_str()) {
            return refuse(format!(
                "the calls of {} have a fixed length: --block is for streams, random and patterns",
                self.job
            ));
        }
        for (option, is_given, of) in
            [("--streams", self.streams.is_some(), "streams"), ("--count", self.count.is_some(), "random")]
        {
            if is_given && self.job != of {
                return refuse(format!("{option} is for {of}, not for {}", self.job));
            }
        }
        self.sizes().check(&self.job).or_else(refuse)
    }

    /// Every read-ahead with every number of pages; direct reads, which have no window, once.
    fn read_aheads(&self) -> anyhow::Result<Vec<ReadAhead>> {
        let pages: Vec<Option<u64>> = match self.pages.is_empty() {
            true => vec![None],
            false => self.pages.iter().copied().map(Some).collect(),
        };
        let each = pages.iter().flat_map(|pages| self.policy.iter().map(move |text| ReadAhead::named(text, *pages)));
        let missing = |error| argument_error(ErrorKind::MissingRequiredArgument, error);
        let mut read_aheads = each.collect::<Result<Vec<ReadAhead>, _>>().map_err(missing)?;
        let mut is_first = true;
        read_aheads.retain(|read_ahead| {
            !matches!(read_ahead.method, Method::Direct) || std::mem::replace(&mut is_first, false)
        });
        Ok(read_aheads)
    }

    fn measure(&self, job: &Job, read_aheads: &[ReadAhead], stop: &AtomicBool) -> anyhow::Result<Results> {
        let progress = Progress::spinner();
        progress.say("making the files");
        let files = Files::make(&self.directory, &job.file_sizes(), stop)?;
        if let Some(why) = files.device().warning() {
            progress.note(&format!("ahead: the times of the emulated disk are not those of its model: {why}"));
        }
        let needs_traits = read_aheads.iter().any(|read_ahead| matches!(read_ahead.method, Method::Policy(_)));
        progress.say("measuring the disk");
        let traits = needs_traits.then(|| self.traits(&files, &progress, stop)).transpose()?;
        drop(progress);
        let device = traits.unwrap_or_default();
        let evicted = self.evictions_of(&files)?;
        let evicted = evicted.as_ref().map(|evicted| evicted as Evicted);
        let plan = Plan { job, files: &files, read_aheads, device, runs: self.runs, warm: self.warm, evicted, stop };
        let progress = Progress::new(plan.steps());
        let mut begun = false;
        let rows = measure(&plan, |Step { variant, read_ahead }| {
            if std::mem::replace(&mut begun, true) {
                progress.step();
            }
            progress.say(format!("{variant}, {read_ahead}"));
        })?;
        let window_kb = files.window().and_then(|file| bdi::read_kb(file).ok());
        let directory = self.directory.clone();
        Ok(Results { directory, device: files.device().describe(), window_kb, traits, rows })
    }

    /// A function that returns the bytes of the job's files that were evicted so far. `None` where evictions cannot be observed: without root,
    /// or on an overlay, whose pages belong to files of a layer.
    fn evictions_of(&self, files: &Files) -> anyhow::Result<Option<impl Fn() -> ahead_sys::Result<u64> + use<>>> {
        let mount = files.mount().filter(|mount| mount.fs_type != "overlay").cloned();
        let Some((evictions, mount)) = observe_evictions().zip(mount) else { return Ok(None) };
        let numbers = files.held().iter().map(|held| Ok(held.file().metadata()?.ino()));
        let numbers: Vec<u64> = numbers.collect::<std::io::Result<_>>().context("fstat of the job's files")?;
        numbers.iter().try_for_each(|inode| evictions.watch(mount.device, *inode))?;
        let lost = move |inode: &u64| Ok(evictions.of_file(mount.device, *inode)?.bytes);
        Ok(Some(move || numbers.iter().map(&lost).sum()))
    }

    /// The description of the disk for policies.
    fn traits(&self, files: &Files, progress: &Progress, stop: &AtomicBool) -> anyhow::Result<DeviceDescription> {
        let (traits, why_assumed) = measure_traits(files, stop)?;
        if let Some(why) = why_assumed {
            progress.note(&format!("ahead: the disk cannot be measured ({why}); policies assume 8 ms and 100 MB/s"));
        }
        Ok(traits)
    }
}

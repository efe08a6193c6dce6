//! `ahead bench`: jobs with real I/O, under the kernel's read-ahead or any policy.

mod page;
mod table;

use ahead_bench::{Error, Evicted, Files, How, Job, Plan, Row, Step, Under, jobs, measure};
use ahead_cli::exit::Stopped;
use ahead_cli::observe_evictions;
use ahead_cli::output::{self, Output};
use ahead_cli::record::wait_to_be_alone;
use ahead_live::describe;
use ahead_model::quantity::parse_size;
use ahead_policy::{DeviceDescription, PAGE_BYTES};
use ahead_process::{Signals, end_by_signals};
use ahead_report::progress::Progress;
use ahead_report::table::Screen;
use ahead_sys::user::User;
use ahead_sys::within::check_answers;
use ahead_sys::{bdi, machine};
use anyhow::Context;
use clap::Args;
use clap::error::ErrorKind;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a job is made from where nothing else is said: length of a file and what a call reads, bytes.
struct Defaults {
    file_bytes: u64,
    block_bytes: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Shortest file that a disk is measured on: a drive's buffer must not hold much of it (64 MiB is common), or each access seems
/// to be quick.
const TRAITS_BYTES: u64 = 128 * MIB;

/// Numbers of readers: Wu's table.
const STREAMS: [u64; 5] = [1, 2, 4, 8, 16];
/// Accesses at random: some 16 s on a disk of 8 ms.
const ACCESSES: u64 = 2000;

/// O'Connor and Tracy's file had 100 MB, Roudier's 200; Wu's readers took blocks of 32 KiB. The rest is our choice.
fn defaults(job: &str) -> Defaults {
    let (file_bytes, block_bytes) = match job {
        "mmapit" => (100 * MIB, PAGE_BYTES),
        "bonnie" => (200 * MIB, 8 * KIB),
        "streams" => (128 * MIB, 32 * KIB),
        "random" => (512 * MIB, PAGE_BYTES),
        _ => (128 * MIB, 16 * KIB),
    };
    Defaults { file_bytes, block_bytes }
}

/// Run jobs with real I/O, under the kernel's read-ahead or any policy
///
/// The programs of the papers, on files that are made for it and removed again. With --policy the kernel's own read-ahead is
/// switched off for these files, and the policy (`ahead sim policies` lists them) drives the page cache. Each run is cold:
/// its own files are evicted, nothing else.
#[derive(Debug, Args)]
pub struct Bench {
    /// The job: mmapit (map a large file and copy each page), bonnie (by characters and blocks), streams (N readers), random, patterns
    #[arg(value_parser = jobs::NAMES.map(|(name, _)| name))]
    job: String,
    /// Who reads ahead: kernel, or a policy; n in it stands for each of --pages. Or direct: the files are read whole, past the page
    /// cache, which is what the disk transfers. The first one is what others are compared with (may be repeated)
    #[arg(long, value_name = "POLICY", default_value = "kernel", value_parser = parse_policy)]
    policy: Vec<String>,
    /// Where the files are made
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Length of a file [default: 100M for mmapit, 200M for bonnie, 512M for random, else 128M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// What a call reads [default: 32K for streams, 4K for random, 16K for patterns; the others have their own]
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    block: Option<u64>,
    /// Numbers of readers, for streams [default: 1,2,4,8,16]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    streams: Option<Vec<u64>>,
    /// Accesses, for random [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: Option<u64>,
    /// Pages to read ahead: the kernel's window (needs root), that of policies that have one, and n. Each of them is run
    /// [default: as the device is set]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pages: Vec<u64>,
    /// How often everything is run, in turn; the result is the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Everything is cached before, instead of nothing: what the processor alone needs
    #[arg(long)]
    warm: bool,
    /// Print JSON instead of a table (see docs/formats.md)
    #[arg(long)]
    json: bool,
    /// Write a page with the rows and the papers' figures from them into this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

/// Any number will do for n here: each of --pages is put in later.
fn parse_policy(text: &str) -> Result<String, String> {
    Under::named(text, Some(1)).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Longest file and call: nobody has a larger disk to spare.
const MOST_BYTES: u64 = 1 << 42;

fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if (1..=MOST_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text:?} is not from 1 to 4T")),
    }
}

/// Longest call: Linux reads 2 GiB at most by one, and each reader has a buffer of it.
const MOST_BLOCK_BYTES: u64 = 1 << 30;

fn parse_block(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if (1..=MOST_BLOCK_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{text:?} is not from 1 to 1G")),
    }
}

/// Ends with the usage of this command.
fn complain(kind: ErrorKind, what: impl std::fmt::Display) -> ! {
    let mut command = crate::cli::Cli::named();
    // Subcommands know their full names from then on.
    command.build();
    command.find_subcommand_mut("bench").expect("it is this one").error(kind, what).exit()
}

/// What was measured, and where.
struct Measured {
    directory: PathBuf,
    device: String,
    window_kb: Option<u64>,
    traits: Option<DeviceDescription>,
    rows: Vec<Row>,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let under = self.under();
        self.check_sizes();
        let user = User::behind_sudo()?;
        let prepare = |out| output::with_rights_of(user.as_ref(), || Output::prepare(out));
        let html = self.html.as_deref().map(prepare).transpose()?;
        let Some(job) = jobs::named(&self.job, &self.sizes()) else { unreachable!("the parser knows all jobs") };
        check_answers(&self.directory)?;
        // Who has to wait for others is told before what cannot be done.
        Files::check(&self.directory, &job.file_sizes())?;
        under.iter().try_for_each(|under| under.check(&self.directory))?;
        // A recording that switches read-ahead off would be in the figures; only root can make one.
        let _alone = machine::is_root().then(|| wait_to_be_alone(&Signals::take()?)).transpose()?;
        let measured = interruptible(|stop| self.measure(&job, &under, stop))?;
        end_by_signals();
        let text = if self.json {
            format!("{}\n", serde_json::to_string_pretty(&as_json(&measured))?)
        } else {
            table::text(&measured, Screen::stdout())
        };
        let printed = std::io::stdout().write_all(text.as_bytes());
        if let Some(html) = &html {
            let page = page::render(&job, &measured);
            output::with_rights_of(user.as_ref(), || html.commit(page.as_bytes()))?;
        }
        printed?;
        Ok(ExitCode::SUCCESS)
    }

    fn sizes(&self) -> jobs::Sizes {
        let Defaults { file_bytes, block_bytes } = defaults(&self.job);
        jobs::Sizes {
            file_bytes: self.size.unwrap_or(file_bytes),
            block_bytes: self.block.unwrap_or(block_bytes),
            streams: self.streams.clone().unwrap_or_else(|| STREAMS.to_vec()),
            count: self.count.unwrap_or(ACCESSES),
            seed: 1,
        }
    }

    /// A job of other calls or readers than were asked for, or on longer files, would be taken for that one.
    fn check_sizes(&self) {
        let usage = |what: String| complain(ErrorKind::ValueValidation, what);
        if self.block.is_some() && ["mmapit", "bonnie"].contains(&self.job.as_str()) {
            usage(format!(
                "the calls of {} have their own length: --block is for streams, random and patterns",
                self.job
            ));
        }
        for (option, is_given, of) in
            [("--streams", self.streams.is_some(), "streams"), ("--count", self.count.is_some(), "random")]
        {
            if is_given && self.job != of {
                usage(format!("{option} is for {of}: {} has nothing that it could say", self.job));
            }
        }
        let jobs::Sizes { file_bytes, block_bytes, .. } = self.sizes();
        if !block_bytes.is_multiple_of(PAGE_BYTES) && self.job != "streams" {
            usage(format!("blocks of {} are whole pages: --block has to be a multiple of 4K", self.job));
        }
        if file_bytes < block_bytes && self.job == "bonnie" {
            usage(format!("bonnie's calls have {block_bytes} bytes: a file of {file_bytes} (--size) is shorter"));
        }
        if file_bytes < block_bytes {
            usage(format!("a call of {block_bytes} bytes (--block) is longer than a file of {file_bytes} (--size)"));
        }
    }

    /// Everybody with every number of pages; direct reads, which have no window, once.
    fn under(&self) -> Vec<Under> {
        let pages: Vec<Option<u64>> = match self.pages.is_empty() {
            true => vec![None],
            false => self.pages.iter().copied().map(Some).collect(),
        };
        let each = pages.iter().flat_map(|pages| self.policy.iter().map(move |text| Under::named(text, *pages)));
        let mut under: Vec<Under> = each.collect::<Result<_, _>>().unwrap_or_else(|error| {
            complain(ErrorKind::MissingRequiredArgument, error);
        });
        let mut is_first = true;
        under.retain(|under| !matches!(under.how, How::Direct) || std::mem::replace(&mut is_first, false));
        under
    }

    fn measure(&self, job: &Job, under: &[Under], stop: &AtomicBool) -> anyhow::Result<Measured> {
        let progress = Progress::spinner();
        progress.say("making the files");
        let files = Files::make(&self.directory, &job.file_sizes(), stop)?;
        if let Some(why) = files.device().warning() {
            progress.note(&format!("ahead: its times are not the model's: {why}"));
        }
        let asks = under.iter().any(|under| matches!(under.how, How::Policy(_)));
        progress.say("measuring the disk");
        let traits = asks.then(|| self.traits(&files, &progress, stop)).transpose()?;
        drop(progress);
        let device = traits.unwrap_or_default();
        let evicted = self.evictions_of(&files)?;
        let evicted = evicted.as_ref().map(|evicted| evicted as Evicted);
        let plan = Plan { job, files: &files, under, device, runs: self.runs, warm: self.warm, evicted, stop };
        let progress = Progress::new(plan.steps());
        let mut begun = false;
        let rows = measure(&plan, |Step { variant, under }| {
            if std::mem::replace(&mut begun, true) {
                progress.step();
            }
            progress.say(format!("{variant}, {under}"));
        })?;
        let window_kb = files.window().and_then(|file| bdi::read_kb(file).ok());
        let directory = self.directory.clone();
        Ok(Measured { directory, device: files.device().describe(), window_kb, traits, rows })
    }

    /// Tells what the job's files have lost from the cache so far; `None` where that is not to be seen: without root, or on an overlay,
    /// whose files' pages are those of a layer.
    fn evictions_of(&self, files: &Files) -> anyhow::Result<Option<impl Fn() -> ahead_sys::Result<u64> + use<>>> {
        let mount = files.mount().filter(|mount| mount.fs_type != "overlay").cloned();
        let Some((evictions, mount)) = observe_evictions().zip(mount) else { return Ok(None) };
        let numbers = files.held().iter().map(|held| Ok(held.file().metadata()?.ino()));
        let numbers: Vec<u64> = numbers.collect::<std::io::Result<_>>().context("look at the files")?;
        numbers.iter().try_for_each(|inode| evictions.watch(mount.device, *inode))?;
        let lost = move |inode: &u64| Ok(evictions.of_file(mount.device, *inode)?.bytes);
        Ok(Some(move || numbers.iter().map(&lost).sum()))
    }

    /// What policies are told of the disk: measured on the first file, or where that is short, on one that is made for it.
    fn traits(&self, files: &Files, progress: &Progress, stop: &AtomicBool) -> anyhow::Result<DeviceDescription> {
        let Some(first) = files.held().first() else { return Ok(DeviceDescription::default()) };
        let is_short = first.length_bytes().is_ok_and(|bytes| bytes < TRAITS_BYTES);
        let larger = match is_short.then(|| files.extra(TRAITS_BYTES, stop)).transpose() {
            Err(error @ Error::Stopped) => return Err(error.into()),
            // No room for it.
            larger => larger.unwrap_or(None),
        };
        let file = larger.as_ref().map_or(first, |larger| larger.held());
        files.make_cold().map_err(|error| files.explain(error))?;
        let measured = describe::measure(file);
        files.make_cold().map_err(|error| files.explain(error))?;
        match measured {
            Err(error) if cannot_be_measured(&error) => {
                let assumed = "8 ms and 100 MB/s are assumed";
                progress.note(&format!("ahead: what the disk is like could not be measured ({error}); {assumed}"));
                Ok(DeviceDescription::default())
            }
            measured => measured.map_err(|error| files.explain(ahead_bench::in_file(error.into(), file.path())).into()),
        }
    }
}

/// Whether it is no failure that a disk was not measured: the file is too short, its file system has no direct I/O, or asynchronous reads
/// are forbidden.
fn cannot_be_measured(error: &ahead_live::Error) -> bool {
    const NO_DIRECT_READS: [Errno; 5] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM, Errno::AGAIN];
    let code = match error {
        ahead_live::Error::Kernel(ahead_sys::Error::Io { source, .. }) | ahead_live::Error::Io(source) => {
            source.raw_os_error()
        }
        _ => None,
    };
    code.is_none_or(|code| NO_DIRECT_READS.iter().any(|known| known.raw_os_error() == code))
}

/// Works until a signal asks to stop; all that it made is removed then.
pub fn interruptible<T: Send>(work: impl FnOnce(&AtomicBool) -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let signals = Signals::take()?;
    let (stop, signal) = (AtomicBool::new(false), OnceLock::new());
    let (ended, end) = std::io::pipe().context("pipe")?;
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(Some(arrived)) = signals.wait_or(&ended) {
                if arrived.asks_to_stop() {
                    let _ = signal.set(arrived.number);
                    return stop.store(true, Ordering::Relaxed);
                }
            }
        });
        let done = work(&stop);
        drop(end);
        done
    });
    match (done, signal.get()) {
        (Err(error), Some(number)) if matches!(error.downcast_ref(), Some(Error::Stopped)) => {
            Err(Stopped(*number).into())
        }
        (done, _) => done,
    }
}

fn as_json(measured: &Measured) -> Value {
    let traits = measured.traits.map(|traits| {
        json!({
            "access_s": traits.access_ns as f64 / 1e9,
            "bandwidth_bytes_per_s": traits.bandwidth_bytes_per_s,
            "parallelism": traits.parallelism,
            "request_s": traits.request_ns as f64 / 1e9,
        })
    });
    json!({
        "machine": machine::describe(),
        "kernel": machine::kernel_release(),
        "directory": measured.directory.to_string_lossy(),
        "device": measured.device,
        "read_ahead_kb": measured.window_kb,
        "traits": traits,
        "rows": measured.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a disk that failed while it was measured was taken for one of 8 ms and 100 MB/s.
    #[test]
    fn a_disk_that_fails_is_not_one_that_cannot_be_measured() {
        let live = |code: Errno| ahead_live::Error::Kernel(ahead_sys::Error::io("read", code));
        assert!(cannot_be_measured(&live(Errno::INVAL)) && cannot_be_measured(&std::io::Error::other("short").into()));
        assert!(![Errno::IO, Errno::NXIO, Errno::NOENT].map(live).iter().any(cannot_be_measured));
    }
}

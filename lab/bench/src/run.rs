//! One run: readers at the same time, under the kernel or a policy, and what came of it.

use crate::direct;
use crate::doer::{Doer, Seen, Surroundings, in_file};
use crate::files::{self, Files};
use crate::gate::Gate;
use crate::job::{Part, Variant};
use crate::look::Looked;
use crate::{Error, Result};
use ahead_live::{Counters, Engine, Reader, Settings};
use ahead_policy::{Choice, DeviceDescription, PAGE_BYTES, Parameters, UnknownPolicy, named};
use ahead_sys::directory::HeldFile;
use ahead_sys::diskstats::Reads;
use ahead_sys::{bdi, cache, usage};
use ahead_undo::Guard;
use serde::Serialize;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Who reads ahead.
#[derive(Clone, Debug)]
pub enum How {
    /// The kernel itself.
    Kernel,
    /// A policy.
    Policy(Choice),
    /// Nobody: the files are read whole, past the page cache, by long reads. What the disk transfers at best.
    Direct,
}

/// Who reads ahead, and how much.
#[derive(Clone, Debug)]
pub struct Under {
    /// Who.
    pub how: How,
    /// The window, pages; of a policy that is written with `n`, that. `None`: as the device is set.
    pub pages: Option<u64>,
}

/// Nobody of this name reads ahead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownWay {
    /// It is no policy, and not the kernel.
    #[error("{0}; and kernel, its own read-ahead; and direct, past the page cache: what the disk transfers")]
    Policy(#[from] UnknownPolicy),
    /// It is written with `n`, and nobody said how much that is.
    #[error("{0:?} is written with n: say how many pages that is with --pages")]
    WithoutPages(String),
}

impl Under {
    /// Finds one by name: `kernel`, `direct`, or a policy as in the catalogue, in which `n` stands for `pages`.
    ///
    /// Errors: there is none of this name.
    pub fn named(text: &str, pages: Option<u64>) -> std::result::Result<Under, UnknownWay> {
        match text.trim() {
            "kernel" => return Ok(Under { how: How::Kernel, pages }),
            "direct" => return Ok(Under { how: How::Direct, pages: None }),
            _ => {}
        }
        let text = match (has_open_argument(text), pages) {
            (false, _) => text.to_owned(),
            (true, Some(pages)) => with_argument(text, pages),
            (true, None) => return Err(UnknownWay::WithoutPages(text.into())),
        };
        Ok(Under { how: How::Policy(named(&text)?), pages })
    }

    /// Whether that can be done to files in this directory, which is found out before they are made.
    ///
    /// Errors: the kernel's window is to be set, and may not be or is not there; a policy, where it would not see what is cached.
    pub fn check(&self, directory: &Path) -> Result<()> {
        match (&self.how, self.pages) {
            (How::Kernel, Some(_)) => settable(bdi::read_ahead_file_below(directory), directory).map(drop),
            (How::Policy(_), _) if files::is_blind(directory) => {
                let what = format!("{} on {}", self.name(), directory.display());
                let why = "it is an overlay, of whose files nobody is told what is cached; choose a directory of its upper layer, or \
                           another file system";
                Err(ahead_sys::Error::Unsupported { what, why: why.into() }.into())
            }
            _ => Ok(()),
        }
    }

    /// How it is written.
    pub fn name(&self) -> String {
        match &self.how {
            How::Kernel => "kernel".into(),
            How::Direct => "direct".into(),
            How::Policy(choice) => choice.to_string(),
        }
    }
}

/// The words between the parentheses.
fn arguments(text: &str) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = text.split_once('(')?;
    Some((name, rest.strip_suffix(')')?.split(',').map(str::trim).collect()))
}

fn has_open_argument(text: &str) -> bool {
    arguments(text.trim()).is_some_and(|(_, words)| words.contains(&"n"))
}

fn with_argument(text: &str, pages: u64) -> String {
    let (name, words) = arguments(text.trim()).unwrap_or((text, Vec::new()));
    let words: Vec<String> =
        words.into_iter().map(|word| if word == "n" { pages.to_string() } else { word.into() }).collect();
    format!("{name}({})", words.join(", "))
}

/// Tells how many bytes of a job's files left the cache since somebody began to observe that.
pub type Evicted<'a> = &'a dyn Fn() -> ahead_sys::Result<u64>;

/// How a variant is run.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// On these files.
    pub files: &'a Files,
    /// Under this.
    pub under: &'a Under,
    /// What policies are told of the disk.
    pub device: DeviceDescription,
    /// Everything is cached before, instead of nothing.
    pub warm: bool,
    /// How pages are found is looked at before each call, which takes time.
    pub looks: bool,
    /// The time of each call is kept.
    pub each: bool,
    /// What the cache has lost of the files so far.
    pub evicted: Option<Evicted<'a>>,
    /// Ends the run when it is set.
    pub stop: &'a AtomicBool,
}

/// How time has gone until a moment of a run, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Since the beginning.
    pub at_s: f64,
    /// Processor time of this process in its programs, until then.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
    /// Bytes read until then.
    pub read_bytes: u64,
}

/// What came of a run. Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// From the beginning to the end of the last reader.
    pub elapsed_ns: u64,
    /// Processor time of the readers and the engine.
    pub user_ns: u64,
    /// The same in the kernel for them.
    pub system_ns: u64,
    /// How pages were found, where that was counted.
    pub found: Option<[u64; 3]>,
    /// What the engine counted; `None` under the kernel.
    pub counters: Option<Counters>,
    /// What the device read; `None` where nobody counts.
    pub reads: Option<Reads>,
    /// What left the cache of the files meanwhile, bytes: if it was not used yet, it was read twice. `None` where nobody observes.
    pub evicted_bytes: Option<u64>,
    /// Bytes that readers got.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Longest call.
    pub latency_most_ns: u64,
    /// Each call, if they were to be kept.
    pub each_ns: Vec<u64>,
    /// How time went, if that was asked for.
    pub timeline: Vec<Sample>,
}

/// Runs a variant once.
///
/// Errors: its files do not become cold; reading failed; it was asked to stop.
pub fn run(variant: &Variant, setting: &Setting) -> Result<Observed> {
    let Setting { files, under, .. } = *setting;
    files.check_place()?;
    files.make_cold()?;
    if setting.warm {
        files.held().iter().try_for_each(read_whole)?;
    }
    let engine = match &under.how {
        How::Kernel | How::Direct => None,
        How::Policy(choice) => {
            let future = choice.description().needs_future().then(|| variant.future());
            let parameters = Parameters { device: setting.device, future, ..Parameters::default() };
            let device = Some(setting.device);
            let settings = Settings { window_pages: under.pages, device, ..Settings::default() };
            Some(Engine::new(choice.build(&parameters)?, settings)?)
        }
    };
    let numbered = engine.as_ref().map(|engine| numbered(engine, under, files)).transpose()?;
    let _window = under.pages.filter(|_| engine.is_none()).map(|pages| set_window(files, pages)).transpose()?;
    let evicted = || setting.evicted.map(|evicted| evicted()).transpose();
    let (before, evicted_before) = (files.device().reads()?, evicted()?);
    let around = Surroundings {
        files: files.held(),
        engine: engine.as_ref(),
        looks: setting.looks && !files.is_blind(),
        each: setting.each,
        timeline: variant.timeline,
        stop: setting.stop,
    };
    let mut observed = match under.how {
        How::Direct => direct::run(variant, files.held(), setting.stop)?,
        How::Kernel | How::Policy(_) => run_readers(&variant.readers, &around)?,
    };
    observed.counters = engine.as_ref().map(Engine::counters);
    if let Some(counters) = observed.counters {
        observed.found = Some([counters.hits, counters.locked, counters.misses]);
    }
    // The engine ends when all that it asked for has arrived.
    drop((engine, numbered));
    files.held().iter().try_for_each(settle)?;
    observed.reads = before.zip(files.device().reads()?).map(|(before, after)| after - before);
    observed.evicted_bytes = evicted_before.zip(evicted()?).map(|(before, after)| after - before);
    Ok(observed)
}

/// Who knows the future knows files by their numbers in the parts. The engine numbers them in the order of opening, and the policy can ask
/// for what is open alone: they stay open.
fn numbered(engine: &Engine, under: &Under, files: &Files) -> Result<Vec<Reader>> {
    let How::Policy(choice) = &under.how else { return Ok(Vec::new()) };
    let known = if choice.description().needs_future() { files.held() } else { &[] };
    let open = |held: &HeldFile| {
        let reader = opened(held).and_then(|file| Ok(engine.take(file, held.path())?));
        reader.map_err(|error| in_file(error, held.path()))
    };
    known.iter().map(open).collect()
}

/// Runs readers on files as they are, cold or not, under the kernel's own read-ahead. What the device does is not looked at.
///
/// Errors: reading failed.
pub fn run_under_kernel(readers: &[Vec<Part>], files: &[HeldFile], each: bool) -> Result<Observed> {
    let stop = AtomicBool::new(false);
    run_readers(readers, &Surroundings { files, engine: None, looks: false, each, timeline: false, stop: &stop })
}

/// The kernel's own window on the device of these files, until the guard is dropped.
fn set_window(files: &Files, pages: u64) -> Result<Guard> {
    let file = settable(files.window(), files.directory())?;
    Ok(ahead_undo::set_file(&file, &(pages * PAGE_BYTES / 1024).to_string())?)
}

/// The kernel's setting for what lies in a directory, if we may change it.
fn settable(setting: Option<PathBuf>, directory: &Path) -> Result<PathBuf> {
    let what = || format!("setting the read-ahead below {}", directory.display());
    let file = setting
        .ok_or_else(|| ahead_sys::Error::Unsupported { what: what(), why: "it has no backing device".into() })?;
    if !ahead_sys::machine::is_root() {
        return Err(ahead_sys::Error::needs_root(what()).into());
    }
    Ok(file)
}

/// Another opening, to be read.
fn opened(held: &HeldFile) -> Result<File> {
    held.open_again(File::options().read(true)).map_err(|e| Error::io(format!("open {}", held.path().display()), e))
}

fn read_whole(held: &HeldFile) -> Result<()> {
    let copied = std::io::copy(&mut opened(held)?, &mut std::io::sink());
    copied.map(drop).map_err(|e| Error::io(format!("read {}", held.path().display()), e))
}

/// Waits until what was asked for of a file has arrived: it counts as this run's.
fn settle(held: &HeldFile) -> Result<()> {
    let failed = |e| Error::io(format!("look at {}", held.path().display()), e);
    let (file, bytes) = (opened(held)?, held.length_bytes().map_err(failed)?);
    cache::exact_reads(&file)?;
    let (there, cached) = (cache::present(&file, 0, bytes)?, cache::resident(&file, 0, bytes)?);
    if there == cached {
        return Ok(());
    }
    for range in cached {
        for at in range.step_by(PAGE_BYTES as usize) {
            if !there.iter().any(|there| there.contains(&at)) {
                cache::wait_for(&file, at)?;
            }
        }
    }
    Ok(())
}

/// Runs all readers at the same time, each in a thread.
fn run_readers(readers: &[Vec<Part>], around: &Surroundings) -> Result<Observed> {
    let gate = Gate::default();
    let read = |parts: &Vec<Part>| {
        let doer = Doer::new(around, if around.each { calls_of(parts) } else { 0 });
        if !gate.wait() {
            return Err(Error::Stopped);
        }
        // By its own clock: who opens the gate may be woken when short runs are over.
        let began = Instant::now();
        doer.run(parts).map(|seen| (seen, began..Instant::now()))
    };
    let read = &read;
    let (before, seen) = std::thread::scope(|scope| {
        let start = |parts| Builder::new().spawn_scoped(scope, move || read(parts)).map_err(refused);
        let threads: Vec<_> = readers.iter().map(start).collect::<Result<_>>().inspect_err(|_| gate.call_off())?;
        let before = gate.open(readers.len(), usage::own_cpu);
        let seen = threads.into_iter().map(join).collect::<Result<Vec<(Seen, Range<Instant>)>>>()?;
        Ok::<_, Error>((before, seen))
    })?;
    let ((seen, times), after): ((Vec<Seen>, Vec<Range<Instant>>), _) = (seen.into_iter().unzip(), usage::own_cpu());
    let (began, ended) = (times.iter().map(|time| time.start).min(), times.iter().map(|time| time.end).max());
    let elapsed = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let since = |now: Duration, then: Duration| now.saturating_sub(then).as_nanos() as u64;
    let looked = seen.iter().map(|seen| seen.looked).fold(Looked::default(), Looked::add);
    Ok(Observed {
        elapsed_ns: elapsed.as_nanos() as u64,
        user_ns: since(after.user, before.user),
        system_ns: since(after.system, before.system),
        found: around.looks.then_some([looked.hits, looked.locked, looked.misses]),
        read_bytes: seen.iter().map(|seen| seen.read_bytes).sum(),
        write_bytes: seen.iter().map(|seen| seen.write_bytes).sum(),
        latency_most_ns: seen.iter().map(|seen| seen.latency_most_ns).max().unwrap_or(0),
        timeline: seen.first().map(|seen| since_first(&seen.timeline, before)).unwrap_or_default(),
        each_ns: seen.into_iter().flat_map(|seen| seen.each_ns).collect(),
        ..Observed::default()
    })
}

/// The system lets us have no more threads (`ulimit -u`, `pids.max`).
pub(crate) fn refused(error: std::io::Error) -> Error {
    Error::io("start a thread for a reader (ulimit -u, pids.max)", error)
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::Job("a reader has panicked".into())))
}

fn calls_of(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.stream.ops().count()).sum()
}

/// Processor time is that of the run.
fn since_first(samples: &[Sample], before: usage::Cpu) -> Vec<Sample> {
    let (user_s, system_s) = (before.user.as_secs_f64(), before.system.as_secs_f64());
    let since = |sample: &Sample| Sample {
        user_s: (sample.user_s - user_s).max(0.0),
        system_s: (sample.system_s - system_s).max(0.0),
        ..*sample
    };
    samples.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_stands_for_pages() {
        let name = |text: &str, pages| Under::named(text, pages).map(|under| under.name());
        assert_eq!(name("kernel", None), Ok("kernel".into()));
        assert_eq!(name("true-readahead(n)", Some(48)), Ok("true-readahead(48, 16)".into()));
        assert_eq!(name("true-readahead(n, adaptive)", Some(48)), Ok("true-readahead(48, adaptive)".into()));
        assert_eq!(name("linux-6.18", Some(48)), Ok("linux-6.18".into()));
        assert!(matches!(name("fixed(n)", None), Err(UnknownWay::WithoutPages(_))));
    }

    #[test]
    fn who_is_unknown_is_told_who_is_known() {
        let error = Under::named("linux-9", None).unwrap_err().to_string();
        assert!(error.contains("linux-6.18, linux-7.2") && error.contains("kernel"), "{error}");
    }
}

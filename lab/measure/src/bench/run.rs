//! One run: readers at the same time, under the kernel or a policy, and the result.

use crate::bench::cache_probe::LookupCounts;
use crate::bench::direct;
use crate::bench::files::{self, Files};
use crate::bench::gate::Gate;
use crate::bench::job::{Part, Variant};
use crate::bench::live::{Engine, Reader, Settings};
use crate::bench::observed::{Observed, Sample};
use crate::bench::reader_thread::{ReaderContext, ReaderResult, ReaderThread, in_file};
use crate::bench::{Error, Result};
use ahead_policy::{Choice, DeviceDescription, PAGE_BYTES, Parameters, UnknownPolicy, named};
use ahead_process::undo::Guard;
use ahead_sys::directory::HeldFile;
use ahead_sys::{bdi, cache, daemon, usage};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The way in which files are read ahead.
#[derive(Clone, Debug)]
pub enum Method {
    /// The kernel's read-ahead.
    Kernel,
    Policy(Choice),
    /// No read-ahead: long reads of whole files, past the page cache. The throughput of the disk.
    Direct,
}

/// A read-ahead: method and window.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    pub method: Method,
    /// The window, pages; for a policy with `n` in its name, `n`. `None`: the current window of the device.
    pub pages: Option<u64>,
}

/// Why a name is not a read-ahead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownMethod {
    /// Neither a policy, nor `kernel`, nor `direct`.
    #[error("{0}; or kernel (its own read-ahead), or direct (past the page cache: the throughput of the disk)")]
    Policy(#[from] UnknownPolicy),
    /// The name has `n`, whose value is missing.
    #[error("{0:?} has the parameter n: give its value, pages, with --pages")]
    WithoutPages(String),
}

impl ReadAhead {
    /// Parses a name: `kernel`, `direct`, or a policy as in the catalogue, in which `n` stands for `pages`.
    ///
    /// Errors: there is no such policy; `n` has no value.
    pub fn named(text: &str, pages: Option<u64>) -> std::result::Result<ReadAhead, UnknownMethod> {
        match text.trim() {
            "kernel" => return Ok(ReadAhead { method: Method::Kernel, pages }),
            "direct" => return Ok(ReadAhead { method: Method::Direct, pages: None }),
            _ => {}
        }
        let text = match (has_open_argument(text), pages) {
            (false, _) => text.to_owned(),
            (true, Some(pages)) => with_argument(text, pages),
            (true, None) => return Err(UnknownMethod::WithoutPages(text.into())),
        };
        Ok(ReadAhead { method: Method::Policy(named(&text)?), pages })
    }

    /// Checks whether this read-ahead is possible in a directory, before files are made.
    ///
    /// Errors: the kernel's window cannot be set; a policy cannot see the cached pages there.
    pub fn check(&self, directory: &Path) -> Result<()> {
        match (&self.method, self.pages) {
            (Method::Kernel, Some(_)) => settable(bdi::read_ahead_file_below(directory), directory).map(drop),
            (Method::Policy(_), _) if files::lacks_cachestat(directory) => {
                let what = format!("{} on {}", self.name(), directory.display());
                let why = "it is an overlay, and cachestat does not report its pages; choose a directory of its upper layer, or another \
                           file system";
                Err(ahead_sys::Error::Unsupported { what, why: why.into() }.into())
            }
            _ => Ok(()),
        }
    }

    /// The name, as [`ReadAhead::named`] parses it.
    pub fn name(&self) -> String {
        match &self.method {
            Method::Kernel => "kernel".into(),
            Method::Direct => "direct".into(),
            Method::Policy(choice) => choice.to_string(),
        }
    }
}

/// The name before the parentheses, and the arguments within.
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

/// Returns the bytes of a job's files that were evicted since the observer started.
pub type Evicted<'a> = &'a dyn Fn() -> ahead_sys::Result<u64>;

#[derive(Clone, Copy)]
pub struct RunSettings<'a> {
    pub files: &'a Files,
    pub read_ahead: &'a ReadAhead,
    /// The description of the disk for policies.
    pub device: DeviceDescription,
    /// Everything is cached before the run, instead of nothing.
    pub warm: bool,
    /// Probe the cache before each call, which takes time.
    pub probes_cache: bool,
    /// Keep the time of each call.
    pub each: bool,
    /// Reports the bytes of the files that were evicted so far.
    pub evicted: Option<Evicted<'a>>,
    /// Ends the run when it is set.
    pub stop: &'a AtomicBool,
}

/// Runs a variant once.
///
/// Errors: the files cannot be evicted; a read failed; `stop` was set.
pub fn run(variant: &Variant, settings: &RunSettings) -> Result<Observed> {
    let RunSettings { files, read_ahead, .. } = *settings;
    files.check_place()?;
    files.make_cold()?;
    if settings.warm {
        files.held().iter().try_for_each(read_whole)?;
    }
    let engine = match &read_ahead.method {
        Method::Kernel | Method::Direct => None,
        Method::Policy(choice) => {
            let future = choice.description().needs_future().then(|| variant.future());
            let parameters = Parameters { device: settings.device, future, ..Parameters::default() };
            let device = Some(settings.device);
            let settings = Settings { window_pages: read_ahead.pages, device, ..Settings::default() };
            Some(Engine::new(choice.build(&parameters)?, settings))
        }
    };
    let readers = engine.as_ref().map(|engine| open_in_order(engine, read_ahead, files)).transpose()?;
    let _window = read_ahead.pages.filter(|_| engine.is_none()).map(|pages| set_window(files, pages)).transpose()?;
    let evicted = || settings.evicted.map(|evicted| evicted()).transpose();
    let (before, evicted_before) = (files.device().reads()?, evicted()?);
    let context = ReaderContext {
        files: files.held(),
        engine: engine.as_ref(),
        probes_cache: settings.probes_cache && !files.lacks_cachestat(),
        each: settings.each,
        timeline: variant.timeline,
        stop: settings.stop,
    };
    let mut observed = match read_ahead.method {
        Method::Direct => direct::run(variant, files.held(), settings.stop)?,
        Method::Kernel | Method::Policy(_) => run_readers(&variant.readers, &context)?,
    };
    observed.counters = engine.as_ref().map(Engine::counters);
    if let Some(counters) = observed.counters {
        observed.found = Some([counters.hits, counters.locked, counters.misses]);
    }
    // The drop of the engine waits until all its requests are complete.
    drop((engine, readers));
    files.held().iter().try_for_each(wait_for_requests)?;
    observed.reads = before.zip(files.device().reads()?).map(|(before, after)| after - before);
    observed.evicted_bytes = evicted_before.zip(evicted()?).map(|(before, after)| after - before);
    Ok(observed)
}

/// Opens the files of a clairvoyant policy, and keeps them open. Such a policy numbers files by their index in the parts. The engine
/// numbers files by the order of opening. A policy can request pages of open files only.
fn open_in_order(engine: &Engine, read_ahead: &ReadAhead, files: &Files) -> Result<Vec<Reader>> {
    let Method::Policy(choice) = &read_ahead.method else { return Ok(Vec::new()) };
    let known = if choice.description().needs_future() { files.held() } else { &[] };
    let open = |held: &HeldFile| {
        let reader = reopen(held).and_then(|file| Ok(engine.take(file, held.path())?));
        reader.map_err(|error| in_file(error, held.path()))
    };
    known.iter().map(open).collect()
}

/// Runs readers on files in their current cache state, under the kernel's read-ahead. Does not count requests of the device.
///
/// Errors: a read failed.
pub fn run_under_kernel(readers: &[Vec<Part>], files: &[HeldFile], each: bool) -> Result<Observed> {
    let stop = AtomicBool::new(false);
    run_readers(
        readers,
        &ReaderContext { files, engine: None, probes_cache: false, each, timeline: false, stop: &stop },
    )
}

/// Sets the kernel's window for the device of these files, until the guard is dropped.
fn set_window(files: &Files, pages: u64) -> Result<Guard> {
    let file = settable(files.window(), files.directory())?;
    Ok(ahead_process::undo::set_file(&file, &(pages * PAGE_BYTES / 1024).to_string())?)
}

/// The file with the kernel's window for a directory, if this process may change it.
fn settable(setting: Option<PathBuf>, directory: &Path) -> Result<PathBuf> {
    let what = || format!("setting the read-ahead below {}", directory.display());
    let file = setting
        .ok_or_else(|| ahead_sys::Error::Unsupported { what: what(), why: "it has no backing device".into() })?;
    if !ahead_sys::machine::is_root() {
        return Err(ahead_sys::Error::needs_root(what()).into());
    }
    Ok(file)
}

/// Opens a held file again for reading.
fn reopen(held: &HeldFile) -> Result<File> {
    held.open_again(File::options().read(true)).map_err(|e| Error::io(format!("open {}", held.path().display()), e))
}

fn read_whole(held: &HeldFile) -> Result<()> {
    let copied = std::io::copy(&mut reopen(held)?, &mut std::io::sink());
    copied.map(drop).map_err(|e| Error::io(format!("read {}", held.path().display()), e))
}

/// Waits until all requested pages of a file have arrived: these requests belong to this run.
fn wait_for_requests(held: &HeldFile) -> Result<()> {
    let failed = |e| Error::io(format!("look at {}", held.path().display()), e);
    let (file, bytes) = (reopen(held)?, held.length_bytes().map_err(failed)?);
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

/// Runs all readers at the same time, each one in a thread.
fn run_readers(readers: &[Vec<Part>], context: &ReaderContext) -> Result<Observed> {
    let gate = Gate::default();
    let read = |parts: &Vec<Part>| {
        let reader = ReaderThread::new(context, if context.each { calls_of(parts) } else { 0 });
        if context.each && context.engine.is_none() && readers.len() == 1 {
            run_first();
        }
        if !gate.wait() {
            return Err(Error::Stopped);
        }
        // Each thread measures its own time: the thread that opens the gate may wake up after short runs have ended.
        let began = Instant::now();
        reader.run(parts).map(|seen| (seen, began..Instant::now()))
    };
    let read = &read;
    let (before, seen) = std::thread::scope(|scope| {
        let start = |parts| Builder::new().spawn_scoped(scope, move || read(parts)).map_err(Error::refused_thread);
        let threads: Vec<_> = readers.iter().map(start).collect::<Result<_>>().inspect_err(|_| gate.cancel())?;
        let before = gate.open(readers.len(), usage::own_cpu);
        let seen = threads.into_iter().map(join).collect::<Result<Vec<(ReaderResult, Range<Instant>)>>>()?;
        Ok::<_, Error>((before, seen))
    })?;
    let ((seen, times), after): ((Vec<ReaderResult>, Vec<Range<Instant>>), _) =
        (seen.into_iter().unzip(), usage::own_cpu());
    let (began, ended) = (times.iter().map(|time| time.start).min(), times.iter().map(|time| time.end).max());
    let elapsed = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let since = |now: Duration, then: Duration| now.saturating_sub(then).as_nanos() as u64;
    let lookups = seen.iter().map(|seen| seen.lookups).fold(LookupCounts::default(), LookupCounts::add);
    Ok(Observed {
        elapsed_ns: elapsed.as_nanos() as u64,
        user_ns: since(after.user, before.user),
        system_ns: since(after.system, before.system),
        found: context.probes_cache.then_some([lookups.hits, lookups.locked, lookups.misses]),
        read_bytes: seen.iter().map(|seen| seen.read_bytes).sum(),
        write_bytes: seen.iter().map(|seen| seen.write_bytes).sum(),
        latency_most_ns: seen.iter().map(|seen| seen.latency_most_ns).max().unwrap_or(0),
        timeline: seen.first().map(|seen| subtract_start(&seen.timeline, before)).unwrap_or_default(),
        each_ns: seen.into_iter().flat_map(|seen| seen.each_ns).collect(),
        ..Observed::default()
    })
}

/// Gives this thread priority over all others, if permitted. While a reader waits for a processor, the kernel's read-ahead continues, and
/// the wait for the disk, which is to be measured, disappears. Several such readers would keep an emulated disk from the processors.
fn run_first() {
    // Without CAP_SYS_NICE the thread waits like others.
    drop(daemon::set_fifo().or_else(|_| daemon::set_nice()));
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::Job("a reader panicked".into())))
}

fn calls_of(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.stream.ops().count()).sum()
}

/// Subtracts the processor time before the run.
fn subtract_start(samples: &[Sample], before: usage::Cpu) -> Vec<Sample> {
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
    fn n_in_a_name_is_replaced_by_pages() {
        let name = |text: &str, pages| ReadAhead::named(text, pages).map(|under| under.name());
        assert_eq!(name("kernel", None), Ok("kernel".into()));
        assert_eq!(name("true-readahead(n)", Some(48)), Ok("true-readahead(48, 16)".into()));
        assert_eq!(name("true-readahead(n, adaptive)", Some(48)), Ok("true-readahead(48, adaptive)".into()));
        assert_eq!(name("linux-6.18", Some(48)), Ok("linux-6.18".into()));
        assert!(matches!(name("fixed(n)", None), Err(UnknownMethod::WithoutPages(_))));
    }

    #[test]
    fn error_of_an_unknown_name_lists_known_names() {
        let error = ReadAhead::named("linux-9", None).unwrap_err().to_string();
        assert!(error.contains("linux-6.18, linux-7.2") && error.contains("kernel"), "{error}");
    }
}

//! Concurrent readers of one disk, within one memory budget.
//!
//! ```text
//!     budget ─┬─ reader 1 ── file 1 ──▶ ▒▒░░
//!             ├─ reader 2 ── file 2 ──▶ ▒▒░░        each has at most budget / readers of pages that it has not read yet
//!             └─ reader n ── file n ──▶ ▒▒░░
//! ```
//!
//! The disk serves the readers in turns. A turn that is too short costs a rotating disk more for the seek than for the transfer. A budget
//! that one reader uses alone leaves the others without read-ahead. The report has the bandwidth of all, and the slowest reader by the mean.

use ahead::Budget;
use ahead_examples::{Compute, Memory, Report, Source, Stopwatch, Way, finish, size};
use anyhow::{Context, Result, anyhow};
use clap::Parser;
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Reads files concurrently, a thread for each
#[derive(Parser)]
#[command(name = "ahead-readers", version)]
struct Options {
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How the files are read
    #[arg(long, value_enum, default_value = "ahead")]
    reader: Way,
    /// Memory that all readers together read ahead
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    budget: u64,
    /// Bytes of one read
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size)]
    buffer: u64,
    /// Processor time to spend on each MiB, microseconds, beside a checksum
    #[arg(long, value_name = "US", default_value_t = 0)]
    compute_us_per_mib: u64,
    /// Print times and counters as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Details {
    /// Number of readers.
    readers: usize,
    /// Bytes per second of all readers together.
    bytes_per_s: f64,
    /// Bytes per second of each reader until its end.
    reader_bytes_per_s: Vec<f64>,
    /// The slowest reader by the mean.
    slowest_by_mean: f64,
}

/// What one reader has read.
struct Finished {
    bytes: u64,
    waits: Option<u64>,
    bytes_per_s: f64,
}

fn main() -> ExitCode {
    finish("ahead-readers", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let memory = Memory { budget: Some(Budget::new(options.budget)), distance_bytes: None };
    let start = Barrier::new(options.files.len());
    let finished: Vec<Finished> = thread::scope(|scope| {
        let (memory, start) = (&memory, &start);
        let spawn = |path| scope.spawn(move || read(path, options, memory, start));
        let running: Vec<_> = options.files.iter().map(|path| spawn(path.as_path())).collect();
        let joined =
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a reader panicked"))));
        joined.collect::<Result<_>>()
    })?;
    let bytes = finished.iter().map(|reader| reader.bytes).sum();
    let waits = finished.iter().map(|reader| reader.waits).sum();
    let rates: Vec<f64> = finished.iter().map(|reader| reader.bytes_per_s).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let details = Details {
        readers: rates.len(),
        bytes_per_s: bytes as f64 / watch.elapsed_s().max(1e-9),
        slowest_by_mean: rates.iter().copied().fold(f64::INFINITY, f64::min) / mean.max(1e-9),
        reader_bytes_per_s: rates,
    };
    if options.json {
        return Report::new(options.reader, &watch, bytes, waits, details).print();
    }
    println!(
        "{} readers: {:.1} MB/s, slowest {:.2} of the mean",
        details.readers,
        details.bytes_per_s / 1e6,
        details.slowest_by_mean
    );
    Ok(())
}

fn read(path: &Path, options: &Options, memory: &Memory, start: &Barrier) -> Result<Finished> {
    // Every thread comes to the barrier, whether its file exists or not.
    let opened = Source::open(path, options.reader, memory);
    start.wait();
    let (mut source, began) = (opened?, Instant::now());
    let mut buffer = vec![0; usize::try_from(options.buffer)?.max(1)];
    let (mut hasher, mut compute, mut bytes) = (crc32fast::Hasher::new(), Compute::new(options.compute_us_per_mib), 0);
    loop {
        let read = source.read(&mut buffer).with_context(|| format!("{}: cannot read byte {bytes}", path.display()))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        compute.spend(&buffer[..read]);
        bytes += read as u64;
    }
    std::hint::black_box(hasher.finalize());
    Ok(Finished { bytes, waits: source.waits(), bytes_per_s: bytes as f64 / began.elapsed().as_secs_f64().max(1e-9) })
}

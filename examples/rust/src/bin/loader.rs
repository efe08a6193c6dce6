//! Loader of small files in a random but known order, as the training of a model reads its images.
//!
//! ```text
//!     list (shuffled)  f7 f2 f9 f4 f1 f8 ...
//!     plain            read f7, use f7, read f2, use f2, ...              the disk serves one request at a time
//!     --threads N      N threads read whole files into queues             N × 2 files in memory
//!     --ahead          a Prefetcher requests a window of files            the page cache has them; one file in memory
//!                      before the one that is in use
//! ```
//!
//! The files are used in the order of the list in all ways.

use ahead::{Item, Prefetcher, PrefetcherOptions, Window};
use ahead_examples::{Compute, Report, Stopwatch, finish, late_items, size};
use anyhow::{Context, Result, anyhow};
use clap::Parser;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread;

/// Files that each thread has read and the program has not used yet: the default of PyTorch's DataLoader (`prefetch_factor`).
const FILES_BEFORE_USE: usize = 2;

/// Reads the files of a list in its order
#[derive(Parser)]
#[command(name = "ahead-loader", version)]
struct Options {
    /// The list: one path in each line; -: standard input
    list: PathBuf,
    /// Read by this number of threads
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "ahead")]
    threads: usize,
    /// Read ahead by ahead::Prefetcher
    #[arg(long)]
    ahead: bool,
    /// Bytes that the Prefetcher requests before they are used [default: the library's]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "ahead")]
    window: Option<u64>,
    /// Open and close each file, and read nothing
    #[arg(long, conflicts_with = "threads")]
    open_only: bool,
    /// Processor time to spend on each MiB, microseconds, beside a checksum
    #[arg(long, value_name = "US", default_value_t = 0)]
    compute_us_per_mib: u64,
    /// Print times and counters as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Details {
    /// Files used.
    files: u64,
    /// Files per second.
    files_per_s: f64,
    /// CRC-32 of all bytes in the order of the list, hexadecimal.
    checksum: String,
}

/// The program's use of the files.
struct Use {
    hasher: crc32fast::Hasher,
    compute: Compute,
    files: u64,
    bytes: u64,
}

impl Use {
    fn file(&mut self, content: &[u8]) {
        self.hasher.update(content);
        self.compute.spend(content);
        self.files += 1;
        self.bytes += content.len() as u64;
    }
}

fn main() -> ExitCode {
    finish("ahead-loader", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let paths = list(&options.list)?;
    let watch = Stopwatch::start();
    let compute = Compute::new(options.compute_us_per_mib);
    let mut used = Use { hasher: crc32fast::Hasher::new(), compute, files: 0, bytes: 0 };
    let mut waits = None;
    let way = match (options.ahead, options.threads) {
        (true, _) => {
            let mut prefetcher = prefetcher(paths, options);
            in_order(prefetcher.by_ref().map(|item| item.path), options, &mut used)?;
            waits = Some(late_items(&prefetcher));
            "ahead".to_owned()
        }
        (false, 0) => {
            in_order(paths.into_iter(), options, &mut used)?;
            "plain".to_owned()
        }
        (false, threads) => {
            by_threads(&paths, threads, &mut used)?;
            format!("{threads} threads")
        }
    };
    let checksum = format!("{:08x}", used.hasher.finalize());
    let details = Details { files: used.files, files_per_s: used.files as f64 / watch.elapsed_s().max(1e-9), checksum };
    if options.json {
        return Report::new(way, &watch, used.bytes, waits, details).print();
    }
    println!("{}  {} files, {:.0} files/s", details.checksum, details.files, details.files_per_s);
    Ok(())
}

fn list(path: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("{}: cannot read the list", path.display());
    let text = match path == Path::new("-") {
        true => std::io::read_to_string(stdin()).with_context(failed)?,
        false => fs::read_to_string(path).with_context(failed)?,
    };
    Ok(text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect())
}

fn prefetcher(paths: Vec<PathBuf>, options: &Options) -> Prefetcher<Item> {
    let window = options.window.map(Window::Bytes).unwrap_or_default();
    Prefetcher::with_options(paths, PrefetcherOptions::default().window(window))
}

fn in_order(paths: impl Iterator<Item = PathBuf>, options: &Options, used: &mut Use) -> Result<()> {
    let mut content = Vec::new();
    for path in paths {
        match options.open_only {
            true => {
                File::open(&path).with_context(|| path.display().to_string())?;
                used.files += 1;
            }
            false => {
                read_whole(&path, &mut content)?;
                used.file(&content);
            }
        }
    }
    Ok(())
}

fn read_whole(path: &Path, content: &mut Vec<u8>) -> Result<()> {
    content.clear();
    let read = File::open(path).and_then(|mut file| file.read_to_end(content));
    read.map(|_| ()).with_context(|| format!("{}: cannot read the file", path.display()))
}

/// Thread i reads the files i, i + threads, ...; the program takes one file from each thread in turn.
fn by_threads(paths: &[PathBuf], threads: usize, used: &mut Use) -> Result<()> {
    thread::scope(|scope| {
        let queues: Vec<_> = (0..threads.min(paths.len()))
            .map(|number| {
                let (sender, receiver) = sync_channel(FILES_BEFORE_USE);
                scope.spawn(move || {
                    for path in paths.iter().skip(number).step_by(threads) {
                        let mut content = Vec::new();
                        let result = read_whole(path, &mut content).map(|()| content);
                        let failed = result.is_err();
                        // The program has ended after an error.
                        if sender.send(result).is_err() || failed {
                            break;
                        }
                    }
                });
                receiver
            })
            .collect();
        for number in 0..paths.len() {
            let content = queues[number % threads].recv().map_err(|_| anyhow!("a thread of the loader panicked"))??;
            used.file(&content);
        }
        Ok(())
    })
}

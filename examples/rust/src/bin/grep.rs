//! Lines with a fixed string, searched in a mapped file.
//!
//! A mapping has no read calls: the program accesses memory, and each page that is not mapped costs a fault. The kernel's read-ahead sees
//! only these faults. `ahead::advise` sees how far the program is by the pages that become mapped, and requests the pages before it.
//!
//! ```text
//!     mapping   ████████████░░░░░░░░░░▒▒▒▒▒▒▒▒
//!               searched    │ cached  │ requested
//!                           └ the program's position, seen by /proc/self/pagemap
//! ```

use ahead::{Behaviour, advise};
use ahead_examples::{Compute, Report, Stopwatch, finish, map};
use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use memchr::memchr;
use memchr::memmem::Finder;
use memchr::memrchr;
use memmap2::{Advice, Mmap};
use serde::Serialize;
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The search proceeds by blocks, so that the processor time of a benchmark is spent along the file. Bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Counts the lines that contain a fixed string, as grep -cF does
#[derive(Parser)]
#[command(name = "ahead-grep", version)]
struct Options {
    /// The string; not empty, without a line end
    #[arg(value_parser = parse_needle)]
    string: String,
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Who reads ahead
    #[arg(long, value_enum, default_value = "ahead")]
    advise: Who,
    /// Pages of one request with --advise ahead; 0: adapted to the waits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pages: usize,
    /// Print the lines instead of their number
    #[arg(long, conflicts_with = "json")]
    lines: bool,
    /// Processor time to spend on each MiB, microseconds, beside the search
    #[arg(long, value_name = "US", default_value_t = 0)]
    compute_us_per_mib: u64,
    /// Print times and counters as JSON
    #[arg(long)]
    json: bool,
}

/// Who reads ahead for the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    /// The kernel, without advice
    None,
    /// The kernel after madvise(SEQUENTIAL)
    KernelSequential,
    /// ahead::advise, in this process
    Ahead,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::None => "none",
            Who::KernelSequential => "kernel-sequential",
            Who::Ahead => "ahead",
        }
    }
}

#[derive(Serialize)]
struct Details {
    /// Lines with the string, of each file.
    lines: Vec<u64>,
}

fn parse_needle(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains('\n') {
        true => Err("the string is empty or has a line end".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn main() -> ExitCode {
    finish("ahead-grep", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let (mut bytes, mut waits, mut counts) = (0, None, Vec::new());
    for path in &options.files {
        let text = map(path)?;
        let (lines, file_waits) = search(options, path, &text)?;
        bytes += text.len() as u64;
        waits = file_waits.map(|count| count + waits.unwrap_or(0));
        counts.push(lines);
    }
    if options.json {
        return Report::new(options.advise.name(), &watch, bytes, waits, Details { lines: counts }).print();
    }
    for (path, lines) in options.files.iter().zip(counts).filter(|_| !options.lines) {
        match options.files.len() {
            1 => println!("{lines}"),
            _ => println!("{}:{lines}", path.display()),
        }
    }
    Ok(())
}

/// The number of matching lines, and how often the search waited for the disk, if that is counted.
fn search(options: &Options, path: &Path, text: &Mmap) -> Result<(u64, Option<u64>)> {
    let failed = || format!("{}: cannot advise on the mapping", path.display());
    let advised = match options.advise {
        Who::None => None,
        Who::KernelSequential => {
            text.advise(Advice::Sequential).with_context(failed)?;
            None
        }
        Who::Ahead if text.is_empty() => None,
        Who::Ahead => Some(advise(text, Behaviour::Sequential, options.pages).with_context(failed)?),
    };
    let mut out = BufWriter::new(stdout().lock());
    let lines =
        matching_lines(
            text,
            options.string.as_bytes(),
            Compute::new(options.compute_us_per_mib),
            |line| match options.lines {
                true => out.write_all(line).and_then(|()| out.write_all(b"\n")).context("standard output"),
                false => Ok(()),
            },
        )?;
    out.flush().context("standard output")?;
    Ok((lines, advised.map(|advised| advised.counters().waits)))
}

/// Counts the lines with the string, and passes each to `found`, without its end.
fn matching_lines(
    text: &[u8],
    string: &[u8],
    mut compute: Compute,
    mut found: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let finder = Finder::new(string);
    let (mut lines, mut start) = (0, 0);
    while start < text.len() {
        // A match may begin in this block and end behind it.
        let end = (start + BLOCK_BYTES).min(text.len());
        let window = &text[start..(end + string.len() - 1).min(text.len())];
        let next = match finder.find(window) {
            Some(at) => {
                let from = memrchr(b'\n', &text[..start + at]).map_or(0, |newline| newline + 1);
                let to = memchr(b'\n', &text[start + at..]).map_or(text.len(), |length| start + at + length);
                found(&text[from..to])?;
                lines += 1;
                to + 1
            }
            None => end,
        };
        compute.spend(&text[start..next.min(text.len())]);
        start = next;
    }
    Ok(lines)
}

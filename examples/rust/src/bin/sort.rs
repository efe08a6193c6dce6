//! External sort of lines in the order of bytes (`LC_ALL=C sort`), with a fixed memory.
//!
//! O'Connor and Tracy (2000) regret not to have tried their read-ahead with an external sort that is given 2n pages: for each of n runs,
//! one group of pages that is merged and one that is read meanwhile.
//!
//! ```text
//!     input ──▶ memory, sorted ──▶ run 1 ─ ▒▒░░ ─┐
//!               memory, sorted ──▶ run 2 ─ ▒▒░░ ─┼─▶ heap ──▶ output      ▒▒ merged   ░░ requested meanwhile
//!               ...            ──▶ run n ─ ▒▒░░ ─┘
//!                                          2 groups = memory / n
//! ```
//!
//! With `--reader ahead` the runs share a `Budget` of the whole memory, and each reader's largest distance is its two groups. With
//! `--reader plain` each run has one buffer of memory / n: the same memory, but the merge waits for each buffer. If a group became smaller
//! than 64 KiB, runs are merged in several passes.
//!
//! A sort that is larger than the machine's memory finds its runs evicted when the merge begins. `--evict-runs` makes it so for a smaller
//! file.

use ahead::Budget;
use ahead_examples::{Memory, Report, Source, Stopwatch, Way, finish, size};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Smallest group of pages, bytes: below, an access of a network volume (1 ms) costs more than the transfer of the group.
const LEAST_GROUP_BYTES: u64 = 64 << 10;
/// Groups of each run in a merge: one is merged while the other is read.
const GROUPS: u64 = 2;
/// Copy buffer of a run that the library reads ahead, and of the output, bytes: the read calls cost less than 1 % of the merge.
const COPY_BYTES: usize = 64 << 10;
/// Largest read of the input, bytes; with little memory a quarter of it.
const INPUT_BYTES: usize = 256 << 10;
/// Positions of lines are 32 bits.
const MOST_MEMORY_BYTES: u64 = 1 << 31;

/// Sorts lines by their bytes, with a fixed memory, as LC_ALL=C sort does
#[derive(Parser)]
#[command(name = "ahead-sort", version)]
struct Options {
    /// The file
    file: PathBuf,
    /// The sorted file; it may not be the input
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Memory for lines, and for the buffers of the merge: 128K to 2G
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = memory_size)]
    memory: u64,
    /// How input and runs are read
    #[arg(long, value_enum, default_value = "ahead")]
    reader: Way,
    /// Directory for the runs [default: that of the output]
    #[arg(short = 'T', long, value_name = "DIR")]
    temporary_directory: Option<PathBuf>,
    /// Write each run back and evict it, as a machine with less memory than the file does; its time is reported apart
    #[arg(long)]
    evict_runs: bool,
    /// Print times and counters as JSON
    #[arg(long)]
    json: bool,
}

fn memory_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    match (GROUPS * LEAST_GROUP_BYTES..=MOST_MEMORY_BYTES).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("{text} is outside of 128K to 2G")),
    }
}

#[derive(Default, Serialize)]
struct Details {
    /// Sorted runs of the first phase.
    runs: usize,
    /// Merges, with the last one.
    merges: usize,
    /// Time until all runs are written, without their eviction, seconds.
    runs_s: f64,
    /// Time of all merges, without evictions, seconds.
    merge_s: f64,
    /// Bytes that the merges read.
    merge_bytes: u64,
    /// Bytes per second that the merges read.
    merge_bytes_per_s: f64,
    /// Time to write runs back and to evict them, seconds. It is part of no other time but `elapsed_s`.
    evict_s: f64,
}

fn main() -> ExitCode {
    finish("ahead-sort", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let directory = options.temporary_directory.as_deref().or(options.output.parent());
    let directory = directory.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let home = TempDir::with_prefix_in("ahead-sort-", directory).with_context(|| directory.display().to_string())?;
    let mut sort = Sort { options, home, made: 0, evicted: Duration::ZERO, waits: None, details: Details::default() };
    let (runs, bytes) = sort.make_runs()?;
    let details = &mut sort.details;
    (details.runs, details.runs_s) = (runs.len(), watch.elapsed_s() - sort.evicted.as_secs_f64());
    let merging = Instant::now();
    let evicted_before = sort.evicted;
    sort.merge_all(runs)?;
    let merge_s = (merging.elapsed() - (sort.evicted - evicted_before)).as_secs_f64();
    let details = &mut sort.details;
    (details.merge_s, details.evict_s) = (merge_s, sort.evicted.as_secs_f64());
    details.merge_bytes_per_s = details.merge_bytes as f64 / merge_s.max(1e-9);
    match options.json {
        true => Report::new(options.reader, &watch, bytes, sort.waits, sort.details).print(),
        false => Ok(()),
    }
}

/// A line of the memory. Most comparisons end at its first eight bytes, which are a number here.
#[derive(Clone, Copy)]
struct Line {
    prefix: u64,
    start: u32,
    length: u32,
}

impl Line {
    fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start as usize..][..self.length as usize]
    }
}

/// The first eight bytes in their order; a shorter line is filled with zeros.
fn prefix(line: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = line.len().min(8);
    bytes[..length].copy_from_slice(&line[..length]);
    u64::from_be_bytes(bytes)
}

struct Sort<'a> {
    options: &'a Options,
    home: TempDir,
    made: usize,
    evicted: Duration,
    waits: Option<u64>,
    details: Details,
}

impl Sort<'_> {
    /// The sorted runs of the input, and its length.
    fn make_runs(&mut self) -> Result<(VecDeque<PathBuf>, u64)> {
        let mut input = Source::open(&self.options.file, self.options.reader, &Memory::default())?;
        let failed = || format!("{}: cannot read the file", self.options.file.display());
        let mut text = Vec::with_capacity(self.options.memory as usize);
        let (mut lines, mut bytes, mut runs) = (Vec::new(), 0, VecDeque::new());
        loop {
            let read = fill(&mut input, &mut text, &mut lines, self.options.memory).with_context(failed)?;
            bytes += read;
            if lines.is_empty() {
                break;
            }
            lines.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| a.of(&text).cmp(b.of(&text))));
            let run = self.new_run();
            write_to(&run, |out| lines.iter().try_for_each(|line| put_line(out, line.of(&text))))?;
            self.evict(&run)?;
            runs.push_back(run);
            // The beginning of a line whose end is not read yet.
            let used = lines.iter().map(|line| line.start as usize + line.length as usize + 1).max().unwrap_or(0);
            text.drain(..used.min(text.len()));
            lines.clear();
        }
        self.count_waits(&input);
        Ok((runs, bytes))
    }

    /// Merges until one file is left, the output. Each merge has as many runs as memory has pairs of groups.
    fn merge_all(&mut self, mut runs: VecDeque<PathBuf>) -> Result<()> {
        let most = (self.options.memory / (GROUPS * LEAST_GROUP_BYTES)).max(2) as usize;
        while runs.len() > most {
            let merged = self.new_run();
            let sources: Vec<PathBuf> = runs.drain(..most).collect();
            self.merge(&sources, &merged)?;
            self.evict(&merged)?;
            runs.push_back(merged);
        }
        self.merge(&Vec::from(runs), &self.options.output)
    }

    fn merge(&mut self, sources: &[PathBuf], output: &Path) -> Result<()> {
        self.details.merges += 1;
        let share_bytes = self.options.memory / sources.len().max(1) as u64;
        let by_library = matches!(self.options.reader, Way::Ahead | Way::AheadDirect);
        let memory = Memory { budget: Some(Budget::new(self.options.memory)), distance_bytes: Some(share_bytes) };
        let buffer_bytes = if by_library { COPY_BYTES } else { share_bytes as usize };
        let mut heap = BinaryHeap::with_capacity(sources.len());
        for (number, path) in sources.iter().enumerate() {
            let source = BufReader::with_capacity(buffer_bytes, Source::open(path, self.options.reader, &memory)?);
            let mut head = Head { prefix: 0, line: Vec::new(), number, source };
            match head.next().with_context(|| path.display().to_string())? {
                true => heap.push(head),
                false => self.count_waits(head.source.get_ref()),
            }
        }
        let mut bytes = 0;
        write_to(output, |out| {
            while let Some(mut head) = heap.peek_mut() {
                put_line(out, &head.line)?;
                bytes += head.line.len() as u64 + 1;
                if !head.next()? {
                    let ended = PeekMut::pop(head);
                    self.count_waits(ended.source.get_ref());
                }
            }
            Ok(())
        })?;
        self.details.merge_bytes += bytes;
        sources.iter().try_for_each(|path| std::fs::remove_file(path).with_context(|| path.display().to_string()))
    }

    fn new_run(&mut self) -> PathBuf {
        self.made += 1;
        self.home.path().join(format!("run-{}", self.made))
    }

    fn evict(&mut self, run: &Path) -> Result<()> {
        if self.options.evict_runs {
            let began = Instant::now();
            let file = File::open(run).with_context(|| run.display().to_string())?;
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            self.evicted += began.elapsed();
        }
        Ok(())
    }

    fn count_waits(&mut self, source: &Source) {
        self.waits = source.waits().map(|count| count + self.waits.unwrap_or(0)).or(self.waits);
    }
}

/// Reads until text and lines have the size of the memory, at least one line. Returns the bytes read. At the end of the file the rest is a
/// line, too.
fn fill(input: &mut impl Read, text: &mut Vec<u8>, lines: &mut Vec<Line>, memory_bytes: u64) -> Result<u64> {
    let input_bytes = INPUT_BYTES.min(memory_bytes as usize / 4);
    let (mut start, mut searched, mut bytes) = (0, 0, 0);
    loop {
        for end in memchr::memchr_iter(b'\n', &text[searched..]).map(|at| searched + at) {
            lines.push(line_at(text, start..end)?);
            start = end + 1;
        }
        searched = text.len();
        let used_bytes = text.len() + size_of_val(lines.as_slice()) + input_bytes;
        if used_bytes as u64 > memory_bytes && !lines.is_empty() {
            return Ok(bytes);
        }
        let old = text.len();
        text.resize(old + input_bytes, 0);
        let read = read_some(input, &mut text[old..]);
        text.truncate(old + read.as_ref().unwrap_or(&0));
        let read = read?;
        if read == 0 {
            if start < text.len() {
                lines.push(line_at(text, start..text.len())?);
            }
            return Ok(bytes);
        }
        bytes += read as u64;
    }
}

fn line_at(text: &[u8], range: std::ops::Range<usize>) -> Result<Line> {
    ensure!(range.end <= u32::MAX as usize, "a line has more than {} bytes", u32::MAX);
    let line = &text[range.clone()];
    Ok(Line { prefix: prefix(line), start: range.start as u32, length: line.len() as u32 })
}

fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            result => return result,
        }
    }
}

fn write_to(path: &Path, work: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let write = || {
        let mut out = BufWriter::with_capacity(COPY_BYTES, File::create(path)?);
        work(&mut out)?;
        out.flush()
    };
    write().with_context(|| format!("{}: cannot write the file", path.display()))
}

fn put_line(out: &mut impl Write, line: &[u8]) -> io::Result<()> {
    out.write_all(line)?;
    out.write_all(b"\n")
}

/// A run in the heap, with its first line. The heap has the smallest line on top.
struct Head {
    prefix: u64,
    line: Vec<u8>,
    number: usize,
    source: BufReader<Source>,
}

impl Head {
    /// Takes the next line; false: there is none.
    fn next(&mut self) -> io::Result<bool> {
        self.line.clear();
        let read = self.source.read_until(b'\n', &mut self.line);
        if read.map_err(|error| io::Error::new(error.kind(), format!("cannot read a run: {error}")))? == 0 {
            return Ok(false);
        }
        self.line.pop_if(|end| *end == b'\n');
        self.prefix = prefix(&self.line);
        Ok(true)
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        let by_line = || self.line.cmp(&other.line);
        self.prefix.cmp(&other.prefix).then_with(by_line).then(self.number.cmp(&other.number)).reverse()
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

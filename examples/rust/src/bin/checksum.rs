//! CRC-32 of big files, read front to back.
//!
//! ```text
//!     disk:   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓       a pipeline: while block n is computed, the next blocks are read
//!     CPU:     ░░░ ░░░ ░░░ ░░░ ░░░ ░░░ ░░░       elapsed time = max(disk, CPU), and not their sum
//! ```
//!
//! `--compute-us-per-mib` adds processor time to each block, so that a benchmark can set the ratio of processor and disk.

use ahead_examples::{Compute, Memory, Report, Source, Stopwatch, Way, finish, size};
use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints the CRC-32 of files
#[derive(Parser)]
#[command(name = "ahead-checksum", version)]
struct Options {
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How the files are read
    #[arg(long, value_enum, default_value = "ahead")]
    reader: Way,
    /// Bytes of one read
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size)]
    buffer: u64,
    /// Processor time to spend on each MiB, microseconds, beside the checksum
    #[arg(long, value_name = "US", default_value_t = 0)]
    compute_us_per_mib: u64,
    /// Read only: the checksum is 0. For the cost of the calls
    #[arg(long)]
    read_only: bool,
    /// Print times and counters as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Details {
    /// CRC-32 of each file, hexadecimal.
    checksums: Vec<String>,
}

fn main() -> ExitCode {
    finish("ahead-checksum", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let watch = Stopwatch::start();
    let mut buffer = vec![0; usize::try_from(options.buffer)?.max(1)];
    let mut compute = Compute::new(options.compute_us_per_mib);
    let (mut bytes, mut waits, mut checksums) = (0, None, Vec::new());
    for path in &options.files {
        let mut source = Source::open(path, options.reader, &Memory::default())?;
        let (checksum, read) = checksum(&mut source, path, &mut buffer, &mut compute, options.read_only)?;
        bytes += read;
        waits = source.waits().map(|count| count + waits.unwrap_or(0));
        checksums.push(format!("{checksum:08x}"));
    }
    if options.json {
        return Report::new(options.reader, &watch, bytes, waits, Details { checksums }).print();
    }
    for (path, checksum) in options.files.iter().zip(checksums) {
        println!("{checksum}  {}", path.display());
    }
    Ok(())
}

/// The checksum of a file and its length.
fn checksum(
    source: &mut Source,
    path: &Path,
    buffer: &mut [u8],
    compute: &mut Compute,
    read_only: bool,
) -> Result<(u32, u64)> {
    let (mut hasher, mut bytes) = (crc32fast::Hasher::new(), 0);
    loop {
        let read = source.read(buffer).with_context(|| format!("{}: cannot read byte {bytes}", path.display()))?;
        if read == 0 {
            return Ok((hasher.finalize(), bytes));
        }
        if !read_only {
            hasher.update(&buffer[..read]);
            compute.spend(&buffer[..read]);
        }
        bytes += read as u64;
    }
}

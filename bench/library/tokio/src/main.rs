//! `ahead-checksum` with the reader of tokio: each read is a pread on a thread of the runtime, and the program waits for it.

use ahead_examples::{Compute, Report, Stopwatch, finish, size};
use anyhow::Result;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::io::AsyncReadExt;

/// Prints the time of a CRC-32 of a file as JSON
#[derive(Parser)]
struct Options {
    /// The file
    file: PathBuf,
    /// Bytes of one read
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size)]
    buffer: u64,
    /// Processor time to spend on each MiB, microseconds, beside the checksum
    #[arg(long, value_name = "US", default_value_t = 0)]
    compute_us_per_mib: u64,
}

fn main() -> ExitCode {
    finish("checksum-tokio", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let watch = Stopwatch::start();
    let bytes = runtime.block_on(checksum(options))?;
    Report::new("tokio", &watch, bytes, None, ()).print()
}

async fn checksum(options: &Options) -> Result<u64> {
    let mut file = tokio::fs::File::open(&options.file).await?;
    // By default a read returns what fits in 2 MiB; the buffer is the limit here.
    let mut buffer = vec![0; usize::try_from(options.buffer)?.max(1)];
    let (mut hasher, mut compute) = (crc32fast::Hasher::new(), Compute::new(options.compute_us_per_mib));
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            std::hint::black_box(hasher.finalize());
            return Ok(bytes);
        }
        hasher.update(&buffer[..read]);
        compute.spend(&buffer[..read]);
        bytes += read as u64;
    }
}

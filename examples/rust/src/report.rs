//! The report of a run, and the exit status of the programs.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Instant;

/// Wall-clock and processor time since its start.
#[derive(Debug)]
pub struct Stopwatch {
    began: Instant,
    cpu_began_s: f64,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch { began: Instant::now(), cpu_began_s: process_cpu_s() }
    }

    /// Time since the start, seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Processor time of all threads of the process since the start, user and system, seconds. Includes the kernel's workers of io_uring,
    /// which are threads of the process.
    pub fn cpu_s(&self) -> f64 {
        process_cpu_s() - self.cpu_began_s
    }
}

fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What `--json` prints: the same keys for every program, and its details.
#[derive(Debug, Serialize)]
pub struct Report<D> {
    /// The way of reading, as its option names it.
    pub way: String,
    /// Wall-clock time, seconds.
    pub elapsed_s: f64,
    /// Processor time, user and system, seconds.
    pub cpu_s: f64,
    /// Bytes that the program read.
    pub bytes: u64,
    /// How often the program waited for the disk, by the library's counters; with a Prefetcher: see [`late_items`]. `null`: read without the
    /// library, so there is no count.
    pub waits: Option<u64>,
    /// Largest resident memory of the process, bytes, without the page cache.
    pub peak_memory_bytes: u64,
    /// The keys of this program.
    #[serde(flatten)]
    pub details: D,
}

impl<D: Serialize> Report<D> {
    /// The report of a run that ends now.
    pub fn new(way: impl ToString, watch: &Stopwatch, bytes: u64, waits: Option<u64>, details: D) -> Report<D> {
        let (elapsed_s, cpu_s) = (watch.elapsed_s(), watch.cpu_s());
        Report { way: way.to_string(), elapsed_s, cpu_s, bytes, waits, peak_memory_bytes: peak_memory_bytes(), details }
    }

    /// Prints it as one line of JSON.
    pub fn print(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// Items of a Prefetcher that the program took before their read-ahead was requested: it had to wait for the disk, unless they were cached.
pub fn late_items<T>(prefetcher: &ahead::Prefetcher<T>) -> u64 {
    let counters = prefetcher.counters();
    counters.late + counters.consumed_before_start
}

/// Largest resident memory of this process so far, bytes (`VmHWM` of proc(5)); 0 without procfs.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The exit status: 0, or 1 with the message on standard error.
pub fn finish(program: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! The real page cache instead of the simulated one: the request of a paper, and its result.
//!
//! A program that can mount disks and evict pages supplies a [`Live`]; the papers themselves need no privilege. The
//! policy is that of the running kernel, so only results that do not depend on an old kernel make sense.

use ahead_sim::Scenario;

/// The file system of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// `ext2`, `ext4`, `xfs`.
    pub name: &'static str,
    /// Block size, bytes.
    pub block_bytes: u64,
}

/// A run that a paper requests.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The disk's model, its window (`read_ahead_kb`), and the workloads, each stream with a separate file that is not
    /// cached. Costs and memory are those of the machine that executes the run.
    pub scenario: &'a Scenario,
    /// The file system of the disk.
    pub filesystem: Filesystem,
    /// Whether the time of each call or touched block is requested.
    pub each: bool,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// From the beginning to the end of the last stream, nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time of the programs' own work, nanoseconds.
    pub user_ns: u64,
    /// Processor time of the kernel for the programs, nanoseconds.
    pub system_ns: u64,
    /// Bytes that programs have read or touched.
    pub read_bytes: u64,
    /// Time of each call or touched block in order, stream after stream, nanoseconds; empty unless requested.
    pub each_ns: Vec<u64>,
    /// Read requests that reached the disk.
    pub device_requests: u64,
    /// Bytes of these requests.
    pub device_bytes: u64,
}

impl Observed {
    /// Bytes per second that programs received.
    pub fn throughput_bytes_per_s(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.read_bytes as f64 * 1e9 / self.elapsed_ns as f64 }
    }
}

/// The reason why a run failed.
pub type LiveError = Box<dyn std::error::Error + Send + Sync>;

/// Runs workloads against the real page cache.
pub trait Live {
    /// Runs the workloads once, from a cold cache.
    ///
    /// Errors: the disk cannot be made, mounted or read.
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError>;
}

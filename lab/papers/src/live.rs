//! The real page cache instead of the simulated one: what a paper may ask for, and what comes back.
//!
//! A program that can mount disks and evict pages supplies a [`Live`]; the papers themselves need no privilege. The
//! running kernel is the policy there, so only results that do not depend on an old kernel make sense.

use ahead_sim::Scenario;

/// The file system that the files lie on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    /// `ext2`, `ext4`, `xfs`.
    pub name: &'static str,
    /// Block size, bytes.
    pub block_bytes: u64,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The disk's model, its window (`read_ahead_kb`), and the workloads, each stream with its own file, cold.
    /// Costs and memory are those of the machine that runs it.
    pub scenario: &'a Scenario,
    /// What the disk is formatted with.
    pub filesystem: Filesystem,
    /// The time of each call or touched block is wanted.
    pub each: bool,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// From the beginning to the end of the last stream, nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time of the programs themselves, nanoseconds.
    pub user_ns: u64,
    /// Processor time of the kernel for them, nanoseconds.
    pub system_ns: u64,
    /// Bytes that programs have read or touched.
    pub read_bytes: u64,
    /// Time of each call or touched block in its order, all streams one after the other, nanoseconds; empty unless
    /// wanted.
    pub each_ns: Vec<u64>,
    /// Read requests that the disk got.
    pub device_requests: u64,
    /// Bytes of them.
    pub device_bytes: u64,
}

impl Observed {
    /// Bytes per second that programs got.
    pub fn throughput_bytes_per_s(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.read_bytes as f64 * 1e9 / self.elapsed_ns as f64 }
    }
}

/// Why nothing came out.
pub type LiveError = Box<dyn std::error::Error + Send + Sync>;

/// Runs workloads against the real page cache.
pub trait Live {
    /// Runs it once, from a cold cache.
    ///
    /// Errors: the disk cannot be made, mounted or read.
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError>;
}

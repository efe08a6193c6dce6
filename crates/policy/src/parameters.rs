//! What a policy may know of the machine when it is made.

/// What a disk is like, as a policy needs to know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceTraits {
    /// From request to arrival of a small random read, nanoseconds.
    pub access_ns: u64,
    /// Of a long sequential read.
    pub bandwidth_bytes_per_s: f64,
    /// How many requests it serves at the same time.
    pub parallelism: u32,
    /// What each request costs a busy disk that is asked for single pages near one another, going upwards, nanoseconds:
    /// the inverse of its requests per second.
    pub request_ns: u64,
}

/// A disk of one channel that serves pages near one another so many times as fast as pages anywhere has an arm.
const ARM_FACTOR: u64 = 8;

impl DeviceTraits {
    /// What the disk transfers in the time of one access, or of what a request costs it if that is more (a volume that
    /// is held to its requests per second), in pages: a shorter request is mostly waiting.
    pub fn pages_per_access(&self) -> u64 {
        let bytes = self.bandwidth_bytes_per_s * self.access_ns.max(self.request_ns) as f64 * 1e-9;
        ((bytes / crate::access::PAGE_BYTES as f64) as u64).max(1)
    }

    /// How long the disk could have served others while a request of so many pages was waited for; 0 if it transferred
    /// for most of the time: then others have none to spare. (One that serves a request at a time could not at all, but
    /// the wait was spent all the same.)
    pub fn idle_ns(&self, wait_ns: u64, pages: u64) -> u64 {
        let idle_ns = wait_ns.saturating_sub(pages.saturating_mul(self.page_ns()));
        if idle_ns < wait_ns / 2 { 0 } else { idle_ns }
    }

    /// Whether it has an arm: it serves one request at a time, and pages near one another far sooner than pages anywhere.
    pub fn has_arm(&self) -> bool {
        self.parallelism == 1 && self.request_ns * ARM_FACTOR < self.access_ns
    }

    /// How long a page takes of a long sequential read, nanoseconds.
    pub fn page_ns(&self) -> u64 {
        (crate::access::PAGE_BYTES as f64 * 1e9 / self.bandwidth_bytes_per_s) as u64
    }
}

impl Default for DeviceTraits {
    /// Wu's disk of 2010: 8 ms and 100 MB/s; nothing else costs anything in it.
    fn default() -> Self {
        DeviceTraits { access_ns: 8_000_000, bandwidth_bytes_per_s: 100e6, parallelism: 1, request_ns: 0 }
    }
}

/// What a policy is made with.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The disk; only policies that say so look at it.
    pub device: DeviceTraits,
    /// The most that may be read and not yet used, over all files; `None`: a share of the memory, as the policy says.
    pub budget_pages: Option<u64>,
    /// Every access that will come, in order: for the policy that knows the future.
    pub future: Option<std::sync::Arc<[(crate::FileId, crate::Page)]>>,
}

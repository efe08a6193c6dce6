//! Checks for impossible machines and for runs that would not end in reasonable time.

use super::Scenario;
use crate::patterns::Stream;
use ahead_policy::{PAGE_BYTES, UnknownPolicy};

/// The limit on steps of a run: accesses to pages, calls, slices of computing. At ten million a second, this number
/// takes half an hour.
const MOST_STEPS: u64 = 1 << 34;
/// The limit on files and openings of all recordings: the machine keeps tables of them.
const MOST_NUMBERS: u64 = 1 << 22;
/// The limit on processes at a time: each costs memory.
pub(super) const MOST_STREAMS: usize = 100_000;

/// A scenario that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Impossible {
    /// The field that is wrong.
    pub blame: Blame,
    /// The reason, and the accepted values.
    pub message: String,
}

/// The place of the error in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The policy with this index, from 0.
    Policy(usize),
    /// This field of the machine.
    Machine(&'static str),
    /// This field of the disk.
    Disk(&'static str),
    /// The workload with this index, from 0, and its field.
    Workload(usize, &'static str),
}

fn wrong(blame: Blame, message: String) -> Result<(), Impossible> {
    Err(Impossible { blame, message })
}

/// A length in KiB, for messages.
fn kb(pages: u64) -> String {
    format!("{} KiB", pages * PAGE_BYTES / 1024)
}

impl Scenario {
    /// Checks that the scenario can run: it has enough room, and it ends. A scenario read from text is already checked.
    /// A caller that changes its fields afterwards checks again.
    ///
    /// Errors: the first field that is wrong.
    pub fn check(&self) -> Result<(), Impossible> {
        self.check_disk()?;
        self.check_memory()?;
        self.check_workloads()?;
        self.check_policies()
    }

    /// The limit on the steps of a run, whatever the policy: accesses to pages, calls, slices of computing.
    pub fn steps(&self) -> u64 {
        let slice_ns = self.settings.slice_ns;
        let of_streams = self.workloads.iter().flat_map(|workload| &workload.streams).map(|one| one.steps(slice_ns));
        let of_recordings = self.workloads.iter().filter_map(|workload| workload.recording.as_deref());
        of_streams.chain(of_recordings.map(|one| one.steps(slice_ns))).fold(0, u64::saturating_add)
    }

    fn check_disk(&self) -> Result<(), Impossible> {
        let longest_bytes = self.disk.longest_bytes();
        let field = if self.disk.longest_bytes.is_some() { "max_request_kb" } else { "model" };
        if longest_bytes == 0 || !longest_bytes.is_multiple_of(PAGE_BYTES) {
            let message = format!(
                "a request has whole pages: max_request_kb is a multiple of 4, {} is none",
                longest_bytes as f64 / 1024.0
            );
            return wrong(Blame::Disk(field), message);
        }
        let (_, disk_bytes) = self.layouts();
        if disk_bytes > ahead_device::MAX_CAPACITY_BYTES {
            let message = format!(
                "the files take {} GiB; a disk has at most {} GiB",
                disk_bytes >> 30,
                ahead_device::MAX_CAPACITY_BYTES >> 30
            );
            return wrong(Blame::Workload(self.workloads.len().saturating_sub(1), "file_mb"), message);
        }
        Ok(())
    }

    /// All pages requested at a time must fit into the memory. Otherwise they would evict each other.
    fn check_memory(&self) -> Result<(), Impossible> {
        let memory = self.memory_pages;
        let limit =
            |what: &str, pages: u64| format!("{what} ({}) is larger than the memory ({})", kb(pages), kb(memory));
        let request_pages = self.disk.longest_bytes() / PAGE_BYTES;
        if request_pages > memory {
            let least_mb = self.disk.longest_bytes().div_ceil(1 << 20);
            let message = limit("a request (max_request_kb, or the model's)", request_pages);
            let message = format!("{message}; memory_mb is {least_mb} at least");
            return wrong(Blame::Machine("memory_mb"), message);
        }
        if self.disk.window_pages > memory {
            return wrong(Blame::Disk("read_ahead_kb"), limit("a window (read_ahead_kb)", self.disk.window_pages));
        }
        for (index, policy) in self.policies.iter().enumerate() {
            if let Some(pages) = policy.pages().filter(|pages| *pages > memory) {
                return wrong(Blame::Policy(index), limit(&format!("what {policy} asks for"), pages));
            }
        }
        for (index, workload) in self.workloads.iter().enumerate() {
            if let Some(stream) = workload.streams.iter().find(|stream| stream.block_pages > memory) {
                let message = limit("a block (block_kb)", stream.block_pages);
                return wrong(Blame::Workload(index, "block_kb"), message);
            }
        }
        Ok(())
    }

    /// The pages that a policy requests after each jump take time, too.
    fn check_policies(&self) -> Result<(), Impossible> {
        for (index, policy) in self.policies.iter().enumerate() {
            if policy.description().needs_profile() && !self.has_profile() {
                let name = policy.description().name;
                return wrong(Blame::Policy(index), UnknownPolicy::NeedsProfile { name }.to_string());
            }
        }
        let streams = || self.workloads.iter().flat_map(|workload| &workload.streams);
        let jumps = streams().map(Stream::jumps).fold(0, u64::saturating_add);
        for (index, policy) in self.policies.iter().enumerate() {
            let pages = policy.pages().unwrap_or(0);
            if jumps.saturating_mul(pages) > MOST_STEPS {
                let message = format!(
                    "{policy} asks for {pages} pages after each of {jumps} jumps; all of them may be {MOST_STEPS} pages: fewer blocks, \
                     passes or streams, or a smaller policy"
                );
                return wrong(Blame::Policy(index), message);
            }
        }
        Ok(())
    }

    fn check_workloads(&self) -> Result<(), Impossible> {
        let mut steps = 0_u64;
        let (mut streams, mut numbers) = (0, 0_u64);
        for (index, workload) in self.workloads.iter().enumerate() {
            streams += workload.streams.len();
            if streams > MOST_STREAMS {
                let message = format!("with this there are {streams} streams; there are at most {MOST_STREAMS}");
                return wrong(Blame::Workload(index, "streams"), message);
            }
            for stream in &workload.streams {
                steps = steps.saturating_add(stream.steps(self.settings.slice_ns));
            }
            if let Some(recording) = &workload.recording {
                recording.check().or_else(|message| wrong(Blame::Workload(index, "profile"), message))?;
                steps = steps.saturating_add(recording.steps(self.settings.slice_ns));
                numbers += u64::from(recording.opens()) + recording.file_pages.len() as u64;
                if numbers > MOST_NUMBERS {
                    let message = format!("recordings have at most {MOST_NUMBERS} files and openings, here {numbers}");
                    return wrong(Blame::Workload(index, "profile"), message);
                }
            }
            if steps > MOST_STEPS {
                let message = format!(
                    "with this the run takes {steps} accesses, calls and slices of computing; it may take {MOST_STEPS}"
                );
                return wrong(Blame::Workload(index, "pattern"), message);
            }
        }
        Ok(())
    }
}

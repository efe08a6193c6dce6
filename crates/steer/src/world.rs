//! The seam between the logic and the slow world: open files of other processes, disks, memory, the observer.
//!
//! ```text
//!     Steerer ──▶ World ◀── Kernel (kernel.rs): BPF, pidfd, sysfs, workers
//!                       ◀── a fake in tests
//! ```

use crate::refusal::Refusal;
use ahead_model::DeviceNumber;
use ahead_observe::OpenState;
use ahead_policy::steering::{Machine, Target};
use ahead_sys::other_process::{Descriptor, Expected};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// The descriptor of an open file.
pub(crate) fn descriptor_of(target: &Target) -> Option<Descriptor> {
    target.descriptor.map(|number| Descriptor { pid: target.pid, tid: target.tid, number })
}

/// The file to which the descriptor of an open file should lead.
pub(crate) fn file_of(target: &Target) -> Expected {
    let Target { device, inode_number, is_block_device, .. } = *target;
    Expected { device, inode_number, is_block_device }
}

/// What is known of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub start_ticks: u64,
    pub comm: Rc<[u8]>,
    pub is_kernel_thread: bool,
}

/// Everything outside of the logic.
pub(crate) trait World {
    /// CLOCK_MONOTONIC, as in events.
    fn now_ns(&self) -> u64;
    /// Milliseconds since 1970.
    fn wall_ms(&self) -> u64;
    /// `None`: it has ended.
    fn process(&mut self, pid: u32) -> Option<Process>;
    /// The control groups of a process, one path for each hierarchy. The kernel takes a lock of all groups for them.
    fn cgroups(&mut self, pid: u32) -> Vec<Vec<u8>>;
    /// Path of the file. `None`: not known.
    fn path(&mut self, target: &Target) -> Option<PathBuf>;
    /// Mount point of the file. `None`: not known.
    fn mount(&mut self, target: &Target) -> Option<Vec<u8>>;
    /// Memory and disk for an act on this open file.
    fn machine(&mut self, target: &Target) -> Machine;
    /// Memory of the whole machine.
    fn machine_overall(&mut self) -> Machine;
    /// Readers of a disk have waited: it is as fast as that.
    fn waited(&mut self, device: DeviceNumber, waits: u64, wait_ns: u64, pages: u64);
    /// Sets the window of an open file, if it has the expected window and no advice.
    fn set_window(&mut self, target: &Target, expected_pages: u64, pages: u64) -> Result<(), Refusal>;
    /// Starts to fetch pages; returns before they arrive. A failure is reported by [`World::failed_fetches`].
    fn fetch(&mut self, target: &Target, ranges: &[Range<u64>], decided_ns: u64) -> Result<(), Refusal>;
    /// Gives up our own descriptor of this file.
    fn stop_fetching(&mut self, open: u64);
    /// Fetches that have failed since the last call, by open file.
    fn failed_fetches(&mut self) -> Vec<(u64, Refusal)>;
    /// `None`: it was closed.
    fn state(&mut self, open: u64, inode: u64) -> Option<OpenState>;
    /// Number and sum of the waits of the readers of an open file so far, nanoseconds. `None`: not known.
    fn waits(&mut self, open: u64) -> Option<(u64, u64)>;
    /// A process and descriptor for each open file.
    fn holders(&mut self) -> HashMap<u64, (u32, u32)>;
    /// The observer keeps usual decisions of this open file to itself.
    fn set_quiet(&mut self, open: u64, quiet: bool);
    /// The observer forgets this open file, and looks for its descriptor again at the next decision.
    fn forget(&mut self, open: u64);
}

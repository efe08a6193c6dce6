//! What the threads of a fetch work on: its devices, and the job on each.

use crate::prefetch::account::{Account, Reason};
use crate::prefetch::devices::Devices;
use crate::prefetch::follower::Follower;
use crate::prefetch::large_folios::LargeFolios;
use crate::prefetch::shared::Shared;
use ahead_fetch::WorkerPool;
use ahead_model::DeviceDescription;
use ahead_plan::inodes::InodeRange;
use ahead_plan::{LookUp, Piece, Plan, Source};
use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

/// What the threads of a fetch work on.
pub struct Fetch {
    /// The state that is shared with the caller, too.
    pub shared: Arc<Shared>,
    /// The devices and the work on each.
    pub devices: Devices,
    /// The worker threads.
    pub pool: Arc<WorkerPool>,
    /// Files that are stale, to count each once.
    pub stale: Mutex<HashSet<usize>>,
    /// The program's processor time, microseconds, if known.
    pub compute_us: Option<f64>,
    /// The sample was resident: the program runs at full speed, and the remaining work has idle priority.
    pub looked_warm: AtomicBool,
}

/// The work on one device.
pub struct Job {
    /// The index of the device.
    pub device: usize,
    /// The description of the device.
    pub description: DeviceDescription,
    /// The plan.
    pub plan: Plan,
    /// The number of steps for which the program waits.
    pub head_start_steps: usize,
    /// The ranges of inodes that steps refer to.
    pub inodes: Arc<Inodes>,
    /// The blocks that are read as large folios; `None`: there are none.
    pub large_folios: Option<LargeFolios>,
    /// Maximum device time of the requests that a worker has queued, microseconds.
    pub queue_us: f64,
    /// The index of the next step.
    pub cursor: AtomicUsize,
    /// The planned pieces, kept if the description may turn out to be wrong.
    pub pieces: Vec<Piece>,
    /// The planned lookups, kept for the same reason.
    pub lookups: Vec<LookUp>,
    /// Its ranges were fetched before, and evicted.
    pub is_refetch: bool,
    /// The window that says which ranges the program has passed; `None`: they are read nevertheless.
    pub follower: Option<Arc<Follower>>,
    /// Ranges that were resident before.
    pub resident: Mutex<Vec<(Source, Range<u64>)>>,
    /// The longest of the steps that were timed one at a time, microseconds.
    pub longest_step_us: AtomicU64,
}

impl Job {
    /// The work of a plan for which no program waits, without large folios. `kept`: see [`Job::pieces`].
    pub fn new(
        device: usize,
        description: DeviceDescription,
        plan: Plan,
        inodes: Arc<Inodes>,
        (pieces, lookups): (Vec<Piece>, Vec<LookUp>),
    ) -> Job {
        Job {
            device,
            description,
            plan,
            head_start_steps: 0,
            inodes,
            large_folios: None,
            queue_us: 0.0,
            cursor: AtomicUsize::new(0),
            pieces,
            lookups,
            is_refetch: false,
            follower: None,
            resident: Mutex::default(),
            longest_step_us: AtomicU64::new(0),
        }
    }
}

/// Inodes that are read by ranges of their numbers instead of by lookups.
#[derive(Debug, Default)]
pub struct Inodes {
    /// An open file of their file system; `None`: there are no ranges.
    pub file_system: Option<OwnedFd>,
    /// The ranges.
    pub ranges: Vec<InodeRange>,
}

impl Fetch {
    /// Adds work on a device to the account. The bytes of a device that was given up are in the account already.
    pub fn note(&self, device: usize, what: impl FnOnce(&mut Account)) {
        let mut account = self.shared.ledger.open();
        if !self.pool.is_given_up(device) {
            what(&mut account);
        }
    }

    /// Called by workers before each piece of work on a device. Returns at once, after a pause, or with the reason to stop.
    pub fn check(&self, device: usize) -> Result<(), Reason> {
        self.pool.check(device).map_err(Reason::from)
    }

    /// Lets the program start as far as this device is concerned.
    pub fn release(&self, device: usize) {
        self.pool.release(device);
        if !self.pool.holds() {
            self.shared.gate.open();
        }
    }
}

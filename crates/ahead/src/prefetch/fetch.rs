//! What the threads of a fetch work on: its devices, and the job on each.

use crate::prefetch::account::Account;
use crate::prefetch::devices::Devices;
use crate::prefetch::pool::WorkerPool;
use crate::prefetch::shared::Shared;
use ahead_model::DeviceDescription;
use ahead_plan::inodes::InodeRange;
use ahead_plan::{LookUp, Piece, Plan};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

/// What the threads of a fetch work on.
pub struct Fetch {
    /// Shared with the thread that has started the fetch.
    pub shared: Arc<Shared>,
    /// What there is to do.
    pub devices: Devices,
    /// The threads that do it.
    pub pool: Arc<WorkerPool>,
    /// Files found stale, to count each once.
    pub stale: Mutex<HashSet<usize>>,
    /// How long the program computes, microseconds, if that is known.
    pub compute_us: Option<f64>,
    /// The program runs at full speed: what is left is done with idle priority.
    pub looked_warm: AtomicBool,
}

/// What is to be done on one device.
pub struct Job {
    /// Which.
    pub device: usize,
    /// What it is like.
    pub description: DeviceDescription,
    /// What to do.
    pub plan: Plan,
    /// After how many steps it holds the program no longer.
    pub head_start_steps: usize,
    /// The ranges of inodes that steps speak of.
    pub inodes: Inodes,
    /// How much of the device's time each worker has queued at most, microseconds.
    pub queue_us: f64,
    /// The next step.
    pub cursor: AtomicUsize,
    /// What was planned, where the description may turn out to be wrong.
    pub pieces: Vec<Piece>,
    /// The lookups that were planned with it.
    pub lookups: Vec<LookUp>,
}

/// What is read by inode numbers instead of looked up.
#[derive(Debug, Default)]
pub struct Inodes {
    /// Through what; `None`: there are no ranges.
    pub file_system: Option<OwnedFd>,
    /// Which.
    pub ranges: Vec<InodeRange>,
}

impl Fetch {
    /// Notes what was done on a device, unless that was given up: then it is accounted for.
    pub fn note(&self, device: usize, what: impl FnOnce(&mut Account)) {
        let mut account = self.shared.ledger.open();
        if !self.pool.is_given_up(device) {
            what(&mut account);
        }
    }

    /// The program does not wait for this device any more.
    pub fn release(&self, device: usize) {
        self.pool.release(device);
        if !self.pool.holds() {
            self.shared.gate.open();
        }
    }
}

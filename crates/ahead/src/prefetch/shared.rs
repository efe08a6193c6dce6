//! What the threads of a fetch and its caller share.

use crate::device_store::Descriptions;
use crate::prefetch::account::{Account, Ledger, Reason};
use crate::prefetch::gate::Gate;
use crate::prefetch::sources::Sources;
use crate::prefetch::{Options, Replay};
use ahead_fetch::{Brake, Limit};
use ahead_plan::Piece;
use ahead_profile::Profile;
use ahead_sys::machine;
use ahead_sys::root::Root;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The state that a prefetch and its caller share.
#[derive(Debug)]
pub struct Shared {
    /// The pages to prefetch.
    pub profile: Arc<Profile>,
    /// The directory below which the paths of the profile are.
    pub root: Root,
    /// Descriptions of devices.
    pub descriptions: Descriptions,
    /// The options.
    pub options: Options,
    /// Opened files and devices.
    pub sources: Sources,
    /// Stops and pauses the threads.
    pub brake: Arc<Brake>,
    /// Holds the program until it may start.
    pub gate: Gate,
    /// The account so far.
    pub ledger: Ledger,
    /// When the prefetch began.
    pub began: Instant,
    /// When the program began to wait.
    pub since: Instant,
    /// A thread has panicked.
    pub has_panicked: AtomicBool,
    /// Threads still wait for devices that do not answer.
    pub is_left: AtomicBool,
}

impl Shared {
    /// The state of a prefetch that begins now.
    pub fn new(replay: Replay) -> Shared {
        let Replay { profile, root, descriptions, options } = replay;
        let began = Instant::now();
        let since = options.since.unwrap_or(began);
        // No deadline if the time overflows.
        let deadline = options.deadline.and_then(|deadline| since.checked_add(deadline));
        let limit = Limit { asked_bytes: options.budget_bytes, low_memory: options.low_memory };
        Shared {
            sources: Sources::new(profile.clone(), root.clone()),
            brake: Arc::new(Brake::new(limit, deadline, since)),
            gate: Gate::new(),
            profile,
            root,
            descriptions,
            options,
            ledger: Ledger::default(),
            began,
            since,
            has_panicked: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
        }
    }

    /// Counts the bytes that will not be prefetched any more as skipped.
    pub fn give_up(&self, account: &mut Account) {
        self.skip_the_rest(account, self.brake.stopped().map_or(Reason::Cancelled, |(why, _)| why.into()));
        if account.submitted_us == 0 {
            account.head_start_us = as_us(self.gate.opened_after());
            account.submitted_us = as_us(self.began.elapsed());
        }
    }

    /// Whether the thread that waits for arrival may wait for another page.
    pub fn waits_on(&self) -> bool {
        self.brake.see(Instant::now());
        self.brake.look_at_clock();
        self.brake.stopped().is_none()
    }

    /// Counts all bytes that are not in the account yet as skipped for this reason.
    pub fn skip_the_rest(&self, account: &mut Account, reason: Reason) {
        let pieces = ahead_plan::pieces(&self.profile, machine::page_size());
        let deleted = self.profile.files.iter().filter(|file| file.deleted).map(ahead_profile::File::used_bytes);
        let beyond = ahead_plan::bytes_beyond_ends(&self.profile);
        let used_bytes = pieces.iter().map(Piece::bytes).chain(deleted).chain([beyond]).fold(0u64, u64::saturating_add);
        let left_bytes = used_bytes.saturating_sub(account.accounted_bytes());
        if left_bytes > 0 {
            account.skip(reason, left_bytes);
        }
    }
}

/// Converts to microseconds, the unit of accounts.
pub fn as_us(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

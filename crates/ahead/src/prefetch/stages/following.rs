//! The work on a device while a window follows the program.
//!
//! ```text
//!     batch 1: plan ▸ head start ▸ the rest ▸    (wait)    batch 2: plan ▸ …    (wait, are unread pages still there?)    batch 3 …
//! ```
//!
//! Each batch is planned as a separate profile: merged, and ordered by position on a disk that seeks.

use crate::prefetch::account::Reason;
use crate::prefetch::fetch::{Fetch, Inodes, Job};
use crate::prefetch::follower::{EVICTION_INTERVAL, Follower, Turn};
use crate::prefetch::worker::Worker;
use crate::prefetch::{HeadStart, Options};
use ahead_model::{DeviceDescription, RangeSet};
use ahead_plan::{LookUp, Piece, Source};
use ahead_sys::cache;
use ahead_sys::locks::IgnorePoison;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Timed steps among which one is expected to read: others find everything resident.
const MOST_TIMED_STEPS: usize = 8;

/// After this time without a read of ours a disk may be spun down: the shortest standby timeout of ATA disks (`hdparm -S 1`).
const STANDBY: Duration = Duration::from_secs(5);

impl Fetch {
    /// Fetches what the window holds of a device, until the program has passed the end of the profile.
    pub(super) fn follow(self: &Arc<Fetch>, index: usize, follower: &Arc<Follower>) {
        let (shared, device) = (&self.shared, self.devices.get(index));
        let may_ask = self.check(index).is_ok();
        let (inodes, mut lookups) = if may_ask { self.names_needed(device) } else { Default::default() };
        lookups.sort_by_key(|lookup| lookup.first_use_us);
        let mut inodes = Some(Arc::new(inodes));
        let mut lookups = VecDeque::from(lookups);
        let (mut description, mut is_first, mut checked) = (device.description, true, Instant::now());
        let mut last_read = Instant::now();
        drop(std::mem::take(&mut *device.pieces()));
        while let Some(batch) = follower.next(index, shared) {
            let goes_on = self.check(index).is_ok();
            for (turn, items) in &batch {
                let Some(last) = items.last() else { continue };
                let is_ahead = *turn == Turn::Ahead;
                let pieces: Vec<Piece> = items.iter().map(|item| follower.piece(*item).clone()).collect();
                let until_us = follower.piece(*last).first_use_us;
                let reached = lookups.iter().take_while(|lookup| lookup.first_use_us <= until_us).count();
                let due = lookups.drain(..if is_ahead { reached } else { 0 }).collect();
                let mut job = self.batch(index, pieces, due, description, inodes.clone());
                job.is_refetch = *turn == Turn::Again;
                job.follower = is_ahead.then(|| follower.clone());
                if is_first {
                    job.head_start_steps = self.held_steps(&job);
                    self.check_description(&mut job);
                    description = job.description;
                }
                if is_first || last_read.elapsed() >= STANDBY {
                    self.notice_spin_up(&job, follower, goes_on);
                    follower.publish(shared);
                }
                is_first &= !is_ahead;
                let job = Arc::new(job);
                self.carry_out_steps(&job);
                last_read = Instant::now();
                follower.were_resident(&job.resident.lock().ignore_poison());
                self.check_evicted(follower, items.iter().copied());
                follower.publish(shared);
            }
            self.release(index);
            if goes_on && checked.elapsed() >= EVICTION_INTERVAL {
                self.check_evicted(follower, follower.unread(index));
                checked = Instant::now();
            }
        }
        self.release(index);
        inodes.take();
        for (reason, bytes) in follower.never_fetched(index).into_iter().filter(|(_, bytes)| *bytes > 0) {
            let reason = match (reason, shared.brake.stopped()) {
                (Reason::Passed, _) => Reason::Passed,
                (_, Some((stopped, _))) => stopped.into(),
                (_, None) if follower.is_given_up() => Reason::Evicted,
                _ => Reason::Passed,
            };
            self.note(index, |account| account.skip(reason, bytes));
        }
    }

    /// The job of one batch.
    fn batch(
        &self,
        device: usize,
        pieces: Vec<Piece>,
        lookups: Vec<LookUp>,
        description: DeviceDescription,
        inodes: Option<Arc<Inodes>>,
    ) -> Job {
        let is_described = self.devices.get(device).is_described();
        let kept = if is_described { (pieces.clone(), lookups.clone()) } else { Default::default() };
        let plan = self.plan(pieces, lookups, &description, u64::MAX);
        self.announce(&plan);
        let mut job = Job::new(device, description, plan, inodes.unwrap_or_default(), kept);
        job.queue_us = self.pacing(&job).queue_us;
        job
    }

    /// The steps of the first batch for which the program waits.
    fn held_steps(&self, job: &Job) -> usize {
        match self.shared.options {
            Options { head_start: HeadStart::None, .. } => 0,
            _ => job.plan.head_start_steps,
        }
    }

    /// Waits for the first read of a disk that may be spun down, unless reads that checked the description were timed. The pool lets the program
    /// start meanwhile, and gives the device up if it takes much longer than any disk. Each step is timed by itself: many short reads are no spin-up.
    fn notice_spin_up(&self, job: &Job, follower: &Follower, goes_on: bool) {
        if !goes_on || !job.description.seeks() {
            return;
        }
        if job.longest_step_us.load(Ordering::Relaxed) == 0 {
            let worker = Worker::new(self, job);
            let most = job.plan.steps.len().min(MOST_TIMED_STEPS);
            // A step without a read, such as one that is resident, is timed, too: its lookup may have read.
            let _ = (1..=most).find(|end| !worker.time_steps(*end, 1).is_empty());
        }
        follower.answered_after(Duration::from_micros(job.longest_step_us.load(Ordering::Relaxed)));
    }

    /// Checks which of these items are still resident. Opens no file whose metadata would have to be read: these were opened before.
    fn check_evicted(&self, follower: &Follower, items: impl IntoIterator<Item = usize>) {
        let sources = &self.shared.sources;
        let mut by_source: BTreeMap<Source, Vec<usize>> = BTreeMap::new();
        for item in items {
            by_source.entry(follower.piece(item).source).or_default().push(item);
        }
        let mut results = Vec::new();
        for (source, items) in by_source {
            sources.need(source);
            let opened = sources.get(source);
            sources.done(source);
            let Ok(readable) = opened else { continue };
            let wanted: RangeSet = items.iter().map(|item| follower.piece(*item).range.clone()).collect();
            let found = wanted.iter().map(|range| cache::resident(&*readable, range.start, range.end - range.start));
            let Ok(resident) = found.collect::<Result<Vec<_>, _>>() else { continue };
            let resident: RangeSet = resident.into_iter().flatten().collect();
            for item in items {
                let piece = follower.piece(item);
                // Most of its bytes: another program may have used some pages, and these stay.
                results.push((item, resident.count_within(&piece.range) * 2 > piece.bytes()));
            }
        }
        follower.checked(results);
    }
}

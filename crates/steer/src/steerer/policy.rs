//! The policy, as the logic needs it: a fake with scripted acts replaces it in tests.

use ahead_policy::steering::{Act, Class, Effect, Failure, Limits, Machine, Progress, Seen, Steering};

/// Decides which acts follow from what was seen.
pub(crate) trait Policy {
    /// A new one without open files, with these limits.
    fn fresh(&self, limits: &Limits) -> Self;
    fn seen(&mut self, seen: &Seen, machine: &Machine) -> Vec<Act>;
    fn progress(&mut self, progress: &Progress, machine: &Machine) -> Vec<Act>;
    fn poll_after_ns(&self, open: u64) -> Option<u64>;
    fn tick(&mut self, now_ns: u64, machine: &Machine) -> Vec<Act>;
    fn class(&self, open: u64) -> Class;
    fn effect(&self, open: u64) -> Option<Effect>;
    fn forget(&mut self, open: u64);
    fn undone(&mut self, open: u64, failure: Failure);
}

impl Policy for Steering {
    fn fresh(&self, limits: &Limits) -> Steering {
        Steering::new(limits)
    }

    fn seen(&mut self, seen: &Seen, machine: &Machine) -> Vec<Act> {
        Steering::seen(self, seen, machine)
    }

    fn progress(&mut self, progress: &Progress, machine: &Machine) -> Vec<Act> {
        Steering::progress(self, progress, machine)
    }

    fn poll_after_ns(&self, open: u64) -> Option<u64> {
        Steering::poll_after_ns(self, open)
    }

    fn tick(&mut self, now_ns: u64, machine: &Machine) -> Vec<Act> {
        Steering::tick(self, now_ns, machine)
    }

    fn class(&self, open: u64) -> Class {
        Steering::class(self, open)
    }

    fn effect(&self, open: u64) -> Option<Effect> {
        Steering::effect(self, open)
    }

    fn forget(&mut self, open: u64) {
        Steering::forget(self, open);
    }

    fn undone(&mut self, open: u64, failure: Failure) {
        Steering::undone(self, open, failure);
    }
}

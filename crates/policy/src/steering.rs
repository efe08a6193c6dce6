//! Steering: acts on the read-ahead of programs that know nothing of it, from the decisions of the kernel.
mod act;
mod class;
mod reason;
mod seen;

pub use act::{Act, Failure};
pub use class::{Class, Effect, Rate};
pub use reason::Reason;
pub use seen::{Kind, Limits, Machine, Progress, Seen};

/// The steering of all open files of a machine.
#[derive(Clone, Debug)]
pub struct Steering {
    limits: Limits,
}

impl Steering {
    /// A steering with these limits.
    pub fn new(limits: &Limits) -> Steering {
        Steering { limits: *limits }
    }

    /// The kernel has decided about an open file.
    pub fn seen(&mut self, _seen: &Seen, _machine: &Machine) -> Vec<Act> {
        Vec::new()
    }

    /// The position of the reader of an open file was polled.
    pub fn progress(&mut self, _progress: &Progress, _machine: &Machine) -> Vec<Act> {
        Vec::new()
    }

    /// The time from the last decision or poll of an open file to the next poll, nanoseconds; `None`: no poll is needed.
    pub fn poll_after_ns(&self, _open: u64) -> Option<u64> {
        None
    }

    /// The open files that need polls.
    pub fn polled(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Judges effects and shrinks under pressure; about once per second, and when pressure begins.
    pub fn tick(&mut self, _now_ns: u64, _machine: &Machine) -> Vec<Act> {
        Vec::new()
    }

    /// The class of an open file.
    pub fn class(&self, _open: u64) -> Class {
        Class::Unknown
    }

    /// The waits of an open file before and after the last act on it; `None`: no act, or too few pages since.
    pub fn effect(&self, _open: u64) -> Option<Effect> {
        None
    }

    /// The window that an act has set; `None`: unchanged.
    pub fn window(&self, _open: u64) -> Option<u64> {
        None
    }

    /// Forgets an open file: it was closed.
    pub fn forget(&mut self, _open: u64) {}

    /// An act on an open file was not carried out.
    pub fn undone(&mut self, _open: u64, _failure: Failure) {}

    /// Number of open files with a state.
    pub fn files(&self) -> usize {
        self.limits.max_files.min(0)
    }
}

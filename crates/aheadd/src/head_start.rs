//! Head starts: on a disk that seeks, a program beside its prefetch would fight it for the head, so its exec waits until the prefetch permits it.
//!
//! ```text
//!     begin of the service ─▶ survey of the store: its disk seeks ──────────────▶ marked
//!     recorded, prefetched ─▶ its disk seeks ───────────────────────────────────▶ marked ─▶ exec waits ─▶ HeldExec
//! ```
//!
//! An interpreter is not marked: each of its scripts would wait, most without a profile.

use crate::hold::{HeldExec, HoldLosses, Holder};
use ahead_apps::AppKey;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Programs that are marked. Further ones have no head start.
const MOST_MARKED: usize = 256;

/// The marked programs.
#[derive(Debug)]
pub struct HeadStarts {
    /// `None`: execs cannot be held here.
    holder: Option<Holder>,
    /// The inodes of the marked files, by path.
    marked: HashMap<Vec<u8>, u64>,
}

impl HeadStarts {
    /// Starts to hold, if that is possible.
    pub fn new() -> HeadStarts {
        let holder = Holder::start().inspect_err(|error| tracing::info!("programs get no head start: {error}")).ok();
        HeadStarts { holder, marked: HashMap::new() }
    }

    /// Execs of a program wait from now on. `inode`: of its file now.
    pub fn mark(&mut self, key: &AppKey, inode: u64) {
        let is_marked = self.marked.get(&key.program) == Some(&inode);
        let has_room = self.marked.len() < MOST_MARKED || self.marked.contains_key(&key.program);
        let Some(holder) = self.holder.as_ref().filter(|_| key.script.is_none() && !is_marked && has_room) else {
            return;
        };
        match holder.mark(Path::new(OsStr::from_bytes(&key.program))) {
            Ok(()) => drop(self.marked.insert(key.program.clone(), inode)),
            Err(error) => tracing::debug!("{key}: no head start: {error}"),
        }
    }

    /// Execs of a program wait no longer.
    pub fn unmark(&mut self, key: &AppKey) {
        if let (Some(_), Some(holder)) = (self.marked.remove(&key.program), &self.holder)
            && let Err(error) = holder.unmark(Path::new(OsStr::from_bytes(&key.program)))
        {
            tracing::debug!("{key}: {error}");
        }
    }

    /// Takes the execs that wait.
    pub fn take(&mut self) -> Vec<HeldExec> {
        let mut held = Vec::new();
        if let Some(holder) = &mut self.holder
            && let Err(error) = holder.take(|exec| held.push(exec))
        {
            tracing::warn!("programs get no head start any more: {error}");
            self.holder = None;
        }
        held
    }

    /// Execs that did not wait as they should have.
    pub fn losses(&self) -> HoldLosses {
        self.holder.as_ref().map_or_else(HoldLosses::default, Holder::losses)
    }

    /// For poll(2).
    pub fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.holder.iter().map(AsFd::as_fd)
    }
}

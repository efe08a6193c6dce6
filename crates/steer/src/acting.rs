//! Sets the window of one open file of another process: the part of a helper (`helpers.rs`).
//!
//! ```text
//!     note of the disk's setting ─▶ take the descriptor ─▶ same open file? expected window, no advice? ─▶ window ─▶ close
//!                                   ╰───────────────────────── at most 1 ms, measured ─────────────────────────────────╯
//! ```
//!
//! A taken descriptor is the open file of the process itself: while it is held, its locks, its deleted file and its mount stay. So everything
//! that can be done before is done before. The address of the open file, as the kernel has it, shows whether the process number or the
//! descriptor belongs to something else by now.

use crate::refusal::Refusal;
use ahead_observe::OpenState;
use ahead_policy::steering::Target;
use ahead_sys::other_process::OtherProcess;
use ahead_sys::{Error, Result, cache};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Takes the descriptor of an open file, if the process may be touched.
pub(crate) fn take(process: &OtherProcess, number: u32) -> std::result::Result<OwnedFd, Refusal> {
    process.take_descriptor(number).map_err(not_taken)
}

/// The thread of a target, whose descriptors are taken.
pub(crate) fn process_of(target: &Target) -> std::result::Result<OtherProcess, Refusal> {
    OtherProcess::of_thread(target.pid, target.tid).map_err(not_taken)
}

fn not_taken(error: Error) -> Refusal {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::SRCH | Errno::BADF) => Refusal::Gone,
        Some(Errno::PERM | Errno::ACCESS) => Refusal::Forbidden(error.to_string()),
        _ => Refusal::Failed(error.to_string()),
    }
}

/// Checks that a taken descriptor is the open file of the decision, and still as it was left. Returns its state.
pub(crate) fn check(
    state_of: impl FnOnce(BorrowedFd<'_>) -> Result<Option<OpenState>>,
    taken: BorrowedFd<'_>,
    target: &Target,
    expected_pages: u64,
) -> std::result::Result<OpenState, Refusal> {
    let state = state_of(taken).map_err(|error| Refusal::Failed(error.to_string()))?.ok_or(Refusal::Gone)?;
    if state.open != target.open || state.inode != target.inode {
        return Err(Refusal::Gone);
    }
    if !state.is_cached {
        return Err(Refusal::Direct);
    }
    let readahead = state.readahead;
    if readahead.is_random || readahead.window_pages != expected_pages {
        // With the window of the disk it is a new open file of the same inode at the same address.
        let is_new = !readahead.is_random && readahead.window_pages == state.disk_window_pages;
        return Err(if is_new { Refusal::Gone } else { Refusal::Advised });
    }
    Ok(state)
}

/// Gives a taken open file the window that its disk has now. `state`: its state before. Advice that says nothing about read-ahead stays.
pub(crate) fn reset_window(taken: BorrowedFd<'_>, state: &OpenState) -> Result<()> {
    cache::normal_reads(taken)?;
    if state.is_not_reused { cache::single_use(taken) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_policy::steering::Readahead;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn checked(change: impl FnOnce(&mut OpenState)) -> std::result::Result<OpenState, Refusal> {
        let readahead = Readahead { window_pages: 32, ..Readahead::default() };
        let mut state = OpenState { open: 7, inode: 8, readahead, is_cached: true, ..OpenState::default() };
        change(&mut state);
        let target = Target { open: 7, inode: 8, ..Target::default() };
        check(|_| Ok(Some(state)), File::open("/").unwrap().as_fd(), &target, 32)
    }

    #[test]
    fn replaced_descriptor_is_gone_and_own_advice_counts() {
        assert!(checked(|_| {}).is_ok());
        assert_eq!(checked(|state| state.open = 9), Err(Refusal::Gone));
        assert_eq!(checked(|state| state.inode = 9), Err(Refusal::Gone));
        assert_eq!(checked(|state| state.readahead.window_pages = 64), Err(Refusal::Advised));
        let reset = |state: &mut OpenState| (state.readahead.window_pages, state.disk_window_pages) = (64, 64);
        assert_eq!(checked(reset), Err(Refusal::Gone));
        assert_eq!(checked(|state| state.readahead.is_random = true), Err(Refusal::Advised));
        assert_eq!(checked(|state| state.is_cached = false), Err(Refusal::Direct));
    }

    /// Regression: a program's POSIX_FADV_NOREUSE was lost when its window was set.
    #[test]
    fn advice_for_single_use_survives_a_new_window() {
        let states = match ahead_observe::StateQuery::new() {
            Ok(states) => states,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let state = || states.of_own(file.as_fd()).unwrap().expect("a regular file has a state");
        reset_window(file.as_fd(), &state()).unwrap();
        assert!(!state().is_not_reused);
        cache::single_use(&file).unwrap();
        // `false` before Linux 6.3.
        let before = state();
        reset_window(file.as_fd(), &before).unwrap();
        assert_eq!(state().is_not_reused, before.is_not_reused);
    }

    #[test]
    fn missing_processes_and_descriptors_are_gone() {
        let nowhere = Target { pid: (1 << 22) + 1, tid: (1 << 22) + 1, ..Target::default() };
        assert_eq!(process_of(&nowhere).unwrap_err(), Refusal::Gone);
        let pid = std::process::id();
        let own = process_of(&Target { pid, tid: pid, ..Target::default() }).unwrap();
        assert_eq!(take(&own, 1 << 20).unwrap_err(), Refusal::Gone);
    }
}

//! What a helper does with its orders. It may hang anywhere: nothing waits for it.

use super::{Answer, Request, Wanted};
use crate::acting;
use crate::refusal::Refusal;
use ahead_fetch::calls;
use ahead_observe::StateQuery;
use ahead_process::messages::{Received, get, put};
use ahead_sys::other_process::OtherProcess;
use ahead_sys::{Error, priority};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// An open file is given back after this time, whatever the steering process does: it may be stopped.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// Carries orders out until the steering process ends. The caller ends this process then: what was taken and must not be closed by a thread that
/// goes on is still open.
pub(super) fn serve(socket: &OwnedFd, states: &StateQuery) {
    if let Err(error) = priority::prefer_on_processor() {
        tracing::debug!("{error}");
    }
    let mut goes_on = true;
    while goes_on && let Received::Answer(request) = get(socket.as_fd(), None) {
        goes_on = match request {
            Request::Take(wanted) => priority::without_interruption(|| hold(socket, states, &wanted)),
            Request::WillNeed { pid, addresses } => {
                answer(socket, &Answer::Requested(will_need(pid, &addresses).err()))
            }
            // After a hold that was given back already.
            Request::Advise | Request::GiveBack => true,
        };
    }
}

/// `false`: the steering process has ended.
fn answer(socket: &OwnedFd, answer: &Answer) -> bool {
    put(socket.as_fd(), answer).is_ok()
}

/// Takes an open file and holds it until it is to be given back. `false`: this process has to end.
fn hold(socket: &OwnedFd, states: &StateQuery, wanted: &Wanted) -> bool {
    let not_taken = |why: Refusal, ends| answer(socket, &Answer::NotTaken { why, ends }) && !ends;
    let process = match acting::process_of(&wanted.target) {
        Ok(process) => process,
        Err(why) => return not_taken(why, false),
    };
    let began = Instant::now();
    let taken = match acting::take(&process, wanted.number) {
        Ok(taken) => taken,
        Err(why) => return not_taken(why, false),
    };
    let checked = acting::check(|taken| states.of_own(taken), taken.as_fd(), &wanted.target, wanted.expected_pages);
    let state = match checked {
        Ok(state) => state,
        Err(why) => {
            // It may be anything. The kernel closes it when this process ends.
            std::mem::forget(taken);
            return not_taken(why, true);
        }
    };
    let mut goes_on = answer(socket, &Answer::Taken { disk_window_pages: state.disk_window_pages });
    let until = began + LONGEST_HOLD;
    while goes_on && matches!(get(socket.as_fd(), Some(until)), Received::Answer(Request::Advise)) {
        let failed = acting::reset_window(taken.as_fd(), &state).err().map(|error| error.to_string());
        goes_on = answer(socket, &Answer::Advised(failed));
    }
    let ends = !wanted.is_quiet_on_close;
    if ends {
        std::mem::forget(taken);
    } else {
        drop(taken);
    }
    answer(socket, &Answer::GivenBack { held_ns: began.elapsed().as_nanos() as u64, ends }) && !ends
}

/// Has the pages at these addresses of a process read. Waits for a lock of that process.
fn will_need(pid: u32, addresses: &[Range<u64>]) -> Result<(), Refusal> {
    let failed = |error: Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::SRCH) => Refusal::Gone,
        Some(Errno::PERM | Errno::ACCESS) => Refusal::Forbidden(error.to_string()),
        _ => Refusal::Failed(error.to_string()),
    };
    let process = OtherProcess::open(pid).map_err(failed)?;
    addresses.iter().try_for_each(|piece| calls::read_ahead_mapped_by(&process, piece)).map_err(failed)
}

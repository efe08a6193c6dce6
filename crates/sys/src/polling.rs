//! Waiting for descriptors with a deadline.

use crate::{Error, Result};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Polls until a descriptor is ready (`true`) or the deadline has passed (`false`). `None`: no deadline.
pub fn until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<bool> {
    loop {
        let left = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
        match poll(fds, left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io("poll", e)),
        }
    }
}

/// Converts a duration for poll(2) and similar calls.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

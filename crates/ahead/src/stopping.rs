//! Runs work that a signal can interrupt.
//!
//! A thread may wait in the kernel without a limit for a server that does not answer, or for a stopped FUSE daemon. Such work runs in a
//! separate thread, and only that thread waits.

use crate::error::IoContext;
use crate::{Error, Result, Stopped};
use ahead_process::Signals;
use std::sync::mpsc;

/// Runs `work`, or returns early when a signal arrives. Then the thread with the work ends with the process.
///
/// # Errors
/// [`Stopped`]; the thread could not be started, or panicked.
pub(crate) fn unless_stopped<T: Send + 'static>(
    signals: &Signals,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (ended, end) = std::io::pipe().what("pipe")?;
    let (give, take) = mpsc::channel();
    let work = move || {
        // Closed when the work has ended, also by a panic.
        let _end = end;
        let _ = give.send(work());
    };
    std::thread::Builder::new().spawn(work).what("start a thread")?;
    loop {
        match signals.wait_or(&ended)? {
            Some(signal) if signal.asks_to_stop() => return Err(Stopped(signal.number).into()),
            Some(_) => {}
            None => return take.recv().map_err(|_| Error::Failed("a thread panicked".into())),
        }
    }
}

/// Checks for a signal. A signal that arrives during the set-up of a run would otherwise end the program at its first instruction: a
/// profile of that would replace a good one, and a comparison would continue for minutes.
///
/// # Errors
/// [`Stopped`].
pub fn check_stopped(signals: &Signals) -> Result<()> {
    signals.poll().map_or(Ok(()), |signal| Err(Stopped(signal.number).into()))
}

/// Waits for this long, or until a signal arrives while no program runs that it could be meant for.
///
/// # Errors
/// [`Stopped`]; the signals cannot be read.
#[cfg(feature = "observe")]
pub(crate) fn pause(signals: &Signals, time: std::time::Duration) -> Result<()> {
    signals.wait(Some(time))?.map_or(Ok(()), |signal| Err(Stopped(signal.number).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_returned_and_panic_is_an_error() {
        let signals = Signals::take().unwrap();
        assert_eq!(unless_stopped(&signals, || 7).unwrap(), 7);
        assert!(unless_stopped(&signals, || panic!("as the test wants it")).is_err());
    }
}

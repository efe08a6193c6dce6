//! Work that a signal must be able to end.
//!
//! The kernel lets a thread wait without a limit for a server that does not answer, or for a FUSE daemon that is stopped. Such work is done
//! in a separate thread, and only that thread waits.

use crate::error::IoContext;
use crate::{Error, Result, Stopped};
use ahead_process::Signals;
use std::sync::mpsc;

/// Does some work, or gives up when a signal asks us to stop. The thread that does the work then ends with the process.
///
/// # Errors
/// [`Stopped`]; the thread could not be started, or panicked.
pub fn unless_stopped<T: Send + 'static>(signals: &Signals, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (ended, end) = std::io::pipe().what("pipe")?;
    let (give, take) = mpsc::channel();
    let work = move || {
        // Closed when the work is done, and also when it panics.
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

/// Whether to go on. A signal that arrives while a run is set up would end its program at the first instruction: a profile of that would
/// replace a good one, and a comparison would go on for minutes.
///
/// # Errors
/// [`Stopped`].
pub fn check_stopped(signals: &Signals) -> Result<()> {
    signals.poll().map_or(Ok(()), |signal| Err(Stopped(signal.number).into()))
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

//! Work that may have to wait for a file system that does not answer.
//!
//! The kernel lets a thread wait for a dead server, or for a FUSE daemon that is stopped, for as long as it likes. Whoever
//! started us can still end us: such work is done in a thread of its own, and only this one waits for it.

use crate::exit::Stopped;
use ahead_process::Signals;
use anyhow::{Context, anyhow, bail};
use std::sync::mpsc;

/// Does some work, or gives up when a signal asks us to stop. The thread that does it ends with the process then.
pub fn unless_stopped<T: Send + 'static>(
    signals: &Signals,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (ended, end) = std::io::pipe().context("pipe")?;
    let (give, take) = mpsc::channel();
    let work = move || {
        // Closed when all is done, or when it panics.
        let _end = end;
        let _ = give.send(work());
    };
    std::thread::Builder::new().spawn(work).context("start a thread")?;
    loop {
        match signals.wait_or(&ended)? {
            Some(signal) if signal.asks_to_stop() => bail!(Stopped(signal.number)),
            Some(_) => {}
            None => return take.recv().map_err(|_| anyhow!("a thread has panicked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_given_and_a_panic_is_an_error() {
        let signals = Signals::take().unwrap();
        assert_eq!(unless_stopped(&signals, || 7).unwrap(), 7);
        assert!(unless_stopped(&signals, || panic!("as the test wants it")).is_err());
    }
}

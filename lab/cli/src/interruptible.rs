//! The work of a measurement: a signal stops it, so that it removes its files; other programs disturb it less.

use ahead_cli::exit::Stopped;
use ahead_measure::bench::Error;
use ahead_process::Signals;
use ahead_sys::daemon;
use anyhow::{Context, bail};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `work`, and sets its stop flag when a signal asks to stop; `work` then removes its files.
pub fn interruptible<T: Send>(work: impl FnOnce(&AtomicBool) -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let signals = Signals::take()?;
    let (stop, signal) = (AtomicBool::new(false), OnceLock::new());
    let (ended, end) = std::io::pipe().context("pipe")?;
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(Some(arrived)) = signals.wait_or(&ended) {
                if arrived.asks_to_stop() {
                    let _ = signal.set(arrived.number);
                    return stop.store(true, Ordering::Relaxed);
                }
            }
        });
        let result = work(&stop);
        drop(end);
        result
    });
    match (result, signal.get()) {
        (Err(error), Some(number)) if matches!(error.downcast_ref(), Some(Error::Stopped)) => {
            Err(Stopped(*number).into())
        }
        (result, _) => result,
    }
}

/// Runs `work` in a separate thread with a higher priority, where that is permitted: other programs must not disturb the times.
pub fn undisturbed<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let work = || {
        if let Err(error) = daemon::set_nice() {
            tracing::debug!("other programs may disturb the times: {error}");
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| bail!("the measuring thread panicked"))
}

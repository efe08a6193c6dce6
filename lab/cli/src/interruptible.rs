//! Work that a signal stops: measurements that make files and remove them again.

use ahead_bench::Error;
use ahead_cli::exit::Stopped;
use ahead_process::Signals;
use anyhow::Context;
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

//! The loop.

use ahead_observe::{LaunchOptions, Launches};
use ahead_process::Signals;
use anyhow::Result;
use std::path::PathBuf;

/// How the service runs.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The file with the settings.
    pub config: PathBuf,
    /// The directory of what is known.
    pub store: PathBuf,
}

/// Serves until a signal asks for an end.
///
/// # Errors
/// Not permitted or not supported here; the settings are wrong; another service runs.
pub fn run(options: &ServiceOptions) -> Result<()> {
    let signals = Signals::take()?;
    let launches = Launches::start(&LaunchOptions::default())?;
    tracing::debug!("{options:?} {launches:?}");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    signals.wait(None)?;
    Ok(())
}

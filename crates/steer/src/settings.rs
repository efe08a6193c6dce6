//! What the command sets.

use crate::rules::Rules;
use ahead_process::MetricsPlace;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// How to steer.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which programs and files are steered, and how far.
    pub rules: Rules,
    /// Read again on SIGHUP. After a mistake in it the rules before stay. `None`: `rules` stay.
    pub rules_file: Option<PathBuf>,
    /// Largest window besides that of the rules; the smaller one counts. Unit: bytes.
    pub max_window_bytes: Option<u64>,
    /// Acts are only logged.
    pub dry_run: bool,
    /// The end; `None`: at a signal.
    pub duration: Option<Duration>,
    /// Where metrics are published.
    pub metrics: Option<MetricsPlace>,
    /// Reads of cached pages are counted in one of this number of blocks of pages. `None`: no program runs on such reads.
    pub sample_hits: Option<NonZeroU32>,
}

/// The socket for metrics if none is named.
const DEFAULT_SOCKET: &str = "/run/ahead/steer.sock";

/// The place of metrics: `FILE`, `unix:SOCKET`, or `unix:` for the default socket.
///
/// # Errors
/// It is empty.
pub fn metrics_place(text: &str) -> Result<MetricsPlace, String> {
    MetricsPlace::parse(text, DEFAULT_SOCKET)
}

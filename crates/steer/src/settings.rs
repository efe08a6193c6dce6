//! What the command sets.

use crate::rules::Rules;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
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

/// Where metrics are published, in the text format of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPlace {
    /// A file, replaced each second.
    File(PathBuf),
    /// A Unix socket: each connection gets the text, and is closed.
    Socket(PathBuf),
}

impl MetricsPlace {
    /// The socket if none is named.
    pub const DEFAULT_SOCKET: &str = "/run/ahead/steer.sock";
}

impl FromStr for MetricsPlace {
    type Err = String;

    /// `FILE`, `unix:SOCKET`, or `unix:` for the default socket.
    fn from_str(text: &str) -> Result<MetricsPlace, String> {
        match text.strip_prefix("unix:") {
            Some("") => Ok(MetricsPlace::Socket(MetricsPlace::DEFAULT_SOCKET.into())),
            Some(path) => Ok(MetricsPlace::Socket(path.into())),
            None if text.is_empty() => Err("expected a file, unix:SOCKET or unix:".into()),
            None => Ok(MetricsPlace::File(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_metrics_is_a_file_or_a_socket() {
        let parse = |text: &str| text.parse::<MetricsPlace>();
        assert_eq!(parse("/x/m.prom"), Ok(MetricsPlace::File("/x/m.prom".into())));
        assert_eq!(parse("unix:/x/s"), Ok(MetricsPlace::Socket("/x/s".into())));
        assert_eq!(parse("unix:"), Ok(MetricsPlace::Socket("/run/ahead/steer.sock".into())));
        assert!(parse("").is_err());
    }
}

//! The settings of the service: `/etc/ahead/aheadd.toml` (docs/reference/service.md).

use ahead_apps::WaitLimits;
use ahead_process::MetricsPlace;
use ahead_sys::directory::open_regular_file;
use ahead_sys::memory;
use serde::Deserialize;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The socket for metrics.
const DEFAULT_SOCKET: &str = "/run/ahead/aheadd.sock";

/// Longest text. Unit: bytes.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// Programs that pause the service: each is compared with each exec.
const MAX_PAUSING: usize = 64;

/// Longest name of a file on Linux file systems (`NAME_MAX`), bytes.
const MAX_NAME_BYTES: usize = 255;

/// What the administrator sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// A start that waits for the disk for more than this share of its time is recorded next time, percent.
    pub wait_share_percent: u8,
    /// A start prefetches at most this share of the available memory, percent. `None`: as `ahead run`.
    pub budget_percent: Option<u8>,
    /// While one of these programs runs, nothing is prefetched or recorded: names of files.
    pub pause_while_running: Vec<String>,
    /// `None`: not published.
    pub metrics: Option<MetricsPlace>,
}

impl Default for ServiceSettings {
    fn default() -> ServiceSettings {
        ServiceSettings {
            wait_share_percent: WaitLimits::default().share_percent,
            budget_percent: None,
            pause_while_running: Vec::new(),
            metrics: Some(MetricsPlace::Socket(DEFAULT_SOCKET.into())),
        }
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file exists and cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text has a mistake.
    #[error("{path}:{line}: {message}", path = path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The value, and what is expected.
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsText {
    wait_share_percent: Option<Spanned<i64>>,
    budget_percent: Option<Spanned<i64>>,
    #[serde(default)]
    pause_while_running: Vec<Spanned<String>>,
    metrics: Option<Spanned<String>>,
}

/// A mistake at a place of the text.
type Mistake = (Range<usize>, String);

impl ServiceSettings {
    /// Reads settings; without a file they are the defaults.
    ///
    /// # Errors
    /// It is no regular file, cannot be read, or has a mistake.
    pub fn load(path: &Path) -> Result<ServiceSettings, SettingsError> {
        let unreadable = |source| SettingsError::Unreadable { path: path.into(), source };
        let file = match open_regular_file(path, false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ServiceSettings::default()),
            opened => opened.map_err(unreadable)?,
        };
        let mut text = String::new();
        file.take(MAX_TEXT_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        ServiceSettings::parse(&text).map_err(|(at, message)| {
            let before = &text.as_bytes()[..at.start.min(text.len())];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            SettingsError::Text { path: path.into(), line, message }
        })
    }

    fn parse(text: &str) -> Result<ServiceSettings, Mistake> {
        let parsed: SettingsText = toml::from_str(text).map_err(|error: toml::de::Error| {
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            (error.span().unwrap_or(0..0), message)
        })?;
        let defaults = ServiceSettings::default();
        if let Some(first_beyond) = parsed.pause_while_running.get(MAX_PAUSING) {
            return Err((first_beyond.span(), format!("pause_while_running has at most {MAX_PAUSING} names")));
        }
        let wait_share = parsed.wait_share_percent.map(|share| percent("wait_share_percent", &share));
        let names = parsed.pause_while_running.into_iter().map(file_name);
        let place = |place: Spanned<String>| match place.as_ref().as_str() {
            "off" => Ok(None),
            text => {
                MetricsPlace::parse(text, DEFAULT_SOCKET).map(Some).map_err(|e| (place.span(), format!("metrics: {e}")))
            }
        };
        Ok(ServiceSettings {
            wait_share_percent: wait_share.transpose()?.unwrap_or(defaults.wait_share_percent),
            budget_percent: parsed.budget_percent.map(|share| percent("budget_percent", &share)).transpose()?,
            pause_while_running: names.collect::<Result<_, _>>()?,
            metrics: parsed.metrics.map_or(Ok(defaults.metrics), place)?,
        })
    }

    /// What counts as waiting for the disk.
    pub fn wait_limits(&self) -> WaitLimits {
        WaitLimits { share_percent: self.wait_share_percent, ..WaitLimits::default() }
    }

    /// What a start may prefetch now, bytes. `None`: as `ahead run`.
    pub fn budget_bytes(&self) -> Option<u64> {
        let percent = self.budget_percent?;
        memory::available_bytes().ok().map(|available| available / 100 * u64::from(percent))
    }
}

fn percent(name: &str, share: &Spanned<i64>) -> Result<u8, Mistake> {
    let value = *share.as_ref();
    let valid = u8::try_from(value).ok().filter(|value| (1..=100).contains(value));
    valid.ok_or_else(|| (share.span(), format!("{name} = {value}; expected 1 to 100")))
}

fn file_name(name: Spanned<String>) -> Result<String, Mistake> {
    let is_name = !name.as_ref().is_empty() && name.as_ref().len() <= MAX_NAME_BYTES && !name.as_ref().contains('/');
    match is_name {
        true => Ok(name.into_inner()),
        false => {
            Err((name.span(), format!("{:?} in pause_while_running is no name of a program's file", name.as_ref())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<ServiceSettings, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("aheadd.toml");
        std::fs::write(&path, text).unwrap();
        ServiceSettings::load(&path).map_err(|error| error.to_string().replace(home.path().to_str().unwrap(), ""))
    }

    #[test]
    fn every_setting_is_optional() {
        assert_eq!(ServiceSettings::load(Path::new("/no/such/file")).unwrap(), ServiceSettings::default());
        assert_eq!(load(""), Ok(ServiceSettings::default()));
        let set = load(
            "wait_share_percent = 20\nbudget_percent = 5\npause_while_running = [\"gamescope\"]\nmetrics = \"/x\"\n",
        );
        let expected = ServiceSettings {
            wait_share_percent: 20,
            budget_percent: Some(5),
            pause_while_running: vec!["gamescope".into()],
            metrics: Some(MetricsPlace::File("/x".into())),
        };
        assert_eq!(set, Ok(expected));
        assert_eq!(load("metrics = \"off\"").unwrap().metrics, None);
        assert_eq!(load("metrics = \"unix:\"").unwrap().metrics, ServiceSettings::default().metrics);
        assert!(load("budget_percent = 1").unwrap().budget_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn mistake_is_reported_with_file_line_and_value() {
        for (text, expected) in [
            ("\nwait_share_percent = 0\n", "/aheadd.toml:2: wait_share_percent = 0; expected 1 to 100"),
            ("budget_percent = 101\n", "/aheadd.toml:1: budget_percent = 101; expected 1 to 100"),
            (
                "pause_while_running = [\n\"a\",\n\"/b\"\n]",
                "/aheadd.toml:3: \"/b\" in pause_while_running is no name of a program's file",
            ),
            ("# x\nmetrics = \"\"\n", "/aheadd.toml:2: metrics: expected a file, unix:SOCKET or unix:"),
        ] {
            assert_eq!(load(text).unwrap_err(), expected);
        }
        for (text, begin) in [
            ("\n\nno_such = 1\n", "/aheadd.toml:3: unknown field `no_such`"),
            ("a = ", "/aheadd.toml:1: "),
            ("budget_percent = \"x\"\n", "/aheadd.toml:1: invalid type"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.starts_with(begin), "{error}");
        }
        let names = "\"a\", ".repeat(MAX_PAUSING + 1);
        assert!(load(&format!("pause_while_running = [{names}]")).unwrap_err().contains("at most 64"));
        assert!(ServiceSettings::load(Path::new("/dev/null")).is_err());
    }
}

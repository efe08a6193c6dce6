//! The log: every act and every refusal with its reason, and later its effect.

use ahead_policy::steering::{Act, Class, Effect};
use serde::{Serialize, Serializer};
use std::fmt;

/// One line of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogEntry {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The process; 0: none.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its descriptor of the file, if it has one.
    pub descriptor: Option<u32>,
    /// Path of the file, if it is known.
    pub path: Option<String>,
    /// The pattern of the open file.
    #[serde(serialize_with = "as_text")]
    pub class: Class,
    /// What was done.
    pub act: LoggedAct,
    /// Whether it was done.
    pub outcome: Outcome,
    /// The new window, or the pages that were fetched since the last entry.
    pub pages: Option<u64>,
    /// The window before.
    pub before_pages: Option<u64>,
    /// Why it was done, or why not.
    pub reason: String,
    /// What the last act on this open file has changed.
    pub effect: Option<Effect>,
    /// Time from the decision of the kernel to the end of the act.
    pub latency_us: Option<f64>,
    /// Whether acts are only logged.
    pub dry_run: bool,
}

fn as_text<S: Serializer>(class: &Class, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(class)
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub enum LoggedAct {
    /// The window of an open file was set.
    Window,
    /// Pages were fetched ahead.
    Fetch,
    /// The window before the first act was set, or fetching ended.
    Restore,
    /// The effect of an earlier act is known.
    Effect,
    /// The rules were read again.
    Rules,
    /// Nothing: an open file or a process is left alone.
    #[default]
    None,
}

/// Whether it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub enum Outcome {
    /// It was done.
    Done,
    /// Acts are only logged.
    Planned,
    /// The system, the rules or the program's own advice forbid it.
    #[default]
    Refused,
    /// It failed.
    Failed,
    /// There were too many acts or requests at this time.
    Dropped,
}

impl LogEntry {
    /// The line about an act, before it is done.
    pub(crate) fn of(act: &Act) -> LogEntry {
        let logged = match act {
            Act::SetWindow { .. } => LoggedAct::Window,
            Act::Fetch { .. } => LoggedAct::Fetch,
            Act::Restore { .. } => LoggedAct::Restore,
            Act::Quiet { .. } => LoggedAct::None,
        };
        let reason = act.reason().map(ToString::to_string).unwrap_or_default();
        LogEntry { act: logged, pages: act.pages(), reason, ..LogEntry::default() }
    }
}

impl From<LoggedAct> for &'static str {
    fn from(act: LoggedAct) -> &'static str {
        act.name()
    }
}

impl From<Outcome> for &'static str {
    fn from(outcome: Outcome) -> &'static str {
        outcome.name()
    }
}

impl LoggedAct {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            LoggedAct::Window => "window",
            LoggedAct::Fetch => "fetch",
            LoggedAct::Restore => "restore",
            LoggedAct::Effect => "effect",
            LoggedAct::Rules => "rules",
            LoggedAct::None => "none",
        }
    }
}

impl Outcome {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Planned => "planned",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::Dropped => "dropped",
        }
    }
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid > 0 {
            let path = self.path.as_deref().unwrap_or("(path not known)");
            write!(f, "{} {} {path} [{}]: ", self.pid, self.comm, self.class)?;
        }
        match (self.act, self.before_pages, self.pages) {
            (LoggedAct::Window | LoggedAct::Restore, Some(before), Some(pages)) => {
                write!(f, "window {} → {} KiB", before * 4, pages * 4)?;
            }
            (LoggedAct::Fetch, _, Some(pages)) => write!(f, "fetch {} KiB", pages * 4)?,
            (LoggedAct::None, ..) => write!(f, "left alone")?,
            (act, ..) => write!(f, "{}", act.name())?,
        }
        if !matches!(self.outcome, Outcome::Done) && self.act != LoggedAct::None {
            write!(f, " ({})", self.outcome.name())?;
        }
        match self.effect {
            Some(effect) => write!(f, ": {}; {effect}", self.reason),
            None => write!(f, ": {}", self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> LogEntry {
        LogEntry {
            time_ms: 1,
            pid: 7,
            comm: "fio".into(),
            descriptor: Some(3),
            path: None,
            class: Class::Sequential,
            act: LoggedAct::Window,
            outcome: Outcome::Planned,
            pages: Some(128),
            before_pages: Some(32),
            reason: "the reader waited 3 times".into(),
            effect: None,
            latency_us: None,
            dry_run: true,
        }
    }

    #[test]
    fn entry_is_one_line_and_json() {
        let line = "7 fio (path not known) [sequential]: window 128 → 512 KiB (planned): the reader waited 3 times";
        assert_eq!(entry().to_string(), line);
        let json = serde_json::to_value(entry()).unwrap();
        assert_eq!((json["act"].as_str(), json["outcome"].as_str()), (Some("window"), Some("planned")));
        for act in [LoggedAct::Window, LoggedAct::Fetch, LoggedAct::Restore, LoggedAct::Effect, LoggedAct::None] {
            assert_eq!(serde_json::to_value(act).unwrap(), act.name());
        }
        for outcome in [Outcome::Done, Outcome::Planned, Outcome::Refused, Outcome::Failed, Outcome::Dropped] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
    }
}

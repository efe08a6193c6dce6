//! Why an act is not done or an open file is left alone: one type for the logic, the log, the metrics and the messages of helpers.

use ahead_policy::steering::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why an act is not done, or an open file or a process is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The rules exclude it, with the rule.
    Rules(String),
    /// The process is a thread of the kernel.
    KernelThread,
    /// The process may not be touched, with the error.
    Forbidden(String),
    /// The process or the open file is gone, or the descriptor belongs to another one.
    Gone,
    /// Its window is not the expected one, or it has advice: the program's own advice counts.
    Advised,
    /// An administrator has switched read-ahead off, or a recording that must see every access.
    Off,
    /// The limit of acts per second is reached.
    ActLimit,
    /// Requests or helpers of the disk are all in use.
    Queue,
    /// The table of open files is full of changed ones.
    TableFull,
    /// A system call failed, with the error.
    Failed(String),
    /// The window of the disk cannot be set.
    NoSetting,
    /// Closing a duplicate would call the file system as if the program had closed its own descriptor.
    Written,
    /// Our own descriptor of the file was refused.
    NotOpened,
    /// The descriptor was closed, and a mapping is left.
    NoDescriptor,
    /// Pages are not fetched.
    FetchOff,
    /// Reads bypass the page cache.
    Direct,
    /// Acts are only logged.
    DryRun,
    /// The open file is not tracked, or it or its process was refused before.
    LeftAlone,
}

impl Refusal {
    /// One of each kind that is counted, in the order of the documents.
    pub(crate) const COUNTED: [Refusal; 16] = [
        Refusal::Rules(String::new()),
        Refusal::KernelThread,
        Refusal::Forbidden(String::new()),
        Refusal::Gone,
        Refusal::Advised,
        Refusal::Off,
        Refusal::ActLimit,
        Refusal::Queue,
        Refusal::TableFull,
        Refusal::Failed(String::new()),
        Refusal::NoSetting,
        Refusal::Written,
        Refusal::NotOpened,
        Refusal::NoDescriptor,
        Refusal::FetchOff,
        Refusal::Direct,
    ];

    /// The label of the metrics. `None`: it is not counted.
    pub(crate) fn label(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::Rules(_) => "excluded by the rules",
            Refusal::KernelThread => "a thread of the kernel",
            Refusal::Forbidden(_) => "access to the process is not permitted",
            Refusal::Gone => "the open file is gone",
            Refusal::Advised => "the program has set its own advice",
            Refusal::Off => "read-ahead is off on the disk",
            Refusal::ActLimit => "too many acts",
            Refusal::Queue => "too many requests to the disk",
            Refusal::TableFull => "too many open files",
            Refusal::Failed(_) => "a system call failed",
            Refusal::NoSetting => "the file system has no window",
            Refusal::Written => "open for writing on a file system that acts on close",
            Refusal::NotOpened => "the file system refused to open the file",
            Refusal::NoDescriptor => "no descriptor, only a mapping",
            Refusal::FetchOff => "fetching is switched off",
            Refusal::Direct => "reads bypass the page cache",
            Refusal::DryRun | Refusal::LeftAlone => return None,
        })
    }

    /// What the policy learns.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Refusal::Gone => Failure::Gone,
            Refusal::ActLimit | Refusal::Queue => Failure::Busy,
            Refusal::DryRun => Failure::DryRun,
            _ => Failure::Refused,
        }
    }
}

/// The sentence of the log.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Rules(detail) | Refusal::Failed(detail) => f.write_str(detail),
            Refusal::Forbidden(detail) => write!(f, "{}: {detail}", self.label().unwrap_or_default()),
            _ => f.write_str(self.label().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn labels_are_distinct() {
        let labels: HashSet<_> = Refusal::COUNTED.iter().map(Refusal::label).collect();
        assert!(labels.len() == Refusal::COUNTED.len() && !labels.contains(&None));
    }
}

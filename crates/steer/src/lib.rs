//! Steers the read-ahead of running programs that know nothing of it.
//!
//! ```text
//!     kernel: decisions of its read-ahead ─▶ observe ─▶ engine ─▶ policy::steering ─▶ acts, each in the log with reason and effect
//!                                                         ▲            │
//!                   positions of readers, memory, rules ──┘            ├─ window of one open file   pidfd_getfd, bdi, FADV_NORMAL: microseconds
//!                                                                      └─ pages fetched ahead       readahead() on our own descriptor, workers
//! ```
//!
//! Rules and limits come in; a log, a summary and metrics come out. Every changed window is put back at the end; the setting of a disk, which
//! has another value for some microseconds during an act, is noted in `/run/ahead/undo` first.
//!
//! This crate must never keep a descriptor taken from a process, act against a program's own advice, steer a process that the rules exclude,
//! wait for a disk, a file system or a lock of a process in the thread that watches, or keep a table without a bound.

mod acting;
mod counts;
mod engine;
mod error;
mod fetching;
mod helpers;
mod kernel;
mod log;
mod metrics;
mod pace;
mod permissions;
mod published;
mod refusal;
mod rules;
mod settings;
mod steerer;
mod times;
mod world;

pub use counts::Counts;
pub use engine::Engine;
pub use error::{Error, Result};
pub use helpers::Helpers;
pub use log::{LogEntry, LoggedAct, Outcome};
pub use metrics::{METRICS, metrics_reference};
pub use published::running_counters;
pub use rules::{Limits, Rules, RulesError};
pub use settings::{Settings, metrics_place};
pub use times::Percentiles;

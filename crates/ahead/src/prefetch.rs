//! A plan into the page cache: what a profile says a program will read is there when it asks.
//!
//! ```text
//!     Profile ──▶ pieces ──▶ looks warm? ──yes──▶ the program starts; the rest is checked with idle priority
//!                   │ no
//!                   ▼
//!        description: does the disk seek, what costs a request? (saved by `probe`, or else from the recording)
//!                   │
//!         ┌─────────┴──────────┐
//!     by position          by first use           plan: what, in which order (pure)
//!     metadata swept,      metadata one window
//!     then data swept      ahead of data
//!         │                    │
//!         ▼                    ▼
//!     workers: open ▸ as recorded? ▸ resident? ▸ cut ▸ read ahead     under a brake: budget, pressure, deadline
//!     (of each device its own; so many in all)                        given up: a device that does not answer
//!         │
//!         ├──▶ gate: the program may start
//!         └──▶ Account: every byte, by what became of it
//! ```
//!
//! In comes an [`crate::Profile`], hostile until proven otherwise, and [`Options`]; out go pages in the page cache
//! and an [`Account`].
//!
//! What it must never do: fail or delay the program; open anything but regular files of the profile and the block device
//! that they lie on; read a byte twice; take more memory than its budget; take the threads that the program needs; wait for one
//! device, or have its caller wait for any, without a limit; leave a byte unaccounted for.

mod account;
mod brake;
mod confirm;
mod description_check;
mod devices;
mod engine;
mod gate;
mod pool;
mod sources;
mod stages;
mod warm;
mod worker;

pub use account::{Account, DescriptionSource, Issued, Order, Reason, Skipped, UsedDevice};
pub use ahead_model::DeviceDescription;
pub use ahead_plan::Source;
pub use engine::{LONGEST_HEAD_START, Running, Stopper, start};
pub use pool::{LONGEST_STILL, NOT_ANSWERING};

use crate::device_store::Descriptions;
use std::time::{Duration, Instant};

/// How to fetch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes that may be fetched at most; `None`: half of the available memory.
    pub budget_bytes: Option<u64>,
    /// Give up after this time; `None`: never.
    pub deadline: Option<Duration>,
    /// Since when somebody waits: from then on all times are limited; `None`: from now on.
    pub since: Option<Instant>,
    /// How much of the disks it takes from others.
    pub priority: Priority,
    /// What the devices are like; of one that is not among them the recording shows it.
    pub descriptions: Descriptions,
    /// When the program may start, on a disk that seeks.
    pub head_start: HeadStart,
    /// Return from [`Running::finish`] only when all has arrived.
    pub wait: bool,
    /// Keep [`Account::ranges`].
    pub keep_ranges: bool,
}

/// How much of the disks a fetch takes from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// As any program: for a program that waits.
    #[default]
    Normal,
    /// What others leave: the idle class, and on a rotating disk no more than a few requests in the queue at a time.
    Idle,
}

/// When the program may start, on a disk that seeks. Elsewhere it starts at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum HeadStart {
    /// As the plan says.
    #[default]
    AsPlanned,
    /// At once: there is no program.
    None,
}

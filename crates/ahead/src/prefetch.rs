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
//!     (separate for each device; limited in all)                      given up: a device that does not answer
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
mod fetch;
mod gate;
mod pool;
mod process;
mod ranges;
mod shared;
mod sources;
mod stages;
mod warm;
mod worker;

pub use account::{Account, DescriptionSource, Issued, Order, Reason, Skipped, UsedDevice};
pub use ahead_model::DeviceDescription;
pub use ahead_plan::Source;
pub use engine::{LONGEST_HEAD_START, Running, Stopper};
pub use pool::{LONGEST_STILL, NOT_ANSWERING};
pub use process::{PrefetchProcess, ProfileFile, Request, Stage};

use crate::device_store::Descriptions;
use crate::{Error, Result};
use ahead_profile::Profile;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prefetches what a profile, or a list of ranges, names.
///
/// ```no_run
/// # fn main() -> ahead::Result<()> {
/// let profile = ahead::load("app.ahead".as_ref())?;
/// let account = ahead::Prefetcher::new(profile).wait(true).start()?.finish();
/// println!("{} bytes in {} requests", account.issued_bytes, account.requests);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Prefetcher {
    profile: Arc<Profile>,
    options: Options,
}

impl Prefetcher {
    /// Of everything in the profile; the program may start when the plan says so.
    pub fn new(profile: Profile) -> Prefetcher {
        Prefetcher { profile: Arc::new(profile), options: Options::default() }
    }

    /// Of byte ranges of files. Sizes and times of change are those of now; a range beyond the end of its file is cut. Nothing is held: there
    /// is no program.
    ///
    /// # Errors
    /// A path does not lead to a regular file, or not below a mount of this machine.
    pub fn of_ranges(ranges: impl IntoIterator<Item = (PathBuf, Range<u64>)>) -> Result<Prefetcher> {
        let options = Options { head_start: HeadStart::None, ..Options::default() };
        Ok(Prefetcher { profile: Arc::new(ranges::to_profile(ranges)?), options })
    }

    /// With these options instead of those of before.
    pub fn options(self, options: Options) -> Prefetcher {
        Prefetcher { options, ..self }
    }

    /// Whether [`Running::finish`] waits until all data has arrived, and not only until all of it is submitted.
    pub fn wait(mut self, wait: bool) -> Prefetcher {
        self.options.wait = wait;
        self
    }

    /// Starts to prefetch and returns at once. Where no thread can be had and no program waits, it returns when everything is prefetched.
    ///
    /// # Errors
    /// No thread could be had. The caller goes on without prefetching then.
    pub fn start(self) -> Result<Running> {
        engine::start(self.profile, self.options).map_err(|error| Error::io("start a thread", error))
    }
}

/// How to prefetch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes that may be fetched at most; `None`: half of the available memory.
    pub budget_bytes: Option<u64>,
    /// Give up after this time; `None`: never.
    pub deadline: Option<Duration>,
    /// Since when the program waits: all time limits count from then on; `None`: from now on.
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

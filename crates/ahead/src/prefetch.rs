//! Prefetches the pages of a profile into the page cache, in the order of a plan, before the program needs them.
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
//!     (separate for each device; limited in all)                      devices that do not answer are given up
//!         │
//!         ├──▶ gate: the program may start
//!         └──▶ Account: the outcome of every byte
//! ```
//!
//! A [`crate::Profile`], which is untrusted, and [`Options`] come in; pages in the page cache and an [`Account`] go out.
//!
//! This module must never fail or delay the program; open anything but regular files of the profile and their block devices; read
//! a byte twice; use more memory than its budget; use up the threads that the program needs; wait for a device, or let its caller
//! wait for one, without a limit; or leave a byte out of the account.

mod account;
mod confirm;
mod description_check;
mod devices;
mod engine;
mod fetch;
mod follower;
mod gate;
mod large_folios;
mod node;
mod process;
mod progress;
mod ranges;
mod shared;
mod sources;
mod stages;
mod warm;
mod worker;

pub use account::{Account, DescriptionSource, Following, Issued, Order, Reason, Skipped, UsedDevice};
pub(crate) use ahead_fetch::{LONGEST_STILL, NOT_ANSWERING};
pub use ahead_model::DeviceDescription;
pub use ahead_plan::Source;
pub(crate) use engine::LONGEST_HEAD_START;
pub use engine::{Running, Stopper};
pub(crate) use process::Stage;
pub use process::{PrefetchProcess, ProfileFile, Request};
pub use progress::{Program, ProgressSource};
pub use ranges::{Resolved, file_as_it_is, resolve};
pub(crate) use shared::as_us;

use crate::device_store::Descriptions;
use crate::{Error, Result};
use ahead_profile::Profile;
use ahead_sys::descriptors;
use ahead_sys::root::Root;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prefetches the pages of a profile, or a list of ranges.
///
/// ```no_run
/// # fn main() -> ahead::Result<()> {
/// let profile = ahead::load("app.ahead".as_ref())?;
/// let account = ahead::Replay::new(profile).wait(true).start()?.finish();
/// println!("{} bytes in {} requests", account.issued_bytes, account.requests);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Replay {
    profile: Arc<Profile>,
    root: Root,
    descriptions: Descriptions,
    options: Options,
}

impl Replay {
    /// Prefetches all of a profile. The program may start when the plan permits it.
    pub fn new(profile: Profile) -> Replay {
        Replay { profile: Arc::new(profile), ..Replay::default() }
    }

    /// Prefetches byte ranges of files, with their current sizes and modification times. Ranges are cut at the end of the file. There is
    /// no program that waits.
    ///
    /// # Errors
    /// A path does not lead to a regular file, or is not below a mount of this machine.
    pub fn of_ranges(ranges: impl IntoIterator<Item = (PathBuf, Range<u64>)>) -> Result<Replay> {
        let options = Options { head_start: HeadStart::None, ..Options::default() };
        Ok(Replay::new(ranges::to_profile(ranges)?).options(options))
    }

    /// Replaces all options.
    pub fn options(self, options: Options) -> Replay {
        Replay { options, ..self }
    }

    /// The directory below which the paths of the profile are.
    pub fn root(self, root: Root) -> Replay {
        Replay { root, ..self }
    }

    /// Descriptions of devices. The description of any other device is derived from the recording.
    pub fn descriptions(self, descriptions: Descriptions) -> Replay {
        Replay { descriptions, ..self }
    }

    /// Whether [`Running::finish`] waits until all data has arrived, and not only until all of it is submitted.
    pub fn wait(mut self, wait: bool) -> Replay {
        self.options.wait = wait;
        self
    }

    /// Makes room for the descriptors of this prefetch, as [`reserve_descriptors`].
    pub fn reserve_descriptors(&self) {
        reserve_descriptors(self.profile.files.len() + self.profile.metadata.len());
    }

    /// Starts to prefetch and returns at once. If no thread can be started and no program waits, returns when all is prefetched.
    ///
    /// # Errors
    /// No thread could be started. The caller then goes on without a prefetch.
    pub fn start(self) -> Result<Running> {
        engine::start(self).map_err(|error| Error::io("start a thread", error))
    }
}

/// Makes room for the descriptors of a prefetch of this number of files. In a process that has only one thread yet, this is quick. Later,
/// the kernel waits some milliseconds each time it makes room.
pub fn reserve_descriptors(files: usize) {
    descriptors::reserve(sources::most_descriptors(files));
}

ahead_model::options! {
    /// How to prefetch.
    #[derive(Clone, Debug, Default)]
    pub struct Options {
        /// Maximum number of prefetched bytes; `None`: half of the available memory.
        pub budget_bytes: Option<u64>,
        /// Stop after this time; `None`: no limit.
        pub deadline: Option<Duration>,
        /// When the program began to wait: all time limits count from then. `None`: from the start of the prefetch.
        pub since: Option<Instant>,
        /// Priority over other programs' reads.
        pub priority: Priority,
        /// When the program may start, on a disk that seeks.
        pub head_start: HeadStart,
        /// Whether [`Running::finish`] returns only when all pages have arrived.
        pub wait: bool,
        /// Whether to keep [`Account::ranges`].
        pub keep_ranges: bool,
        /// Maximum number of threads: those of the prefetch and the caller's; `None`: what the devices and the system permit. With 2, the
        /// fewest, one thread reads and the caller's, in [`Running::finish`], checks time and memory. A device that does not answer then
        /// stops the prefetch of all devices.
        pub threads: Option<usize>,
        /// Read by first use on every disk, in small windows and without gaps, and at most a quarter of the available memory: on a machine
        /// with little memory, pages that are read long before their use are evicted.
        pub low_memory: bool,
        /// How much of the profile is fetched ahead of the program.
        pub window: WindowSize,
        /// The program that a window follows; `None`: only its timeline and the clock move the window.
        pub program: Option<Program>,
    }
}

/// How much of a profile is fetched ahead of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowSize {
    /// All of it at once, up to the budget.
    #[default]
    Whole,
    /// All of it if it fits into the available memory with room for the program, or else a window that follows the program.
    Auto,
    /// A window that begins with this size, bytes.
    Bytes(u64),
}

impl std::str::FromStr for WindowSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<WindowSize, String> {
        match text {
            "auto" => Ok(WindowSize::Auto),
            size => match ahead_model::quantity::parse_size_with_unit(size)? {
                0 => Err("a window has at least one byte".into()),
                bytes => Ok(WindowSize::Bytes(bytes)),
            },
        }
    }
}

/// The priority of a prefetch over other programs' reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priority {
    /// As any program; for a prefetch that a program waits for.
    #[default]
    Normal,
    /// The idle I/O class, and only a few requests in the queue of a rotating disk.
    Idle,
}

/// When the program may start, on a disk that seeks. On other disks it starts at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum HeadStart {
    /// As the plan says.
    #[default]
    AsPlanned,
    /// At once: there is no program.
    None,
}

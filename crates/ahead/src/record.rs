//! Recording: from a program, or from processes that others have started, to a profile.
//!
//! ```text
//!     program ──▶ observe (BPF), or nobpf (ftrace, residency) ──▶ Observation ──▶ learn ──▶ Profile
//!     └── Recorder: the whole way (feature `observe`) ────────────────────────────────────────────┘
//! ```
//!
//! [`learn`] is the part without an observer: it turns an observation into a profile of this machine's files.

#[cfg(feature = "observe")]
mod device_times;
#[cfg(feature = "observe")]
mod exact;
mod filesystem;
#[cfg(feature = "observe")]
mod first_start;
#[cfg(feature = "observe")]
mod missing;
#[cfg(feature = "observe")]
mod others;
#[cfg(feature = "observe")]
mod read_ahead;
#[cfg(feature = "observe")]
mod recorder;
#[cfg(feature = "observe")]
mod single_faults;
#[cfg(feature = "observe")]
mod source;

#[cfg(feature = "observe")]
pub use ahead_observe::{Scope, check_privileges};
#[cfg(feature = "observe")]
pub use first_start::{FirstStart, is_input_repeatable};
#[cfg(feature = "observe")]
pub(crate) use recorder::monotonic_ns;
#[cfg(feature = "observe")]
pub use recorder::{ReadAhead, Recorder, Recording};
#[cfg(feature = "observe")]
pub(crate) use single_faults::is_fault_around_off;
#[cfg(feature = "observe")]
pub use source::{SOURCES, Source};

pub use ahead_profile::learn::{FileSystem, Host, LeftOut, Observation, Run};
pub use filesystem::OsFileSystem;

use ahead_model::{DeviceNumber, sorting};
use ahead_profile::Profile;
use ahead_profile::learn::memory_limit_bytes;
use ahead_sys::{Result, machine, maps, mounts};
use std::collections::BTreeSet;

/// Makes a profile of one observed run. Opens the files that were read, to ask for their places on the disk.
///
/// Errors: the mount table cannot be read.
pub fn learn(observation: &Observation, run: &Run) -> Result<(Profile, LeftOut)> {
    Ok(ahead_profile::learn::to_profile(&OsFileSystem, &host()?, observation, run))
}

/// The files that an observed run wrote and that a later start reads.
///
/// Errors: the mount table cannot be read.
#[cfg(feature = "observe")]
fn written_files(observation: &Observation, run: &Run) -> Result<Vec<ahead_profile::PathBytes>> {
    Ok(ahead_profile::learn::written_files(&OsFileSystem, &host()?, observation, run))
}

/// This machine.
fn host() -> Result<Host> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ok(Host {
        kernel: machine::kernel_release(),
        machine: machine::describe(),
        page_bytes: machine::page_size(),
        memory_bytes: memory_limit_bytes(machine::meminfo_bytes("MemTotal").unwrap_or(0)),
        mounts: mounts::own()?,
        own_files: own_files(),
        now_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
    })
}

/// The files that this process has mapped.
fn own_files() -> BTreeSet<(DeviceNumber, u64)> {
    sorting::set_of(maps::files_of(std::process::id()).into_iter().map(|area| (area.device, area.inode)))
}

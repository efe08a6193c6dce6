//! Recording: from a program, or from processes that others have started, to a profile.
//!
//! ```text
//!     program ──▶ observe (BPF), or nobpf (ftrace, residency) ──▶ Observation ──▶ learn ──▶ Profile
//!     └── Recorder: the whole way ────────────────────────────────────────────────────────────────┘
//! ```

mod awaited;
mod device_times;
mod exact;
mod filesystem;
mod first_start;
mod missing;
mod others;
mod outside;
mod read_ahead;
mod recorder;
mod single_faults;
mod source;

pub use ahead_observe::{FirstExec, ProgramFile, Scope, check_privileges};
pub use ahead_profile::learn::LeftOut;
pub use awaited::ArmedRecorder;
pub use first_start::{FirstStart, is_input_repeatable};
pub(crate) use outside::used_files;
pub(crate) use recorder::monotonic_ns;
pub use recorder::{ReadAhead, Recorder, Recording};
pub(crate) use single_faults::is_fault_around_off;
pub use source::{SOURCES, Source};

use ahead_model::{DeviceNumber, sorting};
use ahead_profile::Profile;
pub(crate) use ahead_profile::learn::Run;
use ahead_profile::learn::{Host, Observation, memory_limit_bytes};
use ahead_sys::{Result, machine, maps, mounts};
use filesystem::OsFileSystem;
use std::collections::BTreeSet;

/// Makes a profile of one observed run. Opens the files that were read, to ask for their places on the disk.
///
/// Errors: the mount table cannot be read.
pub(crate) fn learn(observation: &Observation, run: &Run) -> Result<(Profile, LeftOut)> {
    Ok(ahead_profile::learn::to_profile(&OsFileSystem, &host()?, observation, run))
}

/// The files that an observed run wrote and that a later start reads.
///
/// Errors: the mount table cannot be read.
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

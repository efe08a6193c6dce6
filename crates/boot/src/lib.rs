//! Boots: observes what the machine reads from its start until it is idle, and prefetches that at the next start.
//!
//! ```text
//!     PID 1 ─▶ ahead-boot-replay.service ─▶ conditions ─▶ replay.ahead ─▶ Replay: early list, then late list ─▶ /run/ahead
//!           ─▶ ahead-boot-record.service ─▶ conditions ─▶ Recorder ···························· SIGTERM ─▶ learn ─┐
//!           ─▶ default.target ─▶ ahead-boot-done.timer (linger) ─▶ ahead-boot-done.service ───────┘              │
//!                                                                                                                ▼
//!                   /var/lib/ahead/boot/ROOT-KERNEL/   boot-1.ahead … boot-5.ahead ──▶ merge ──▶ replay.ahead, state.json
//! ```
//!
//! The early list is what was read before default.target was reached, the late list the rest, and what few boots read. One profile is kept
//! for each root file system and kernel. A recorded boot is as it would be otherwise: no cache is evicted, no read-ahead switched off.
//!
//! This crate must never delay PID 1, fail a boot, or keep a disk busy that the boot needs: each failure is a message, and the boot goes on
//! without us.

mod changes;
mod conditions;
mod decision;
mod earlier;
mod initramfs;
mod learning;
mod packages;
mod replay;
mod state;
mod status;
mod store;
mod units;

pub use changes::{Changes, note_changes};
pub use conditions::{Circumstances, Off};
pub use decision::Reason as RecordReason;
pub use initramfs::{Initramfs, Maker};
pub use learning::{Learned, end_observation, observe};
pub use packages::PACKAGE_PROFILES;
pub use replay::{Replayed, replay};
pub use state::{BootState, DEFAULT_STALE_PERCENT, KEPT_BOOTS};
pub use status::{PackageCounts, Status, status};
pub use store::{BootStore, StoreLock};
pub use units::{Installation, UNITS, is_installed, remove, systemd_runs};

use ahead::Result;
use std::path::{Path, PathBuf};

/// Writes and enables the units, and takes over what packages carry. Returns the files that were made.
///
/// # Errors
/// There is no such program, its path cannot be written into a unit, other users than root can replace it, or a file cannot be written.
pub fn install(installation: &Installation) -> Result<Vec<PathBuf>> {
    units::check_program(installation)?;
    let made = units::install(installation)?;
    if installation.root == Path::new("/") {
        // A replay in the initramfs finds a profile before the first boot is recorded.
        changes::begin(&|message| tracing::warn!("{message}"))
            .unwrap_or_else(|error| tracing::warn!("profiles of packages: {error}"));
    }
    Ok(made)
}

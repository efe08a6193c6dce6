//! Emptying the own buffer of an emulated drive, which evicting pages does not reach.

use crate::Result;
use crate::error::Context;
use ahead_disk::{Client, DiskInfo};

/// Resets the selected disks that have a running daemon to their state after power-on. If one of them fails (its daemon is stopped, for
/// example), the others are reset nevertheless.
///
/// # Errors
/// The first failure.
pub fn restart(is_selected: impl Fn(&DiskInfo) -> bool) -> Result<()> {
    let selected = ahead_disk::list()?.into_iter().filter(|disk| disk.is_alive() && is_selected(disk));
    let mut outcome = Ok(());
    for disk in selected {
        outcome = outcome.and(restart_one(&disk));
    }
    outcome
}

fn restart_one(disk: &DiskInfo) -> Result<()> {
    let name = &disk.name;
    let what = || format!("empty the buffer of the disk {name}");
    Client::new(disk).restart().context(what)
}

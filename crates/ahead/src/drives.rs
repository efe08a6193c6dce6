//! Emptying the own buffer of an emulated drive, which evicting pages does not reach.

use crate::Result;
use crate::error::Context;
use ahead_disk::{Client, DiskInfo};

/// Puts the selected disks whose daemons live into their state after power-on. A disk that fails (its daemon is stopped, or of an older
/// version) keeps no other from it, and its error is returned.
///
/// # Errors
/// The first of the failures.
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
    let what = || format!("empty the buffer of the disk {name} (older than this ahead? detach and attach it again)");
    Client::new(disk).restart().context(what)
}

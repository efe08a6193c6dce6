//! Emptying what an emulated drive keeps in a buffer of its own, where evicting pages does not reach.

use ahead_disk::{Client, DiskInfo};
use anyhow::Context;

/// Puts the living disks that are meant into their state after power-on. One that cannot be (its daemon is stopped, or of
/// an older version) keeps no other from it, and is the error.
pub fn restart(is_meant: impl Fn(&DiskInfo) -> bool) -> anyhow::Result<()> {
    let meant = ahead_disk::list()?.into_iter().filter(|disk| disk.is_alive() && is_meant(disk));
    let mut outcome = Ok(());
    for disk in meant {
        outcome = outcome.and(restart_one(&disk));
    }
    outcome
}

fn restart_one(disk: &DiskInfo) -> anyhow::Result<()> {
    let name = &disk.name;
    let what = || format!("empty the buffer of the disk {name} (older than this ahead? detach and attach it again)");
    Client::new(disk).restart().with_context(what)
}

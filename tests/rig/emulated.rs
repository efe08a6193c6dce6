//! Emulated disks, whose times are those of a model and which fail on request.

use super::machine::{Held, in_memory, needs_emulated_disks};
use super::program::ahead;
use super::wait::wait_until;
use ahead_disk::{ByteRange, Client, DiskInfo, FaultChange};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory of one test's disks, in memory: the storage below must not be slower than the model. The disks are detached when it is dropped,
/// also after a panic.
pub struct Disks {
    directory: tempfile::TempDir,
    names: Vec<String>,
    _machine: Held,
}

impl Disks {
    /// `None`, with the reason printed, where disks cannot be emulated.
    pub fn new() -> Option<Disks> {
        Disks::of(Held::shared)
    }

    /// The same for a test that measures, or that restores notes of other processes.
    pub fn alone() -> Option<Disks> {
        Disks::of(Held::alone)
    }

    fn of(machine: impl FnOnce() -> Held) -> Option<Disks> {
        needs_emulated_disks()?;
        Some(Disks { directory: in_memory(), names: Vec::new(), _machine: machine() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A name that no other test uses.
    pub fn name(&mut self, what: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{what}-{}-{number}", std::process::id());
        self.names.push(name.clone());
        name
    }

    pub fn create(&mut self, what: &str, options: &[&str]) -> DiskInfo {
        let name = self.name(what);
        let image = self.path(&format!("{name}.img"));
        ahead(["disk", "create"]).arg(image).args(["--name", &name]).args(options).ok();
        ahead_disk::find(&name).unwrap()
    }

    /// A disk with a file system, and where it is mounted.
    pub fn mounted(&mut self, what: &str, options: &[&str]) -> (DiskInfo, PathBuf) {
        let mount = self.mount_point();
        let disk = self.create(what, &[options, &["--mount", &mount]].concat());
        (disk, mount.into())
    }

    pub fn mount_point(&self) -> String {
        let mount = self.path(&format!("mnt-{}", self.names.len()));
        fs::create_dir_all(&mount).unwrap();
        mount.to_str().unwrap().to_owned()
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for disk in self.names.iter().filter_map(|name| ahead_disk::find(name).ok()) {
            heal_if_alive(&disk);
            if std::thread::panicking() {
                if let Err(error) = ahead_disk::detach(&disk) {
                    eprintln!("not detached: {error}");
                }
                continue;
            }
            // The kernel's outstanding reads of an ended program keep it busy.
            wait_until("the detach", || ahead_disk::detach(&disk).is_ok());
        }
    }
}

/// Sets faults of a disk.
pub fn fault(disk: &DiskInfo, change: FaultChange) {
    Client::new(disk).fault(change).unwrap();
}

/// Delays each answer.
pub fn stall(disk: &DiskInfo, stall_ms: u64) {
    fault(disk, FaultChange { stall_ms: Some(stall_ms), ..FaultChange::default() });
}

/// Lets reads of these bytes fail.
pub fn fail(disk: &DiskInfo, offset_bytes: u64, length_bytes: u64) {
    fault(disk, FaultChange { fail: vec![ByteRange { offset_bytes, length_bytes }], ..FaultChange::default() });
}

/// Ends all faults.
pub fn heal(disk: &DiskInfo) {
    fault(disk, FaultChange { clear: true, ..FaultChange::default() });
}

fn heal_if_alive(disk: &DiskInfo) {
    let _ = Client::new(disk).fault(FaultChange { clear: true, ..FaultChange::default() });
}

/// The daemon of a disk was killed, and has ended.
pub fn kill_daemon(disk: &DiskInfo) {
    super::process::signal(disk.daemon.pid, "KILL");
    assert!(ahead_process::wait_end(disk.daemon, 2 * super::wait::LONGEST).unwrap());
}

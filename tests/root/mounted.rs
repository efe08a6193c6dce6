//! A file system on a loop device, for tests that need a separate one.

use crate::crash::wait_until;
use crate::machine_lock::Held;
use ahead_model::DeviceNumber;
use ahead_sys::{block, diskstats, evict, machine, mounting};
use ahead_undo::{Guard, ProcessId};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A file system on a loop device. Dropping its guards unmounts and detaches it.
pub struct Mounted {
    pub fs_type: &'static str,
    pub root: PathBuf,
    pub mount: Option<Guard>,
    pub device: ahead_undo::loops::Loop,
    home: tempfile::TempDir,
    // Fetched pages must stay in the cache.
    _machine: Held,
}

/// Copies the program and the laboratory's program beside it, in another process. A file that this process writes is
/// briefly open in the children that other tests fork. The kernel does not execute a file that is open for writing.
pub fn copy_ahead(to: &Path) {
    for (program, to) in [("ahead", to.to_owned()), ("ahead-lab", to.with_file_name("ahead-lab"))] {
        let copied = std::process::Command::new("cp").arg(assert_cmd::cargo::cargo_bin(program)).arg(to).status();
        assert!(copied.unwrap().success());
    }
}

fn is_ext(fs_type: &str) -> bool {
    fs_type.starts_with("ext")
}

impl Mounted {
    /// `None`, with the reason printed, where that is impossible.
    pub fn new(fs_type: &'static str) -> Option<Mounted> {
        Mounted::with(fs_type, Held::shared)
    }

    /// The same for a test that counts merged requests of several threads: concurrent tests would take the processors.
    pub fn alone(fs_type: &'static str) -> Option<Mounted> {
        Mounted::with(fs_type, Held::alone)
    }

    fn with(fs_type: &'static str, hold: impl FnOnce() -> Held) -> Option<Mounted> {
        if !machine::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let machine = hold();
        let home = tempfile::tempdir().unwrap();
        // A profile of another user must be able to name a path in it.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let image = home.path().join("image");
        fs::File::create(&image).unwrap().set_len(512 * MIB).unwrap();
        let mut mkfs = std::process::Command::new(format!("mkfs.{fs_type}"));
        if is_ext(fs_type) {
            // Otherwise the kernel writes the inode tables and the journal later, during the measurement.
            mkfs.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        }
        let mkfs = mkfs.arg(&image).output();
        if !mkfs.is_ok_and(|made| made.status.success()) {
            eprintln!("skipped: no mkfs.{fs_type}");
            return None;
        }
        let device = match ahead_undo::loops::attach(ProcessId::own().unwrap(), &image, true, false) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let root = home.path().join("mnt");
        fs::create_dir(&root).unwrap();
        let mut mounted = Mounted { fs_type, root, mount: None, device, home, _machine: machine };
        mounted.mount();
        Some(mounted)
    }

    fn mount(&mut self) {
        let own = ProcessId::own().unwrap();
        let mount = |options| {
            ahead_undo::mounts::mount_noted(own, &self.device.device, &self.root, self.fs_type, false, options)
        };
        // Since Linux 5.13 the kernel reads the block bitmaps at a random moment within the first five seconds.
        let mounted = if is_ext(self.fs_type) { mount("no_prefetch_block_bitmaps") } else { mount("") };
        self.mount = Some(mounted.or_else(|_| mount("")).unwrap());
    }

    /// Unmounts, mounts again, and evicts the device's pages: no page of the file system stays cached.
    pub fn make_cold(&mut self) {
        // Not a lazy unmount as in the guard: a process that another test has just forked would keep all cached pages.
        if let Some(mount) = self.mount.take() {
            wait_until("the unmount", || mounting::unmount(&self.root).is_ok());
            drop(mount);
        }
        evict::block_device(&self.device.device).unwrap();
        self.mount();
    }

    /// The backing file of the loop device.
    pub fn image(&self) -> PathBuf {
        self.home.path().join("image")
    }

    pub fn number(&self) -> DeviceNumber {
        block::device_number(&self.device.device).unwrap()
    }

    /// The device requests that `work` causes.
    pub fn requests(&self, work: impl FnOnce()) -> u64 {
        let before = diskstats::reads(self.number()).unwrap();
        work();
        (diskstats::reads(self.number()).unwrap() - before).requests
    }

    /// A file of this many bytes, without holes or equal blocks.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.root.join(name);
        let content: Vec<u8> = (0..bytes).map(|at| (at / KIB * 31 + at % 251) as u8).collect();
        fs::write(&path, content).unwrap();
        path
    }
}

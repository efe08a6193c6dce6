//! Helpers of the recording tests: file systems in images, recordings of programs, and queries of their profiles.

use crate::machine_lock;
use ahead_profile::{File, Profile};
use ahead_sys::{cache, evict, machine};
use ahead_undo::{Guard, ProcessId};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{OnceLock, RwLockReadGuard, RwLockWriteGuard};

pub const PAGE: u64 = 4096;
const IMAGE_BYTES: u64 = 512 << 20;

/// Whether recordings are possible here; prints the reason if not. Checked once, with a short recording.
pub fn can_record() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(try_to_record)
}

fn try_to_record() -> bool {
    if !machine::is_root() {
        eprintln!("skipped: recording needs root");
        return false;
    }
    let probe = ahead().args(["record", "-o", "/dev/shm/ahead-probe.ahead", "true"]).output().unwrap();
    let _ = fs::remove_file("/dev/shm/ahead-probe.ahead");
    if probe.status.code() == Some(77) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&probe.stderr));
        return false;
    }
    assert!(probe.status.success(), "{probe:?}");
    true
}

/// The built binary.
pub fn ahead() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin("ahead"))
}

/// A directory for profiles and scripts, on the file system of the tests.
pub struct Home {
    pub directory: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Home {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Home { directory }
    }

    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.directory.path().join(name.as_ref())
    }

    pub fn profile(&self) -> PathBuf {
        self.path("p.ahead")
    }

    /// Records a command with these options, asserts success, and loads the profile.
    pub fn record<A: AsRef<OsStr>>(&self, options: &[&str], command: &[A]) -> (Output, Profile) {
        let output = self.try_record(options, command);
        assert!(output.status.success(), "{output:?}");
        (output, self.load())
    }

    /// The same without the assertion.
    pub fn try_record<A: AsRef<OsStr>>(&self, options: &[&str], command: &[A]) -> Output {
        // A cold recording changes the whole machine: no other test may measure during it.
        let _alone = options.contains(&"--cold").then(machine_lock::alone);
        self.record_now(options, command)
    }

    /// Records a cold, precise run. No other test changes a cache until the returned guard is dropped.
    pub fn record_cold<A: AsRef<OsStr>>(&self, command: &[A]) -> (Profile, RwLockWriteGuard<'static, ()>) {
        let alone = machine_lock::alone();
        let output = self.record_now(&["--cold", "--precise"], command);
        assert!(output.status.success(), "{output:?}");
        (self.load(), alone)
    }

    fn record_now<A: AsRef<OsStr>>(&self, options: &[&str], command: &[A]) -> Output {
        ahead().arg("record").arg("-o").arg(self.profile()).args(options).arg("--").args(command).output().unwrap()
    }

    pub fn load(&self) -> Profile {
        ahead_profile::load(&self.profile()).unwrap()
    }
}

/// A file system in an image on a loop device. Dropping its guards unmounts and detaches it.
pub struct Volume {
    pub root: PathBuf,
    mount: Option<Guard>,
    device: ahead_undo::loops::Loop,
    home: tempfile::TempDir,
}

impl Volume {
    /// `None`, with the reason printed, where that is impossible.
    pub fn new(fs_type: &str) -> Option<Volume> {
        if !can_record() {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let image = home.path().join("image");
        fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let made = Command::new(format!("mkfs.{fs_type}")).arg(&image).output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("skipped: no mkfs.{fs_type}");
            return None;
        }
        let device = ahead_undo::loops::attach(ProcessId::own().unwrap(), &image, true, false)
            .inspect_err(|error| eprintln!("skipped: {error}"))
            .ok()?;
        let root = home.path().join("mnt");
        fs::create_dir(&root).unwrap();
        let mount = mount(&device.device, &root, fs_type, "")?;
        Some(Volume { root, mount: Some(mount), device, home })
    }

    /// Mounts the device a second time, with other options.
    pub fn mount_again(&self, name: &str, fs_type: &str, options: &str) -> (PathBuf, Guard) {
        let point = self.home.path().join(name);
        fs::create_dir(&point).unwrap();
        let guard = mount(&self.device.device, &point, fs_type, options).unwrap();
        (point, guard)
    }

    /// A directory beside the mount point.
    pub fn beside(&self, name: &str) -> PathBuf {
        let path = self.home.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn device(&self) -> &Path {
        &self.device.device
    }

    /// A file of this many pages; no two pages are equal.
    pub fn file(&self, name: impl AsRef<OsStr>, pages: u64) -> PathBuf {
        let path = self.root.join(name.as_ref());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap();
        }
        let content: Vec<u8> = (0..pages * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect();
        fs::write(&path, content).unwrap();
        path
    }

    /// Copies programs with their libraries, as the loader lists them, to the same paths below the root.
    pub fn install(&self, programs: &[&str]) {
        self.install_below("", programs);
    }

    /// The same below a directory.
    pub fn install_below(&self, directory: &str, programs: &[&str]) {
        for program in programs {
            let libraries = Command::new("ldd").arg(program).output().unwrap();
            let text = String::from_utf8(libraries.stdout).unwrap();
            let libraries = text.split_ascii_whitespace().filter(|word| word.starts_with('/'));
            for file in libraries.chain([*program]) {
                let place = self.root.join(directory).join(&file[1..]);
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::copy(file, place).unwrap();
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Before the device is detached.
        drop(self.mount.take());
    }
}

/// Mounts under a guard.
pub fn mount(source: &Path, target: &Path, fs_type: &str, options: &str) -> Option<Guard> {
    ahead_undo::mounts::mount_noted(ProcessId::own().unwrap(), source, target, fs_type, false, options)
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()
}

/// An unused port below the kernel's range of automatic ports. The search does not open a socket: a program that another test
/// starts at that moment would inherit it until its exec.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    20_000 + (std::process::id() * 16 % 10_000) as u16 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps the machine unchanged while this guard exists: no cold recording runs.
pub fn undisturbed() -> RwLockReadGuard<'static, ()> {
    machine_lock::shared()
}

/// For a test with mount namespaces: while this guard exists, no other test unmounts a file system or makes one cold. A new mount
/// namespace holds a copy of every mount.
pub fn with_namespaces() -> RwLockWriteGuard<'static, ()> {
    machine_lock::alone()
}

/// The entry of a file, by its path.
pub fn entry<'a>(profile: &'a Profile, path: &Path) -> &'a File {
    find(profile, path).unwrap_or_else(|| panic!("{} is missing in {:?}", path.display(), paths(profile)))
}

pub fn find<'a>(profile: &'a Profile, path: &Path) -> Option<&'a File> {
    profile.files.iter().find(|file| file.path == path.as_os_str().as_bytes())
}

pub fn paths(profile: &Profile) -> Vec<OsString> {
    profile.files.iter().map(|file| OsStr::from_bytes(&file.path).to_owned()).collect()
}

/// The byte ranges that were used of a file, in order of their offsets.
pub fn ranges(file: &File) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> =
        file.extents.iter().map(|e| e.offset_bytes..e.offset_bytes + e.length_bytes).collect();
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Every regular file below a directory with its resident ranges, cut at its end.
pub fn resident_below(directory: &Path) -> Vec<(PathBuf, Vec<Range<u64>>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(resident_below(&entry.path()));
        } else if kind.is_file() {
            let file = fs::File::open(entry.path()).unwrap();
            let size = file.metadata().unwrap().len();
            let resident = cache::resident(&file, 0, size).unwrap();
            found.push((entry.path(), resident.into_iter().map(|range| range.start..range.end.min(size)).collect()));
        }
    }
    found
}

/// Drops the clean pages of a file.
pub fn evict(path: &Path) {
    evict::file(fs::File::open(path).unwrap()).unwrap();
}

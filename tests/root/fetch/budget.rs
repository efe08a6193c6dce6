//! The budget of a fetch in a control group with a memory limit.

use super::{LONGEST, MIB, resident, saved};
use crate::reclaim::unless_reclaimed;
use ahead_profile::{Extent, File, Profile};
use ahead_sys::{evict, machine, openat};
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The memory limit of the group.
const LIMIT_BYTES: u64 = 256 * MIB;

/// The part of it that lies in a tmpfs.
const TMPFS_BYTES: u64 = 128 * MIB;

/// A control group with a memory limit.
pub(super) struct Group(pub PathBuf);

impl Group {
    fn new() -> Option<Group> {
        Group::with(LIMIT_BYTES)
    }

    /// `None`, with the reason printed, where that is impossible.
    pub(super) fn with(limit_bytes: u64) -> Option<Group> {
        if !machine::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        for (hierarchy, limit) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let path = Path::new(hierarchy).join(format!("ahead-test-{}-{limit_bytes}", std::process::id()));
            if !Path::new(hierarchy).join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Group(path);
            if fs::write(group.0.join(limit), limit_bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        eprintln!("skipped: a control group with a memory controller cannot be created");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        crate::crash::wait_until("the end of the group", || fs::remove_dir(&self.0).is_ok());
    }
}

/// A sparse file of twice the limit, and its profile: all of it is used, one MiB after the other.
struct Large {
    path: PathBuf,
    profile: tempfile::NamedTempFile,
    _home: tempfile::TempDir,
}

impl Large {
    fn new() -> Large {
        // In the target directory: /tmp may be a tmpfs.
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = fs::canonicalize(home.path()).unwrap().join("file");
        let file = fs::File::create(&path).unwrap();
        file.set_len(2 * LIMIT_BYTES).unwrap();
        evict::file(&file).unwrap();
        let now = openat::handle(&path).unwrap().identity();
        let extent = |index: u64| Extent {
            offset_bytes: index * MIB,
            length_bytes: MIB,
            first_use_us: index,
            runs: 1,
            ..Extent::default()
        };
        let profile = saved(&Profile {
            files: vec![File {
                path: path.as_os_str().as_bytes().to_vec(),
                device: now.device,
                inode: now.inode,
                size_bytes: now.size_bytes,
                mtime_ns: now.mtime_ns,
                extents: (0..2 * LIMIT_BYTES / MIB).map(extent).collect(),
                ..File::default()
            }],
            ..Profile::default()
        });
        Large { path, profile, _home: home }
    }
}

/// Regression: files in a tmpfs counted as reclaimable memory, and half of their size was fetched on top of it.
#[test]
fn files_in_a_tmpfs_do_not_add_to_the_budget() {
    let Some(group) = Group::new() else { return };
    let _machine = crate::machine_lock::shared();
    let large = Large::new();
    let shared = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs; head -c {TMPFS_BYTES} /dev/zero > {}; exec \"$0\" replay --wait --json \"$1\"",
        group.0.display(),
        shared.path().display()
    );
    let ahead = assert_cmd::cargo::cargo_bin("ahead");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(ahead)
        .arg(large.profile.path())
        .timeout(LONGEST)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let account: Value = serde_json::from_slice(&output.stdout).unwrap();
    let issued_bytes = account["issued_bytes"].as_u64().unwrap();
    // Half of the rest.
    let most_bytes = (LIMIT_BYTES - TMPFS_BYTES) / 2;
    assert!(issued_bytes > most_bytes / 2 && issued_bytes <= most_bytes, "{account}");
    assert!(account["skipped"]["over_budget"]["bytes"].as_u64() > Some(0), "{account}");
}

/// Pages that are prefetched on a machine with little memory are in memory until they are used: a quarter of it at most, those that are used
/// first, and without the neighbours that the kernel would read.
#[test]
fn low_memory_takes_a_quarter_by_first_use() {
    unless_reclaimed(|| {
        let Some(group) = Group::new() else { return };
        let _machine = crate::machine_lock::shared();
        let large = Large::new();
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$0\" --low-memory --wait \"$1\"", group.0.display());
        let program = assert_cmd::cargo::cargo_bin("ahead-replay");
        let mut replay = Command::new("sh");
        let output =
            replay.args(["-c", &script]).arg(program).arg(large.profile.path()).timeout(LONGEST).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let account = String::from_utf8(output.stdout).unwrap();
        let figure = |name: &str| -> u64 {
            let line = account.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {account}")).parse().unwrap()
        };
        let issued_bytes = figure("issued_bytes");
        assert!(issued_bytes > LIMIT_BYTES / 8 && issued_bytes <= LIMIT_BYTES / 4, "{account}");
        assert_eq!(issued_bytes + figure("skipped_over_budget_bytes"), 2 * LIMIT_BYTES, "{account}");
        let first_used = 0..issued_bytes;
        assert_eq!(resident(&large.path), [first_used], "{account}");
    });
}

//! The budget of a fetch in a control group with a memory limit.

use super::{LONGEST, saved};
use ahead_tests::rig::group::Group;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{of_files, used};
use std::io::Read;

/// The memory limit of the group.
const LIMIT_BYTES: u64 = 256 * MIB;

/// The part of it that lies in a tmpfs.
const TMPFS_BYTES: u64 = 128 * MIB;

/// A sparse file of twice the limit, and its profile: all of it is used, one MiB after the other.
struct Large {
    path: PathBuf,
    profile: tempfile::NamedTempFile,
    _home: tempfile::TempDir,
}

impl Large {
    fn new() -> Large {
        let home = on_disk();
        let path = home.path().join("file");
        // Holes are not prefetched.
        std::io::copy(&mut std::io::repeat(1).take(2 * LIMIT_BYTES), &mut File::create(&path).unwrap()).unwrap();
        evict(&path);
        let parts: Vec<_> = (0..2 * LIMIT_BYTES / MIB).map(|index| index * MIB..(index + 1) * MIB).collect();
        let profile = saved(&of_files(vec![used(&path, &parts)]));
        Large { path, profile, _home: home }
    }
}

/// Regression: files in a tmpfs counted as reclaimable memory, and half of their size was fetched on top of it.
#[test]
fn files_in_a_tmpfs_do_not_add_to_the_budget() {
    let Some(group) = Group::with_memory(LIMIT_BYTES) else { return };
    let _machine = shared();
    let large = Large::new();
    let in_tmpfs = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let fill = format!("head -c {TMPFS_BYTES} /dev/zero > {}; exec \"$@\"", in_tmpfs.path().display());
    let replay = ahead(["replay", "--wait", "--json"]).arg(large.profile.path()).by_script(&fill).in_group(&group);
    let account = replay.limit(LONGEST).json();
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
        let Some(group) = Group::with_memory(LIMIT_BYTES) else { return };
        let _machine = shared();
        let large = Large::new();
        let replay = program(built("ahead-replay")).args(["--low-memory", "--wait"]).arg(large.profile.path());
        let account = replay.in_group(&group).limit(LONGEST).text();
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

//! Other users of the machine can neither block root nor act through root.

use crate::machine_lock;
use ahead_sys::machine;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn ahead() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("ahead"));
    command.env_remove("SUDO_USER").env_remove("SUDO_UID");
    command
}

/// Regression: each user who could read a lock file could hold the lock, and `record` and `restore` of root waited.
#[test]
fn another_user_cannot_hold_a_lock_of_root() {
    if !machine::is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let _alone = machine_lock::alone();
    let home = tempfile::tempdir().unwrap();
    let locks = ["alone.lock", "fault_around.lock", "undo/lock"].map(|name| format!("/run/ahead/{name}"));
    // The locks may have another mode first.
    for lock in locks.iter().filter(|lock| fs::exists(lock).unwrap()) {
        fs::set_permissions(lock, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let recorded = ahead().args(["record", "--cold", "-o"]).arg(home.path().join("p")).args(["--", "true"]).status();
    assert!(recorded.unwrap().success() && ahead().arg("restore").status().unwrap().success());
    // The lock for the size of faults exists only where that size can be changed.
    for lock in locks.iter().filter(|lock| fs::exists(lock).unwrap()) {
        let stranger = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "flock", "--nonblock", lock, "true"];
        let tried = Command::new("setpriv").args(stranger).output().unwrap();
        let message = String::from_utf8_lossy(&tried.stderr);
        assert!(!tried.status.success() && message.contains("Permission denied"), "{lock}: {message}");
    }
}

/// Regression: with umask 0 any user could write notes there, and root executed them.
#[test]
fn only_root_can_write_notes_with_any_umask() {
    if !machine::is_root() || !fs::exists("/dev/fuse").unwrap() || !fs::exists("/dev/loop-control").unwrap() {
        eprintln!("skipped: needs root, FUSE and loop devices");
        return;
    }
    // A mount namespace holds copies of other tests' mounts.
    let _alone = machine_lock::alone();
    let home = tempfile::tempdir().unwrap();
    // An empty /run in the mount namespace of the test.
    let script = r#"mount -t tmpfs -o mode=755 none /run && umask "$2" && cd "$1" &&
        "$0" disk create x.img --size 1M --fs none --model ssd --name strangers >message &&
        find /run/ahead -printf '%m %y %P\n' && "$0" disk detach strangers >message && rm x.img message"#;
    for umask in ["0", "077"] {
        let done = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", script])
            .arg(assert_cmd::cargo::cargo_bin("ahead"))
            .arg(home.path())
            .arg(umask)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        let found = String::from_utf8(done.stdout).unwrap();
        for expected in ["755 d ", "755 d undo", "755 d disk"] {
            assert!(found.lines().any(|line| line == expected), "{umask}: {found}");
        }
        // The disk's file system is not a file of ahead.
        for line in found.lines().filter(|line| !line.starts_with("755 d")) {
            let mode = u32::from_str_radix(line.split(' ').next().unwrap(), 8).unwrap();
            assert_eq!(mode & 0o022, 0, "{line}");
        }
    }
}

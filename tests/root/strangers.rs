//! Other users of the machine can neither block root nor act through root.

use ahead_tests::rig::prelude::*;

/// Regression: each user who could read a lock file could hold the lock, and `record` and `restore` of root waited.
#[test]
fn another_user_cannot_hold_a_lock_of_root() {
    let Some(()) = needs_root() else { return };
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let locks = ["alone.lock", "fault_around.lock", "undo/lock"].map(|name| format!("/run/ahead/{name}"));
    // The locks may have another mode first.
    for lock in locks.iter().filter(|lock| fs::exists(lock).unwrap()) {
        set_mode(lock, 0o644);
    }
    ahead(["record", "--cold", "-o"]).arg(home.path().join("p")).args(["--", "true"]).ok();
    ahead(["restore"]).ok();
    // The lock for the size of faults exists only where that size can be changed.
    for lock in locks.iter().filter(|lock| fs::exists(lock).unwrap()) {
        let tried = program("flock").args(["--nonblock", lock, "true"]).as_stranger().done().says("Permission denied");
        assert!(!tried.status.success(), "{tried}");
    }
}

/// Regression: with umask 0 any user could write notes there, and root executed them.
#[test]
fn only_root_can_write_notes_with_any_umask() {
    let Some(()) = needs_emulated_disks() else { return };
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    // An empty /run in the mount namespace of the test.
    let script = r#"mount -t tmpfs -o mode=755 none /run && umask "$3" && cd "$2" &&
        "$1" disk create x.img --size 1M --fs none --model ssd --name strangers >message &&
        find /run/ahead -printf '%m %y %P\n' && "$1" disk detach strangers >message && rm x.img message"#;
    for umask in ["0", "077"] {
        let found = program(built("ahead")).arg(home.path()).arg(umask).apart(script).text();
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

/// Regression: with umask 0 other users could write the descriptions of devices, and in the directories of windows and their rules; with 077 they
/// could not read them.
#[test]
fn modes_of_descriptions_and_windows_do_not_depend_on_the_umask() {
    // A mount namespace holds copies of other tests' mounts.
    let Some(mounted) = Mounted::alone("ext4") else { return };
    // Linux before 6.9 does not report the UUID, and a loop device has no other identity. Then nothing is kept but the window.
    let script = r#"mount -t tmpfs -o mode=755 none /var/lib && mkdir -p -m 755 "$3/etc" "$3/etc/udev" && umask "$4" &&
        { "$1" probe --save --size 8M "$2" >/dev/null || mkdir -m 755 /var/lib/ahead; } &&
        { "$1" tune "$2" --root "$3" --kb 512 --persist || "$1" tune "$2" --root "$3" --kb 512 --apply; } >/dev/null &&
        find /var/lib/ahead "$3/var" "$3/etc" -printf '%y%m %p\n' && "$1" tune "$2" --root "$3" --restore >/dev/null"#;
    for umask in ["0", "077"] {
        let tree = tempfile::tempdir().unwrap();
        let found = program(built("ahead")).args([&mounted.root, tree.path()]).arg(umask).apart(script).text();
        for line in found.lines() {
            assert!(line.starts_with("d755 ") || line.starts_with("f644 "), "{line} with umask {umask}");
        }
        assert!(found.contains("/var/lib/ahead/tune/"), "{found}");
        let has_identity = found.contains("/etc/udev/rules.d/");
        assert!(!has_identity || found.contains("/var/lib/ahead/devices/"), "{found}");
    }
}

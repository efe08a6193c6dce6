//! The program for small machines, as `scripts/embedded` builds it: in a directory that has nothing else.

use ahead_profile::Profile;
use ahead_sys::{descriptors, openat};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{of_files, save, used};
use std::sync::OnceLock;

/// The static program. `make test` has built it already.
fn replayer() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let built = program(root.join("scripts/embedded")).limit(Duration::from_secs(1800)).text();
        let (_, path) = built.trim_end().rsplit_once(": ").unwrap();
        root.join(path)
    })
}

/// The account of four mebibytes, of which these ranges are read, in disk order.
fn assert_reads_ranges(account: &str, data: &Path) {
    for line in [&format!("\nissued_bytes {}\n", MIB + 4096), "\nalready_resident_bytes 0\n", "\narrived_us "] {
        assert!(account.contains(line), "no {line:?} in {account}");
    }
    assert_eq!(resident(data), [0..4096, 2 * MIB..3 * MIB]);
}

#[test]
fn program_needs_nothing_but_its_profile_and_proc() {
    unless_reclaimed(|| {
        let Some(mut mounted) = Mounted::new("ext4") else { return };
        let data = mounted.file("data", 4 * MIB);
        let named = |name: &str, size_bytes, ranges: &[_]| ahead_profile::File {
            path: name.into(),
            size_bytes,
            ..used(&data, ranges)
        };
        let files = [named("/data", 4 * MIB, &[2 * MIB..3 * MIB, 0..4096]), named("/missing", 8192, &[0..8192])];
        save(&of_files(files.to_vec()), &mounted.root.join("p.ahead"));
        // In another process: a file that this process writes may be open in children of other tests, and cannot be executed then.
        program("cp").arg(replayer()).arg(mounted.root.join("ahead-replay")).ok();
        let [point] = make_directories(&mounted.root, ["proc"]);
        mounted.make_cold();
        let replay =
            || program("chroot").arg(&mounted.root).args(["/ahead-replay", "--low-memory", "--wait", "/p.ahead"]);
        replay().fails(77).says("mount -t proc proc /proc").in_one_line();
        let proc = ahead_tests::rig::mounted::mount("proc", &point, "proc", "").unwrap();
        let account = replay().ok().err_is("").out;
        drop(proc);
        assert!(account.starts_with("requests "), "{account}");
        assert!(account.contains("\nskipped_missing_bytes 8192\n"), "{account}");
        assert_reads_ranges(&account, &data);
    });
}

/// Record here, `ahead export` here, replay there: the static program has the list alone.
#[test]
fn exported_list_brings_the_recorded_pages() {
    unless_reclaimed(|| {
        let Some(mut mounted) = Mounted::new("ext4") else { return };
        let data = mounted.file("data", 4 * MIB);
        let profile: Profile = of_files(vec![used(&data, &[2 * MIB..3 * MIB, 0..4096])]);
        let home = tempfile::tempdir().unwrap();
        let (saved, list) = (home.path().join("p.ahead"), home.path().join("p.list"));
        save(&profile, &saved);
        for (options, flags) in [(&[][..], &["--low-memory", "--wait"][..]), (&["-0"], &["-0", "--wait"])] {
            fs::write(&list, ahead(["export"]).arg(&saved).args(options).ok().out_bytes).unwrap();
            mounted.make_cold();
            assert_reads_ranges(&program(replayer()).args(flags).arg(&list).done().out, &data);
        }
    });
}

/// Set in the process that has a separate mount namespace.
const INSIDE: &str = "AHEAD_TEST_INSIDE";

/// An initramfs moves /proc out of sight of `ahead-replay --root`. The test runs itself again in another mount namespace.
#[test]
fn files_are_reopened_when_proc_is_gone() {
    let Some(()) = needs_root() else { return };
    if std::env::var_os(INSIDE).is_none() {
        let _alone = alone();
        let again = program(std::env::current_exe().unwrap())
            .args(["--exact", "embedded::files_are_reopened_when_proc_is_gone"]);
        again.behind(["unshare", "--mount"]).env(INSIDE, "1").ok().prints("1 passed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    fs::write(&path, "content").unwrap();
    let handle = openat::handle(&path).unwrap();
    descriptors::keep_directories().unwrap();
    program("umount").args(["--lazy", "/proc"]).ok();
    assert!(!Path::new("/proc/self").exists());
    let reopened = File::from(handle.reopen().unwrap());
    assert_eq!(std::io::read_to_string(reopened).unwrap(), "content");
}

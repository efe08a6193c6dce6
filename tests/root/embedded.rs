//! The program for small machines, as `scripts/embedded` builds it: in a directory that has nothing else.

use crate::mounted::Mounted;
use crate::reclaim::unless_reclaimed;
use ahead_profile::{Extent, File, Profile};
use ahead_sys::{cache, descriptors, machine, openat};
use ahead_undo::ProcessId;
use assert_cmd::Command;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const MIB: u64 = 1 << 20;

/// The static program. `make test` has built it already.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let built = Command::new(root.join("scripts/embedded")).output().unwrap();
        let said = String::from_utf8(built.stdout).unwrap();
        assert!(built.status.success(), "{said}{}", String::from_utf8_lossy(&built.stderr));
        let (_, path) = said.trim_end().rsplit_once(": ").unwrap();
        root.join(path)
    })
}

/// A file that the profile lists under this name.
fn used(name: &str, ranges: &[Range<u64>], recorded: openat::Identity) -> File {
    let extent = |(index, range): (usize, &Range<u64>)| Extent {
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
        first_use_us: index as u64,
        runs: 1,
        ..Extent::default()
    };
    File {
        path: name.into(),
        device: recorded.device,
        inode: recorded.inode,
        size_bytes: recorded.size_bytes,
        mtime_ns: recorded.mtime_ns,
        extents: ranges.iter().enumerate().map(extent).collect(),
        ..File::default()
    }
}

#[test]
fn program_needs_nothing_but_its_profile_and_proc() {
    unless_reclaimed(|| {
        let Some(mut mounted) = Mounted::new("ext4") else { return };
        let data = mounted.file("data", 4 * MIB);
        let recorded = openat::handle(&data).unwrap().identity();
        let ranges = [2 * MIB..3 * MIB, 0..4096];
        let missing = openat::Identity { size_bytes: 8192, ..recorded };
        let all = 0..8192;
        let files = vec![used("/data", &ranges, recorded), used("/missing", &[all], missing)];
        let mut profile = Profile { files, ..Profile::default() };
        profile.recording.runs = 1;
        ahead_profile::save(&profile, &mounted.root.join("p.ahead")).unwrap();
        // In another process: a file that this process writes may be open in children of other tests, and cannot be executed then.
        let copied = Command::new("cp").arg(program()).arg(mounted.root.join("ahead-replay")).output().unwrap();
        assert!(copied.status.success());
        fs::create_dir(mounted.root.join("proc")).unwrap();
        mounted.make_cold();
        let replay = || {
            let mut chroot = Command::new("chroot");
            chroot.arg(&mounted.root).args(["/ahead-replay", "--low-memory", "--wait", "/p.ahead"]).output().unwrap()
        };
        let refused = replay();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), said.lines().count()), (Some(77), 1), "{said}");
        assert!(said.contains("mount -t proc proc /proc"), "{said}");
        let (own, point) = (ProcessId::own().unwrap(), mounted.root.join("proc"));
        let proc = ahead_undo::mounts::mount_noted(own, Path::new("proc"), &point, "proc", false, "").unwrap();
        let replayed = replay();
        drop(proc);
        let account = String::from_utf8(replayed.stdout).unwrap();
        assert!(replayed.status.success() && replayed.stderr.is_empty(), "{account}");
        let figures = format!("\nissued_bytes {}\nalready_resident_bytes 0\n", MIB + 4096);
        assert!(account.starts_with("requests ") && account.contains(&figures), "{account}");
        assert!(account.contains("\nskipped_missing_bytes 8192\n") && account.contains("\narrived_us "), "{account}");
        let resident = cache::resident(fs::File::open(&data).unwrap(), 0, 4 * MIB).unwrap();
        assert_eq!(resident, [ranges[1].clone(), ranges[0].clone()]);
    });
}

/// Record here, `ahead export` here, replay there: the static program has the list alone.
#[test]
fn exported_list_brings_the_recorded_pages() {
    unless_reclaimed(|| {
        let Some(mut mounted) = Mounted::new("ext4") else { return };
        let data = mounted.file("data", 4 * MIB);
        let recorded = openat::handle(&data).unwrap().identity();
        let ranges = [2 * MIB..3 * MIB, 0..4096];
        let path = data.to_str().unwrap();
        let mut profile = Profile { files: vec![used(path, &ranges, recorded)], ..Profile::default() };
        profile.recording.runs = 1;
        let home = tempfile::tempdir().unwrap();
        let (saved, list) = (home.path().join("p.ahead"), home.path().join("p.list"));
        ahead_profile::save(&profile, &saved).unwrap();
        let export = |options: &[&str]| {
            let mut export = Command::cargo_bin("ahead").unwrap();
            let output = export.arg("export").arg(&saved).args(options).output().unwrap();
            assert!(output.status.success());
            output.stdout
        };
        for (options, flags) in [(&[][..], &["--low-memory", "--wait"][..]), (&["-0"], &["-0", "--wait"])] {
            fs::write(&list, export(options)).unwrap();
            mounted.make_cold();
            let replayed = Command::new(program()).args(flags).arg(&list).output().unwrap();
            let account = String::from_utf8(replayed.stdout).unwrap();
            let figures = format!("\nissued_bytes {}\nalready_resident_bytes 0\n", MIB + 4096);
            assert!(account.contains(&figures) && account.contains("\narrived_us "), "{account}");
            let resident = cache::resident(fs::File::open(&data).unwrap(), 0, 4 * MIB).unwrap();
            assert_eq!(resident, [ranges[1].clone(), ranges[0].clone()]);
        }
    });
}

/// Set in the process that has a separate mount namespace.
const INSIDE: &str = "AHEAD_TEST_INSIDE";

/// An initramfs moves /proc out of sight of `ahead-replay --root`. The test runs itself again in another mount namespace.
#[test]
fn files_are_reopened_when_proc_is_gone() {
    if !machine::is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    if std::env::var_os(INSIDE).is_none() {
        // Its namespace holds a copy of every mount: no other test can make one cold meanwhile.
        let _alone = crate::machine_lock::alone();
        let mut again = Command::new("unshare");
        again.arg("--mount").arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
        let again = again.args(["--exact", "embedded::files_are_reopened_when_proc_is_gone"]).output().unwrap();
        let said = String::from_utf8(again.stdout).unwrap();
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&again.stderr)
        );
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    fs::write(&path, "content").unwrap();
    let handle = openat::handle(&path).unwrap();
    descriptors::keep_directories().unwrap();
    assert!(Command::new("umount").args(["--lazy", "/proc"]).output().unwrap().status.success());
    assert!(!Path::new("/proc/self").exists());
    let reopened = fs::File::from(handle.reopen().unwrap());
    assert_eq!(std::io::read_to_string(reopened).unwrap(), "content");
}

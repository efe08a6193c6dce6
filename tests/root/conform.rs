//! Compares the running kernel's read-ahead with the policy of the same name, in fresh recordings. Skipped for kernels without
//! a policy.

use ahead_model::DeviceNumber;
use ahead_sim::conform::{Report, conform, policy_of};
use ahead_sys::bdi::read_ahead_file;
use ahead_sys::openat;
use ahead_tests::rig::group::Group;
use ahead_tests::rig::mounted::{bindfs, overlay};
use ahead_tests::rig::prelude::*;
use std::os::unix::fs::FileTypeExt;
use std::sync::OnceLock;

/// A program that reads in every way that programs do (`tests/conform/accesses.c`), compiled once.
fn accesses() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/conform/accesses.c");
        compiled(Path::new(source), &["-O2", "-pthread"])
    })
}

fn window(device: DeviceNumber, kb: u64) -> Setting {
    Setting::set(read_ahead_file(device).unwrap(), kb)
}

fn needs_policy() -> Option<()> {
    needs_root()?;
    let release = ahead_sys::machine::kernel_release();
    if policy_of(&release).is_some() { Some(()) } else { skip(format!("there is no policy of Linux {release}")) }
}

/// `ahead sim trace` of this program, compared.
fn traced(home: &Path, program: Program) -> Report {
    let trace = home.join("trace");
    ahead(["sim", "trace", "-o"]).arg(&trace).arg("--").runs(program).ok();
    conform(fs::read(&trace).unwrap().as_slice(), None).unwrap()
}

/// Records a pattern in a directory, and compares.
fn compared(home: &Path, directory: &Path, group: Option<&Group>, pattern: &str, seed: u32, length: u32) -> Report {
    let reader = program(accesses()).arg(pattern).arg(directory).args([seed.to_string(), length.to_string()]);
    traced(
        home,
        match group {
            Some(group) => reader.in_group(group),
            None => reader,
        },
    )
}

fn created(directory: &Path) {
    program(accesses()).arg("create").arg(directory).ok();
}

fn check(report: &Report, what: &str, is_shared: bool) {
    for (way, tally) in [("step by step", &report.step), ("running free", &report.free_running)] {
        let differing = tally.mismatches.iter().find(|mismatch| !mismatch.is_overlapping);
        assert!(tally.agrees(), "{what}, {way}: {differing:?}");
        assert!(tally.matched * 100 >= tally.decisions * 98, "{what}, {way}: {} of {}", tally.matched, tally.decisions);
        assert!(tally.decisions > 20, "{what}, {way}: {} decisions", tally.decisions);
        if !is_shared {
            assert_eq!(tally.matched, tally.decisions, "{what}, {way}");
        }
    }
    eprintln!("{what}: {} decisions", report.decisions);
}

fn on_file_system(fs_type: &'static str, windows_kb: &[u64]) {
    let Some(mounted) = needs_policy().and_then(|()| Mounted::new(fs_type)) else { return };
    let home = tempfile::tempdir().unwrap();
    created(&mounted.root);
    for (seed, kb) in (1..).zip(windows_kb) {
        let _window = window(mounted.number(), *kb);
        let what = format!("{fs_type}, {kb} KiB");
        check(&compared(home.path(), &mounted.root, None, "all", seed, 3), &what, false);
    }
    let _window = window(mounted.number(), 128);
    for pattern in ["threads", "processes", "turns", "inherited"] {
        check(&compared(home.path(), &mounted.root, None, pattern, 5, 10), &format!("{fs_type}, {pattern}"), true);
    }
    check(&compared(home.path(), &mounted.root, None, "sent", 5, 10), &format!("{fs_type}, sent"), false);
}

#[test]
fn every_decision_on_ext4_equals_the_policys() {
    on_file_system("ext4", &[0, 16, 128, 500, 8192]);
}

#[test]
fn every_decision_on_xfs_equals_the_policys() {
    on_file_system("xfs", &[64, 1024]);
}

#[test]
fn every_decision_on_ext2_equals_the_policys() {
    on_file_system("ext2", &[128]);
}

/// The kernel has no disk below FUSE, and limits windows to the size that was agreed with the server.
#[test]
fn every_decision_on_fuse_equals_the_policys() {
    let Some(mounted) = needs_policy().and_then(|()| Mounted::new("ext4")) else { return };
    let [behind, front] = make_directories(&mounted.root, ["behind", "front"]);
    let Some(_unmount) = bindfs(&[], &behind, &front) else { return };
    let home = tempfile::tempdir().unwrap();
    created(&front);
    let device = DeviceNumber::from_key(openat::handle(&front).unwrap().identity().device);
    for (seed, kb) in [(1, 128), (2, 16)] {
        let _window = window(device, kb);
        check(&compared(home.path(), &front, None, "all", seed, 2), &format!("FUSE, {kb} KiB"), false);
    }
}

/// With little memory the cache depends on reclaim, too, so the state comes from the trace.
#[test]
fn decisions_under_reclaim_equal_the_policys() {
    let Some(group) = needs_policy().and_then(|()| Group::with_memory_of_v1(20 * MIB)) else { return };
    let Some(mounted) = Mounted::new("ext4") else { return };
    let home = tempfile::tempdir().unwrap();
    created(&mounted.root);
    let report = compared(home.path(), &mounted.root, Some(&group), "all", 3, 10);
    let (step, free) = (&report.step, &report.free_running);
    // Shadow entries of evicted folios may be removed without reuse of their slots, and no event reports this
    // (docs/decisions/0030-kernel-findings.md).
    assert!(step.matched * 1000 >= step.decisions * 999, "{:?}", step.first_mismatch);
    assert!(free.matched * 100 >= free.decisions * 98, "{free:?}");
}

/// Regression: files without read-ahead (sysfs, tmpfs), or read through another file (overlayfs), each gave a decision that
/// the kernel did not take.
#[test]
fn a_file_without_read_ahead_gives_no_decision() {
    let Some(mounted) = needs_policy().and_then(|()| Mounted::new("ext4")) else { return };
    let home = tempfile::tempdir().unwrap();
    let file = mounted.file("lower/file", 3_000_000);
    let Some((merged, _overlay)) = overlay(file.parent().unwrap(), &mounted.root) else { return };
    program("sync").ok();
    evict(&file);
    let script = format!(
        "cat /sys/kernel/mm/transparent_hugepage/enabled {}/file >/dev/shm/ahead-conform-test-{id}
         cat /dev/shm/ahead-conform-test-{id} >/dev/null; rm /dev/shm/ahead-conform-test-{id}",
        merged.display(),
        id = std::process::id(),
    );
    let report = traced(home.path(), program("sh").args(["-c", &script]));
    for tally in [&report.step, &report.free_running] {
        assert!(tally.decisions > 3 && tally.matched == tally.decisions, "{tally:?}");
    }
}

/// Regression: a device given as the trace's path was replaced by a file.
#[test]
fn device_at_the_trace_path_is_not_replaced() {
    let Some(()) = needs_policy() else { return };
    let home = tempfile::tempdir().unwrap();
    let device = home.path().join("null");
    program("mknod").arg(&device).args(["c", "1", "3"]).ok();
    ahead(["sim", "trace", "-o"]).arg(&device).args(["--", "true"]).ok();
    assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
    // If the output cannot be written, the program is not run.
    ahead(["sim", "trace", "-o"]).arg(home.path()).args(["--", "echo", "ran"]).fails(125).out_is("");
}

#[test]
fn missing_privilege_is_reported_with_the_remedy() {
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir_in("/tmp").unwrap();
    let command = ahead(["sim", "trace", "-o", "/tmp/no.trace", "--", "true"]);
    command.as_stranger().current_dir(home.path()).fails(77);
    assert!(!Path::new("/tmp/no.trace").exists());
}

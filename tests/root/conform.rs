//! Compares the running kernel's read-ahead with the policy of the same name, in fresh recordings. Skipped for kernels without
//! a policy.

use crate::mounted::Mounted;
use ahead_conform::{Report, conform, policy_of};
use ahead_model::DeviceNumber;
use ahead_sys::bdi::read_ahead_file;
use ahead_sys::{machine, openat};
use assert_cmd::Command;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// A program that reads in every way that programs do (`tests/conform/accesses.c`), compiled once.
fn accesses() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/conform/accesses.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("accesses");
        let compiled = std::process::Command::new("cc")
            .args(["-O2", "-pthread", "-o"])
            .args([&program, Path::new(source)])
            .status()
            .expect("cc is needed: scripts/install-deps build");
        assert!(compiled.success());
        program
    })
}

/// A disk's window, set for a test and restored on drop.
struct Window {
    file: PathBuf,
    before: String,
}

impl Window {
    fn set(device: DeviceNumber, kb: u64) -> Window {
        let file = read_ahead_file(device).unwrap();
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, kb.to_string()).unwrap();
        Window { file, before }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.before);
    }
}

fn is_possible() -> bool {
    let release = machine::kernel_release();
    let missing = if !machine::is_root() {
        "needs root".into()
    } else if policy_of(&release).is_none() {
        format!("there is no policy of Linux {release}")
    } else {
        return true;
    };
    eprintln!("skipped: {missing}");
    false
}

/// Records a pattern in a directory, and compares.
fn compared(home: &Path, directory: &Path, wrapper: &[&str], pattern: &str, seed: u32, length: u32) -> Report {
    let trace = home.join("trace");
    Command::cargo_bin("ahead")
        .unwrap()
        .args(["sim", "trace", "-o"])
        .arg(&trace)
        .arg("--")
        .args(wrapper)
        .arg(accesses())
        .arg(pattern)
        .arg(directory)
        .args([seed.to_string(), length.to_string()])
        .timeout(Duration::from_secs(300))
        .assert()
        .success();
    conform(fs::read(&trace).unwrap().as_slice(), None).unwrap()
}

fn created(directory: &Path) {
    assert!(std::process::Command::new(accesses()).arg("create").arg(directory).status().unwrap().success());
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
    if !is_possible() {
        return;
    }
    let Some(mounted) = Mounted::new(fs_type) else { return };
    let home = tempfile::tempdir().unwrap();
    created(&mounted.root);
    for (seed, kb) in (1..).zip(windows_kb) {
        let _window = Window::set(mounted.number(), *kb);
        let what = format!("{fs_type}, {kb} KiB");
        check(&compared(home.path(), &mounted.root, &[], "all", seed, 3), &what, false);
    }
    let _window = Window::set(mounted.number(), 128);
    for pattern in ["threads", "processes", "turns", "inherited"] {
        check(&compared(home.path(), &mounted.root, &[], pattern, 5, 10), &format!("{fs_type}, {pattern}"), true);
    }
    check(&compared(home.path(), &mounted.root, &[], "sent", 5, 10), &format!("{fs_type}, sent"), false);
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
    if !is_possible() {
        return;
    }
    let Some(mounted) = Mounted::new("ext4") else { return };
    let (behind, front) = (mounted.root.join("behind"), mounted.root.join("front"));
    fs::create_dir(&behind).unwrap();
    fs::create_dir(&front).unwrap();
    match std::process::Command::new("bindfs").args([&behind, &front]).status() {
        Ok(status) if status.success() => {}
        other => return eprintln!("skipped: no bindfs ({other:?})"),
    }
    let _unmount = Unmount(front.clone());
    let home = tempfile::tempdir().unwrap();
    created(&front);
    let device = DeviceNumber::from_key(openat::handle(&front).unwrap().identity().device);
    for (seed, kb) in [(1, 128), (2, 16)] {
        let _window = Window::set(device, kb);
        check(&compared(home.path(), &front, &[], "all", seed, 2), &format!("FUSE, {kb} KiB"), false);
    }
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// With little memory the cache depends on reclaim, too, so the state comes from the trace.
#[test]
fn decisions_under_reclaim_equal_the_policys() {
    if !is_possible() {
        return;
    }
    let group = Path::new("/sys/fs/cgroup/memory").join(format!("ahead-test-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        return eprintln!("skipped: no memory controller of cgroup v1");
    }
    let _group = Group(group.clone());
    fs::write(group.join("memory.limit_in_bytes"), "20M").unwrap();
    let Some(mounted) = Mounted::new("ext4") else { return };
    let home = tempfile::tempdir().unwrap();
    created(&mounted.root);
    let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.display());
    let report = compared(home.path(), &mounted.root, &["sh", "-c", &enter, "sh"], "all", 3, 10);
    let (step, free) = (&report.step, &report.free_running);
    // Shadow entries of evicted folios may be removed without reuse of their slots, and no event reports this
    // (docs/decisions/0030-kernel-findings.md).
    assert!(step.matched * 1000 >= step.decisions * 999, "{:?}", step.first_mismatch);
    assert!(free.matched * 100 >= free.decisions * 98, "{free:?}");
}

struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Regression: files without read-ahead (sysfs, tmpfs), or read through another file (overlayfs), each gave a decision that
/// the kernel did not take.
#[test]
fn a_file_without_read_ahead_gives_no_decision() {
    if !is_possible() {
        return;
    }
    let Some(mounted) = Mounted::new("ext4") else { return };
    let home = tempfile::tempdir().unwrap();
    let [lower, merged] = ["lower", "merged"].map(|name| mounted.root.join(name));
    for directory in [&lower, &merged] {
        fs::create_dir(directory).unwrap();
    }
    let file = lower.join("file");
    fs::write(&file, vec![7; 3_000_000]).unwrap();
    let options = format!("lowerdir={}:{}", lower.display(), home.path().display());
    let overlay =
        std::process::Command::new("mount").args(["-t", "overlay", "-o", &options, "none"]).arg(&merged).status();
    assert!(overlay.unwrap().success());
    let _unmount = Unmount(merged.clone());
    std::process::Command::new("sync").status().unwrap();
    ahead_sys::evict::file(fs::File::open(&file).unwrap()).unwrap();
    let trace = home.path().join("trace");
    let script = format!(
        "cat /sys/kernel/mm/transparent_hugepage/enabled {}/file >/dev/shm/ahead-conform-test-{id}
         cat /dev/shm/ahead-conform-test-{id} >/dev/null; rm /dev/shm/ahead-conform-test-{id}",
        merged.display(),
        id = std::process::id(),
    );
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(["sim", "trace", "-o"]).arg(&trace).args(["--", "sh", "-c", &script]).assert().success();
    let report = conform(fs::read(&trace).unwrap().as_slice(), None).unwrap();
    for tally in [&report.step, &report.free_running] {
        assert!(tally.decisions > 3 && tally.matched == tally.decisions, "{tally:?}");
    }
}

/// Regression: a device given as the trace's path was replaced by a file.
#[test]
fn device_at_the_trace_path_is_not_replaced() {
    if !is_possible() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let device = home.path().join("null");
    let made = std::process::Command::new("mknod").arg(&device).args(["c", "1", "3"]).status();
    assert!(made.unwrap().success());
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(["sim", "trace", "-o"]).arg(&device).args(["--", "true"]).assert().success();
    assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
    // If the output cannot be written, the program is not run.
    let mut command = Command::cargo_bin("ahead").unwrap();
    let output = command.args(["sim", "trace", "-o"]).arg(home.path()).args(["--", "echo", "ran"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(125), Vec::new()));
}

#[test]
fn missing_privilege_is_reported_with_the_remedy() {
    if !machine::is_root() {
        return eprintln!("skipped: needs root to become another user");
    }
    let home = tempfile::tempdir_in("/tmp").unwrap();
    let output = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["sim", "trace", "-o", "/tmp/no.trace", "--", "true"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert!(!Path::new("/tmp/no.trace").exists());
}

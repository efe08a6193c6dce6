//! `ahead probe` on real file systems with settings that it is not told.

use crate::mounted::Mounted;
use ahead_kernel::bdi::read_ahead_file;
use ahead_kernel::block;
use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

fn probe(path: &Path, more: &[&str]) -> Value {
    let output = Command::cargo_bin("ahead").unwrap().arg("probe").arg(path).arg("--json").args(more).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Windows (read_ahead_kb) and largest requests (max_sectors_kb) that nobody would choose, and the usual ones.
const SETTINGS: [(u64, u64); 6] = [(0, 512), (4, 256), (20, 64), (100, 256), (128, 1024), (1764, 512)];

fn windows_are_found(fs_type: &'static str) {
    let Some(mounted) = Mounted::new(fs_type) else { return };
    let window = read_ahead_file(mounted.number()).unwrap();
    let request = block::queue_file(mounted.number(), "max_sectors_kb");
    for (window_kb, request_kb) in SETTINGS {
        // The limit first: when it is set, the kernel makes the window anew (`blk_apply_bdi_limits`).
        fs::write(&request, request_kb.to_string()).unwrap();
        fs::write(&window, window_kb.to_string()).unwrap();
        let found = probe(&mounted.root, &["--only", "windows", "--size", "64M", "--verify"]);
        let value = |name: &str| found[name]["value"].as_u64();
        assert_eq!(value("window"), Some(window_kb << 10), "{fs_type}: {found:#}");
        assert_eq!(value("willneed_cap"), Some(window_kb.max(request_kb) << 10), "{fs_type}: {found:#}");
        // Of a window of a page or less there is no page that triggers the next.
        let trigger = (window_kb > 4).then_some(window_kb << 10);
        assert_eq!(value("trigger"), trigger, "{fs_type}: {found:#}");
        assert_eq!(value("max_request"), (request_kb > window_kb).then_some(request_kb << 10), "{fs_type}: {found:#}");
        assert_eq!(value("read_around"), Some(window_kb.max(4) << 10), "{fs_type}: {found:#}");
    }
}

#[test]
fn windows_are_found_on_ext4() {
    windows_are_found("ext4");
}

#[test]
fn windows_are_found_on_xfs() {
    windows_are_found("xfs");
}

#[test]
fn windows_and_direct_blocks_are_found_on_ext2() {
    windows_are_found("ext2");
    let Some(mounted) = Mounted::new("ext2") else { return };
    let found = probe(&mounted.root, &["--only", "layout", "--size", "16M", "--verify"]);
    assert_eq!(found["block_size"]["value"], 4096, "{found:#}");
    assert_eq!(found["direct_blocks"]["value"], 12, "{found:#}");
    assert_eq!(found["indirect_at"].as_array().unwrap()[..2], [49_152, (12 + 1024) * 4096], "{found:#}");
}

#[test]
fn extents_have_no_direct_blocks() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let found = probe(&mounted.root, &["--only", "layout", "--size", "16M"]);
    assert_eq!(found["direct_blocks"]["value"], Value::Null, "{found:#}");
    assert!(found["direct_blocks"]["method"].as_str().unwrap().contains("extents"), "{found:#}");
}

#[test]
fn a_device_in_use_is_refused_and_a_free_one_is_read() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    let device = mounted.device.device.clone();
    let ahead = || Command::cargo_bin("ahead").unwrap();
    ahead().arg("probe").arg(&device).assert().code(1).stderr(contains("in use").and(contains("directory on it")));
    drop(mounted.mount.take());
    let window = read_ahead_file(mounted.number()).unwrap();
    fs::write(&window, "256").unwrap();
    let found = probe(&device, &["--only", "windows"]);
    assert_eq!(found["window"]["value"], 256 << 10, "{found:#}");
}

#[test]
fn who_interrupts_it_finds_nothing_left() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let before = fs::read_dir(&mounted.root).unwrap().count();
    for signal in ["-INT", "-TERM", "-KILL"] {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
            .arg("probe")
            .arg(&mounted.root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        crate::crash::wait_until("a test file", || has_open_below(child.id(), &mounted.root));
        let killed = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = child.wait().unwrap();
        match signal {
            "-KILL" => assert_eq!(status.signal(), Some(9)),
            "-INT" => assert_eq!(status.code(), Some(130), "{status}"),
            _ => assert_eq!(status.code(), Some(143), "{status}"),
        }
        assert_eq!(fs::read_dir(&mounted.root).unwrap().count(), before, "{signal}");
    }
}

/// Whether a process has a file open in this directory, be it without a name.
fn has_open_below(pid: u32, directory: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.into_iter().filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| link.starts_with(directory))
}

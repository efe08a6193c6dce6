//! `ahead probe` on real file systems, whose settings it does not read.

use crate::machine_lock::Held;
use crate::mounted::Mounted;
use ahead_model::random::SplitMix64;
use ahead_sys::bdi::read_ahead_file;
use ahead_sys::{block, machine};
use ahead_undo::ProcessId;
use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

fn probe(path: &Path, more: &[&str]) -> Value {
    let output = Command::cargo_bin("ahead").unwrap().arg("probe").arg(path).arg("--json").args(more).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Windows (read_ahead_kb) and largest requests (max_sectors_kb): unusual ones and the usual ones.
const SETTINGS: [(u64, u64); 6] = [(0, 512), (4, 256), (20, 64), (100, 256), (128, 1024), (1764, 512)];

fn assert_windows_are_found(fs_type: &'static str) {
    let Some(mounted) = Mounted::new(fs_type) else { return };
    let window = read_ahead_file(mounted.number()).unwrap();
    let request = block::queue_file(mounted.number(), "max_sectors_kb");
    for (window_kb, request_kb) in SETTINGS {
        // The limit first: setting it makes the kernel reset the window (`blk_apply_bdi_limits`).
        fs::write(&request, request_kb.to_string()).unwrap();
        fs::write(&window, window_kb.to_string()).unwrap();
        let found = probe(&mounted.root, &["--only", "windows", "--size", "64M", "--verify"]);
        let value = |name: &str| found[name]["value"].as_u64();
        assert_eq!(value("window"), Some(window_kb << 10), "{fs_type}: {found:#}");
        assert_eq!(value("willneed_cap"), Some(window_kb.max(request_kb) << 10), "{fs_type}: {found:#}");
        // A window of a page or less has no page that triggers the next window.
        let trigger = (window_kb > 4).then_some(window_kb << 10);
        assert_eq!(value("trigger"), trigger, "{fs_type}: {found:#}");
        assert_eq!(value("max_request"), (request_kb > window_kb).then_some(request_kb << 10), "{fs_type}: {found:#}");
        assert_eq!(value("read_around"), Some(window_kb.max(4) << 10), "{fs_type}: {found:#}");
    }
}

/// Regression: squashfs reads whole blocks, and the window included these: 576 KiB instead of 512.
#[test]
fn a_file_system_with_its_own_blocks_has_no_window() {
    if !machine::is_root() {
        return eprintln!("skipped: needs root");
    }
    let _machine = Held::shared();
    let home = tempfile::tempdir().unwrap();
    let [tree, root] = ["tree", "mnt"].map(|name| home.path().join(name));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&root).unwrap();
    let mut random = SplitMix64::new(1);
    fs::write(tree.join("file"), (0..32 << 20).map(|_| random.number() as u8).collect::<Vec<u8>>()).unwrap();
    let image = home.path().join("image");
    let made = std::process::Command::new("mksquashfs").args([&tree, &image]).arg("-quiet").output();
    if !made.is_ok_and(|made| made.status.success()) {
        return eprintln!("skipped: no mksquashfs");
    }
    let own = ProcessId::own().unwrap();
    let device = match ahead_undo::loops::attach(own, &image, true, false) {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mount = ahead_undo::mounts::mount_noted(own, &device.device, &root, "squashfs", true, "");
    let Ok(_mount) = mount else { return eprintln!("skipped: no squashfs") };
    let found = probe(&root.join("file"), &["--only", "windows"]);
    for answer in ["window", "initial_window", "trigger", "max_request", "willneed_cap", "read_around"] {
        let method = found[answer]["method"].as_str().unwrap();
        assert!(found[answer]["value"].is_null() && method.contains("whole blocks of its own"), "{answer}: {found:#}");
    }
}

#[test]
fn windows_are_found_on_ext4() {
    assert_windows_are_found("ext4");
}

#[test]
fn windows_are_found_on_xfs() {
    assert_windows_are_found("xfs");
}

#[test]
fn windows_and_direct_blocks_are_found_on_ext2() {
    assert_windows_are_found("ext2");
    let Some(mounted) = Mounted::new("ext2") else { return };
    let found = probe(&mounted.root, &["--only", "layout", "--size", "16M", "--verify"]);
    assert_eq!(found["block_size"]["value"], 4096, "{found:#}");
    assert_eq!(found["direct_blocks"]["value"], 12, "{found:#}");
    assert_eq!(found["indirect_at"].as_array().unwrap()[..2], [49_152, (12 + 1024) * 4096], "{found:#}");
}

/// Regression: pointer blocks that the journal kept in memory could not be evicted, and probe reported extents.
#[test]
fn direct_blocks_are_found_below_a_journal() {
    let Some(mounted) = Mounted::new("ext3") else { return };
    let found = probe(&mounted.root, &["--only", "layout", "--size", "16M", "--verify"]);
    assert_eq!(found["direct_blocks"]["value"], 12, "{found:#}");
    assert_eq!(found["indirect_at"].as_array().unwrap()[..2], [49_152, (12 + 1024) * 4096], "{found:#}");
    assert!(found["indirect_by"]["confidence"].as_f64().unwrap() > 0.5, "{found:#}");
}

/// Regression: a file whose bytes lie in its inode ended probe with ENXIO.
#[test]
fn a_file_of_one_byte_may_lie_in_its_inode() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    drop(mounted.mount.take());
    let mut mkfs = std::process::Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-O", "inline_data"]).arg(&mounted.device.device);
    assert!(mkfs.status().unwrap().success());
    let own = ProcessId::own().unwrap();
    mounted.mount =
        Some(ahead_undo::mounts::mount_noted(own, &mounted.device.device, &mounted.root, "ext4", false, "").unwrap());
    let found = probe(&mounted.root, &["--only", "layout", "--size", "16M"]);
    assert!(found["block_size"]["value"].is_null(), "{found:#}");
    assert!(found["block_size"]["method"].as_str().unwrap().contains("inode"), "{found:#}");
}

/// Regression: probe checked every page before each run, minutes for a terabyte. Allocated and unwritten space looked like a
/// disk of 3 us.
#[test]
fn a_huge_sparse_file_is_probed_quickly() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.root.join("file");
    fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    fs::write(read_ahead_file(mounted.number()).unwrap(), "256").unwrap();
    let began = std::time::Instant::now();
    let found = probe(&file, &["--only", "windows,layout"]);
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert_eq!(found["window"]["value"], 256 << 10, "{found:#}");
    assert!(found["direct_blocks"]["method"].as_str().unwrap().contains("data in only 0 of"), "{found:#}");
    let allocated = mounted.root.join("allocated");
    let made = std::process::Command::new("fallocate").args(["-l", "32M"]).arg(&allocated).status();
    assert!(made.unwrap().success());
    let found = probe(&allocated, &["--only", "layout"]);
    assert!(found["direct_blocks"]["method"].as_str().unwrap().contains("data in only 0 of"), "{found:#}");
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
fn an_interrupted_probe_leaves_nothing() {
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

/// An existing file needs only a readable file system; a test file needs space and permission.
#[test]
fn read_only_and_full_file_systems_have_different_errors() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    let file = mounted.file("file", 8 << 20);
    let ahead = |path: &Path| {
        let mut command = Command::cargo_bin("ahead").unwrap();
        command.arg("probe").arg(path).args(["--only", "windows,layout"]);
        command
    };
    let fill = "fallocate -l $(( $(stat -f -c '%a * %S' \"$1\") - 1048576 )) \"$1/filler\"";
    assert!(std::process::Command::new("sh").args(["-c", fill, "sh"]).arg(&mounted.root).status().unwrap().success());
    ahead(&mounted.root).assert().code(1).stderr(contains("bytes free").and(contains("--size")));
    ahead(&file).assert().success();
    drop(mounted.mount.take());
    let own = ProcessId::own().unwrap();
    mounted.mount =
        Some(ahead_undo::mounts::mount_noted(own, &mounted.device.device, &mounted.root, "ext4", true, "").unwrap());
    ahead(&mounted.root).assert().code(1).stderr(contains("read-only").and(contains("give a file")));
    ahead(&file).assert().success();
    assert_eq!(fs::read_dir(&mounted.root).unwrap().count(), 3, "lost+found and two files");
}

#[test]
fn a_path_without_permission_is_named() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.file("file", 8 << 20);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // Other users cannot enter the binary's directory.
    let binary = mounted.root.join("ahead");
    crate::mounted::copy_ahead(&binary);
    for path in [&mounted.root, &file, &mounted.device.device] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&binary).arg("probe").arg(path);
        command.assert().code(77).stdout("").stderr(contains("not permitted").and(contains(path.to_str().unwrap())));
    }
}

/// Regression: cachestat sees no pages of a file on overlayfs, and probe reported 0 bytes for a fault and one WILLNEED.
#[test]
fn unobservable_answers_on_an_overlay_are_not_zero() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| mounted.root.join(name));
    for directory in [&lower, &upper, &work, &merged] {
        fs::create_dir(directory).unwrap();
    }
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let own = ProcessId::own().unwrap();
    let overlay = ahead_undo::mounts::mount_noted(own, Path::new("none"), &merged, "overlay", false, &options).unwrap();
    let found = probe(&merged, &["--only", "windows", "--size", "16M"]);
    for what in ["window", "willneed_cap", "read_around"] {
        assert_ne!(found[what]["value"], 0, "{found:#}");
        assert!(!found[what]["method"].as_str().unwrap().starts_with("cachestat"), "{found:#}");
    }
    drop(overlay);
}

/// Regression: a disk of 4 MiB had a bandwidth of 0, or of 45 GB/s.
#[test]
fn a_tiny_disk_has_no_rates() {
    if !machine::is_root() {
        return eprintln!("skipped: needs root");
    }
    let _machine = Held::shared();
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(4 << 20).unwrap();
    let device = match ahead_undo::loops::attach(ProcessId::own().unwrap(), image.path(), true, false) {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let found = probe(&device.device, &["--only", "disk"]);
    for what in ["access_time", "bandwidth", "parallelism"] {
        assert_eq!(found[what]["value"], Value::Null, "{found:#}");
        assert!(found[what]["method"].as_str().unwrap().contains("only 4194304 bytes"), "{found:#}");
    }
}

/// Regression: probe treated a disk whose reads fail as a file system without direct I/O, and succeeded.
#[test]
fn a_disk_that_always_fails_is_an_error() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    drop(mounted.mount.take());
    fs::OpenOptions::new().write(true).open(mounted.image()).unwrap().set_len(0).unwrap();
    let device = mounted.device.device.clone();
    for options in [&["--only", "disk"][..], &["--only", "disk", "--timing-only"]] {
        let mut command = Command::cargo_bin("ahead").unwrap();
        command.arg("probe").arg(&device).args(options).assert().code(1).stderr(contains("Input/output error"));
    }
}

/// Regression: without enough data for a model probe printed no answers at all.
#[test]
fn answers_are_printed_even_without_a_model() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let home = tempfile::tempdir().unwrap();
    let file = mounted.root.join("file");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    let binary = mounted.root.join("ahead");
    crate::mounted::copy_ahead(&binary);
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // This user may read 4 MiB of the disk: too little for rates.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&binary).arg("probe").arg(&file);
    command.arg("--model").arg(home.path().join("twin.toml")).assert().code(1).stdout(contains("access time"));
}

/// The backing data disappears during the probe: the result is an error with its reason, not a signal.
#[test]
fn a_disk_that_fails_during_the_probe_is_an_error() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.file("file", 64 << 20);
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["probe", "--only", "windows,cache,disk"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    crate::crash::wait_until("the file to be open", || has_open_below(child.id(), &mounted.root));
    // Reads beyond the end of a loop device's backing file fail.
    fs::OpenOptions::new().write(true).open(mounted.image()).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("Input/output error"), "{message}");
}

/// The group's memory is 64 MiB. The program's own memory and the kernel's reclaim batch are less than a quarter of that.
#[test]
fn the_cache_limit_of_a_control_group_is_found() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let group = Path::new("/sys/fs/cgroup/memory").join(format!("ahead-probe-test-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        return eprintln!("skipped: no memory controller of cgroup v1");
    }
    fs::write(group.join("memory.limit_in_bytes"), "64M").unwrap();
    let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.display());
    let output = Command::new("sh")
        .args(["-c", &enter, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .arg("probe")
        .arg(&mounted.root)
        .args(["--only", "cache", "--json"])
        .output();
    fs::remove_dir(&group).unwrap();
    let found: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let bytes = found["page_cache"]["value"].as_f64().unwrap_or(0.0);
    assert!((48.0..=64.0).contains(&(bytes / f64::from(1 << 20))), "{found:#}");
}

/// Whether a process has a file in this directory open, also a deleted one.
fn has_open_below(pid: u32, directory: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.into_iter().filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| link.starts_with(directory))
}

//! `ahead probe` on real file systems, whose settings it does not read.

use ahead_model::random::SplitMix64;
use ahead_process::undo::ProcessId;
use ahead_sys::bdi::read_ahead_file;
use ahead_tests::rig::group::Group;
use ahead_tests::rig::machine::Held;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::program::signal_of;

fn probe(path: &Path, more: &[&str]) -> Value {
    ahead(["probe", "--json"]).arg(path).args(more).json()
}

/// Windows (read_ahead_kb) and largest requests (max_sectors_kb): unusual ones and the usual ones.
const SETTINGS: [(u64, u64); 6] = [(0, 512), (4, 256), (20, 64), (100, 256), (128, 1024), (1764, 512)];

fn assert_windows_are_found(fs_type: &'static str) {
    let Some(mounted) = Mounted::new(fs_type) else { return };
    let window = read_ahead_file(mounted.number()).unwrap();
    let request = mounted.queue("max_sectors_kb");
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
    let Some(()) = needs_root() else { return };
    let _machine = Held::shared();
    let home = tempfile::tempdir().unwrap();
    let [tree, root] = make_directories(home.path(), ["tree", "mnt"]);
    let mut random = SplitMix64::new(1);
    fs::write(tree.join("file"), (0..32 << 20).map(|_| random.number() as u8).collect::<Vec<u8>>()).unwrap();
    let image = home.path().join("image");
    if !program("mksquashfs").args([&tree, &image]).arg("-quiet").works() {
        return eprintln!("skipped: no mksquashfs");
    }
    let own = ProcessId::own().unwrap();
    let device = match ahead_process::undo::loops::attach(own, &image, true, false) {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mount = ahead_process::undo::mounts::mount_noted(own, &device.device, &root, "squashfs", true, "");
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
    program("mkfs.ext4").args(["-q", "-F", "-O", "inline_data"]).arg(mounted.node()).ok();
    mounted.mount_again();
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
    File::create(&file).unwrap().set_len(1 << 40).unwrap();
    fs::write(read_ahead_file(mounted.number()).unwrap(), "256").unwrap();
    let began = Instant::now();
    let found = probe(&file, &["--only", "windows,layout"]);
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert_eq!(found["window"]["value"], 256 << 10, "{found:#}");
    assert!(found["direct_blocks"]["method"].as_str().unwrap().contains("data in only 0 of"), "{found:#}");
    let allocated = mounted.root.join("allocated");
    program("fallocate").args(["-l", "32M"]).arg(&allocated).ok();
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
    let device = mounted.node().to_owned();
    ahead(["probe"]).arg(&device).fails(1).says("in use").says("directory on it");
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
    for signal in ["INT", "TERM", "KILL"] {
        let mut child = ahead(["probe"]).arg(&mounted.root).start();
        wait_until("a test file", || process::has_open_below(child.pid(), &mounted.root));
        child.signal(signal);
        let status = child.status();
        match signal {
            "KILL" => assert_eq!(signal_of(status), Some(9)),
            "INT" => assert_eq!(status.code(), Some(130), "{status}"),
            _ => assert_eq!(status.code(), Some(143), "{status}"),
        }
        assert_eq!(fs::read_dir(&mounted.root).unwrap().count(), before, "{signal}");
    }
}

/// An existing file needs only a readable file system; a test file needs space and permission.
#[test]
fn read_only_and_full_file_systems_have_different_errors() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    let (root, file) = (mounted.root.clone(), mounted.file("file", 8 << 20));
    let probe = |path: &Path| ahead(["probe", "--only", "windows,layout"]).arg(path);
    mounted.fill();
    probe(&root).fails(1).says("bytes free").says("--size");
    probe(&file).ok();
    mounted.make_read_only();
    probe(&root).fails(1).says("read-only").says("give a file");
    probe(&file).ok();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 3, "lost+found and two files");
}

#[test]
fn a_path_without_permission_is_named() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.file("file", 8 << 20);
    set_mode(&file, 0o600);
    let binary = mounted.root.join("ahead");
    copy_ahead(&binary);
    for path in [mounted.root.as_path(), &file, mounted.node()] {
        let done = program(&binary).arg("probe").arg(path).as_stranger().fails(77).out_is("");
        done.says("not permitted").says(path.to_str().unwrap());
    }
}

/// Regression: cachestat sees no pages of a file on overlayfs, and probe reported 0 bytes for a fault and one WILLNEED.
#[test]
fn unobservable_answers_on_an_overlay_are_not_zero() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let Some((merged, _overlay)) = mounted.overlay() else { return };
    let found = probe(&merged, &["--only", "windows", "--size", "16M"]);
    for what in ["window", "willneed_cap", "read_around"] {
        assert_ne!(found[what]["value"], 0, "{found:#}");
        assert!(!found[what]["method"].as_str().unwrap().starts_with("cachestat"), "{found:#}");
    }
}

/// Regression: a disk of 4 MiB had a bandwidth of 0, or of 45 GB/s.
#[test]
fn a_tiny_disk_has_no_rates() {
    let Some(()) = needs_root() else { return };
    let _machine = Held::shared();
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(4 << 20).unwrap();
    let device = match ahead_process::undo::loops::attach(ProcessId::own().unwrap(), image.path(), true, false) {
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
    File::options().write(true).open(mounted.image()).unwrap().set_len(0).unwrap();
    for options in [&["--only", "disk"][..], &["--only", "disk", "--timing-only"]] {
        ahead(["probe"]).arg(mounted.node()).args(options).fails(1).says("Input/output error");
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
    copy_ahead(&binary);
    set_mode(home.path(), 0o777);
    // This user may read 4 MiB of the disk: too little for rates.
    let probe = program(&binary).arg("probe").arg(&file).arg("--model").arg(home.path().join("twin.toml"));
    probe.as_stranger().fails(1).prints("access time");
}

/// The backing data disappears during the probe: the result is an error with its reason, not a signal.
#[test]
fn a_disk_that_fails_during_the_probe_is_an_error() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.file("file", 64 << 20);
    File::open(&file).unwrap().sync_all().unwrap();
    let child = ahead(["probe", "--only", "windows,cache,disk"]).arg(&file).start();
    wait_until("the file to be open", || process::has_open_below(child.pid(), &mounted.root));
    // Reads beyond the end of a loop device's backing file fail.
    File::options().write(true).open(mounted.image()).unwrap().set_len(0).unwrap();
    child.ends_with(1).says("Input/output error");
}

/// The group's memory is 64 MiB. The program's own memory and the kernel's reclaim batch are less than a quarter of that.
#[test]
fn the_cache_limit_of_a_control_group_is_found() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let Some(group) = Group::with_memory_of_v1(64 * MIB) else { return };
    let found = ahead(["probe", "--only", "cache", "--json"]).arg(&mounted.root).in_group(&group).done().json();
    let bytes = found["page_cache"]["value"].as_f64().unwrap_or(0.0);
    assert!((48.0..=64.0).contains(&(bytes / f64::from(1 << 20))), "{found:#}");
}

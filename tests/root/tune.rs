//! Windows on real devices: the governing window is set, kept, compared and restored. An interruption or a kill leaves
//! no change.

use ahead_disk::tune::System;
use ahead_measure::tune::{Depth, Plan, Workload};
use ahead_model::DeviceNumber;
use ahead_policy::traces::{Event, FileSeen, Header, Record, Use, Writer};
use ahead_sys::{bdi, mounts};
use ahead_tests::rig::mounted::{Unmounted, bindfs, mount, overlay};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{of_files, save, used_whole};
use std::sync::atomic::AtomicBool;

fn tune(arguments: &[&str]) -> Program {
    ahead(["tune"]).args(arguments)
}

fn answer(arguments: &[&str]) -> Value {
    tune(arguments).arg("--json").json()
}

/// A system's directories for rules and states, with udev and systemd in it.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    make_directories(root.path(), ["etc/udev", "etc/systemd"]);
    root
}

/// The setting of the file system mounted here: by the number in the mount table; for btrfs, the only BDI on this device.
fn setting(point: &Path) -> PathBuf {
    let mounts = mounts::own().unwrap();
    let mount = mounts.iter().rfind(|mount| mount.mount_point == point.as_os_str().as_encoded_bytes()).unwrap();
    let device = String::from_utf8(mount.source.clone()).unwrap().replace("/dev/", "");
    let btrfs = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten().map(|entry| entry.path());
    let of_device = btrfs.into_iter().find(|directory| directory.join("devices").join(&device).exists());
    match of_device {
        Some(directory) if mount.fs_type == "btrfs" => directory.join("bdi/read_ahead_kb"),
        _ => bdi::read_ahead_file(mount.device).unwrap(),
    }
}

fn window_kb(point: &Path) -> u64 {
    fs::read_to_string(setting(point)).unwrap().trim().parse().unwrap()
}

fn is_left(directory: &Path) -> bool {
    !names_with(directory, "ahead-").is_empty()
}

#[test]
fn a_loop_device_is_measured_and_its_window_is_restored() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    let first = window_kb(&mounted.root);
    // The default of virtual disks since Linux 6.17.
    let before = 8192;
    fs::write(setting(&mounted.root), before.to_string()).unwrap();
    let found = answer(&[mounted.place()]);
    let keys =
        ["candidates", "recommended_kb", "reason", "current_kb", "harms", "noise", "doubt", "target", "measured_s"];
    for key in keys.into_iter().chain(["elapsed_s"]) {
        assert!(found.get(key).is_some(), "{key}: {found:#}");
    }
    let harms = found["harms"].as_array().unwrap();
    let faults = harms.iter().find(|harm| harm["job"] == "faults").unwrap_or_else(|| panic!("{found:#}"));
    assert!(faults["why"].as_str().unwrap().contains("up to 8192 KiB, and most of it is never used"), "{faults:#}");
    let candidates = found["candidates"].as_array().unwrap();
    let recommended = candidates.iter().find(|candidate| candidate["kb"] == found["recommended_kb"]).unwrap();
    assert!(candidates.iter().any(|candidate| candidate["kb"] == before), "the present window is a candidate");
    let score = |candidate: &Value| candidate["score"].as_f64().unwrap();
    let best = candidates.iter().map(score).fold(0.0, f64::max);
    assert!(score(recommended) >= 0.98 * best, "{found:#}");
    for candidate in candidates {
        assert_eq!(candidate["jobs"].as_array().unwrap().len(), 4);
        assert!(candidate["amplification"].as_f64().unwrap() >= 1.0, "{candidate:#}");
    }
    // A fault reads its window.
    let amplification = |kb: u64| candidates.iter().find(|c| c["kb"] == kb).unwrap()["amplification"].as_f64().unwrap();
    assert!(amplification(2048) > 4.0 * amplification(128));
    // A stream reads one to two windows ahead.
    for kb in [128, 2048] {
        let candidate = candidates.iter().find(|c| c["kb"] == kb).unwrap();
        let windows = candidate["ahead_bytes_per_stream"].as_f64().unwrap() / (kb << 10) as f64;
        assert!((1.0..=2.0).contains(&windows), "{candidate:#}");
    }
    let recommended_runs = recommended["runs"].as_u64().unwrap();
    assert_eq!(recommended["spread"].is_null(), recommended_runs == 1, "{recommended:#}");
    assert_eq!(window_kb(&mounted.root), before);
    fs::write(setting(&mounted.root), first.to_string()).unwrap();
    assert!(!is_left(&mounted.root));
}

#[test]
fn a_window_is_set_kept_compared_and_restored() {
    let (Some(mounted), root) = (Mounted::new("ext4"), root()) else { return };
    let (place, before) = (mounted.place(), window_kb(&mounted.root));
    let with = |arguments: &[&str]| tune(&[&[place, "--root", root.path().to_str().unwrap()], arguments].concat());
    with(&["--check"]).fails(1).prints("no rule");
    with(&["--kb", "512", "--apply"]).ok();
    assert_eq!(window_kb(&mounted.root), 512);
    let persisted = with(&["--kb", "768", "--persist"]).done();
    if persisted.status.code() == Some(77) {
        // Linux before 6.9 does not report the UUID, and a loop device has no other identity.
        persisted.says("UUID");
        eprintln!("skipped: the loop device has no identity");
    } else {
        persisted.success();
        let rules: Vec<PathBuf> = files_below(&root.path().join("etc/udev/rules.d"));
        let rule = fs::read_to_string(&rules[0]).unwrap();
        assert!(rule.contains("ENV{ID_FS_UUID}==") && rule.contains("queue/read_ahead_kb}=\"768\""), "{rule}");
        with(&["--check"]).ok();
        fs::write(bdi::read_ahead_file(mounted.number()).unwrap(), "256").unwrap();
        with(&["--check"]).fails(1).prints("256 KiB, but");
        fs::write(bdi::read_ahead_file(mounted.number()).unwrap(), "768").unwrap();
    }
    with(&["--restore"]).ok().prints(format!("{before} KiB again"));
    assert_eq!((window_kb(&mounted.root), files_below(root.path())), (before, Vec::new()));
    with(&["--restore"]).ok().out_is("nothing to restore\n");
}

/// Regression: a window set through the device was not found through its later mount, and unmounting lost the state.
#[test]
fn window_is_found_with_and_without_a_mount() {
    let (Some(mut mounted), root) = (Mounted::new("ext4"), root()) else { return };
    let (place, device) = (mounted.place().to_owned(), mounted.node().to_owned());
    let (number, before) = (mounted.number(), window_kb(&mounted.root));
    let (device, now) = (device.to_str().unwrap(), || bdi::read_ahead_kb(number).unwrap());
    let with = |arguments: &[&str]| tune(&[&["--root", root.path().to_str().unwrap()], arguments].concat());
    let again = || format!("{before} KiB again");
    drop(mounted.mount.take());
    with(&[device, "--kb", "512", "--apply"]).ok();
    mounted.make_cold();
    with(&[&place, "--restore"]).ok().prints(again());
    assert_eq!((now(), files_below(root.path())), (before, Vec::new()));
    for restore in [&[device, "--restore"][..], &["--all", "--restore"]] {
        if with(&[&place, "--kb", "768", "--persist"]).done().status.code() == Some(77) {
            // Linux before 6.9 does not report the UUID.
            with(&[&place, "--kb", "768", "--apply"]).ok();
        }
        drop(mounted.mount.take());
        with(restore).ok().prints(again());
        assert_eq!((now(), files_below(root.path())), (before, Vec::new()));
        mounted.make_cold();
    }
}

/// Regression: a copy of a file system had the state and the rule of the original.
#[test]
fn a_copied_file_system_is_not_identified_by_its_uuid() {
    let (Some(mounted), root) = (Mounted::new("ext4"), root()) else { return };
    let (home, own) = (tempfile::tempdir().unwrap(), ahead_process::undo::ProcessId::own().unwrap());
    let (image, point) = (home.path().join("image"), home.path().join("mnt"));
    program("sync").ok();
    fs::copy(mounted.image(), &image).unwrap();
    fs::create_dir(&point).unwrap();
    let device = ahead_process::undo::loops::attach(own, &image, true, false).unwrap();
    let _mount = ahead_process::undo::mounts::mount_noted(own, &device.device, &point, "ext4", false, "").unwrap();
    let with = |place: &Path, arguments: &[&str]| {
        tune(&[&[place.to_str().unwrap(), "--root", root.path().to_str().unwrap()], arguments].concat())
    };
    let (first, second) = (window_kb(&mounted.root), window_kb(&point));
    for place in [&mounted.root, &point] {
        with(place, &["--kb", "512", "--persist"]).fails(77).says("UUID");
    }
    with(&mounted.root, &["--kb", "512", "--apply"]).ok();
    with(&point, &["--kb", "1024", "--apply"]).ok();
    assert_eq!((window_kb(&mounted.root), window_kb(&point)), (512, 1024));
    with(&mounted.root, &["--restore"]).ok();
    with(&point, &["--restore"]).ok();
    assert_eq!((window_kb(&mounted.root), window_kb(&point), files_below(root.path())), (first, second, Vec::new()));
}

/// Regression: the error came after the measurement.
#[test]
fn a_window_that_cannot_be_kept_is_reported_before_the_measurement() {
    let (Some(mounted), root) = (Mounted::new("ext4"), tempfile::tempdir().unwrap()) else { return };
    if !program("mount").args(["-t", "tmpfs", "-o", "ro", "tmpfs"]).arg(root.path()).works() {
        return eprintln!("skipped: no tmpfs");
    }
    let _read_only = Unmounted(root.path().into());
    let refused = tune(&[mounted.place(), "--apply", "--root", root.path().to_str().unwrap()]);
    refused.fails(77).out_is("").says("cannot be written");
}

/// Regression: the result was not printed if the window could not be set.
#[test]
fn the_result_is_printed_if_the_window_cannot_be_set() {
    let (Some(mounted), root) = (Mounted::new("ext4"), tempfile::tempdir().unwrap()) else { return };
    let Some(_full) = mount("tmpfs", root.path(), "tmpfs", "size=64k") else { return };
    fs::write(root.path().join("full"), vec![0; 1 << 20]).unwrap_err();
    let (place, before) = (mounted.place(), window_kb(&mounted.root));
    let failed = tune(&[place, "--kb", "512", "--apply", "--json", "--root", root.path().to_str().unwrap()]).fails(1);
    assert_eq!(failed.err.matches("No space left").count(), 1, "{failed}");
    let found = failed.json();
    assert_eq!((&found["recommended_kb"], &found["applied_kb"]), (&512.into(), &Value::Null));
    assert_eq!((window_kb(&mounted.root), files_below(root.path()).len()), (before, 1));
}

/// The window of the disk below has no effect on btrfs, and stat(2) reports a device number without a device.
#[test]
fn btrfs_has_a_separate_window() {
    let (Some(mounted), root) = (Mounted::new("btrfs"), root()) else { return };
    let (device, before) = (bdi::read_ahead_kb(mounted.number()).unwrap(), window_kb(&mounted.root));
    let root_path = root.path().to_str().unwrap();
    let subvolume = mounted.root.join("sub");
    let is_made = program("btrfs").args(["-q", "subvolume", "create"]).arg(&subvolume).works();
    let place = if is_made { &subvolume } else { &mounted.root };
    // Through a directory, and through the mounted device.
    for target in [place.as_path(), mounted.node()] {
        let kb = if target == place { "1024" } else { "2048" };
        let target = target.to_str().unwrap();
        let set = answer(&[target, "--root", root_path, "--kb", kb, "--persist"]);
        assert!(set["target"]["kind"].as_str().unwrap().starts_with("btrfs"), "{set:#}");
        assert_eq!(window_kb(&mounted.root), kb.parse::<u64>().unwrap());
        assert_eq!(bdi::read_ahead_kb(mounted.number()).unwrap(), device, "the disk's own window is unchanged");
        let unit = fs::read_to_string(set["rule"].as_str().unwrap()).unwrap();
        fs::write(setting(&mounted.root), "128").unwrap();
        assert!(run_unit(&unit, &[]), "{unit}");
        assert_eq!(window_kb(&mounted.root).to_string(), kb);
        tune(&[target, "--root", root_path, "--check"]).ok();
    }
    tune(&["--all", "--restore", "--root", root_path]).ok();
    assert_eq!((window_kb(&mounted.root), files_below(root.path())), (before, Vec::new()));
}

/// Runs the unit's command in the unit's environment with these changes.
fn run_unit(unit: &str, changed: &[(&str, &str)]) -> bool {
    let script = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")).unwrap();
    let command = program("/bin/sh").args(["-c", &script.trim_end_matches('\'').replace("$$", "$")]);
    let environment =
        unit.lines().filter_map(|line| line.strip_prefix("Environment=")?.trim_matches('"').split_once('='));
    environment.chain(changed.iter().copied()).fold(command, |command, (name, value)| command.env(name, value)).works()
}

#[test]
fn a_fuse_file_system_is_measured_and_set_by_its_own_number() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    let ([below], above, root) = (make_directories(&mounted.root, ["below"]), tempfile::tempdir().unwrap(), root());
    let Some(fuse) = bindfs(&[], &below, above.path()) else { return };
    let (before, device) = (window_kb(&fuse.0), window_kb(&mounted.root));
    let place = fuse.0.to_str().unwrap();
    let set = answer(&[place, "--root", root.path().to_str().unwrap(), "--kb", "1024", "--persist"]);
    assert!(set["target"]["kind"].as_str().unwrap().starts_with("FUSE"), "{set:#}");
    assert_eq!((window_kb(&fuse.0), window_kb(&mounted.root)), (1024, device));
    assert_eq!(files_below(&root.path().join("etc/systemd")).len(), 2, "a unit, and the link that enables it");
    let unit = fs::read_to_string(set["rule"].as_str().unwrap()).unwrap();
    fs::write(setting(&fuse.0), "128").unwrap();
    assert!(!run_unit(&unit, &[("AHEAD_SOURCE", "server:/other")]), "another file system there is not changed");
    assert_eq!(window_kb(&fuse.0), 128);
    assert!(run_unit(&unit, &[]), "{unit}");
    assert_eq!(window_kb(&fuse.0), 1024);
    tune(&[place, "--restore", "--root", root.path().to_str().unwrap()]).ok();
    assert_eq!((window_kb(&fuse.0), files_below(root.path())), (before, Vec::new()));
    let found = answer(&[place]);
    // Regression: FUSE keeps a removed file that is still open under another name, and the removal of that name repeated without
    // end.
    assert!(!is_left(&below));
    assert!(found["doubt"].as_str().unwrap().contains("may be about memory"), "{found:#}");
    // Reads of FUSE are not counted, and opening a file drops its cached pages.
    assert!(found["candidates"].as_array().unwrap().iter().all(|c| c["amplification"].is_null()), "{found:#}");
    assert_eq!(window_kb(&fuse.0), before);
}

#[test]
fn an_overlay_is_tuned_by_its_layers() {
    let (Some(mounted), root) = (Mounted::new("ext4"), root()) else { return };
    let lower = in_memory();
    let Some((merged, _overlay)) = overlay(lower.path(), &mounted.root) else { return };
    let arguments = [merged.to_str().unwrap(), "--root", root.path().to_str().unwrap(), "--kb", "512", "--apply"];
    tune(&arguments).ok().says("is an overlay");
    assert_eq!(window_kb(&mounted.root), 512);
    tune(&["--all", "--restore", "--root", root.path().to_str().unwrap()]).ok();
    assert_ne!(window_kb(&mounted.root), 512);
}

#[test]
fn a_full_or_read_only_file_system_is_reported() {
    let Some(mut mounted) = Mounted::alone("ext4") else { return };
    let before = window_kb(&mounted.root);
    let place = mounted.place().to_owned();
    program("fallocate").args(["-l", &almost_free(&mounted.root).to_string()]).arg(mounted.root.join("full")).ok();
    tune(&[&place]).fails(1).says("are free; free some space");
    fs::remove_file(mounted.root.join("full")).unwrap();
    mounted.make_read_only();
    tune(&[&place]).fails(1).says("Read-only file system");
    assert_eq!(window_kb(&mounted.root), before);
}

/// Write requests of a block device so far.
fn writes(number: DeviceNumber) -> u64 {
    let text = fs::read_to_string(format!("/sys/dev/block/{number}/stat")).unwrap();
    text.split_whitespace().nth(4).unwrap().parse().unwrap()
}

#[test]
fn an_unmounted_device_is_measured_by_reads_only() {
    let Some(mut mounted) = Mounted::alone("ext4") else { return };
    drop(mounted.mount.take());
    let number = mounted.number();
    let (before, written) = (bdi::read_ahead_kb(number).unwrap(), writes(number));
    let found = answer(&[mounted.node().to_str().unwrap(), "--streams", "2"]);
    assert!(found["notes"][0].as_str().unwrap().contains("the device itself is read"), "{found:#}");
    let candidates = found["candidates"].as_array().unwrap();
    assert!(candidates.iter().all(|candidate| candidate["jobs"].as_array().unwrap().len() == 4), "{found:#}");
    let amplification = |kb: u64| candidates.iter().find(|c| c["kb"] == kb).unwrap()["amplification"].as_f64().unwrap();
    assert!(amplification(2048) > 4.0 * amplification(128), "windows have no effect there: {found:#}");
    assert_eq!((bdi::read_ahead_kb(number).unwrap(), writes(number)), (before, written));
}

/// The files of a layer must not be changed without its overlay, so the device is read.
#[test]
fn a_lower_layer_on_another_device_is_measured_by_its_device() {
    let (Some(mounted), upper) = (Mounted::alone("ext4"), tempfile::tempdir().unwrap()) else { return };
    let [lower] = make_directories(&mounted.root, ["layer"]);
    let Some((merged, _overlay)) = overlay(&lower, upper.path()) else { return };
    let root = root();
    let kept = ["--root", root.path().to_str().unwrap()];
    let set = answer(&[&[merged.to_str().unwrap(), "--kb", "512", "--apply"], &kept[..]].concat());
    tune(&[&["--all", "--restore"], &kept[..]].concat()).ok();
    let targets = set["targets"].as_array().unwrap_or_else(|| panic!("{set:#}"));
    let device = mounted.node().to_str().unwrap();
    let is_layer = |target: &&Value| target["notes"].to_string().contains(&format!("{device} itself is read"));
    assert_eq!(targets.iter().filter(is_layer).count(), 1, "{set:#}");
}

/// A thread reads a file of 2 MiB from start to end; another one touches a page of it.
fn write_trace(path: &Path) {
    let command = vec!["x".into()];
    let header = Header { kernel: "6.18".into(), machine: "x86_64".into(), page_bytes: 4096, command };
    let mut writer = Writer::new(fs::File::create(path).unwrap(), &header).unwrap();
    let by = Use { file_bytes: 2 << 20, ..Use::default() };
    let seen = FileSeen { file: 0, device: 1, inode: 2, cached_pages: 0, folio_order: 0, least_order: 0 };
    let read = |at: u64| Event::Read { by, offset_bytes: at << 17, length_bytes: 1 << 17, flags: 0, is_other: false };
    let reads = (0..16).flat_map(|at| [(1, read(at)), (1, Event::ReadEnd(1 << 17))]);
    let fault = (2, Event::Fault { by, page: 100, mapping: None });
    for (task, event) in [(1, Event::File(seen)), (1, Event::Opened(by)), fault].into_iter().chain(reads) {
        writer.add(&Record { after_us: 10, task, event }).unwrap();
    }
    writer.finish(0).unwrap();
}

/// A trace contains no names, so files are created for it.
#[test]
fn a_trace_is_a_workload() {
    unless_reclaimed(|| {
        let Some(mounted) = Mounted::alone("ext4") else { return };
        let (before, place) = (window_kb(&mounted.root), mounted.place());
        let home = tempfile::tempdir().unwrap();
        let trace = home.path().join("x.trace");
        write_trace(&trace);
        let found = answer(&[place, "--workload", trace.to_str().unwrap()]);
        for candidate in found["candidates"].as_array().unwrap() {
            let jobs = candidate["jobs"].as_array().unwrap();
            assert_eq!((jobs.len(), &jobs[0]["name"]), (1, &"x.trace".into()));
            assert!(jobs[0]["rate"].as_f64().unwrap() > 0.0 && candidate["longest_call_s"].as_f64().unwrap() > 0.0);
            // Its only file is read completely.
            assert_eq!(
                (&candidate["amplification"], &candidate["unused_bytes"]),
                (&1.0.into(), &0.0.into()),
                "{candidate:#}"
            );
        }
        assert_eq!((window_kb(&mounted.root), is_left(&mounted.root)), (before, false));
    });
}

/// Regression: the note that a profile has no data about faults was missing.
#[test]
fn a_profile_as_workload_has_a_note_about_missing_faults() {
    unless_reclaimed(|| {
        let Some(mounted) = Mounted::alone("ext4") else { return };
        let profile = mounted.root.join("x.ahead");
        save(&of_files(vec![used_whole(&mounted.file("read", 4 << 20))]), &profile);
        let found = answer(&[mounted.place(), "--workload", profile.to_str().unwrap()]);
        assert!(found["notes"].to_string().contains("ahead sim trace"), "{found:#}");
        assert_eq!(found["candidates"][0]["jobs"][0]["name"], "x.ahead", "{found:#}");
    });
}

/// `tune`, started on this file system, with its first window set.
fn begun(mounted: &Mounted, arguments: &[&str]) -> Running {
    let before = window_kb(&mounted.root);
    let child = tune(arguments).arg(&mounted.root).start();
    wait_until("the first window", || window_kb(&mounted.root) != before);
    child
}

/// Regression: the window that a killed command had set counted as the earlier one.
#[test]
fn the_window_of_a_killed_command_is_restored_first() {
    let (Some(mounted), root) = (Mounted::alone("ext4"), root()) else { return };
    let (before, place) = (window_kb(&mounted.root), mounted.place());
    let kept = ["--root", root.path().to_str().unwrap()];
    let kill = || begun(&mounted, &["--exhaustive"]).kill();
    kill();
    tune(&[&[place, "--kb", "772", "--apply"], &kept[..]].concat()).ok();
    tune(&[&[place, "--restore"], &kept[..]].concat()).ok();
    assert_eq!((window_kb(&mounted.root), is_left(&mounted.root)), (before, false));
    kill();
    tune(&[&[place, "--restore"], &kept[..]].concat()).ok().out_is("nothing to restore\n");
    assert_eq!((window_kb(&mounted.root), is_left(&mounted.root)), (before, false), "--restore alone is enough");
}

/// Regression: a window under test by another command was kept as the earlier one.
#[test]
fn a_window_under_test_is_not_the_earlier_window() {
    let (Some(mounted), root) = (Mounted::alone("ext4"), root()) else { return };
    let (before, place) = (window_kb(&mounted.root), mounted.place());
    let measuring = begun(&mounted, &["--exhaustive"]);
    let mut applying = tune(&[place, "--kb", "772", "--apply", "--root", root.path().to_str().unwrap()]).start();
    applying.says("waiting for the end of another");
    measuring.end_by("INT").code(130);
    applying.ends_with(0);
    assert_eq!(window_kb(&mounted.root), 772);
    let restored = tune(&[place, "--restore", "--root", root.path().to_str().unwrap()]).ok();
    restored.prints(format!("{before} KiB again"));
    assert_eq!(window_kb(&mounted.root), before);
}

#[test]
fn a_vanished_target_is_reported_and_its_window_is_restored() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    let before = bdi::read_ahead_kb(mounted.number()).unwrap();
    let child = begun(&mounted, &["--exhaustive"]);
    program("umount").arg("--lazy").arg(&mounted.root).ok();
    child.ends_with(1).says("vanished during the measurement");
    assert_eq!(bdi::read_ahead_kb(mounted.number()).unwrap(), before);
}

/// Regression: the directory below the mount point was measured instead.
#[test]
fn a_target_that_vanishes_before_its_files_are_created_is_reported() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    let (before, system) = (bdi::read_ahead_kb(mounted.number()).unwrap(), System::default());
    let below = || fs::read_dir(&mounted.root).unwrap().count();
    let target = &ahead_disk::tune::find(&system, &mounted.root).unwrap()[0];
    let (workload, stop) = (Workload::Common, AtomicBool::new(false));
    let plan = Plan { target, system: &system, depth: Depth::Search, streams: 2, workload, stop: &stop };
    let mut calls = 0;
    let mut unmount = |_| {
        if calls == 0 {
            program("umount").arg("--lazy").arg(&mounted.root).ok();
        }
        calls += 1;
    };
    let error = ahead_measure::tune::measure(&plan, &mut unmount).unwrap_err();
    assert!(matches!(error, ahead_measure::tune::Error::Vanished { .. }), "{error}");
    assert_eq!((calls, below()), (1, 0));
    assert_eq!(bdi::read_ahead_kb(mounted.number()).unwrap(), before);
}

/// Free bytes for ordinary users, minus the possible metadata of the file system.
fn almost_free(directory: &Path) -> u64 {
    let text = program("df").args(["-B1", "--output=avail"]).arg(directory).text();
    text.lines().nth(1).unwrap().trim().parse::<u64>().unwrap() - 512 * 1024
}

/// Kills at random moments, while the command sets one window after the other.
#[test]
fn an_interrupted_or_killed_command_leaves_nothing() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    let before = window_kb(&mounted.root);
    for (round, signal) in ["INT", "KILL", "TERM", "KILL", "KILL", "KILL"].into_iter().enumerate() {
        let mut child = begun(&mounted, &["--exhaustive"]);
        let moment = Instant::now() + Duration::from_millis(137 * round as u64);
        wait_until("the moment", || Instant::now() >= moment);
        child.signal(signal);
        let ended = child.status();
        if signal == "KILL" {
            ahead(["restore"]).ok();
        } else {
            assert_eq!(ended.code(), Some(if signal == "INT" { 130 } else { 143 }));
        }
        assert_eq!((notes_of(child.pid()), is_left(&mounted.root)), (vec![], false), "{signal}");
        assert_eq!(window_kb(&mounted.root), before, "{signal}");
    }
}

//! `ahead disk detach`: complete or without effect, and the error names the users of the disk.

use super::*;

#[test]
fn disk_in_use_is_not_detached_and_reported_as_in_use() {
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    let disk = home.create("busy", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    let open = File::create(Path::new(&mount).join("file")).unwrap();
    disk_command(&["detach", &disk.name]).fails(1).says("in use").in_one_line();
    // SIGTERM requests a detach, too; the daemon continues.
    process::signal(disk.daemon.pid, "TERM");
    fs::write(Path::new(&mount).join("other"), "still there").unwrap();
    let log = format!("/run/ahead/disk/{}.log", disk.name);
    wait_until("the refusal", || fs::read_to_string(&log).unwrap().contains("in use"));
    assert!(disk.is_alive());
    drop(open);
    detach(&disk);
    assert_gone(&disk);
}

/// Asserts that a refused detach changes nothing, and that its message contains `names`.
fn assert_refused(disk: &DiskInfo, names: &str) {
    disk_command(&["detach", &disk.name]).fails(1).says("in use").says(names).in_one_line();
    let mount = disk.mount.as_ref().unwrap();
    assert!(mounting::is_mount_point(mount).unwrap());
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"still there");
    fs::write(mount.join("new"), names).unwrap();
    assert!(loopdev::status(&disk.device).unwrap().is_some());
    assert!(disk.is_alive());
}

#[test]
fn a_refused_detach_leaves_the_disk_unchanged() {
    // A mount namespace holds copies of other tests' mounts.
    let Some(mut home) = Disks::alone() else { return };
    let mount = home.mount_point();
    let disk = home.create("stays", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    let (inside, beside) = (Path::new(&mount).join("inside"), home.path("beside"));
    fs::write(Path::new(&mount).join("file"), "still there").unwrap();
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&beside).unwrap();
    let run = |name: &str, arguments: &[&Path]| drop(program(name).args(arguments).ok());
    run("mount", &["-o".as_ref(), "remount,noatime,commit=30".as_ref(), Path::new(&mount)]);
    let file = File::open(inside.parent().unwrap().join("file")).unwrap();
    assert_refused(&disk, &format!("({})", std::process::id()));
    drop(file);
    let device = File::open(&disk.device).unwrap();
    assert_refused(&disk, &format!("({})", std::process::id()));
    drop(device);
    run("mount", &["--bind".as_ref(), Path::new(&mount), &beside]);
    assert_refused(&disk, beside.to_str().unwrap());
    run("umount", &[&beside]);
    run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "x".as_ref(), &inside]);
    assert_refused(&disk, inside.to_str().unwrap());
    run("umount", &[&inside]);
    // A namespace that keeps its mounts when the test's mounts end; this is visible only after the unmount.
    let other = elsewhere();
    for _ in 0..2 {
        assert_refused(&disk, "another mount namespace");
        assert_mounted_as_before(&disk);
    }
    drop(other);
    // The daemon's successor has the new mount, also after a SIGKILL of the daemon.
    kill_daemon(&disk);
    detach(&disk);
    assert_gone(&disk);
}

/// Regression: the restored mount lost its options, and left one more note each time.
fn assert_mounted_as_before(disk: &DiskInfo) {
    let target = disk.mount.as_ref().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(&format!(" {} ", target.display()))).unwrap();
    assert!(line.contains("noatime") && line.contains("commit=30"), "{line}");
    let is_its = |action: &ahead_process::undo::Action| matches!(action, ahead_process::undo::Action::Unmount { target: noted, .. } if noted == target);
    assert_eq!(ahead_process::undo::notes().unwrap().iter().filter(|(_, note)| is_its(&note.action)).count(), 1);
}

/// Regression: the status was 1.
#[test]
fn an_interrupted_create_has_the_status_of_the_signal() {
    let Some(home) = Disks::new() else { return };
    let image = home.path("never.img");
    // The command finds the signal at its first check.
    let with_signal = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGINT)); kill(INT => $$); exec(@ARGV)";
    let create = disk_command(&["create", "--size", "64M", "--model", "ssd"]).arg(&image);
    let create = create.behind(["perl", "-e", with_signal]).fails(128 + 2);
    create.err_is("ahead: interrupted; nothing is left behind\n");
    assert!(!image.exists());
}

/// Regression: Ctrl-C after the unmount left the disk partly detached.
#[test]
fn an_interrupted_detach_leaves_the_disk_unchanged() {
    // A mount namespace holds copies of other tests' mounts.
    let Some(mut home) = Disks::alone() else { return };
    let mount = home.mount_point();
    let disk = home.create("interrupted", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    let is_mounted = || mounting::is_mount_point(Path::new(&mount)).unwrap();
    fs::write(Path::new(&mount).join("file"), "still there").unwrap();
    let other = elsewhere();
    let detaching = disk_command(&["detach", &disk.name]).start();
    // The command now waits for the namespace that still has the disk mounted.
    wait_until("the unmount", || !is_mounted());
    detaching.end_by("INT").code(128 + 2).err_is("ahead: interrupted; the disk is unchanged\n");
    assert_eq!(fs::read(Path::new(&mount).join("file")).unwrap(), b"still there");
    assert!(is_mounted() && loopdev::status(&disk.device).unwrap().is_some() && disk.is_alive());
    drop(other);
    detach(&disk);
    assert_gone(&disk);
}

/// Regression: the message about the remaining mount was missing.
#[test]
fn detach_after_a_crash_names_the_remaining_mount() {
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    let disk = home.create("replaced", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    mounting::unmount(Path::new(&mount)).unwrap();
    mounting::mount(Path::new("theirs"), Path::new(&mount), "tmpfs", false, "").unwrap();
    kill_daemon(&disk);
    let done = disk_command(&["detach", &disk.name]).done();
    let is_left = mounting::is_mount_point(Path::new(&mount)).unwrap();
    mounting::unmount(Path::new(&mount)).unwrap();
    assert!(is_left, "{done}");
    done.success().says(format!("{mount} is left alone: something else"));
    assert_gone(&disk);
}

#[test]
fn a_detach_that_waits_for_the_last_user_can_be_cancelled() {
    let Some(mut home) = Disks::new() else { return };
    let disk = home.create("lazy", &["--size", "16M", "--model", "ssd", "--fs", "none"]);
    let open = File::open(&disk.device).unwrap();
    loopdev::detach(&disk.device).unwrap();
    loopdev::cancel_detach(&disk.device).unwrap();
    drop(open);
    assert!(loopdev::status(&disk.device).unwrap().is_some_and(|s| s.backing.to_string_lossy().contains(&disk.name)));
    detach(&disk);
    assert_gone(&disk);
}

#[test]
fn daemon_detaches_at_sigterm() {
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    let disk = home.create("term", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    process::signal(disk.daemon.pid, "TERM");
    assert!(ahead_process::wait_end(disk.daemon, LONGEST).unwrap());
    wait_until("the end of the disk", || ahead_disk::find(&disk.name).is_err());
    wait_until("the end of its notes", || {
        ahead_process::undo::notes().unwrap().iter().all(|(_, note)| note.owner != disk.daemon)
    });
    assert_gone(&disk);
}

/// Sets the window of the next free loop device to the default. Earlier disks may have left a window so wide that the
/// kernel does not raise it.
fn freshen_free_device(home: &Disks) {
    let file = home.path("fresh");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let attached =
        ahead_process::undo::loops::attach(ahead_process::undo::ProcessId::own().unwrap(), &file, false, true).unwrap();
    let number = block::device_number(&attached.device).unwrap();
    ahead_process::undo::write_setting(&block::queue_file(number, "read_ahead_kb"), "128").unwrap();
    attached.detach().unwrap();
}

/// Regression: settings that the kernel had rounded, or raised while a rotational device was detached, counted as changed by
/// another process and stayed.
#[test]
fn a_detached_loop_device_has_its_old_settings() {
    let Some(mut home) = Disks::alone() else { return };
    for (model, is_killed) in [("hdd", false), ("hdd", true), ("ssd", false)] {
        freshen_free_device(&home);
        let disk = home.create(model, &["--size", "16M", "--fs", "none", "--model", model, "--read-ahead-kb", "1002"]);
        let setting = |action| match action {
            ahead_process::undo::Action::SetFile { path, old, .. } => {
                Some((path.file_name()?.to_str()?.to_owned(), old))
            }
            _ => None,
        };
        let mut before: Vec<(String, String)> = ahead_process::undo::notes()
            .unwrap()
            .into_iter()
            .filter(|(_, note)| note.owner == disk.daemon)
            .filter_map(|(_, note)| setting(note.action))
            .collect();
        // The restored scheduler has a separate value.
        before.retain(|(name, _)| name != "nr_requests");
        assert!(before.iter().any(|(name, _)| name == "read_ahead_kb") && before.len() >= 3, "{before:?}");
        assert_ne!(block::disk_setting(disk.device_number, "read_ahead_kb").unwrap(), "1002");
        if is_killed {
            kill_daemon(&disk);
        }
        disk_command(&["detach", &disk.name]).ok().err_is("");
        let now = |name: &str| block::disk_setting(disk.device_number, name).unwrap();
        let after: Vec<(String, String)> = before.iter().map(|(name, _)| (name.clone(), now(name))).collect();
        match loopdev::status(&disk.device).unwrap() {
            Some(_) => eprintln!("skipped: another process uses the device already"),
            None => assert_eq!(after, before, "{model} {is_killed}"),
        }
        assert_gone(&disk);
    }
}

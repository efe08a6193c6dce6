//! Disks in directories and from images of other users: links that appear between two steps, and harmful file systems.

use super::{Home, ahead, detach};
use ahead_disk::{Client, FaultChange, Faults, ModelSource};
use ahead_disk_server::{Attach, Create, Filesystem, Launcher};
use ahead_sys::{evict, mounting, mounts};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn script(home: &Home, name: &str, lines: &str) -> PathBuf {
    let path = home.path(name);
    fs::write(&path, format!("#!/bin/sh\nset -e\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn has_command(name: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", name]).status().unwrap().success();
    if !found {
        eprintln!("skipped: no {name} here");
    }
    found
}

/// The options of the mount and of the file system at this path, from the mount table.
fn options_of(place: &Path) -> (String, String) {
    let mount =
        mounts::own().unwrap().into_iter().find(|mount| mount.mount_point == place.as_os_str().as_encoded_bytes());
    let mount = mount.unwrap_or_else(|| panic!("nothing is mounted on {}", place.display()));
    (String::from_utf8(mount.options).unwrap(), String::from_utf8(mount.super_options).unwrap())
}

/// Regression: the daemon opened the image by its path, followed a link there, and formatted the link's target.
#[test]
fn an_image_replaced_by_a_link_is_not_followed() {
    let Some(mut home) = Home::new() else { return };
    let (image, moved, victim) = (home.path("disk.img"), home.path("moved.img"), home.path("victim"));
    let content = super::pattern(7, 32 << 20);
    fs::write(&victim, &content).unwrap();
    let program = assert_cmd::cargo::cargo_bin("ahead");
    // Between the creation of the image and the start of the daemon.
    let lines = format!(
        "mv '{0}' '{1}'\nln -s '{2}' '{0}'\nexec '{3}' disk \"$@\"",
        image.display(),
        moved.display(),
        victim.display(),
        program.display()
    );
    let launcher = Launcher { program: script(&home, "launcher", &lines), arguments: vec![] };
    let attach = Attach {
        image: image.clone(),
        name: Some(home.name("link")),
        model: ModelSource::load("ssd").unwrap(),
        mount: None,
        read_only: false,
        read_ahead_kb: 128,
        preload: false,
        write_log: None,
        faults: Faults::default(),
    };
    let create = Create { attach, size_bytes: 32 << 20, filesystem: Some(Filesystem::Ext4) };
    let disk = ahead_disk_server::create(&launcher, &create).unwrap();
    assert!(fs::read_link(&image).is_ok(), "the link was not put there");
    detach(&disk);
    assert!(fs::read(&victim).unwrap() == content, "the link's target was written");
    let formatted = fs::read(&moved).unwrap();
    // The magic number of ext4's superblock.
    assert_eq!(formatted[0x438..0x43A], [0x53, 0xEF]);
}

/// Regression: the check of the mount point and the mount used its path, a second apart.
#[test]
fn a_mount_point_replaced_by_a_link_is_not_followed() {
    let Some(mut home) = Home::new() else { return };
    let Ok(mkfs) = Filesystem::Ext4.mkfs() else { return eprintln!("skipped: no mkfs.ext4 here") };
    let (mount, moved, victim) = (home.path("mnt"), home.path("moved"), home.path("victim"));
    for directory in [&mount, &victim, &home.path("bin")] {
        fs::create_dir(directory).unwrap();
    }
    // Between the check of the mount point and the mount.
    let lines = format!(
        "mv '{0}' '{1}'\nln -s '{2}' '{0}'\nexec '{3}' \"$@\"",
        mount.display(),
        moved.display(),
        victim.display(),
        mkfs.display()
    );
    script(&home, "bin/mkfs.ext4", &lines);
    let (name, image) = (home.name("mount"), home.path("disk.img"));
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
    ahead(&["disk", "create", image.to_str().unwrap(), "--name", &name, "--size", "32M", "--model", "ssd"])
        .args(["--mount", mount.to_str().unwrap()])
        .env("PATH", path)
        .assert()
        .success();
    let disk = ahead_disk::find(&name).unwrap();
    assert!(fs::read_link(&mount).is_ok(), "the link was not put there");
    let is_mounted = [&victim, &moved].map(|place| mounting::is_mount_point(place).unwrap());
    assert_eq!((is_mounted, disk.mount.as_deref()), ([false, true], Some(moved.as_path())));
    detach(&disk);
    assert!(!mounting::is_mount_point(&moved).unwrap());
}

/// Regression: a setuid program or a device node on another user's image gave that user root's rights.
#[test]
fn programs_and_devices_of_an_image_give_no_rights() {
    let Some(mut home) = Home::new() else { return };
    let mount = home.mount_point();
    let disk = home.create("nosuid", &["--size", "32M", "--model", "ssd", "--mount", &mount]);
    let node = Path::new(&mount).join("null");
    let made = Command::new("mknod").arg(&node).args(["c", "1", "3"]).status().unwrap();
    if !made.success() {
        return eprintln!("skipped: this system does not allow device nodes");
    }
    let assert_harmless = |when: &str| {
        let (options, _) = options_of(Path::new(&mount));
        assert!(
            ["nosuid", "nodev"].iter().all(|option| options.split(',').any(|set| set == *option)),
            "{when}: {options}"
        );
        assert_eq!(fs::File::open(&node).unwrap_err().kind(), ErrorKind::PermissionDenied, "{when}");
    };
    assert_harmless("created");
    detach(&disk);
    let image = disk.image.to_str().unwrap();
    ahead(&["disk", "attach", image, "--name", &disk.name, "--model", "ssd", "--mount", &mount]).assert().success();
    assert_harmless("attached");
}

/// Regression: an image could make the kernel panic at the first error of the file system.
#[test]
fn an_image_cannot_request_a_panic() {
    let Some(mut home) = Home::new() else { return };
    if !has_command("tune2fs") {
        return;
    }
    let mount = home.mount_point();
    for (before, expected) in [("panic", Some("errors=remount-ro")), ("continue", None)] {
        let disk = home.create("panic", &["--size", "32M", "--model", "ssd"]);
        detach(&disk);
        let tuned = Command::new("tune2fs").args(["-e", before]).arg(&disk.image).output().unwrap();
        assert!(tuned.status.success(), "{tuned:?}");
        let image = disk.image.to_str().unwrap();
        ahead(&["disk", "attach", image, "--name", &disk.name, "--model", "ssd", "--mount", &mount]).assert().success();
        let (_, options) = options_of(Path::new(&mount));
        // The table names only options that differ from those of the image.
        assert_eq!(options.split(',').find(|option| option.starts_with("errors=")), expected, "{options}");
        detach(&disk);
    }
}

/// Duration of a read of the disk below, milliseconds: an image that needs hundreds of reads is not copied within the
/// test.
const STALL_MS: u64 = 10_000;

/// Regression: only SIGKILL ended `attach` while the daemon copied an image from a silent disk.
#[test]
fn an_attach_with_a_silent_image_can_be_interrupted() {
    let Some(mut home) = Home::new() else { return };
    let mount = home.mount_point();
    let below = home.create("below", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    let image = Path::new(&mount).join("image");
    fs::write(&image, super::pattern(1, 32 << 20)).unwrap();
    let opened = fs::File::open(&image).unwrap();
    opened.sync_all().unwrap();
    evict::file(&opened).unwrap();
    drop(opened);
    let stall = |stall_ms| FaultChange { clear: true, stall_ms: Some(stall_ms), ..FaultChange::default() };
    Client::new(&below).fault(stall(STALL_MS)).unwrap();
    let name = home.name("above");
    let mut attach = Command::new(assert_cmd::cargo::cargo_bin("ahead"));
    attach.args(["disk", "attach", image.to_str().unwrap(), "--name", &name, "--model", "ssd", "--preload"]);
    let mut attach = attach.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = attach.id();
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    super::wait_until(|| !children().is_empty());
    Command::new("kill").args(["-s", "INT", &pid.to_string()]).status().unwrap();
    super::wait_until(|| attach.try_wait().unwrap().is_some());
    let output = attach.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    Client::new(&below).fault(stall(0)).unwrap();
    // The outstanding read is answered after its full time, and keeps the file system busy until then.
    super::wait_until(|| ahead_disk::detach(&below).is_ok());
    assert_eq!(output.status.code(), Some(130), "{message}");
    let left = fs::read_dir("/run/ahead/disk").unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|left| left.to_string_lossy().starts_with(&name)).count(), 0, "{message}");
}

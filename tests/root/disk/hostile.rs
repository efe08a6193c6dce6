//! Disks in directories and from images of other users: links that appear between two steps, and harmful file systems.

use super::{attach, detach, disk_command};
use ahead_disk::{Client, FaultChange, Faults, ModelSource};
use ahead_disk_server::{Attach, Create, Filesystem, Launcher};
use ahead_sys::{mounting, mounts};
use ahead_tests::rig::prelude::*;
use std::io::ErrorKind;

fn script(home: &Disks, name: &str, lines: &str) -> PathBuf {
    let path = home.path(name);
    write_script(&path, &format!("set -e\n{lines}"));
    path
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
    let Some(mut home) = Disks::new() else { return };
    let (image, moved, victim) = (home.path("disk.img"), home.path("moved.img"), home.path("victim"));
    let content = super::pattern(7, 32 << 20);
    fs::write(&victim, &content).unwrap();
    let program = built("ahead");
    // Between the creation of the image and the start of the daemon.
    let lines = format!(
        "mv '{0}' '{1}'\nln -s '{2}' '{0}'\nexec '{3}' disk \"$@\"",
        image.display(),
        moved.display(),
        victim.display(),
        program.display()
    );
    let launcher = Launcher { program: script(&home, "launcher", &lines), arguments: vec![] };
    let attached = Attach {
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
    let create = Create { attach: attached, size_bytes: 32 << 20, filesystem: Some(Filesystem::Ext4) };
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
    let Some(mut home) = Disks::new() else { return };
    let Ok(mkfs) = Filesystem::Ext4.mkfs() else { return eprintln!("skipped: no mkfs.ext4 here") };
    let (mount, moved, victim) = (home.path("mnt"), home.path("moved"), home.path("victim"));
    make_directories(&home.path(""), ["mnt", "victim", "bin"]);
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
    let create = disk_command(&["create", "--name", &name, "--size", "32M", "--model", "ssd", "--mount"]);
    create.args([&mount, &image]).env("PATH", path).ok();
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
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    let disk = home.create("nosuid", &["--size", "32M", "--model", "ssd", "--mount", &mount]);
    let node = Path::new(&mount).join("null");
    if !program("mknod").arg(&node).args(["c", "1", "3"]).works() {
        return eprintln!("skipped: this system does not allow device nodes");
    }
    let assert_harmless = |when: &str| {
        let (options, _) = options_of(Path::new(&mount));
        assert!(
            ["nosuid", "nodev"].iter().all(|option| options.split(',').any(|set| set == *option)),
            "{when}: {options}"
        );
        assert_eq!(File::open(&node).unwrap_err().kind(), ErrorKind::PermissionDenied, "{when}");
    };
    assert_harmless("created");
    detach(&disk);
    attach(&disk.image, &disk.name, &["--mount", &mount]);
    assert_harmless("attached");
}

/// Regression: an image could make the kernel panic at the first error of the file system.
#[test]
fn an_image_cannot_request_a_panic() {
    let Some(mut home) = Disks::new() else { return };
    if !program("tune2fs").by_script("command -v \"$1\"").works() {
        return eprintln!("skipped: no tune2fs here");
    }
    let mount = home.mount_point();
    for (before, expected) in [("panic", Some("errors=remount-ro")), ("continue", None)] {
        let disk = home.create("panic", &["--size", "32M", "--model", "ssd"]);
        detach(&disk);
        program("tune2fs").args(["-e", before]).arg(&disk.image).ok();
        attach(&disk.image, &disk.name, &["--mount", &mount]);
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
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    let below = home.create("below", &["--size", "64M", "--model", "ssd", "--mount", &mount]);
    let image = Path::new(&mount).join("image");
    fs::write(&image, super::pattern(1, 32 << 20)).unwrap();
    make_cold(&image);
    let stall = |stall_ms| FaultChange { clear: true, stall_ms: Some(stall_ms), ..FaultChange::default() };
    Client::new(&below).fault(stall(STALL_MS)).unwrap();
    let name = home.name("above");
    let attach = disk_command(&["attach", image.to_str().unwrap(), "--name", &name, "--model", "ssd", "--preload"]);
    let attach = attach.start();
    wait_until("the daemon", || !process::children(attach.pid()).is_empty());
    let done = attach.end_by("INT");
    Client::new(&below).fault(stall(0)).unwrap();
    // The outstanding read is answered after its full time, and keeps the file system busy until then.
    wait_until("the detach", || ahead_disk::detach(&below).is_ok());
    assert_eq!(names_with("/run/ahead/disk", &name), Vec::<String>::new(), "{done}");
    done.code(130);
}

//! What `ahead pack` refuses: files, file systems, devices.

use super::*;
use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The reason for each refused file, by its name.
fn reasons(report: &Value) -> BTreeMap<String, String> {
    let refused = report["refused"].as_array().unwrap().iter();
    let name =
        |file: &Value| Path::new(file["path"].as_str().unwrap()).file_name().unwrap().to_str().unwrap().to_owned();
    refused.map(|file| (name(file), file["reason"].as_str().unwrap().to_owned())).collect()
}

fn run(name: &str, arguments: &[&str]) -> bool {
    program(name).args(arguments).works()
}

/// Undoes a command when dropped: flags of files and swap areas would outlive the test.
struct After(&'static str, Vec<String>);

impl Drop for After {
    fn drop(&mut self) {
        program(self.0).args(&self.1).works();
    }
}

#[test]
fn each_kind_of_file_is_refused_with_its_reason_and_the_others_move() {
    let Some(disk) = Disk::new(256, &["-O", "inline_data"], "") else { return };
    let mut files = disk.scattered(20, 50_000);
    let moved = files.clone();
    let mut expected = BTreeMap::new();
    let mut add = |name: &str, bytes: u64, reason: &str| {
        let path = disk.file(name, bytes);
        files.push(path.clone());
        expected.insert(name.to_owned(), reason.to_owned());
        path.to_str().unwrap().to_owned()
    };
    let immutable = add("immutable", 9000, "immutable");
    let append = add("append", 9000, "append_only");
    let journal = add("journal", 9000, "journals_data");
    add("inline", 20, "inline_data");
    let written = add("written", 9000, "being_written");
    let mapped = add("mapped", 9000, "being_written");
    let executed = add("executed", 0, "executing");
    let sparse = add("sparse", 0, "holes");
    let unwritten = add("unwritten", 0, "holes");
    let changed = add("changed", 9000, "changed");
    let missing = add("missing", 9000, "missing");
    let linked = add("linked", 9000, "not_regular");
    fs::copy("/bin/sleep", &executed).unwrap();
    set_mode(&executed, 0o755);
    File::create(&sparse).unwrap().set_len(1 << 20).unwrap();
    let fallocate = |path: &str| {
        rustix::fs::fallocate(File::create(path).unwrap(), rustix::fs::FallocateFlags::empty(), 0, 1 << 20)
    };
    fallocate(&unwritten).unwrap();
    rustix::fs::sync();
    disk.save_whole(&files);

    // Needs CAP_SYS_RESOURCE.
    if !run("chattr", &["+j", &journal]) {
        fs::remove_file(&journal).unwrap();
        expected.insert("journal".into(), "missing".into());
    }
    let mut flags = Vec::new();
    for (flag, path) in [("i", &immutable), ("a", &append)] {
        assert!(run("chattr", &[&format!("+{flag}"), path]));
        flags.push(After("chattr", vec![format!("-{flag}"), path.clone()]));
    }
    fs::write(&changed, "x").unwrap();
    fs::remove_file(&missing).unwrap();
    fs::rename(&linked, disk.path("target")).unwrap();
    std::os::unix::fs::symlink("target", &linked).unwrap();
    let writer = File::options().write(true).open(&written).unwrap();
    let shared = File::options().read(true).write(true).open(&mapped).unwrap();
    let mapping = mapping::Mapping::new(&shared, 9000).unwrap();
    drop(shared);
    let running = program(&executed).arg("1000").start();
    let report = disk.command(&[]).done().json();
    drop(running);
    assert_eq!(reasons(&report), expected);
    assert_eq!(
        (&report["file_systems"][0]["state"], &report["file_systems"][0]["files"]),
        (&"packed".into(), &20.into())
    );
    assert_packed(&moved);
    drop((writer, mapping, flags));
}

#[test]
fn file_that_is_written_while_it_waits_for_its_turn_is_left() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(400, 30_000);
    disk.save_whole(&files);
    let (before, mut contents) = (disk.places(), disk.contents());
    let last = files.last().unwrap();
    let first = places(&files[0]);
    let child = disk.command(&[]).start();
    wait_until("the first exchange", || places(&files[0]) != first || process::has_ended(child.pid()));
    fs::write(last, "new content").unwrap();
    let report = child.ends_with(0).json();
    contents.insert(last.clone(), b"new content".to_vec());
    disk.evict(&files);
    assert!(disk.contents() == contents);
    // It was still to be moved, or just moved.
    let was_left = reasons(&report).values().all(|reason| reason == "changed" || reason == "being_written");
    assert!(was_left, "{report}");
    disk.pack(&["--undo"]);
    let places_after = disk.places();
    assert!(before.iter().filter(|(path, _)| *path != last).all(|(path, places)| &places_after[path] == places));
    assert_eq!(fs::read(last).unwrap(), b"new content");
}

#[test]
fn flash_is_refused() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    disk.save_whole(&disk.scattered(10, 50_000));
    let flash = disk.home.path().join("flash.toml");
    for arguments in [&["--dry-run", "--device", flash.to_str().unwrap()][..], &["--device", flash.to_str().unwrap()]] {
        assert!(disk.refused(arguments).contains("does not seek"), "{arguments:?}");
    }
    assert!(!directory_of(&disk).exists());
}

#[test]
fn emulated_rotating_disk_needs_no_description() {
    let Some(mut disks) = Disks::new() else { return };
    let (_, mount) = disks.mounted("pack", &["--size", "256M", "--model", "hdd"]);
    // Written one after the other: otherwise the allocator puts small files together.
    let write = |name: String, bytes: u64| {
        let path = mount.join(name);
        fs::write(&path, content(path.to_str().unwrap(), bytes)).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        path
    };
    let scattered: Vec<PathBuf> = (0..20)
        .map(|index| {
            write(format!("gap{index}"), 6_000_000);
            write(format!("f{index}"), 100_000)
        })
        .collect();
    let Some(disk) = Disk::new(16, &[], "") else { return };
    disk.save_whole(&scattered.iter().rev().cloned().collect::<Vec<_>>());
    let report = ahead(["pack", "--json", "--dry-run"]).arg(disk.profile()).json();
    assert_eq!(report["file_systems"][0]["state"], "planned", "{report}");
}

#[test]
fn read_only_and_damaged_file_systems_are_refused() {
    let Some(mut disk) = Disk::new(128, &[], "") else { return };
    disk.save_whole(&disk.scattered(10, 50_000));
    rustix::mount::mount_remount(&disk.root, rustix::mount::MountFlags::RDONLY, c"").unwrap();
    let message = disk.refused(&[]);
    assert!(message.contains("mounted read-only"), "{message}");
    disk.detach();
    assert!(run("debugfs", &["-w", "-R", "ssv state 2", disk.image().to_str().unwrap()]));
    disk.attach_with("errors=continue").unwrap();
    assert!(disk.refused(&[]).contains("found errors"));
    assert!(!directory_of(&disk).exists());
}

#[test]
fn other_layouts_and_journals_of_data_are_refused() {
    if let Some(disk) = Disk::new(128, &["-O", "^extents,^64bit"], "") {
        disk.save_whole(&disk.scattered(10, 50_000));
        assert!(disk.refused(&[]).contains("block map of ext2"));
    }
    if let Some(disk) = Disk::new(128, &["-O", "bigalloc"], "") {
        disk.save_whole(&disk.scattered(10, 50_000));
        assert!(disk.refused(&[]).contains("bigalloc"));
    }
    if let Some(disk) = Disk::new(128, &[], "data=journal") {
        disk.save_whole(&disk.scattered(10, 50_000));
        assert!(disk.refused(&[]).contains("data=journal"));
    }
}

#[test]
fn files_elsewhere_are_refused() {
    let Some(disk) = Disk::new(64, &[], "") else { return };
    let elsewhere = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    fs::write(elsewhere.path(), content("x", 9000)).unwrap();
    disk.save([(&elsewhere.path().to_path_buf(), 0..9000)]);
    assert!(disk.refused(&[]).contains("not on ext4"));
}

/// In a namespace in which the disk is mounted on /boot.
#[test]
fn boot_is_refused() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    let files = disk.scattered(10, 50_000);
    disk.save_whole(&files);
    let mut profile = ahead_files::load(&disk.profile()).unwrap();
    for file in &mut profile.files {
        let name = Path::new(std::ffi::OsStr::from_bytes(&file.path)).file_name().unwrap().to_owned();
        file.path = Path::new("/boot").join(name).as_os_str().as_bytes().to_vec();
    }
    ahead_files::save(&profile, &disk.profile()).unwrap();
    if !Path::new("/boot").is_dir() || !run("unshare", &["--mount", "true"]) {
        return eprintln!("skipped: no /boot, or no mount namespaces");
    }
    let pack = disk.command(&[]).apart("mount --bind \"$ROOT\" /boot && exec \"$@\"").env("ROOT", &disk.root);
    pack.fails(1).says("boot loader");
}

#[test]
fn active_swap_file_is_refused() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    let mut files = disk.scattered(10, 50_000);
    let swap = disk.file("swap", 1 << 20);
    set_mode(&swap, 0o600);
    let path = swap.to_str().unwrap().to_owned();
    if !run("mkswap", &[&path]) {
        return eprintln!("skipped: no mkswap");
    }
    rustix::fs::sync();
    files.push(swap);
    disk.save_whole(&files);
    if !run("swapon", &[&path]) {
        return eprintln!("skipped: no swap files here");
    }
    let _off = After("swapoff", vec![path]);
    let report = disk.pack(&["--dry-run"]);
    assert_eq!(reasons(&report)["swap"], "swap_file");
}

#[test]
fn too_little_and_scattered_room_are_refused() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    let files = disk.scattered(20, 400_000);
    disk.save_whole(&files);
    let (before, contents) = (disk.places(), disk.contents());
    // All that is free, but for some blocks.
    let free = || {
        let stat = rustix::fs::statvfs(&disk.root).unwrap();
        stat.f_bfree * stat.f_frsize
    };
    let filler = File::create(disk.path("filler")).unwrap();
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, free() - (9 << 20)).unwrap();
    for arguments in [&["--dry-run"][..], &[]] {
        assert!(disk.refused(arguments).contains("too little room"), "{arguments:?}");
    }
    // Every second block of the filler is free: room, and none of it contiguous.
    let length = filler.metadata().unwrap().len();
    let rest = File::create(disk.path("rest")).unwrap();
    let allocate = |at| rustix::fs::fallocate(&rest, rustix::fs::FallocateFlags::empty(), at, 64 << 10);
    // Some blocks are reserved for metadata.
    assert!((0..1000).any(|index| allocate(index << 16).is_err()));
    for block in (0..length / PAGE).step_by(2) {
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&filler, punch, block * PAGE, PAGE).unwrap();
    }
    rustix::fs::sync();
    assert!(disk.refused(&[]).contains("no contiguous room"));
    assert!(!directory_of(&disk).exists());
    let (places_after, contents_after) = (disk.places(), disk.contents());
    assert!(before.iter().all(|(path, places)| &places_after[path] == places));
    assert!(contents.iter().all(|(path, content)| &contents_after[path] == content));
}

#[test]
fn other_users_cannot_pack_and_their_directory_is_not_used() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    disk.save_whole(&disk.scattered(10, 50_000));
    fs::create_dir(directory_of(&disk)).unwrap();
    std::os::unix::fs::chown(directory_of(&disk), Some(1234), None).unwrap();
    let message = disk.refused(&[]);
    assert!(message.contains("directory of root's alone"), "{message}");
    fs::remove_dir(directory_of(&disk)).unwrap();
    std::os::unix::fs::symlink("/tmp", directory_of(&disk)).unwrap();
    assert!(!disk.refused(&[]).is_empty());
    fs::remove_file(directory_of(&disk)).unwrap();
    assert!(disk.pack(&[])["file_systems"][0]["state"] == "packed");
    // A second profile waits for the end of the first.
    let first = disk.profile();
    let other = first.with_file_name("other.ahead");
    fs::copy(&first, &other).unwrap();
    let pack = ahead(["pack"]).arg(&other).arg("--device").arg(disk.home.path().join("hdd.toml"));
    pack.done().says("p.ahead is kept");
}

/// Regression: a bad record in a mounted image of a user blocked the end of all relocations, and a good one with the path of another profile was
/// taken for ours.
#[test]
fn record_that_root_has_no_copy_of_is_not_used_and_does_not_stop_the_others() {
    let (Some(disk), Some(image)) = (Disk::new(128, &[], ""), Disk::new(64, &[], "")) else { return };
    let files = disk.scattered(10, 50_000);
    disk.save_whole(&files);
    let before = disk.places();
    disk.pack(&[]);
    // The image has a directory of root's: the user who made it chose the owner.
    let foreign = directory_of(&image);
    fs::DirBuilder::new().mode(0o700).create(&foreign).unwrap();
    fs::write(foreign.join("donor"), "x").unwrap();
    fs::write(foreign.join("record.json"), "bad").unwrap();
    disk.pack(&["--undo"]);
    assert_eq!(disk.places(), before);
    // The record of the victim itself, with its path.
    disk.pack(&[]);
    fs::copy(directory_of(&disk).join("record.json"), foreign.join("record.json")).unwrap();
    let committed = disk.pack(&["--commit"]);
    assert_eq!(committed["file_systems"].as_array().unwrap().len(), 1, "{committed}");
    assert!(foreign.join("record.json").exists() && foreign.join("donor").exists());
    // Without a record the directory is not taken for the rest of a crash.
    fs::rename(foreign.join("record.json"), foreign.join("kept.json")).unwrap();
    assert!(disk.refused(&["--undo"]).contains("no relocation of this profile is kept"));
    assert!(foreign.join("donor").exists());
    fs::rename(foreign.join("kept.json"), foreign.join("record.json")).unwrap();
    // A relocation there is refused, and names the directory.
    let inside = image.scattered(10, 50_000);
    image.save_whole(&inside);
    let message = image.refused(&[]);
    assert!(message.contains("root has no copy of this record"), "{message}");
}

/// Regression: a user who opened a file for writing at the moment of the check for writers ended the pack.
#[test]
fn opening_files_for_writing_does_not_end_a_pack() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    let files = disk.scattered(40, 50_000);
    disk.save_whole(&files);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                files.iter().for_each(|file| drop(File::options().write(true).open(file).unwrap()));
            }
        });
        for _ in 0..5 {
            for arguments in [&[][..], &["--undo"]] {
                let done = disk.command(arguments).done();
                assert!(matches!(done.status.code(), Some(0 | 1)), "{done}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn broken_record_is_an_error_and_changes_nothing() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    disk.save_whole(&disk.scattered(10, 50_000));
    disk.pack(&[]);
    let record = directory_of(&disk).join("record.json");
    let text = fs::read_to_string(&record).unwrap();
    let places = disk.places();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    assert!(disk.refused(&[]).contains("record"));
    assert!(disk.refused(&["--undo"]).contains("record"));
    assert_eq!(disk.places(), places);
    fs::write(&record, text).unwrap();
    disk.pack(&["--undo"]);
}

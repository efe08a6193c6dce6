//! `ahead pack`: blocks move and contents stay; every refusal; kills, signals and power cuts.

mod power_cut;
mod refusals;

use ahead_model::DeviceDescription;
use ahead_model::random::SplitMix64;
use ahead_profile::{Extent, Profile};
use ahead_sys::{fiemap, mapping, mounting};
use ahead_tests::rig::machine::Held;
use ahead_tests::rig::mounted::Image;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{save, wait_until_closed};
use ahead_tests::rig::program::signal_of;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::{Deref, DerefMut, Range};

/// A part of a file: offset, place on the disk, length; bytes.
type Place = (u64, u64, u64);

/// A file system in an image that counts as a rotating disk.
struct Disk(Mounted);

impl Deref for Disk {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        &self.0
    }
}

impl DerefMut for Disk {
    fn deref_mut(&mut self) -> &mut Mounted {
        &mut self.0
    }
}

impl Disk {
    /// `None`, with the reason printed, where that is impossible.
    fn new(mebibytes: u64, mkfs: &[&str], options: &str) -> Option<Disk> {
        let mkfs = &[&["-q", "-b", "4096"], mkfs].concat();
        let image = Image { fs_type: "ext4", mebibytes, mkfs, options, direct_io: false };
        let mounted = Mounted::of(image, || Held::ByTest)?;
        fs::write(mounted.home.path().join("hdd.toml"), DeviceDescription::ROTATING.to_toml()).unwrap();
        fs::write(mounted.home.path().join("flash.toml"), DeviceDescription::FLASH.to_toml()).unwrap();
        Some(Disk(mounted))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A file without equal pages.
    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content(name, bytes)).unwrap();
        path
    }

    /// Files that lie apart, in another order than they are used: in the profile, their order is reversed.
    fn scattered(&self, count: u64, bytes: u64) -> Vec<PathBuf> {
        let files: Vec<PathBuf> = (0..count)
            .map(|index| {
                self.file(&format!("gap{index}"), 64 << 10);
                self.file(&format!("file{index}"), bytes)
            })
            .collect();
        rustix::fs::sync();
        (0..count).for_each(|index| fs::remove_file(self.path(&format!("gap{index}"))).unwrap());
        rustix::fs::sync();
        files.into_iter().rev().collect()
    }

    fn profile(&self) -> PathBuf {
        fs::canonicalize(self.home.path()).unwrap().join("p.ahead")
    }

    /// Saves a profile in which these ranges of files are used in this order.
    fn save<'a>(&self, ranges: impl IntoIterator<Item = (&'a PathBuf, Range<u64>)>) {
        let mut profile = Profile::default();
        for (index, (path, range)) in (0..).zip(ranges) {
            let mut file = self.used(path, std::slice::from_ref(&range));
            let known =
                places_if_known(path).into_iter().find(|place| (place.0..place.0 + place.2).contains(&range.start));
            let physical_bytes = known.map(|place| place.1 + range.start - place.0);
            file.fs_path.clear();
            file.extents = vec![Extent { physical_bytes, first_use_us: index * 1000, ..file.extents[0] }];
            match profile.files.iter_mut().find(|other| other.path == file.path) {
                Some(known) => known.extents.append(&mut file.extents),
                None => profile.files.push(file),
            }
        }
        save(&profile, &self.profile());
        profile.files.iter().for_each(|file| wait_until_closed(Path::new(OsStr::from_bytes(&file.path))));
    }

    fn save_whole(&self, files: &[PathBuf]) {
        self.save(files.iter().map(|file| (file, 0..fs::metadata(file).unwrap().len())));
    }

    fn command(&self, arguments: &[&str]) -> Program {
        let command = ahead(["pack", "--json"]).arg(self.profile()).args(arguments);
        if arguments.iter().any(|argument| ["--undo", "--commit", "--device"].contains(argument)) {
            return command;
        }
        command.arg("--device").arg(self.home.path().join("hdd.toml"))
    }

    /// The report, after success.
    fn pack(&self, arguments: &[&str]) -> Value {
        self.command(arguments).json()
    }

    /// The message, after a failure with status 1.
    fn refused(&self, arguments: &[&str]) -> String {
        self.command(arguments).fails(1).err
    }

    fn places(&self) -> BTreeMap<PathBuf, Vec<Place>> {
        let files = fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).map(|path| (path.clone(), places(&path))).collect()
    }

    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        contents_below(&self.root)
    }

    fn evict(&self, files: &[PathBuf]) {
        files.iter().for_each(|file| evict(file));
    }
}

impl Disk {
    /// Root's copies of the records of this file system.
    fn copies(&self) -> Vec<PathBuf> {
        let number = rustix::fs::statvfs(&self.root).unwrap().f_fsid;
        let names = names_with("/var/lib/ahead/pack", &format!("{number:016x}-"));
        names.into_iter().map(|name| Path::new("/var/lib/ahead/pack").join(name)).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mount.is_some() {
            self.copies().iter().for_each(|copy| drop(fs::remove_file(copy)));
        }
    }
}

fn contents_below(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn content(name: &str, bytes: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(u64::from(crc32fast::hash(name.as_bytes())));
    (0..bytes.div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).take(bytes as usize).collect()
}

fn places_if_known(path: &Path) -> Vec<Place> {
    let is_known = fiemap::extents(File::open(path).unwrap(), 0, 1).is_ok();
    if is_known { places(path) } else { Vec::new() }
}

/// Where a file lies; neighbours are joined.
fn places(path: &Path) -> Vec<Place> {
    let file = File::open(path).unwrap();
    rustix::fs::fsync(&file).unwrap();
    let mut joined: Vec<Place> = Vec::new();
    for extent in fiemap::extents(&file, 0, u64::MAX).unwrap() {
        let place = (extent.logical_bytes, extent.physical_bytes, extent.length_bytes);
        match joined.last_mut() {
            Some(last) if (last.0 + last.2, last.1 + last.2) == (place.0, place.1) => last.2 += place.2,
            _ => joined.push(place),
        }
    }
    joined
}

/// Asserts that the files lie whole and one after the other.
fn assert_packed(files: &[PathBuf]) {
    let places: Vec<Vec<Place>> = files.iter().map(|file| places(file)).collect();
    assert!(places.iter().all(|places| places.len() == 1), "{places:?}");
    let follows = |pair: &[Vec<Place>]| pair[0][0].1 + pair[0][0].2 == pair[1][0].1;
    assert!(places.windows(2).all(follows), "{places:?}");
}

fn directory_of(disk: &Disk) -> PathBuf {
    disk.path(".ahead-pack")
}

#[test]
fn files_become_contiguous_in_order_of_use_and_undo_is_exact() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(60, 50_000);
    disk.save_whole(&files);
    let (places_before, contents) = (disk.places(), disk.contents());
    let profile = fs::read(disk.profile()).unwrap();
    let times = || -> Vec<(i64, i64)> {
        files.iter().map(|f| fs::metadata(f).unwrap()).map(|m| (m.mtime(), m.mtime_nsec())).collect()
    };
    let times_before = times();

    let dry = disk.pack(&["--dry-run"]);
    let planned = &dry["file_systems"][0];
    assert_eq!(
        (&planned["state"], &planned["files"], &planned["bytes"]),
        (&"planned".into(), &60.into(), &3_000_000.into())
    );
    assert!(planned["after_s"].as_f64().unwrap() < 0.5 * planned["before_s"].as_f64().unwrap(), "{planned}");
    assert_eq!((disk.places(), directory_of(&disk).exists()), (places_before.clone(), false));

    let packed = disk.pack(&[]);
    assert_eq!((&packed["file_systems"][0]["state"], &packed["refused"]), (&"packed".into(), &Value::Array(vec![])));
    assert_packed(&files);
    disk.evict(&files);
    assert!(disk.contents() == contents);
    assert_eq!(times(), times_before);
    let directory = fs::metadata(directory_of(&disk)).unwrap();
    assert_eq!((directory.mode() & 0o7777, directory.uid()), (0o700, 0));
    for file in ahead_files::load(&disk.profile()).unwrap().files {
        let now = places(Path::new(OsStr::from_bytes(&file.path)));
        assert_eq!(file.extents[0].physical_bytes, Some(now[0].1));
    }

    let undone = disk.pack(&["--undo"]);
    assert_eq!(
        (&undone["file_systems"][0]["state"], &undone["file_systems"][0]["elsewhere_bytes"]),
        (&"undone".into(), &0.into())
    );
    assert_eq!(disk.places(), places_before);
    disk.evict(&files);
    assert!(disk.contents() == contents);
    assert!(fs::read(disk.profile()).unwrap() == profile, "the profile has its old places");
    assert!(!directory_of(&disk).exists());
    assert!(disk.refused(&["--undo"]).contains("no relocation of this profile is kept"));
}

#[test]
fn commit_frees_the_old_blocks_and_a_second_pack_moves_nothing() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(40, 50_000);
    disk.save_whole(&files);
    let free = || rustix::fs::statvfs(&disk.root).unwrap().f_bfree;
    let before = free();
    disk.pack(&[]);
    assert!(free() < before);
    assert!(disk.refused(&["--dry-run"]).contains("is kept"));
    // Repeated, it has nothing left to exchange.
    assert_eq!(disk.pack(&[])["file_systems"][0]["state"], "packed");
    let committed = disk.pack(&["--commit"]);
    assert_eq!(committed["file_systems"][0]["state"], "committed");
    wait_until("the blocks of the donor", || free() == before);
    assert_packed(&files);
    assert!(!directory_of(&disk).exists());
    assert!(disk.refused(&["--commit"]).contains("no relocation"));
    assert_eq!(disk.pack(&[])["file_systems"][0]["state"], "nothing");
    assert!(!directory_of(&disk).exists());
}

#[test]
fn parts_of_files_are_moved_in_order_of_use() {
    let Some(disk) = Disk::new(512, &[], "") else { return };
    let (a, b) = (disk.file("a", 100 << 20), disk.file("b", 40 << 20));
    let mib = |from: u64, to: u64| from << 20..to << 20;
    let order = [
        (&a, mib(80, 81)),
        (&b, mib(3, 4)),
        (&a, mib(10, 12)),
        (&b, mib(30, 31)),
        (&a, mib(50, 50).start..(50 << 20) + PAGE),
    ];
    disk.save(order.clone());
    let (places_before, contents) = (disk.places(), disk.contents());
    let packed = disk.pack(&[]);
    let added = packed["file_systems"][0]["fragments_added"].as_i64().unwrap();
    assert!((1..=20).contains(&added), "{packed}");
    let place = |path: &PathBuf, at: u64| {
        let places = places(path);
        let place = places.iter().find(|place| (place.0..place.0 + place.2).contains(&at)).unwrap();
        place.1 + at - place.0
    };
    let mut at = place(order[0].0, order[0].1.start);
    for (path, range) in &order {
        assert_eq!(place(path, range.start), at, "{} {range:?}", path.display());
        assert_eq!(place(path, range.end - PAGE), at + range.end - range.start - PAGE);
        at += range.end - range.start;
    }
    disk.evict(&[a, b]);
    assert!(disk.contents() == contents);
    disk.pack(&["--undo"]);
    assert_eq!(disk.places(), places_before);
    assert!(disk.contents() == contents);
}

#[test]
fn mapping_for_reading_keeps_its_content() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(30, 200_000);
    disk.save_whole(&files);
    let expected = fs::read(&files[3]).unwrap();
    let mapping = mapping::Mapping::new(File::open(&files[3]).unwrap(), expected.len()).unwrap();
    let mapped = || {
        let mut bytes = vec![0; expected.len()];
        assert_eq!(mapping.copy(0, &mut bytes), Some(bytes.len()));
        bytes
    };
    assert!(mapped() == expected);
    assert_eq!(disk.pack(&[])["refused"], Value::Array(vec![]));
    assert!(mapped() == expected);
    disk.evict(&files);
    assert!(mapped() == expected);
    disk.pack(&["--undo"]);
    assert!(mapped() == expected);
}

/// A renamed file is found by its inode, a file that was written keeps its new content, and a deleted one needs nothing.
#[test]
fn undo_after_files_were_renamed_written_or_deleted() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(30, 50_000);
    disk.save_whole(&files);
    let before = disk.places();
    disk.pack(&[]);
    let renamed = disk.path("renamed");
    fs::rename(&files[1], &renamed).unwrap();
    fs::write(&files[1], "another file").unwrap();
    let mut written = fs::read(&files[2]).unwrap();
    written[10_000..10_100].fill(7);
    File::options().write(true).open(&files[2]).unwrap().write_all_at(&[7; 100], 10_000).unwrap();
    fs::remove_file(&files[3]).unwrap();
    let undone = disk.pack(&["--undo"]);
    assert_eq!(undone["file_systems"][0]["state"], "undone", "{undone}");
    // The deleted file, and at most the new file's block and one of its directory: they may have been written to old places.
    let elsewhere_bytes = undone["file_systems"][0]["elsewhere_bytes"].as_u64().unwrap();
    assert!((53_248..=53_248 + 2 * PAGE).contains(&elsewhere_bytes), "{undone}");
    assert_eq!(places(&renamed), before[&files[1]]);
    assert_eq!(places(&files[2]), before[&files[2]]);
    disk.evict(&[files[2].clone(), renamed.clone()]);
    assert!(fs::read(&files[2]).unwrap() == written);
    assert!(fs::read(&renamed).unwrap() == content(files[1].file_name().unwrap().to_str().unwrap(), 50_000));
    assert_eq!(fs::read(&files[1]).unwrap(), b"another file");
}

/// Starts a pack and stops it with a signal when the file with this index in the order of use has moved.
fn stopped_at(disk: &Disk, files: &[PathBuf], index: usize, signal: &str) -> Done {
    let before = places(&files[index]);
    let child = disk.command(&[]).start();
    // Before other programs: on a busy machine the pack would end before its progress is seen.
    let _ = rustix::process::setpriority_process(None, -19);
    wait_until("the exchange", || places(&files[index]) != before || process::has_ended(child.pid()));
    child.signal(signal);
    let _ = rustix::process::setpriority_process(None, 0);
    child.end()
}

fn packed_count(files: &[PathBuf], before: &BTreeMap<PathBuf, Vec<Place>>) -> usize {
    files.iter().filter(|file| places(file) != before[*file]).count()
}

#[test]
fn killed_pack_is_undone_continued_or_committed() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(600, 30_000);
    disk.save_whole(&files);
    let (before, contents) = (disk.places(), disk.contents());
    let mut in_the_middle = 0;
    for index in [0, 1, 5, 50, 100, 200, 300] {
        let output = stopped_at(&disk, &files, index, "KILL");
        assert!(signal_of(output.status) == Some(9) || output.status.success(), "{output}");
        in_the_middle += usize::from((1..files.len()).contains(&packed_count(&files, &before)));
        disk.pack(&["--undo"]);
        assert_eq!(disk.places(), before);
        assert!(disk.contents() == contents);
    }
    assert!(in_the_middle > 0, "no pack was killed while it exchanged");
    stopped_at(&disk, &files, 20, "KILL");
    assert_eq!(disk.pack(&[])["file_systems"][0]["state"], "packed");
    assert_packed(&files);
    disk.pack(&["--undo"]);
    assert_eq!(disk.places(), before);
    stopped_at(&disk, &files, 20, "KILL");
    let half = disk.places();
    disk.pack(&["--commit"]);
    assert_eq!(disk.places(), half);
    disk.evict(&files);
    assert!(disk.contents() == contents);
}

/// An undo that is killed can be repeated.
#[test]
fn killed_undo_is_repeated() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(600, 30_000);
    disk.save_whole(&files);
    let (before, contents) = (disk.places(), disk.contents());
    disk.pack(&[]);
    let packed = places(&files[30]);
    let mut child = disk.command(&["--undo"]).start();
    wait_until("the exchange", || places(&files[30]) != packed || process::has_ended(child.pid()));
    child.kill();
    if directory_of(&disk).join("record.json").exists() {
        disk.pack(&["--undo"]);
    }
    assert_eq!(disk.places(), before);
    assert!(disk.contents() == contents);
}

#[test]
fn signal_ends_between_exchanges_and_the_profile_has_the_places() {
    let Some(disk) = Disk::new(256, &[], "") else { return };
    let files = disk.scattered(600, 30_000);
    disk.save_whole(&files);
    let before = disk.places();
    let output = stopped_at(&disk, &files, 10, "INT");
    if output.status.code() != Some(0) {
        let report = output.code(130).json();
        assert_eq!((&report["file_systems"][0]["state"], &report["stopped_by"]), (&"interrupted".into(), &2.into()));
    }
    for file in ahead_files::load(&disk.profile()).unwrap().files {
        let now = places(Path::new(OsStr::from_bytes(&file.path)));
        assert_eq!(file.extents[0].physical_bytes, Some(now[0].1));
    }
    disk.pack(&["--undo"]);
    assert_eq!(disk.places(), before);
}

#[test]
fn profile_keeps_its_owner_and_mode() {
    let Some(disk) = Disk::new(128, &[], "") else { return };
    disk.save_whole(&disk.scattered(20, 50_000));
    std::os::unix::fs::chown(disk.profile(), Some(12_345), Some(23_456)).unwrap();
    set_mode(disk.profile(), 0o640);
    disk.pack(&[]);
    let profile = fs::metadata(disk.profile()).unwrap();
    assert_eq!((profile.uid(), profile.gid(), profile.mode() & 0o777), (12_345, 23_456, 0o640));
}

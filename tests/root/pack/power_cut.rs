//! Power cuts during `ahead pack`: what the log of the emulated disk leaves, with unflushed writes lost, torn and reordered.
//!
//! ```text
//!     image before ─┬─ log up to a random operation ─▶ mount replays the journal ▸ every byte of every file ▸ e2fsck -fn is clean
//!                   └─ 200 times; at some, `ahead pack --undo` or a second pack follows
//! ```

use super::*;
use ahead_disk_server::write_log::{self, Operation};

/// Cuts in each mode of the journal.
const CUTS: u64 = 200;

/// At every such cut the relocation is also undone, or continued.
const ENDED_EACH: u64 = 10;

/// An emulated disk that is detached when dropped.
struct Emulated(ahead_disk::DiskInfo);

impl Emulated {
    fn attach(image: &Path, log: &Path) -> Emulated {
        let name = format!("power-cut-{}-{}", std::process::id(), log.file_stem().unwrap().to_str().unwrap());
        let attach = ahead(["disk", "attach"]).arg(image).args(["--model", "hdd", "--name", &name]);
        attach.arg("--write-log").arg(log).ok();
        Emulated(ahead_disk::find(&name).unwrap())
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        if let Err(error) = ahead_disk::detach(&self.0) {
            eprintln!("not detached: {error}");
        }
    }
}

struct Logged {
    disk: Disk,
    before: PathBuf,
    log: Vec<Operation>,
    contents: BTreeMap<PathBuf, Vec<u8>>,
    places: BTreeMap<PathBuf, Vec<Place>>,
    /// Operations before the first pack.
    start: usize,
    /// Root's copies of the records, by path: a power cut leaves those of a relocation that had not ended.
    copies: BTreeMap<PathBuf, Vec<u8>>,
}

/// Packs, undoes, packs and commits on an emulated disk, and keeps its image before and the log.
fn logged(options: &str) -> Option<Logged> {
    needs_emulated_disks()?;
    let mut disk = Disk::new(48, &["-J", "size=4"], "")?;
    let files = disk.scattered(60, 40_000);
    disk.save_whole(&files);
    let (contents, places) = (disk.contents(), disk.places());
    disk.detach();
    let before = disk.home.path().join("before");
    fs::copy(disk.image(), &before).unwrap();
    let log = disk.home.path().join(format!("log{}", options.len()));
    let emulated = Emulated::attach(&disk.image(), &log);
    let mount = ahead_tests::rig::mounted::mount(&emulated.0.device, &disk.root, "ext4", options)?;
    rustix::fs::sync();
    let start = write_log::read(&log).unwrap().len();
    let mut copies = BTreeMap::new();
    for arguments in [&[][..], &["--undo"], &[], &["--commit"]] {
        disk.pack(arguments);
        copies.extend(disk.copies().into_iter().map(|copy| (copy.clone(), fs::read(copy).unwrap())));
    }
    assert!(disk.contents() == contents);
    wait_until("the unmount", || mounting::unmount(&disk.root).is_ok());
    drop(mount);
    drop(emulated);
    let log = write_log::read(&log).unwrap();
    Some(Logged { disk, before, log, contents, places, start, copies })
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.copies.keys().for_each(|copy| drop(fs::remove_file(copy)));
    }
}

impl Logged {
    /// Makes the image of a power cut after this number of operations. Returns the number of operations that were not durable.
    fn cut(&self, count: usize, log: &[Operation], random: &mut SplitMix64) -> usize {
        fs::copy(&self.before, self.disk.image()).unwrap();
        let image = File::options().read(true).write(true).open(self.disk.image()).unwrap();
        write_log::cut_power(&image, log, count, random).unwrap()
    }

    /// Mounts the image, for which the kernel replays the journal.
    fn mount(&mut self, options: &str) -> ahead_sys::Result<()> {
        self.disk.attach_with(options)
    }

    /// Unmounts the image, and returns what the check of the file system finds wrong.
    fn damage(&mut self) -> Option<String> {
        self.disk.detach();
        let check = program("e2fsck").args(["-fn"]).arg(self.disk.image()).done();
        (!check.status.success()).then_some(check.out)
    }
}

fn check_cuts(options: &str) {
    let Some(mut logged) = logged(options) else { return };
    let flushes = logged.log.iter().filter(|operation| **operation == Operation::Flush).count();
    assert!(flushes > 8 && logged.log.len() > logged.start + 50, "{flushes} flushes of {}", logged.log.len());
    let mut random = SplitMix64::new(options.len() as u64);
    let (mut unflushed, mut undone, mut continued) = (0, 0, 0);
    for cut in 0..CUTS {
        let steps = (logged.log.len() - logged.start) as u64 + 1;
        let count = logged.start + random.below(steps) as usize;
        unflushed += usize::from(logged.cut(count, &logged.log, &mut random) > 0);
        logged.mount(options).unwrap();
        assert!(logged.disk.contents() == logged.contents, "{options} cut {cut} after {count} operations");
        if cut % ENDED_EACH == 0 && directory_of(&logged.disk).join("record.json").exists() {
            logged.copies.iter().for_each(|(path, text)| fs::write(path, text).unwrap());
            let undoes = cut % (2 * ENDED_EACH) == 0;
            if !undoes {
                assert_eq!(logged.disk.pack(&[])["file_systems"][0]["state"], "packed");
                continued += 1;
            }
            logged.disk.pack(&["--undo"]);
            undone += 1;
            assert_eq!(logged.disk.places(), logged.places, "{options} cut {cut} after {count} operations");
            assert!(logged.disk.contents() == logged.contents);
        }
        let damage = logged.damage();
        assert!(damage.is_none(), "{options} cut {cut} after {count} operations: {damage:?}");
    }
    eprintln!(
        "{CUTS} cuts ({options}): {unflushed} with unflushed writes, {undone} undone, {continued} of them continued"
    );
    assert!(unflushed > 50 && undone > 0 && continued > 0);
}

#[test]
fn contents_survive_power_cuts_with_ordered_data() {
    check_cuts("data=ordered");
}

#[test]
fn contents_survive_power_cuts_with_data_written_back_freely() {
    check_cuts("data=writeback");
}

/// The check finds what it looks for: if the disk ignored flushes, files or the file system would be damaged.
#[test]
fn disk_that_ignores_flushes_is_found_out() {
    let Some(mut logged) = logged("") else { return };
    let without: Vec<Operation> =
        logged.log.iter().filter(|operation| **operation != Operation::Flush).cloned().collect();
    let mut random = SplitMix64::new(1);
    let found = (0..20).any(|_| {
        let count = without.len() / 2 + random.below(without.len() as u64 / 2) as usize;
        logged.cut(count, &without, &mut random);
        let differs = logged.mount("").is_err() || logged.disk.contents() != logged.contents;
        logged.damage().is_some() || differs
    });
    assert!(found);
}

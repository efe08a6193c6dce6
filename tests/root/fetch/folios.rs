//! Blocks of large files become large folios: where the kernel supports them, exactly those blocks, and nothing else is read.

use super::{replay, rotational, whole};
use ahead_sys::{large_folio, mapping::Mapping, mounting, openat};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::of_files;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The blocks of this architecture.
const BLOCK: u64 = 2 * MIB;

/// Kernels in which the file systems have large folios and one fault reads one block.
fn has_large_folios(fs_type: &str) -> bool {
    let release = ahead_sys::machine::kernel_release();
    let mut numbers = release.split(['.', '-']).filter_map(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let first = if fs_type == "xfs" { (6, 7) } else { (6, 16) };
    (first..=(6, 18)).contains(&version)
}

/// An instance of tracefs that records which folios enter the page cache. Removed on drop.
struct Trace {
    root: tempfile::TempDir,
    instance: PathBuf,
}

impl Trace {
    const EVENT: &str = "events/filemap/mm_filemap_add_to_page_cache/enable";

    /// `None`, with the reason printed, where that is impossible.
    fn start() -> Option<Trace> {
        let root = tempfile::tempdir().unwrap();
        if let Err(error) = mounting::mount(Path::new("ahead-test"), root.path(), "tracefs", false, "") {
            return skip(error);
        }
        // Tests of one process run at the same time.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let instance = root.path().join(format!("instances/ahead-test-{}-{number}", std::process::id()));
        let trace = Trace { root, instance };
        fs::create_dir(&trace.instance).unwrap();
        fs::write(trace.instance.join("buffer_size_kb"), "8192").unwrap();
        fs::write(trace.instance.join(Trace::EVENT), "1").unwrap();
        Some(trace)
    }

    /// The number of folios of this case's file by their order, since the last call. Files of other tests may have the same inode number.
    fn orders(&self, case: &Case) -> BTreeMap<u32, u64> {
        let path = self.instance.join("trace");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, "").unwrap();
        let ino = format!(" dev {} ino {:x} ", case.mounted.number(), case.inode());
        let orders = text.lines().filter(|line| line.contains(&ino)).map(|line| {
            let (_, order) = line.rsplit_once("order=").unwrap();
            order.trim().parse().unwrap()
        });
        orders.fold(BTreeMap::new(), |mut count, order| {
            *count.entry(order).or_default() += 1;
            count
        })
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        fs::write(self.instance.join(Trace::EVENT), "0").unwrap();
        fs::remove_dir(&self.instance).unwrap();
        mounting::unmount_lazy(self.root.path()).unwrap();
    }
}

/// A file of which all was used, a part after the other.
struct Case {
    mounted: Mounted,
    path: PathBuf,
    used: Vec<Range<u64>>,
    _rotational: Setting,
}

impl Case {
    /// `bytes` of a file, of which the `used` are recorded in parts of 384 KiB, as for a program that reads one page after the other.
    fn new(fs_type: &'static str, bytes: u64, used: Range<u64>) -> Option<Case> {
        if large_folio::block_bytes() != Some(BLOCK) {
            return skip("no blocks of 2 MiB");
        }
        let mounted = Mounted::new(fs_type)?;
        let path = mounted.file("model", bytes);
        let used = used.clone().step_by(384 << 10).map(|start| start..(start + 384 * KIB).min(used.end)).collect();
        // Large folios are for disks that do not seek.
        let _rotational = rotational(&mounted, false);
        Some(Case { mounted, path, used, _rotational })
    }

    /// Replays the profile with everything cold. Returns the account and the bytes that the device read.
    fn replay(&mut self) -> (Value, u64) {
        self.mounted.make_cold();
        let files = vec![self.mounted.used(&self.path, &self.used)];
        self.mounted.make_cold();
        let mut account = Value::Null;
        let bytes = self.device_bytes(|| account = replay(&of_files(files), &[]));
        assert_eq!(account["issued_bytes"], whole(&self.used), "{account}");
        assert_eq!(account["devices"][0]["order"], "by_first_use", "{account}");
        (account, bytes)
    }

    fn device_bytes(&self, work: impl FnOnce()) -> u64 {
        self.mounted.reads(work).bytes
    }

    fn inode(&self) -> u64 {
        openat::handle(&self.path).unwrap().identity().inode
    }

    /// Reads the used ranges through a mapping, and compares them.
    fn assert_content(&self) {
        let file = File::open(&self.path).unwrap();
        let map = Mapping::new(&file, file.metadata().unwrap().len() as usize).unwrap();
        for at in self.used.iter().flat_map(|range| range.clone().step_by(509)) {
            assert_eq!(map.touch(at as usize), Some((at / KIB * 31 + at % 251) as u8), "at {at}");
        }
    }
}

/// Inodes and block maps that a cold open(2) reads.
const METADATA_BYTES: u64 = 512 * KIB;

fn assert_large_file_has_large_folios(fs_type: &'static str) {
    let Some(mut case) = Case::new(fs_type, 25 * MIB, 0..25 * MIB) else { return };
    let Some(trace) = Trace::start() else { return };
    let (account, bytes) = case.replay();
    let orders = trace.orders(&case);
    let large = orders.get(&9).copied().unwrap_or(0);
    assert_eq!(account["large_folio_bytes"], large * BLOCK, "{orders:?}, {account}");
    assert!(!has_large_folios(fs_type) || large == 12, "{orders:?}, {account}");
    assert!((25 * MIB..25 * MIB + METADATA_BYTES).contains(&bytes), "{bytes} bytes read");
    let more = case.device_bytes(|| case.assert_content());
    // It may read metadata of the file first.
    assert!(more < METADATA_BYTES, "{more} bytes read by the program");
    assert_eq!(trace.orders(&case), BTreeMap::new(), "the program finds every page");
}

#[test]
fn a_large_file_has_large_folios_on_ext4() {
    unless_reclaimed(|| assert_large_file_has_large_folios("ext4"));
}

#[test]
fn a_large_file_has_large_folios_on_xfs() {
    unless_reclaimed(|| assert_large_file_has_large_folios("xfs"));
}

/// The kernel marks a large folio, and reads ahead after it at its first access.
#[test]
fn nothing_is_read_after_the_last_block_although_the_window_is_large() {
    unless_reclaimed(|| {
        for (fs_type, window_kb) in [("ext4", 4096), ("xfs", 4096), ("ext4", 128)] {
            let Some(mut case) = Case::new(fs_type, 64 * MIB, 2 * MIB..16 * MIB) else { return };
            fs::write(case.mounted.queue("read_ahead_kb"), window_kb.to_string()).unwrap();
            let (account, bytes) = case.replay();
            let after = case.device_bytes(|| case.assert_content());
            assert!(bytes < 14 * MIB + METADATA_BYTES, "{fs_type}, {window_kb}: {bytes} bytes read, {account}");
            // Metadata that the program reads first.
            assert!(after < METADATA_BYTES, "{fs_type}, {window_kb}: {after} bytes read by the program, {account}");
            // With the larger window, the last 8 MiB are the margin.
            let large = if window_kb == 128 { 12 * MIB } else { 6 * MIB };
            assert!(!has_large_folios(fs_type) || account["large_folio_bytes"] == large, "{account}");
        }
    });
}

#[test]
fn a_file_without_large_folios_is_fetched_as_exactly() {
    unless_reclaimed(|| {
        for fs_type in ["btrfs", "ext4"] {
            let Some(mut case) = Case::new(fs_type, 16 * MIB, 0..16 * MIB) else { return };
            // On ext4, files whose data is journalled have none. The option is that of the next mount.
            if fs_type == "ext4" {
                program("tune2fs").args(["-o", "journal_data"]).arg(case.mounted.node()).ok();
            }
            let (account, bytes) = case.replay();
            assert_eq!(account["large_folio_bytes"], 0, "{fs_type}: {account}");
            assert!((16 * MIB..16 * MIB + METADATA_BYTES).contains(&bytes), "{fs_type}: {bytes} bytes read");
            let everything = 0..16 * MIB;
            assert_eq!(resident(&case.path), vec![everything]);
            case.assert_content();
        }
    });
}

//! Which ranges are read as large folios, and whether that works.
//!
//! ```text
//!     file system that may have them, disk that does not seek ──▶ Blocks: the plan is cut at their borders
//!                                                                   │
//!     worker: absent block ▸ slot ▸ budget ▸ one folio? ──yes──▶ account
//!                                                └─no──▶ read ahead as any other range; after some blocks no more on this file system
//! ```
//!
//! A page that was brought by `FADV_WILLNEED` is a folio. A block of 512 pages that is one folio costs the processor a quarter to read, a fifth to
//! map, and a tenth to evict (decision 75).

use crate::prefetch::{HeadStart, Options};
use ahead_fetch::calls;
use ahead_model::FileSystemKind;
use ahead_model::{DeviceDescription, DeviceNumber};
use ahead_plan::blocks::Blocks;
use ahead_plan::pacing::blocks_in_flight;
use ahead_plan::{Piece, Source};
use ahead_profile::Profile;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{bdi, large_folio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Without this number of blocks more that became one folio than blocks that did not, there are no further attempts on a file system: an
/// attempt waits for the first page. A single failure has another cause: the program has read a page of the block meanwhile.
const ATTEMPTS: usize = 3;

/// The blocks of a device.
#[derive(Debug)]
pub struct LargeFolios {
    blocks: Blocks,
    in_flight: usize,
    /// Number of blocks that may still be read at the same time.
    free: Mutex<usize>,
    freed: Condvar,
}

impl LargeFolios {
    /// Cuts the pieces of a device at blocks. `None`, with the pieces as they are: none of them is read as a large folio.
    pub fn cut(
        profile: &Profile,
        options: &Options,
        device: (&DeviceDescription, Option<DeviceNumber>),
        workers: usize,
        pieces: Vec<Piece>,
    ) -> (Option<LargeFolios>, Vec<Piece>) {
        let end_of = |source: Source| match source {
            Source::File(index) => {
                let file = &profile.files[index];
                FileSystemKind::named(&file.fs_type).has_large_folios.then_some(file.size_bytes)
            }
            Source::Metadata(_) => None,
        };
        let usable = || {
            let (description, number) = (device.0, device.1?);
            // A program that runs beside the prefetch waits for whole blocks, and its start takes longer (decision 75). A window of little
            // memory is smaller than a block.
            let is_beside = options.head_start != HeadStart::None;
            if is_beside
                || options.low_memory
                || !pieces.iter().any(|piece| end_of(piece.source) >= Some(LEAST_FILE_BYTES))
            {
                return None;
            }
            let bytes = large_folio::block_bytes()?;
            let in_flight = blocks_in_flight(description, bytes, workers);
            (in_flight > 0).then(|| (Blocks { bytes, margin_bytes: margin_bytes(number) }, in_flight))
        };
        let Some((blocks, in_flight)) = usable() else { return (None, pieces) };
        let cut = blocks.cut(pieces, end_of);
        let has_blocks = cut.iter().any(|piece| end_of(piece.source).is_some() && blocks.is_block(&piece.range));
        let folios = LargeFolios { blocks, in_flight, free: Mutex::new(in_flight), freed: Condvar::new() };
        (has_blocks.then_some(folios), cut)
    }

    /// Number of blocks that are read at the same time, one for each worker.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The block of which all is wanted; `None`: the ranges are not one block.
    pub fn block(&self, used: &[std::ops::Range<u64>]) -> Option<std::ops::Range<u64>> {
        match used {
            [range] if self.blocks.is_block(range) => Some(range.clone()),
            _ => None,
        }
    }

    /// Waits until another block may be read.
    pub fn slot(&self) -> Slot<'_> {
        let mut free = self.lock();
        while *free == 0 {
            free = self.freed.wait(free).ignore_poison();
        }
        *free -= 1;
        Slot(self)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().ignore_poison()
    }
}

/// One of the blocks that are read at the same time. On drop, another may be read.
#[derive(Debug)]
pub struct Slot<'a>(&'a LargeFolios);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.freed.notify_one();
    }
}

/// Smallest file with a block: no file is opened for a profile without one.
const LEAST_FILE_BYTES: u64 = 2 << 20;

/// The longest range that the kernel reads ahead after a marked folio: twice the window after `POSIX_FADV_SEQUENTIAL`, or one request for
/// a longer read(2) (`ractl_max_pages` in mm/readahead.c). 0: the window is 0, and the kernel reads nothing ahead.
fn margin_bytes(device: DeviceNumber) -> u64 {
    match bdi::read_ahead_kb(device) {
        Ok(0) => 0,
        Ok(window_kb) => (2 * window_kb * 1024).max(calls::cap_bytes(device)),
        // The window is unknown, and the margin covers the usual ones.
        Err(_) => UNKNOWN_MARGIN_BYTES,
    }
}

/// The margin of a device without a known window, bytes: twice 8 MiB, the largest default of Linux 6.17.
const UNKNOWN_MARGIN_BYTES: u64 = 16 << 20;

/// Whether blocks of one file system become large folios.
#[derive(Debug, Default)]
pub struct Experience {
    large: AtomicUsize,
    small: AtomicUsize,
}

impl Experience {
    /// Whether another attempt makes sense.
    pub fn permits(&self) -> bool {
        self.small.load(Ordering::Relaxed) < ATTEMPTS + self.large.load(Ordering::Relaxed)
    }

    /// Records the result of an attempt.
    pub fn note(&self, is_large: bool) {
        let count = if is_large { &self.large } else { &self.small };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::File;

    const MIB: u64 = 1 << 20;
    /// No such device: the margin is unknown.
    const NUMBER: DeviceNumber = DeviceNumber { major: 4095, minor: 1 };

    fn blocks(fs_type: &str, description: &DeviceDescription, options: &Options, workers: usize) -> usize {
        let file = File { fs_type: fs_type.into(), size_bytes: 64 * MIB, ..File::default() };
        let profile = Profile { files: vec![file], ..Profile::default() };
        let range = 0..64 * MIB;
        let piece = Piece { source: Source::File(0), range, late: false, first_use_us: 0, physical_bytes: None };
        let (folios, cut) = LargeFolios::cut(&profile, options, (description, Some(NUMBER)), workers, vec![piece]);
        assert_eq!(cut.iter().map(Piece::bytes).sum::<u64>(), 64 * MIB);
        folios.map_or(0, |folios| {
            cut.iter().filter(|piece| folios.block(std::slice::from_ref(&piece.range)).is_some()).count()
        })
    }

    #[test]
    fn large_folios_are_for_fast_disks_and_file_systems_that_have_them() {
        let Some(bytes) = large_folio::block_bytes() else { return eprintln!("skipped: no large folios") };
        let without_program = || Options { head_start: HeadStart::None, ..Options::default() };
        let (flash, usual) = (DeviceDescription::FLASH, without_program());
        let all = (64 * MIB / bytes) as usize;
        assert_eq!((blocks("ext4", &flash, &usual, 4), blocks("xfs", &flash, &usual, 16)), (all, all));
        let slow = DeviceDescription { bandwidth_bytes_per_s: 125e6, ..flash };
        let low_memory = Options { low_memory: true, ..without_program() };
        assert_eq!(blocks("btrfs", &flash, &usual, 4), 0);
        assert_eq!(blocks("ext4", &slow, &usual, 4), 0);
        assert_eq!(blocks("ext4", &DeviceDescription::ROTATING, &usual, 4), 0);
        assert_eq!(blocks("ext4", &flash, &usual, 3), 0);
        assert_eq!(blocks("ext4", &flash, &low_memory, 16), 0);
        assert_eq!(blocks("ext4", &flash, &Options::default(), 16), 0);
    }

    #[test]
    fn attempts_end_where_blocks_stay_small() {
        let experience = Experience::default();
        experience.note(true);
        for _ in 0..=ATTEMPTS {
            assert!(experience.permits());
            experience.note(false);
        }
        assert!(!experience.permits());
        experience.note(true);
        assert!(experience.permits());
    }

    #[test]
    fn slot_is_free_again_after_its_drop() {
        let blocks = Blocks { bytes: 8, margin_bytes: 0 };
        let folios = LargeFolios { blocks, in_flight: 1, free: Mutex::new(1), freed: Condvar::new() };
        let slot = folios.slot();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(folios.slot()));
            drop(slot);
            waiting.join().unwrap();
        });
        assert_eq!(*folios.lock(), 1);
    }
}

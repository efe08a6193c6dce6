//! The layout of files in a file system: its block size, and the places of indirect blocks.
//!
//! ```text
//!     ext2, ext3    12 direct blocks │ indirect block: block / 4 bytes more │ double indirect: …
//!     bytes         0      12 blocks ▲ read before block 12                 ▲ read before block 12 + block / 4
//! ```
//!
//! If the pages of the block device may be counted, the read of an indirect block is visible there. With timing alone, the page after an
//! indirect block takes longer. For that, each run needs uncached metadata, so the device's cache must be evicted.

use crate::probe::Run;
use crate::probe::answer::{Answer, How, agreement};
use crate::probe::error::{Error, Result};
use crate::probe::statistics::{median, stands_out_above};
use crate::probe::subject::{PAGE_BYTES, Subject};
use ahead_sys::{cache, machine};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Length of a sparse file, bytes: larger than any block.
const SPARSE_BYTES: u64 = 1 << 21;
/// Block sizes of ext2 and ext3, bytes.
const BLOCKS: [u64; 3] = [1024, 2048, 4096];
/// Number of tested pages: the second indirect block of the largest block size comes before page 1036.
const LAYOUT_PAGES: u64 = 1100;
/// Number of runs whose times are compared, as in Pelouin's paper.
const RUNS: usize = 16;
/// Number of pages in these runs.
const TIMED_PAGES: u64 = 24;
/// A page is slow if its time exceeds the median by this number of median absolute deviations.
const STANDS_OUT: f64 = 8.0;
/// Maximum number of pages that are slow for other reasons; with more of them, the times give no answer.
const OTHERS: usize = 2;

/// The results for the layout.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Block size of the file system, bytes.
    pub block_size: Answer,
    /// Number of direct blocks in an inode.
    pub direct_blocks: Answer,
    /// File offsets before which an indirect block is read, bytes.
    pub indirect_at: Vec<u64>,
    /// Confidence and method of these offsets.
    pub indirect_by: How,
}

impl Layout {
    /// Results without values, with the reason.
    pub(crate) fn unknown(why: &str) -> Layout {
        let (block_size, direct_blocks) = (Answer::none("bytes", why), Answer::none("blocks", why));
        Layout { block_size, direct_blocks, indirect_at: Vec::new(), indirect_by: How::none(why) }
    }
}

/// Measures the layout.
pub fn find(run: &Run) -> Result<Layout> {
    run.watcher.go_on("block size and layout")?;
    let (asked, pointers) = match run.subject.is_timing_only() {
        false => (block_size(run)?, counted_pointers(run)?),
        true => (Answer::none("bytes", "pages hide it: a page is read as a whole"), timed_pointers(run)?),
    };
    Ok(conclude(asked, pointers))
}

/// The file offsets before which indirect blocks are read, bytes; or why they are unknown.
type Pointers = std::result::Result<(Vec<u64>, String, f64), String>;

fn conclude(asked: Answer, pointers: Pointers) -> Layout {
    let (at, method, confidence) = match pointers {
        Ok(found) => found,
        Err(why) => {
            return Layout { block_size: asked, ..Layout::unknown(&why) };
        }
    };
    // The place of the second indirect block determines the block size: 12 + block / 4 blocks.
    let fits = |block: &&u64| {
        at.first() == Some(&(12 * **block)) && at.get(1).is_none_or(|second| *second == (12 + **block / 4) * **block)
    };
    let by_pointers = BLOCKS.iter().find(fits).copied();
    let block = asked.whole().or(by_pointers);
    let direct_blocks = match (at.first(), block) {
        (Some(first), Some(block)) if first % block == 0 => {
            Answer { confidence: Some(confidence), ..Answer::counted(first / block, "blocks", (0, 0), method.clone()) }
        }
        (None, _) => Answer::none("blocks", none_read(&method)),
        _ => Answer::none(
            "blocks",
            format!("{method}: a block of pointers is read at {at:?} bytes, which no layout of direct blocks explains"),
        ),
    };
    let block_size = match (asked.value, by_pointers) {
        (None, Some(block)) => {
            Answer { confidence: Some(confidence), ..Answer::counted(block, "bytes", (0, 0), method.clone()) }
        }
        _ => asked,
    };
    let indirect_by = match at.is_empty() {
        true => How::none(none_read(&method)),
        false => How { confidence: Some(confidence), method },
    };
    Layout { block_size, direct_blocks, indirect_at: at, indirect_by }
}

/// The reason if no indirect block was read. Before Linux 5.14, no call makes a journal release its blocks.
fn none_read(method: &str) -> String {
    format!(
        "{method}: no block of pointers is read in the first {LAYOUT_PAGES} pages: extents, or blocks that a journal holds in memory"
    )
}

/// The hole after the first byte of a file begins at the end of its block.
fn block_size(run: &Run) -> Result<Answer> {
    let Some(directory) = run.subject.directory() else {
        return Ok(Answer::none("bytes", "only a directory lets us make the file that shows it"));
    };
    let io = |what: &'static str| move |e: std::io::Error| Error::io(what, e);
    let mut file = crate::probe::subject::nameless(directory).map_err(|e| Error::io("make a test file", e))?;
    file.set_len(SPARSE_BYTES).map_err(io("size a test file"))?;
    file.write_all(&[1]).and_then(|()| file.sync_all()).map_err(io("write a test file"))?;
    // Data in the inode itself (`inline_data` of ext4) is neither data nor a hole; the query fails.
    let hole = ahead_sys::sparse::next_data(&file, 0).ok().flatten();
    let allocated = 512 * file.metadata().map_err(io("look at a test file"))?.blocks();
    Ok(match hole {
        Some((0, hole)) if hole < SPARSE_BYTES => {
            Answer::counted(hole, "bytes", (1, 1), "SEEK_HOLE: where the hole begins behind the first byte of a file")
        }
        _ if allocated > 0 && allocated < SPARSE_BYTES && allocated.is_power_of_two() => {
            Answer::counted(allocated, "bytes", (1, 1), "what a file of one byte takes")
        }
        _ => Answer::none("bytes", "the file system tells of no holes, or keeps a byte in the inode"),
    })
}

/// Why there is no block device whose cache holds the metadata, so that the probe can neither count nor evict them.
fn no_device(subject: &Subject) -> Result<&'static str> {
    Ok(match subject.device_number()? {
        _ if subject.is_device() => "a device has no files whose blocks could be looked for",
        number if number.is_anonymous() => {
            "its file system names no block device (btrfs, overlays, FUSE, network), whose cache holds its metadata"
        }
        _ if machine::is_root() => {
            "the block device cannot be read here, even by root (no node in /dev, or a container's rules), whose cache holds \
             the metadata"
        }
        _ => "the block device cannot be read, whose cache holds the metadata (it needs root, and a node in /dev)",
    })
}

/// Reads page by page, and counts the cached pages of the block device.
fn counted_pointers(run: &Run) -> Result<Pointers> {
    let subject = run.subject;
    let Some(device) = subject.block_device().filter(|_| !subject.is_device()) else {
        return Ok(Err(no_device(subject)?.into()));
    };
    if let Some(why) = subject.missing() {
        return Ok(Err(why.to_owned()));
    }
    let device = File::open(device).map_err(|e| Error::io(format!("open {}", device.display()), e))?;
    let count = || cache::cachestat(&device, 0, u64::MAX >> 1).map(|stat| stat.cached_pages);
    let mut runs = Vec::new();
    for _ in 0..2 {
        if !subject.make_metadata_cold(run.watcher)? {
            return Ok(Err("evicting metadata is not permitted (needs root)".into()));
        }
        let reader = subject.open_exact()?;
        subject.read_page(&reader, 0)?;
        let (mut before, mut at) = (count()?, Vec::new());
        for page in 1..LAYOUT_PAGES.min(subject.pages()) {
            run.watcher.go_on("block layout")?;
            subject.read_page(&reader, page)?;
            let now = count()?;
            if now > before {
                at.push(page * PAGE_BYTES);
            }
            before = now;
        }
        runs.push(at);
    }
    let method = "cachestat of the block device: a page of it is read with these pages of the file".to_owned();
    // Metadata reads of other programs on the same device differ between runs.
    Ok(if runs[0] == runs[1] {
        Ok((runs.swap_remove(0), method, agreement(2, 2)))
    } else {
        Err(format!("{method}: two runs differ, something else reads there"))
    })
}

/// Reads page by page with cold metadata, and compares times.
fn timed_pointers(run: &Run) -> Result<Pointers> {
    let subject = run.subject;
    if subject.block_device().is_none() || subject.is_device() {
        return Ok(Err(no_device(subject)?.into()));
    }
    if let Some(why) = subject.missing() {
        return Ok(Err(why.to_owned()));
    }
    let mut times = vec![Vec::new(); TIMED_PAGES as usize];
    for _ in 0..RUNS {
        run.watcher.go_on("block layout")?;
        if !subject.make_metadata_cold(run.watcher)? {
            return Ok(Err("evicting metadata is not permitted (needs root)".into()));
        }
        let reader = subject.open_exact()?;
        for (page, times) in times.iter_mut().enumerate() {
            times.push(subject.read_page(&reader, page as u64)? as f64);
        }
    }
    let method =
        format!("timing: a page that takes longer than others of {TIMED_PAGES}, in {RUNS} runs with cold metadata");
    Ok(match slow_page(&times) {
        Ok((page, slow)) => Ok((vec![page * PAGE_BYTES], method, agreement(slow, RUNS as u64))),
        Err(why) => Err(format!("{method}: {why}")),
    })
}

/// The page before which an indirect block is read, by the times of each page, and the number of runs in which it was slow. Any page may
/// be slow at random. So the function accepts only a page at the end of the twelve direct blocks of a block size.
fn slow_page(times: &[Vec<f64>]) -> std::result::Result<(u64, u64), String> {
    // With any layout the first page waits for the arm.
    let medians: Vec<f64> = times[1..].iter().map(|times| median(times)).collect();
    let above = stands_out_above(&medians, STANDS_OUT);
    let slow: Vec<u64> = (1..).zip(&medians).filter(|(_, ns)| **ns > above).map(|(page, _)| page).collect();
    let possible = BLOCKS.map(|block| 12 * block / PAGE_BYTES);
    let (theirs, others): (Vec<u64>, Vec<u64>) = slow.iter().partition(|page| possible.contains(page));
    let runs = |page: u64| times[page as usize].iter().filter(|ns| **ns > above).count() as u64;
    match (&theirs[..], others.len()) {
        ([], 0) => Err("none stands out".to_owned()),
        ([page], ..=OTHERS) if runs(*page) * 4 >= 3 * times[*page as usize].len() as u64 => Ok((*page, runs(*page))),
        _ => Err(format!("pages {slow:?} stand out, which no direct blocks explain")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(asked: Option<u64>, at: &[u64]) -> (Option<u64>, Option<u64>) {
        let asked = asked.map_or(Answer::none("bytes", ""), |bytes| Answer::counted(bytes, "bytes", (1, 1), ""));
        let layout = conclude(asked, Ok((at.to_vec(), String::new(), 0.8)));
        (layout.block_size.whole(), layout.direct_blocks.whole())
    }

    #[test]
    fn twelve_direct_blocks_are_found_for_each_block_size() {
        for block in BLOCKS {
            let at = [12 * block, (12 + block / 4) * block];
            assert_eq!(found(None, &at), (Some(block), Some(12)));
            assert_eq!(found(Some(block), &at), (Some(block), Some(12)));
        }
    }

    #[test]
    fn extents_and_unusual_places_give_no_direct_blocks() {
        assert_eq!(found(Some(4096), &[]), (Some(4096), None));
        assert_eq!(found(Some(4096), &[5000]), (Some(4096), None));
        assert_eq!(found(None, &[5 * 4096]), (None, None));
    }

    /// Regression: one slow page hid the indirect block, and any slow page had a confidence of 100 %.
    #[test]
    fn second_slow_page_does_not_hide_the_indirect_block() {
        let slow_at = |slow: &[usize]| -> Vec<Vec<f64>> {
            let took = |page: usize, run: usize| match slow.contains(&page) {
                true => 90_000.0 + 1000.0 * page as f64,
                false => 10_000.0 + 50.0 * (run % 5) as f64,
            };
            (0..TIMED_PAGES as usize).map(|page| (0..RUNS).map(|run| took(page, run)).collect()).collect()
        };
        assert_eq!(slow_page(&slow_at(&[12])), Ok((12, RUNS as u64)));
        assert_eq!(slow_page(&slow_at(&[12, 17])), Ok((12, RUNS as u64)));
        for no_layout in [vec![], vec![17], vec![3, 12], vec![1, 5, 12, 17, 20]] {
            assert!(slow_page(&slow_at(&no_layout)).is_err(), "{no_layout:?}");
        }
        assert!(agreement(RUNS as u64, RUNS as u64) < 0.95);
    }
}

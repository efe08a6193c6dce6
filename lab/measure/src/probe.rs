//! Finds the parameters of a disk and a kernel from outside. The sources are timed reads, the state of the page cache (cachestat), and
//! the layout of files (SEEK_HOLE, FIEMAP). No answer depends on a setting or a superblock: only [`verify`] reads them, for a comparison with
//! the answers.
//!
//! In: a directory, a file or a block device. Out: [`Answers`], each with its confidence and method, or with the reason why it has no
//! value. Also a model of the disk, its *twin*, for the simulator and the emulated disk.
//!
//! ```text
//!                ┌─ window    sequential reads: first window, growth, window, trigger; WILLNEED
//!     Subject ───┼─ mapped    page faults: pages read around them, pages that they map
//!     (the file) ├─ layout    block size, direct and indirect blocks
//!                └─ disk      access time, seeks, rotation, bandwidth, parallelism, limits ──▶ twin (ahead-device)
//! ```
//!
//! The method is Pelouin's (*Investigating ext2 optimizations in Linux*, 2009): he found read-ahead, block size and layout from the times
//! of reads alone. A probe does not guess: an answer without a value has the reason.
//!
//! This crate must never write anything but its test file, or leave a file behind. It must never report a setting as a finding, or use a
//! device that another process uses.

pub mod answer;
mod cold;
mod cold_check;
mod data;
pub mod disk;
mod error;
mod eyes;
pub mod figures;
pub mod layout;
mod mapped;
mod node;
mod retention;
mod statistics;
mod subject;
pub mod twin;
pub mod verify;
mod window;

use answer::NOT_ASKED;
pub use answer::{Answer, How, Value};
pub use error::{Error, Result};
pub use subject::{PAGE_BYTES, Subject};
pub use window::Windows;

use eyes::Eyes;
use layout::Layout;
use serde::Serialize;
use std::time::Duration;

/// Receives the progress of a probe, and may end it.
pub trait Watcher {
    /// Called when a part of the probe begins or continues.
    ///
    /// Errors: [`Error::Stopped`] ends the probe.
    fn go_on(&self, what: &str) -> Result<()>;
}

/// The context of all measurements.
pub struct Run<'a> {
    /// The file or device under test.
    pub subject: &'a Subject,
    /// Receives the progress.
    pub watcher: &'a dyn Watcher,
}

/// All results of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    /// The file system's block size, bytes.
    pub block_size: Answer,
    /// Windows of a sequential reader.
    #[serde(flatten)]
    pub windows: Windows,
    /// Bytes that the kernel reads on a fault of an absent page.
    pub read_around: Answer,
    /// Bytes that a fault of a cached page maps.
    pub fault_around: Answer,
    /// Number of bytes after whose reading the first bytes are evicted from the page cache.
    pub page_cache: Answer,
    /// Number of direct blocks in an inode of ext2 or ext3.
    pub direct_blocks: Answer,
    /// File offsets before which an indirect block is read, bytes.
    pub indirect_at: Vec<u64>,
    /// Confidence and method of these offsets.
    pub indirect_by: How,
    #[serde(flatten)]
    pub disk: disk::Found,
}

/// A part of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Windows of a sequential reader, explicit requests, and the read-ahead around a fault.
    Windows,
    /// The pages that a fault of a cached page maps.
    Faults,
    /// The number of bytes after which cached data is evicted; the probe reads for this time, or until it finds the number.
    Cache(Option<Duration>),
    /// Block size, direct and indirect blocks.
    Layout,
    /// The disk itself.
    Disk,
}

/// Probes these parts.
///
/// Errors: a read failed, or the watcher ended the probe.
pub fn find(run: &Run, parts: &[Part]) -> Result<Answers> {
    let is_asked = |part| parts.contains(&part);
    let limit = parts.iter().find_map(|part| match part {
        Part::Cache(limit) => Some(*limit),
        _ => None,
    });
    let eyes = match is_asked(Part::Windows) || limit.is_some() {
        true => Eyes::open(run)?,
        false => Err(NOT_ASKED.to_owned()),
    };
    let (windows, read_around) = match (&eyes, is_asked(Part::Windows)) {
        (Ok(eyes), true) => windows(run, *eyes)?,
        (Err(why), true) => no_windows(why),
        _ => no_windows(NOT_ASKED),
    };
    let page_cache = match (&eyes, limit) {
        (Ok(eyes), Some(limit)) => retention::find(run, *eyes, limit)?,
        (Err(why), Some(_)) => Answer::none("bytes", why),
        _ => Answer::none("bytes", NOT_ASKED),
    };
    let layout = if is_asked(Part::Layout) { layout::find(run)? } else { Layout::unknown(NOT_ASKED) };
    let fault_around = match is_asked(Part::Faults) {
        true => mapped::fault_around(run)?,
        false => Answer::none("bytes", NOT_ASKED),
    };
    let disk = if is_asked(Part::Disk) { disk::find(run)? } else { disk::Found::unknown(NOT_ASKED) };
    Ok(Answers {
        block_size: layout.block_size,
        windows,
        read_around,
        fault_around,
        page_cache,
        direct_blocks: layout.direct_blocks,
        indirect_at: layout.indirect_at,
        indirect_by: layout.indirect_by,
        disk,
    })
}

fn windows(run: &Run, eyes: Eyes) -> Result<(Windows, Answer)> {
    if window::brings_blocks(run, eyes)? {
        return Ok(no_windows(window::BRINGS_BLOCKS));
    }
    let mut windows = window::find(run, eyes)?;
    let read_around = mapped::read_around(run, eyes)?;
    if run.subject.is_timing_only() {
        windows.doubt(&read_around, run.subject.is_served()?);
    }
    Ok((windows, read_around))
}

fn no_windows(why: &str) -> (Windows, Answer) {
    (Windows::unknown(why), Answer::none("bytes", why))
}

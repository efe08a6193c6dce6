//! The types of a profile. Offsets and lengths are in bytes, times in microseconds since the program's exec.

use crate::timeline::{Timeline, WarmUse};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A path as in the kernel: any bytes but NUL, not necessarily UTF-8.
pub type PathBytes = Vec<u8>;

/// What was learned about one program's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// How it was recorded.
    pub recording: Recording,
    /// The files that were read, in order of first use.
    pub files: Vec<File>,
    /// The metadata blocks that were read for the program, one entry per block device.
    pub metadata: Vec<Metadata>,
    /// Paths that the program looked up (open, stat, access, readlink, exec), in order of first use. If metadata is not in the
    /// block device's page cache (XFS, btrfs), looking the paths up again prefetches it.
    pub lookups: Vec<Lookup>,
    /// Events that show the progress of the program, in order of time.
    pub milestones: Vec<Milestone>,
    /// The program's own timeline, without waits for the disk. `None`: unknown, as without BPF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Box<Timeline>>,
}

/// How a profile was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The command, one entry per argument.
    pub command: Vec<Vec<u8>>,
    /// Working directory of the command.
    pub directory: PathBytes,
    /// Start of the (last) recording, seconds since 1970.
    pub created_unix_s: u64,
    /// `uname -r` of the kernel.
    pub kernel: String,
    /// Architecture, processors and memory as text: `x86_64, 2 CPUs, 24 GiB`.
    pub machine: String,
    /// The event sources as text: `tp_btf mm_filemap_get_pages+mm_filemap_fault`.
    pub source: String,
    /// Whether extents are exact or an upper bound.
    pub precision: Precision,
    /// Whether data, block-device pages, dentries and inodes were evicted before the run.
    pub cold: bool,
    /// Whether metadata reads were recorded (a warm recording has none).
    pub metadata_seen: bool,
    /// Events that the tracer lost, over all runs. If not 0, the profile is incomplete.
    pub lost_events: u64,
    /// Runs merged into this profile.
    pub runs: u32,
    /// Time from exec to the end (or readiness) of the last run.
    pub duration_us: u64,
    /// Processor time (user and system) of the program and its descendants in the last run; 0: unknown.
    pub cpu_us: u64,
    /// `read_ahead_kb` of the devices while recording (0 where read-ahead was switched off).
    pub read_ahead_kb: u64,
    /// The directory below which the files were when recorded, of an image or a container: all paths are relative to it, with a leading
    /// slash. Empty: the root directory of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub root: PathBytes,
    /// Access times and rates of the devices, measured after a cold recording of a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceTimes>,
}

/// Access times of a device, medians of single reads, and its rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTimes {
    /// Device number of the superblock, as [`File::device`].
    pub device: u64,
    /// Time of a small read far from the one before, nanoseconds.
    pub far_ns: u64,
    /// Time of a small read a little after the one before, nanoseconds.
    pub near_ns: u64,
    /// Time that each small read adds while many are in flight, nanoseconds: the inverse of the device's requests per second. 0: not measured,
    /// because the device seeks.
    pub request_ns: u64,
    /// Rate of a sequential read, bytes per second. 0: not measured.
    pub bandwidth_bytes_per_s: u64,
}

impl Recording {
    /// Whether each page was read by itself, when it was used: a cold recording with read-ahead off. Then times between uses are times of
    /// the device.
    pub fn is_without_read_ahead(&self) -> bool {
        self.cold && self.precision == Precision::Precise && self.read_ahead_kb == 0
    }
}

/// Whether the extents of a profile are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// Recorded cold, with the read-ahead of every device involved at 0, or with one page for each fault and with accesses to cached pages:
    /// the extents are exactly the pages used.
    Precise,
    /// Read-ahead or fault-around were enabled: the extents contain the pages used, and some others.
    #[default]
    UpperBound,
}

/// One file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The path by which the recorder can open the file. For a file in an overlay's lower layer it is the path in that layer;
    /// for a file in a chroot, the path outside.
    pub path: PathBytes,
    /// The path that the program used, if it differs from `path` (overlay, chroot, bind mount, container).
    pub seen_path: Option<PathBytes>,
    /// The path from the root of its file system (of the superblock, not of a mount or subvolume).
    pub fs_path: PathBytes,
    /// File system type, `ext4`.
    pub fs_type: String,
    /// Device number of the kernel's superblock, `(major << 32) | minor`: distinguishes file systems within one profile, not
    /// across reboots.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size when recorded.
    pub size_bytes: u64,
    /// Modification time when recorded, nanoseconds since 1970 (negative before).
    pub mtime_ns: i64,
    /// Whether the file was unlinked before the recording ended: it is accounted for, and never prefetched.
    pub deleted: bool,
    /// Recordings found the same inode and size, and another modification time: a program writes this file in place (a journal, a
    /// database). What is read of it depends on its layout, so its modification time is not compared.
    pub in_place: bool,
    /// Used ranges, in order of first use. Page-aligned, except that the last page is clipped to the end of the file.
    pub extents: Vec<Extent>,
    /// What the used ranges contained; `None`: unknown. It shows whether the extents still apply to a file that replaced this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Box<ContentCheck>>,
}

/// Digests of a file's content. CRC-32: a wrong match costs a prefetch without use, never correctness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentCheck {
    /// Of the layout of an ELF file; 0: another file, or unknown.
    pub layout: u32,
    /// Of each piece: the used ranges in ascending order, cut at multiples of [`PIECE_BYTES`]; 0: unknown.
    pub pieces: Vec<u32>,
}

/// Used ranges are cut at multiples of this size, so that a change of one page (as of the build-id) costs the check of four pages.
pub const PIECE_BYTES: u64 = 16 << 10;

/// Maximum number of pieces of one file: 1 GiB of used ranges. A larger file has no content check.
pub const MAX_PIECES: usize = 1 << 16;

/// A range that was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Start in the file (or on the device, for metadata).
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// First use since exec; for several runs, the median of those that used it.
    pub first_use_us: u64,
    /// Number of recorded runs that used it.
    pub runs: u32,
    /// Position of its first byte on the block device when recorded, if the file system reports it (FIEMAP). Only for ordering: a
    /// wrong value costs time, never correctness.
    pub physical_bytes: Option<u64>,
    /// The first use on the program's own timeline; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_use: Option<WarmUse>,
}

/// Metadata blocks of one block device, from the page cache of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The device node when recorded, `/dev/loop0`. It may change: the device is found again by `mount_point`.
    pub device_path: PathBytes,
    /// The mount point of the file system when recorded.
    pub mount_point: PathBytes,
    /// File system type, `ext4`.
    pub fs_type: String,
    /// Device number, `(major << 32) | minor`.
    pub device: u64,
    /// Used blocks, in order of first use; `physical_bytes` equals `offset_bytes`.
    pub extents: Vec<Extent>,
}

/// A path that was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The path by which the recorder can look it up. A slice of the loaded file, as there may be tens of thousands.
    pub path: Bytes,
    /// Inode number; 0: the lookup failed (it is repeated for its negative answer).
    pub inode: u64,
    /// Device number, `(major << 32) | minor`.
    pub device: u64,
    /// Whether the program listed it (a directory).
    pub listed: bool,
    /// First lookup since exec.
    pub first_use_us: u64,
    /// The same with everything cached; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_use_us: Option<u64>,
}

/// An event that shows the progress of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    /// Time since exec.
    pub time_us: u64,
    /// The kind of event.
    pub kind: MilestoneKind,
    /// The file.
    pub path: PathBytes,
    /// Time since exec with everything cached; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_us: Option<u64>,
}

/// Kinds of milestones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MilestoneKind {
    /// A program was executed.
    Exec,
    /// A file was used for the first time.
    #[default]
    FirstOpen,
    /// The requested end (`--until-…`) was reached.
    Ready,
}

impl Recording {
    /// Whether the extents are exactly the pages that were used.
    pub fn is_exact(&self) -> bool {
        self.precision == Precision::Precise && self.lost_events == 0
    }
}

impl Extent {
    /// Its bytes. Those of an unchecked profile end at 2^64 at most.
    pub fn range(&self) -> Range<u64> {
        self.offset_bytes..self.end_bytes()
    }

    /// The end of its bytes.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    /// Whether fewer than half of the recorded runs used it: then it is prefetched last.
    pub fn is_seldom(&self, recorded_runs: u32) -> bool {
        u64::from(self.runs) * 2 < u64::from(recorded_runs)
    }
}

impl File {
    /// Bytes used of this file.
    pub fn used_bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.length_bytes).sum()
    }

    /// Whether a regular file with this size, modification time and inode is taken for the recorded one.
    pub fn is_recorded(&self, size_bytes: u64, mtime_ns: i64, inode: u64) -> bool {
        self.size_bytes == size_bytes && (self.mtime_ns == mtime_ns || self.in_place && self.inode == inode)
    }

    /// Whether both are one version of a file, which may have been written in place between the recordings.
    pub fn is_version_of(&self, other: &File) -> bool {
        let is_same_inode = self.inode == other.inode && self.inode != 0;
        self.size_bytes == other.size_bytes && (self.mtime_ns == other.mtime_ns || is_same_inode)
    }
}

impl Profile {
    /// Removes the timeline, and the uses that refer to its threads. Times with everything cached stay where they refer to none.
    pub fn remove_timeline(&mut self) {
        self.timeline = None;
        let files = self.files.iter_mut().flat_map(|file| &mut file.extents);
        files.chain(self.metadata.iter_mut().flat_map(|device| &mut device.extents)).for_each(|e| e.warm_use = None);
    }

    /// When the program was ready, as the recording asked for. What was used later is fetched after the rest. `None`: it was not asked for.
    pub fn ready_us(&self) -> Option<u64> {
        let ready = self.milestones.iter().filter(|milestone| milestone.kind == MilestoneKind::Ready);
        ready.map(|milestone| milestone.time_us).max()
    }

    /// Bytes of file data used, all files.
    pub fn data_bytes(&self) -> u64 {
        self.files.iter().map(File::used_bytes).sum()
    }

    /// Bytes of metadata blocks used, all devices.
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata.iter().flat_map(|m| &m.extents).map(|e| e.length_bytes).sum()
    }
}

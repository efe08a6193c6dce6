//! The types of a profile. Offsets and lengths are bytes, times are microseconds since the program's exec.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A path as the kernel has it: any bytes but NUL, not necessarily UTF-8.
pub type PathBytes = Vec<u8>;

/// Everything that was learned about one program's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Where, how and by what this was recorded.
    pub recording: Recording,
    /// The files that were read, in order of first use.
    pub files: Vec<File>,
    /// The metadata blocks that were read on the program's behalf, one entry per block device.
    pub metadata: Vec<Metadata>,
    /// Paths that the program looked up (open, stat, access, readlink, exec), read or not, in order of first use.
    /// Where metadata does not live in the block device's page cache (XFS, btrfs) looking these up again is how it
    /// is fetched.
    pub lookups: Vec<Lookup>,
    /// Events that tell how far the program has come, in order of time.
    pub milestones: Vec<Milestone>,
}

/// Where, how and by what a profile was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The command, one entry per argument.
    pub command: Vec<Vec<u8>>,
    /// Working directory of the command.
    pub directory: PathBytes,
    /// When the (last) recording began, seconds since 1970.
    pub created_unix_s: u64,
    /// `uname -r` of the kernel.
    pub kernel: String,
    /// Architecture, processors and memory, for people: `x86_64, 2 CPUs, 24 GiB`.
    pub machine: String,
    /// What the events came from: `tp_btf mm_filemap_get_pages+mm_filemap_fault`, for people.
    pub source: String,
    /// Whether extents are what was used or an upper bound of it.
    pub precision: Precision,
    /// Whether data, block-device pages, dentries and inodes were evicted before the run.
    pub cold: bool,
    /// Whether metadata reads were seen (a warm recording sees none).
    pub metadata_seen: bool,
    /// Events that the tracer dropped, over all runs. Not zero: the profile is incomplete.
    pub lost_events: u64,
    /// Runs merged into this profile.
    pub runs: u32,
    /// From exec to the end (or readiness) of the last run.
    pub duration_us: u64,
    /// Processor time of the program and all that it started (user and system), in the last run; 0: not known.
    pub cpu_us: u64,
    /// `read_ahead_kb` of the devices while recording (0 in a precise recording).
    pub read_ahead_kb: u64,
}

/// Whether the extents of a profile are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// Recorded cold with the read-ahead of every device involved at 0: the extents are the pages used, no more.
    Precise,
    /// Read-ahead or fault-around were on: the extents contain what was used, and some that was not.
    #[default]
    UpperBound,
}

/// One file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The path by which the file can be opened from where the recording was made (of a file in an overlay's lower
    /// layer: its path in that layer; of a file in a chroot: its path outside).
    pub path: PathBytes,
    /// The path that the program used, where it differs from `path` (overlay, chroot, bind mount, container).
    pub seen_path: Option<PathBytes>,
    /// The path from the root of its file system (of the superblock, not of a mount or subvolume).
    pub fs_path: PathBytes,
    /// File system type, `ext4`.
    pub fs_type: String,
    /// Device number as the kernel's superblock has it, `(major << 32) | minor`: tells file systems apart within one
    /// profile, not across reboots.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size when recorded.
    pub size_bytes: u64,
    /// Modification time when recorded, nanoseconds since 1970 (negative before).
    pub mtime_ns: i64,
    /// The file had no name any more when the recording ended: it is accounted, never fetched.
    pub deleted: bool,
    /// What was used of it, in order of first use. Page-aligned, except that the last page is cut at the file's end.
    pub extents: Vec<Extent>,
}

/// A range that was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Start in the file (or on the device, for metadata).
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// First use since exec; of several runs, the median of those that used it.
    pub first_use_us: u64,
    /// How many of the recorded runs used it.
    pub runs: u32,
    /// Where its first byte lay on the block device when recorded, if the file system tells (FIEMAP). For order
    /// only: a wrong value costs time, never correctness.
    pub physical_bytes: Option<u64>,
}

/// Metadata blocks of one block device, as seen in that device's own page cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The device node when recorded, `/dev/loop0`. It may change: `mount_point` and `fs_uuid` find it again.
    pub device_path: PathBytes,
    /// Where the file system was mounted when recorded.
    pub mount_point: PathBytes,
    /// File system type, `ext4`.
    pub fs_type: String,
    /// Device number, `(major << 32) | minor`.
    pub device: u64,
    /// Blocks used, in order of first use; `physical_bytes` equals `offset_bytes`.
    pub extents: Vec<Extent>,
}

/// A path that was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The path by which it can be reached from where the recording was made; a part of the file that it was loaded from,
    /// as there may be tens of thousands.
    pub path: Bytes,
    /// Inode number; 0: nothing was there (a failed lookup, fetched for its negative answer).
    pub inode: u64,
    /// Device number, `(major << 32) | minor`.
    pub device: u64,
    /// The program listed it (a directory).
    pub listed: bool,
    /// First lookup since exec.
    pub first_use_us: u64,
}

/// An event that tells how far the program has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    /// When, since exec.
    pub time_us: u64,
    /// What happened.
    pub kind: MilestoneKind,
    /// The file concerned.
    pub path: PathBytes,
}

/// Kinds of milestones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MilestoneKind {
    /// A program was executed.
    Exec,
    /// A file was used for the first time.
    #[default]
    FirstOpen,
    /// The end that was asked for (`--until-…`) was reached.
    Ready,
}

impl Recording {
    /// Whether the extents are exactly the pages that were used.
    pub fn is_exact(&self) -> bool {
        self.precision == Precision::Precise && self.lost_events == 0
    }
}

impl Extent {
    /// Whether fewer than half of the recorded runs used it: it is fetched after everything else.
    pub fn is_seldom(&self, recorded_runs: u32) -> bool {
        u64::from(self.runs) * 2 < u64::from(recorded_runs)
    }
}

impl File {
    /// Bytes used of this file.
    pub fn used_bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.length_bytes).sum()
    }
}

impl Profile {
    /// Bytes of file data used, all files.
    pub fn data_bytes(&self) -> u64 {
        self.files.iter().map(File::used_bytes).sum()
    }

    /// Bytes of metadata blocks used, all devices.
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata.iter().flat_map(|m| &m.extents).map(|e| e.length_bytes).sum()
    }
}

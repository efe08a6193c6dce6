//! The file systems of disks: makes one on a disk, and detects one on an image.

use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext2, without a journal.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    Xfs,
    Btrfs,
}

impl Filesystem {
    /// The name, as in mount(8).
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext2 => "ext2",
            Filesystem::Ext3 => "ext3",
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Filesystem::Ext2 | Filesystem::Ext3 | Filesystem::Ext4 => "e2fsprogs",
            Filesystem::Xfs => "xfsprogs",
            Filesystem::Btrfs => "btrfs-progs",
        }
    }

    /// The smallest disk for this file system, bytes. mkfs.xfs refuses less than 300 MB since xfsprogs 5.19, mkfs.btrfs less than 109
    /// MiB. ext4 in 1 MiB would have no space for a file.
    pub fn min_bytes(self) -> u64 {
        match self {
            Filesystem::Ext2 | Filesystem::Ext3 | Filesystem::Ext4 => 8 << 20,
            Filesystem::Xfs => 300 << 20,
            Filesystem::Btrfs => 128 << 20,
        }
    }

    /// Finds the path of the file system's mkfs. The error names the package to install.
    pub fn mkfs(self) -> Result<PathBuf> {
        let program = format!("mkfs.{}", self.name());
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Users' PATH lacks the sbin directories on some systems.
        let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        directories.map(|directory| directory.join(&program)).find(|path| path.is_file()).ok_or_else(|| {
            Error::Kernel(ahead_sys::Error::Unsupported {
                what: format!("a disk with {}", self.name()),
                why: format!("{program} is missing; install it with: sudo apt-get install {}", self.package()),
            })
        })
    }

    /// The mount options for this image. They override the settings in the image, which is untrusted: an error in the image must not stop
    /// the machine (`errors=panic`).
    pub fn mount_options(self, image: &File) -> Result<&'static str> {
        if matches!(self, Filesystem::Xfs | Filesystem::Btrfs) {
            return Ok("");
        }
        let mut errors = [0; 2];
        image.read_exact_at(&mut errors, EXT_ERRORS_OFFSET).map_err(|e| Error::io("read the image", e))?;
        Ok(if errors == EXT_ERRORS_CONTINUE { "errors=continue" } else { "errors=remount-ro" })
    }

    /// Makes the file system on a device.
    pub fn make(self, device: &Path) -> Result<()> {
        let mut command = Command::new(self.mkfs()?);
        match self {
            // Otherwise the kernel would write the inode tables and the journal later, in the background, and disturb measurements.
            Filesystem::Ext2 | Filesystem::Ext3 | Filesystem::Ext4 => {
                command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            }
            Filesystem::Xfs | Filesystem::Btrfs => command.args(["-q", "-f"]),
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let output =
            command.arg(device).stdin(Stdio::null()).output().map_err(|e| Error::io(format!("run {program}"), e))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("without a message");
        Err(Error::Invalid(format!("{program} failed on {}: {last}", device.display())))
    }
}

/// Offset of the behaviour on errors in the superblock of an extended file system (`s_errors`, fs/ext4/ext4.h), bytes.
const EXT_ERRORS_OFFSET: u64 = 0x43C;
/// Continue (`EXT4_ERRORS_CONTINUE`). The other values are: allow no more writes; panic.
const EXT_ERRORS_CONTINUE: [u8; 2] = [1, 0];

/// Features of the extended file systems, in the superblock: a journal makes ext3 of ext2.
const EXT_HAS_JOURNAL: u32 = 0x4;
/// Extents, 64-bit block numbers, flexible groups: features of ext4 only.
const EXT4_INCOMPATIBLE: u32 = 0x40 | 0x80 | 0x200;

/// Detects the file system on an image from its superblock; `None`: none of the supported ones.
pub fn detect(image: &File) -> Result<Option<Filesystem>> {
    let mut head = vec![0; 65_536 + 4096];
    let mut filled = 0;
    while filled < head.len() {
        match image.read_at(&mut head[filled..], filled as u64).map_err(|e| Error::io("read the image", e))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(detect_in(&head))
}

fn detect_in(head: &[u8]) -> Option<Filesystem> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    let word = |offset: usize| head.get(offset..offset + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    if at(0, b"XFSB") {
        return Some(Filesystem::Xfs);
    }
    if at(0x1_0040, b"_BHRfS_M") {
        return Some(Filesystem::Btrfs);
    }
    if !at(0x438, &[0x53, 0xEF]) {
        return None;
    }
    let (compatible, incompatible) = (word(0x45C)?, word(0x460)?);
    Some(match (incompatible & EXT4_INCOMPATIBLE != 0, compatible & EXT_HAS_JOURNAL != 0) {
        (true, _) => Filesystem::Ext4,
        (false, true) => Filesystem::Ext3,
        (false, false) => Filesystem::Ext2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn new_file_system_is_detected() {
        for filesystem in [Filesystem::Ext2, Filesystem::Ext3, Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
            let Ok(_) = filesystem.mkfs() else {
                eprintln!("skipped {}: no mkfs", filesystem.name());
                continue;
            };
            let image = tempfile::NamedTempFile::new().unwrap();
            image.as_file().set_len(filesystem.min_bytes()).unwrap();
            filesystem.make(image.path()).unwrap();
            assert_eq!(detect(image.as_file()).unwrap(), Some(filesystem));
        }
    }

    #[test]
    fn empty_image_has_no_file_system() {
        assert_eq!(detect(&tempfile::tempfile().unwrap()).unwrap(), None);
    }

    #[test]
    fn error_of_mkfs_is_one_line() {
        let image = tempfile::NamedTempFile::new().unwrap();
        if Filesystem::Ext4.mkfs().is_ok() {
            let error = Filesystem::Ext4.make(image.path()).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_superblock_causes_no_panic(head in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = detect_in(&head);
        }
    }
}

//! A program's file, as the kernel names it.

use ahead_model::DeviceNumber;

/// The numbers of an inode in the kernel. On btrfs and on overlay file systems, stat(2) may report others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramFile {
    pub device: DeviceNumber,
    pub inode: u64,
}

impl ProgramFile {
    /// `struct program_file`, and `struct wanted_program` of `bpf/maps.h`.
    pub(crate) fn key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.inode.to_ne_bytes());
        key[8..12].copy_from_slice(&self.device.to_kernel().to_ne_bytes());
        key
    }
}

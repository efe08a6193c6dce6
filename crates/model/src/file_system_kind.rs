//! What is known of each type of file system. One row holds it all, so a new type takes one row.

use Place::{Automounter, Disk, Kernel, Layers, Process, Server};

/// Where the data of a file system comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From a block device. Opening a file, closing one of several descriptors of it and listing a directory have no other effect.
    Disk,
    /// From directories of other file systems.
    Layers,
    /// From the kernel, which generates the files (`/proc`, `/sys`), or from memory: no page is worth reading ahead.
    Kernel,
    /// From a server on the network.
    Server,
    /// From a process (FUSE), or from the hypervisor (virtiofs).
    Process,
    /// From the file system that is mounted when it is asked for.
    Automounter,
    /// Not known.
    Unknown,
}

/// How an inode is named in a file handle (`enum fid_type` of linux/exportfs.h), beside its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeHandle {
    /// By 32 bits; generation 0 stands for any.
    Bits32,
    /// By 64 bits and the generation of now (XFS).
    Bits64,
}

/// Who reports the UUID of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uuid {
    /// No source that always answers.
    Unreported,
    Kernel,
    /// The kernel, in the form of udev's `ID_FS_UUID`.
    KernelAsUdev,
}

/// A type of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemKind {
    /// As in `/proc/filesystems`. `fuse` stands for `fuse.sshfs`, too.
    pub name: &'static str,
    /// `f_type` of statfs(2), from linux/magic.h or from the sources of the file system. `None`: not needed here.
    pub magic: Option<u32>,
    /// Where its data comes from.
    pub place: Place,
    /// The inode numbers are stored. Otherwise files are numbered again at each mount or lookup, or the numbers of layers are combined.
    pub stores_inode_numbers: bool,
    /// Its device number is not that of its block device, although it has one.
    pub has_own_device_number: bool,
    /// Its metadata is in the page cache of its block device.
    pub has_metadata_in_device_cache: bool,
    /// Physical addresses of extents (fiemap) are addresses of its block device.
    pub has_addresses_of_disk: bool,
    /// It can have folios of 2 MiB that a request fills: XFS since Linux 5.18, ext4 since 6.16.
    pub has_large_folios: bool,
    /// Who reports its UUID.
    pub uuid: Uuid,
    /// How an inode is opened by its number.
    pub inode_handle: Option<InodeHandle>,
}

impl FileSystemKind {
    const fn of_place(name: &'static str, magic: Option<u32>, place: Place) -> FileSystemKind {
        FileSystemKind {
            name,
            magic,
            place,
            stores_inode_numbers: matches!(place, Disk),
            has_own_device_number: false,
            has_metadata_in_device_cache: false,
            has_addresses_of_disk: false,
            has_large_folios: false,
            uuid: Uuid::Unreported,
            inode_handle: None,
        }
    }

    const fn disk(name: &'static str, magic: u32) -> FileSystemKind {
        Self::of_place(name, Some(magic), Disk)
    }

    const fn kernel(name: &'static str, magic: u32) -> FileSystemKind {
        Self::of_place(name, Some(magic), Kernel)
    }

    const fn other(name: &'static str, place: Place) -> FileSystemKind {
        Self::of_place(name, None, place)
    }

    const fn renumbered(self) -> FileSystemKind {
        FileSystemKind { stores_inode_numbers: false, ..self }
    }

    const fn with_own_device_number(self) -> FileSystemKind {
        FileSystemKind { has_own_device_number: true, ..self }
    }

    const fn with_addresses_of_disk(self) -> FileSystemKind {
        FileSystemKind { has_addresses_of_disk: true, ..self }
    }

    const fn with_large_folios(self) -> FileSystemKind {
        FileSystemKind { has_large_folios: true, ..self }
    }

    const fn with_uuid(self, uuid: Uuid) -> FileSystemKind {
        FileSystemKind { uuid, ..self }
    }

    const fn by_inode(self, handle: InodeHandle) -> FileSystemKind {
        FileSystemKind { inode_handle: Some(handle), ..self }
    }

    const fn ext(name: &'static str) -> FileSystemKind {
        let disk = Self::disk(name, 0xef53).with_addresses_of_disk();
        let ext = FileSystemKind { has_metadata_in_device_cache: true, ..disk };
        ext.with_uuid(Uuid::KernelAsUdev).by_inode(InodeHandle::Bits32)
    }

    /// The type with this name, as a mount table has it.
    pub fn named(name: &str) -> FileSystemKind {
        let name = name.split_once('.').map_or(name, |(kind, _)| if kind == "fuse" { kind } else { name });
        KINDS.into_iter().find(|kind| kind.name == name).unwrap_or(UNKNOWN)
    }

    /// The first type with this `f_type` of statfs(2). ext2, ext3 and ext4 have the same one.
    pub fn of_magic(magic: u64) -> FileSystemKind {
        // f_type is signed on some architectures: linux/magic.h defines 32 bits.
        let magic = (magic & 0xffff_ffff) as u32;
        KINDS.into_iter().find(|kind| kind.magic == Some(magic)).unwrap_or(UNKNOWN)
    }

    /// Whether its files can have pages in the page cache that are worth reading ahead.
    pub fn has_page_cache(&self) -> bool {
        self.place != Kernel
    }

    /// Whether its files are in memory and nowhere else: no page of them can be evicted.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.name, "tmpfs" | "devtmpfs" | "ramfs" | "hugetlbfs")
    }

    /// Whether its directories are metadata on a disk, or in layers on one: listing them has no other effect.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.place, Disk | Layers)
    }

    /// Whether a server or another process answers, which may take minutes or never come. An automounter waits for what it mounts.
    pub fn is_answered_by_others(&self) -> bool {
        matches!(self.place, Server | Process | Automounter)
    }

    /// Whether nothing waits, and no process is called, when one of several descriptors of an open file is closed.
    pub fn is_quiet_on_close(&self) -> bool {
        self.is_on_disk() || self.place == Kernel
    }
}

const UNKNOWN: FileSystemKind = FileSystemKind::other("", Place::Unknown);

const KINDS: [FileSystemKind; 63] = [
    FileSystemKind::ext("ext2"),
    FileSystemKind::ext("ext3"),
    FileSystemKind::ext("ext4").with_large_folios(),
    FileSystemKind::disk("xfs", 0x5846_5342)
        .with_addresses_of_disk()
        .with_large_folios()
        .with_uuid(Uuid::KernelAsUdev)
        .by_inode(InodeHandle::Bits64),
    FileSystemKind::disk("btrfs", 0x9123_683e).with_own_device_number().with_uuid(Uuid::Kernel),
    FileSystemKind::disk("bcachefs", 0xca45_1a4e).with_own_device_number(),
    FileSystemKind::disk("f2fs", 0xf2f5_2010).with_uuid(Uuid::KernelAsUdev).by_inode(InodeHandle::Bits32),
    FileSystemKind::disk("zfs", 0x2fc1_2fc1),
    FileSystemKind::disk("squashfs", 0x7371_7368),
    FileSystemKind::disk("erofs", 0xe0f5_e1e2),
    FileSystemKind::disk("cramfs", 0x28cd_3d45),
    FileSystemKind::disk("ubifs", 0x2405_1905),
    FileSystemKind::disk("nilfs2", 0x0000_3434),
    FileSystemKind::disk("reiserfs", 0x5265_4973),
    FileSystemKind::disk("jfs", 0x3153_464a),
    FileSystemKind::disk("vfat", 0x0000_4d44).renumbered(),
    FileSystemKind::disk("msdos", 0x0000_4d44).renumbered(),
    FileSystemKind::disk("exfat", 0x2011_bab0).renumbered(),
    FileSystemKind::disk("ntfs3", 0x7366_746e),
    FileSystemKind::disk("hfsplus", 0x0000_482b),
    FileSystemKind::disk("iso9660", 0x0000_9660).renumbered(),
    FileSystemKind::disk("udf", 0x1501_3346).renumbered(),
    FileSystemKind::of_place("overlay", Some(0x794c_7630), Layers),
    FileSystemKind::kernel("proc", 0x9fa0),
    FileSystemKind::kernel("sysfs", 0x6265_6572),
    FileSystemKind::kernel("tmpfs", 0x0102_1994),
    FileSystemKind::kernel("devtmpfs", 0x0102_1994),
    FileSystemKind::kernel("ramfs", 0x8584_58f6),
    FileSystemKind::kernel("hugetlbfs", 0x9584_58f6),
    FileSystemKind::kernel("devpts", 0x0000_1cd1),
    FileSystemKind::kernel("debugfs", 0x6462_6720),
    FileSystemKind::kernel("tracefs", 0x7472_6163),
    FileSystemKind::kernel("securityfs", 0x7363_6673),
    FileSystemKind::kernel("selinuxfs", 0xf97c_ff8c),
    FileSystemKind::kernel("cgroup", 0x0027_e0eb),
    FileSystemKind::kernel("cgroup2", 0x6367_7270),
    FileSystemKind::kernel("bpf", 0xcafe_4a11),
    FileSystemKind::kernel("pidfs", 0x5049_4446),
    FileSystemKind::kernel("nsfs", 0x6e73_6673),
    FileSystemKind::kernel("sockfs", 0x534f_434b),
    FileSystemKind::kernel("pipefs", 0x5049_5045),
    FileSystemKind::kernel("anon_inodefs", 0x0904_1934),
    FileSystemKind::kernel("pstore", 0x6165_676c),
    FileSystemKind::kernel("mqueue", 0x1980_0202),
    FileSystemKind::kernel("binfmt_misc", 0x4249_4e4d),
    FileSystemKind::kernel("efivarfs", 0xde5e_81e4),
    FileSystemKind::kernel("configfs", 0x6265_6570),
    FileSystemKind::kernel("fusectl", 0x6573_5543),
    FileSystemKind::of_place("fuse", Some(0x6573_5546), Process),
    FileSystemKind::other("fuseblk", Process),
    FileSystemKind::other("virtiofs", Process),
    FileSystemKind::other("nfs", Server),
    FileSystemKind::other("nfs4", Server),
    FileSystemKind::other("cifs", Server),
    FileSystemKind::other("smb3", Server),
    FileSystemKind::other("9p", Server),
    FileSystemKind::other("ceph", Server),
    FileSystemKind::other("afs", Server),
    FileSystemKind::other("lustre", Server),
    FileSystemKind::other("ocfs2", Server),
    FileSystemKind::other("gfs2", Server),
    FileSystemKind::other("orangefs", Server),
    FileSystemKind::other("autofs", Automounter),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_name_and_by_number() {
        let place = |name: &str| FileSystemKind::named(name).place;
        assert_eq!((place("ext4"), place("overlay"), place("proc"), place("nfs4")), (Disk, Layers, Kernel, Server));
        assert_eq!([place("fuse"), place("fuse.sshfs"), place("fuseblk"), place("virtiofs")], [Process; 4]);
        assert_eq!(
            [place("fusectl"), place("fuse2"), place("ext4.x"), place("")],
            [Kernel, Place::Unknown, Place::Unknown, Place::Unknown]
        );
        assert_eq!(FileSystemKind::of_magic(0xffff_ffff_9123_683e).name, "btrfs");
        assert!(FileSystemKind::of_magic(0x6969).has_page_cache(), "not known here: NFS");
        let tmpfs = FileSystemKind::of_magic(0x0102_1994);
        assert!(!tmpfs.has_page_cache() && tmpfs.is_in_memory());
        assert!(["proc", "ext4", ""].iter().all(|name| !FileSystemKind::named(name).is_in_memory()));
    }

    #[test]
    fn every_type_has_one_row() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..index].iter().all(|other| other.name != kind.name), "{}", kind.name);
            assert_eq!(FileSystemKind::named(kind.name), *kind);
        }
    }
}

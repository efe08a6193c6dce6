//! What left the page cache though its file still has it (`bpf/evictions.bpf.c`).

use crate::objects::{Compiled, attach_all, bpf_error, map, open};
use ahead_model::DeviceNumber;
use ahead_sys::{Result, machine};
use libbpf_rs::{Link, MapCore, MapFlags, Object};

static OBJECT: &Compiled<[u8]> = &Compiled(*include_bytes!(concat!(env!("OUT_DIR"), "/evictions.bpf.o")));

/// What the page cache has lost of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// All of it.
    pub bytes: u64,
    /// The part that the kernel took by itself, to have free memory; the rest was dropped because somebody asked for it.
    pub reclaimed_bytes: u64,
}

/// An observer of the whole page cache: how many bytes of which device were evicted.
#[derive(Debug)]
pub struct Evictions {
    object: Object,
    _links: Vec<Link>,
}

impl Evictions {
    /// Begins to observe; ends when dropped. Needs root and BTF.
    pub fn start() -> Result<Evictions> {
        let mut open = open("evictions", OBJECT)?;
        let shift = machine::page_size().ilog2().to_ne_bytes();
        for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().contains(".rodata")) {
            map.set_initial_value(&shift).map_err(|e| bpf_error("set the page size", e))?;
        }
        let (object, links) = attach_all(open)?;
        Ok(Evictions { object, _links: links })
    }

    /// What was evicted so far: file pages of the superblock with this device number, and pages of the block device itself
    /// (metadata). Pages that left because their file was deleted or cut short don't count.
    pub fn of(&self, device: DeviceNumber) -> Result<Evicted> {
        self.look_up("evicted", &device.to_kernel().to_ne_bytes())
    }

    /// From now on it is counted what a file loses. `device`: of its superblock.
    pub fn watch(&self, device: DeviceNumber, inode: u64) -> Result<()> {
        let none = [0; 16];
        let added = map(&self.object, "watched")?.update(&file_key(device, inode), &none, MapFlags::NO_EXIST);
        match added {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::AlreadyExists => {
                Err(bpf_error("watch what is evicted of a file", error))
            }
            _ => Ok(()),
        }
    }

    /// What a file has lost since it is watched; nothing if it is not.
    pub fn of_file(&self, device: DeviceNumber, inode: u64) -> Result<Evicted> {
        self.look_up("watched", &file_key(device, inode))
    }

    fn look_up(&self, name: &str, key: &[u8]) -> Result<Evicted> {
        let found = map(&self.object, name)?.lookup(key, MapFlags::ANY);
        let pages = found.map_err(|e| bpf_error("read what was evicted", e))?.unwrap_or_default();
        let mut pages = pages.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        let mut next = || pages.next().unwrap_or(0) * machine::page_size();
        Ok(Evicted { bytes: next(), reclaimed_bytes: next() })
    }
}

/// `struct watched_file` of bpf/evictions.bpf.c.
fn file_key(device: DeviceNumber, inode: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&inode.to_ne_bytes());
    key[8..12].copy_from_slice(&device.to_kernel().to_ne_bytes());
    key
}

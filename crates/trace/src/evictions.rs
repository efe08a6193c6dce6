//! What left the page cache though its file still has it (`bpf/evictions.bpf.c`).

use crate::objects::{Compiled, attach_all, bpf_error, map, open};
use ahead_kernel::bdi::DeviceNumber;
use ahead_kernel::{Result, machine};
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
        let (major, minor) = device;
        let key = (major << 20 | minor).to_ne_bytes();
        let found = map(&self.object, "evicted")?.lookup(&key, MapFlags::ANY);
        let pages = found.map_err(|e| bpf_error("read what was evicted", e))?.unwrap_or_default();
        let mut pages = pages.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        let mut next = || pages.next().unwrap_or(0) * machine::page_size();
        Ok(Evicted { bytes: next(), reclaimed_bytes: next() })
    }
}

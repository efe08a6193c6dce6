//! Counts pages evicted from the page cache (`bpf/evictions.bpf.c`).

use crate::objects::{Compiled, attach_all, bpf_error, map, open};
use ahead_model::DeviceNumber;
use ahead_sys::{Result, machine};
use libbpf_rs::{Link, MapCore, MapFlags, Object};

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/evictions.bpf.deflate")));

/// Evicted bytes of a device or file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    pub bytes: u64,
    /// The bytes evicted by memory reclaim; the others were evicted on request.
    pub reclaimed_bytes: u64,
}

/// A running observer of the whole page cache: counts evicted bytes by device.
#[derive(Debug)]
pub struct Evictions {
    object: Object,
    _links: Vec<Link>,
}

impl Evictions {
    /// Starts to observe, until it is dropped. Needs root and BTF.
    pub fn start() -> Result<Evictions> {
        let mut open = open("evictions", &OBJECT)?;
        let shift = machine::page_size().ilog2().to_ne_bytes();
        for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().contains(".rodata")) {
            map.set_initial_value(&shift).map_err(|e| bpf_error("set the page size", e))?;
        }
        let (object, links) = attach_all(open)?;
        Ok(Evictions { object, _links: links })
    }

    /// The bytes evicted so far: file pages of the superblock with this device number, and pages of the block device itself
    /// (metadata). Pages removed because their file was deleted or truncated do not count.
    pub fn of(&self, device: DeviceNumber) -> Result<Evicted> {
        self.look_up("evicted", &device.to_kernel().to_ne_bytes())
    }

    /// Starts to count for a file. `device`: number of its superblock.
    pub fn watch(&self, device: DeviceNumber, inode: u64) -> Result<()> {
        let none = [0; 16];
        let added = map(&self.object, "watched")?.update(&file_key(device, inode), &none, MapFlags::NO_EXIST);
        match added {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::AlreadyExists => {
                Err(bpf_error("watch a file for evictions", error))
            }
            _ => Ok(()),
        }
    }

    /// The bytes of a file evicted since [`Self::watch`]; 0 if it is not watched.
    pub fn of_file(&self, device: DeviceNumber, inode: u64) -> Result<Evicted> {
        self.look_up("watched", &file_key(device, inode))
    }

    fn look_up(&self, name: &str, key: &[u8]) -> Result<Evicted> {
        let found = map(&self.object, name)?.lookup(key, MapFlags::ANY);
        Ok(evicted(&found.map_err(|e| bpf_error("read counts of evictions", e))?.unwrap_or_default()))
    }
}

/// Decodes `struct pages` of bpf/evictions.bpf.c; all 0 without bytes.
fn evicted(pages: &[u8]) -> Evicted {
    let mut pages = pages.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
    let mut next = || pages.next().unwrap_or(0) * machine::page_size();
    Evicted { bytes: next(), reclaimed_bytes: next() }
}

/// `struct watched_file` of bpf/evictions.bpf.c.
fn file_key(device: DeviceNumber, inode: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&inode.to_ne_bytes());
    key[8..12].copy_from_slice(&device.to_kernel().to_ne_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn keys_and_counts_have_the_layout_of_their_structures() {
        let (layout, device) = (Layout::of("evictions"), DeviceNumber::new(7, 3));
        let key = layout.bytes("watched_file", &[("inode", 1 << 40), ("device", device.to_kernel().into())]);
        assert_eq!(file_key(device, 1 << 40).to_vec(), key);
        let page = machine::page_size();
        let pages = layout.bytes("pages", &[("evicted", 5), ("reclaimed", 2)]);
        assert_eq!(evicted(&pages), Evicted { bytes: 5 * page, reclaimed_bytes: 2 * page });
        assert_eq!(evicted(&[]), Evicted::default());
    }
}

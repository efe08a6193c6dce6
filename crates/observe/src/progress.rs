//! How far a program is in some files, while it runs (`bpf/progress.bpf.c`).

use crate::fields::Fields;
use crate::objects::{Compiled, attach_all, bpf_error, map, open};
use crate::reader::{consumer, events};
use ahead_model::DeviceNumber;
use ahead_sys::{Result, machine};
use libbpf_rs::{Link, MapCore, MapFlags, Object, RingBuffer};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/progress.bpf.deflate")));

/// `struct progress_event`.
const EVENT_BYTES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct WatchedFile {
    /// The current number of its superblock's device.
    pub device: DeviceNumber,
    pub inode: u64,
    /// The number that its events have.
    pub number: u32,
}

/// A running observer of a program's progress. It detaches when it is dropped.
pub struct ProgressEvents {
    // Before the object, whose map it reads.
    ring: RingBuffer<'static>,
    object: Object,
    _links: Vec<Link>,
    found: Rc<RefCell<Vec<(u32, u64)>>>,
}

impl ProgressEvents {
    /// Starts to watch these files. Needs root, BTF and the tracepoints of page-cache accesses (Linux 6.11).
    ///
    /// # Errors
    /// Not permitted, or not supported by this kernel.
    pub fn start(files: &[WatchedFile]) -> Result<ProgressEvents> {
        let (object, links) = attach_all(open("progress", &OBJECT)?)?;
        let watched = map(&object, "progress_files")?;
        for file in files {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&file.inode.to_ne_bytes());
            key[8..12].copy_from_slice(&file.device.to_kernel().to_ne_bytes());
            let mut value = [0; 16];
            value[8..12].copy_from_slice(&file.number.to_ne_bytes());
            watched.update(&key, &value, MapFlags::ANY).map_err(|e| bpf_error("watch a file", e))?;
        }
        let found = Rc::new(RefCell::new(Vec::new()));
        let kept = found.clone();
        let ring = consumer(&events(&object, "progress")?, move |bytes| kept.borrow_mut().extend(decode(bytes)))?;
        Ok(ProgressEvents { ring, object, _links: links, found })
    }

    /// Watches this process and its descendants from now on.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn follow(&self, pid: u32) -> Result<()> {
        let set = map(&self.object, "program")?.update(&0u32.to_ne_bytes(), &pid.to_ne_bytes(), MapFlags::ANY);
        set.map_err(|e| bpf_error("set the program", e))
    }

    /// Waits for events, at most for `timeout`: the numbers of files, and the offsets in them, bytes; 0 for the first use.
    ///
    /// # Errors
    /// The ring buffer cannot be read any more.
    pub fn poll(&self, timeout: Duration) -> Result<Vec<(u32, u64)>> {
        self.ring.poll(timeout).map_err(|e| bpf_error("read the ring buffer", e))?;
        Ok(self.found.take())
    }
}

/// Decodes `struct progress_event`; `None`: wrong size.
fn decode(bytes: &[u8]) -> Option<(u32, u64)> {
    let fields = Fields::of::<EVENT_BYTES>(bytes)?;
    Some((fields.u32(8), fields.u64(0).saturating_mul(machine::page_size())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn event_is_decoded_and_a_truncated_one_is_refused() {
        let bytes = Layout::of("layout_events").bytes("progress_event", &[("page", 3), ("file", 7)]);
        assert_eq!((decode(&bytes), decode(&bytes[1..])), (Some((7, 3 * machine::page_size())), None));
    }
}

//! Lists the files of a file system that have pages in the page cache (`bpf/cached.bpf.c`).

use crate::event::{Event, decode};
use crate::objects::{Compiled, bpf_error, map, open};
use crate::reader::consumer;
use ahead_model::sorting;
use ahead_profile::learn::FileSeen;
use ahead_sys::{Error, Result};
use libbpf_rs::{Iter, MapCore, MapFlags, Object};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/cached.bpf.deflate")));

/// Walks that are tried. A walk ends early if an inode leaves memory at the place where the walk is.
const TRIES: usize = 5;

/// The regular files with resident pages on the file system of an open directory, with paths from the root of that file system, in the
/// order in which they were first looked up: the kernel adds an inode at the head of its list (`inode_sb_list_add`). Reads nothing from
/// the disk. Files without a directory entry in memory are missing; if inodes leave memory again and again, or if
/// there are more files than the kernel's buffer holds (8 MiB of paths), others are, too.
///
/// # Errors
/// Not permitted, or not supported by this kernel.
pub fn cached_files(directory: &impl AsFd) -> Result<Vec<FileSeen>> {
    let mut open = open("cached", &OBJECT)?;
    let settings = [directory.as_fd().as_raw_fd().cast_unsigned(), 0].map(u32::to_ne_bytes).concat();
    for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().contains(".rodata")) {
        map.set_initial_value(&settings).map_err(|e| bpf_error("set the directory", e))?;
    }
    let object = open.load().map_err(|e| bpf_error("load the list of cached files", e))?;
    let program = object.progs_mut().next().expect("the object has one program");
    let listing = program.attach().map_err(|e| bpf_error("attach the list of cached files", e))?;
    let (found, position) = (RefCell::new(BTreeMap::new()), Cell::new(0u32));
    let take = |bytes: &[u8]| {
        if let Ok(Event::File(file)) = decode(bytes)
            && !(file.unlinked || file.incomplete)
        {
            position.set(position.get() + 1);
            found.borrow_mut().insert(file.inode, (position.get(), file));
        }
    };
    let ring = consumer(&map(&object, "listed")?, take)?;
    for _ in 0..TRIES {
        position.set(0);
        let mut walk = Iter::new(&listing).map_err(|e| bpf_error("list cached files", e))?;
        walk.read_to_end(&mut Vec::new()).map_err(|e| Error::io("list cached files", e))?;
        ring.consume().map_err(|e| bpf_error("read the ring buffer", e))?;
        let (is_complete, lost) = outcome(&object)?;
        tracing::debug!("{} cached files, complete: {is_complete}, {lost} lost", found.borrow().len());
        if is_complete {
            break;
        }
    }
    drop(ring);
    let mut files: Vec<(u32, FileSeen)> = found.into_inner().into_values().collect();
    sorting::sort_by_key(&mut files, |(position, _)| Reverse(*position));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

/// `struct list_outcome`: whether a walk was complete, and how many files were lost.
fn outcome(object: &Object) -> Result<(bool, u32)> {
    let bytes = map(object, "list_outcome")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let bytes = bytes.map_err(|e| bpf_error("read the outcome of a walk", e))?.unwrap_or_default();
    let number =
        |at: usize| bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
    Ok((number(0) != 0, number(4)))
}

#[cfg(test)]
mod tests {
    use crate::layout::Layout;

    #[test]
    fn settings_and_outcome_have_the_layout_of_their_structures() {
        let layout = Layout::of("cached");
        assert_eq!(layout.bytes("list_settings", &[("descriptor", 7)]), [7u32, 0].map(u32::to_ne_bytes).concat());
        let outcome = layout.bytes("list_outcome", &[("complete", 1), ("lost", 5)]);
        assert_eq!(outcome, [1u32, 5].map(u32::to_ne_bytes).concat());
    }
}

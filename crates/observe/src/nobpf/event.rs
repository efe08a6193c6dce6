//! Events of ftrace as values. Any bytes give an event or an error, never a panic.
//!
//! The device is the number of the superblock, in the kernel's encoding. For a page of a block device's own cache, the device is
//! that of the kernel's `bdev` file system, and the inode is the number of the block device.

use crate::nobpf::format::{Field, Format, FormatError};
use crate::nobpf::page::number;
use ahead_profile::learn::AccessKind;
use std::ops::Range;

/// The events of the page cache's accesses, by name: Linux 6.11 and later.
pub(crate) const ACCESSES: [(&str, AccessKind); 3] = [
    ("mm_filemap_get_pages", AccessKind::Read),
    ("mm_filemap_fault", AccessKind::Fault),
    ("mm_filemap_map_pages", AccessKind::Around),
];

/// The event that every kernel has.
pub(crate) const ADDED: &str = "mm_filemap_add_to_page_cache";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent<'a> {
    /// A thread touched pages of a file.
    Pages {
        /// The thread.
        tid: u32,
        /// The superblock's device number, in the kernel's encoding.
        device: u32,
        inode: u64,
        pages: Range<u64>,
        kind: AccessKind,
    },
    /// A thread started another one, or another process.
    Fork {
        /// The thread.
        parent: u32,
        /// The new thread.
        child: u32,
    },
    /// A process executed a program.
    Exec {
        /// The process.
        tid: u32,
        /// The path as given to execve, or as found in `PATH`.
        name: &'a [u8],
    },
}

/// Why bytes are not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The event ends before a field.
    #[error("event of type {0} is too short")]
    Short(u16),
    #[error("event of unknown type {0}")]
    UnknownType(u16),
    /// A field has an impossible value.
    #[error("event with an impossible {0}")]
    Impossible(&'static str),
}

/// No file has such pages, and sums cannot overflow.
const PAGE_MOST: u64 = u64::MAX / 4;
/// More pages than one call can request: read(2) is limited to 2 GiB. The limit is for hostile input.
const PAGES_MOST: u64 = 1 << 32;
/// A folio is far smaller.
const ORDER_MOST: u64 = 32;

/// Places of an event's fields about pages.
#[derive(Clone, Debug)]
struct PageFields {
    id: u16,
    kind: AccessKind,
    device: Field,
    inode: Field,
    first: Field,
    last: Option<Field>,
    order: Option<Field>,
}

/// The layouts of all events that are decoded.
#[derive(Clone, Debug)]
pub struct Schema {
    kind: Field,
    tid: Field,
    pages: Vec<PageFields>,
    fork: (u16, Field, Field),
    exec: (u16, Field),
}

/// Sizes of `unsigned long`.
const LONG: [usize; 2] = [4, 8];

impl Schema {
    /// From the format files of `sched_process_fork` and `sched_process_exec`, and those of events about pages.
    ///
    /// # Errors
    /// A needed field is missing, or has an unexpected size.
    pub fn new(fork: &Format, exec: &Format, pages: &[(AccessKind, Format)]) -> Result<Schema, FormatError> {
        Ok(Schema {
            kind: exec.number("common_type", &[2])?,
            tid: exec.number("common_pid", &[4])?,
            fork: (fork.id, fork.number("parent_pid", &[4])?, fork.number("child_pid", &[4])?),
            exec: (exec.id, exec.number("filename", &[4])?),
            pages: pages.iter().map(|(kind, format)| page_fields(*kind, format)).collect::<Result<_, _>>()?,
        })
    }

    /// Decodes one event.
    ///
    /// # Errors
    /// The bytes are not an event of this schema.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<TraceEvent<'a>, DecodeError> {
        let kind = number(bytes, self.kind).ok_or(DecodeError::Short(0))? as u16;
        let get = |field: Field| number(bytes, field).ok_or(DecodeError::Short(kind));
        let tid = get(self.tid)? as u32;
        if let Some(fields) = self.pages.iter().find(|fields| fields.id == kind) {
            let pages = page_range(fields, get)?;
            let (device, inode) = (get(fields.device)? as u32, get(fields.inode)?);
            return Ok(TraceEvent::Pages { tid, device, inode, pages, kind: fields.kind });
        }
        let (fork, parent, child) = self.fork;
        if kind == fork {
            return Ok(TraceEvent::Fork { parent: get(parent)? as u32, child: get(child)? as u32 });
        }
        let (exec, name) = self.exec;
        if kind == exec {
            let name = text_at(bytes, get(name)? as u32).ok_or(DecodeError::Impossible("place of a name"))?;
            return Ok(TraceEvent::Exec { tid, name });
        }
        Err(DecodeError::UnknownType(kind))
    }
}

fn page_fields(kind: AccessKind, format: &Format) -> Result<PageFields, FormatError> {
    let last = match kind {
        AccessKind::Read | AccessKind::Around => Some(format.number("last_index", &LONG)?),
        AccessKind::Fault | AccessKind::Added => None,
    };
    // Kernels without this field report the first page of a folio; they have few larger folios.
    let order = match kind {
        AccessKind::Added => format.optional_number("order", &[1])?,
        _ => None,
    };
    Ok(PageFields {
        id: format.id,
        kind,
        device: format.number("s_dev", &[4])?,
        inode: format.number("i_ino", &LONG)?,
        first: format.number("index", &LONG)?,
        last,
        order,
    })
}

fn page_range(fields: &PageFields, get: impl Fn(Field) -> Result<u64, DecodeError>) -> Result<Range<u64>, DecodeError> {
    let first = get(fields.first)?;
    let order = fields.order.map(&get).transpose()?.unwrap_or(0);
    let last = fields.last.map(&get).transpose()?;
    let pages = match last {
        Some(last) => last.checked_sub(first).ok_or(DecodeError::Impossible("last page"))?.saturating_add(1),
        None if order > ORDER_MOST => return Err(DecodeError::Impossible("order of a folio")),
        None => 1 << order,
    };
    if first > PAGE_MOST || pages > PAGES_MOST {
        return Err(DecodeError::Impossible("page number"));
    }
    Ok(first..first + pages)
}

/// The text of a `__data_loc` field: its place in the lower, its length in the higher half. It ends with a NUL byte.
fn text_at(bytes: &[u8], location: u32) -> Option<&[u8]> {
    let (at, length) = ((location & 0xffff) as usize, (location >> 16) as usize);
    let text = bytes.get(at..at + length)?;
    text.split(|byte| *byte == 0).next()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::nobpf::format::tests::format_of;
    use proptest::prelude::*;

    const LONG_TYPE: &str = "unsigned long";

    pub(crate) fn schema() -> Schema {
        let access = |id, kind, last: bool| {
            let mut fields = vec![(LONG_TYPE, "i_ino", 8, 8), ("dev_t", "s_dev", 16, 4), (LONG_TYPE, "index", 24, 8)];
            fields.extend(last.then_some((LONG_TYPE, "last_index", 32, 8)));
            (kind, Format::parse(&format_of(id, &fields)).unwrap())
        };
        let added = [
            (LONG_TYPE, "pfn", 8, 8),
            (LONG_TYPE, "i_ino", 16, 8),
            (LONG_TYPE, "index", 24, 8),
            ("dev_t", "s_dev", 32, 4),
            ("unsigned char", "order", 36, 1),
        ];
        let fork = [("pid_t", "parent_pid", 12, 4), ("pid_t", "child_pid", 20, 4)];
        let exec = [("__data_loc char[]", "filename", 8, 4), ("pid_t", "pid", 12, 4)];
        let format = |id, fields: &[_]| Format::parse(&format_of(id, fields)).unwrap();
        let pages = [
            access(1, AccessKind::Read, true),
            access(2, AccessKind::Fault, false),
            access(3, AccessKind::Around, true),
            (AccessKind::Added, format(4, &added)),
        ];
        Schema::new(&format(5, &fork), &format(6, &exec), &pages).unwrap()
    }

    /// An event of this type and thread 7, with numbers at these places.
    pub(crate) fn event(kind: u16, numbers: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&7u32.to_ne_bytes());
        for (at, number) in numbers {
            bytes[*at..*at + number.len()].copy_from_slice(number);
        }
        bytes
    }

    fn pages(kind: AccessKind, pages: Range<u64>) -> Result<TraceEvent<'static>, DecodeError> {
        Ok(TraceEvent::Pages { tid: 7, device: 8, inode: 9, pages, kind })
    }

    #[test]
    fn pages_of_a_read_and_of_a_fault() {
        let (inode, device) = (9u64.to_ne_bytes(), 8u32.to_ne_bytes());
        let (first, last) = (3u64.to_ne_bytes(), 5u64.to_ne_bytes());
        let of = |kind| event(kind, &[(8, &inode), (16, &device), (24, &first), (32, &last)]);
        assert_eq!(schema().decode(&of(1)), pages(AccessKind::Read, 3..6));
        assert_eq!(schema().decode(&of(2)), pages(AccessKind::Fault, 3..4));
        assert_eq!(schema().decode(&of(3)), pages(AccessKind::Around, 3..6));
        let backwards = event(1, &[(24, &last), (32, &first)]);
        assert_eq!(schema().decode(&backwards), Err(DecodeError::Impossible("last page")));
    }

    #[test]
    fn folio_has_two_to_its_order_pages() {
        let (inode, device, first) = (9u64.to_ne_bytes(), 8u32.to_ne_bytes(), 4u64.to_ne_bytes());
        let of = |order: u8| event(4, &[(16, &inode), (24, &first), (32, &device), (36, &[order])]);
        assert_eq!(schema().decode(&of(0)), pages(AccessKind::Added, 4..5));
        assert_eq!(schema().decode(&of(4)), pages(AccessKind::Added, 4..20));
        assert_eq!(schema().decode(&of(200)), Err(DecodeError::Impossible("order of a folio")));
    }

    #[test]
    fn forks_and_execs() {
        let fork = event(5, &[(12, &7u32.to_ne_bytes()), (20, &8u32.to_ne_bytes())]);
        assert_eq!(schema().decode(&fork), Ok(TraceEvent::Fork { parent: 7, child: 8 }));
        let exec = event(6, &[(8, &(20u32 | 8 << 16).to_ne_bytes()), (20, b"/bin/sh\0")]);
        assert_eq!(schema().decode(&exec), Ok(TraceEvent::Exec { tid: 7, name: b"/bin/sh" }));
        let behind = event(6, &[(8, &(36u32 | 8 << 16).to_ne_bytes())]);
        assert_eq!(schema().decode(&behind), Err(DecodeError::Impossible("place of a name")));
        assert_eq!(schema().decode(&event(99, &[])), Err(DecodeError::UnknownType(99)));
        assert_eq!(schema().decode(&[1]), Err(DecodeError::Short(0)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_event_or_an_error(kind in 0u16..8, rest in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&kind.to_ne_bytes()[..], &rest].concat();
            if let Ok(TraceEvent::Pages { pages, .. }) = schema().decode(&bytes) {
                prop_assert!(pages.start < pages.end && pages.end < u64::MAX / 2);
            }
        }
    }
}

//! Decodes events of the BPF programs (`bpf/event.h`). Any bytes give an event or an error, never a panic.

use ahead_profile::learn::{Access, AccessKind, ExecSeen, FileSeen, LookupSeen, ThreadChange, ThreadSeen};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Pages were touched: one or several ranges.
    Access(Vec<Access>),
    /// The file of an id.
    File(FileSeen),
    /// A program was executed.
    Exec(ExecSeen),
    /// A path was looked up.
    Lookup(LookupSeen),
    /// A process (first) started another one (second).
    Fork(u32, u32),
    /// The state of a thread changed.
    Thread(ThreadSeen),
    /// The last process of an awaited start has ended.
    Over,
}

/// Why bytes are not an event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The event ends too early.
    #[error("event of type {kind} is too short: {bytes} bytes")]
    Short {
        /// Its type, 0 if even that is missing.
        kind: u32,
        /// Its length.
        bytes: usize,
    },
    #[error("event of unknown type {0}")]
    UnknownType(u32),
    /// A field has an impossible value.
    #[error("event with an impossible {0}")]
    Impossible(&'static str),
}

/// Reads numbers from the front of a slice.
struct Fields<'a> {
    rest: &'a [u8],
    kind: u32,
    bytes: usize,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let short = DecodeError::Short { kind: self.kind, bytes: self.bytes };
        let (head, rest) = self.rest.split_first_chunk().ok_or(short)?;
        self.rest = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_ne_bytes)
    }

    fn text(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        self.rest.get(..bytes).ok_or(DecodeError::Short { kind: self.kind, bytes: self.bytes })
    }
}

/// Decodes one event.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let mut fields = Fields { rest: bytes, kind: 0, bytes: bytes.len() };
    fields.kind = fields.u32()?;
    let head = Head { tgid: fields.u32()?, time_ns: fields.u64()?, cpu_ns: fields.u64()? };
    match fields.kind {
        1 => decode_access(&mut fields, head),
        2 => decode_file(&mut fields, head.time_ns).map(Event::File),
        3 => decode_exec(&mut fields, head).map(Event::Exec),
        4 => decode_lookup(&mut fields, head).map(Event::Lookup),
        5 => Ok(Event::Fork(head.tgid, fields.u32()?)),
        6..=8 => decode_thread(&mut fields, head).map(Event::Thread),
        9 => Ok(Event::Over),
        other => Err(DecodeError::UnknownType(other)),
    }
}

/// `struct event`, without its type.
#[derive(Clone, Copy)]
struct Head {
    tgid: u32,
    time_ns: u64,
    cpu_ns: u64,
}

fn decode_thread(fields: &mut Fields<'_>, head: Head) -> Result<ThreadSeen, DecodeError> {
    let (tid, by) = (fields.u32()?, fields.u32()?);
    let (by_cpu_ns, slept_ns) = (fields.u64()?, fields.u64()?);
    // A thread starts with a clock at 0; the event has the clock of the thread that starts it.
    let (change, cpu_ns) = match fields.kind {
        6 => (ThreadChange::Started { by, by_cpu_ns }, 0),
        7 => (ThreadChange::Ended, head.cpu_ns),
        _ => (ThreadChange::Woken { by: (by != 0).then_some(by), by_cpu_ns, slept_ns }, head.cpu_ns),
    };
    Ok(ThreadSeen { time_ns: head.time_ns, tid, cpu_ns, change })
}

fn decode_access(fields: &mut Fields<'_>, head: Head) -> Result<Event, DecodeError> {
    let (tid, file) = (fields.u32()?, fields.u32()?);
    let (first, mask) = (fields.u64()?, fields.u64()?);
    let pages = u64::from(fields.u32()?);
    let kind = match fields.u32()? {
        0 => AccessKind::Read,
        1 => AccessKind::Fault,
        2 => AccessKind::Around,
        3 => AccessKind::Added,
        _ => return Err(DecodeError::Impossible("kind of access")),
    };
    // No file has such pages, and the sums below cannot overflow.
    if first > u64::MAX / 2 {
        return Err(DecodeError::Impossible("page number"));
    }
    let Head { tgid, time_ns, cpu_ns } = head;
    let access = |pages| Access { time_ns, tgid, tid, file, pages, kind, cpu_ns };
    if pages > 0 {
        return Ok(Event::Access(vec![access(first..first + pages)]));
    }
    Ok(Event::Access(runs(mask).map(|run| access(first + run.start..first + run.end)).collect()))
}

/// The runs of set bits, lowest first.
fn runs(mask: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = mask.checked_shr(at).unwrap_or(0);
        if rest == 0 {
            return None;
        }
        let start = at + rest.trailing_zeros();
        let end = start + (mask >> start).trailing_ones();
        at = end;
        Some(u64::from(start)..u64::from(end))
    })
}

const UNLINKED: u16 = 1;
const TRUNCATED: u16 = 2;
const NAMELESS: u16 = 4;
const DISCONNECTED: u16 = 8;

fn decode_file(fields: &mut Fields<'_>, time_ns: u64) -> Result<FileSeen, DecodeError> {
    let (id, mode, device, rdev) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    let (inode, size_bytes, magic) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let generation = fields.u32()?;
    let flags = fields.u16()?;
    let path_bytes = fields.u16()?.into();
    let names = fields.text(path_bytes)?;
    let path = path_from_names(names)?;
    let (unlinked, incomplete) = (flags & UNLINKED != 0, flags & (TRUNCATED | NAMELESS | DISCONNECTED) != 0);
    Ok(FileSeen { time_ns, id, mode, device, rdev, inode, generation, size_bytes, magic, unlinked, incomplete, path })
}

/// `c\0b\0a\0` is `/a/b/c`.
fn path_from_names(names: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let Some(names) = names.strip_suffix(b"\0") else {
        return if names.is_empty() { Ok(b"/".to_vec()) } else { Err(DecodeError::Impossible("path")) };
    };
    let mut path = Vec::with_capacity(names.len() + 1);
    for name in names.rsplit(|byte| *byte == 0) {
        if name.is_empty() || name.contains(&b'/') {
            return Err(DecodeError::Impossible("file name"));
        }
        path.push(b'/');
        path.extend(name);
    }
    Ok(path)
}

fn decode_exec(fields: &mut Fields<'_>, head: Head) -> Result<ExecSeen, DecodeError> {
    let (file, root, directory) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let mount_namespace = fields.u32()?;
    let name_bytes = fields.u32()? as usize;
    fields.u32()?;
    let name = fields.text(name_bytes)?.to_vec();
    let Head { tgid, time_ns, cpu_ns } = head;
    Ok(ExecSeen { time_ns, tgid, file, root, directory, mount_namespace, name, cpu_ns })
}

const FAILED: u16 = 1;
const LISTED: u16 = 2;

fn decode_lookup(fields: &mut Fields<'_>, head: Head) -> Result<LookupSeen, DecodeError> {
    let (tid, base) = (fields.u32()?, fields.u32()?);
    let flags = fields.u16()?;
    let path_bytes = fields.u16()?.into();
    fields.u32()?;
    let path = fields.text(path_bytes)?.to_vec();
    let Head { tgid, time_ns, cpu_ns } = head;
    let (failed, listed) = (flags & FAILED != 0, flags & LISTED != 0);
    Ok(LookupSeen { time_ns, tgid, tid, cpu_ns, base, failed, listed, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use proptest::prelude::*;

    /// An event of process 7 at time 9, as the BPF program writes it.
    fn event(structure: &str, kind: &str, members: &[(&str, u64)]) -> Vec<u8> {
        let layout = Layout::of("layout_events");
        let kind = layout.value("event_type", kind);
        let head = [("head.type", kind), ("head.tgid", 7), ("head.time_ns", 9), ("head.cpu_ns", 4)];
        layout.bytes(structure, &[&head, members].concat())
    }

    /// As [`event`], with text at the end.
    fn event_with_text(structure: &str, kind: &str, members: &[(&str, u64)], (member, text): (&str, &[u8])) -> Vec<u8> {
        let mut bytes = event(structure, kind, members);
        let at = Layout::of("layout_events").offset(structure, member);
        bytes[at..at + text.len()].copy_from_slice(text);
        bytes
    }

    fn flag(enumeration: &str, name: &str) -> u64 {
        Layout::of("layout_events").value(enumeration, name)
    }

    fn access_of(kind: &str, first: u64, mask: u64, pages: u32) -> Vec<u8> {
        let kind = flag("access_kind", kind);
        let (first, mask, pages) = (("first_page", first), ("mask", mask), ("pages", pages.into()));
        event("access_event", "EVENT_ACCESS", &[("tid", 3), ("file", 5), first, mask, pages, ("kind", kind)])
    }

    fn access(first: u64, mask: u64, pages: u32) -> Vec<u8> {
        access_of("ACCESS_FAULT", first, mask, pages)
    }

    fn head(kind: u32) -> Vec<u8> {
        Layout::of("layout_events").bytes("event", &[("type", kind.into())])
    }

    #[test]
    fn accesses_have_the_layout_of_the_structure() {
        for (name, kind) in [
            ("ACCESS_READ", AccessKind::Read),
            ("ACCESS_FAULT", AccessKind::Fault),
            ("ACCESS_AROUND", AccessKind::Around),
            ("ACCESS_ADDED", AccessKind::Added),
        ] {
            let expected = Access { time_ns: 9, tgid: 7, tid: 3, file: 5, pages: 10..310, kind, cpu_ns: 4 };
            assert_eq!(decode(&access_of(name, 10, 0, 300)), Ok(Event::Access(vec![expected])));
        }
    }

    #[test]
    fn files_have_the_layout_of_the_structure() {
        let numbers = [("file", 1), ("mode", 2), ("device", 3), ("rdev", 4), ("inode", 5), ("size", 6), ("magic", 7)];
        for (name, unlinked, incomplete) in [
            ("FILE_UNLINKED", true, false),
            ("FILE_TRUNCATED", false, true),
            ("FILE_NAMELESS", false, true),
            ("FILE_DISCONNECTED", false, true),
        ] {
            let others = [("generation", 8), ("flags", flag("file_flag", name)), ("path_bytes", 4)];
            let members = [&numbers[..], &others].concat();
            let bytes = event_with_text("file_event", "EVENT_FILE", &members, ("path", b"b\0a\0c"));
            let expected = FileSeen {
                time_ns: 9,
                id: 1,
                mode: 2,
                device: 3,
                rdev: 4,
                inode: 5,
                size_bytes: 6,
                magic: 7,
                generation: 8,
                unlinked,
                incomplete,
                path: b"/a/b".to_vec(),
            };
            assert_eq!(decode(&bytes), Ok(Event::File(expected)));
        }
    }

    #[test]
    fn execs_have_the_layout_of_the_structure() {
        let members = [("file", 1), ("root", 2), ("directory", 3), ("mount_namespace", 4), ("name_bytes", 2)];
        let bytes = event_with_text("exec_event", "EVENT_EXEC", &members, ("name", b"/xy"));
        let (file, root, directory, mount_namespace, name) = (1, 2, 3, 4, b"/x".to_vec());
        let expected = ExecSeen { time_ns: 9, tgid: 7, file, root, directory, mount_namespace, name, cpu_ns: 4 };
        assert_eq!(decode(&bytes), Ok(Event::Exec(expected)));
    }

    #[test]
    fn lookups_have_the_layout_of_the_structure() {
        for (name, failed, listed) in [("LOOKUP_FAILED", true, false), ("LOOKUP_LISTED", false, true)] {
            let members = [("tid", 3), ("base", 1), ("flags", flag("lookup_flag", name)), ("path_bytes", 2)];
            let bytes = event_with_text("lookup_event", "EVENT_LOOKUP", &members, ("path", b"/xy"));
            let path = b"/x".to_vec();
            let expected = LookupSeen { time_ns: 9, tgid: 7, tid: 3, cpu_ns: 4, base: 1, failed, listed, path };
            assert_eq!(decode(&bytes), Ok(Event::Lookup(expected)));
        }
    }

    #[test]
    fn forks_have_the_layout_of_the_structure() {
        assert_eq!(decode(&event("fork_event", "EVENT_FORK", &[("child", 8)])), Ok(Event::Fork(7, 8)));
    }

    #[test]
    fn end_of_a_start_is_only_a_head() {
        let kind = flag("event_type", "EVENT_OVER") as u32;
        assert_eq!(decode(&head(kind)), Ok(Event::Over));
    }

    #[test]
    fn thread_events_have_the_layout_of_the_structure() {
        let of = |kind, other| {
            let members = [("tid", 5), ("other", other), ("other_cpu_ns", 6), ("slept_ns", 8)];
            match decode(&event("thread_event", kind, &members)).unwrap() {
                Event::Thread(ThreadSeen { time_ns: 9, tid: 5, cpu_ns, change }) => (cpu_ns, change),
                unexpected => panic!("{unexpected:?}"),
            }
        };
        assert_eq!(of("EVENT_THREAD_START", 3), (0, ThreadChange::Started { by: 3, by_cpu_ns: 6 }));
        assert_eq!(of("EVENT_THREAD_END", 3), (4, ThreadChange::Ended));
        assert_eq!(of("EVENT_WAKE", 3), (4, ThreadChange::Woken { by: Some(3), by_cpu_ns: 6, slept_ns: 8 }));
        assert_eq!(of("EVENT_WAKE", 0), (4, ThreadChange::Woken { by: None, by_cpu_ns: 6, slept_ns: 8 }));
    }

    fn ranges(bytes: &[u8]) -> Vec<Range<u64>> {
        match decode(bytes).unwrap() {
            Event::Access(accesses) => accesses.into_iter().map(|access| access.pages).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mask_gives_its_runs_of_bits() {
        assert_eq!(ranges(&access(64, 0b1011, 0)), [64..66, 67..68]);
        assert_eq!(ranges(&access(64, u64::MAX, 0)), vec![64..128]);
        assert_eq!(ranges(&access(64, 1 << 63, 0)), vec![127..128]);
        assert_eq!(ranges(&access(10, 0, 300)), vec![10..310]);
        assert!(ranges(&access(64, 0, 0)).is_empty());
    }

    #[test]
    fn names_are_stored_leaf_first() {
        assert_eq!(path_from_names(b"c\0b\0a\0").unwrap(), b"/a/b/c");
        assert_eq!(path_from_names(b"").unwrap(), b"/");
        assert_eq!(path_from_names(b"\xff\0").unwrap(), b"/\xff");
        for bad in [&b"a"[..], b"\0", b"a\0\0b\0", b"a/b\0"] {
            assert!(path_from_names(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn impossible_page_number_is_an_error() {
        assert_eq!(decode(&access(u64::MAX, 1, 0)), Err(DecodeError::Impossible("page number")));
        assert_eq!(decode(&head(99)), Err(DecodeError::UnknownType(99)));
        assert_eq!(decode(&[1, 2]), Err(DecodeError::Short { kind: 0, bytes: 2 }));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_event_or_an_error(kind in 0u32..11, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&body);
            let _ = decode(&[head(kind), body].concat());
        }

        #[test]
        fn runs_cover_exactly_the_mask(mask in any::<u64>()) {
            let mut seen = 0u64;
            for run in runs(mask) {
                for bit in run {
                    prop_assert_eq!(seen & 1 << bit, 0);
                    seen |= 1 << bit;
                }
            }
            prop_assert_eq!(seen, mask);
        }
    }
}

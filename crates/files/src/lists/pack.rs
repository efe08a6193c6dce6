//! The packs of ureadahead (`/var/lib/ureadahead/pack`), version 2, as its program for 64-bit little-endian machines writes them.
//!
//! ```text
//!     byte  0      3    4      5     8         16         24
//!           ┌──────┬────┬──────┬─────┬─────────┬──────────┬──────────┬───────┬─────────┬───────┬──────────┬────────┐
//!           │ "ura"│ 2  │flags │ 0   │ device  │ created  │ n groups │ 4 × n │ n paths │272 × n│ n blocks │ 32 × n │
//!           └──────┴────┴──────┴─────┴─────────┴──────────┴──────────┴───────┴─────────┴───────┴──────────┴────────┘
//!     path   group: 4, padding: 4, inode: 8, name with NUL bytes at its end: 256
//!     block  index of its path: 8, offset: 8, length: 8, place on the disk: 8        all signed but index, inode and counts
//! ```
//!
//! The format is that of `pack.h` and `pack.c` in the sources of ureadahead 0.100. Groups of inodes are read as blocks of ext file
//! systems there, and skipped here: a replay looks paths up by itself.

use super::plain::listed;
use super::{List, ListError};
use ahead_model::DeviceNumber;
use ahead_profile::{MAX_EXTENTS, MAX_FILE_BYTES, MAX_FILES, Profile, check_path};
use std::collections::{BTreeMap, BinaryHeap};

/// The first bytes of a pack.
pub const PACK_SIGNATURE: &[u8] = b"ura";

/// Version of the format.
const VERSION: u8 = 2;
/// Flag of a pack for a rotating disk: its blocks are in the order of their places.
const ROTATIONAL: u8 = 1;
/// Length of the name in a path's record, the NUL byte at its end included.
const NAME_BYTES: usize = 256;
const PATH_BYTES: usize = 4 + 4 + 8 + NAME_BYTES;
const BLOCK_BYTES: usize = 4 * 8;
/// An inode in no group.
const NO_GROUP: i32 = -1;
/// A block without a known place.
const NO_PLACE: i64 = -1;

/// Reads a pack: its files and their blocks.
///
/// Errors: with the offset of the byte.
pub fn decode(bytes: &[u8]) -> Result<List, ListError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ListError::new(format!("byte {MAX_FILE_BYTES}"), "a pack has at most 256 MiB"));
    }
    let mut reader = PackReader { bytes, at: 0 };
    let header: [u8; 8] = reader.take("the header")?;
    if !header.starts_with(PACK_SIGNATURE) {
        return Err(ListError::new("byte 0", "not a pack of ureadahead: the signature is missing"));
    }
    if header[3] != VERSION {
        return Err(ListError::new("byte 3", format!("version {} of the format, only {VERSION} is known", header[3])));
    }
    let _device_and_time: [u8; 16] = reader.take("the device and the time")?;
    let groups = reader.count("groups", 4, usize::MAX)?;
    reader.at += 4 * groups;
    let path_count = reader.count("paths", PATH_BYTES, MAX_FILES)?;
    let (mut list, mut paths) = (List::default(), Vec::with_capacity(path_count));
    for _ in 0..path_count {
        let path = reader.path()?;
        list.add(path, 0..0).map_err(|reason| ListError::new(reader.place(), reason))?;
        paths.push(path);
    }
    for _ in 0..reader.count("blocks", BLOCK_BYTES, MAX_EXTENTS)? {
        let place = reader.place();
        let failed = |reason: &str| ListError::new(place.clone(), reason);
        let [index, offset, length, _] = [(); 4].map(|()| reader.take("a block").map(u64::from_le_bytes));
        let (index, offset, length) = (index?, offset?, length?);
        let path = usize::try_from(index).ok().and_then(|index| paths.get(index));
        let path = path.ok_or_else(|| failed("the block belongs to no path of the pack"))?;
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| failed("the block starts or ends beyond 2^63 bytes"))?;
        list.add(path, offset..end).map_err(|reason| failed(&reason))?;
    }
    match bytes.len() - reader.at {
        0 => Ok(list),
        extra => Err(ListError::new(reader.place(), format!("{extra} bytes follow the last block"))),
    }
}

/// Takes values from the start of untrusted bytes.
struct PackReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> PackReader<'a> {
    fn place(&self) -> String {
        format!("byte {}", self.at)
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ListError> {
        let taken = self.bytes[self.at..].first_chunk::<N>();
        let taken = taken.ok_or_else(|| ListError::new(self.place(), format!("the pack ends within {what}")))?;
        self.at += N;
        Ok(*taken)
    }

    /// A number of records that are there.
    fn count(&mut self, what: &str, record_bytes: usize, most: usize) -> Result<usize, ListError> {
        let place = self.place();
        let count = u64::from_le_bytes(self.take(what)?);
        let left = self.bytes.len() - self.at;
        match usize::try_from(count).ok().filter(|count| *count <= left / record_bytes) {
            None => Err(ListError::new(place, format!("{count} {what} cannot fit into the {left} bytes left"))),
            Some(count) if count > most => {
                Err(ListError::new(place, format!("{count} {what}, more than the {most} allowed")))
            }
            Some(count) => Ok(count),
        }
    }

    fn path(&mut self) -> Result<&'a [u8], ListError> {
        let place = self.place();
        let record = &self.bytes[self.at..][..PATH_BYTES];
        self.at += PATH_BYTES;
        let name = &record[PATH_BYTES - NAME_BYTES..];
        let end = name.iter().position(|byte| *byte == 0);
        let path = &name[..end.ok_or_else(|| ListError::new(place.clone(), "the path has no end"))?];
        check_path(path).map_err(|reason| ListError::new(place, reason))?;
        Ok(path)
    }
}

/// What a pack says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackHeader {
    /// Time of its creation: ureadahead refuses a pack that is older than a year.
    pub created_unix_s: u64,
    /// Whether the disk rotates: the blocks are then in the order of their places, and ureadahead reads them in one sweep.
    pub rotational: bool,
}

/// Writes a pack for the device that most files are on. Returns it with the number of files that it cannot hold, because their paths are
/// longer than 255 bytes. Deleted files are left out, and so are files on other devices, which have packs of the other mount points.
pub fn encode(profile: &Profile, header: PackHeader) -> (Vec<u8>, u64) {
    let device = main_device(profile);
    let on_device = listed(profile).filter(|file| file.device == device);
    let (kept, too_long): (Vec<_>, Vec<_>) = on_device.partition(|file| file.path.len() < NAME_BYTES);
    let mut blocks: Vec<(i64, usize, u64, u64)> = Vec::new();
    for (index, file) in kept.iter().enumerate() {
        blocks.extend(file.extents.iter().map(|extent| {
            let place = extent.physical_bytes.and_then(|place| i64::try_from(place).ok()).unwrap_or(NO_PLACE);
            (place, index, extent.offset_bytes, extent.length_bytes)
        }));
    }
    if header.rotational {
        // A tenth of the code of a sort.
        blocks = BinaryHeap::from(blocks).into_sorted_vec();
    }
    let flags = if header.rotational { ROTATIONAL } else { 0 };
    let mut out = [PACK_SIGNATURE, &[VERSION, flags, 0, 0, 0]].concat();
    let mut number = |value: u64| out.extend(value.to_le_bytes());
    number(DeviceNumber::from_key(device).to_stat());
    number(header.created_unix_s);
    number(0);
    number(kept.len() as u64);
    for file in &kept {
        out.extend(NO_GROUP.to_le_bytes());
        out.extend([0; 4]);
        out.extend(file.inode.to_le_bytes());
        out.extend_from_slice(&file.path);
        out.resize(out.len() + NAME_BYTES - file.path.len(), 0);
    }
    out.extend((blocks.len() as u64).to_le_bytes());
    for (place, index, offset, length) in blocks {
        for value in [index as u64, offset, length, place as u64] {
            out.extend(value.to_le_bytes());
        }
    }
    (out, too_long.len() as u64)
}

/// The device with the most files: a pack is for one.
pub fn main_device(profile: &Profile) -> u64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for file in listed(profile) {
        *counts.entry(file.device).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(device, _)| device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::{Syntax, parse};
    use ahead_profile::{Extent, File};
    use proptest::prelude::*;

    const CREATED: PackHeader = PackHeader { created_unix_s: 1_785_000_000, rotational: false };

    fn extent(offset_bytes: u64, length_bytes: u64, physical_bytes: Option<u64>) -> Extent {
        Extent { offset_bytes, length_bytes, physical_bytes, runs: 1, ..Extent::default() }
    }

    fn profile() -> Profile {
        let file = |path: &str, extents| File {
            path: path.into(),
            device: DeviceNumber::new(8, 1).key(),
            inode: 12,
            size_bytes: 1 << 20,
            extents,
            ..File::default()
        };
        let far = extent(0, 4096, Some(1 << 30));
        Profile {
            files: vec![
                file("/usr/bin/x", vec![far, extent(8192, 4096, None)]),
                file("/lib/y", vec![extent(4096, 8192, Some(1 << 20))]),
                file(&format!("/{}", "long".repeat(100)), vec![extent(0, 4096, None)]),
                File { device: 7, ..file("/boot/z", vec![extent(0, 4096, None)]) },
                File { deleted: true, ..file("/gone", vec![extent(0, 4096, None)]) },
            ],
            ..Profile::default()
        }
    }

    /// The bytes by hand, from the structures in pack.h.
    #[test]
    fn pack_has_the_layout_of_ureadahead() {
        let (bytes, too_long) = encode(&profile(), CREATED);
        assert_eq!((&bytes[..8], too_long), (&b"ura\x02\0\0\0\0"[..], 1));
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([number(8), number(16), number(24), number(32)], [0x801, 1_785_000_000, 0, 2]);
        assert_eq!((&bytes[40..44], number(48), &bytes[56..67]), (&[0xff; 4][..], 12, &b"/usr/bin/x\0"[..]));
        assert_eq!(&bytes[328..335], b"/lib/y\0");
        assert_eq!(number(584), 3);
        assert_eq!([592, 600, 608, 616].map(number), [0, 0, 4096, 1 << 30]);
        assert_eq!([624, 632, 640, 648].map(number), [0, 8192, 4096, u64::MAX]);
        assert_eq!(bytes.len(), 592 + 3 * 32);
    }

    #[test]
    fn pack_is_read_as_the_list_that_it_holds() {
        let expected = parse(b"/usr/bin/x:0-4K\n/usr/bin/x:8K-12K\n/lib/y:4K-12K\n", Syntax::default()).unwrap();
        for rotational in [false, true] {
            let (bytes, _) = encode(&profile(), PackHeader { rotational, ..CREATED });
            let decoded = decode(&bytes).unwrap();
            let all = |list: &List| -> Vec<_> {
                list.files().iter().map(|listed| (listed.path.clone(), listed.everything())).collect()
            };
            assert_eq!(all(&decoded), all(&expected));
        }
        let (bytes, _) = encode(&profile(), PackHeader { rotational: true, ..CREATED });
        let places: Vec<&[u8]> = bytes[592..].chunks(32).map(|block| &block[24..]).collect();
        assert_eq!(places, [&u64::MAX.to_le_bytes()[..], &(1u64 << 20).to_le_bytes(), &(1u64 << 30).to_le_bytes()]);
    }

    #[test]
    fn errors_have_the_offset() {
        let (bytes, _) = encode(&profile(), CREATED);
        let changed = |at: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            decode(&bytes).unwrap_err().to_string()
        };
        assert_eq!(changed(0, b"x"), "byte 0: not a pack of ureadahead: the signature is missing");
        assert_eq!(changed(3, b"\x03"), "byte 3: version 3 of the format, only 2 is known");
        assert!(changed(24, &[0xff; 8]).starts_with("byte 24: 18446744073709551615 groups cannot fit into the "));
        assert!(changed(32, &[9]).starts_with("byte 32: 9 paths cannot fit into the "));
        assert_eq!(changed(56, b"x"), "byte 40: the path is not absolute");
        assert_eq!(changed(56, b"/../etc"), "byte 40: the path contains \"..\"");
        assert_eq!(changed(56, &[b'/'; 256]), "byte 40: the path has no end");
        assert_eq!(changed(592, &[2]), "byte 592: the block belongs to no path of the pack");
        assert_eq!(changed(600, &[0xff; 8]), "byte 592: the block starts or ends beyond 2^63 bytes");
        assert_eq!(
            decode(&[&bytes[..], b"\0"].concat()).unwrap_err().to_string(),
            "byte 688: 1 bytes follow the last block"
        );
        assert_eq!(
            decode(&bytes[..20]).unwrap_err().to_string(),
            "byte 8: the pack ends within the device and the time"
        );
    }

    /// Packs for the fuzz target (`fuzz/corpus/pack_decode`). After a change: `AHEAD_WRITE_CORPUS=1 cargo test -p ahead corpus_of_packs`.
    fn corpus() -> Vec<(&'static str, Vec<u8>)> {
        let (good, _) = encode(&profile(), CREATED);
        let changed = |at: usize, new: &[u8]| [&good[..at], new, &good[at + new.len()..]].concat();
        vec![
            ("bad-block-beyond", changed(600, &[0xff; 8])),
            ("bad-groups-2-64", changed(24, &[0xff; 8])),
            ("bad-index", changed(592, &[2])),
            ("bad-path-upwards", changed(56, b"/../etc")),
            ("bad-truncated", good[..good.len() - 1].to_vec()),
            ("bad-version", changed(3, &[1])),
            ("good-empty", [&good[..24], &[0; 24]].concat()),
            ("good-two-files", good),
        ]
    }

    #[test]
    fn corpus_of_packs_is_stored_and_read() {
        let directory =
            [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus/pack_decode"].iter().collect::<std::path::PathBuf>();
        for (name, bytes) in corpus() {
            let file = directory.join(name);
            if std::env::var_os("AHEAD_WRITE_CORPUS").is_some() {
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(&file, &bytes).unwrap();
            }
            assert_eq!(std::fs::read(&file).ok(), Some(bytes.clone()), "{name} differs: see how to write it again");
            assert_eq!(decode(&bytes).is_ok(), name.starts_with("good"), "{name}");
        }
    }

    proptest! {
        /// The structure mostly survives, so that the checks after it are reached.
        #[test]
        fn changed_pack_is_refused_or_a_list_within_its_limits(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            length in any::<prop::sample::Index>(),
        ) {
            let (mut bytes, _) = encode(&profile(), CREATED);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(list) = decode(&bytes) {
                prop_assert!(list.files().len() <= 2);
                for file in list.files() {
                    prop_assert!(check_path(&file.path).is_ok());
                    prop_assert!(file.wanted.span().is_none_or(|span| span.end <= i64::MAX as u64));
                }
            }
            bytes.truncate(length.index(bytes.len()));
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}

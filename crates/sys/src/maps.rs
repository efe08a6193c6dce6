//! What is mapped where in a process: `/proc/PID/maps`.

use crate::{Error, Result};
use ahead_model::DeviceNumber;
use rustix::fs::{Access, AtFlags, CWD, accessat, stat};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const MAPS: &str = "/proc/self/maps";

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    pub addresses: Range<usize>,
    /// Changes reach the file, and other processes (`MAP_SHARED`).
    pub is_shared: bool,
    /// The place in the file of its first byte.
    pub offset_bytes: u64,
    /// Device of the file system. On btrfs and overlayfs stat(2) gives another number. 0:0 without a file.
    pub device: DeviceNumber,
    /// Inode number; 0 without a file.
    pub inode: u64,
    /// Path of the file when it was mapped; or a name in brackets. A file that was deleted has ` (deleted)` behind its path.
    pub path: Option<PathBuf>,
}

impl Area {
    /// Whether a file is mapped.
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// Whether the path leads to the mapped file, and the file is regular. `false` for files that were deleted or renamed.
    pub fn is_regular_file(&self) -> bool {
        let Some(found) = self.path.as_ref().and_then(|path| stat(path).ok()) else { return false };
        found.st_ino == self.inode && rustix::fs::FileType::from_raw_mode(found.st_mode).is_file()
    }

    /// Whether mincore reports to this process which pages of the file are in memory: to root, to the owner and to users who may write the file.
    /// To others every page seems present. `false` if the path does not lead to the file.
    pub fn reports_residency(&self) -> bool {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return true;
        }
        let Some(path) = self.path.as_ref() else { return false };
        let Ok(found) = stat(path) else { return false };
        found.st_ino == self.inode
            && (found.st_uid == user.as_raw() || accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok())
    }
}

/// The mappings of files in a process. Empty: it has ended, or belongs to another user.
pub fn files_of(process: u32) -> Vec<Area> {
    let text = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).filter(Area::is_file).collect()
}

/// The first addresses of the mappings of a process that are locked in memory (mlock). Empty: as [`files_of`]. The kernel walks the page
/// tables of the whole process for it.
pub fn locked_of(process: u32) -> Vec<usize> {
    locked(&std::fs::read(format!("/proc/{process}/smaps")).unwrap_or_default())
}

/// A line as in maps, then lines with a name and a colon: `VmFlags: rd mr lo` (proc_pid_smaps(5)).
fn locked(smaps: &[u8]) -> Vec<usize> {
    let (mut at, mut found) = (None, Vec::new());
    for line in smaps.split(|byte| *byte == b'\n') {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            found.extend(at.filter(|_| flags.split(|byte| *byte == b' ').any(|flag| flag == b"lo")));
        } else if let Some(area) = parse(line) {
            at = Some(area.addresses.start);
        }
    }
    found
}

/// The mappings of this process that overlap a range of addresses, ascending.
///
/// Errors: there is no /proc.
pub fn areas(addresses: &Range<usize>) -> Result<Vec<Area>> {
    let text = std::fs::read(MAPS).map_err(|e| Error::io(format!("read {MAPS}"), e))?;
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut found = Vec::new();
    for line in lines {
        let area = parse(line)
            .ok_or_else(|| Error::Parse { path: MAPS.into(), text: String::from_utf8_lossy(line).into_owned() })?;
        if area.addresses.start < addresses.end && addresses.start < area.addresses.end {
            found.try_reserve(1).map_err(|e| Error::io(format!("read {MAPS}"), e))?;
            found.push(area);
        }
    }
    Ok(found)
}

/// `7f01-7f05 r--s 00000000 fe:00 1234      /a/file` (proc_pid_maps(5)).
fn parse(line: &[u8]) -> Option<Area> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let end = rest[start..].iter().position(|byte| *byte == b' ').map_or(rest.len(), |length| start + length);
        let (word, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        std::str::from_utf8(word).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let flags = field()?;
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let number = |hex: &str| u32::from_str_radix(hex, 16).ok();
    let address = |hex: &str| usize::from_str_radix(hex, 16).ok();
    let path = rest.iter().position(|byte| *byte != b' ').map(|at| unescape(&rest[at..]));
    Some(Area {
        addresses: address(start)?..address(end)?,
        is_shared: flags.as_bytes().get(3) == Some(&b's'),
        offset_bytes: u64::from_str_radix(offset, 16).ok()?,
        device: DeviceNumber::new(number(major)?, number(minor)?),
        inode,
        path: path.map(|bytes| OsString::from_vec(bytes).into()),
    })
}

/// The kernel writes a newline in a path as `\012`, and nothing else in another way.
fn unescape(path: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use std::io::Write;

    #[test]
    fn lines_are_parsed() {
        let area = parse(b"7f0e1000-7f0e5000 r--s 00002000 fe:10 13107   /a b/c\\012d").unwrap();
        assert_eq!(area.addresses, 0x7f0e_1000..0x7f0e_5000);
        assert_eq!((area.is_shared, area.device, area.inode), (true, DeviceNumber::new(254, 16), 13107));
        assert_eq!(area.path, Some(PathBuf::from("/a b/c\nd")));
        let stack = parse(b"7ffd0000-7ffd2000 rw-p 00000000 00:00 0          [stack]").unwrap();
        assert_eq!((stack.is_file(), stack.is_shared), (false, false));
        let unnamed = parse(b"7ffd0000-7ffd2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(unnamed.path, None);
        for wrong in ["", "7ffd0000 rw-p 0 00:00 0", "x-y rw-p 0 00:00 0", "1-2 rw-p 0 00:00"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn locked_mappings_are_those_with_the_flag() {
        let smaps = b"1000-2000 r--s 00000000 fe:10 7   /a\nSize: 4 kB\nVmFlags: rd mr lo \n\
                      3000-4000 r--s 00000000 fe:10 7   /VmFlags: lo\nVmFlags: rd mr loc \n";
        assert_eq!(locked(smaps), [0x1000]);
        assert_eq!(locked(b"VmFlags: lo\n"), Vec::<usize>::new());
    }

    #[test]
    fn a_mapped_file_is_found_by_its_addresses() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let mapping = Mapping::new(file.as_file(), 8192).unwrap();
        let found = areas(&mapping.addresses()).unwrap();
        let [area] = &found[..] else { panic!("one mapping: {found:?}") };
        assert_eq!(area.addresses, mapping.addresses());
        assert!(area.is_shared && area.is_file() && area.is_regular_file() && area.reports_residency());
        let second = mapping.addresses().start + 4096..mapping.addresses().end;
        assert_eq!(areas(&second).unwrap(), found);
        assert!(files_of(std::process::id()).contains(area) && files_of(0).is_empty());
        drop(file);
        assert!(!areas(&second).unwrap()[0].is_regular_file());
    }
}

//! What `/proc` says about a process: its name, the paths of its open and mapped files, its control groups. No file is opened that the
//! process has open, and none is asked for its attributes: its file system may not answer.

use crate::Advice;
use ahead_model::DeviceNumber;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::other_process;
use ahead_sys::within::Patience;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// Its name, without the line end; empty if it has ended.
pub fn comm(pid: u32) -> Vec<u8> {
    let mut name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.pop_if(|last| *last == b'\n');
    name
}

/// Whether the process exists.
pub fn process_exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/comm")).unwrap_or(false)
}

/// The path of an open file, as the process sees it; `None`: the process has ended, or the descriptor was closed.
pub fn path(pid: u32, descriptor: u32) -> Option<Vec<u8>> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    Some(OsString::from(link).into_vec())
}

/// Longest wait for the list of a process's mappings: milliseconds for a large one.
const MAPPINGS: Duration = Duration::from_secs(2);

/// Threads that wait for such lists.
const MOST_WAITING: usize = 4;

static PATIENCE: LazyLock<Mutex<Patience>> = LazyLock::new(|| Mutex::new(Patience::new(MAPPINGS, MOST_WAITING)));

/// `/proc/PID/maps` or `smaps`. To read it, the kernel waits for a lock that the process may hold for any time. `None`: it does, or has ended.
fn mappings(pid: u32, file: &str) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/{file}");
    PATIENCE.lock().ignore_poison().ask(move || fs::read(path).ok())?
}

/// Major faults of a process so far: those that waited for a disk. `None`: it has ended.
pub fn major_faults(pid: u32) -> Option<u64> {
    major_faults_in(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// `7 (name) S 1 …`: the twelfth field (proc_pid_stat(5)). The name may contain spaces and parentheses.
fn major_faults_in(stat: &[u8]) -> Option<u64> {
    let behind_name = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(&stat[behind_name + 1..]).ok()?.split_ascii_whitespace().nth(9)?.parse().ok()
}

/// The path of a mapped file.
pub fn mapped_path(pid: u32, device: DeviceNumber, inode_number: u64) -> Option<Vec<u8>> {
    mapped_path_in(&mappings(pid, "maps")?, device, inode_number)
}

/// `7f00-7f01 r--p 00001000 fd:00 131 /path`: address, rights, offset, device in hexadecimal, inode, path with `\012` for line ends.
fn mapped_path_in(maps: &[u8], device: DeviceNumber, inode_number: u64) -> Option<Vec<u8>> {
    let wanted = format!("{:02x}:{:02x}", device.major, device.minor);
    let is_wanted = |line: &&[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        fields.next() == Some(wanted.as_bytes()) && fields.next() == Some(inode_number.to_string().as_bytes())
    };
    let line = maps.split(|byte| *byte == b'\n').find(is_wanted)?;
    let start = line.iter().position(|byte| *byte == b'/')?;
    Some(ahead_sys::mounts::unescape(&line[start..]))
}

/// The advice of its mappings (`madvise`), by device and inode; only those that have any. A file with several keeps the last one.
pub fn mapping_advice(pid: u32) -> HashMap<(DeviceNumber, u64), Advice> {
    mapping_advice_in(&mappings(pid, "smaps").unwrap_or_default())
}

/// The line of a mapping as in `maps`, then lines with a name and a colon: `VmFlags: rd mr me rr`, with `rr` for random and `sr` for
/// sequential reads.
fn mapping_advice_in(smaps: &[u8]) -> HashMap<(DeviceNumber, u64), Advice> {
    let (mut found, mut mapping) = (HashMap::new(), None);
    for line in smaps.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let mut fields = line.split_ascii_whitespace();
        match fields.next() {
            Some("VmFlags:") => {
                let flags: Vec<&str> = fields.collect();
                let advice = match () {
                    () if flags.contains(&"rr") => Some(Advice::Random),
                    () if flags.contains(&"sr") => Some(Advice::Sequential),
                    () => None,
                };
                found.extend(mapping.take().zip(advice));
            }
            Some(name) if !name.ends_with(':') => mapping = file_of(fields.skip(2)),
            _ => {}
        }
    }
    found
}

/// Device and inode of the line of a mapping, from the device on.
fn file_of<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<(DeviceNumber, u64)> {
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some((DeviceNumber::new(number(major)?, number(minor)?), fields.next()?.parse().ok()?))
}

/// The paths of its control groups, one for each hierarchy.
pub fn control_groups(pid: u32) -> Vec<Vec<u8>> {
    control_groups_in(&other_process::cgroups(pid).unwrap_or_default())
}

/// `0::/system.slice/x.service`, or `7:memory:/x`.
fn control_groups_in(text: &[u8]) -> Vec<Vec<u8>> {
    let path = |line: &[u8]| line.splitn(3, |byte| *byte == b':').nth(2).map(<[u8]>::to_vec);
    text.split(|byte| *byte == b'\n').filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn own_files_have_their_paths() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = File::open(file.path()).unwrap();
        let pid = std::process::id();
        assert_eq!(path(pid, open.as_raw_fd() as u32).unwrap(), file.path().as_os_str().as_bytes());
        assert_eq!(path(pid, 1 << 20), None);
        assert!(process_exists(pid) && !comm(pid).is_empty() && !comm(pid).contains(&b'\n'));
        assert!(!process_exists(u32::MAX) && comm(u32::MAX).is_empty() && control_groups(u32::MAX).is_empty());
    }

    #[test]
    fn mapped_files_are_found_by_device_and_inode() {
        let maps = b"7f00-7f01 r-xp 00001000 fe:00 131                        /usr/lib/a\\012b.so\n\
            7f02-7f03 rw-p 00000000 00:00 0                         [heap]\n7f04-7f05 r--p 00000000 fe:00 1310  /other\n";
        let device = DeviceNumber::new(254, 0);
        assert_eq!(mapped_path_in(maps, device, 131).unwrap(), b"/usr/lib/a\nb.so");
        assert_eq!(mapped_path_in(maps, device, 1310).unwrap(), b"/other");
        assert_eq!(mapped_path_in(maps, device, 0), None);
        assert_eq!(mapped_path_in(b"\n \xff", device, 1), None);
    }

    #[test]
    fn advice_of_mappings_is_found_by_device_and_inode() {
        let smaps = b"7f00-7f01 r--p 00001000 fe:00 131   /a b\nRss:   4 kB\nVmFlags: rd mr mw me rr \n\
            7f02-7f03 rw-p 00000000 00:00 0\nVmFlags: rd sr\n7f04-7f05 r--p 00000000 fe:00 132  /c\nVmFlags: rd mr\n";
        let found = mapping_advice_in(smaps);
        assert_eq!(found.get(&(DeviceNumber::new(254, 0), 131)), Some(&Advice::Random));
        assert!(!found.contains_key(&(DeviceNumber::new(254, 0), 132)));
        assert!(mapping_advice_in(b"VmFlags: rr\n\xff : x\nx:\n").is_empty());
    }

    #[test]
    fn major_faults_are_the_twelfth_field() {
        assert_eq!(major_faults_in(b"7 (a ) b) S 1 2 3 4 5 6 7 8 974 10 11\n"), Some(974));
        assert_eq!((major_faults_in(b"7 (a"), major_faults_in(b"7 (a) S 1\n")), (None, None));
        assert!(major_faults(std::process::id()).is_some() && major_faults(u32::MAX).is_none());
    }

    #[test]
    fn control_groups_of_both_versions_are_read() {
        let text = b"7:memory,x:/a:b\n0::/system.slice\nnonsense\n";
        assert_eq!(control_groups_in(text), [b"/a:b".to_vec(), b"/system.slice".to_vec()]);
    }
}

//! The mount table (`/proc/PID/mountinfo`): its format, and the mount that a path lies on.
//!
//! Device numbers here are the superblock's: on btrfs and overlayfs, stat(2) reports others. Paths are bytes, with the kernel's
//! octal escapes decoded.

use crate::DeviceNumber;
use crate::file_system_kind::{FileSystemKind, Place};
use std::cmp::Reverse;
use std::fmt;

/// One mounted file system, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub id: u32,
    pub parent: u32,
    /// Device number of the superblock.
    pub device: DeviceNumber,
    /// What of the file system is mounted: `/`, or a directory of it (bind mounts, btrfs subvolumes).
    pub root: Vec<u8>,
    /// Where, seen from the root directory of the process whose table this is.
    pub mount_point: Vec<u8>,
    /// Options of this mount, `rw,noatime`.
    pub options: Vec<u8>,
    /// File system type, `ext4`.
    pub fs_type: String,
    /// What was mounted: `/dev/vda1`, `tmpfs`, a server's path.
    pub source: Vec<u8>,
    /// Options of the superblock, still escaped (a comma in a value is `\054`).
    pub super_options: Vec<u8>,
}

impl Mount {
    /// Whether the mount point is the path, or a directory above it.
    fn covers(&self, path: &[u8]) -> bool {
        let point = self.mount_point.strip_suffix(b"/").unwrap_or(&self.mount_point);
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// What is known of its type.
    pub fn kind(&self) -> FileSystemKind {
        FileSystemKind::named(&self.fs_type)
    }

    /// The user who made a FUSE mount, and whose process answers; `u32::MAX`, which is no user, where the options do not name one. `None`:
    /// another file system, or virtiofs, for which the hypervisor answers.
    pub fn fuse_user(&self) -> Option<u32> {
        if self.kind().place != Place::Process || self.fs_type == "virtiofs" {
            return None;
        }
        // The kernel writes this option behind those that may have a comma.
        let user = self.super_options.rsplit(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"user_id="));
        Some(user.and_then(number).unwrap_or(u32::MAX))
    }

    /// The layers of an overlay as they were given when it was mounted, the upper one first. None for other types.
    pub fn overlay_layers(&self) -> Vec<Vec<u8>> {
        if self.fs_type != "overlay" {
            return Vec::new();
        }
        let (mut upper, mut lower) = (Vec::new(), Vec::new());
        for option in self.super_options.split(|byte| *byte == b',') {
            let Some(equals) = option.iter().position(|byte| *byte == b'=') else { continue };
            let value = unescape(&option[equals + 1..]);
            match &option[..equals] {
                b"upperdir" => upper.push(value),
                b"lowerdir" => lower.extend(split_layers(&value)),
                b"lowerdir+" | b"datadir+" => lower.push(value),
                _ => {}
            }
        }
        upper.append(&mut lower);
        upper
    }
}

/// `a:b::c` into its parts; `\:` is a colon in a name (overlayfs).
fn split_layers(value: &[u8]) -> Vec<Vec<u8>> {
    let mut layers = vec![Vec::new()];
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        let current = layers.last_mut().expect("there is always one");
        match byte {
            b'\\' => current.extend(bytes.next()),
            b':' => layers.push(Vec::new()),
            other => current.push(other),
        }
    }
    layers.retain(|layer| !layer.is_empty());
    layers
}

/// The index of the mount that an absolute path without symbolic links lies on.
///
/// ```text
///     /  ext4 ──▶ /srv  autofs ──▶ /srv  ext4          a path below /srv lies on the ext4 that is mounted on the autofs
///        └──────▶ /var/lib  tmpfs (below)  ◀── hidden once something is mounted on /var
/// ```
///
/// The search goes the way of the kernel's own lookup: from the root mount to the child whose mount point comes first on the
/// path, as long as there is one. The longest mount point is not always the answer (another mount may hide it), and the last
/// line is not either (a mount that was moved keeps its place in the table). Children of the same mount at the same point
/// exist after mount propagation: the last line counts then.
pub fn covering(mounts: &[Mount], path: &[u8]) -> Option<usize> {
    let candidates: Vec<usize> = (0..mounts.len()).filter(|index| mounts[*index].covers(path)).collect();
    let first_on_path = |children: &mut dyn Iterator<Item = usize>| {
        children.min_by_key(|index| (mounts[*index].mount_point.len(), Reverse(*index)))
    };
    // Of a root directory that is no mount point (chroot) the table does not show the mount: then several have no parent.
    let has_parent = |mount: &Mount| mounts.iter().any(|other| other.id == mount.parent && other.id != mount.id);
    let mut at = first_on_path(&mut candidates.iter().copied().filter(|index| !has_parent(&mounts[*index])))?;
    // A broken table may hold a circle.
    for _ in 0..candidates.len() {
        let is_child = |index: &usize| {
            let child = &mounts[*index];
            *index != at && child.parent == mounts[at].id && child.mount_point.len() >= mounts[at].mount_point.len()
        };
        match first_on_path(&mut candidates.iter().copied().filter(is_child)) {
            Some(child) => at = child,
            None => break,
        }
    }
    Some(at)
}

/// A line of a mount table that does not have the format of proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMountError {
    pub line: String,
}

impl fmt::Display for ParseMountError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "not a line of a mount table: {:?}", self.line)
    }
}

impl std::error::Error for ParseMountError {}

/// Parses a mountinfo file.
pub fn parse(text: &[u8]) -> Result<Vec<Mount>, ParseMountError> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Result<Mount, ParseMountError> {
    parse_fields(line).ok_or_else(|| ParseMountError { line: String::from_utf8_lossy(line).into_owned() })
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue`: any number of fields before the
/// dash, and three after it.
fn parse_fields(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let options = fields.next()?.to_vec();
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = unescape(fields.next()?);
    let super_options = fields.next().unwrap_or_default().to_vec();
    Some(Mount { id, parent, device, root, mount_point, options, fs_type, source, super_options })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes `\040` and the like; a backslash that is not followed by three octal digits stays.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match octal(byte, tail) {
            Some(escaped) => {
                out.push(escaped);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

fn octal(byte: u8, tail: &[u8]) -> Option<u8> {
    let digits = tail.get(..3).filter(|_| byte == b'\\')?;
    digits.iter().try_fold(0u32, |value, digit| Some(value * 8 + (*digit as char).to_digit(8)?))?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Mount {
        parse(line.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let mount = one(r"36 35 98:0 /mnt1 /mnt\0402\011x rw,noatime master:1 shared:7 - ext3 /dev/ro\134ot rw");
        assert_eq!((mount.id, mount.parent, mount.device), (36, 35, DeviceNumber::new(98, 0)));
        assert_eq!((mount.root.as_slice(), mount.mount_point.as_slice()), (&b"/mnt1"[..], &b"/mnt 2\tx"[..]));
        assert_eq!((mount.fs_type.as_str(), mount.source.as_slice()), ("ext3", &b"/dev/ro\\ot"[..]));
        assert_eq!((mount.options.as_slice(), mount.super_options.as_slice()), (&b"rw,noatime"[..], &b"rw"[..]));
        assert!(mount.overlay_layers().is_empty());
    }

    #[test]
    fn a_btrfs_subvolume_has_its_root_and_the_superblocks_number() {
        let mount = one("40 1 0:43 /@/home /home rw - btrfs /dev/loop0 rw,subvolid=256,subvol=/@/home");
        assert_eq!((mount.device, mount.root.as_slice()), (DeviceNumber::new(0, 43), &b"/@/home"[..]));
    }

    #[test]
    fn user_of_a_fuse_mount_is_in_the_options_of_its_superblock() {
        let user = |fs_type: &str, options: &str| {
            one(&format!("60 1 0:60 / /m rw,user_id=0 - {fs_type} user_id=0 {options}")).fuse_user()
        };
        let of_fuse = "rw,user_id=1000,group_id=0,default_permissions,allow_other";
        for fs_type in ["fuse", "fuse.sshfs", "fuseblk"] {
            assert_eq!(user(fs_type, of_fuse), Some(1000), "{fs_type}");
        }
        assert_eq!(user("fuse", "rw,user_id=0,group_id=0"), Some(0));
        assert_eq!(user("fuse", r#"rw,context="a,user_id=0,b",user_id=1000,group_id=0"#), Some(1000));
        for unknown in ["rw", "rw,user_id=", "rw,user_id=x", "rw,xuser_id=0", "rw,user_id=4294967296"] {
            assert_eq!(user("fuse", unknown), Some(u32::MAX), "{unknown}");
        }
        assert_eq!((user("virtiofs", "rw"), user("ext4", of_fuse), user("fusectl", "rw")), (None, None, None));
    }

    #[test]
    fn the_layers_of_an_overlay_upper_first() {
        let mount = one(r"50 1 0:50 / /m rw - overlay overlay rw,lowerdir=/a\054b:/c\134:d::/e,upperdir=/u,workdir=/w");
        assert_eq!(mount.overlay_layers(), [&b"/u"[..], b"/a,b", b"/c:d", b"/e"]);
        let mount = one("50 1 0:50 / /m rw - overlay overlay ro,lowerdir+=/x:y,lowerdir+=/z");
        assert_eq!(mount.overlay_layers(), [&b"/x:y"[..], b"/z"]);
    }

    #[test]
    fn names_that_are_not_utf8_stay_as_they_are() {
        let mount = parse(b"1 1 0:1 / /\xff\\377 rw - tmpfs t rw\n").unwrap().remove(0);
        assert_eq!(mount.mount_point, b"/\xff\xff");
    }

    fn covering_id(table: &[u8], path: &str) -> Option<u32> {
        let mounts = parse(table).unwrap();
        covering(&mounts, path.as_bytes()).map(|index| mounts[index].id)
    }

    /// Regression: the lower one of two mounts on the same point was found, and what was looked up below was dropped.
    #[test]
    fn of_mounts_on_one_point_the_upper_one_covers_a_path() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:40 / /srv rw - autofs systemd-1 rw\n\
            3 2 8:2 / /srv rw - ext4 /dev/sda2 rw\n";
        assert_eq!(covering_id(table, "/srv/x"), Some(3));
        assert_eq!(covering_id(table, "/srv"), Some(3));
        assert_eq!(covering_id(table, "/srvx"), Some(1));
        // Moved there: it is older, and stands before what it was moved onto.
        let moved = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 3 8:2 / /srv rw - ext4 /dev/sda2 rw\n\
            3 1 0:40 / /srv rw - autofs systemd-1 rw\n";
        assert_eq!(covering_id(moved, "/srv/x"), Some(2));
        // After propagation both may be children of the same mount.
        let siblings = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n\
            3 1 8:3 / /srv rw - ext4 /dev/sda3 rw\n";
        assert_eq!(covering_id(siblings, "/srv/x"), Some(3));
    }

    /// Regression: a mount below a directory that something else was mounted on later was found by its longer mount point.
    #[test]
    fn a_hidden_mount_covers_nothing() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:40 / /var/lib rw - tmpfs t rw\n\
            3 1 8:2 / /var rw - ext4 /dev/sda2 rw\n";
        assert_eq!(covering_id(table, "/var/lib/x"), Some(3));
    }

    #[test]
    fn a_table_without_its_root_and_one_with_a_circle_end_the_search() {
        let chroot = b"7 5 0:40 / /proc rw - proc proc rw\n8 5 0:41 / /sys rw - sysfs sysfs rw\n";
        assert_eq!(covering_id(chroot, "/proc/1"), Some(7));
        assert_eq!(covering_id(chroot, "/home"), None);
        let own_parent = b"1 1 0:2 / / rw - rootfs rootfs rw\n2 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        assert_eq!(covering_id(own_parent, "/home"), Some(2));
        let circle = b"1 0 8:1 / / rw - a a rw\n2 1 8:1 / / rw - a a rw\n1 2 8:1 / / rw - a a rw\n";
        assert!(covering_id(circle, "/home").is_some());
        assert_eq!(covering_id(b"", "/home"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_table_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text);
        }

        #[test]
        fn unescaping_undoes_the_kernels_escaping(name in proptest::collection::vec(1u8.., 0..64)) {
            let escaped: Vec<u8> = name.iter().flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                other => vec![*other],
            }).collect();
            prop_assert_eq!(unescape(&escaped), name);
        }
    }
}

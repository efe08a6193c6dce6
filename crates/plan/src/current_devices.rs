//! The current numbers of recorded devices. A disk that was attached again has another number, and its old number may belong to
//! another disk. The mount table gives the current number without opening a file or reading a disk.

use ahead_model::DeviceNumber;
use ahead_model::mounts::{Mount, covering};
use ahead_profile::Profile;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Maps the recorded number of each device to the number of the file system that is mounted where its first path lies. `root`: the
/// directory below which the paths are; empty for the root directory.
pub fn current_device_numbers(profile: &Profile, root: &[u8], mounts: &[Mount]) -> BTreeMap<u64, DeviceNumber> {
    let metadata = profile.metadata.iter().map(|metadata| (metadata.device, &metadata.mount_point[..]));
    let files = profile.files.iter().filter(|file| !file.deleted).map(|file| (file.device, &file.path[..]));
    let lookups = profile.lookups.iter().map(|lookup| (lookup.device, &lookup.path[..]));
    let mut numbers = BTreeMap::new();
    // The mount point of a device is not always recorded.
    for (device, path) in metadata.chain(files).chain(lookups).filter(|(_, path)| !path.is_empty()) {
        if let Entry::Vacant(unknown) = numbers.entry(device)
            && let Some(index) = covering(mounts, &[root, path].concat())
        {
            unknown.insert(mounts[index].device);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_model::mounts;
    use ahead_profile::{File, Lookup, Metadata};

    fn table() -> Vec<Mount> {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n3 1 8:3 / /srv rw - ext4 /dev/sda3 rw\n";
        mounts::parse(text).unwrap()
    }

    #[test]
    fn a_device_is_found_by_its_mount_point_or_else_by_a_path() {
        let file = |device, path: &str| File { device, path: path.into(), ..File::default() };
        let profile = Profile {
            metadata: vec![
                Metadata { device: 1, mount_point: b"/srv".to_vec(), ..Metadata::default() },
                Metadata { device: 2, ..Metadata::default() },
            ],
            files: vec![
                file(1, "/elsewhere"),
                File { deleted: true, ..file(3, "/gone") },
                file(2, "/srv/file"),
                file(3, "/srv/file"),
            ],
            lookups: vec![Lookup { device: 4, path: b"/usr"[..].into(), ..Lookup::default() }],
            ..Profile::default()
        };
        let expected = [
            (1, DeviceNumber::new(8, 3)),
            (2, DeviceNumber::new(8, 3)),
            (3, DeviceNumber::new(8, 3)),
            (4, DeviceNumber::new(8, 1)),
        ];
        assert_eq!(current_device_numbers(&profile, b"", &table()), BTreeMap::from(expected));
    }
}

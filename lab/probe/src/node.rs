//! The node of a block device by its number. `/dev` is searched: what sysfs says of the device are its settings, which a probe
//! does not read.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where nodes are.
const NODES: &str = "/dev";
/// Directories below that hold nodes (`mapper`, `block`) are no deeper.
const DEPTH: u32 = 3;

/// A node of the device with this number (`st_dev` of a file on it); none where there is no node, as in many containers.
pub fn of(number: u64) -> Option<PathBuf> {
    let nodes = Path::new(NODES);
    below(nodes, number, fs::metadata(nodes).ok()?.dev(), DEPTH)
}

/// Links name what is there already, and what is mounted below (`pts`, `shm`) has no disks: neither is followed.
fn below(directory: &Path, number: u64, file_system: u64, depth: u32) -> Option<PathBuf> {
    let entries = || fs::read_dir(directory).into_iter().flatten().flatten();
    let looked = entries().filter_map(|entry| Some((entry.path(), fs::symlink_metadata(entry.path()).ok()?)));
    let (directories, others): (Vec<_>, Vec<_>) = looked.partition(|(_, metadata)| metadata.is_dir());
    let is_it = |metadata: &fs::Metadata| metadata.file_type().is_block_device() && metadata.rdev() == number;
    others.into_iter().find(|(_, metadata)| is_it(metadata)).map(|(path, _)| path).or_else(|| {
        let mut inner = directories.into_iter().filter(|(_, metadata)| depth > 1 && metadata.dev() == file_system);
        inner.find_map(|(path, _)| below(&path, number, file_system, depth - 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_device_is_found_by_its_number_and_others_are_not() {
        for entry in fs::read_dir(NODES).unwrap().flatten() {
            let metadata = fs::symlink_metadata(entry.path()).unwrap();
            let found = of(metadata.rdev()).map(|node| fs::metadata(node).unwrap());
            match metadata.file_type().is_block_device() {
                true => assert_eq!(found.unwrap().rdev(), metadata.rdev()),
                false => assert!(found.is_none_or(|found| found.file_type().is_block_device())),
            }
        }
        assert_eq!(of(0), None);
    }
}

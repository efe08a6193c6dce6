//! Finds the node of a block device by its number. The search is in `/dev`, because sysfs has settings of the device, which a probe does
//! not read.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directory of the nodes.
const NODES: &str = "/dev";
/// Depth of the search: directories with nodes (`mapper`, `block`) are no deeper.
const DEPTH: u32 = 3;

/// A node of the device with this number (`st_dev` of a file on the device). `None` if there is no node, as in many containers.
pub fn of(number: u64) -> Option<PathBuf> {
    let nodes = Path::new(NODES);
    below(nodes, number, fs::metadata(nodes).ok()?.dev(), DEPTH)
}

/// Searches a directory. It follows no link, because links name nodes that are found already. It enters no mount (`pts`, `shm`), because
/// mounts have no disks.
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
    fn only_block_devices_are_found_by_their_number() {
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

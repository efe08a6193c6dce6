//! The kernel's list of files with cached pages, from which a recorded boot has what was read before the observer was loaded.

use super::rig::{Volume, evict, undisturbed};
use std::fs::{self, File};

/// Regression: a boot was recorded from the moment at which the observer was loaded, and lacked the programs that had run before.
#[test]
fn kernel_lists_the_files_with_cached_pages() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(volume) = Volume::new(fs_type) else { continue };
        let _undisturbed = undisturbed();
        let (read, deep) = (volume.file("read", 30), volume.file("a/b/deep", 30));
        let (evicted, unlinked) = (volume.file("evicted", 3), volume.file("unlinked", 3));
        // Keeps the inode and its pages.
        let _open = File::open(&unlinked).unwrap();
        fs::remove_file(&unlinked).unwrap();
        evict(&evicted);
        for path in [&read, &deep] {
            evict(path);
            fs::read(path).unwrap();
        }
        let listed = ahead_observe::cached_files(&File::open(&volume.root).unwrap()).unwrap();
        let paths: Vec<_> = listed.iter().map(|file| String::from_utf8(file.path.clone()).unwrap()).collect();
        // In this order they were made, and so their inodes.
        assert_eq!(paths, ["/read", "/a/b/deep"], "{fs_type}");
    }
}

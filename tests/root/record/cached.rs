//! The kernel's list of files with cached pages, from which a recorded boot has what was read before the observer was loaded.

use super::rig::{Home, entry, ranges, volume, volume_undisturbed};
use ahead_tests::rig::prelude::*;

/// Regression: a boot was recorded from the moment at which the observer was loaded, and lacked the programs that had run before.
#[test]
fn kernel_lists_the_files_with_cached_pages() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(volume) = volume(fs_type) else { continue };
        let _undisturbed = shared();
        let (read, deep) = (volume.pages("read", 30), volume.pages("a/b/deep", 30));
        let (evicted, unlinked) = (volume.pages("evicted", 3), volume.pages("unlinked", 3));
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

/// The observer ends early for pages that it knows to be used. It must not take other pages, a file that has grown, or a file with a
/// reused inode for them.
#[test]
fn new_pages_of_known_words_and_of_reused_inodes_are_seen() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(volume) = volume_undisturbed(fs_type) else { continue };
        let (one, two, grown) = (volume.pages("one", 64), volume.pages("two", 64), volume.pages("grown", 1));
        let path = |path: &std::path::Path| path.display().to_string();
        // Two files in turn, so that their words share the processor's cache; each page many times; the last ones late.
        let script = format!(
            "sub page {{ my ($f, $at) = @_; sysseek($f, $at * {PAGE}, 0); sysread($f, $b, {PAGE}) }}\
             open(A, '<', '{}'); open(B, '<', '{}'); open(C, '<', '{}');\
             for (1..500) {{ page(A, 3); page(B, 5); page(A, 4); page(C, 0) }} page(A, 9); page(B, 3);\
             open(D, '>>', '{}'); syswrite(D, 'x' x (2 * {PAGE})); page(C, 2);\
             for $n (1..50) {{ open(E, '>', '{root}/again'); syswrite(E, 'y' x (4 * {PAGE})); close(E); open(E, '<', '{root}/again');\
               page(E, 1) for (1..3); close(E); unlink('{root}/again') }} page(A, 11); page(B, 4)",
            path(&one),
            path(&two),
            path(&grown),
            path(&grown),
            root = volume.root.display(),
        );
        let home = Home::new();
        let (_, profile) = home.record(&[], &["perl", "-e", &script.replace("\\", "")]);
        let pages =
            |file| ranges(entry(&profile, file)).iter().map(|r| r.start / PAGE..r.end / PAGE).collect::<Vec<_>>();
        assert_eq!((pages(&one), pages(&two)), (vec![3..5, 9..10, 11..12], vec![3..6]), "{fs_type}");
        assert_eq!(profile.recording.lost_events, 0);
    }
}

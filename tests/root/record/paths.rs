//! Paths: after any mounts, links and renames, a profile names paths that can be opened, and paths that the program saw.

use super::rig::{self, Home, entry, find, install_below, paths, ranges, volume_alone, volume_undisturbed};
use ahead_process::undo::Action;
use ahead_profile::Profile;
use ahead_tests::rig::mounted::{mount, overlay};
use ahead_tests::rig::prelude::*;
use std::ffi::OsStr;

fn cat(home: &Home, files: &[&Path]) -> Profile {
    let command: Vec<&OsStr> =
        [OsStr::new("cat")].into_iter().chain(files.iter().map(|file| file.as_os_str())).collect();
    home.record(&[], &command).1
}

fn seen(profile: &Profile, path: &Path) -> Option<String> {
    entry(profile, path).seen_path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned())
}

fn names(directory: &Path, profile: &Profile) -> Vec<String> {
    let inside = paths(profile).into_iter().filter(|path| Path::new(path).starts_with(directory));
    inside.map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn an_overlay_is_recorded_as_layer_files_with_the_seen_path() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let lower = volume.pages("lower/dir/below", 2);
    let upper = volume.pages("upper/dir/above", 3);
    let Some((merged, overlay)) = overlay(&volume.root.join("lower"), &volume.root) else { return };
    let home = Home::new();
    let profile = cat(&home, &[&merged.join("dir/below"), &merged.join("dir/above")]);
    drop(overlay);
    assert_eq!(ranges(entry(&profile, &lower)), vec![0..2 * PAGE]);
    assert_eq!(ranges(entry(&profile, &upper)), vec![0..3 * PAGE]);
    assert_eq!(seen(&profile, &lower), Some(merged.join("dir/below").display().to_string()));
    assert_eq!(seen(&profile, &upper), Some(merged.join("dir/above").display().to_string()));
    assert_eq!(entry(&profile, &lower).fs_type, "ext4");
    assert_eq!(entry(&profile, &lower).inode, fs::metadata(&lower).unwrap().ino());
}

#[test]
fn btrfs_subvolumes_with_the_same_inode_numbers_are_distinguished() {
    let Some(volume) = volume_undisturbed("btrfs") else { return };
    for name in ["a", "b"] {
        program("btrfs").args(["subvolume", "create"]).arg(volume.root.join(name)).ok();
    }
    let [a, b] = [("a/file", 5), ("b/file", 9)].map(|(name, pages)| volume.pages(name, pages));
    assert_eq!(fs::metadata(&a).unwrap().ino(), fs::metadata(&b).unwrap().ino());
    let home = Home::new();
    let profile = cat(&home, &[&a, &b]);
    assert_eq!(ranges(entry(&profile, &a)), vec![0..5 * PAGE]);
    assert_eq!(ranges(entry(&profile, &b)), vec![0..9 * PAGE]);
    // A separately mounted subvolume's path begins at its root. The profile names the longest mount root.
    let point = volume.beside("only-b");
    let guard = mount(volume.node(), &point, "btrfs", "subvol=b").unwrap();
    let profile = cat(&home, &[&point.join("file")]);
    drop(guard);
    assert_eq!(ranges(entry(&profile, &point.join("file"))), vec![0..9 * PAGE]);
    assert_eq!(entry(&profile, &point.join("file")).fs_path, b"/b/file");
}

#[test]
fn bind_mounts_and_hard_links_lead_to_the_file() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let file = volume.pages("deep/original", 2);
    let link = volume.root.join("hard-link");
    fs::hard_link(&file, &link).unwrap();
    let bound = volume.beside("bound");
    let device = volume.node().to_string_lossy().into_owned();
    let _guard = ahead_process::undo::note(Action::unmount(&bound, "ext4", &device)).unwrap();
    program("mount").arg("--bind").args([&volume.root.join("deep"), &bound]).ok();
    let strange = volume.pages(OsStr::from_bytes(b"not \xff utf-8\n\\ \x01"), 1);
    let long = volume.pages(["d".repeat(255), "e".repeat(255), "f".repeat(255)].join("/"), 1);
    let home = Home::new();
    let profile = cat(&home, &[&bound.join("original"), &link, &strange, &long]);
    let inode = fs::metadata(&file).unwrap().ino();
    let of_file: Vec<_> = profile.files.iter().filter(|f| f.inode == inode && f.fs_type == "ext4").collect();
    let one = of_file.iter().find(|f| fs::metadata(OsStr::from_bytes(&f.path)).is_ok_and(|m| m.size() == 2 * PAGE));
    assert_eq!(ranges(one.expect("the file under one of its names")), vec![0..2 * PAGE]);
    assert_eq!(ranges(entry(&profile, &strange)), vec![0..PAGE]);
    assert_eq!(ranges(entry(&profile, &long)), vec![0..PAGE]);
}

#[test]
fn renamed_files_are_found_and_deleted_ones_are_marked() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let gone = volume.pages("gone", 1);
    volume.pages("before", 2);
    volume.pages("replaced", 3);
    volume.pages("moved/inner", 4);
    let root = volume.root.display();
    let script = format!(
        "cd {root}; cat gone before replaced moved/inner >/dev/null; rm gone; mv before after; \
         cp replaced new; mv new replaced; mv moved elsewhere; cat elsewhere/inner >/dev/null"
    );
    let home = Home::new();
    let (_, profile) = home.record(&[], &["sh", "-c", &script]);
    assert!(entry(&profile, &gone).deleted);
    let after = entry(&profile, &volume.root.join("after"));
    assert!(!after.deleted && find(&profile, &volume.root.join("before")).is_none());
    assert_eq!(ranges(after), vec![0..2 * PAGE]);
    let inner = entry(&profile, &volume.root.join("elsewhere/inner"));
    assert!(!inner.deleted, "{:?}", names(&volume.root, &profile));
    assert_eq!(ranges(inner), vec![0..4 * PAGE]);
    // The old content is gone, and the file that has its name now was written, not read.
    assert!(entry(&profile, &volume.root.join("replaced")).deleted);
}

/// A script that waits until its parent, the recorder, has opened the mount table of the script's namespace: on a busy machine
/// the namespace may otherwise end first. The wait has a limit, so that a recorder that never opens the table fails the test.
const TABLE_IS_OPEN: &str = "end=$(($(date +%s) + 60)); until readlink /proc/$PPID/fd/* | grep -q mountinfo; do \
     [ $(date +%s) -lt $end ] || { echo the recorder did not open our mount table within 60 s >&2; exit 1; }; done";

#[test]
fn a_program_in_another_mount_namespace_is_followed() {
    let Some(volume) = volume_alone("ext4") else { return };
    let file = volume.pages("tree/inside", 2);
    let other = volume.beside("private");
    // The tree is bound to another path that only this namespace contains.
    let script = format!(
        "mount --bind {} {} && {TABLE_IS_OPEN}; exec cat {}/inside",
        volume.root.join("tree").display(),
        other.display(),
        other.display()
    );
    let home = Home::new();
    let (output, profile) = home.record(&[], &["unshare", "--mount", "sh", "-c", &script]);
    assert_eq!(output.out_bytes.len() as u64, 2 * PAGE, "{output}");
    assert_eq!(ranges(entry(&profile, &file)), vec![0..2 * PAGE]);
    assert_eq!(seen(&profile, &file), Some(other.join("inside").display().to_string()));
}

#[test]
fn both_paths_of_a_file_in_a_container_are_recorded() {
    let Some(volume) = volume_alone("ext4") else { return };
    // An image below and a writable layer above it, mounted only in the container, with the container's root there.
    install_below(&volume.root.join("lower"), &["/usr/bin/cat"]);
    let lower = volume.pages("lower/dir/below", 2);
    make_directories(&volume.root, ["upper", "work"]);
    let merged = volume.beside("merged");
    let root = volume.root.display();
    let options = format!("lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work");
    let point = merged.display();
    let script = format!(
        "mount -t overlay overlay -o {options} {point} && {TABLE_IS_OPEN}; exec chroot {point} /usr/bin/cat /dir/below"
    );
    let home = Home::new();
    let (output, profile) = home.record(&[], &["unshare", "--mount", "sh", "-c", &script]);
    assert_eq!(output.out_bytes.len() as u64, 2 * PAGE, "{output}");
    assert_eq!(ranges(entry(&profile, &lower)), vec![0..2 * PAGE]);
    assert_eq!(seen(&profile, &lower).as_deref(), Some("/dir/below"));
    assert_eq!(seen(&profile, &volume.root.join("lower/usr/bin/cat")).as_deref(), Some("/usr/bin/cat"));
}

#[test]
fn unreachable_files_are_counted() {
    let Some(volume) = volume_alone("ext4") else { return };
    let mut other = rig::volume("ext4").expect("a second volume where there is a first");
    other.pages("hidden", 2);
    other.unmount();
    let point = volume.beside("point");
    // Mounted only in the program's namespace.
    let script = format!("mount {} {1} && cat {1}/hidden", other.node().display(), point.display());
    let home = Home::new();
    let (output, profile) = home.record(&[], &["unshare", "--mount", "sh", "-c", &script]);
    assert_eq!(output.out_bytes.len() as u64, 2 * PAGE, "{output}");
    assert!(find(&profile, &point.join("hidden")).is_none());
    output.says("1 files on file systems that cannot be reached");
}

//! Recordings below a root directory: relative paths, and nothing from outside.

use super::rig::{Home, entry, paths, ranges, volume};
use ahead_tests::rig::prelude::*;

/// A link to the root: the recorded directory is the one without links.
fn link_to(volume: &Mounted) -> PathBuf {
    let link = volume.beside("links").join("root");
    std::os::unix::fs::symlink(&volume.root, &link).unwrap();
    link
}

#[test]
fn a_recording_below_a_root_has_relative_paths_and_is_replayed_there() {
    let Some(volume) = volume("ext4") else { return };
    let file = volume.pages("usr/lib/data", 5);
    let (home, link) = (Home::new(), link_to(&volume));
    let root = link.to_str().unwrap();
    let (output, profile) = home.record(&["--cold", "--json", "--root", root], &["cat".as_ref(), file.as_os_str()]);
    assert_eq!(paths(&profile), ["/usr/lib/data"]);
    assert_eq!(ranges(entry(&profile, Path::new("/usr/lib/data"))), vec![0..5 * PAGE]);
    assert_eq!(profile.recording.root, fs::canonicalize(&volume.root).unwrap().as_os_str().as_bytes());
    let points: Vec<&[u8]> = profile.metadata.iter().map(|device| &device.mount_point[..]).collect();
    assert_eq!(points, [b"/"]);
    let is_below = |path: &[u8]| path.starts_with(b"/usr") || path == b"/";
    assert!(profile.lookups.iter().all(|lookup| is_below(&lookup.path)), "{:?}", profile.lookups);
    let summary = output.err_json();
    assert!(summary["files_outside_root"].as_u64().unwrap() > 0, "cat and its libraries: {summary}");
    let _still = shared();
    evict(&file);
    let replayed = |options: &[&str]| -> Value {
        ahead(["replay", "--wait", "--json"]).args(options).arg(home.profile()).done().json()
    };
    let elsewhere = replayed(&[]);
    assert_eq!(elsewhere["skipped"]["missing"]["bytes"].as_u64(), Some(5 * PAGE), "{elsewhere}");
    let below = replayed(&["--root", root]);
    let of = |key: &str| below[key].as_u64().unwrap();
    let used: u64 = profile.data_bytes() + profile.metadata_bytes();
    assert_eq!(of("issued_bytes") - of("bridged_bytes") + of("already_resident_bytes"), used, "{below}");
    assert!(of("issued_bytes") >= 5 * PAGE && below["skipped"].as_object().unwrap().is_empty(), "{below}");
}

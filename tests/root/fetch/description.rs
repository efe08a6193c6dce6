//! Descriptions of devices that are saved, used, and discarded when the first reads contradict them.

use super::replay;
use ahead::device_store;
use ahead_model::DeviceDescription;
use ahead_profile::Profile;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::of_files;

/// A saved description. Removed at the end with the directories that did not exist before.
struct Saved {
    file: PathBuf,
    made: Vec<PathBuf>,
}

impl Saved {
    fn new(identity: &str, description: DeviceDescription) -> Saved {
        let before: Vec<PathBuf> = [STORE, ABOVE].map(PathBuf::from).into_iter().filter(|it| !it.exists()).collect();
        Saved { file: device_store::save(identity, "a test", description).unwrap(), made: before }
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        // Only empty directories: another process may have saved a description meanwhile.
        self.made.iter().for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Where root's descriptions are stored, and the directory above.
const STORE: &str = "/var/lib/ahead/devices";
const ABOVE: &str = "/var/lib/ahead";

/// Twenty files, each used completely.
fn profile(mounted: &mut Mounted) -> Profile {
    let files: Vec<PathBuf> = (0..20).map(|index| mounted.file(format!("f{index}"), 32 * KIB)).collect();
    mounted.make_cold();
    let whole = 0..32 * KIB;
    let files = files.iter().map(|file| mounted.used(file, std::slice::from_ref(&whole))).collect();
    mounted.make_cold();
    of_files(files)
}

#[test]
fn saved_description_is_found_by_uuid_and_discarded_when_the_first_reads_contradict_it() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    let profile = profile(&mut mounted);
    let Ok(identity) = device_store::identity_of_path(&mounted.root) else {
        return eprintln!("skipped: this kernel does not report UUIDs");
    };
    // No device takes 9 s for a read.
    let slow = DeviceDescription { access_ns: 9_000_000_000, ..DeviceDescription::FLASH };
    let kept = Saved::new(&identity, slow);
    let account = replay(&profile, &[]);
    let used = &account["devices"][0];
    assert_eq!(used["description_file"], kept.file.to_str().unwrap(), "{account}");
    assert!(used["discarded"].as_str().is_some_and(|why| why.contains("first 7 reads")), "{account}");
    assert!(used["source"] == "assumed" && used["access_us"].as_f64() < Some(1e5), "{account}");
    // Nevertheless, all pages are fetched once.
    assert_eq!((&account["issued_bytes"], &account["already_resident_bytes"]), (&(640 * KIB).into(), &0.into()));
    // Cached pages do not contradict the description.
    let again = replay(&profile, &[]);
    assert_eq!((&again["devices"][0]["source"], &again["devices"][0]["discarded"]), (&"saved".into(), &().into()));
    drop(kept);
    mounted.make_cold();
    assert_eq!(replay(&profile, &[])["devices"][0]["source"], "assumed");
}

#[test]
fn wrong_given_description_is_discarded_and_no_page_is_fetched_twice() {
    let Some(mut mounted) = Mounted::new("ext4") else { return };
    let mut profile = profile(&mut mounted);
    // The profile places the files far apart: on a disk that seeks, only such reads are timed.
    for (place, file) in (1..).zip(&mut profile.files) {
        file.extents[0].physical_bytes = Some(place * (16 << 20));
    }
    let directory = tempfile::tempdir().unwrap();
    let given = directory.path().join("disk.toml");
    let slow = DeviceDescription::ROTATING.with_access_ns(9_000_000_000);
    fs::write(&given, slow.to_toml()).unwrap();
    let account = replay(&profile, &["--device", given.to_str().unwrap()]);
    let used = &account["devices"][0];
    assert!(used["discarded"].is_string() && used["source"] == "assumed", "{account}");
    assert!(used["access_us"].as_f64() < Some(1e5), "{account}");
    assert_eq!((&account["issued_bytes"], &account["already_resident_bytes"]), (&(640 * KIB).into(), &0.into()));
}

//! The policy `plan`: the prefetch of a profile beside the program that it was recorded from.

use ahead_policy::named;
use ahead_profile::{Extent, File, Profile};
use ahead_sim::recordings::load_scenario;
use ahead_sim::{Counters, Scenario};

const FILES: u64 = 60;
const FILE_BYTES: u64 = 64 << 10;

/// Files that are used in another order than they lie on the disk, one each millisecond, with half of the time computed.
fn profile() -> Profile {
    let file = |index: u64| {
        let first_use_us = 1000 * (index * 37 % FILES);
        let physical_bytes = Some(index << 20);
        let extent = Extent { length_bytes: FILE_BYTES, first_use_us, runs: 1, physical_bytes, ..Extent::default() };
        let path = format!("/file{index:02}").into_bytes();
        File { path, fs_path: b"/".to_vec(), size_bytes: FILE_BYTES, extents: vec![extent], ..File::default() }
    };
    let mut profile = Profile { files: (0..FILES).map(file).collect(), ..Profile::default() };
    let recording = &mut profile.recording;
    (recording.runs, recording.duration_us, recording.cpu_us) = (1, 1000 * FILES, 500 * FILES);
    profile
}

fn run(model: &str, policy: &str) -> Counters {
    let home = tempfile::tempdir().unwrap();
    ahead_files::save(&profile(), &home.path().join("p.ahead")).unwrap();
    let text = format!("policies = [\"{policy}\"]\n[disk]\nmodel = \"{model}\"\n[[workload]]\nprofile = \"p.ahead\"\n");
    std::fs::write(home.path().join("s.toml"), text).unwrap();
    let scenario = load_scenario(&home.path().join("s.toml")).unwrap();
    let counters = scenario.run(&scenario.policies[0]).unwrap();
    assert!(counters.ended);
    counters
}

#[test]
fn head_start_of_a_rotating_disk_leaves_the_program_nothing_to_wait_for() {
    let (alone, planned) = (run("hdd", "linux-6.18"), run("hdd", "plan"));
    assert_eq!(planned.used_pages, FILES * FILE_BYTES / 4096);
    assert!(planned.misses == 0 && alone.misses == FILES, "{alone:?} {planned:?}");
    assert!(planned.elapsed_ns < alone.elapsed_ns, "{alone:?} {planned:?}");
}

#[test]
fn program_on_flash_starts_at_once_and_waits_less() {
    let (alone, planned) = (run("cloud", "linux-6.18"), run("cloud", "plan"));
    assert!(planned.misses < alone.misses && planned.elapsed_ns < alone.elapsed_ns, "{alone:?} {planned:?}");
}

#[test]
fn scenario_without_a_profile_is_refused() {
    let text =
        "policies = [\"none\", \"plan\"]\n[disk]\nmodel = \"ssd\"\n[[workload]]\npattern = \"random\"\nfile_mb = 1\n";
    let error = Scenario::from_toml(text, ".".as_ref()).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("plan needs a profile"), "{error}");
    let scenario = Scenario::from_toml(&text.replace(", \"plan\"", ""), ".".as_ref()).unwrap();
    assert!(scenario.run(&named("plan").unwrap()).unwrap_err().to_string().contains("plan needs a profile"));
}

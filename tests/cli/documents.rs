//! docs/reference/json.md and device-description.md name every key that is printed.

use ahead::compare::{ColdState, DeviceReads, Measured, Report, RivalResult, Sample, Spread};
use ahead::prefetch::{Account, DescriptionSource, DeviceDescription, Issued, Reason, Skipped, Source, UsedDevice};
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The text below a heading of a reference page, up to the next heading.
fn section(heading: &str) -> String {
    let pages = ["json.md", "device-description.md"].map(|page| root().join("docs/reference").join(page));
    let pages = pages.map(|page| fs::read_to_string(page).unwrap() + "\n## ");
    let found = pages.iter().filter_map(|page| page.split_once(&format!("{heading}\n")));
    let bodies: Vec<&str> = found.map(|(_, after)| after.split_once("\n##").unwrap().0).collect();
    assert!(!bodies.is_empty(), "no heading {heading:?}");
    bodies.concat()
}

fn keys(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            into.extend(map.keys().cloned());
            map.values().for_each(|inner| keys(inner, into));
        }
        Value::Array(list) => list.iter().for_each(|inner| keys(inner, into)),
        _ => (),
    }
}

/// Every key of the value is in one of these sections.
pub fn assert_documented(headings: &[&str], value: &Value) {
    let text: String = headings.iter().map(|heading| section(heading)).collect();
    let mut used = Vec::new();
    keys(value, &mut used);
    assert!(!used.is_empty());
    used.retain(|key| !text.contains(&format!("`{key}`")));
    assert!(used.is_empty(), "not in docs/reference below {headings:?}: {used:?}");
}

fn printed(arguments: &[&str], home: &Path) -> Value {
    let mut command = Command::cargo_bin("ahead").unwrap();
    let done = command.args(arguments).arg("--json").current_dir(home).assert().success();
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

#[test]
fn every_key_of_sim_is_documented() {
    let home = tempfile::tempdir().unwrap();
    fs::write(
        home.path().join("S.toml"),
        "policies = [\"none\"]\n[[workload]]\npattern = \"sequential\"\nfile_mb = 1\n",
    )
    .unwrap();
    fs::copy(root().join("lab/conform/traces/6.18-ext4-16k-all.trace"), home.path().join("T")).unwrap();
    ahead_profile::save(&crate::sim::profile(), &home.path().join("P.ahead")).unwrap();
    let run = "### ahead sim run --json";
    assert_documented(&[run], &printed(&["sim", "run", "S.toml"], home.path()));
    assert_documented(&[run, "### ahead sim sweep --json"], &printed(&["sim", "sweep", "S.toml"], home.path()));
    assert_documented(&["### ahead sim policies --json"], &printed(&["sim", "policies"], home.path()));
    assert_documented(&["### ahead sim conform --json"], &printed(&["sim", "conform", "T"], home.path()));
    let replayed = printed(&["sim", "replay", "P.ahead", "--disk", "hdd"], home.path());
    assert_documented(&["## ahead sim replay --json"], &replayed);
}

#[test]
fn every_key_of_tune_without_a_measurement_is_documented() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = ["tune", "--plan", "--access-time", "8ms", "--bandwidth", "100MB/s"];
    assert_documented(&["### ahead tune --json"], &printed(&options, home.path()));
    // Status 1: there is no rule. A directory in memory has no window, and prints nothing.
    let checked = Command::cargo_bin("ahead").unwrap().args(["tune", "--check", "--json"]).arg(home.path()).output();
    if let Ok(checked) = serde_json::from_slice(&checked.unwrap().stdout) {
        assert_documented(&["### ahead tune --json"], &checked);
    }
}

#[test]
fn every_key_of_an_account_is_documented() {
    let device = UsedDevice::new(&DeviceDescription::default(), DescriptionSource::Saved);
    let issued = |source| Issued { source, range: 0..1, bridged: false };
    let account = Account {
        skipped: [(Reason::Deadline, Skipped::default())].into(),
        devices: vec![device],
        ranges: vec![issued(Source::File(0)), issued(Source::Metadata(0))],
        ..Account::default()
    };
    let heading = "### ahead replay --json, ahead run --account FILE";
    assert_documented(&[heading], &serde_json::to_value(account).unwrap());
}

#[test]
fn every_key_of_a_comparison_is_documented() {
    let spread = Spread { median_s: 1.0, min_s: 1.0, max_s: 1.0 };
    let measured = Measured {
        spread,
        device: DeviceReads::default(),
        evicted_bytes: None,
        samples: vec![Sample::default()],
        repeated: Vec::new(),
    };
    let rival = RivalResult { name: String::new(), status: 0, measured: measured.clone(), recovered_share: None };
    let report = Report {
        kernel: String::new(),
        machine: String::new(),
        read_ahead_kb: None,
        read_ahead_kb_seen: Vec::new(),
        recorded_meanwhile: false,
        measured_unix_s: 0,
        runs: 1,
        program_status: 0,
        ready: None,
        model: None,
        beyond_rig: false,
        cold: measured.clone(),
        ahead: measured.clone(),
        warm: measured,
        cold_state: ColdState { evicted: "data", kept_bytes: 0, unknown_bytes: 0 },
        speedup: 1.0,
        bound_s: None,
        bound_by: None,
        recovered_share: None,
        prefetched_bytes: 0,
        used_bytes: 0,
        bridged_bytes: 0,
        wasted_bytes: 0,
        late_bytes: None,
        stale_bytes: 0,
        used_according_to: "the profile",
        device: DeviceReads::default(),
        against: vec![rival],
        verdict: String::new(),
    };
    assert_documented(&["### ahead compare --json"], &serde_json::to_value(report).unwrap());
}

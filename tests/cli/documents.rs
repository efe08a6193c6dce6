//! docs/reference/json.md and device-description.md name every key that is printed.

use ahead::compare::{Measured, Report, RivalResult, Sample};
use ahead::prefetch::{Account, DescriptionSource, DeviceDescription, Reason, UsedDevice};
use ahead_tests::rig::prelude::*;

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
    ahead(arguments).arg("--json").current_dir(home).json()
}

#[test]
fn every_key_of_sim_is_documented() {
    let home = tempfile::tempdir().unwrap();
    fs::write(
        home.path().join("S.toml"),
        "policies = [\"none\"]\n[[workload]]\npattern = \"sequential\"\nfile_mb = 1\n",
    )
    .unwrap();
    fs::copy(root().join("lab/sim/traces/6.18-ext4-16k-all.trace"), home.path().join("T")).unwrap();
    ahead_files::save(&crate::sim::profile(), &home.path().join("P.ahead")).unwrap();
    let run = "### ahead sim run --json";
    assert_documented(&[run], &printed(&["sim", "run", "S.toml"], home.path()));
    assert_documented(&[run, "### ahead sim sweep --json"], &printed(&["sim", "sweep", "S.toml"], home.path()));
    let back = "policies = [\"steer\"]\n[[workload]]\npattern = \"backward\"\nfile_mb = 1\n";
    fs::write(home.path().join("B.toml"), back).unwrap();
    assert_documented(&["### ahead sim run --acts --json"], &printed(&["sim", "run", "B.toml", "--acts"], home.path()));
    assert_documented(&["### ahead sim policies --json"], &printed(&["sim", "policies"], home.path()));
    assert_documented(&["### ahead sim conform --json"], &printed(&["sim", "conform", "T"], home.path()));
    let replayed = printed(&["sim", "replay", "P.ahead", "--disk", "hdd"], home.path());
    assert_documented(&["## ahead sim replay --json"], &replayed);
}

#[test]
fn every_key_of_tune_without_a_measurement_is_documented() {
    let home = on_disk();
    let options = ["tune", "--plan", "--access-time", "8ms", "--bandwidth", "100MB/s"];
    assert_documented(&["### ahead tune --json"], &printed(&options, home.path()));
    // Status 1: there is no rule. A directory in memory has no window, and prints nothing.
    let checked = ahead(["tune", "--check", "--json"]).arg(home.path()).done();
    if let Ok(checked) = serde_json::from_slice(&checked.out_bytes) {
        assert_documented(&["### ahead tune --json"], &checked);
    }
}

#[test]
fn every_key_of_an_account_is_documented() {
    let issued = |source: &str| {
        serde_json::from_value(
            serde_json::json!({ "source": { source: 0 }, "range": { "start": 0, "end": 1 }, "bridged": false }),
        )
        .unwrap()
    };
    let mut account = observed_account();
    account.skip(Reason::Deadline, 0);
    account.devices.push(UsedDevice::new(&DeviceDescription::default(), DescriptionSource::Saved));
    account.ranges = ["file", "metadata"].map(issued).to_vec();
    (account.used_bytes, account.wasted_bytes) = (Some(0), Some(0));
    let heading = "### ahead replay --json, ahead run --account FILE";
    assert_documented(&[heading], &serde_json::to_value(&account).unwrap());
    assert_eq!(serde_json::from_str::<Account>(&serde_json::to_string(&account).unwrap()).unwrap(), account);
}

/// Figures of a comparison are optional: an account without them has the same form as before.
#[test]
fn account_of_a_prefetch_has_no_keys_of_a_comparison() {
    let mut account = Account::default();
    (account.requests, account.issued_bytes) = (1, 4096);
    let json = serde_json::to_string(&account).unwrap();
    let expected = r#"{"requests":1,"issued_bytes":4096,"metadata_bytes":0,"bridged_bytes":0,"large_folio_bytes":0,"#
        .to_owned()
        + r#""already_resident_bytes":0,"holes_bytes":0,"residency_unknown_bytes":0,"lookups":0,"stale_files":0,"stale_bytes":0,"failed_bytes":0,"#
        + r#""unreadable_bytes":0,"#
        + r#""first_failure":null,"skipped":{},"looked_warm":false,"devices":[],"head_start_us":0,"submitted_us":0,"#
        + r#""arrived_us":null,"program_us":null}"#;
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_str::<Account>(&json).unwrap(), account);
}

#[test]
fn every_key_of_top_and_steer_is_documented() {
    let counted = ahead_top::Counted { issued_pages: 1, used_pages: Some(1), ..Default::default() };
    let file = ahead_top::OpenFile { counted: Some(counted), ..Default::default() };
    let totals = ahead_top::Totals { counted: Some(counted), ..Default::default() };
    let top = ["### ahead top --json"];
    assert_documented(&top, &ahead_top::file_json(&file, None));
    assert_documented(&top, &ahead_top::totals_json(&totals, None));
    let summary = serde_json::json!({ "summary": ahead_steer::Counts::default() });
    assert_documented(&["### ahead steer --json"], &summary);
}

/// An account of a run that was observed.
fn observed_account() -> Account {
    let mut account = Account::default();
    (account.late_bytes, account.lost_events) = (Some(0), Some(0));
    account
}

fn report(account: Account) -> Report {
    let mut measured = Measured::default();
    measured.samples.push(Sample::default());
    let mut report = Report::default();
    (report.cold, report.ahead, report.warm) = (measured.clone(), measured.clone(), measured);
    (report.account, report.against, report.used_according_to) = (account, vec![RivalResult::default()], "the profile");
    report
}

#[test]
fn every_key_of_a_comparison_is_documented() {
    assert_documented(&["### ahead compare --json"], &serde_json::to_value(report(observed_account())).unwrap());
}

/// The report embeds the account of the median run. It prints six of its figures at this place, without the keys of
/// `ahead replay --json`.
#[test]
fn figures_of_the_account_keep_their_keys_in_a_comparison() {
    let mut account = Account::default();
    (account.requests, account.issued_bytes, account.bridged_bytes, account.stale_bytes) = (7, 60, 20, 5);
    (account.used_bytes, account.wasted_bytes, account.lost_events) = (Some(30), Some(10), Some(0));
    let json = |account| serde_json::to_string(&report(account)).unwrap();
    let figures = |late: &str| {
        format!(
            r#""recovered_share":null,"prefetched_bytes":60,"used_bytes":30,"bridged_bytes":20,"wasted_bytes":10,"late_bytes":{late},"stale_bytes":5,"used_according_to":"the profile","device":"#
        )
    };
    let printed = json(account.clone());
    assert!(printed.contains(&figures("null")), "{printed}");
    account.late_bytes = Some(4);
    assert!(json(account).contains(&figures("4")));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let mut keys: Vec<&str> = printed.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, KEYS_OF_A_COMPARISON);
}

/// The keys of `ahead compare --json`, except those of the command line.
const KEYS_OF_A_COMPARISON: [&str; 29] = [
    "against",
    "ahead",
    "beyond_rig",
    "bound_by",
    "bound_s",
    "bridged_bytes",
    "cold",
    "cold_state",
    "device",
    "kernel",
    "late_bytes",
    "machine",
    "measured_unix_s",
    "model",
    "prefetched_bytes",
    "program_status",
    "read_ahead_kb",
    "read_ahead_kb_seen",
    "ready",
    "recorded_meanwhile",
    "recovered_share",
    "runs",
    "speedup",
    "stale_bytes",
    "used_according_to",
    "used_bytes",
    "verdict",
    "warm",
    "wasted_bytes",
];

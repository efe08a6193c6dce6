//! Papers against the real page cache: what the kernel does on a real ext2 is seen in the times of the reads, and nothing of the
//! disk is left.

use crate::machine_lock;
use ahead_kernel::machine;
use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

fn live<'a>(lines: &'a Value, claim: &str) -> &'a str {
    let line = lines.as_array().unwrap().iter().find(|line| line["claim"].as_str().unwrap().contains(claim));
    line.unwrap()["live"].as_str().unwrap()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(", ").map(|word| word.parse().unwrap()).collect()
}

#[test]
fn pelouins_drops_are_where_he_saw_them() {
    if !machine::is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: an emulated disk needs root and FUSE");
        return;
    }
    // Another program that measures a disk would be in the times.
    let _alone = machine_lock::alone();
    let output =
        Command::cargo_bin("ahead").unwrap().args(["papers", "pelouin", "--live", "--json"]).assert().success();
    let lines: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let drops = numbers(live(&lines, "four large drops"));
    for drop in [122_880, 249_856, 376_832, 503_808] {
        assert!(drops.contains(&drop), "{drops:?}");
    }
    // A busy machine may add drops, but not hide one.
    assert!(numbers(live(&lines, "the main dip")).contains(&49_152), "{lines:#}");
    let left = Command::cargo_bin("ahead").unwrap().args(["disk", "list", "--json"]).assert().success();
    let left: Value = serde_json::from_slice(&left.get_output().stdout).unwrap();
    let is_ours = |disk: &Value| disk["name"].as_str().unwrap_or_default().starts_with("papers-");
    assert!(!left.as_array().unwrap().iter().any(is_ours), "{left}");
    let homes = std::fs::read_dir("/dev/shm").unwrap().flatten();
    assert!(!homes.into_iter().any(|home| home.file_name().to_string_lossy().starts_with("ahead-papers-")));
}

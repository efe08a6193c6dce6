//! `ahead disk` without privilege: usage errors and missing permissions.

use assert_cmd::Command;
use predicates::prelude::*;
use std::time::Duration;

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(arguments).timeout(Duration::from_secs(60));
    command
}

#[test]
fn wrong_usage_is_status_2() {
    for arguments in [
        &["disk"][..],
        &["disk", "create"],
        &["disk", "create", "x.img", "--model", "hdd"],
        &["disk", "create", "x.img", "--size", "1G"],
        &["disk", "create", "x.img", "--size", "1G", "--model", "hdd", "--fs", "fat"],
        &["disk", "create", "x.img", "--size", "lots", "--model", "hdd"],
        &["disk", "attach", "x.img", "--model", "hdd", "--fail", "5"],
        &["disk", "fault", "x", "--stall", "-1"],
        &["disk", "detach", "x", "--all"],
        &["disk", "create", "x.img", "--size", "1G", "--model", "no-such-model"],
    ] {
        ahead(arguments).assert().code(2).stdout("");
    }
}

/// Regression: the status was 1.
#[test]
fn a_size_beyond_the_limit_is_wrong_usage() {
    if !ahead_sys::machine::is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("x.img");
    for size in ["1B", "65T", "16777217B"] {
        ahead(&["disk", "create", image.to_str().unwrap(), "--model", "hdd", "--size", size]).assert().code(2);
    }
    assert!(!image.exists());
}

#[test]
fn help_lists_the_models_and_hides_internal_commands() {
    ahead(&["disk", "create", "--help"])
        .assert()
        .success()
        .stdout(predicate::str::contains("hdd, ssd, nvme, emmc, cloud"));
    ahead(&["disk", "--help"]).assert().success().stdout(predicate::str::contains("finish-after").not());
}

#[test]
fn an_invalid_model_file_is_reported_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("my.toml");
    std::fs::write(&model, "kind = \"flash\"\nchannels = 0\n").unwrap();
    let image = home.path().join("x.img");
    ahead(&["disk", "create", image.to_str().unwrap(), "--size", "16M", "--model", model.to_str().unwrap()])
        .assert()
        .code(1)
        .stderr(predicate::str::contains("line 2").and(predicate::str::contains("channels")));
    assert!(!image.exists());
}

#[test]
fn missing_privilege_is_status_77() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: this is root; tests/root runs these commands");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("x.img");
    ahead(&["disk", "create", image.to_str().unwrap(), "--size", "16M", "--model", "hdd"])
        .assert()
        .code(77)
        .stderr(predicate::str::contains("as root"));
    assert!(!image.exists());
}

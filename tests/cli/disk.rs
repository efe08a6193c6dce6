//! `ahead disk` without privilege: usage, and what it says when it may not.

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

/// Regression: it was status 1.
#[test]
fn a_size_that_no_disk_has_is_wrong_usage() {
    if !ahead_sys::machine::is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("x.img");
    for size in ["1", "65T", "16777217"] {
        ahead(&["disk", "create", image.to_str().unwrap(), "--model", "hdd", "--size", size]).assert().code(2);
    }
    assert!(!image.exists());
}

#[test]
fn help_names_the_models_and_hides_the_machinery() {
    ahead(&["disk", "create", "--help"])
        .assert()
        .success()
        .stdout(predicate::str::contains("hdd, ssd, nvme, emmc, cloud"));
    ahead(&["disk", "--help"]).assert().success().stdout(predicate::str::contains("finish-after").not());
}

#[test]
fn a_model_that_is_none_is_named_with_its_line() {
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
fn without_root_it_is_not_permitted() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: this is root; tests/root runs the rest");
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

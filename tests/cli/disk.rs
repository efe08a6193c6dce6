//! `ahead disk` without privilege: usage errors and missing permissions.

use ahead_tests::rig::prelude::*;

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
        ahead(arguments).fails(2).out_is("");
    }
}

/// Regression: the status was 1.
#[test]
fn a_size_beyond_the_limit_is_wrong_usage() {
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("x.img");
    for size in ["1B", "65T", "16777217B"] {
        ahead(["disk", "create", image.to_str().unwrap(), "--model", "hdd", "--size", size]).fails(2);
    }
    assert!(!image.exists());
}

#[test]
fn help_lists_the_models_and_hides_internal_commands() {
    ahead(["disk", "create", "--help"]).ok().prints("hdd, ssd, nvme, emmc, cloud");
    assert!(!ahead(["disk", "--help"]).text().contains("finish-after"));
}

#[test]
fn an_invalid_model_file_is_reported_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("my.toml");
    std::fs::write(&model, "kind = \"flash\"\nchannels = 0\n").unwrap();
    let image = home.path().join("x.img");
    ahead(["disk", "create", image.to_str().unwrap(), "--size", "16M", "--model", model.to_str().unwrap()])
        .fails(1)
        .says("line 2")
        .says("channels");
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
    ahead(["disk", "create", image.to_str().unwrap(), "--size", "16M", "--model", "hdd"]).fails(77).says("as root");
    assert!(!image.exists());
}

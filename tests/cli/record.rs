//! `ahead record` without privilege: what it asks for, and how it says no.

use assert_cmd::Command;
use predicates::prelude::*;

fn record(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("ahead").unwrap().arg("record").args(arguments).assert()
}

#[test]
fn it_wants_to_know_whom_to_observe() {
    record(&[]).code(2).stderr(predicate::str::contains("required"));
    record(&["--all", "--pid", "1", "-o", "x"]).code(2).stderr(predicate::str::contains("cannot be used with"));
    record(&["--all"]).code(2).stderr(predicate::str::contains("--output"));
}

#[test]
fn a_precise_recording_is_a_cold_one() {
    record(&["--precise", "--", "true"]).code(2).stderr(predicate::str::contains("--cold"));
    record(&["--cold", "--all", "-o", "x"]).code(2);
}

#[test]
fn nonsense_is_refused_before_anything_is_done() {
    for arguments in [
        ["--runs", "0", "--", "true"],
        ["--until-output", "(", "--", "true"],
        ["--until-port", "0", "--", "true"],
        ["--duration", "soon", "--", "true"],
        ["--source", "guesswork", "--", "true"],
    ] {
        record(&arguments).code(2);
    }
}

#[test]
fn a_profile_that_could_not_be_kept_is_not_recorded() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing/p.ahead");
    let said = record(&["-o", missing.to_str().unwrap(), "--", "sh", "-c", "echo started"]);
    said.code(125).stdout("").stderr(predicate::str::contains("cannot keep a profile in").and(one_line()));
}

fn one_line() -> impl Predicate<str> {
    predicate::function(|text: &str| text.lines().count() == 1)
}

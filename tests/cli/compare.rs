//! `ahead compare` without privilege: its usage errors.

use assert_cmd::Command;
use predicates::str::contains;

fn compare(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("ahead").unwrap().arg("compare").args(arguments).assert()
}

#[test]
fn a_missing_profile_is_reported_with_the_record_command() {
    compare(&["-p", "/nonexistent/p.ahead", "--until-port", "80", "--", "echo", "it's here"])
        .code(1)
        .stderr(contains(r"ahead record --cold -o /nonexistent/p.ahead --until-port 80 -- echo 'it'\''s here'"));
}

#[test]
fn a_rival_without_name_or_command_is_refused() {
    for bad in ["vmtouch", "=vmtouch", "vmtouch= "] {
        compare(&["--against", bad, "--", "true"]).code(2).stderr(contains("NAME=COMMAND"));
    }
    // The name is printed in tables on terminals.
    compare(&["--against", "a\u{1b}[2Jb=true", "--", "true"]).code(2).stderr(contains("cannot be shown"));
}

#[test]
fn zero_runs_or_no_command_is_refused() {
    compare(&["--runs", "0", "--", "true"]).code(2);
    compare(&[]).code(2).stderr(contains("<CMD>"));
}

/// Regression: "make one with: ahead record" for a program that does not exist.
#[test]
fn missing_program_is_not_found() {
    let missing = compare(&["--", "nosuchprogram-9"]).code(127).get_output().stderr.clone();
    let message = String::from_utf8(missing).unwrap();
    assert!(message.contains("nosuchprogram-9: not found") && !message.contains("record"), "{message}");
}

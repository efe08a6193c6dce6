//! `ahead top` without privilege: its arguments and its refusal. tests/root/top.rs has the rest.

use assert_cmd::Command;
use predicates::prelude::*;

pub fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(arguments).current_dir("/");
    command
}

/// As another user, also if this test runs as root.
pub fn as_user(arguments: &[&str]) -> Command {
    if !ahead_sys::machine::is_root() {
        return ahead(arguments);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(assert_cmd::cargo::cargo_bin("ahead")).args(arguments).current_dir("/");
    command
}

#[test]
fn both_ways_of_help_are_the_same() {
    for name in ["top", "steer"] {
        let printed = |arguments: &[&str]| ahead(arguments).assert().success().get_output().stdout.clone();
        let help = printed(&["help", name]);
        assert_eq!(help, printed(&[name, "--help"]));
        assert!(String::from_utf8(help).unwrap().contains(&format!("Usage: ahead {name} [OPTIONS]")));
    }
}

#[test]
fn wrong_arguments_are_status_2_with_the_reason() {
    for (arguments, reason) in [
        (&["--interval", "1"][..], r#""1" is not a time"#),
        (&["--interval", "1ms"], "not an interval"),
        (&["--sort", "path"], "possible values: pid, comm"),
        (&["--pid", "0"], "0 is not in"),
        (&["--pid", "x"], "invalid digit"),
        (&["--once", "--count", "3"], "cannot be used with"),
        (&["--explain", "1", "--once"], "cannot be used with"),
        (&["--once", "--sort", "wait"], "--sort wait needs counts: add --interval 1s"),
        (&["--path", "/a/["], "--path /a/[: "),
        (&["--count", "0"], "0 is not in"),
        (&["surplus"], "unexpected argument"),
    ] {
        let done = ahead(&[&["top"], arguments].concat()).assert().code(2).stdout("");
        done.stderr(predicate::str::contains(reason));
    }
}

#[test]
fn missing_process_or_mount_is_reported() {
    let missing =
        || predicate::str::contains("there is no process 4294967295").and(predicate::str::contains("\n").count(1));
    for flag in ["--pid", "--explain"] {
        ahead(&["top", flag, "4294967295"]).assert().code(1).stdout("").stderr(missing());
    }
    ahead(&["top", "--once", "--mount", "/no/such"])
        .assert()
        .code(1)
        .stdout("")
        .stderr(predicate::str::contains("/no/such"));
}

#[test]
fn without_root_the_remedy_is_one_line() {
    for arguments in [&["top", "--once"][..], &["top", "--json"], &["top", "--explain", "1"], &["steer", "--dry-run"]] {
        let remedy = predicate::str::contains("run it as root").and(predicate::str::contains("\n").count(1));
        as_user(arguments).assert().code(77).stdout("").stderr(remedy);
    }
}

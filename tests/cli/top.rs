//! `ahead top` without privilege: its arguments and its refusal. tests/root/top.rs has the rest.

use ahead_tests::rig::prelude::*;

/// As another user, also if this test runs as root.
fn as_user(arguments: &[&str]) -> Program {
    let command = ahead(arguments).current_dir("/");
    if ahead_sys::machine::is_root() { command.as_stranger() } else { command }
}

#[test]
fn both_ways_of_help_are_the_same() {
    for name in ["top", "steer"] {
        let printed = |arguments: &[&str]| ahead(arguments).ok().out_bytes;
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
        let done = ahead([&["top"], arguments].concat()).fails(2).out_is("");
        done.says(reason);
    }
}

#[test]
fn missing_process_or_mount_is_reported() {
    for flag in ["--pid", "--explain"] {
        ahead(["top", flag, "4294967295"]).fails(1).out_is("").says("there is no process 4294967295").in_one_line();
    }
    ahead(["top", "--once", "--mount", "/no/such"]).fails(1).out_is("").says("/no/such");
}

#[test]
fn without_root_the_remedy_is_one_line() {
    for arguments in [&["top", "--once"][..], &["top", "--json"], &["top", "--explain", "1"], &["steer", "--dry-run"]] {
        as_user(arguments).fails(77).out_is("").says("run it as root").in_one_line();
    }
}

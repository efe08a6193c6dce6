//! `ahead compare` without privilege: its usage errors.

use ahead_tests::rig::prelude::*;

fn compare(arguments: &[&str]) -> Done {
    ahead(["compare"]).args(arguments).done()
}

#[test]
fn a_missing_profile_is_reported_with_the_record_command() {
    compare(&["-p", "/nonexistent/p.ahead", "--until-port", "80", "--", "echo", "it's here"])
        .code(1)
        .says(r"ahead record --cold -o /nonexistent/p.ahead --until-port 80 -- echo 'it'\''s here'");
}

#[test]
fn a_rival_without_name_or_command_is_refused() {
    for bad in ["vmtouch", "=vmtouch", "vmtouch= "] {
        compare(&["--against", bad, "--", "true"]).code(2).says("NAME=COMMAND");
    }
    // The name is printed in tables on terminals.
    compare(&["--against", "a\u{1b}[2Jb=true", "--", "true"]).code(2).says("cannot be shown");
}

#[test]
fn zero_runs_or_no_command_is_refused() {
    compare(&["--runs", "0", "--", "true"]).code(2);
    compare(&[]).code(2).says("<CMD>");
}

/// Regression: "make one with: ahead record" for a program that does not exist.
#[test]
fn missing_program_is_not_found() {
    compare(&["--", "nosuchprogram-9"]).code(127).says("nosuchprogram-9: not found").never_says("record");
}

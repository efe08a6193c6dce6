//! `ahead record` without privilege: usage errors and missing permissions.

use ahead_tests::rig::prelude::*;

fn record(arguments: &[&str]) -> Done {
    ahead(["record"]).args(arguments).done()
}

#[test]
fn a_missing_target_or_output_is_wrong_usage() {
    record(&[]).code(2).says("required");
    record(&["--all", "--pid", "1", "-o", "x"]).code(2).says("cannot be used with");
    record(&["--all"]).code(2).says("--output");
}

#[test]
fn until_output_without_a_started_program_is_refused() {
    for whom in [["--pid", "1"], ["--cgroup", "/sys/fs/cgroup"]] {
        record(&[&whom[..], &["-o", "x", "--until-output", "ready"]].concat())
            .code(2)
            .says("use --until-port, --until-file or --duration");
    }
}

#[test]
fn a_precise_recording_must_be_cold() {
    record(&["--precise", "--", "true"]).code(2).says("--cold");
    record(&["--cold", "--all", "-o", "x"]).code(2);
}

#[test]
fn source_of_resident_pages_must_be_cold() {
    record(&["--source", "resident", "--", "true"]).code(2).says("add --cold");
    let unknown = "expected one of tracepoints, fentry, kprobes, added, ftrace, resident, calls";
    record(&["--source", "guesswork", "--", "true"]).code(2).says(unknown);
}

#[test]
fn wrong_values_are_refused() {
    for arguments in [
        ["--runs", "0", "--", "true"],
        ["--until-output", "(", "--", "true"],
        ["--until-port", "0", "--", "true"],
        ["--duration", "soon", "--", "true"],
        ["--source", "guesswork", "--", "true"],
        ["--user", "no-such-user-here", "--", "true"],
    ] {
        record(&arguments).code(2);
    }
}

#[test]
fn a_profile_that_cannot_be_saved_is_not_recorded() {
    // Missing privilege is reported first.
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing/p.ahead");
    let result = record(&["-o", missing.to_str().unwrap(), "--", "sh", "-c", "echo started"]);
    result.code(125).out_is("").says("cannot save").in_one_line();
    let directory = home.path().to_str().unwrap();
    for (place, why) in [("/dev/null", "a device has that path"), (directory, "a directory has that path")] {
        let result = record(&["-o", place, "--", "sh", "-c", "echo started"]);
        result.code(125).out_is("").says(why).in_one_line();
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn an_unknown_option_is_not_the_program() {
    for command in ["record", "run"] {
        let ahead = |arguments: &[&str]| ahead([command]).args(arguments).done();
        ahead(&["--bogus", "--", "true"]).code(2).says("unexpected argument '--bogus'");
        ahead(&["-p", "/none", "-x", "true"]).code(2);
    }
    // Arguments after the program belong to the program.
    let run = |arguments: &[&str]| ahead(["run"]).args(arguments).done();
    for before in [&[][..], &["--"]] {
        run(&[before, &["printf", "--", "-x--bogus"]].concat()).success().out_is("-x--bogus");
    }
}

#[test]
fn a_usage_error_names_only_missing_arguments() {
    record(&[]).code(2).never_says("--output <FILE>\n");
    ahead(["run", "-p", "x"]).fails(2).never_says("--profile");
}

#[test]
fn a_missing_home_is_not_created() {
    // Missing privilege is reported first.
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing");
    let result = ahead(["record", "--", "echo", "started"]).env_remove("XDG_STATE_HOME").env("HOME", &missing);
    result.fails(125).out_is("").says("does not exist").says("-o");
    assert!(!missing.exists());
}

/// Regression: without privilege the first error was the profile's path.
#[test]
fn missing_privilege_is_reported_before_the_profile_path() {
    let words = ["record", "--source", "ftrace", "-o", "/no/such/directory/p.ahead", "--", "echo", "started"];
    let home = tempfile::tempdir().unwrap();
    set_mode(home.path(), 0o755);
    let copy = home.path().join("ahead");
    copy_ahead(&copy);
    let command = program(&copy).args(words);
    let command = if ahead_sys::machine::is_root() { command.as_stranger() } else { command };
    command.fails(77).out_is("").says("as root").in_one_line();
}

/// By any user.
#[test]
fn a_program_is_recorded_by_its_calls() {
    let home = tempfile::tempdir().unwrap();
    let profile = home.path().join("p.ahead");
    let words =
        ["--json", "--source", "calls", "-o", profile.to_str().unwrap(), "--", "sh", "-c", "echo started; exit 3"];
    let done = record(&words);
    if done.status.code() == Some(77) {
        return eprintln!("skipped: {}", done.err);
    }
    done.code(3).out_is("started\n").says(r#""source":"held calls, page tables""#);
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let profile = ahead_files::load(&profile).unwrap();
    assert!(profile.files.iter().any(|file| file.path == shell.as_os_str().as_bytes() && !file.extents.is_empty()));
}

//! `ahead record` without privilege: usage errors and missing permissions.

use assert_cmd::Command;
use predicates::prelude::*;

fn record(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("ahead").unwrap().arg("record").args(arguments).assert()
}

#[test]
fn a_missing_target_or_output_is_wrong_usage() {
    record(&[]).code(2).stderr(predicate::str::contains("required"));
    record(&["--all", "--pid", "1", "-o", "x"]).code(2).stderr(predicate::str::contains("cannot be used with"));
    record(&["--all"]).code(2).stderr(predicate::str::contains("--output"));
}

#[test]
fn until_output_without_a_started_program_is_refused() {
    for whom in [["--pid", "1"], ["--cgroup", "/sys/fs/cgroup"]] {
        record(&[&whom[..], &["-o", "x", "--until-output", "ready"]].concat())
            .code(2)
            .stderr(predicate::str::contains("use --until-port, --until-file or --duration"));
    }
}

#[test]
fn a_precise_recording_must_be_cold() {
    record(&["--precise", "--", "true"]).code(2).stderr(predicate::str::contains("--cold"));
    record(&["--cold", "--all", "-o", "x"]).code(2);
}

#[test]
fn source_of_resident_pages_must_be_cold() {
    record(&["--source", "resident", "--", "true"]).code(2).stderr(predicate::str::contains("add --cold"));
    let unknown = "expected one of tracepoints, fentry, kprobes, added, ftrace, resident";
    record(&["--source", "guesswork", "--", "true"]).code(2).stderr(predicate::str::contains(unknown));
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
    if !rustix::process::geteuid().is_root() {
        // Missing privilege is reported first.
        return println!("skipped: needs root");
    }
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing/p.ahead");
    let result = record(&["-o", missing.to_str().unwrap(), "--", "sh", "-c", "echo started"]);
    result.code(125).stdout("").stderr(predicate::str::contains("cannot save").and(one_line()));
    let directory = home.path().to_str().unwrap();
    for (place, why) in [("/dev/null", "a device has that path"), (directory, "a directory has that path")] {
        let result = record(&["-o", place, "--", "sh", "-c", "echo started"]);
        result.code(125).stdout("").stderr(predicate::str::contains(why).and(one_line()));
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn an_unknown_option_is_not_the_program() {
    for command in ["record", "run"] {
        let ahead = |arguments: &[&str]| Command::cargo_bin("ahead").unwrap().arg(command).args(arguments).assert();
        ahead(&["--bogus", "--", "true"]).code(2).stderr(predicate::str::contains("unexpected argument '--bogus'"));
        ahead(&["-p", "/none", "-x", "true"]).code(2);
    }
    // Arguments after the program belong to the program.
    let run = |arguments: &[&str]| Command::cargo_bin("ahead").unwrap().arg("run").args(arguments).assert();
    for before in [&[][..], &["--"]] {
        run(&[before, &["printf", "--", "-x--bogus"]].concat()).success().stdout("-x--bogus");
    }
}

#[test]
fn a_usage_error_names_only_missing_arguments() {
    record(&[]).code(2).stderr(predicate::str::contains("--output <FILE>\n").not());
    let run = Command::cargo_bin("ahead").unwrap().args(["run", "-p", "x"]).assert();
    run.code(2).stderr(predicate::str::contains("--profile").not());
}

#[test]
fn a_missing_home_is_not_created() {
    if !rustix::process::geteuid().is_root() {
        // Missing privilege is reported first.
        return println!("skipped: needs root");
    }
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("missing");
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.env_remove("XDG_STATE_HOME").env_remove("SUDO_USER").env_remove("SUDO_UID").env("HOME", &missing);
    let result = command.args(["record", "--", "echo", "started"]).assert();
    result.code(125).stdout("").stderr(predicate::str::contains("does not exist").and(predicate::str::contains("-o")));
    assert!(!missing.exists());
}

/// Regression: without privilege the first error was the profile's path.
#[test]
fn missing_privilege_is_reported_before_the_profile_path() {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(["record", "-o", "/no/such/directory/p.ahead", "--", "echo", "started"]);
    if rustix::process::geteuid().is_root() {
        // A copy of the program, run as an unprivileged user.
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("ahead");
        let copied = std::process::Command::new("cp").arg(assert_cmd::cargo::cargo_bin("ahead")).arg(&program).status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.args(["record", "-o", "/no/such/directory/p.ahead", "--", "echo", "started"]);
        let result = command.assert();
        result.code(77).stdout("").stderr(predicate::str::contains("as root").and(one_line()));
        return;
    }
    command.assert().code(77).stdout("").stderr(predicate::str::contains("as root").and(one_line()));
}

fn one_line() -> impl Predicate<str> {
    predicate::function(|text: &str| text.lines().count() == 1)
}

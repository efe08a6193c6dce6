//! The command line of `ahead-replay`, the program for small machines.

use crate::fetch::{home, save, used};
use assert_cmd::Command;
use predicates::prelude::*;
use std::fs;

fn ahead_replay(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead-replay").unwrap();
    command.args(arguments);
    command
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help =
        predicate::str::contains("Usage: ahead-replay [OPTIONS] PROFILE").and(predicate::str::contains("--low-memory"));
    ahead_replay(&["--help"]).assert().success().stdout(help).stderr("");
    ahead_replay(&["-V"]).assert().success().stdout(predicate::str::starts_with("ahead-replay 0.")).stderr("");
}

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    let one_line = || predicate::function(|text: &str| text.lines().count() == 1);
    for (arguments, why) in [
        (&[][..], "no PROFILE is given"),
        (&["--record", "p.ahead"], "--record"),
        (&["--budget", "4096", "p.ahead"], "has no unit"),
    ] {
        let said = predicate::str::starts_with("ahead-replay: ").and(predicate::str::contains(why)).and(one_line());
        ahead_replay(arguments).assert().code(2).stdout("").stderr(said);
    }
}

#[test]
fn unusable_profile_is_named_with_its_problem() {
    let (_guard, home) = home();
    let profile = home.join("p.ahead");
    let named = |why: &'static str| predicate::str::contains("p.ahead").and(predicate::str::contains(why));
    ahead_replay(&[]).arg(&profile).assert().code(1).stdout("").stderr(named("No such file"));
    fs::write(&profile, "no profile").unwrap();
    ahead_replay(&[]).arg(&profile).assert().code(1).stdout("").stderr(named("not an ahead profile"));
    ahead_replay(&[]).arg(&home).assert().code(1).stdout("").stderr(predicate::str::contains("a directory"));
}

#[test]
fn account_has_one_figure_per_line() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    let mut gone = used(&data);
    gone.path.extend(b"-gone");
    save(vec![used(&data), gone], &profile);
    for more in [&[][..], &["--low-memory", "--wait", "--priority", "idle", "--budget", "1G", "--deadline", "60s"]] {
        let output = ahead_replay(more).arg(&profile).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        let account = String::from_utf8(output.stdout).unwrap();
        let figure = |name: &str| -> u64 {
            let value = account.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.unwrap_or_else(|| panic!("no {name} in {account}")).parse().unwrap()
        };
        assert_eq!(figure("issued_bytes") + figure("already_resident_bytes"), 100_000, "{account}");
        assert_eq!(figure("skipped_missing_bytes"), 100_000, "{account}");
        assert_eq!(account.contains("arrived_us "), !more.is_empty(), "{account}");
    }
}

#[test]
fn paths_are_below_the_root() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    let mut inside = used(&data);
    inside.path = b"/data".into();
    save(vec![inside], &profile);
    let output = ahead_replay(&["--root"]).arg(&home).arg(&profile).output().unwrap();
    let account = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && account.contains("already_resident_bytes 100000\n"), "{account}");
    let output = ahead_replay(&[]).arg(&profile).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("skipped_missing_bytes 100000\n"));
    let said = predicate::str::contains("open the root directory").and(predicate::str::contains("p.ahead"));
    ahead_replay(&["--root"]).arg(&profile).arg(&profile).assert().code(1).stdout("").stderr(said);
}

//! Help of every command, found by walking down from `ahead --help` as a user does. The definitions of the flags check that
//! each flag has a sentence.

use ahead_tests::rig::prelude::*;

pub fn help(command: &[String]) -> String {
    // Help goes to standard output.
    ahead(command).arg("--help").ok().err_is("").out
}

/// Names under `Commands:` and under `Laboratory`, with their descriptions.
pub fn listed(help: &str) -> Vec<(String, String)> {
    let under = |heading: &'static str| {
        let lines = help.lines().skip_while(move |line| !line.starts_with(heading)).skip(1);
        lines.take_while(|line| !line.is_empty())
    };
    let commands = under("Commands:").chain(under("Laboratory"));
    let entries = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).map(str::trim_start);
    let entries = entries.map(|line| line.split_once(' ').unwrap_or((line, "")));
    entries.map(|(name, about)| (name.to_owned(), about.trim().to_owned())).filter(|(name, _)| name != "help").collect()
}

/// Every listed command, with its parent commands: `["disk", "create"]`.
pub fn commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut next = vec![Vec::new()];
    while let Some(command) = next.pop() {
        for (name, _) in listed(&help(&command)) {
            let longer = [command.clone(), vec![name]].concat();
            next.push(longer.clone());
            found.push(longer);
        }
    }
    found
}

#[test]
fn every_command_has_help() {
    let commands = commands();
    assert!(commands.contains(&vec!["show".to_owned()]));
    for command in commands {
        let text = help(&command);
        assert!(text.contains(&format!("Usage: ahead {}", command.join(" "))), "{command:?}: {text}");
        for (name, about) in listed(&text) {
            assert!(!about.is_empty(), "{command:?} {name} has no line of help");
        }
    }
}

#[test]
fn both_headings_list_commands() {
    let commands = commands();
    for name in ["record", "top", "steer", "tune", "sim", "probe"] {
        assert!(commands.contains(&vec![name.to_owned()]), "{name}: {commands:?}");
    }
}

/// A program with commands of `ahead` must be beside it; no other directory is searched.
#[test]
fn a_missing_program_is_named() {
    let home = tempfile::tempdir().unwrap();
    let alone = home.path().join("ahead");
    // Copied by another process: a program that a fork of this process still has open for writing cannot be executed.
    let copied = std::process::Command::new("cp").arg(assert_cmd::cargo::cargo_bin("ahead")).arg(&alone).status();
    assert!(copied.unwrap().success());
    let programs = assert_cmd::cargo::cargo_bin("ahead-lab");
    let missing = [(["sim", "policies"], "ahead-lab", "ahead-lab"), (["top", "--once"], "ahead-steer", "ahead")];
    for (arguments, name, package) in missing {
        let mut command = std::process::Command::new(&alone);
        let output = command.args(arguments).env("PATH", programs.parent().unwrap()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(77), "{said}");
        assert!(said.contains(&format!("the program {name}, which is not at")) && said.lines().count() == 1, "{said}");
        assert!(said.ends_with(&format!("; install the package {package}\n")), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_version_is_printed() {
    ahead(["--version"]).done().out_is(concat!("ahead ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_is_status_2_with_a_message_on_standard_error() {
    for arguments in [&[][..], &["shwo"], &["show"], &["show", "--no-such-flag", "x"], &["restore", "surplus"]] {
        let done = ahead(arguments).fails(2).out_is("");
        assert!(!done.err.is_empty(), "{done}");
    }
}

/// The lines of help under a heading.
fn section<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.is_empty() || line.starts_with(' ')).collect()
}

/// Regression: `--json` and CMD were under "End of the run".
#[test]
fn only_flags_that_end_a_run_are_under_that_heading() {
    let flag = |line: &&str| line.trim_start().starts_with(['-', '[', '<']);
    for name in ["record", "compare"] {
        let text = help(&[name.to_owned()]);
        let ends: Vec<&str> = section(&text, "End of the run:").into_iter().filter(flag).map(str::trim).collect();
        let names: Vec<&str> = ends.iter().map(|line| line.split(' ').next().unwrap()).collect();
        let linger = (name == "record").then_some("--linger");
        let expected: Vec<&str> =
            ["--until-output", "--until-port", "--until-file"].into_iter().chain(linger).collect();
        assert_eq!(names, expected, "{name}");
        assert!(section(&text, "Options:").iter().any(|line| line.trim() == "--json"), "{text}");
        assert!(section(&text, "Arguments:").iter().any(|line| line.contains("CMD")), "{text}");
    }
}

/// Regression: the commands came in alphabetical order, the laboratory's among them.
#[test]
fn commands_are_in_order_of_use_with_and_without_help() {
    let bare = program(built("ahead")).done().err;
    assert_eq!(listed(&bare), listed(&help(&[])));
    let names: Vec<String> = listed(&bare).into_iter().map(|(name, _)| name).collect();
    let (everyday, laboratory) = names.split_at(names.len() - 5);
    assert!(everyday.starts_with(&["record".to_owned(), "run".to_owned()]), "{everyday:?}");
    assert!(everyday.ends_with(&["top", "steer", "tune", "restore"].map(String::from)), "{everyday:?}");
    assert_eq!(laboratory, ["bench", "disk", "papers", "probe", "sim"]);
}

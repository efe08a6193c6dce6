//! Man pages and completions are generated from the command line's one definition, and work in their programs.

use ahead_tests::rig::prelude::*;
use std::collections::BTreeSet;

fn generate(into: &Path) {
    ahead(["generate"]).arg(into).ok().out_is("").err_is("");
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

const LABORATORY: [&str; 5] = ["bench", "disk", "papers", "probe", "sim"];

#[test]
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let pages = names(&directory.path().join("man"));
    for command in crate::help::commands() {
        let page = format!(
            "{}.1",
            ["ahead"].into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>().join("-")
        );
        assert!(pages.contains(&page), "{page} is missing from {pages:?}");
        let text = fs::read_to_string(directory.path().join("man").join(&page)).unwrap();
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(text.contains(section), "{page}: {section}");
        }
    }
}

/// As in the help: the commands of `ahead`, then those of the laboratory.
#[test]
fn man_page_of_ahead_has_two_lists_of_commands() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let text = fs::read_to_string(directory.path().join("man/ahead.1")).unwrap();
    let (commands, laboratory) = text.split_once(".SH LABORATORY\n").expect("a second heading");
    let (_, commands) = commands.split_once(".SH COMMANDS\n").unwrap();
    for (name, _) in crate::help::listed(&crate::help::help(&[])) {
        let list = if LABORATORY.contains(&name.as_str()) { laboratory } else { commands };
        assert_eq!(list.matches(&format!("ahead\\-{name}(1)\n")).count(), 1, "{name}: {text}");
    }
}

#[test]
fn completions_name_every_command() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let completions = directory.path().join("completions");
    let programs = ["ahead", "ahead-lab", "aheadd"];
    let files = programs.iter().flat_map(|it| [format!("_{it}"), format!("{it}.bash"), format!("{it}.fish")]);
    assert_eq!(names(&completions), files.collect());
    // The service has no commands.
    for name in names(&completions).into_iter().filter(|name| !name.contains("aheadd")) {
        let text = fs::read_to_string(completions.join(&name)).unwrap();
        let is_laboratory = name.contains("lab");
        for command in crate::help::commands()
            .into_iter()
            .filter(|command| !is_laboratory || LABORATORY.contains(&command[0].as_str()))
        {
            assert!(text.contains(command.last().unwrap()), "{name}: {command:?}");
        }
    }
    for program_name in programs {
        program("bash").arg("-n").arg(completions.join(format!("{program_name}.bash"))).ok();
    }
}

#[test]
fn an_unwritable_target_is_an_error() {
    ahead(["generate", "/dev/null/x"]).fails(1).says("ahead: create /dev/null/x/man: ");
}

//! The permitted dependencies between crates, as docs/architecture.md defines them, and the maximum size of the command
//! lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Pure crates: no I/O, no clock, no thread. They know only each other. In the order of the table of layers.
const PURE: [&str; 5] = ["model", "policy", "device", "profile", "plan"];

/// Maximum number of lines of the command lines of `ahead` and `ahead-lab` together: they parse, render and set exit statuses.
/// The generator of man pages is a part.
const MAX_COMMAND_LINES: usize = 6800;

/// The same for `ahead-steer`, with its terminal interface.
const MAX_STEERING_LINES: usize = 1400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

/// Package names and directories below `crates` or `lab`.
pub fn packages(floor: &str) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(root().join(floor)).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("Cargo.toml").exists()).map(|path| (package_name(&path), path)).collect()
}

fn manifest(directory: &Path) -> String {
    fs::read_to_string(directory.join("Cargo.toml")).unwrap()
}

fn package_name(directory: &Path) -> String {
    let text = manifest(directory);
    let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
    name.trim_matches('"').into()
}

/// The crates of the workspace that a crate depends on, except for its tests.
fn dependencies(directory: &Path) -> BTreeSet<String> {
    let (mut section, mut found) = (String::new(), BTreeSet::new());
    for line in manifest(directory).lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').into();
        } else if section == "dependencies" || section == "build-dependencies" {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            found.extend(Some(name.to_owned()).filter(|name| name == "ahead" || name.starts_with("ahead-")));
        }
    }
    found
}

#[test]
fn shipped_crates_do_not_depend_on_the_laboratory() {
    let laboratory: BTreeSet<String> = packages("lab").into_keys().collect();
    assert!(laboratory.len() >= 5, "{laboratory:?}");
    for (name, directory) in packages("crates") {
        let wrong: Vec<String> = dependencies(&directory).intersection(&laboratory).cloned().collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
}

#[test]
fn pure_crates_depend_only_on_pure_ones() {
    let pure: BTreeSet<String> = PURE.iter().map(|name| format!("ahead-{name}")).collect();
    let shipped = packages("crates");
    for name in &pure {
        let wrong: Vec<String> = dependencies(&shipped[name]).difference(&pure).cloned().collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
}

/// Regression: `profile` saved and loaded files.
#[test]
fn pure_crates_call_no_system() {
    let system = [
        "std::fs",
        "std::process",
        "std::thread",
        "std::net",
        "std::env",
        "Instant::now",
        "SystemTime::now",
        "rustix",
        "libc",
    ];
    for name in PURE {
        let directory = root().join("crates").join(name);
        let manifest = manifest(&directory);
        let own = manifest.split("[dev-dependencies]").next().unwrap();
        let found = system.iter().find(|word| own.contains(**word));
        assert_eq!(found, None, "{name}");
        let mut files = Vec::new();
        sources(&directory.join("src"), &mut files);
        for path in files.iter().filter(|path| !path.ends_with("tests.rs") && !path.ends_with("testing.rs")) {
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap().lines();
            let mut code = code.filter(|line| !line.trim_start().starts_with("//"));
            let found = code.find(|line| system.iter().any(|word| line.contains(word)));
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

/// The layers of docs/architecture.md in their order, with the directories of their crates.
fn layers() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| layer |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(|row| row.split('|').map(str::trim).collect());
    let layer = |cells: Vec<&str>| {
        let names = cells[2].split('`').skip(1).step_by(2).filter(|name| !name.contains('/'));
        (cells[1].to_owned(), names.map(str::to_owned).collect())
    };
    rows.map(layer).collect()
}

#[test]
fn shipped_crates_depend_only_on_crates_before_them_in_the_layer_table() {
    let shipped = packages("crates");
    let name_of = |directory: &String| package_name(&root().join("crates").join(directory));
    let layers = layers();
    assert_eq!(layers[0], ("pure".to_owned(), PURE.map(str::to_owned).to_vec()));
    let mut before = BTreeSet::new();
    for directory in layers.iter().flat_map(|(_, directories)| directories) {
        let name = name_of(directory);
        let wrong: Vec<String> = dependencies(&shipped[&name]).difference(&before).cloned().collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}, which do not stand before it");
        assert!(before.insert(name), "{directory} is in the table twice");
    }
    assert_eq!(before, shipped.keys().cloned().collect(), "each crate is in the table");
}

#[test]
fn each_crate_has_its_task_in_the_architecture() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    for directory in packages("crates").into_values().chain(packages("lab").into_values()) {
        let directory = directory.strip_prefix(root()).unwrap().display().to_string();
        assert!(text.contains(&format!("| `{directory}` |")), "{directory}");
    }
}

#[test]
fn only_command_lines_depend_on_the_command_line() {
    for (name, directory) in packages("crates").into_iter().chain(packages("lab")) {
        let depends = dependencies(&directory).contains("ahead-cli");
        let is_command_line = ["ahead-lab-cli", "ahead-steer-cli"].contains(&name.as_str());
        assert!(!depends || is_command_line, "{name} depends on ahead-cli");
    }
}

#[test]
fn command_lines_stay_small() {
    for (directories, most) in
        [(&["crates/cli/src", "lab/cli/src"][..], MAX_COMMAND_LINES), (&["crates/steer-cli/src"], MAX_STEERING_LINES)]
    {
        let lines: usize = directories.iter().map(|directory| lines_below(&root().join(directory))).sum();
        assert!(lines <= most, "{directories:?} have {lines} lines, at most {most} are allowed");
    }
}

fn lines_below(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => lines_below(&path),
            false => fs::read_to_string(&path).unwrap().lines().count(),
        })
        .sum()
}

/// Every source file of the programs and libraries, below a directory.
pub fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => sources(&entry, into),
            false => into.extend(Some(entry).filter(|path| path.extension().is_some_and(|end| end == "rs"))),
        }
    }
}

/// Regression: messages named commands that need root without `sudo`.
#[test]
fn hints_of_commands_that_need_root_begin_with_sudo() {
    let commands =
        ["restore", "record", "boot install", "boot record", "disk detach", "disk create", "tune", "pack", "steer"];
    // How a message introduces a command.
    let before = ["run: ", "with: ", "or: ", "see: ", "start: ", "observed: ", "dead: ", "run `", "with `"];
    let hints: Vec<String> =
        before.iter().flat_map(|words| commands.map(|command| format!("{words}ahead {command}"))).collect();
    let mut files = Vec::new();
    for directory in packages("crates").into_values().chain(packages("lab").into_values()) {
        sources(&directory.join("src"), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            assert!(!hints.iter().any(|hint| line.contains(hint)), "{}: {line}", path.display());
        }
    }
}

/// Crates that may ask the kernel for pages: `sys` has the system calls, `fetch` is the only crate that uses them.
const FETCH: [&str; 2] = ["ahead-sys", "ahead-fetch"];

/// Files of the laboratory that make such a call because they measure it.
const MEASURED_CALLS: [&str; 2] = ["lab/papers/src/on_disk/calls.rs", "lab/measure/src/probe/window.rs"];

#[test]
fn only_the_fetch_crate_asks_the_kernel_for_pages() {
    let calls = [
        "cache::read_ahead(",
        "cache::readahead_call(",
        "advice::will_need(",
        "process.will_need(",
        "large_folio::read_block(",
        "libc::readahead",
        "Advice::WillNeed",
        "FADV_WILLNEED",
        "MADV_WILLNEED",
        "Ring::new(",
    ];
    let mut files = Vec::new();
    for (name, directory) in packages("crates").into_iter().chain(packages("lab")) {
        if !FETCH.contains(&name.as_str()) {
            sources(&directory.join("src"), &mut files);
        }
    }
    files.retain(|path| !MEASURED_CALLS.iter().any(|measured| path.ends_with(measured)));
    let made = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        // Comments and messages name the calls.
        let code = text.lines().map(|line| line.split("//").next().unwrap().split('"').step_by(2).collect::<String>());
        code.filter(|line| calls.iter().any(|call| line.contains(call))).collect::<Vec<_>>()
    };
    let wrong: Vec<_> = files.iter().map(|path| (path, made(path))).filter(|(_, lines)| !lines.is_empty()).collect();
    assert!(wrong.is_empty(), "call ahead_fetch instead: {wrong:#?}");
    // The check finds what it is for.
    assert!(!made(&root().join(MEASURED_CALLS[0])).is_empty());
}

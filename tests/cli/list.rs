//! The store of profiles: what is in it, what is found, what is removed.

use ahead_profile::{Profile, Recording};
use assert_cmd::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// A home directory, and a directory to run in.
struct Store {
    home: tempfile::TempDir,
    directory: PathBuf,
}

impl Store {
    fn new() -> Store {
        let home = tempfile::tempdir().unwrap();
        let directory = fs::canonicalize(home.path()).unwrap().join("work");
        fs::create_dir(&directory).unwrap();
        Store { home, directory }
    }

    fn ahead(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::cargo_bin("ahead").unwrap();
        command.args(arguments).current_dir(&self.directory);
        command.env("HOME", self.home.path()).env_remove("XDG_STATE_HOME").output().unwrap()
    }

    fn said(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.ahead(arguments).stderr).unwrap()
    }

    /// The file where a command's profile is looked for: `run` names it.
    fn place(&self, command: &[&str]) -> PathBuf {
        let said = self.said(&[&["show", "--"], command].concat());
        let path = said.strip_prefix("ahead: there is no profile ").unwrap_or_else(|| panic!("{said}"));
        PathBuf::from(path.split([';', '\n']).next().unwrap())
    }

    fn keep(&self, command: &[&str]) -> PathBuf {
        let path = self.place(command);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let words = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        let directory = self.directory.as_os_str().as_encoded_bytes().to_vec();
        let recording = Recording { command: words, directory, runs: 1, ..Recording::default() };
        ahead_profile::save(&Profile { recording, ..Profile::default() }, &path).unwrap();
        path
    }

    fn listed(&self) -> Vec<(Vec<String>, PathBuf)> {
        let output = self.ahead(&["list", "--json"]);
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let word = |word: &serde_json::Value| word.as_str().unwrap().to_owned();
        let entry = |entry: &serde_json::Value| {
            let words = entry["command"].as_array().unwrap().iter().map(word).collect();
            (words, Path::new(entry["path"].as_str().unwrap()).into())
        };
        list.as_array().unwrap().iter().map(entry).collect()
    }
}

#[test]
fn profiles_are_listed_shown_and_forgotten_by_their_command() {
    let store = Store::new();
    assert!(String::from_utf8(store.ahead(&["list"]).stdout).unwrap().starts_with("there are no profiles"));
    let (log, status) = (store.keep(&["git", "log", "-n", "200"]), store.keep(&["git", "status"]));
    let mut expected = vec![
        (["git", "log", "-n", "200"].map(String::from).to_vec(), log.clone()),
        (["git", "status"].map(String::from).to_vec(), status.clone()),
    ];
    expected.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(store.listed(), expected);
    let text = String::from_utf8(store.ahead(&["list"]).stdout).unwrap();
    assert!(text.contains("git log -n 200") && text.contains(status.to_str().unwrap()), "{text}");
    assert!(store.ahead(&["show", "--", "git", "status"]).status.success());
    // Nothing but what is in the store is removed.
    let other = store.directory.join("other.ahead");
    fs::copy(&log, &other).unwrap();
    let refused = store.ahead(&["forget", "--profile", other.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(store.ahead(&["forget", "--", "git", "log", "-n", "200"]).status.success());
    assert!(!log.exists() && status.exists() && other.exists());
    assert!(store.ahead(&["forget", "--profile", status.to_str().unwrap()]).status.success());
    assert!(store.listed().is_empty());
    assert_eq!(store.ahead(&["forget"]).status.code(), Some(2));
}

/// A user recorded `-n 200`, asks for `-n 20`, and is told only that there is no such file.
#[test]
fn missing_profile_names_those_of_the_same_program() {
    let store = Store::new();
    for count in ["1", "2", "3", "4"] {
        store.keep(&["git", "log", "-n", count]);
    }
    let said = store.said(&["show", "--", "git", "log", "-n", "20"]);
    assert!(said.contains("there are profiles for: git log -n ") && said.contains("and 1 more (ahead list)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = store.said(&["run", "--", "git", "--version"]);
    assert!(said.contains("there are 4 for other arguments or elsewhere: ahead list"), "{said}");
    assert!(!store.said(&["show", "--", "gi"]).contains("there are profiles for"));
}

#[test]
fn profile_that_cannot_be_read_is_listed_with_the_reason_and_can_be_forgotten() {
    let store = Store::new();
    let path = store.keep(&["cat"]);
    fs::write(&path, "no profile").unwrap();
    let output = store.ahead(&["list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(list[0]["error"].as_str().unwrap().contains("cat-"), "{list}");
    assert!(store.ahead(&["list"]).status.success());
    assert!(store.ahead(&["forget", "--all"]).status.success());
    assert!(!path.exists());
}

/// A profile for any arguments is used where there is none for those that are given.
#[test]
fn profile_for_any_arguments_is_used_where_there_is_no_other() {
    let store = Store::new();
    let same = store.keep(&["git", "log"]);
    let name = same.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("git-") && !name.contains("-any-"), "{name}");
    // Recording needs root: its place is the one that is looked for second.
    let hash = crc32fast::hash(store.directory.as_os_str().as_encoded_bytes());
    let any = same.with_file_name(format!("git-any-{hash:08x}.ahead"));
    fs::copy(&same, &any).unwrap();
    assert!(store.ahead(&["show", "--", "git", "whatever"]).status.success());
    let output = store.ahead(&["list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let flags: Vec<_> = list.as_array().unwrap().iter().map(|entry| entry["any_arguments"].as_bool()).collect();
    assert_eq!(flags.iter().filter(|flag| **flag == Some(true)).count(), 1, "{list}");
    assert!(store.ahead(&["forget", "--", "git", "whatever"]).status.success());
    assert!(same.exists() && !any.exists());
}

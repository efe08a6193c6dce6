//! The store of profiles: list, show and forget.

use crate::documents;
use ahead_profile::{Profile, Recording};
use assert_cmd::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// A home directory with a store, and a working directory.
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

    fn stderr(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.ahead(arguments).stderr).unwrap()
    }

    /// The path of a command's profile in the store: its name has a hash of directory and arguments.
    fn profile_path(&self, command: &[&str]) -> PathBuf {
        let mut hash = crc32fast::Hasher::new();
        hash.update(self.directory.as_os_str().as_encoded_bytes());
        for argument in &command[1..] {
            hash.update(&[0]);
            hash.update(argument.as_bytes());
        }
        let name = format!("{}-{:08x}.ahead", command[0], hash.finalize());
        fs::canonicalize(self.home.path()).unwrap().join(".local/state/ahead").join(name)
    }

    fn save(&self, command: &[&str]) -> PathBuf {
        let path = self.profile_path(command);
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
        if list != serde_json::json!([]) {
            documents::assert_documented(&["### ahead list --json"], &list);
        }
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
    let (log, status) = (store.save(&["git", "log", "-n", "200"]), store.save(&["git", "status"]));
    let mut expected = vec![
        (["git", "log", "-n", "200"].map(String::from).to_vec(), log.clone()),
        (["git", "status"].map(String::from).to_vec(), status.clone()),
    ];
    expected.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(store.listed(), expected);
    let text = String::from_utf8(store.ahead(&["list"]).stdout).unwrap();
    assert!(text.contains("git log -n 200") && text.contains(status.to_str().unwrap()), "{text}");
    assert!(store.ahead(&["show", "--", "git", "status"]).status.success());
    // `forget` removes only profiles of the store.
    let other = store.directory.join("other.ahead");
    fs::copy(&log, &other).unwrap();
    let refused = store.ahead(&["forget", "--profile", other.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(store.ahead(&["forget", "--", "git", "log", "-n", "200"]).status.success());
    assert!(!log.exists() && status.exists() && other.exists());
    assert!(store.ahead(&["forget", "--profile", status.to_str().unwrap()]).status.success());
    assert!(store.listed().is_empty());
    // Regression: only `--profile` and the file were suggested, not the command.
    for command in ["forget", "show"] {
        let bare = store.ahead(&[command]);
        let text = String::from_utf8(bare.stderr).unwrap();
        assert!(bare.status.code() == Some(2) && text.contains("FILE") && text.contains("CMD"), "{text}");
    }
}

/// Regression: each command had a different message for a missing profile, and those of `show` and `forget` contained
/// no remedy.
#[test]
fn a_missing_profile_has_the_same_message_everywhere() {
    let store = Store::new();
    let sudo = if ahead_sys::machine::is_root() { "" } else { "sudo " };
    let missing = format!(
        "there is no profile for: true a (in {}); make one with: {sudo}ahead record",
        store.directory.display()
    );
    for (command, start) in [("show", ""), ("forget", ""), ("compare", ""), ("run", "runs without a profile: ")] {
        let stderr = store.stderr(&[command, "--", "true", "a"]);
        assert_eq!(stderr, format!("ahead: {start}{missing} --cold -- true a\n"));
    }
    for (command, start) in [("compare", ""), ("run", "runs without a profile: ")] {
        let stderr = store.stderr(&[command, "-p", "p.ahead", "--", "true"]);
        let recording = format!("{sudo}ahead record --cold -o p.ahead -- true");
        assert_eq!(stderr, format!("ahead: {start}there is no profile p.ahead; make one with: {recording}\n"));
    }
}

/// The user recorded `-n 200` and requests `-n 20`.
#[test]
fn a_missing_profile_names_those_of_the_same_program() {
    let store = Store::new();
    for count in ["1", "2", "3", "4"] {
        store.save(&["git", "log", "-n", count]);
    }
    let stderr = store.stderr(&["show", "--", "git", "log", "-n", "20"]);
    assert!(
        stderr.contains("there are profiles for: git log -n ") && stderr.contains("and 1 more (ahead list)"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let stderr = store.stderr(&["run", "--", "git", "--version"]);
    assert!(stderr.contains("there are 4 profiles for other arguments or directories (ahead list)"), "{stderr}");
    assert!(!store.stderr(&["show", "--", "gi"]).contains("there are profiles for"));
}

#[test]
fn an_unreadable_profile_is_listed_with_the_reason_and_can_be_forgotten() {
    let store = Store::new();
    let path = store.save(&["cat"]);
    fs::write(&path, "no profile").unwrap();
    let output = store.ahead(&["list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    documents::assert_documented(&["### ahead list --json"], &list);
    assert!(list[0]["error"].as_str().unwrap().contains("cat-"), "{list}");
    assert!(store.ahead(&["list"]).status.success());
    assert!(store.ahead(&["forget", "--all"]).status.success());
    assert!(!path.exists());
}

/// The profile for any arguments is used if there is none for the given arguments.
#[test]
fn a_profile_for_any_arguments_is_the_fallback() {
    let store = Store::new();
    let same = store.save(&["git", "log"]);
    let name = same.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("git-") && !name.contains("-any-"), "{name}");
    // Recording needs root, so the test saves the profile at the path that `run` tries second.
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

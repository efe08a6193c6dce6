//! The store of profiles: list, show and forget.

use crate::documents;
use ahead_profile::{Profile, Recording};
use ahead_tests::rig::prelude::*;

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

    fn ahead(&self, arguments: &[&str]) -> Done {
        let command = ahead(arguments).current_dir(&self.directory);
        command.env("HOME", self.home.path()).env_remove("XDG_STATE_HOME").done()
    }

    fn stderr(&self, arguments: &[&str]) -> String {
        self.ahead(arguments).err
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
        ahead_files::save(&Profile { recording, ..Profile::default() }, &path).unwrap();
        path
    }

    fn listed(&self) -> Vec<(Vec<String>, PathBuf)> {
        let output = self.ahead(&["list", "--json"]);
        let list: Value = output.json();
        if list != serde_json::json!([]) {
            documents::assert_documented(&["### ahead list --json"], &list);
        }
        let word = |word: &Value| word.as_str().unwrap().to_owned();
        let entry = |entry: &Value| {
            let words = entry["command"].as_array().unwrap().iter().map(word).collect();
            (words, Path::new(entry["path"].as_str().unwrap()).into())
        };
        list.as_array().unwrap().iter().map(entry).collect()
    }
}

#[test]
fn profiles_are_listed_shown_and_forgotten_by_their_command() {
    let store = Store::new();
    assert!(store.ahead(&["list"]).out.starts_with("there are no profiles"));
    let (log, status) = (store.save(&["git", "log", "-n", "200"]), store.save(&["git", "status"]));
    let mut expected = vec![
        (["git", "log", "-n", "200"].map(String::from).to_vec(), log.clone()),
        (["git", "status"].map(String::from).to_vec(), status.clone()),
    ];
    expected.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(store.listed(), expected);
    let text = store.ahead(&["list"]).out;
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
        let text = bare.err;
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

/// Regression: a program that was recorded by a link had no profile by its own path, and the other way round.
#[test]
fn a_profile_is_found_by_the_link_and_by_the_file() {
    let store = Store::new();
    let (file, link, applet) = ("program-1.2", "program", "applet");
    fs::copy("/bin/true", store.directory.join(file)).unwrap();
    for name in [link, applet] {
        std::os::unix::fs::symlink(file, store.directory.join(name)).unwrap();
    }
    let (file_path, link_path) = (format!("./{file}"), store.directory.join(link));
    let link_path = link_path.to_str().unwrap();
    // By the link recorded, by the file started; arguments differ as before.
    let recorded = store.save(&[link, "a"]);
    let found = |command: &[&str]| {
        let run = store.stderr(&[&["run", "-v", "--"], command].concat());
        let show = store.ahead(&[&["show", "--json", "--"], command].concat()).status.success();
        assert_eq!(!run.contains("runs without a profile"), show, "{run}");
        show
    };
    assert!(found(&[&file_path, "a"]) && !found(&[&file_path, "b"]));
    // A program with two links may be another one by each name.
    assert!(!found(&[&format!("./{applet}"), "a"]));
    assert!(store.stderr(&["compare", "--", &file_path, "b"]).contains("there are profiles for: program a"));
    assert!(store.stderr(&["run", "--", &file_path, "b"]).contains("there is 1 profile for"));
    fs::remove_file(recorded).unwrap();
    store.save(&[file, "a"]);
    assert!(found(&[link_path, "a"]) && !found(&[link_path, "b"]));
    assert!(store.stderr(&["show", "--", link_path, "b"]).contains("there are profiles for: program-1.2 a"));
}

/// Regression: a program that was recorded by a link in another directory, which is not in PATH, had no profile by its own path.
#[test]
fn a_profile_is_found_by_the_file_of_a_link_elsewhere() {
    let store = Store::new();
    let (file, link) = (store.directory.join("program-1.2"), store.home.path().join("current"));
    fs::copy("/bin/true", &file).unwrap();
    let place = store.save(&["current", "a"]);
    let mut profile = ahead_files::load(&place).unwrap();
    profile.recording.command[0] = link.as_os_str().as_encoded_bytes().to_vec();
    ahead_files::save(&profile, &place).unwrap();
    let found = |leads_to: &std::path::Path| {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(leads_to, &link).unwrap();
        store.ahead(&["show", "--json", "--", "./program-1.2", "a"]).status.success()
    };
    assert!(found(&file) && !found(std::path::Path::new("/bin/false")));
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
    let list: Value = output.json();
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
    let list: Value = output.json();
    let flags: Vec<_> = list.as_array().unwrap().iter().map(|entry| entry["any_arguments"].as_bool()).collect();
    assert_eq!(flags.iter().filter(|flag| **flag == Some(true)).count(), 1, "{list}");
    assert!(store.ahead(&["forget", "--", "git", "whatever"]).status.success());
    assert!(same.exists() && !any.exists());
}

impl Store {
    /// A profile of this command with one page of each of these files.
    fn save_with_files(&self, command: &[&str], files: &[&Path], recording: Recording) -> PathBuf {
        let path = self.save(command);
        let files = files.iter().map(|file| crate::fetch::used(file)).collect();
        ahead_files::save(&Profile { recording, files, ..Profile::default() }, &path).unwrap();
        path
    }
}

/// Prints the number of the process that has started it.
const PARENT: [&str; 3] = ["sh", "-c", "echo $PPID"];

/// The first start with such a profile finds out, and the next ones become the program at once.
#[test]
fn program_that_hardly_waits_is_executed_without_a_prefetch() {
    let store = Store::new();
    let file = store.directory.join("data");
    fs::write(&file, vec![1; 100_000]).unwrap();
    let recording = Recording { cold: true, runs: 1, duration_us: 2000, cpu_us: 1500, ..Recording::default() };
    let profile = store.save_with_files(&PARENT, &[&file], recording);
    let own = std::process::id().to_string();
    let run = |options: &[&str]| {
        let output = store.ahead(&[&["run"], options, &["--"], &PARENT].concat());
        (output.out.trim_end().to_owned(), output.err.trim_end().to_owned())
    };
    let (parent, message) = run(&["-v"]);
    assert_ne!(parent, own);
    assert!(message.contains("skipped 97.7 KiB (costs more than its waits)"), "{message}");
    let (parent, message) = run(&["-v"]);
    assert_eq!(parent, own);
    assert!(message.contains("runs without prefetching: the program waits for its disks for"), "{message}");
    assert_eq!(run(&[]), (own.clone(), String::new()));
    // A named profile has no note.
    let (parent, message) = run(&["-v", "-p", profile.to_str().unwrap()]);
    assert!(parent != own && message.contains("costs more than its waits"), "{message}");
    assert!(profile.with_extension("note").exists());
    store.ahead(&[&["forget", "--"], &PARENT[..]].concat());
    assert!(!profile.with_extension("note").exists());
}

#[test]
fn profile_of_changed_files_is_reported_at_the_next_run_until_it_is_recorded_again() {
    /// Ends when the prefetch has left its note, where the file `wait` exists: the end of a program ends its prefetch.
    const WAITING: [&str; 3] =
        ["sh", "-c", "test ! -e wait || until ls ../.local/state/ahead/*.note; do sleep 0.01; done"];
    let store = Store::new();
    let file = store.directory.join("data");
    fs::write(&file, vec![1; 100_000]).unwrap();
    store.save_with_files(&WAITING, &[&file], Recording { runs: 1, ..Recording::default() });
    let run = || store.stderr(&[&["run", "--"], &WAITING[..]].concat());
    assert_eq!(run(), "");
    fs::write(&file, vec![2; 50_000]).unwrap();
    fs::write(store.directory.join("wait"), "").unwrap();
    run();
    let message = run();
    let parts = [
        "the profile is of no use: 97.7 KiB of its 97.7 KiB are of files that have changed",
        "ahead record --cold -- sh",
    ];
    assert!(parts.iter().all(|part| message.contains(part)) && message.lines().count() == 1, "{message}");
    // Recorded again.
    fs::remove_file(store.directory.join("wait")).unwrap();
    store.save_with_files(&WAITING, &[&file], Recording { runs: 1, ..Recording::default() });
    assert_eq!(run(), "");
}

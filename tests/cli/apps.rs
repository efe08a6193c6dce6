//! `ahead apps`: the list, its JSON and page, and what a user changes.

use crate::documents;
use ahead_apps::{App, AppStart, AppStore, StartKey, Treatment, UserStore, calling_user};
use ahead_profile::{Extent, File as RecordedFile, Profile, Recording};
use ahead_tests::rig::prelude::*;

/// A store of the calling user.
struct Apps {
    home: tempfile::TempDir,
}

impl Apps {
    fn new() -> Apps {
        let home = tempfile::tempdir().unwrap();
        let apps = Apps { home };
        let store = apps.store();
        store.make_user(calling_user().0, calling_user().1).unwrap();
        apps
    }

    fn store(&self) -> AppStore {
        AppStore::make(&self.home.path().join("apps")).unwrap()
    }

    fn own(&self) -> UserStore {
        self.store().user(calling_user().0).unwrap().unwrap()
    }

    fn ahead(&self, arguments: &[&str]) -> Program {
        let store = self.home.path().join("apps");
        ahead([&["apps"], arguments].concat()).args(["--store", store.to_str().unwrap()])
    }

    /// A program of which each cold start waited for this long: left alone once, prefetched twice.
    fn add(&self, line: &str, alone_us: u64, with_us: u64) -> App {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let mut app = App::new(StartKey::of(&words[0], &words, b"/").unwrap().app);
        for (treatment, waited_us) in
            [(Treatment::LeftAlone, alone_us), (Treatment::Prefetched, with_us), (Treatment::Prefetched, with_us)]
        {
            let start = AppStart {
                treatment,
                unix_s: 1_795_900_000,
                absent_percent: Some(90),
                waited_us,
                elapsed_us: 100_000 + waited_us,
                issued_bytes: if treatment == Treatment::Prefetched { 1 << 20 } else { 0 },
                wasted_bytes: if treatment == Treatment::Prefetched { 1 << 10 } else { 0 },
                ..AppStart::default()
            };
            app.history.add(start, 1, true);
        }
        self.own().save(&app).unwrap();
        app
    }
}

fn recording() -> Profile {
    let extents = vec![Extent { length_bytes: 8192, runs: 1, ..Extent::default() }];
    let file = RecordedFile { path: b"/lib/x".to_vec(), size_bytes: 8192, extents, ..RecordedFile::default() };
    Profile { recording: Recording { runs: 1, ..Recording::default() }, files: vec![file], ..Profile::default() }
}

#[test]
fn list_shows_what_was_saved_and_why_nothing_is_prefetched() {
    let apps = Apps::new();
    assert!(apps.ahead(&[]).ok().out.contains("no program is known yet"));
    apps.add("/usr/bin/git", 80_000, 20_000);
    let slow = apps.add("/usr/bin/python3 /srv/tool.py", 500_000, 30_000);
    apps.own().add_recording(&slow.key, recording(), |_| {}).unwrap();
    let list = apps.ahead(&[]).ok().out;
    let rows: Vec<&str> = list.lines().skip(1).collect();
    // 2 × 470 ms, 2 × 60 ms.
    assert!(
        rows[0].starts_with("tool.py") && rows[0].contains("940.0 ms") && rows[0].contains("few recordings"),
        "{list}"
    );
    assert!(rows[1].starts_with("git") && rows[1].contains("120.0 ms") && rows[1].contains("2.0 KiB"), "{list}");
    let value: Value = apps.ahead(&["--json"]).json();
    documents::assert_documented(&["### ahead apps --json"], &value);
    assert_eq!((&value["off"], value["apps"].as_array().unwrap().len()), (&Value::Null, 2));
    let git = &value["apps"][1];
    assert_eq!((&git["saved_measured_us"], &git["gain"]["measured"]), (&120_000.into(), &true.into()));
    assert_eq!((&git["days"][0]["saved_us"], &git["starts"]), (&120_000.into(), &3.into()));
    assert_eq!(value["apps"][0]["script"], "/srv/tool.py");
}

#[test]
fn page_has_seconds_by_day_and_program() {
    let apps = Apps::new();
    apps.add("/usr/bin/<b>git", 80_000, 20_000);
    let file = apps.home.path().join("apps.html");
    apps.ahead(&["--html", file.to_str().unwrap()]).ok();
    let page = fs::read_to_string(&file).unwrap();
    for part in ["By day", "By program", "&lt;b&gt;git", "120.0 ms", "<svg"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<b>git"));
    fs::write(&file, "a text of the user").unwrap();
    assert!(apps.ahead(&["--html", file.to_str().unwrap()]).fails(1).err.contains("not a page of HTML"));
}

#[test]
fn user_pins_excludes_includes_and_forgets_by_name() {
    let apps = Apps::new();
    let git = apps.add("/usr/bin/git", 80_000, 20_000);
    let state = || apps.ahead(&["--json"]).json()["apps"][0]["state"].as_str().unwrap().to_owned();
    assert!(apps.ahead(&["pin", "git"]).fails(1).err.contains("git has no profile yet"));
    apps.own().add_recording(&git.key, recording(), |_| {}).unwrap();
    assert_eq!(apps.ahead(&["pin", "/usr/bin/git"]).ok().out, "pinned: git\n");
    assert_eq!(state(), "prefetched: pinned");
    assert_eq!(apps.ahead(&["exclude", &git.key.directory_name()]).ok().out, "left alone: git\n");
    assert_eq!(state(), "excluded by its user");
    apps.ahead(&["include", "git"]).ok();
    assert!(state().starts_with("prefetched and recorded"), "{}", state());
    let unknown = apps.ahead(&["forget", "gitt"]).fails(1).err;
    assert!(unknown.contains("no program \"gitt\" is known; similar ones: git"), "{unknown}");
    apps.ahead(&["forget", "git"]).ok();
    assert_eq!(apps.ahead(&["--json"]).json()["apps"], serde_json::json!([]));
    // A path may name a program that was never started; another word may not.
    let shell = fs::canonicalize("/bin/sh").unwrap();
    apps.ahead(&["exclude", shell.to_str().unwrap()]).ok();
    assert_eq!(state(), "excluded by its user");
    for wrong in ["never-started", "/no/such/program", ""] {
        assert!(apps.ahead(&["exclude", wrong]).fails(1).err.contains("is known"), "{wrong}");
    }
}

#[test]
fn service_is_switched_off_and_on() {
    let apps = Apps::new();
    for (word, is_off) in [("off", true), ("off", true), ("on", false)] {
        assert!(apps.ahead(&[word]).ok().out.contains(&format!("switched {word} for ")));
        assert_eq!(apps.ahead(&["--json"]).json()["off"].is_string(), is_off);
    }
}

#[test]
fn wrong_words_are_mistakes_of_usage() {
    let apps = Apps::new();
    for wrong in [&["pin"][..], &["--json", "--html", "x"], &["--all", "--user", "root"], &["stop"]] {
        apps.ahead(wrong).fails(2);
    }
    let none = ahead(["apps", "forget", "git", "--store", "/no/such/directory"]);
    assert!(none.fails(1).err.contains("the launch service has recorded no start"));
}

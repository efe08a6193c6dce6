use super::*;
use crate::agreement::tests::recording;
use crate::{AppStart, AppVersion, StartKey, StartSituation, Treatment, UserApps, WaitLimits};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn store() -> (tempfile::TempDir, AppStore) {
    let home = tempfile::tempdir().unwrap();
    let store = AppStore::make(home.path()).unwrap();
    (home, store)
}

fn user(store: &AppStore) -> UserStore {
    store.make_user(own().0, own().1).unwrap()
}

fn start(line: &str) -> StartKey {
    let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    StartKey::of(&words[0], &words, b"/home/eva").unwrap()
}

fn app(program: &str) -> App {
    App::new(start(program).app)
}

#[test]
fn state_recordings_and_pinned_profile_come_back_and_are_private() {
    let (home, store) = store();
    let user = user(&store);
    let mut app = App::new(AppKey { program: b"/usr/bin/\xff".to_vec(), ..start("/bin/x").app });
    app.history.starts = 7;
    user.save(&app).unwrap();
    assert_eq!((user.load(&app.key).as_ref(), user.apps()), (Some(&app), vec![app.clone()]));
    assert!(!user.pin(&mut app, None).unwrap());
    for page in 0..10 {
        user.add_recording(&app.key, recording("/lib/x", [0, page + 1]), |_| {}).unwrap();
    }
    let merged = user.profile(&app).unwrap();
    assert_eq!(merged.recording.runs as usize, KEPT_STARTS);
    assert!(user.pin(&mut app, None).unwrap());
    user.add_recording(&app.key, recording("/lib/y", [5]), |_| {}).unwrap();
    assert_eq!(user.profile(&app), Some(merged.clone()));
    user.choose(&mut app, UserChoice::None).unwrap();
    assert_ne!(user.profile(&app), Some(merged));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let directory = home.path().join(own().0.to_string());
    assert_eq!((mode(home.path()), mode(&directory)), (0o711, 0o700));
    let files = fs::read_dir(directory.join(app.key.directory_name())).unwrap().map(|entry| entry.unwrap().path());
    assert!(files.map(|file| mode(&file)).all(|mode| mode == 0o600));
    user.forget(&app.key).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn hostile_states_are_as_if_they_were_not_there() {
    let (home, store) = store();
    let user = user(&store);
    let app = app("/usr/bin/git");
    user.save(&app).unwrap();
    let directory = home.path().join(own().0.to_string());
    let state = directory.join(app.key.directory_name()).join(STATE);
    let good = fs::read(&state).unwrap();
    let deep = "[".repeat(60_000);
    let huge = format!("{}{}", String::from_utf8_lossy(&good), " ".repeat(MAX_STATE_BYTES as usize));
    for text in ["", "{", "null", "{\"key\":7}", &deep, &huge, &String::from_utf8_lossy(&good[..good.len() / 2])] {
        fs::write(&state, text).unwrap();
        assert_eq!((user.load(&app.key), user.apps()), (None, vec![]), "{text:.40}");
    }
    fs::remove_file(&state).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &state, 0o600.into()).unwrap();
    assert_eq!(user.load(&app.key), None);
    fs::remove_file(&state).unwrap();
    fs::write(home.path().join("elsewhere"), &good).unwrap();
    symlink(home.path().join("elsewhere"), &state).unwrap();
    assert_eq!(user.load(&app.key), None);
    fs::remove_file(&state).unwrap();
    fs::remove_dir(state.parent().unwrap()).unwrap();
    fs::create_dir(home.path().join("outside")).unwrap();
    fs::write(home.path().join("outside").join(STATE), &good).unwrap();
    symlink(home.path().join("outside"), state.parent().unwrap()).unwrap();
    assert!(user.load(&app.key).is_none() && user.save(&app).is_err());
    assert_eq!(fs::read(home.path().join("outside").join(STATE)).unwrap(), good);
    // A copy in another place does not count.
    fs::create_dir(directory.join("copy-00000000")).unwrap();
    fs::write(directory.join("copy-00000000").join(STATE), &good).unwrap();
    assert!(user.apps().is_empty());
}

#[test]
fn least_recently_started_programs_of_the_user_who_has_most_are_forgotten() {
    let (_home, store) = store();
    let user = user(&store);
    let fill = |program: &str, day: u32, choice| {
        let mut app = app(program);
        (app.history.last_use_day, app.choice) = (day, choice);
        user.save(&app).unwrap();
        let directory = user.directory.own_directory(OsStr::new(&app.key.directory_name())).unwrap();
        fs::write(directory.descriptor_path().join("start-1.ahead"), vec![1; 10 << 20]).unwrap();
    };
    fill("/bin/pinned", 1, UserChoice::Pinned);
    for day in 5..8 {
        fill(&format!("/bin/p{day}"), day, UserChoice::None);
    }
    assert_eq!(store.tidy(100), Forgotten { old: 3, crowded_out: 0 });
    for day in 105..109 {
        fill(&format!("/bin/p{day}"), day, UserChoice::None);
    }
    assert_eq!(store.tidy(110), Forgotten { old: 0, crowded_out: 2 });
    let mut left: Vec<String> = user.apps().iter().map(|app| app.key.name()).collect();
    left.sort();
    assert_eq!(left, ["p107", "p108", "pinned"]);
    assert_eq!(store.tidy(110), Forgotten::default());
}

#[test]
fn clock_that_jumps_makes_nothing_old() {
    let mut days = UseDays::default();
    let first = days.at(1_800_000_000);
    assert_eq!(days.at(1_800_000_100), first);
    // Ten years later, and back.
    assert_eq!((days.at(2_100_000_000), days.at(0), days.at(u64::MAX)), (first + 1, first + 2, first + 3));
    let (_home, store) = store();
    let user = user(&store);
    let mut app = app("/bin/x");
    app.history.last_use_day = first;
    user.save(&app).unwrap();
    store.save_use_days(days).unwrap();
    assert_eq!((store.use_days(), store.tidy(days.number)), (days, Forgotten::default()));
    // A file that says it is from the future.
    app.history.last_use_day = u32::MAX;
    user.save(&app).unwrap();
    assert_eq!(store.tidy(days.number), Forgotten::default());
}

#[test]
fn second_writer_waits_no_longer_than_its_limit() {
    let (_home, store) = store();
    let user = user(&store);
    let held = user.lock(Duration::ZERO).unwrap();
    assert!(user.lock(Duration::from_millis(20)).is_err());
    drop(held);
    user.lock(Duration::ZERO).unwrap();
}

#[test]
fn switched_off_until_switched_on() {
    let (_home, store) = store();
    let user = user(&store);
    for is_off in [true, true, false, false] {
        store.set_off(is_off).unwrap();
        user.set_off(is_off).unwrap();
        assert_eq!((store.is_off(), user.is_off()), (is_off, is_off));
    }
}

/// A start that waits, or not.
fn waited(waited_us: u64) -> AppStart {
    AppStart { waited_us, elapsed_us: 100_000, ..AppStart::default() }
}

#[test]
fn only_programs_that_wait_are_written_and_user_choices_are_taken_over() {
    let (_home, store) = store();
    let mut apps = UserApps::open(user(&store));
    let (limits, version) = (WaitLimits::default(), AppVersion { inode: 1, ..AppVersion::default() });
    let (quick, slow) = (start("/bin/true"), start("/usr/bin/git status"));
    for (start, waited_us) in [(&quick, 0), (&slow, 50_000)] {
        let key = apps.find(start, version);
        apps.add(&key, waited(waited_us), 1, &limits);
    }
    assert_eq!((apps.flush().unwrap(), apps.flush().unwrap()), (1, 0));
    let cli = store.user(own().0).unwrap().unwrap();
    let mut git = cli.load(&slow.app).unwrap();
    assert_eq!(git.history.starts, 1);
    let decide = |apps: &mut UserApps| {
        let key = apps.find(&slow, version);
        apps.decide(&slow, &key, StartSituation::default(), &limits).treatment
    };
    assert_eq!(decide(&mut apps), Treatment::Observed);
    cli.choose(&mut git, UserChoice::Excluded).unwrap();
    assert_eq!(decide(&mut apps), Treatment::Plain);
    cli.forget(&slow.app).unwrap();
    let key = apps.find(&slow, version);
    assert_eq!(apps.app(&key).unwrap().history.starts, 0);
}

#[test]
fn variant_that_reads_other_pages_gets_a_separate_profile() {
    let (_home, store) = store();
    let mut apps = UserApps::open(user(&store));
    let (status, diff, log) = (start("/bin/git status"), start("/bin/git diff"), start("/bin/git log"));
    // As the service does: a copy of it learns, and the service takes it over.
    let mut learn = |start: &StartKey, pages| {
        let mut copy = UserApps::open(store.user(own().0).unwrap().unwrap());
        let agreed = copy.learn(start, recording("/lib/x", pages), |_| {}).unwrap();
        let key = apps.learned(start, agreed);
        apps.flush().unwrap();
        key
    };
    let learned = [learn(&status, 0..100), learn(&diff, 5..100), learn(&log, 50..200)];
    assert_eq!(learned, [status.app.clone(), status.app.clone(), log.split()]);
    let mut again = UserApps::open(store.user(own().0).unwrap().unwrap());
    let keys = [&status, &diff, &log].map(|start| again.find(start, AppVersion::default()));
    assert_eq!(keys, learned);
    let pages = |key: &AppKey| again.profile(key).unwrap().data_bytes() / 4096;
    assert_eq!((pages(&keys[0]), pages(&keys[2])), (100, 150));
}

#[test]
fn memory_is_bounded_whatever_is_started() {
    let (_home, store) = store();
    let mut apps = UserApps::open(user(&store));
    let first = start("/bin/first");
    apps.learn(&first, recording("/lib/x", 0..4), |_| {}).unwrap();
    for number in 0..2 * MAX_APPS {
        apps.find(&start(&format!("/bin/p{number}")), AppVersion::default());
    }
    let known = (0..2 * MAX_APPS).filter(|number| apps.app(&start(&format!("/bin/p{number}")).app).is_some());
    assert!(known.count() < MAX_APPS && apps.app(&first.app).is_some());
}

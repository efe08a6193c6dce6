//! The store of the launch service: what users may put there, what they may see, and a full disk.

use ahead_apps::{App, AppStore, StartKey, UserStore};
use ahead_profile::{Extent, File as RecordedFile, Profile, Recording};
use ahead_tests::rig::mounted;
use ahead_tests::rig::prelude::*;
use std::os::unix::fs::{chown, symlink};

fn app(program: &str) -> App {
    App::new(StartKey::of(program.as_bytes(), &[], b"/").unwrap().app)
}

/// A profile with many files, of about 100 bytes each.
fn recording(files: u32) -> Profile {
    let file = |number| RecordedFile {
        path: format!("/usr/lib/a/directory/with/a/name/{number}").into_bytes(),
        size_bytes: 8192,
        extents: vec![Extent { length_bytes: 8192, runs: 1, ..Extent::default() }],
        ..RecordedFile::default()
    };
    let recording = Recording { runs: 1, ..Recording::default() };
    Profile { recording, files: (0..files).map(file).collect(), ..Profile::default() }
}

/// A store that other users reach, as the one of the machine.
fn store(home: &Path) -> (PathBuf, AppStore, UserStore) {
    set_mode(home, 0o755);
    let path = home.join("apps");
    let store = AppStore::make(&path).unwrap();
    let user = store.make_user(STRANGER, STRANGER).unwrap();
    (path, store, user)
}

#[test]
fn each_user_sees_the_own_programs_alone() {
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let (path, store, stranger) = store(home.path());
    let mut git = app("/usr/bin/git");
    stranger.save(&git).unwrap();
    stranger.add_recording(&git.key, recording(3), |_| {}).unwrap();
    stranger.pin(&mut git, None).unwrap();
    store.make_user(0, 0).unwrap().save(&app("/usr/sbin/secret")).unwrap();
    for file in files_below(&path.join(STRANGER.to_string())) {
        let metadata = fs::symlink_metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (STRANGER, 0o600), "{}", file.display());
    }
    let path = path.to_str().unwrap();
    let apps = |words: &[&str]| ahead([&["apps"], words, &["--store", path]].concat());
    let as_stranger = apps(&[]).as_stranger().ok().out;
    assert!(as_stranger.contains("git") && !as_stranger.contains("secret"), "{as_stranger}");
    for refused in [&["--all"][..], &["--user", "root"]] {
        assert!(apps(refused).as_stranger().fails(77).err.contains("as root"));
    }
    program("ls").arg(path).as_stranger().fails(2);
    program("ls").arg(format!("{path}/0")).as_stranger().fails(2);
    let own = apps(&[]).ok().out;
    assert!(own.contains("secret") && !own.contains("git"), "{own}");
    let all = apps(&["--all"]).ok().out;
    assert!(all.contains("secret") && all.contains("git"), "{all}");
    // The user changes the own programs; what is written stays theirs.
    apps(&["exclude", "git"]).as_stranger().ok();
    assert!(apps(&["--user", &STRANGER.to_string()]).ok().out.contains("excluded by its user"));
    apps(&["off"]).as_stranger().ok();
    assert!(stranger.is_off() && !store.is_off());
    // A user without a directory cannot switch it off for all.
    assert!(apps(&["off"]).as_user(STRANGER + 1).fails(77).err.contains("run it as root"));
}

/// Puts something in place of a file.
type Attack<'a> = &'a dyn Fn(&Path);

/// Each is put in place of a file or directory of a user by that user; the victim is root's.
#[test]
fn hostile_files_of_a_user_are_neither_read_nor_followed() {
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let (path, store, stranger) = store(home.path());
    let git = app("/usr/bin/git");
    stranger.save(&git).unwrap();
    stranger.add_recording(&git.key, recording(3), |_| {}).unwrap();
    let directory = path.join(STRANGER.to_string()).join(git.key.directory_name());
    let (state, merged) = (directory.join("state.json"), directory.join("replay.ahead"));
    let victim = home.path().join("victim");
    fs::write(&victim, fs::read(&state).unwrap()).unwrap();
    let attacks: [(&str, Attack<'_>); 4] = [
        ("link", &|at| symlink(&victim, at).unwrap()),
        ("FIFO", &make_fifo),
        ("file of root", &|at| assert!(fs::copy(&victim, at).unwrap() > 0)),
        ("huge", &|at| {
            File::create(at).unwrap().set_len(1 << 40).unwrap();
            chown(at, Some(STRANGER), None).unwrap();
        }),
    ];
    for (name, attack) in attacks {
        let good = fs::read(&merged).unwrap();
        for at in [&state, &merged] {
            fs::remove_file(at).unwrap();
            attack(at);
        }
        assert!(stranger.load(&git.key).is_none(), "{name}");
        // A damaged profile of the user is made again from the recordings; what is not a file of theirs stays as it is.
        let files = stranger.profile(&git).map(|profile| profile.files.len());
        assert_eq!(files, (name == "huge").then_some(3), "{name}");
        // Writing replaces it, and nothing else.
        stranger.save(&git).unwrap();
        fs::remove_file(&merged).unwrap();
        fs::write(&merged, &good).unwrap();
        chown(&merged, Some(STRANGER), Some(STRANGER)).unwrap();
        assert!(stranger.load(&git.key).is_some() && stranger.profile(&git).is_some(), "{name}");
        assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
    }
    fs::write(&merged, &fs::read(&merged).unwrap()[..100]).unwrap();
    assert_eq!(stranger.profile(&git).unwrap().files.len(), 3, "made again from the recordings");
    // The whole directory leads elsewhere: a link, a mount.
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&directory, &elsewhere).unwrap();
    symlink(&elsewhere, &directory).unwrap();
    assert!(stranger.load(&git.key).is_none() && stranger.save(&git).is_err() && stranger.forget(&git.key).is_err());
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    if let Some(_mounted) = mounted::mount("none", &directory, "tmpfs", "size=1m") {
        fs::copy(&victim, directory.join("state.json")).unwrap();
        chown(directory.join("state.json"), Some(STRANGER), None).unwrap();
        assert!(stranger.load(&git.key).is_none() && stranger.save(&git).is_err());
    }
    // A directory of another user in place of theirs.
    fs::rename(path.join(STRANGER.to_string()), path.join("away")).unwrap();
    fs::create_dir(path.join(STRANGER.to_string())).unwrap();
    assert!(store.user(STRANGER).unwrap_err().to_string().contains("it belongs to another user"));
}

#[test]
fn full_disk_leaves_the_earlier_files_whole() {
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let small = home.path().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mounted) = mounted::mount("none", &small, "tmpfs", "size=256k") else { return };
    let (_, _, stranger) = store(&small);
    let git = app("/usr/bin/git");
    stranger.save(&git).unwrap();
    stranger.add_recording(&git.key, recording(3), |_| {}).unwrap();
    let before = stranger.profile(&git).unwrap();
    let error = stranger.add_recording(&git.key, recording(20_000), |_| {}).unwrap_err();
    assert!(error.to_string().contains("full") || error.to_string().contains("space"), "{error}");
    let rest = small.join("rest");
    let _ = fs::write(&rest, vec![1; 256 << 10]);
    let mut changed = git.clone();
    changed.history.starts = 7;
    assert!(stranger.save(&changed).is_err());
    assert_eq!((stranger.load(&git.key), stranger.profile(&git)), (Some(git.clone()), Some(before)));
    assert!(files_below(&small).iter().all(|file| !file.to_string_lossy().ends_with(".tmp")));
    fs::remove_file(&rest).unwrap();
    stranger.save(&changed).unwrap();
    assert_eq!(stranger.load(&git.key), Some(changed));
}

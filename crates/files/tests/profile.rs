//! Saving and loading, with every kind of file at the path.

use ahead_files::{Access, ProfilePlace, load, save};
use ahead_profile::{LoadError, MAX_FILE_BYTES, Profile, Recording, SaveError};
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Variable with the directory of the small file system, in the process that this test starts inside it.
const SMALL: &str = "AHEAD_TEST_SMALL_FILE_SYSTEM";

fn sample() -> Profile {
    Profile { recording: Recording { kernel: "6.18.0".into(), runs: 1, ..Recording::default() }, ..Profile::default() }
}

fn names(directory: &Path) -> Vec<OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn saved_profile_is_loaded_and_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.ahead");
    save(&sample(), &path).unwrap();
    assert_eq!(load(&path).unwrap(), sample());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let second = Profile { recording: Recording { runs: 2, ..sample().recording }, ..sample() };
    save(&second, &path).unwrap();
    assert_eq!(load(&path).unwrap(), second);
    assert_eq!(names(directory.path()), ["p.ahead"]);
}

#[test]
fn saving_for_the_own_user_needs_no_privilege() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.ahead");
    let own = fs::metadata(directory.path()).unwrap();
    let access = Access { owner: (own.uid(), own.gid()), mode: Some(0o104_640) };
    let place = ProfilePlace::open(&path).unwrap();
    place.save(&sample(), Some(access)).unwrap();
    let saved = fs::metadata(&path).unwrap();
    // Only permission to read and write is kept.
    assert_eq!((saved.uid(), saved.mode()), (own.uid(), 0o100_640));
    assert_eq!(place.load().unwrap().1, Access { mode: Some(0o100_640), ..access });
}

/// Regression: the path was resolved again when saving.
#[test]
fn profile_is_saved_only_in_the_directory_opened_before() {
    let home = tempfile::tempdir().unwrap();
    let (directory, elsewhere) = (home.path().join("d"), home.path().join("elsewhere"));
    fs::create_dir(&directory).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    let place = ProfilePlace::open(&directory.join("p.ahead")).unwrap();
    place.check().unwrap();
    fs::rename(&directory, home.path().join("moved")).unwrap();
    symlink(&elsewhere, &directory).unwrap();
    let error = place.save(&sample(), None).unwrap_err();
    assert!(matches!(error, SaveError::Moved { .. }), "{error}");
    assert!(names(&elsewhere).is_empty() && names(&home.path().join("moved")).is_empty());
    // Moved back, it is the same directory.
    fs::remove_file(&directory).unwrap();
    fs::rename(home.path().join("moved"), &directory).unwrap();
    place.save(&sample(), None).unwrap();
    assert_eq!(names(&directory), ["p.ahead"]);
}

#[test]
fn symbolic_link_is_followed_when_loading_and_replaced_when_saving() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real.ahead"), directory.path().join("link.ahead"));
    save(&sample(), &real).unwrap();
    symlink(&real, &link).unwrap();
    assert_eq!(load(&link).unwrap(), sample());
    let second = Profile { recording: Recording { runs: 2, ..sample().recording }, ..sample() };
    save(&second, &link).unwrap();
    assert_eq!(load(&real).unwrap(), sample());
    assert_eq!(load(&link).unwrap(), second);
}

#[test]
fn special_file_is_neither_read_nor_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let socket = directory.path().join("socket");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let to_fifo = directory.path().join("to_fifo");
    symlink(&fifo, &to_fifo).unwrap();
    for (path, kind) in [
        (fifo.as_path(), "a FIFO"),
        (to_fifo.as_path(), "a FIFO"),
        (socket.as_path(), "a socket"),
        (directory.path(), "a directory"),
        (Path::new("/dev/zero"), "a device"),
    ] {
        match load(path) {
            Err(LoadError::NotAFile { kind: found, .. }) => assert_eq!(found, kind),
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    for path in [fifo.as_path(), socket.as_path(), directory.path(), Path::new("/dev/null")] {
        assert!(matches!(save(&sample(), path), Err(SaveError::NotAFile { .. })), "{}", path.display());
    }
}

/// Regression: as root, `record -o /dev/stdout` replaced the system's link by the profile.
#[test]
fn link_to_a_special_file_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link");
    let file = fs::File::create(directory.path().join("open")).unwrap();
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    for (target, kind) in [
        ("/dev/null", "a device"),
        (directory.path().to_str().unwrap(), "a directory"),
        (descriptor.as_str(), "a link to an open file"),
    ] {
        symlink(target, &link).unwrap();
        match save(&sample(), &link) {
            Err(SaveError::NotAFile { kind: found, .. }) => assert_eq!(found, kind),
            other => panic!("{target}: {other:?}"),
        }
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
        fs::remove_file(&link).unwrap();
    }
    symlink("nowhere", &link).unwrap();
    save(&sample(), &link).unwrap();
    assert_eq!(load(&link).unwrap(), sample());
}

#[test]
fn missing_paths_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let error = load(&directory.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none: No such file or directory"), "{error}");
    let error = save(&sample(), &directory.path().join("none/p.ahead")).unwrap_err().to_string();
    assert!(error.contains("create a file in its directory: No such file or directory"), "{error}");
}

#[test]
fn file_beyond_the_maximum_size_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("huge");
    fs::File::create(&path).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("268435457 bytes are more than a profile may have (268435456)"), "{error}");
}

#[test]
fn profile_that_could_not_be_loaded_is_not_saved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.ahead");
    let error = save(&Profile::default(), &path).unwrap_err();
    assert_eq!(error.to_string(), "this profile cannot be saved: recording.runs: a profile has at least one run");
    assert!(names(directory.path()).is_empty());
}

/// A file system of 32 KiB in a separate mount namespace: needs no privilege where user namespaces are allowed.
#[test]
fn full_disk_leaves_the_old_profile_and_no_other_file() {
    if let Some(directory) = std::env::var_os(SMALL) {
        return save_too_much(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script])
            .env("TEST", std::env::current_exe().unwrap())
            .env(SMALL, directory.path())
            .output()
    };
    let mount = format!("mount -t tmpfs -o size=32k none \"${SMALL}\"");
    if !run(&mount).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no user and mount namespaces for unprivileged users here");
        return;
    }
    let test = "exec \"$TEST\" --exact full_disk_leaves_the_old_profile_and_no_other_file";
    let output = run(&format!("{mount}; {test}")).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

fn save_too_much(directory: &Path) {
    let path = directory.join("p.ahead");
    save(&sample(), &path).unwrap();
    let argument = vec![b'x'; 100_000];
    let big = Profile { recording: Recording { command: vec![argument], ..sample().recording }, ..sample() };
    let error = save(&big, &path).unwrap_err();
    assert!(matches!(error, SaveError::NoSpace { .. }), "{error}");
    assert_eq!(load(&path).unwrap(), sample());
    assert_eq!(names(directory), ["p.ahead"]);
}

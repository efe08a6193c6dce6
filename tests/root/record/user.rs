//! Recordings without root: by held calls and page tables.

use super::rig::{entry, find, ranges};
use ahead_profile::{Precision, Profile};
use ahead_tests::rig::mounted::bindfs;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{of_files, save, used};
use ahead_tests::rig::silent_files::{FILE_BYTES, Releasing, SilentFiles};
use std::ops::Range;
use std::os::unix::fs::chown;

/// A directory of an unprivileged user, with a copy of the program, and a file system with a file of 300 pages.
struct Home {
    directory: tempfile::TempDir,
    volume: Mounted,
    data: PathBuf,
}

impl Home {
    /// `None`, with the reason printed: the test needs root.
    fn new() -> Option<Home> {
        Home::on(Mounted::new("ext4")?)
    }

    fn on(volume: Mounted) -> Option<Home> {
        set_mode(&volume.root, 0o755);
        set_mode(volume.home.path(), 0o755);
        let data = volume.pages("data", 300);
        let directory = tempfile::tempdir().unwrap();
        chown(directory.path(), Some(STRANGER), Some(STRANGER)).unwrap();
        copy_ahead(&directory.path().join("ahead"));
        Some(Home { directory, volume, data })
    }

    fn profile(&self) -> PathBuf {
        self.directory.path().join("p.ahead")
    }

    fn ahead(&self, words: &[&str]) -> Program {
        program(self.directory.path().join("ahead")).args(words).env("HOME", self.directory.path())
    }

    fn recorder(&self, options: &[&str], command: Program) -> Program {
        self.ahead(&["record", "-o"]).arg(self.profile()).args(options).arg("--").runs(command)
    }

    fn load(&self) -> Profile {
        ahead_files::load(&self.profile()).unwrap()
    }

    /// Reads pages of the file.
    fn dd(&self, pages: Range<u64>) -> Program {
        dd(&self.data, pages)
    }
}

fn dd(path: &Path, pages: Range<u64>) -> Program {
    let [skip, count] = [format!("skip={}", pages.start), format!("count={}", pages.end - pages.start)];
    program("dd").arg(format!("if={}", path.display())).args(["of=/dev/null", "bs=4096", &skip, &count])
}

#[test]
fn user_records_what_is_read_and_replays_it() {
    let Some(home) = Home::new() else { return };
    let done = home.recorder(&["--json"], home.dd(5..8)).as_stranger().ok();
    done.says("recording without root, by held calls").says("root adds").says(r#""source":"held calls, page tables""#);
    let profile = home.load();
    assert_eq!(ranges(entry(&profile, &home.data)), [5 * PAGE..8 * PAGE]);
    assert_eq!((profile.recording.precision, profile.recording.cold), (Precision::UpperBound, false));
    assert!(profile.recording.metadata_seen && profile.recording.lost_events == 0);
    let is_data = |lookup: &ahead_profile::Lookup| *lookup.path == *home.data.as_os_str().as_bytes();
    assert!(profile.lookups.iter().any(is_data));
    // dd itself, which the user does not own.
    assert!(profile.files.iter().any(|file| file.path.ends_with(b"/dd") && !file.extents.is_empty()));
    make_cold(&home.data);
    home.ahead(&["replay"]).arg(home.profile()).as_stranger().ok();
    assert_eq!(resident(&home.data), [5 * PAGE..8 * PAGE]);
}

#[test]
fn mapped_pages_are_those_of_a_recording_by_root_and_their_neighbours() {
    let Some(home) = Mounted::alone("ext4").and_then(Home::on) else { return };
    // A program of the test alone, so that no other process has it mapped.
    let own = home.volume.root.join("own");
    program("cp").arg("/bin/bash").arg(&own).ok();
    let command = || program(&own).args(["-c", "exit 0"]);
    let done = home.recorder(&["--cold", "--precise"], command()).done();
    if done.status.code() == Some(77) {
        return eprintln!("skipped: {}", done.err);
    }
    let by_root = home.load();
    home.recorder(&[], command()).as_stranger().ok();
    let by_user = home.load();
    let (used, seen) = (ranges(entry(&by_root, &own)), ranges(entry(&by_user, &own)));
    let is_seen = |range: &Range<u64>| seen.iter().any(|seen| seen.start <= range.start && range.end <= seen.end);
    assert!(!used.is_empty() && used.iter().all(is_seen), "{used:?} are not all in {seen:?}");
}

#[test]
fn cold_recording_of_a_user_evicts_each_file_before_its_use() {
    let Some(home) = Home::new() else { return };
    // The journal of a file that was just written keeps its pages.
    make_cold(&home.data);
    program("cat").arg(&home.data).ok();
    assert_eq!(resident_bytes(&home.data), 300 * PAGE);
    home.recorder(&["--cold", "--runs", "1"], home.dd(0..1)).as_stranger().ok();
    assert!(resident_bytes(&home.data) < 300 * PAGE, "{:?}", resident(&home.data));
    assert_eq!(ranges(entry(&home.load(), &home.data)), [0..PAGE]);
}

#[test]
fn root_of_a_user_namespace_records_by_calls() {
    let Some(home) = Home::new() else { return };
    let apart = ["unshare", "--user", "--map-root-user"];
    if !program("true").behind(apart).as_stranger().works() {
        return eprintln!("skipped: no user namespaces here");
    }
    for options in [&[][..], &["--cold", "--runs", "1"]] {
        home.recorder(options, home.dd(2..4)).behind(apart).as_stranger().ok().says("by held calls");
        assert_eq!(ranges(entry(&home.load(), &home.data)), [2 * PAGE..4 * PAGE]);
    }
}

#[test]
fn files_of_a_fuse_file_system_are_recorded() {
    let Some(home) = Home::new() else { return };
    let point = home.volume.home.path().join("fuse");
    fs::create_dir(&point).unwrap();
    let Some(_mounted) = bindfs(&["-o", "allow_other"], &home.volume.root, &point) else { return };
    home.recorder(&[], dd(&point.join("data"), 7..9)).as_stranger().ok();
    let profile = home.load();
    let file = entry(&profile, &point.join("data"));
    assert_eq!((ranges(file), file.fs_type.starts_with("fuse")), (vec![7 * PAGE..9 * PAGE], true));
}

/// A process can have one listener only: that of the outer recording.
#[test]
fn recording_in_a_recording_is_refused_and_both_go_on() {
    let Some(home) = Home::new() else { return };
    let inner = home.recorder(&[], program("true"));
    let done = home.ahead(&["record", "-o"]).arg(home.directory.path().join("outer.ahead")).arg("--").runs(inner);
    done.as_stranger().fails(77).says("run it as root").says("seccomp");
    assert!(!home.profile().exists());
}

#[test]
fn other_targets_and_sources_need_root() {
    let Some(home) = Home::new() else { return };
    let refused: [&[&str]; 4] =
        [&["--all"], &["--pid", "1"], &["--source", "ftrace", "true"], &["--cold", "--precise", "true"]];
    for words in refused {
        home.ahead(&["record", "-o"]).arg(home.profile()).args(words).as_stranger().fails(77).says("run it as root");
        assert!(!home.profile().exists());
    }
}

#[test]
fn files_of_a_program_that_is_ended_when_it_is_ready_are_recorded() {
    let Some(home) = Home::new() else { return };
    let script = format!("dd if={} of=/dev/null bs=4096 count=3; echo ready; exec sleep 1000", home.data.display());
    let options = ["--until-output", "ready"];
    home.recorder(&options, program("sh").args(["-c", &script])).as_stranger().ok();
    let profile = home.load();
    assert_eq!(ranges(entry(&profile, &home.data)), [0..3 * PAGE]);
    assert!(find(&profile, &fs::canonicalize("/bin/sh").unwrap()).is_some());
}

/// The first rank waits for the file server; the second one starts without a prefetch. No lock is left behind.
#[test]
fn one_rank_of_a_machine_prefetches_from_a_shared_file_system() {
    let Some(()) = needs_root() else { return };
    let (home, silent) = (in_memory(), SilentFiles::new());
    let _releasing = Releasing(&silent);
    let mut file = used(&silent.root.join("begun"), &[0..FILE_BYTES]);
    file.fs_type = "fuse".into();
    let profile = home.path().join("p.ahead");
    save(&of_files(vec![file]), &profile);
    let replay = || ahead(["replay", "--json"]).arg(&profile).env("XDG_RUNTIME_DIR", home.path());
    let left_to_others = |account: Value| account["skipped"]["by_others"]["bytes"].as_u64();
    let mut first = replay().start();
    wait_until("the first rank prefetches", || silent.held() > 0);
    assert_eq!(left_to_others(replay().json()), Some(FILE_BYTES));
    silent.release();
    first.status();
    assert_eq!(left_to_others(replay().json()), None);
}

/// The calls of its program would fail (`ENOSYS`) without a listener.
#[test]
fn program_of_a_killed_recorder_goes_on() {
    let Some(home) = Home::new() else { return };
    let [go, done] = ["go", "done"].map(|name| home.directory.path().join(name));
    let (data, go_on) = (home.data.display(), go.display());
    let script = format!(
        "echo running; while ! test -e {go_on}; do :; done; dd if={data} of=/dev/null && echo read >{}",
        done.display()
    );
    let mut recorder = home.recorder(&[], program("sh").args(["-c", &script])).as_stranger().start();
    recorder.prints("running");
    recorder.signal("KILL");
    recorder.status();
    fs::write(&go, "").unwrap();
    wait_until("the program has read its file", || fs::read(&done).is_ok_and(|text| text == b"read\n"));
}

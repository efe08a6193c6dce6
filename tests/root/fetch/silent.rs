//! A file system that does not answer: only processes that need it wait.

use super::saved;
use ahead_profile::{Lookup, Profile};
use ahead_sys::mounting;
use ahead_tests::rig::group::Group;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{extent, lookup, of_files, used};
use ahead_tests::rig::silent_mount::SilentMount;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::RwLockReadGuard;

/// Limit for work that does not need the file system. The program is held for two seconds; in the regression it was
/// held for eleven.
const LONGEST: Duration = Duration::from_secs(9);

/// The timeout for a silent file system, with a margin for a loaded machine.
const GIVES_UP: Duration = Duration::from_secs(90);

/// A silent file system, and a directory beside it.
struct Silent {
    mount: SilentMount,
    home: tempfile::TempDir,
    _machine: RwLockReadGuard<'static, ()>,
}

impl Silent {
    /// `None`, with the reason printed, where that is impossible.
    fn new() -> Option<Silent> {
        let machine = shared();
        let home = tempfile::tempdir().unwrap();
        set_mode(home.path(), 0o755);
        let mount = SilentMount::read_by_server(fs::canonicalize(home.path()).unwrap().join("silent"))?;
        Some(Silent { mount, home, _machine: machine })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.point.join(name)
    }

    /// A file that a profile names, on a device with this recorded number.
    fn file(&self, name: &str, device: u64) -> ahead_profile::File {
        let path = self.path(name).into_os_string().into_vec();
        let extents = vec![extent(0..MIB, 0)];
        ahead_profile::File { path, device, inode: 7, size_bytes: MIB, extents, ..Default::default() }
    }

    /// Another directory, on a working file system.
    fn beside(&self) -> PathBuf {
        fs::canonicalize(self.home.path()).unwrap()
    }
}

/// An evicted file on a disk, used completely according to its profile entry.
struct Live {
    path: PathBuf,
    file: ahead_profile::File,
    _home: tempfile::TempDir,
}

impl Live {
    fn new() -> Live {
        let home = on_disk();
        let path = home.path().join("live");
        fs::write(&path, vec![7; 4 * MIB as usize]).unwrap();
        make_cold(&path);
        let mut file = used(&path, &[0..4 * MIB]);
        file.extents[0].first_use_us = 1000;
        Live { path, file, _home: home }
    }

    fn is_in_memory(&self) -> bool {
        resident_bytes(&self.path) >= 4 * MIB
    }
}

/// `ahead run`, held until all its descriptors are closed: a panic then lets the unmount end all processes.
fn run(options: &[&Path], program: &[&str]) -> Program {
    ahead(["run"]).args(options).arg("--").args(program).limit(GIVES_UP)
}

/// `ahead replay --json`.
fn replay(options: &[&str], profile: &Path) -> Program {
    ahead(["replay", "--json"]).args(options).arg(profile).limit(GIVES_UP)
}

/// Regression: the hold of a program began when its profile was loaded, and lasted eleven seconds. The stuck process kept the
/// caller's pipes open.
#[test]
fn a_program_starts_if_its_profile_cannot_be_read() {
    let Some(silent) = Silent::new() else { return };
    let done = run(&["-p".as_ref(), &silent.path("p.ahead")], &["echo", "started"]).done().out_is("started\n");
    assert!(done.err.starts_with("ahead: starts without prefetching"), "{done}");
    assert!(done.took > Duration::from_secs(1) && done.took < LONGEST, "{done:?}");
    done.in_one_line();
    let done = run(&[], &["echo", "started"]).env("XDG_STATE_HOME", silent.path("state")).done().out_is("started\n");
    assert!(done.took < LONGEST, "{done:?}");
}

#[test]
fn a_stuck_worker_does_not_keep_the_callers_pipes() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_files(vec![silent.file("dead", 1)]));
    let done = run(&["-p".as_ref(), profile.path()], &["echo", "started"]).done().out_is("started\n").err_is("");
    assert!(done.took < LONGEST, "{done:?}");
}

/// The profile's bytes that were skipped for this reason.
fn skipped(account: &Value, reason: &str) -> u64 {
    account["skipped"][reason]["bytes"].as_u64().unwrap_or(0)
}

/// Regression: a silent file system delayed all others. A sample of all files was opened sequentially, and the first
/// access to any file system held a lock.
#[test]
fn a_silent_file_system_does_not_stop_the_others() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let profile = Profile {
        lookups: ["a", "b"].map(|name| lookup(&silent.path(name), 2, 0)).to_vec(),
        ..of_files(vec![silent.file("dead", 1), silent.file("dead-too", 3), live.file.clone()])
    };
    let saved = saved(&profile);
    let done = replay(&["--deadline", "10s"], saved.path()).done();
    let account = done.json();
    let found = (account["issued_bytes"].as_u64(), skipped(&account, "deadline"));
    assert_eq!(found, (Some(4 * MIB), 2 * MIB), "{account}");
    assert!(done.took < Duration::from_secs(30), "{done:?}");
    // The same with a program.
    evict(&live.path);
    let run = run(&["-p".as_ref(), saved.path()], &["sh", "-c", "echo started; read line"]).open_input().start();
    wait_until("the file in memory", || live.is_in_memory());
    run.end().out_is("started\n");
}

/// Regression: a replay without a deadline waited without end.
#[test]
fn a_replay_on_a_silent_file_system_ends() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let saved = saved(&of_files(vec![silent.file("dead", 1), live.file.clone()]));
    let [first, unread] = [saved.path(), &silent.path("p.ahead")].map(|profile| replay(&["--wait"], profile).start());
    let account = first.end().json();
    let found = (account["issued_bytes"].as_u64(), skipped(&account, "not_answering"));
    assert_eq!(found, (Some(4 * MIB), MIB), "{account}");
    // Replay has waited for all issued bytes, and all have arrived.
    assert!(account["arrived_us"].is_u64() && live.is_in_memory(), "{account}");
    unread.ends_with(1).says("its file system has not answered").in_one_line();
}

/// The names of a list are looked up before anything is prefetched.
#[test]
fn a_list_with_a_name_on_a_silent_file_system_prefetches_the_others() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(list.path(), format!("{}:0-1M\n{}\n", silent.path("dead").display(), live.path.display())).unwrap();
    let account = replay(&["--wait"], Path::new("-")).input_file(File::open(list.path()).unwrap()).done().json();
    let found = (account["issued_bytes"].as_u64(), skipped(&account, "not_answering"));
    assert_eq!(found, (Some(4 * MIB), MIB), "{account}");
    assert!(account["arrived_us"].is_u64() && live.is_in_memory(), "{account}");
}

/// Regression: names that did not exist when recorded were looked up again, each waited for the server, and the program with it.
#[test]
fn missing_names_on_a_silent_file_system_are_not_looked_up() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let mut profile = of_devices(&silent, 2);
    profile.lookups.iter_mut().for_each(|lookup| lookup.inode = 0);
    profile.files.push(live.file.clone());
    let saved = saved(&profile);
    assert_one_lookup(saved.path());
    let run = run(&["-v".as_ref(), "-p".as_ref(), saved.path()], &["echo", "started"]);
    run.done().out_is("started\n").never_says("not answering");
}

/// One lookup of a replay: that of the file on the disk.
fn assert_one_lookup(profile: &Path) {
    let done = replay(&[], profile).done();
    let account = done.json();
    assert_eq!((account["issued_bytes"].as_u64(), account["lookups"].as_u64()), (Some(4 * MIB), Some(1)), "{account}");
    // A device that does not answer is given up after thirty seconds.
    assert!(done.took < Duration::from_secs(20), "{done:?}");
}

/// An automounter that never answers: a lookup below its mount point waits. `None`, with the reason printed, where that is impossible.
struct Automounter {
    _requests: std::io::PipeReader,
    daemon: Child,
    mount: PathBuf,
    _home: tempfile::TempDir,
}

impl Automounter {
    fn new() -> Option<Automounter> {
        needs_root()?;
        let home = tempfile::tempdir().unwrap();
        let mount = fs::canonicalize(home.path()).unwrap().join("net");
        fs::create_dir(&mount).unwrap();
        let (requests, writer) = std::io::pipe().unwrap();
        // Processes of the automounter's group do not wait: it is not ours.
        let daemon = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let options = format!("fd={},pgrp={},minproto=5,maxproto=5,indirect", writer.as_raw_fd(), daemon.id());
        let mounted = mounting::mount(Path::new("ahead-test"), &mount, "autofs", false, &options);
        let automounter = Automounter { _requests: requests, daemon, mount, _home: home };
        mounted.or_else(|error| skip(error).ok_or(())).ok()?;
        Some(automounter)
    }
}

impl Drop for Automounter {
    fn drop(&mut self) {
        // Ends the waits of lookups, with an error.
        let umount = Command::new("umount").args(["-l", "-c"]).arg(&self.mount).stderr(Stdio::null()).status();
        umount.unwrap();
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }
}

#[test]
fn missing_names_below_an_automounter_are_not_looked_up() {
    let Some(automounter) = Automounter::new() else { return };
    let live = Live::new();
    let lookups = ["host", "host/share"].map(|name| lookup(&automounter.mount.join(name), 2, 0)).to_vec();
    assert_one_lookup(saved(&Profile { lookups, ..of_files(vec![live.file.clone()]) }).path());
}

/// Lookups in the silent file system, on this many devices.
fn of_devices(silent: &Silent, devices: u64) -> Profile {
    let lookup = |index: u64| -> Lookup { lookup(&silent.path(&index.to_string()), index % devices, index + 1) };
    Profile { lookups: (0..devices * 20).map(lookup).collect(), ..Profile::default() }
}

/// Regression: the worker kept all descriptors that the caller of `ahead run` had open, such as a script's lock.
#[test]
fn a_worker_has_no_descriptor_of_its_caller() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_files(vec![silent.file("dead", 1)]));
    let lock = silent.beside().join("lock");
    let run = run(&["-p".as_ref(), profile.path()], &["sh", "-c", "read line"]);
    let run = run.by_script("exec 9> \"$LOCK\"; exec \"$@\"").env("LOCK", &lock).open_input().start();
    let is_worker = |pid: &u32| {
        let is_ours = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == built("ahead"));
        // The program also inherits them until its exec.
        is_ours && process::threads(*pid).len() > 1
    };
    wait_until("the worker", || process::children(run.pid()).iter().any(is_worker));
    let worker = process::children(run.pid()).into_iter().find(is_worker).unwrap();
    let own = process::open_descriptors(run.pid());
    assert!(own.contains(&lock), "{own:?}");
    let standard = ["0", "1", "2"].map(|fd| fs::read_link(format!("/proc/{}/fd/{fd}", run.pid())).unwrap());
    let kept = process::open_descriptors(worker);
    assert!(!kept.iter().any(|open| *open == lock || standard.contains(open)), "{kept:?}");
    run.end();
}

/// The largest number of threads of a child, once the numbers have not changed for three seconds.
fn settled_threads(parent: u32) -> usize {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        assert!(Instant::now() < deadline, "the number of threads does not settle");
        let most = process::children(parent).into_iter().map(|pid| process::threads(pid).len()).max().unwrap_or(0);
        if most != last {
            (last, since) = (most, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

/// The largest number of threads of `ahead-replay` until its account is complete, and the account. The process itself ends later, with
/// the answer of the file system.
fn embedded_replay(arguments: &[&str], profile: &Path) -> (usize, String, Child) {
    let mut replay = Command::new(built("ahead-replay"));
    replay.args(arguments).arg(profile).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut replay = replay.spawn().unwrap();
    let mut output = std::io::BufReader::new(replay.stdout.take().unwrap());
    let account = std::thread::spawn(move || {
        let mut account = String::new();
        while !account.contains("submitted_us") {
            assert!(std::io::BufRead::read_line(&mut output, &mut account).unwrap() > 0, "{account}");
        }
        account
    });
    let (mut most, deadline) = (0, Instant::now() + GIVES_UP);
    while !account.is_finished() {
        assert!(Instant::now() < deadline, "there is no account");
        most = most.max(process::threads(replay.id()).len());
        std::thread::sleep(Duration::from_millis(5));
    }
    (most, account.join().unwrap(), replay)
}

/// Replays with these arguments, all at once; with each the reason that its account has to name.
fn embedded_replays<'a, const N: usize>(
    replays: [(&'a [&'a str], &'a str); N],
    profile: &Path,
) -> [(&'a str, (usize, String, Child)); N] {
    std::thread::scope(|scope| {
        let replays =
            replays.map(|(arguments, reason)| (reason, scope.spawn(move || embedded_replay(arguments, profile))));
        replays.map(|(reason, replay)| (reason, replay.join().unwrap()))
    })
}

/// The program for small machines has two threads. It says at the deadline, or when it gives up, what it has not read. The only thread that
/// reads waits, so no other device has its turn.
#[test]
fn embedded_replay_has_two_threads_on_silent_devices() {
    let Some(silent) = Silent::new() else { return };
    let mut profile = of_devices(&silent, 100);
    let live = Live::new();
    profile.files = vec![silent.file("dead", 1), live.file.clone()];
    let saved = saved(&profile);
    let replays = [(&["--deadline", "3s", "--low-memory"][..], "deadline"), (&["--wait"], "not_answering")];
    let mut ended = embedded_replays(replays, saved.path());
    // Ends the wait of their threads, and with that the processes.
    drop(silent);
    for (reason, (most, account, replay)) in &mut ended {
        assert!(replay.wait().unwrap().success());
        assert_eq!(*most, 2, "{account}");
        assert!(account.contains(&format!("skipped_{reason}_bytes {}\n", profile.data_bytes())), "{account}");
    }
}

/// A list has one thread for its lookups. If that waits, no thread is left to read.
#[test]
fn embedded_replay_of_a_list_has_two_threads_on_a_silent_device() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(list.path(), format!("{}:0-1M\n{}:0-4M\n", silent.path("dead").display(), live.path.display())).unwrap();
    let replays = [(&["--deadline", "3s"][..], "deadline"), (&["--low-memory"], "not_answering")];
    let mut ended = embedded_replays(replays, list.path());
    drop(silent);
    for (reason, (most, account, replay)) in &mut ended {
        assert!(replay.wait().unwrap().success());
        assert_eq!(*most, 2, "{account}");
        // embedded_replay returns at submitted_us; the skipped bytes stand before it.
        assert!(account.contains(&format!("skipped_{reason}_bytes {}\n", 5 * MIB)), "{account}");
    }
}

/// Regression: each device of the profile had one thread and fifteen helpers, 1,600 for a hundred devices.
#[test]
fn silent_devices_hold_a_limited_number_of_threads() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_devices(&silent, 100));
    let run = run(&["-p".as_ref(), profile.path()], &["sh", "-c", "read line; echo done"]).open_input().start();
    let threads = settled_threads(run.pid());
    run.end().out_is("done\n");
    // 32 threads, and three of the worker itself.
    assert!((2..=35).contains(&threads), "{threads} threads");
}

/// Regression: under a limit of processes, the threads of the fetch left none for the program.
#[test]
fn a_program_can_fork_under_a_process_limit() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_devices(&silent, 100));
    set_mode(profile.path(), 0o644);
    let binary = silent.beside().join("ahead");
    copy_ahead(&binary);
    let run = program(&binary).args(["run", "-p"]).arg(profile.path()).args(["--", "sh", "-c", FORKS]);
    forks_beside_a_fetch(run.behind(["prlimit", "--nproc=60"]).as_user(54_321));
}

/// A program that starts eight others at a time, after a line of input.
const FORKS: &str = "read line; for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; echo forked";

/// Lets the program fork when the fetch has started all its threads.
fn forks_beside_a_fetch(run: Program) {
    let run = run.open_input().start();
    settled_threads(run.pid());
    run.end().out_is("forked\n").err_is("");
}

/// Regression: the threads of the fetch also left none in a control group with a separate limit.
#[test]
fn a_program_can_fork_in_a_limited_control_group() {
    // Dropped after the file system: the unmount ends the group's processes.
    let Some(group) = Group::with_processes(40) else { return };
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_devices(&silent, 100));
    forks_beside_a_fetch(run(&["-p".as_ref(), profile.path()], &["sh", "-c", FORKS]).in_group(&group));
}

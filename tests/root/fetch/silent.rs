//! A file system that does not answer, such as a network file system without its server. Only processes that need it
//! wait.

use super::{MIB, resident, saved};
use crate::crash::wait_until;
use crate::machine_lock;
use ahead_profile::{Extent, File, Lookup, Profile};
use ahead_sys::{evict, machine, mounting, openat};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{RwLockReadGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit for work that does not need the file system. The program is held for two seconds; in the regression it was
/// held for eleven.
const LONGEST: Duration = Duration::from_secs(9);

/// The timeout for a silent file system, with a margin for a loaded machine.
const GIVES_UP: Duration = Duration::from_secs(90);

/// A FUSE file system whose server reads every request and answers only the first, which makes it usable.
struct Silent {
    mount: PathBuf,
    server: Option<JoinHandle<()>>,
    home: tempfile::TempDir,
    _machine: RwLockReadGuard<'static, ()>,
}

/// `FUSE_INIT` of linux/fuse.h.
const INIT: u32 = 26;

impl Silent {
    /// `None`, with the reason printed, where that is impossible.
    fn new() -> Option<Silent> {
        if !machine::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let machine = machine_lock::shared();
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mount = fs::canonicalize(home.path()).unwrap().join("silent");
        fs::create_dir(&mount).unwrap();
        let opened = fs::File::options().read(true).write(true).open("/dev/fuse");
        let mounted = opened.map_err(|error| error.to_string()).and_then(|fuse| {
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
            mounting::mount(Path::new("silent"), &mount, "fuse", false, &options).map_err(|error| error.to_string())?;
            Ok(fuse)
        });
        let fuse = match mounted {
            Ok(fuse) => fuse,
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let server = Some(std::thread::spawn(move || serve(fuse)));
        Some(Silent { mount, server, home, _machine: machine })
    }

    /// A file that a profile names, on a device with this recorded number.
    fn file(&self, name: &str, device: u64) -> File {
        let extent = Extent { length_bytes: MIB, runs: 1, ..Extent::default() };
        let path = self.mount.join(name).as_os_str().as_bytes().to_vec();
        File { path, device, inode: 7, size_bytes: MIB, extents: vec![extent], ..File::default() }
    }

    /// Another directory, on a working file system.
    fn beside(&self) -> PathBuf {
        fs::canonicalize(self.home.path()).unwrap()
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A forced unmount ends the connection, and waiting processes get an error.
        let umount = Command::new("umount").args(["-f", "-l", "-c"]).arg(&self.mount).status();
        assert!(umount.unwrap().success() || std::thread::panicking());
        self.server.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// Serves until the file system is unmounted.
fn serve(mut fuse: fs::File) {
    let mut request = vec![0; 1 << 20];
    while fuse.read(&mut request).is_ok() {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        if word(4) != INIT {
            continue;
        }
        // Header: length, error, number of the request. Then `struct fuse_init_out` of version 7.31: no flags, short writes.
        let mut answer = vec![0; 80];
        answer[..4].copy_from_slice(&80u32.to_ne_bytes());
        answer[8..16].copy_from_slice(&request[8..16]);
        for (at, value) in [(16, 7u32), (20, 31), (24, 4096), (36, 4096), (40, 1)] {
            answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        fuse.write_all(&answer).unwrap();
    }
}

/// An evicted file on a disk, used completely according to its profile entry.
struct Live {
    path: PathBuf,
    file: File,
    _home: tempfile::TempDir,
}

impl Live {
    fn new() -> Live {
        // In the target directory: /tmp may be a tmpfs.
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = fs::canonicalize(home.path()).unwrap().join("live");
        fs::write(&path, vec![7; 4 * MIB as usize]).unwrap();
        let opened = fs::File::open(&path).unwrap();
        opened.sync_all().unwrap();
        evict::file(&opened).unwrap();
        let now = openat::handle(&path).unwrap().identity();
        let extent = Extent { length_bytes: 4 * MIB, first_use_us: 1000, runs: 1, ..Extent::default() };
        let file = File {
            path: path.as_os_str().as_bytes().to_vec(),
            device: now.device,
            inode: now.inode,
            size_bytes: now.size_bytes,
            mtime_ns: now.mtime_ns,
            extents: vec![extent],
            ..File::default()
        };
        Live { path, file, _home: home }
    }

    fn is_in_memory(&self) -> bool {
        resident(&self.path).iter().map(|range| range.end - range.start).sum::<u64>() >= 4 * MIB
    }
}

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("ahead"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of a command until its pipes are closed, and the time of that. Panics after a limit; the unmount then ends all
/// processes.
fn outcome(command: Command) -> (String, String, Duration) {
    let begin = Instant::now();
    let output = waited(command);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), begin.elapsed())
}

fn waited(mut command: Command) -> Output {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(command.output()));
    receiver.recv_timeout(GIVES_UP).expect("it has not ended, or another process has its pipes open").unwrap()
}

/// Regression: the hold of a program began when its profile was loaded, and lasted eleven seconds. The stuck process kept the
/// caller's pipes open.
#[test]
fn a_program_starts_if_its_profile_cannot_be_read() {
    let Some(silent) = Silent::new() else { return };
    let profile = silent.mount.join("p.ahead");
    let (output, errors, after) = outcome(ahead(&["run", "-p", profile.to_str().unwrap(), "--", "echo", "started"]));
    assert_eq!(output, "started\n");
    assert!(errors.starts_with("ahead: starts without prefetching") && errors.lines().count() == 1, "{errors}");
    assert!(after > Duration::from_secs(1) && after < LONGEST, "{after:?}");
    let state = silent.mount.join("state");
    let mut run = ahead(&["run", "--", "echo", "started"]);
    run.env("XDG_STATE_HOME", state);
    let (output, _, after) = outcome(run);
    assert_eq!(output, "started\n");
    assert!(after < LONGEST, "{after:?}");
}

#[test]
fn a_stuck_worker_does_not_keep_the_callers_pipes() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&Profile { files: vec![silent.file("dead", 1)], ..Profile::default() });
    let (output, errors, after) =
        outcome(ahead(&["run", "-p", profile.path().to_str().unwrap(), "--", "echo", "started"]));
    assert_eq!((output.as_str(), errors.as_str()), ("started\n", ""));
    assert!(after < LONGEST, "{after:?}");
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
    let lookup = |name: &str| Lookup {
        path: silent.mount.join(name).as_os_str().as_bytes().to_vec().into(),
        device: 2,
        ..Lookup::default()
    };
    let profile = Profile {
        files: vec![silent.file("dead", 1), silent.file("dead-too", 3), live.file.clone()],
        lookups: vec![lookup("a"), lookup("b")],
        ..Profile::default()
    };
    let saved = saved(&profile);
    let profile = saved.path().to_str().unwrap();
    let (account, errors, after) = outcome(ahead(&["replay", "--json", "--deadline", "10s", profile]));
    let account: Value = serde_json::from_str(&account).expect(&errors);
    assert_eq!(
        (account["issued_bytes"].as_u64(), skipped(&account, "deadline")),
        (Some(4 * MIB), 2 * MIB),
        "{account}"
    );
    assert!(after < Duration::from_secs(30), "{after:?}");
    // The same with a program.
    evict::file(fs::File::open(&live.path).unwrap()).unwrap();
    let program = ["sh", "-c", "echo started; read line"];
    let mut run = ahead(&[&["run", "-p", profile, "--"], &program[..]].concat());
    let mut run = run.stdin(Stdio::piped()).spawn().unwrap();
    wait_until("the file in memory", || live.is_in_memory());
    drop(run.stdin.take());
    assert_eq!(std::io::read_to_string(run.stdout.take().unwrap()).unwrap(), "started\n");
    run.wait().unwrap();
}

/// Regression: a replay without a deadline waited without end.
#[test]
fn a_replay_on_a_silent_file_system_ends() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let profile = Profile { files: vec![silent.file("dead", 1), live.file.clone()], ..Profile::default() };
    let saved = saved(&profile);
    let replay = |profile: PathBuf| {
        let mut replay = ahead(&["replay", "--wait", "--json"]);
        replay.arg(profile);
        replay
    };
    let [first, unread] = std::thread::scope(|scope| {
        let profiles = [saved.path().to_owned(), silent.mount.join("p.ahead")];
        let replays = profiles.map(|profile| scope.spawn(|| waited(replay(profile))));
        replays.map(|replay| replay.join().unwrap())
    });
    let account: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(
        (account["issued_bytes"].as_u64(), skipped(&account, "not_answering")),
        (Some(4 * MIB), MIB),
        "{account}"
    );
    // Replay has waited for all issued bytes, and all have arrived.
    assert!(account["arrived_us"].is_u64() && live.is_in_memory(), "{account}");
    let said = String::from_utf8(unread.stderr).unwrap();
    assert_eq!((unread.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("its file system has not answered"), "{said}");
}

/// The names of a list are looked up before anything is prefetched.
#[test]
fn a_list_with_a_name_on_a_silent_file_system_prefetches_the_others() {
    let Some(silent) = Silent::new() else { return };
    let live = Live::new();
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(list.path(), format!("{}:0-1M\n{}\n", silent.mount.join("dead").display(), live.path.display())).unwrap();
    let mut replay = ahead(&["replay", "-", "--wait", "--json"]);
    replay.stdin(fs::File::open(list.path()).unwrap());
    let output = waited(replay);
    let account: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = (account["issued_bytes"].as_u64(), skipped(&account, "not_answering"));
    assert_eq!(found, (Some(4 * MIB), MIB), "{account}");
    assert!(account["arrived_us"].is_u64() && live.is_in_memory(), "{account}");
}

/// Lookups in the silent file system, on this many devices.
fn of_devices(silent: &Silent, devices: u64) -> Profile {
    let lookup = |index: u64| Lookup {
        path: silent.mount.join(index.to_string()).as_os_str().as_bytes().to_vec().into(),
        device: index % devices,
        ..Lookup::default()
    };
    Profile { lookups: (0..devices * 20).map(lookup).collect(), ..Profile::default() }
}

/// The child processes of a command.
fn children(parent: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// The open descriptors of a process: pipes and sockets by number, all others by path.
fn open_descriptors(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

/// Regression: the worker kept all descriptors that the caller of `ahead run` had open, such as a script's lock.
#[test]
fn a_worker_has_no_descriptor_of_its_caller() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&Profile { files: vec![silent.file("dead", 1)], ..Profile::default() });
    let lock = silent.beside().join("lock");
    let ahead = assert_cmd::cargo::cargo_bin("ahead");
    let mut run = Command::new("sh");
    run.args(["-c", "exec 9> \"$0\"; exec \"$@\""]).arg(&lock).arg(&ahead).args(["run", "-p"]).arg(profile.path());
    run.args(["--", "sh", "-c", "read line"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let is_worker = |pid: &u32| {
        let is_ours = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == ahead);
        // The program also inherits them until its exec.
        is_ours && threads(*pid) > 1
    };
    wait_until("the worker", || children(run.id()).iter().any(is_worker));
    let worker = children(run.id()).into_iter().find(is_worker).unwrap();
    let own = open_descriptors(run.id());
    assert!(own.contains(&lock), "{own:?}");
    let standard = ["0", "1", "2"].map(|fd| fs::read_link(format!("/proc/{}/fd/{fd}", run.id())).unwrap());
    let kept = open_descriptors(worker);
    assert!(!kept.iter().any(|open| *open == lock || standard.contains(open)), "{kept:?}");
    drop(run.stdin.take());
    run.wait().unwrap();
}

/// The largest number of threads of a child, once the numbers have not changed for three seconds.
fn settled_threads(parent: &Child) -> usize {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        assert!(Instant::now() < deadline, "the number of threads does not settle");
        let most = children(parent.id()).into_iter().map(threads).max().unwrap_or(0);
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
    let mut replay = Command::new(assert_cmd::cargo::cargo_bin("ahead-replay"));
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
        most = most.max(threads(replay.id()));
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
    fs::write(list.path(), format!("{}:0-1M\n{}:0-4M\n", silent.mount.join("dead").display(), live.path.display()))
        .unwrap();
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
    let mut run = ahead(&["run", "-p", profile.path().to_str().unwrap(), "--", "sh", "-c", "read line; echo done"]);
    let mut run = run.stdin(Stdio::piped()).spawn().unwrap();
    let threads = settled_threads(&run);
    drop(run.stdin.take());
    assert_eq!(std::io::read_to_string(run.stdout.take().unwrap()).unwrap(), "done\n");
    run.wait().unwrap();
    // 32 threads, the same number of replacements for stuck threads, and three of the worker itself.
    assert!((2..=67).contains(&threads), "{threads} threads");
}

/// Regression: under a limit of processes, the threads of the fetch left none for the program.
#[test]
fn a_program_can_fork_under_a_process_limit() {
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_devices(&silent, 100));
    fs::set_permissions(profile.path(), fs::Permissions::from_mode(0o644)).unwrap();
    // Another user may have no access to the binary.
    let binary = silent.beside().join("ahead");
    crate::mounted::copy_ahead(&binary);
    let mut run = Command::new("setpriv");
    run.args(["--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=60"]).arg(&binary);
    run.args(["run", "-p"]).arg(profile.path()).args(["--", "sh", "-c", FORKS]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    forks_beside_a_fetch(run);
}

/// A program that starts eight others at a time, after a line of input.
const FORKS: &str = "read line; for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; echo forked";

/// Lets the program fork when the fetch has started all its threads.
fn forks_beside_a_fetch(mut run: Command) {
    let mut run = run.spawn().unwrap();
    settled_threads(&run);
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    assert_eq!(
        (&*String::from_utf8_lossy(&output.stdout), &*String::from_utf8_lossy(&output.stderr)),
        ("forked\n", "")
    );
}

/// A control group limited to 40 processes.
struct Group(PathBuf);

impl Group {
    /// `None`, with the reason printed, where that is impossible.
    fn new() -> Option<Group> {
        for hierarchy in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new) {
            let path = hierarchy.join(format!("ahead-test-pids-{}", std::process::id()));
            if !hierarchy.join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Group(path);
            if fs::write(group.0.join("pids.max"), "40").is_ok() {
                return Some(group);
            }
        }
        eprintln!("skipped: a control group with a limit of processes cannot be created");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until("the end of the group", || fs::remove_dir(&self.0).is_ok());
    }
}

/// Regression: the threads of the fetch also left none in a control group with a separate limit.
#[test]
fn a_program_can_fork_in_a_limited_control_group() {
    // Dropped after the file system: the unmount ends the group's processes.
    let Some(group) = Group::new() else { return };
    let Some(silent) = Silent::new() else { return };
    let profile = saved(&of_devices(&silent, 100));
    let script = "echo $$ > \"$0\"/cgroup.procs; exec \"$@\"";
    let mut run = Command::new("sh");
    run.args(["-c", script]).arg(&group.0).arg(assert_cmd::cargo::cargo_bin("ahead")).args(["run", "-p"]);
    run.arg(profile.path()).args(["--", "sh", "-c", FORKS]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    forks_beside_a_fetch(run);
}

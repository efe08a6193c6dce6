//! Recordings of running processes: a process with all its descendants, a cgroup, all processes of the machine.

use super::rig::{Home, PAGE, Volume, ahead, can_record, entry, find, free_port, ranges, undisturbed};
use ahead_profile::MilestoneKind;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::yield_now();
    }
}

/// A shell that reads commands from the test: the test chooses the time of each.
struct Shell(Child);

impl Shell {
    fn new() -> Shell {
        Shell(Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn send(&mut self, command: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{command}").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records running processes while `work` runs; then ends the recorder.
fn observe(home: &Home, whom: &[&str], work: impl FnOnce()) -> ahead_profile::Profile {
    let mut recorder = start_observing(home, whom);
    work();
    Command::new("kill").args(["-TERM", &recorder.id().to_string()]).status().unwrap();
    assert!(recorder.wait().unwrap().success());
    home.load()
}

/// A cgroup within another cgroup.
struct Group {
    outer: PathBuf,
    inner: PathBuf,
}

impl Group {
    /// `None`, with the reason printed, where no cgroup v2 file system is mounted.
    fn new() -> Option<Group> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mounts = ahead_sys::mounts::own().unwrap();
        let Some(mount) = mounts.iter().find(|mount| mount.fs_type == "cgroup2") else {
            eprintln!("skipped in part: no cgroup v2 file system is mounted");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ahead-{}-{number}", std::process::id());
        let outer = Path::new(std::str::from_utf8(&mount.mount_point).unwrap()).join(name);
        let inner = outer.join("inner");
        fs::create_dir_all(&inner).unwrap();
        Some(Group { outer, inner })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let root = self.outer.parent().expect("the cgroup is below the root").join("cgroup.procs");
        for member in fs::read_to_string(self.inner.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(&root, member);
        }
        for directory in [&self.inner, &self.outer] {
            let _ = fs::remove_dir(directory);
        }
    }
}

#[test]
fn running_processes_can_be_observed() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let [mine, others] = ["mine", "others"].map(|name| volume.file(name, 2));
    let done = volume.root.join("done");
    let home = Home::new();
    let (mut shell, mut stranger) = (Shell::new(), Shell::new());
    let work = |shell: &mut Shell, file: &Path| {
        shell.send(&format!("cat {}; : > {}", file.display(), done.display()));
        wait_until("the shell has read", || done.exists());
        fs::remove_file(&done).unwrap();
    };

    let pid = shell.0.id().to_string();
    let profile = observe(&home, &["--pid", &pid], || {
        work(&mut shell, &mine);
        work(&mut stranger, &others);
    });
    assert_eq!(ranges(entry(&profile, &mine)), vec![0..2 * PAGE]);
    assert!(find(&profile, &others).is_none());

    let profile = observe(&home, &["--all"], || {
        work(&mut shell, &mine);
        work(&mut stranger, &others);
    });
    assert_eq!(ranges(entry(&profile, &mine)), vec![0..2 * PAGE]);
    assert_eq!(ranges(entry(&profile, &others)), vec![0..2 * PAGE]);

    let Some(group) = Group::new() else { return };
    fs::write(group.inner.join("cgroup.procs"), &pid).unwrap();
    let profile = observe(&home, &["--cgroup", group.outer.to_str().unwrap()], || {
        work(&mut shell, &mine);
        work(&mut stranger, &others);
    });
    drop(shell);
    assert_eq!(ranges(entry(&profile, &mine)), vec![0..2 * PAGE]);
    assert!(find(&profile, &others).is_none());
}

/// A recorder of running processes that has started to observe.
fn start_observing(home: &Home, whom: &[&str]) -> Child {
    let mut recorder =
        ahead().args(["record", "-o"]).arg(home.profile()).args(whom).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("observing"), "{line}");
    // The recorder continues to write.
    recorder.stderr = Some(errors.into_inner());
    recorder
}

fn assert_ready(home: &Home, mut recorder: Child) {
    assert!(recorder.wait().unwrap().success());
    assert!(home.load().milestones.iter().any(|milestone| milestone.kind == MilestoneKind::Ready));
}

#[test]
fn readiness_ends_the_recording_of_running_processes_and_not_the_processes() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let mut shell = Shell::new();
    let pid = shell.0.id().to_string();
    let ready = home.path("ready");

    let recorder = start_observing(&home, &["--pid", &pid, "--until-file", ready.to_str().unwrap()]);
    shell.send(&format!(": > {}", ready.display()));
    assert_ready(&home, recorder);
    assert!(shell.0.try_wait().unwrap().is_none(), "the shell was ended");

    for whom in [vec!["--all"], vec!["--pid", &pid]] {
        let port = free_port();
        let recorder = start_observing(&home, &[&whom[..], &["--until-port", &port.to_string()]].concat());
        let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_ready(&home, recorder);
    }

    let Some(group) = Group::new() else { return };
    fs::write(group.inner.join("cgroup.procs"), &pid).unwrap();
    let port = free_port();
    let whom = ["--cgroup", group.outer.to_str().unwrap(), "--until-port", &port.to_string()];
    let recorder = start_observing(&home, &whom);
    let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    assert_ready(&home, recorder);
    drop(shell);
}

/// Each process forks the next one and waits for it; the last one reads the file.
const CHAIN: &str = r#"my ($file, $go) = @ARGV;
for (1..500) {
    last if -e $go;
    if (my $child = fork()) { waitpid($child, 0); exit }
    select(undef, undef, undef, 0.004);
}
select(undef, undef, undef, 0.01) until -e $go;
open(F, "<", $file); sysread(F, $b, 100000);"#;

#[test]
fn a_child_that_is_forked_while_its_family_is_listed_is_followed() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = volume.file("read-by-the-last", 2);
    let home = Home::new();
    let go = home.path("go");
    let mut chain = Command::new("perl").args(["-e", CHAIN]).args([&file, &go]).spawn().unwrap();
    let mut recorder = start_observing(&home, &["--pid", &chain.id().to_string()]);
    fs::write(&go, "").unwrap();
    assert!(chain.wait().unwrap().success());
    // The recording ends with the named process.
    assert!(recorder.wait().unwrap().success());
    assert_eq!(ranges(entry(&home.load(), &file)), vec![0..2 * PAGE]);
}

//! How a recording ends: statuses, signals, readiness, and what is observed without being started.

use super::rig::{Home, PAGE, Volume, ahead, can_record, entry, find, mount, ranges, undisturbed};
use ahead_kernel::undo::ProcessId;
use ahead_profile::MilestoneKind;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::yield_now();
    }
}

#[test]
fn the_programs_status_and_output_are_passed_on() {
    if !can_record() {
        return;
    }
    let home = Home::new();
    let output = home.try_record(&[], &["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("err\n"));
    assert_eq!(home.try_record(&[], &["sh", "-c", "kill -KILL $$"]).status.code(), Some(128 + 9));
    fs::remove_file(home.profile()).unwrap();
    assert_eq!(home.try_record(&[], &["/no/such/program"]).status.code(), Some(127));
    assert_eq!(home.try_record(&[], &["/etc/passwd"]).status.code(), Some(126));
    assert!(!home.profile().exists());
}

#[test]
fn what_was_recorded_is_told_as_json() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = volume.file("read", 3);
    let home = Home::new();
    let output = home.try_record(&["--json"], &["cat", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    let told: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let profile = home.load();
    assert_eq!(told["profile"], home.profile().to_str().unwrap());
    assert_eq!(
        (told["files"].as_u64(), told["bytes"].as_u64()),
        (Some(profile.files.len() as u64), Some(profile.data_bytes()))
    );
    assert_eq!((&told["lost_events"], &told["precise"], &told["runs"]), (&0.into(), &false.into(), &1.into()));
    assert!(told["duration_s"].as_f64().unwrap() > 0.0 && told["setup_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_interrupted_program_still_gives_a_profile() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = volume.file("read-before", 2);
    let home = Home::new();
    let script = format!("cat {} >/dev/null; echo reading done; exec sleep 1000", file.display());
    let mut recorder = ahead()
        .args(["record", "-o"])
        .arg(home.profile())
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let status = Command::new("kill").args(["-INT", &recorder.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(recorder.wait().unwrap().code(), Some(128 + 2));
    assert_eq!(ranges(entry(&home.load(), &file)), vec![0..2 * PAGE]);
}

/// A program that starts a child, becomes ready in some way, and never ends. It tells the child's number on its output.
fn never_ends(home: &Home, get_ready: &str) -> (Vec<String>, std::path::PathBuf) {
    let child = home.path("child");
    let script = format!("sleep 1000 & echo $! > {}; {get_ready}; wait", child.display());
    (vec!["sh".into(), "-c".into(), script], child)
}

fn assert_ended(pid_file: &Path) {
    let pid: u32 = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    assert_eq!(ProcessId::of(pid).unwrap(), None, "process {pid} still runs");
}

#[test]
fn readiness_ends_what_never_ends_by_itself() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let ready = home.path("ready");
    let (command, child) = never_ends(&home, "echo not yet; echo server is ready");
    let (output, profile) = home.record(&["--until-output", "is ready$"], &command);
    assert_eq!(output.stdout, b"not yet\nserver is ready\n");
    assert_ended(&child);
    assert!(profile.milestones.iter().any(|milestone| milestone.kind == MilestoneKind::Ready));

    let (command, child) = never_ends(&home, &format!("echo 1 > {}", ready.display()));
    home.record(&["--until-file", ready.to_str().unwrap()], &command);
    assert_ended(&child);

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!(
        "perl -e 'socket(S,2,1,6);bind(S,pack(\"SnNx8\",2,{port},0x7f000001)) or die;listen(S,1);sleep 1000' & :"
    );
    let (command, child) = never_ends(&home, &listen);
    let (_, profile) = home.record(&["--until-port", &port.to_string()], &command);
    assert_ended(&child);
    assert!(profile.recording.duration_us > 0);

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().port().to_string();
    let output = home.try_record(&["--until-port", &taken], &["true"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

#[test]
fn a_time_ends_a_recording() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let (command, child) = never_ends(&home, ":");
    let began = Instant::now();
    let output = home.try_record(&["--duration", "500ms"], &command);
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    assert!(began.elapsed() >= Duration::from_millis(500));
    assert_ended(&child);
    assert!(home.load().recording.duration_us >= 500_000);
}

/// A shell that reads commands from us, so that it does things at the time we choose.
struct Shell(Child);

impl Shell {
    fn new() -> Shell {
        Shell(Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{command}").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a recorder of processes that it did not start, lets them work, and ends it.
fn observe(home: &Home, whom: &[&str], work: impl FnOnce()) -> ahead_profile::Profile {
    let mut recorder =
        ahead().args(["record", "-o"]).arg(home.profile()).args(whom).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("observing"), "{line}");
    work();
    Command::new("kill").args(["-TERM", &recorder.id().to_string()]).status().unwrap();
    assert!(recorder.wait().unwrap().success());
    home.load()
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
        shell.tell(&format!("cat {}; : > {}", file.display(), done.display()));
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

    let mounts = ahead_kernel::mounts::own().unwrap();
    let Some(mount) = mounts.iter().find(|mount| mount.fs_type == "cgroup2") else {
        eprintln!("skipped in part: no cgroup v2 file system is mounted");
        return;
    };
    let parent = Path::new(std::str::from_utf8(&mount.mount_point).unwrap()).join(format!("ahead-{}", shell.0.id()));
    let group = parent.join("inner");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cgroup.procs"), &pid).unwrap();
    let profile = observe(&home, &["--cgroup", parent.to_str().unwrap()], || {
        work(&mut shell, &mine);
        work(&mut stranger, &others);
    });
    drop(shell);
    fs::remove_dir(&group).unwrap();
    fs::remove_dir(&parent).unwrap();
    assert_eq!(ranges(entry(&profile, &mine)), vec![0..2 * PAGE]);
    assert!(find(&profile, &others).is_none());
}

#[test]
fn what_a_killed_recording_left_behind_can_be_undone() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let name = volume.device().file_name().unwrap().to_str().unwrap().to_owned();
    let read_ahead = || fs::read_to_string(format!("/sys/block/{name}/queue/read_ahead_kb")).unwrap();
    let before = read_ahead();
    assert_ne!(before, "0\n");
    let home = Home::new();
    let mut recorder = ahead()
        .args(["record", "--cold", "-o"])
        .arg(home.profile())
        .args(["--", "sh", "-c", "echo runs; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(read_ahead(), "0\n");
    recorder.kill().unwrap();
    // The program ends by itself: its input does.
    recorder.wait().unwrap();
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert_eq!(read_ahead(), before);
    assert!(!home.profile().exists());
}

#[test]
fn a_full_disk_gives_one_line_and_no_file() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let small = volume.beside("small");
    let Some(_guard) = mount(Path::new("tmpfs"), &small, "tmpfs", "size=4k") else { return };
    // The only page that there is: how much the program reads is not the same everywhere.
    fs::write(small.join("filler"), [0; 4096]).unwrap();
    let output = ahead()
        .args(["record", "-o"])
        .arg(small.join("p.ahead"))
        .args(["--", "sh", "-c", &format!("cat {}; perl -e 1", volume.file("x", 1).display())])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("no space left") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 1, "the filler alone");
}

#[test]
fn the_program_runs_as_the_user_who_is_named() {
    if !can_record() {
        return;
    }
    let home = Home::new();
    let (output, _) = home.record(&["--user", "nobody"], &["id", "-un"]);
    assert_eq!(output.stdout, b"nobody\n");
    let output = home.try_record(&["--user", "no-such-user"], &["true"]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
}

//! The end of a recording: statuses, signals, readiness, and recordings of processes that the recorder did not start.

use super::rig::{
    Home, PAGE, Volume, ahead, can_record, entry, free_port, mount, ranges, undisturbed, with_namespaces,
};
use crate::reclaim::unless_reclaimed;
use ahead_profile::MilestoneKind;
use ahead_undo::ProcessId;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn record_passes_on_status_and_output() {
    let _still = undisturbed();
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
fn json_reports_the_recording() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = volume.file("read", 3);
    let home = Home::new();
    let output = home.try_record(&["--json"], &["cat", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    let json: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let profile = home.load();
    assert_eq!(json["profile"], home.profile().to_str().unwrap());
    assert_eq!(
        (json["files"].as_u64(), json["bytes"].as_u64()),
        (Some(profile.files.len() as u64), Some(profile.data_bytes()))
    );
    assert_eq!((&json["lost_events"], &json["precise"], &json["runs"]), (&0.into(), &false.into(), &1.into()));
    assert!(json["duration_s"].as_f64().unwrap() > 0.0 && json["setup_s"].as_f64().unwrap() > 0.0);
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

#[test]
fn interrupted_run_does_not_replace_a_complete_profile() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let interrupted = |options: &[&str]| {
        // The recorder alone gets the signal and passes it on; the shell dies of it.
        let output = home.try_record(options, &["sh", "-c", "kill -TERM $PPID; exec sleep 1000"]);
        assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // The first profile is saved and marked as interrupted.
    let message = interrupted(&[]);
    assert!(message.contains("interrupted"), "{message}");
    assert!(home.load().recording.source.contains("INTERRUPTED"));
    home.record(&[], &["true"]);
    let whole = fs::read(home.profile()).unwrap();
    let message = interrupted(&[]);
    assert!(message.contains("stays as it was") && message.lines().count() == 1, "{message}");
    let json: serde_json::Value = serde_json::from_str(&interrupted(&["--json"])).unwrap();
    assert_eq!((&json["interrupted"], &json["kept"]), (&true.into(), &false.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), whole);
}

/// Regression: the profile of a failed run replaced a good one without a message.
#[test]
fn a_failed_program_replaces_no_profile_unless_asked() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let file = home.path("file");
    fs::write(&file, vec![7; 3 * PAGE as usize]).unwrap();
    let script = format!("cat {} >/dev/null; exit 128", file.display());
    let failing = |options: &[&str]| {
        let output = home.try_record(options, &["sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(128), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Without an earlier profile the failed run's profile is saved.
    let message = failing(&[]);
    assert!(message.contains("the program failed with status 128: this profile is of that run"), "{message}");
    let of_failure = fs::read(home.profile()).unwrap();
    home.record(&["--json"], &["true"]);
    let good = fs::read(home.profile()).unwrap();
    assert_ne!(good, of_failure);
    let message = failing(&[]);
    assert!(
        message.contains("stays as it was (record --even-if-failed replaces it)") && message.lines().count() == 1,
        "{message}"
    );
    let json: serde_json::Value = serde_json::from_str(&failing(&["--json"])).unwrap();
    assert_eq!((&json["failed_status"], &json["kept"]), (&128.into(), &false.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), good);
    failing(&["--even-if-failed"]);
    assert_ne!(fs::read(home.profile()).unwrap(), good);
}

/// Regression: two runs of a longer series replaced a complete profile, without a message.
#[test]
fn interrupted_series_reports_its_runs_and_keeps_a_complete_profile() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let count = home.path("count");
    let script =
        format!("echo >> {0}; test $(wc -l < {0}) -lt 3 || {{ kill -TERM $PPID; exec sleep 1000; }}", count.display());
    let interrupted = |options: &[&str]| {
        let _ = fs::remove_file(&count);
        let output = home.try_record(&[&["--runs", "5"], options].concat(), &["sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let message = interrupted(&[]);
    assert!(message.contains("interrupted by a signal after 2 of 5 runs"), "{message}");
    let profile = home.load().recording;
    assert_eq!(profile.runs, 2);
    assert!(profile.source.ends_with("INTERRUPTED by a signal after 2 of 5 runs"), "{}", profile.source);
    let before = fs::read(home.profile()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&interrupted(&["--json"])).unwrap();
    assert_eq!((&json["interrupted"], &json["kept"]), (&true.into(), &false.into()));
    assert_eq!((&json["runs"], &json["runs_asked"]), (&2.into(), &5.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), before);
}

/// Regression: after a signal to the program instead of the recorder, a partial profile replaced a complete one.
#[test]
fn program_ended_by_a_signal_does_not_replace_a_complete_profile() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    home.record(&[], &["true"]);
    let whole = fs::read(home.profile()).unwrap();
    for script in ["kill -TERM $$", "sh -c 'kill -KILL $$'; exit $?"] {
        let output = home.try_record(&[], &["sh", "-c", script]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() > Some(128) && message.contains("stays as it was"), "{message}");
        assert_eq!(fs::read(home.profile()).unwrap(), whole);
    }
    // The program reached the requested end.
    let (_, profile) = home.record(&["--until-output", "ready"], &["sh", "-c", "echo ready; exec sleep 1000"]);
    assert!(!profile.recording.source.contains("INTERRUPTED"));
}

#[test]
fn readiness_that_never_came_is_reported() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let waits: [&[&str]; 3] =
        [&["--until-output", "never message"], &["--until-file", "/no/such/file"], &["--until-port", "1"]];
    for wait in waits {
        let output = home.try_record(wait, &["sh", "-c", "exit 3"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(message.contains("ended before the --until-... condition was met"), "{message}");
    }
    let ready = |wait: &[&str]| {
        let output = home.try_record(&[wait, &["--json"]].concat(), &["echo", "message"]);
        let text = String::from_utf8(output.stderr).unwrap();
        serde_json::from_str::<serde_json::Value>(text.lines().last().unwrap()).unwrap()["ready"].clone()
    };
    assert_eq!(ready(waits[0]), false);
    // Regression: a program that ended with status 0 before its readiness gave status 0.
    assert_eq!(home.try_record(waits[0], &["true"]).status.code(), Some(1));
    assert_eq!(ready(&["--until-output", "message"]), true);
    assert!(ready(&[]).is_null());
}

/// Starts a program with a pending SIGTERM.
const WITH_SIGTERM: &str =
    "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); kill(TERM => $$); exec(@ARGV)";

#[test]
fn a_signal_before_the_program_starts_changes_nothing() {
    // Holds the machine lock, so that no other test evicts the cached file.
    let _still = undisturbed();
    unless_reclaimed(|| {
        let Some(volume) = Volume::new("ext4") else { return };
        let cached = volume.file("cached", 1);
        fs::File::open(&cached).unwrap().sync_all().unwrap();
        assert_nothing_is_changed(&cached);
    });
}

fn assert_nothing_is_changed(cached: &Path) {
    let home = Home::new();
    fs::write(home.profile(), "a good one").unwrap();
    for whom in [&["--", "sh", "-c", "echo started"][..], &["--all"], &["--cold", "--", "sh", "-c", "echo started"]] {
        let output = Command::new("perl")
            .args(["-e", WITH_SIGTERM])
            .arg(ahead().get_program())
            .args(["record", "-o"])
            .arg(home.profile())
            .args(whom)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(128 + 15), &b""[..]), "{message}");
        assert!(message.contains("stopped by signal 15") && message.lines().count() == 1, "{message}");
        let file = fs::File::open(cached).unwrap();
        assert_eq!(ahead_sys::cache::resident(&file, 0, 4096).unwrap(), vec![0..4096], "the file was evicted");
        assert_eq!(fs::read(home.profile()).unwrap(), b"a good one");
    }
}

#[test]
fn a_missing_requirement_is_one_line_with_its_status() {
    let _alone = with_namespaces();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let program = ahead().get_program().to_owned();
    let fail = |before: &[&str], arguments: &[&str]| {
        let mut command = Command::new(before.first().unwrap_or(&"env"));
        command.args(before.iter().skip(1)).arg(&program).args(["record", "-o"]).arg(home.profile()).args(arguments);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((message.lines().count(), output.stdout.len()), (1, 0), "{message}");
        assert!(!home.profile().exists(), "{message}");
        (output.status.code(), message)
    };
    let (status, message) = fail(&[], &["--cgroup", "/tmp"]);
    assert!(status == Some(77) && message.contains("/tmp") && message.contains("cgroup v2"), "{message}");
    assert_eq!(message.matches("/tmp").count(), 1, "{message}");

    let weak = ["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon", "--inh-caps=-bpf,-sys_admin,-perfmon"];
    let (status, message) = fail(&weak, &["--source", "tracepoints", "--", "echo", "started"]);
    assert!(status == Some(77) && message.contains("CAP_BPF"), "{message}");

    // A recorder of another test may have mounted tracefs elsewhere, and the new namespace has a copy of it.
    let hide = "umount -l -a -t tracefs && mount -t tmpfs none /sys/kernel";
    let script = format!(r#"{hide} && exec {} "$0" "$@""#, weak.join(" "));
    let (status, message) = fail(&["unshare", "-m", "sh", "-c", &script], &["--", "echo", "started"]);
    assert!(status == Some(77) && message.contains("type information") && message.contains("with --cold"), "{message}");

    // Only in this mount namespace: `bind`.
    let read_only = ["unshare", "-m", "sh", "-c", r#"mount -o remount,bind,ro /sys && exec "$0" "$@""#];
    let (status, message) = fail(&read_only, &["--cold", "--precise", "--", "echo", "started"]);
    assert!(status == Some(77) && message.contains("read-ahead"), "{message}");

    let script = r#"mount --bind /run /run && mount -o remount,bind,ro /run && exec "$0" "$@""#;
    let (status, message) = fail(&["unshare", "-m", "sh", "-c", script], &["--cold", "--", "echo", "started"]);
    assert!(status == Some(77) && message.contains("/run/ahead/alone.lock cannot be written"), "{message}");

    assert_eq!(fail(&[], &["--pid", "4194303"]).0, Some(125));
}

/// A program that starts a child, becomes ready in some way, and never ends. It writes the child's process id to its output.
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
fn readiness_ends_a_program_without_an_end() {
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

    let port = free_port();
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
fn a_duration_ends_a_recording() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let (command, child) = never_ends(&home, ":");
    let began = Instant::now();
    // Long enough for the shell to start the process that must end with it.
    let output = home.try_record(&["--duration", "1500ms"], &command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(began.elapsed() >= Duration::from_millis(1500));
    assert_ended(&child);
    assert!(home.load().recording.duration_us >= 1_500_000);
    // A program that ends earlier keeps its exit status.
    // Regression: a duration beyond the clock's range caused a panic.
    for duration in ["100s", "10000000000000000000s"] {
        assert_eq!(home.try_record(&["--duration", duration], &["sh", "-c", "exit 3"]).status.code(), Some(3));
    }
}

#[test]
fn a_duration_applies_to_each_run() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = volume.file("read", 2);
    let home = Home::new();
    let script = format!("cat {} > /dev/null; sleep 1000", file.display());
    let (output, profile) = home.record(&["--runs", "2", "--duration", "1500ms"], &["sh", "-c", &script]);
    assert_eq!(profile.recording.runs, 2, "{output:?}");
    assert!(entry(&profile, &file).extents.iter().all(|extent| extent.runs == 2));
}

/// The read-ahead window of a volume's device.
pub fn read_ahead_file(volume: &Volume) -> PathBuf {
    let name = volume.device().file_name().unwrap().to_str().unwrap();
    Path::new("/sys/block").join(name).join("queue/read_ahead_kb")
}

/// Regression: while the reader of its output did not read, the recorder reacted to no signal but SIGKILL.
#[test]
fn a_full_output_pipe_does_not_block_signals() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let number = home.path("writer");
    let script = format!("echo $$ > {0}.new && mv {0}.new {0} && exec yes", number.display());
    let mut recorder = ahead()
        .args(["record", "--until-output", "never", "-o"])
        .arg(home.profile())
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    crate::crash::wait_until("the writer", || number.exists());
    let writer = fs::read_to_string(&number).unwrap();
    // The recorder's pipe is full when several consecutive samples find the recorder in write(2).
    let is_waiting =
        || fs::read_to_string(format!("/proc/{}/syscall", writer.trim())).is_ok_and(|call| call.starts_with("1 "));
    crate::crash::wait_until("the full pipe", || (0..1000).all(|_| is_waiting()));
    let killed = Command::new("kill").args(["-TERM", &recorder.id().to_string()]).status().unwrap();
    assert!(killed.success());
    // Without a reaction to the signal this fails instead of hanging.
    let deadline = Instant::now() + Duration::from_secs(60);
    while recorder.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let _ = recorder.kill();
    assert_eq!(recorder.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn a_full_disk_gives_one_line_and_no_file() {
    let _still = undisturbed();
    let Some(volume) = Volume::new("ext4") else { return };
    let small = volume.beside("small");
    let Some(_guard) = mount(Path::new("tmpfs"), &small, "tmpfs", "size=4k") else { return };
    // The file system has one page: the number of pages that the program reads differs between systems.
    fs::write(small.join("filler"), [0; 4096]).unwrap();
    let output = ahead()
        .args(["record", "-o"])
        .arg(small.join("p.ahead"))
        .args(["--", "sh", "-c", &format!("cat {}; perl -e 1", volume.file("x", 1).display())])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(message.contains("no space left") && message.lines().count() == 1, "{message}");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 1, "a file other than the filler");
}

#[test]
fn the_program_runs_as_the_named_user() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let (output, _) = home.record(&["--user", "nobody"], &["id", "-un"]);
    assert_eq!(output.stdout, b"nobody\n");
    let output = home.try_record(&["--user", "no-such-user"], &["true"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

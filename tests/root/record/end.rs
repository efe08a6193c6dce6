//! The end of a recording: statuses, signals, readiness, and recordings of processes that the recorder did not start.

use super::rig::{
    Home, PAGE, Volume, ahead, can_record, entry, free_port, mount, ranges, undisturbed, with_namespaces,
};
use crate::reclaim::unless_reclaimed;
use ahead_profile::MilestoneKind;
use ahead_undo::{Action, ProcessId};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
fn an_interrupted_run_replaces_no_whole_profile() {
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
    // The first profile is saved and says that it is interrupted.
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

/// Regression: two runs of a longer series replaced a whole profile, without a message.
#[test]
fn an_interrupted_series_replaces_no_whole_profile_and_reports_its_runs() {
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

/// Regression: after a signal to the program instead of the recorder, a partial profile replaced a whole one.
#[test]
fn a_program_that_a_signal_ended_replaces_no_whole_profile() {
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
        assert!(message.contains("ended before what --until-"), "{message}");
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
    // Holds the machine, so that no other test evicts the cached file.
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
    let (status, message) = fail(&weak, &["--", "echo", "started"]);
    assert!(status == Some(77) && message.contains("CAP_BPF"), "{message}");

    let no_types = ["unshare", "-m", "sh", "-c", r#"mount -t tmpfs none /sys/kernel && exec "$0" "$@""#];
    let (status, message) = fail(&no_types, &["--", "echo", "started"]);
    assert!(status == Some(77) && message.contains("type information"), "{message}");

    // In this mount namespace alone: `bind`.
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
    // A program that ends earlier has its own status.
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
fn read_ahead_file(volume: &Volume) -> PathBuf {
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
    // The recorder's pipe is full when several samples in a row find it in write(2).
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

/// A cold, precise recording of a program that has started, and ends with its input.
fn cold_recording(home: &Home) -> Child {
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
    assert_eq!(line, "runs\n");
    recorder
}

const SET_BACK: &str = "that a killed ahead had left changed";

#[test]
fn the_settings_of_a_killed_recording_can_be_restored() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    assert_ne!(before, "0\n");
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    assert_eq!(read_ahead(), "0\n");
    recorder.kill().unwrap();
    // The program ends because its input ends.
    recorder.wait().unwrap();
    assert!(!home.profile().exists());
    // The next measurement restores the settings, unless another process on this machine needs them at that time.
    let deadline = Instant::now() + Duration::from_secs(120);
    while read_ahead() != before {
        assert!(Instant::now() < deadline, "{} is not restored", read_ahead_file(&volume).display());
        let next = ahead().args(["record", "-o"]).arg(home.profile()).args(["--", "true"]).output().unwrap();
        assert!(next.status.success(), "{next:?}");
    }
    assert!(ahead().arg("restore").output().unwrap().status.success());
}

/// The guardians of a process, found by their arguments.
fn guardians(of: u32) -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
        words.windows(2).any(|pair| pair == [b"--after", of.to_string().as_bytes()])
    };
    processes.filter(is_one).collect()
}

/// Regression: after a SIGKILL read-ahead was off on every disk until the next start of `ahead`.
#[test]
fn a_guardian_restores_the_settings_of_a_killed_recording_at_once() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    assert_eq!((read_ahead().as_str(), guardians(pid).len()), ("0\n", 1));
    let guardian = guardians(pid)[0];
    // The guardian has its own session, and no descriptors but the standard streams.
    let stat = fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    // Field 6, the fourth after the name in parentheses.
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, guardian.to_string());
    let open = fs::read_dir(format!("/proc/{guardian}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let open: Vec<PathBuf> = open.filter_map(|link| fs::read_link(link).ok()).collect();
    let is_known = |path: &PathBuf| {
        path == Path::new("/dev/null")
            || ["pipe:", "anon_inode:"].iter().any(|kind| path.to_str().unwrap().starts_with(kind))
    };
    assert!(open.iter().all(is_known), "{open:?}");
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let is_noted = || ahead_undo::notes().unwrap().iter().any(|(_, note)| note.owner.pid == pid);
    crate::crash::wait_until("the guardian's work", || read_ahead() == before && !is_noted());
    crate::crash::wait_until("the guardian's end", || guardians(pid).is_empty());
}

#[test]
fn a_guardian_ends_with_its_recording_and_restore_replaces_a_killed_guardian() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    crate::crash::wait_until("the guardian's end", || guardians(pid).is_empty());
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    for guardian in guardians(pid) {
        assert!(Command::new("kill").args(["-KILL", &guardian.to_string()]).status().unwrap().success());
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert_eq!(read_ahead(), before);
}

/// Regression: the waiting recording had searched for abandoned settings before the kill. And it had changed the size of all
/// faults of the machine while it waited.
#[test]
fn a_recording_that_waits_for_a_killed_one_restores_its_settings() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let before = fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let (home, other) = (Home::new(), Home::new());
    let mut killed = cold_recording(&home);
    let mut waiting = ahead()
        .args(["record", "--cold", "--no-precise", "-o"])
        .arg(other.profile())
        .args(["--", "cat"])
        .arg(read_ahead_file(&volume))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(waiting.stderr.take().unwrap());
    let mut message = String::new();
    errors.read_line(&mut message).unwrap();
    assert!(message.contains("waiting for the end"), "{message}");
    let notes = ahead_undo::notes().unwrap();
    assert!(notes.iter().all(|(_, note)| note.owner.pid != waiting.id()), "{notes:?}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    errors.read_to_string(&mut message).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{message}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), before);
    assert!(ahead().arg("restore").output().unwrap().status.success());
}

/// Regression: the profile was marked precise although read-ahead had been switched on during the recording.
#[test]
fn settings_are_not_restored_during_a_cold_recording() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = read_ahead_file(&volume);
    let read_ahead = || fs::read_to_string(&file).unwrap();
    let before = read_ahead();
    let (home, other) = (Home::new(), Home::new());
    let mut recorder = cold_recording(&home);
    let killed = ProcessId { pid: std::process::id(), start_ticks: 1 };
    let action = Action::SetFile { path: file.clone(), old: before.trim().into(), new: Some("0".into()) };
    ahead_undo::note_for(killed, action).unwrap().leave();
    let beside = ahead().args(["record", "-o"]).arg(other.profile()).args(["--", "true"]).output().unwrap();
    let (during, message) = (read_ahead(), String::from_utf8_lossy(&beside.stderr));
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert!(beside.status.success() && !message.contains(SET_BACK), "{message}");
    assert_eq!((during.as_str(), read_ahead()), ("0\n", before));
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

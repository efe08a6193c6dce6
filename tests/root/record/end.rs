//! How a recording ends: statuses, signals, readiness, and what is observed without being started.

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
fn the_programs_status_and_output_are_passed_on() {
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

#[test]
fn an_interrupted_run_replaces_no_whole_one() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let interrupted = |options: &[&str]| {
        // The shell dies of it; it is sent to the recorder alone, which passes it on.
        let output = home.try_record(options, &["sh", "-c", "kill -TERM $PPID; exec sleep 1000"]);
        assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // The first one is kept, and says what it is.
    let said = interrupted(&[]);
    assert!(said.contains("interrupted"), "{said}");
    assert!(home.load().recording.source.contains("INTERRUPTED"));
    home.record(&[], &["true"]);
    let whole = fs::read(home.profile()).unwrap();
    let said = interrupted(&[]);
    assert!(said.contains("stays as it was") && said.lines().count() == 1, "{said}");
    let told: serde_json::Value = serde_json::from_str(&interrupted(&["--json"])).unwrap();
    assert_eq!((&told["interrupted"], &told["kept"]), (&true.into(), &false.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), whole);
}

/// Regression: the profile of an error message silently replaced a good one.
#[test]
fn failed_program_replaces_no_profile_unless_asked() {
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
    // Nothing is lost where there is no profile yet.
    let said = failing(&[]);
    assert!(said.contains("the program failed with status 128: this profile is of that run"), "{said}");
    let of_failure = fs::read(home.profile()).unwrap();
    home.record(&["--json"], &["true"]);
    let good = fs::read(home.profile()).unwrap();
    assert_ne!(good, of_failure);
    let said = failing(&[]);
    assert!(
        said.contains("stays as it was (record --even-if-failed replaces it)") && said.lines().count() == 1,
        "{said}"
    );
    let told: serde_json::Value = serde_json::from_str(&failing(&["--json"])).unwrap();
    assert_eq!((&told["failed_status"], &told["kept"]), (&128.into(), &false.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), good);
    failing(&["--even-if-failed"]);
    assert_ne!(fs::read(home.profile()).unwrap(), good);
}

/// Regression: two runs took the place of a whole profile, and nothing told that there were to be more.
#[test]
fn a_series_that_is_broken_off_replaces_no_whole_profile_and_says_how_far_it_came() {
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
    let said = interrupted(&[]);
    assert!(said.contains("interrupted by a signal after 2 of 5 runs"), "{said}");
    let profile = home.load().recording;
    assert_eq!(profile.runs, 2);
    assert!(profile.source.ends_with("INTERRUPTED by a signal after 2 of 5 runs"), "{}", profile.source);
    let before = fs::read(home.profile()).unwrap();
    let told: serde_json::Value = serde_json::from_str(&interrupted(&["--json"])).unwrap();
    assert_eq!((&told["interrupted"], &told["kept"]), (&true.into(), &false.into()));
    assert_eq!((&told["runs"], &told["runs_asked"]), (&2.into(), &5.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), before);
}

/// Regression: a program that was killed, and not the recorder, left half a profile in place of a whole one.
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
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() > Some(128) && said.contains("stays as it was"), "{said}");
        assert_eq!(fs::read(home.profile()).unwrap(), whole);
    }
    // Its end was named, and came.
    let (_, profile) = home.record(&["--until-output", "ready"], &["sh", "-c", "echo ready; exec sleep 1000"]);
    assert!(!profile.recording.source.contains("INTERRUPTED"));
}

#[test]
fn what_was_waited_for_and_never_came_is_said() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let waits: [&[&str]; 3] =
        [&["--until-output", "never said"], &["--until-file", "/no/such/file"], &["--until-port", "1"]];
    for wait in waits {
        let output = home.try_record(wait, &["sh", "-c", "exit 3"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(said.contains("ended before what --until-"), "{said}");
    }
    let ready = |wait: &[&str]| {
        let output = home.try_record(&[wait, &["--json"]].concat(), &["echo", "said"]);
        let text = String::from_utf8(output.stderr).unwrap();
        serde_json::from_str::<serde_json::Value>(text.lines().last().unwrap()).unwrap()["ready"].clone()
    };
    assert_eq!(ready(waits[0]), false);
    // Regression: a program that ended well, but before that came, gave status 0.
    assert_eq!(home.try_record(waits[0], &["true"]).status.code(), Some(1));
    assert_eq!(ready(&["--until-output", "said"]), true);
    assert!(ready(&[]).is_null());
}

/// Starts a program with a SIGTERM that waits for it.
const WITH_SIGTERM: &str =
    "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); kill(TERM => $$); exec(@ARGV)";

#[test]
fn a_signal_before_the_program_starts_leaves_everything_as_it_was() {
    // Nobody else evicts what is cached: the machine is held.
    let _still = undisturbed();
    unless_reclaimed(|| {
        let Some(volume) = Volume::new("ext4") else { return };
        let cached = volume.file("cached", 1);
        fs::File::open(&cached).unwrap().sync_all().unwrap();
        leaves_everything_as_it_was(&cached);
    });
}

fn leaves_everything_as_it_was(cached: &Path) {
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
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(128 + 15), &b""[..]), "{said}");
        assert!(said.contains("stopped by signal 15") && said.lines().count() == 1, "{said}");
        let file = fs::File::open(cached).unwrap();
        assert_eq!(ahead_sys::cache::resident(&file, 0, 4096).unwrap(), vec![0..4096], "evicted for nothing");
        assert_eq!(fs::read(home.profile()).unwrap(), b"a good one");
    }
}

#[test]
fn what_cannot_be_had_is_said_in_one_line_with_its_status() {
    let _alone = with_namespaces();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let program = ahead().get_program().to_owned();
    let say = |before: &[&str], arguments: &[&str]| {
        let mut command = Command::new(before.first().unwrap_or(&"env"));
        command.args(before.iter().skip(1)).arg(&program).args(["record", "-o"]).arg(home.profile()).args(arguments);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
        assert!(!home.profile().exists(), "{said}");
        (output.status.code(), said)
    };
    let (status, said) = say(&[], &["--cgroup", "/tmp"]);
    assert!(status == Some(77) && said.contains("/tmp") && said.contains("cgroup v2"), "{said}");
    assert_eq!(said.matches("/tmp").count(), 1, "{said}");

    let weak = ["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon", "--inh-caps=-bpf,-sys_admin,-perfmon"];
    let (status, said) = say(&weak, &["--", "echo", "started"]);
    assert!(status == Some(77) && said.contains("CAP_BPF"), "{said}");

    let no_types = ["unshare", "-m", "sh", "-c", r#"mount -t tmpfs none /sys/kernel && exec "$0" "$@""#];
    let (status, said) = say(&no_types, &["--", "echo", "started"]);
    assert!(status == Some(77) && said.contains("type information"), "{said}");

    // For this namespace alone: `bind`.
    let read_only = ["unshare", "-m", "sh", "-c", r#"mount -o remount,bind,ro /sys && exec "$0" "$@""#];
    let (status, said) = say(&read_only, &["--cold", "--precise", "--", "echo", "started"]);
    assert!(status == Some(77) && said.contains("read-ahead"), "{said}");

    let script = r#"mount --bind /run /run && mount -o remount,bind,ro /run && exec "$0" "$@""#;
    let (status, said) = say(&["unshare", "-m", "sh", "-c", script], &["--cold", "--", "echo", "started"]);
    assert!(status == Some(77) && said.contains("/run/ahead/alone.lock cannot be written"), "{said}");

    assert_eq!(say(&[], &["--pid", "4194303"]).0, Some(125));
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
fn a_time_ends_a_recording() {
    let _still = undisturbed();
    if !can_record() {
        return;
    }
    let home = Home::new();
    let (command, child) = never_ends(&home, ":");
    let began = Instant::now();
    // Long enough for a shell to have started what has to end with it.
    let output = home.try_record(&["--duration", "1500ms"], &command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(began.elapsed() >= Duration::from_millis(1500));
    assert_ended(&child);
    assert!(home.load().recording.duration_us >= 1_500_000);
    // A program that ends by itself before has its own status.
    // Regression: one that ends after the clock's last moment was a panic.
    for duration in ["100s", "10000000000000000000s"] {
        assert_eq!(home.try_record(&["--duration", duration], &["sh", "-c", "exit 3"]).status.code(), Some(3));
    }
}

#[test]
fn a_time_is_the_time_of_each_run() {
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

/// Regression: whoever did not read our output kept us from hearing any signal but SIGKILL.
#[test]
fn output_that_nobody_reads_keeps_no_signal_from_us() {
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
    // Its pipe is full when it waits in write(2), so many times in a row.
    let is_waiting =
        || fs::read_to_string(format!("/proc/{}/syscall", writer.trim())).is_ok_and(|call| call.starts_with("1 "));
    crate::crash::wait_until("the full pipe", || (0..1000).all(|_| is_waiting()));
    let told = Command::new("kill").args(["-TERM", &recorder.id().to_string()]).status().unwrap();
    assert!(told.success());
    // It fails, and does not hang, where the signal is not heard.
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
fn what_a_killed_recording_left_behind_can_be_undone() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    assert_ne!(before, "0\n");
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    assert_eq!(read_ahead(), "0\n");
    recorder.kill().unwrap();
    // The program ends by itself: its input does.
    recorder.wait().unwrap();
    assert!(!home.profile().exists());
    // Whatever measures next sets the settings back, unless somebody on this machine needs them just then.
    let deadline = Instant::now() + Duration::from_secs(120);
    while read_ahead() != before {
        assert!(Instant::now() < deadline, "{} is not set back", read_ahead_file(&volume).display());
        let next = ahead().args(["record", "-o"]).arg(home.profile()).args(["--", "true"]).output().unwrap();
        assert!(next.status.success(), "{next:?}");
    }
    assert!(ahead().arg("restore").output().unwrap().status.success());
}

/// The guardians of a process, by the arguments that they were started with.
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

/// Regression: after a SIGKILL read-ahead was off on every disk until somebody started another `ahead`.
#[test]
fn what_a_killed_recording_left_is_undone_at_once() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    assert_eq!((read_ahead().as_str(), guardians(pid).len()), ("0\n", 1));
    let guardian = guardians(pid)[0];
    // Nothing of the recorder's: a session of its own, and no descriptor but the streams.
    let stat = fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    // Field 6, the fourth behind the name in parentheses.
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
fn a_guardian_ends_with_whoever_ends_well_and_restore_does_the_work_of_a_killed_one() {
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

/// Regression: it had looked for what the killed left before that one was killed. And it had all faults of the machine served
/// its way while it waited.
#[test]
fn who_waits_for_a_recording_that_is_killed_finds_the_settings_set_back() {
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
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("waiting for the end"), "{said}");
    let notes = ahead_undo::notes().unwrap();
    assert!(notes.iter().all(|(_, note)| note.owner.pid != waiting.id()), "{notes:?}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    errors.read_to_string(&mut said).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), before);
    assert!(ahead().arg("restore").output().unwrap().status.success());
}

/// Regression: its profile said that it was precise, and read-ahead had been switched on under it.
#[test]
fn nothing_is_set_back_under_a_cold_recording() {
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
    let (meanwhile, said) = (read_ahead(), String::from_utf8_lossy(&beside.stderr));
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert!(beside.status.success() && !said.contains(SET_BACK), "{said}");
    assert_eq!((meanwhile.as_str(), read_ahead()), ("0\n", before));
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

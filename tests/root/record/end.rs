//! The end of a recording: statuses, signals, readiness, and recordings of processes that the recorder did not start.

use super::rig::{Home, entry, free_port, ranges, volume, volume_undisturbed};
use ahead_process::undo::ProcessId;
use ahead_profile::MilestoneKind;
use ahead_tests::rig::mounted::mount;
use ahead_tests::rig::prelude::*;

#[test]
fn record_passes_on_status_and_output() {
    let Some(home) = Home::undisturbed() else { return };
    let output = home.try_record(&[], &["sh", "-c", "echo out; echo err >&2; exit 7"]).code(7).out_is("out\n");
    assert!(output.err.starts_with("err\n"), "{output}");
    home.try_record(&[], &["sh", "-c", "kill -KILL $$"]).code(128 + 9);
    fs::remove_file(home.profile()).unwrap();
    home.try_record(&[], &["/no/such/program"]).code(127);
    home.try_record(&[], &["/etc/passwd"]).code(126);
    assert!(!home.profile().exists());
}

#[test]
fn json_reports_the_recording() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let file = volume.pages("read", 3);
    let home = Home::new();
    let json = home.try_record(&["--json"], &["cat", file.to_str().unwrap()]).err_json();
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
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let file = volume.pages("read-before", 2);
    let home = Home::new();
    let script = format!("cat {} >/dev/null; echo reading done; exec sleep 1000", file.display());
    let mut recorder = home.recorder(&["--", "sh", "-c", &script]).start();
    recorder.line();
    recorder.end_by("INT").code(128 + 2);
    assert_eq!(ranges(entry(&home.load(), &file)), vec![0..2 * PAGE]);
}

#[test]
fn interrupted_run_does_not_replace_a_complete_profile() {
    let Some(home) = Home::undisturbed() else { return };
    let interrupted = |options: &[&str]| {
        // The recorder alone gets the signal and passes it on; the shell dies of it.
        home.try_record(options, &["sh", "-c", "kill -TERM $PPID; exec sleep 1000"]).code(128 + 15)
    };
    // The first profile is saved and marked as interrupted.
    interrupted(&[]).says("interrupted");
    assert!(home.load().recording.source.contains("INTERRUPTED"));
    home.record(&[], &["true"]);
    let whole = fs::read(home.profile()).unwrap();
    interrupted(&[]).says("stays as it was").in_one_line();
    let json = interrupted(&["--json"]).err_json();
    assert_eq!((&json["interrupted"], &json["kept"]), (&true.into(), &false.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), whole);
}

/// Regression: the profile of a failed run replaced a good one without a message.
#[test]
fn a_failed_program_replaces_no_profile_unless_asked() {
    let Some(home) = Home::undisturbed() else { return };
    let file = home.path("file");
    fs::write(&file, vec![7; 3 * PAGE as usize]).unwrap();
    let script = format!("cat {} >/dev/null; exit 128", file.display());
    let failing = |options: &[&str]| home.try_record(options, &["sh", "-c", &script]).code(128);
    // Without an earlier profile the failed run's profile is saved.
    failing(&[]).says("the program failed with status 128: this profile is of that run");
    let of_failure = fs::read(home.profile()).unwrap();
    home.record(&["--json"], &["true"]);
    let good = fs::read(home.profile()).unwrap();
    assert_ne!(good, of_failure);
    failing(&[]).says("stays as it was (record --even-if-failed replaces it)").in_one_line();
    let json = failing(&["--json"]).err_json();
    assert_eq!((&json["failed_status"], &json["kept"]), (&128.into(), &false.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), good);
    failing(&["--even-if-failed"]);
    assert_ne!(fs::read(home.profile()).unwrap(), good);
}

/// Regression: two runs of a longer series replaced a complete profile, without a message.
#[test]
fn interrupted_series_reports_its_runs_and_keeps_a_complete_profile() {
    let Some(home) = Home::undisturbed() else { return };
    let count = home.path("count");
    let script =
        format!("echo >> {0}; test $(wc -l < {0}) -lt 3 || {{ kill -TERM $PPID; exec sleep 1000; }}", count.display());
    let interrupted = |options: &[&str]| {
        let _ = fs::remove_file(&count);
        home.try_record(&[&["--runs", "5"], options].concat(), &["sh", "-c", &script]).code(128 + 15)
    };
    interrupted(&[]).says("interrupted by a signal after 2 of 5 runs");
    let profile = home.load().recording;
    assert_eq!(profile.runs, 2);
    assert!(profile.source.ends_with("INTERRUPTED by a signal after 2 of 5 runs"), "{}", profile.source);
    let before = fs::read(home.profile()).unwrap();
    let json = interrupted(&["--json"]).err_json();
    assert_eq!((&json["interrupted"], &json["kept"]), (&true.into(), &false.into()));
    assert_eq!((&json["runs"], &json["runs_asked"]), (&2.into(), &5.into()));
    assert_eq!(fs::read(home.profile()).unwrap(), before);
}

/// Regression: after a signal to the program instead of the recorder, a partial profile replaced a complete one.
#[test]
fn program_ended_by_a_signal_does_not_replace_a_complete_profile() {
    let Some(home) = Home::undisturbed() else { return };
    home.record(&[], &["true"]);
    let whole = fs::read(home.profile()).unwrap();
    for script in ["kill -TERM $$", "sh -c 'kill -KILL $$'; exit $?"] {
        let done = home.try_record(&[], &["sh", "-c", script]).says("stays as it was");
        assert!(done.status.code() > Some(128), "{done}");
        assert_eq!(fs::read(home.profile()).unwrap(), whole);
    }
    // The program reached the requested end.
    let (_, profile) = home.record(&["--until-output", "ready"], &["sh", "-c", "echo ready; exec sleep 1000"]);
    assert!(!profile.recording.source.contains("INTERRUPTED"));
}

#[test]
fn readiness_that_never_came_is_reported() {
    let Some(home) = Home::undisturbed() else { return };
    let waits: [&[&str]; 3] =
        [&["--until-output", "never message"], &["--until-file", "/no/such/file"], &["--until-port", "1"]];
    for wait in waits {
        let done = home.try_record(wait, &["sh", "-c", "exit 3"]).code(3);
        done.says("ended before the --until-... condition was met");
    }
    let ready = |wait: &[&str]| {
        home.try_record(&[wait, &["--json"]].concat(), &["echo", "message"]).err_json()["ready"].clone()
    };
    assert_eq!(ready(waits[0]), false);
    // Regression: a program that ended with status 0 before its readiness gave status 0.
    home.try_record(waits[0], &["true"]).code(1);
    assert_eq!(ready(&["--until-output", "message"]), true);
    assert!(ready(&[]).is_null());
}

/// Starts a program with a pending SIGTERM.
const WITH_SIGTERM: &str =
    "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); kill(TERM => $$); exec(@ARGV)";

#[test]
fn a_signal_before_the_program_starts_changes_nothing() {
    // Holds the machine lock, so that no other test evicts the cached file.
    let _still = shared();
    unless_reclaimed(|| {
        let Some(volume) = volume("ext4") else { return };
        let cached = volume.pages("cached", 1);
        File::open(&cached).unwrap().sync_all().unwrap();
        assert_nothing_is_changed(&cached);
    });
}

fn assert_nothing_is_changed(cached: &Path) {
    let home = Home::new();
    fs::write(home.profile(), "a good one").unwrap();
    for whom in [&["--", "sh", "-c", "echo started"][..], &["--all"], &["--cold", "--", "sh", "-c", "echo started"]] {
        let done = home.recorder(whom).behind(["perl", "-e", WITH_SIGTERM]).fails(128 + 15).out_is("");
        done.says("stopped by signal 15").in_one_line();
        assert_eq!(resident(cached), vec![0..4096], "the file was evicted");
        assert_eq!(fs::read(home.profile()).unwrap(), b"a good one");
    }
}

#[test]
fn a_missing_requirement_is_one_line_with_its_status() {
    let Some(home) = Home::alone() else { return };
    let fail = |before: &[&str], arguments: &[&str], status: i32, parts: &[&str]| {
        let done = home.recorder(arguments).behind(before).fails(status).out_is("").in_one_line().says_all(parts);
        assert!(!home.profile().exists(), "{done}");
        done
    };
    let done = fail(&[], &["--cgroup", "/tmp"], 77, &["/tmp", "cgroup v2"]);
    assert_eq!(done.err.matches("/tmp").count(), 1, "{done}");

    let weak = ["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon", "--inh-caps=-bpf,-sys_admin,-perfmon"];
    fail(&weak, &["--source", "tracepoints", "--", "echo", "started"], 77, &["CAP_BPF"]);

    // In a mount namespace, after this script.
    let apart = |script: &str, arguments: &[&str], parts: &[&str]| {
        let script = format!("{script} \"$0\" \"$@\"");
        fail(&["unshare", "-m", "sh", "-c", &script], arguments, 77, parts);
    };
    // A recorder of another test may have mounted tracefs elsewhere, and the new namespace has a copy of it.
    let hide = format!("umount -l -a -t tracefs && mount -t tmpfs none /sys/kernel && exec {}", weak.join(" "));
    apart(&hide, &["--all"], &["type information", "a command that is started here"]);

    // Only in this mount namespace: `bind`.
    let cold = ["--cold", "--precise", "--", "echo", "started"];
    apart("mount -o remount,bind,ro /sys && exec", &cold, &["read-ahead"]);
    let read_only = "mount --bind /run /run && mount -o remount,bind,ro /run && exec";
    apart(read_only, &["--cold", "--", "echo", "started"], &["/run/ahead/alone.lock cannot be written"]);

    fail(&[], &["--pid", "4194303"], 125, &[]);
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
    let Some(home) = Home::undisturbed() else { return };
    let ready = home.path("ready");
    let (command, child) = never_ends(&home, "echo not yet; echo server is ready");
    let (output, profile) = home.record(&["--until-output", "is ready$"], &command);
    output.out_is("not yet\nserver is ready\n");
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
    home.try_record(&["--until-port", &taken], &["true"]).code(125);
}

#[test]
fn a_duration_ends_a_recording() {
    let Some(home) = Home::undisturbed() else { return };
    let (command, child) = never_ends(&home, ":");
    let began = Instant::now();
    // Long enough for the shell to start the process that must end with it.
    home.try_record(&["--duration", "1500ms"], &command).success();
    assert!(began.elapsed() >= Duration::from_millis(1500));
    assert_ended(&child);
    assert!(home.load().recording.duration_us >= 1_500_000);
    // A program that ends earlier keeps its exit status.
    // Regression: a duration beyond the clock's range caused a panic.
    for duration in ["100s", "10000000000000000000s"] {
        home.try_record(&["--duration", duration], &["sh", "-c", "exit 3"]).code(3);
    }
}

#[test]
fn a_duration_applies_to_each_run() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let file = volume.pages("read", 2);
    let home = Home::new();
    let script = format!("cat {} > /dev/null; sleep 1000", file.display());
    let (output, profile) = home.record(&["--runs", "2", "--duration", "1500ms"], &["sh", "-c", &script]);
    assert_eq!(profile.recording.runs, 2, "{output:?}");
    assert!(entry(&profile, &file).extents.iter().all(|extent| extent.runs == 2));
}

/// Regression: while the reader of its output did not read, the recorder reacted to no signal but SIGKILL.
#[test]
fn a_full_output_pipe_does_not_block_signals() {
    let Some(home) = Home::undisturbed() else { return };
    let number = home.path("writer");
    let script = format!("echo $$ > {0}.new && mv {0}.new {0} && exec yes", number.display());
    // The test does not read the pipe.
    let (_reader, writer) = std::io::pipe().unwrap();
    let recorder = home.recorder(&["--until-output", "never", "--", "sh", "-c", &script]);
    let mut recorder = recorder.output_file(std::os::fd::OwnedFd::from(writer).into()).start();
    wait_until("the writer", || number.exists());
    let writer = fs::read_to_string(&number).unwrap();
    // The recorder's pipe is full when several consecutive samples find the recorder in write(2).
    let is_waiting =
        || fs::read_to_string(format!("/proc/{}/syscall", writer.trim())).is_ok_and(|call| call.starts_with("1 "));
    wait_until("the full pipe", || (0..1000).all(|_| is_waiting()));
    recorder.signal("TERM");
    // Without a reaction to the signal this fails instead of hanging.
    let signalled = Instant::now();
    assert_eq!(recorder.status().code(), Some(128 + 15));
    assert!(signalled.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_full_disk_gives_one_line_and_no_file() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let small = volume.beside("small");
    let Some(_guard) = mount(Path::new("tmpfs"), &small, "tmpfs", "size=4k") else { return };
    // The file system has one page: the number of pages that the program reads differs between systems.
    fs::write(small.join("filler"), [0; 4096]).unwrap();
    let script = format!("cat {}; perl -e 1", volume.pages("x", 1).display());
    let record = ahead(["record", "-o"]).arg(small.join("p.ahead")).args(["--", "sh", "-c", &script]);
    record.fails(125).says("no space left").in_one_line();
    assert_eq!(fs::read_dir(&small).unwrap().count(), 1, "a file other than the filler");
}

#[test]
fn the_program_runs_as_the_named_user() {
    let Some(home) = Home::undisturbed() else { return };
    home.record(&["--user", "nobody"], &["id", "-un"]).0.out_is("nobody\n");
    home.try_record(&["--user", "no-such-user"], &["true"]).code(2);
}

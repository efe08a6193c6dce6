//! `ahead compare` on an emulated disk: accounts add up, and figures agree with the disk's own counters.

mod dead;
mod page;
mod supervisors;
mod times;

use ahead_process::undo::{Action, Note};
use ahead_sys::diskstats;
use ahead_sys::mapping::Mapping;
use ahead_tests::rig::machine::Held;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{extent, of_files, save};

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// The program that the tests start with names of files: it reads the first pages of each. They are several times as many as those of the C
/// library, which other processes keep cached: otherwise its start does not count as cold.
const READ_FIRST: &str = "head -q -c 65536";

/// What [`READ_FIRST`] reads of a file.
const FIRST_BYTES: u64 = 65536;

/// An emulated disk with 40 files. The test has the machine alone.
struct Disk {
    info: ahead_disk::DiskInfo,
    mount: PathBuf,
    disks: Disks,
}

impl Disk {
    /// A rotating one.
    fn new(name: &str) -> Option<Disk> {
        Disk::like("hdd", name)
    }

    fn like(model: &str, name: &str) -> Option<Disk> {
        let mut disks = Disks::alone()?;
        let (info, mount) = disks.mounted(name, &["--size", "256M", "--model", model]);
        for index in 0..40u8 {
            // The ranges read of two files are far apart, so that prefetching saves time.
            fs::write(mount.join(format!("file{index:02}")), vec![index; 3 << 20]).unwrap();
        }
        Some(Disk { info, mount, disks })
    }

    fn file(&self, index: u64) -> String {
        self.mount.join(format!("file{index:02}")).to_str().unwrap().to_owned()
    }

    fn profile(&self) -> PathBuf {
        self.disks.path("p.ahead")
    }

    /// Reads the first pages of every file in an order other than the disk's.
    fn program(&self) -> Vec<String> {
        let files = (0..40).map(|i| self.file(i * 17 % 40));
        words(READ_FIRST).into_iter().chain(files).collect()
    }

    fn record<A: AsRef<std::ffi::OsStr>>(&self, program: impl IntoIterator<Item = A>) {
        ahead(["record", "--cold", "-o"]).arg(self.profile()).arg("--").args(program).ok();
    }

    /// Records the program and compares it with the profile.
    fn compare(&self, more: &[&str]) -> Value {
        let program = self.program();
        self.record(&program);
        self.compare_with(more, &program)
    }

    /// Compares a program with the existing profile.
    fn compare_with(&self, more: &[&str], program: &[String]) -> Value {
        self.comparison(more).args(program).json()
    }

    fn comparison(&self, more: &[&str]) -> Program {
        ahead(["compare", "--runs", "3", "--json", "-p"]).arg(self.profile()).args(more).arg("--")
    }
}

#[test]
fn every_prefetched_byte_is_used_bridged_or_wasted_and_the_disk_agrees() {
    unless_reclaimed(|| {
        let Some(disk) = Disk::new("compare") else { return };
        let result = disk.compare(&["--against", "nothing=true"]);
        let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"));
        let (prefetched, used) = (number("prefetched_bytes"), number("used_bytes"));
        assert_eq!(prefetched, used + number("bridged_bytes") + number("wasted_bytes"));
        assert!(used >= 40 * FIRST_BYTES, "every page that head reads was prefetched and used: {result}");
        assert_eq!(result["used_according_to"], "a recorded run");
        assert!(result["cold"]["device"]["bytes"].as_u64().unwrap() >= 40 * FIRST_BYTES, "{result}");
        assert_eq!(result["warm"]["device"]["requests"], 0, "{result}");
        let bound = result["bound_s"].as_f64().unwrap();
        assert!(bound >= result["warm"]["min_s"].as_f64().unwrap(), "{result}");
        for kind in ["cold", "ahead"] {
            assert!(result[kind]["min_s"].as_f64().unwrap() >= bound, "{kind} is below the bound: {result}");
        }
        assert!(["disk", "program"].contains(&result["bound_by"].as_str().unwrap()), "{result}");
        assert!(result["cold"]["median_s"].as_f64().unwrap() > result["warm"]["median_s"].as_f64().unwrap());
        assert_eq!(result["model"], "hdd");
        assert_eq!(result["against"][0]["name"], "nothing");
        for key in ["speedup", "recovered_share", "read_ahead_kb", "runs", "kernel", "verdict"] {
            assert!(!result[key].is_null(), "{key} in {result}");
        }
    });
}

#[test]
fn a_killed_program_leaves_nothing_of_a_comparison() {
    let Some(disk) = Disk::new("compare-kill") else { return };
    disk.record(["cat", &disk.file(0)]);
    let scratch = tempfile::tempdir().unwrap();
    // The compared command itself ends the comparison, as kill in a terminal would.
    let command = ["sh", "-c", "kill -TERM $PPID; exec tail -f /dev/null"];
    let compare = ahead(["compare", "-p"]).arg(disk.profile()).arg("--").args(command).env("TMPDIR", scratch.path());
    compare.fails(128 + 15).says("stopped by signal 15");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// Regression: pages whose state the kernel hides from a user (files of root) counted as evicted.
#[test]
fn pages_of_unknown_state_do_not_count_as_evicted() {
    let Some(disk) = Disk::new("compare-user") else { return };
    disk.record(["head", "-c", "8192", &disk.file(0)]);
    // A user who may read the profile and the disk, and is the owner of neither.
    set_mode(disk.disks.path(""), 0o755);
    set_mode(disk.profile(), 0o644);
    let binary = disk.disks.path("ahead");
    copy_ahead(&binary);
    let compare = program(&binary).args(["compare", "--runs", "1", "--json", "-p"]).arg(disk.profile());
    let result = compare.args(["--", "head", "-c", "8192", &disk.file(0)]).as_stranger().json();
    assert_eq!(result["cold_state"]["evicted"], "data");
    assert!(result["cold_state"]["unknown_bytes"].as_u64().unwrap() >= 8192, "{result}");
}

/// Regression: the emulated drive's own buffer served a "cold" run with data of the run before.
#[test]
fn the_drives_own_buffer_is_empty_in_cold_runs() {
    let Some(disk) = Disk::new("compare-buffer") else { return };
    let large = disk.mount.join("large");
    fs::write(&large, vec![7; 32 << 20]).unwrap();
    let program = ["cat".to_owned(), large.to_str().unwrap().to_owned()];
    disk.record(&program);
    let result = disk.compare_with(&["--no-reference"], &program);
    let (cold, bound) = (&result["cold"]["min_s"], result["bound_s"].as_f64().unwrap());
    // A buffer is three times as fast.
    assert!(cold.as_f64().unwrap() >= bound, "{result}");
}

/// Regression: the search for files followed the eviction and read their names and inodes. Then all pages were evicted
/// again.
#[test]
fn check_of_resident_pages_after_an_eviction_reads_nothing() {
    let Some(disk) = Disk::new("compare-look") else { return };
    let program = disk.program();
    disk.record(&program);
    let device = disk.info.device_number;
    let before = diskstats::reads(device).unwrap();
    let result = disk.compare_with(&["--no-reference"], &program);
    let read = (diskstats::reads(device).unwrap() - before).requests;
    // A disturbed run was measured again; its reads count, too.
    let kinds =
        ["cold", "ahead", "warm"].into_iter().flat_map(|kind| [&result[kind]["samples"], &result[kind]["repeated"]]);
    let samples = kinds.flat_map(|samples| samples.as_array().unwrap());
    let in_runs: u64 = samples.map(|sample| sample["requests"].as_u64().unwrap()).sum();
    // Other processes may cause a few reads; a search after each of six evictions causes 24.
    assert!(
        in_runs > 80 && (in_runs..in_runs + 4).contains(&read),
        "{read} requests, {in_runs} of them in runs: {result}"
    );
}

/// Regression: the bound was the recording's, although the program now used other pages.
#[test]
fn the_bound_follows_the_pages_used_and_not_the_profile() {
    let Some(disk) = Disk::new("compare-bound") else { return };
    disk.record(disk.program());
    let other = [words(READ_FIRST), vec![disk.file(0)]].concat();
    let compared = |more: &[&str]| disk.compare_with(more, &other);
    let (by_profile, by_run) = (compared(&["--no-reference"]), compared(&[]));
    let bound = |result: &Value| result["bound_s"].as_f64().unwrap_or_else(|| panic!("no bound: {result}"));
    assert!(bound(&by_run) < bound(&by_profile) / 2.0, "{by_run} {by_profile}");
    // Regression: what a prefetch had requested when its short program ended was read in the next cold run, whose pages were not evicted.
    for result in [by_profile, by_run] {
        let bytes_of = |kind: &str| result[kind]["device"]["bytes"].as_u64().unwrap();
        assert!(bytes_of("ahead") >= 40 * FIRST_BYTES && bytes_of("cold") < 10 * FIRST_BYTES, "{result}");
    }
}

/// Evictions are counted from a file that the program reads and then drops from the cache. Its deleted copy does not count.
#[test]
fn evictions_during_a_run_are_counted() {
    let Some(disk) = Disk::new("evicted") else { return };
    let (file, copy) = (disk.file(3), disk.mount.join("copy"));
    let copy = copy.display();
    let script =
        format!("cat {file} >/dev/null; dd if={file} of=/dev/null iflag=nocache count=0; cp {file} {copy}; rm {copy}");
    let program = ["sh", "-c", &script].map(str::to_owned);
    disk.record(&program);
    let result = disk.compare_with(&["--no-reference"], &program);
    for kind in ["cold", "ahead", "warm"] {
        let samples = result[kind]["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 3);
        for sample in samples {
            let evicted = sample["evicted_bytes"].as_u64().unwrap();
            assert!((3 << 20..6 << 20).contains(&evicted), "{kind}: {sample}");
        }
    }
}

/// Regression: a concurrent recording set read-ahead to 0 during the cold runs, without a warning.
#[test]
fn a_changed_read_ahead_is_reported() {
    let Some(disk) = Disk::new("compare-window") else { return };
    disk.record(disk.program());
    let device = disk.info.device_number;
    let setting = format!("echo 64 >/sys/dev/block/{device}/queue/read_ahead_kb");
    let result = disk.compare_with(&["--no-reference"], &["sh".into(), "-c".into(), setting]);
    assert_eq!(result["read_ahead_kb_seen"].as_array().unwrap().len(), 2, "{result}");
    assert_eq!(result["read_ahead_kb"], result["read_ahead_kb_seen"][0]);
}

/// Regression: a concurrent recording made each fault of the machine map one page only, without a warning.
#[test]
fn a_concurrent_recording_is_reported() {
    let Some(small) = Small::new() else { return };
    let is_reported = || small.compare(&[], "true").json()["recorded_meanwhile"].clone();
    assert_eq!(is_reported(), false);
    let recorder =
        ahead(["record", "-o"]).arg(small.path("other.ahead")).args(["--", "sh", "-c", "echo runs; exec cat"]);
    let mut recorder = recorder.open_input().start();
    assert_eq!(recorder.line(), "runs");
    // Only some kernels allow the change.
    let is_changed = |note: &Note| {
        note.owner.pid == recorder.pid()
            && matches!(&note.action, Action::SetFile { path, .. } if path.ends_with("fault_around_bytes"))
    };
    let expected = ahead_process::undo::notes().unwrap().iter().any(|(_, note)| is_changed(note));
    if !expected {
        eprintln!("skipped: this kernel does not allow changing the size of faults");
    }
    let reported = is_reported();
    recorder.ends_with(0);
    assert_eq!(reported, expected);
}

/// A file and its profile, for tests without a slow disk. The test has the machine alone.
struct Small {
    home: tempfile::TempDir,
    _alone: Held,
}

impl Small {
    fn new() -> Option<Small> {
        needs_root()?;
        let small = Small { home: tempfile::tempdir().unwrap(), _alone: Held::alone() };
        let data = small.path("data");
        fs::write(&data, [1; 8192]).unwrap();
        let path = data.into_os_string().into_vec();
        let file = ahead_profile::File { path, extents: vec![extent(0..8192, 0)], ..Default::default() };
        save(&of_files(vec![file]), &small.path("p.ahead"));
        Some(small)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Compares a shell script whose `$0` is the directory: one round, no reference recording.
    fn compare(&self, more: &[&str], script: &str) -> Program {
        let compare = ahead(["compare", "--json", "--runs", "1", "--no-reference", "-p"]).arg(self.path("p.ahead"));
        compare.args(more).args(["--", "sh", "-c", script]).arg(self.home.path())
    }
}

/// The runs that were measured again, because the kernel evicted pages meanwhile.
fn repeated(result: &Value) -> usize {
    let rivals = result["against"].as_array().unwrap();
    let measured = ["cold", "ahead", "warm"].into_iter().map(|kind| &result[kind]).chain(rivals);
    measured.map(|one| one["repeated"].as_array().unwrap().len()).sum()
}

/// Regression: the first run read the whole input, later runs nothing.
#[test]
fn every_run_reads_the_same_standard_input() {
    let Some(small) = Small::new() else { return };
    let greedy = ["--against", "greedy=cat >/dev/null"];
    let result = small.compare(&greedy, r#"cat >>"$0/seen""#).input("piped\n").json();
    assert_eq!(small.read("seen"), "piped\n".repeat(4 + repeated(&result)), "{result}");
    // From a file, starting at its offset.
    fs::write(small.path("input"), "first\nsecond\n").unwrap();
    let again = small.compare(&[], r#"cat >>"$0/again""#).by_script(r#"{ read -r first; exec "$@"; } <"$INPUT""#);
    let result = again.env("INPUT", small.path("input")).json();
    assert_eq!(small.read("again"), "second\n".repeat(3 + repeated(&result)), "{result}");
}

#[test]
fn failed_runs_are_reported_and_in_the_result() {
    let Some(small) = Small::new() else { return };
    let page = small.path("page.html");
    let against = ["--against", "exits=exit 4", "--against", "fails=false", "--against", "works=true"];
    let others = ["--even-if-failed", "--html", page.to_str().unwrap()];
    let compared = small.compare(&[&against[..], &others].concat(), "exit 3");
    let done = compared.arg(std::ffi::OsString::from_vec(b"\xff".to_vec())).ok();
    assert_eq!(done.err.matches("the command's exit status was 3").count(), 1, "{done}");
    let result = done.says("exits failed with exit status 4").never_says("Cold").json();
    assert_eq!(result["program_status"], 3);
    let statuses: Vec<_> = (0..3).map(|index| result["against"][index]["status"].as_i64().unwrap()).collect();
    assert_eq!(statuses, [4, 1, 0]);
    assert!((0..2).all(|index| result["against"][index]["recovered_share"].is_null()), "{result}");
    assert!(result["ready"].is_null());
    // Failed runs have no time in the table, and no bar.
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches(">failed<").count(), 2, "{page}");
    assert!(page.contains("Measured 2") && page.contains(" UTC. Profile: "), "{page}");
    assert!(page.contains("works: ") && !page.contains("exits: ") && !page.contains("fails: "), "{page}");
    // The command is a list of words, as bytes where one is not UTF-8.
    assert_eq!((&result["command"][0], &result["command_percent"][4]), (&"sh".into(), &"%FF".into()));
}

/// Regression: while another process kept the file mapped, the verdict was "SLOWER".
#[test]
fn runs_beside_a_process_that_keeps_the_file_cached_have_no_verdict() {
    let Some(small) = Small::new() else { return };
    let data = File::open(small.path("data")).unwrap();
    let mapping = Mapping::new(&data, 8192).unwrap();
    assert_eq!((mapping.touch(0), mapping.touch(4096)), (Some(1), Some(1)));
    let result = small.compare(&[], r#"cat "$0/data""#).json();
    drop(mapping);
    let state = &result["cold_state"];
    assert_eq!((&state["is_cold"], &state["kept_share"]), (&false.into(), &1.0.into()), "{result}");
    assert!(result["verdict"].as_str().unwrap().starts_with("no verdict: not cold"), "{result}");
    assert!(["speedup", "recovered_share", "bound_s"].iter().all(|key| result[key].is_null()), "{result}");
}

/// Regression: a command that failed at once was run for five rounds, and its times were reported.
#[test]
fn comparison_of_a_failed_command_stops_after_its_first_run() {
    let Some(small) = Small::new() else { return };
    let done = small.compare(&[], r#"echo run >> "$0/runs"; exit 3"#).fails(1);
    done.says("failed in its first run (exit status 3)").says("--even-if-failed");
    assert_eq!(small.read("runs"), "run\n");
}

#[test]
fn a_program_that_never_gets_ready_is_reported() {
    let Some(small) = Small::new() else { return };
    let done = small.compare(&["--until-output", "NEVER"], "echo no").ok().says("without being ready");
    assert_eq!(done.json()["ready"], false);
    let ready = small.compare(&["--until-output", "yes"], "echo yes; exec sleep 1000").json();
    assert_eq!(ready["ready"], true);
}

/// Regression: a recording switched read-ahead off during the cold runs of a comparison.
#[test]
fn no_cold_recording_starts_during_a_comparison() {
    let Some(small) = Small::new() else { return };
    small.compare(&[], r#"flock -n /run/ahead/alone.lock touch "$0/free"; touch "$0/ran""#).ok();
    assert!(small.path("ran").exists() && !small.path("free").exists());
}

/// Regression: the directory of a killed comparison was never removed.
#[test]
fn restore_removes_the_directory_of_a_killed_comparison() {
    let Some(small) = Small::new() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let left = || fs::read_dir(scratch.path()).unwrap().count();
    let script = r#"touch "$TMPDIR"/ahead-compare-*/more; kill -KILL $PPID"#;
    assert!(!small.compare(&[], script).env("TMPDIR", scratch.path()).works());
    assert_eq!(left(), 1);
    ahead(["restore"]).ok();
    assert_eq!(left(), 0);
}

/// Regression: root opened a refused FIFO and hung; and each failure was reported as an error of the file's owner.
#[test]
fn invalid_profile_is_not_reported_as_an_error_of_its_owner() {
    let Some(small) = Small::new() else { return };
    set_mode(small.home.path(), 0o755);
    let profile = small.path("p.ahead");
    for make in ["mkfifo", "touch"] {
        fs::remove_file(&profile).unwrap();
        program(make).arg(&profile).ok();
        set_mode(&profile, 0o644);
        let compare = small.compare(&[], "true").behind_sudo().limit(Duration::from_secs(60));
        compare.fails(1).says("p.ahead").never_says("chown");
    }
}

/// Regression: root recorded into a directory of the user, who can put a link there.
#[test]
fn root_does_not_write_into_a_directory_of_the_user() {
    let Some(small) = Small::new() else { return };
    let [scratch, roots] = make_directories(small.home.path(), ["scratch", "roots"]);
    let binary = small.path("ahead");
    copy_ahead(&binary);
    for (name, mode) in [("", 0o755), ("scratch", 0o1777), ("p.ahead", 0o644)] {
        set_mode(small.path(name), mode);
    }
    let script = r#"cat "$0/data" >&2
        for own in "$TMPDIR"/ahead-compare-*; do mv "$own" "$own.gone" && ln -s "$0/roots" "$own"; done; true"#;
    let compare = program(&binary).args(["compare", "--json", "--runs", "1", "-p"]).arg(small.path("p.ahead"));
    let compare = compare.args(["--", "sh", "-c", script]).arg(small.home.path()).behind_sudo();
    let done = compare.env("TMPDIR", &scratch).done();
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0, "root wrote through the user's link");
    assert_eq!(done.success().json()["used_according_to"], "a recorded run");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

/// Regression: a signal took effect only during a run, and counted as a failed run.
#[test]
fn a_signal_between_two_runs_ends_a_comparison() {
    let Some(small) = Small::new() else { return };
    let compare = small.compare(&["--prepare", "kill -TERM $PPID"], r#"touch "$0/ran""#);
    compare.fails(128 + 15).says("stopped by signal 15");
    assert!(!small.path("ran").exists());
}

/// Regression: a message of `ahead run` counted as the program's output, and did not reach the user.
#[test]
fn a_message_of_ahead_run_does_not_count_as_readiness() {
    let Some(small) = Small::new() else { return };
    // Without a profile there is no account, which is an error.
    let prepare = format!("rm -f '{}'", small.path("p.ahead").display());
    let options = ["--prepare", &prepare, "--until-output", "runs without"];
    let done = small.compare(&options, r#"echo no; echo ended >>"$0/runs""#).fails(1);
    done.says("runs without a profile").says("without being ready");
    // A run is repeated if the kernel evicted pages meanwhile.
    let ended = small.read("runs").lines().count();
    assert!(ended >= 2 && small.read("runs") == "ended\n".repeat(ended), "{ended}");
}

#[test]
fn a_profile_that_the_sudo_user_cannot_read_is_reported_before_the_first_run() {
    let Some(small) = Small::new() else { return };
    set_mode(small.home.path(), 0o755);
    set_mode(small.path("data"), 0o755);
    let done = small.compare(&[], r#"touch "$0/ran""#).behind_sudo().fails(1);
    done.says_all(&["nobody", "p.ahead", "ermission denied"]);
    assert!(!small.path("ran").exists());
}

/// Regression: messages of `ahead run` went to /dev/null together with the program's output.
#[test]
fn messages_of_ahead_run_reach_the_user() {
    let Some(small) = Small::new() else { return };
    // The cold run removes the program, so the run with ahead does not find it. Nothing is observed without root, so the cold run
    // is not repeated.
    let (once, binary) = (small.path("once"), small.path("ahead"));
    write_script(&once, "rm -- \"$0\"");
    copy_ahead(&binary);
    set_mode(small.home.path(), 0o777);
    set_mode(small.path("p.ahead"), 0o644);
    let compare = program(&binary).args(["compare", "--no-reference", "-p"]).arg(small.path("p.ahead"));
    compare.arg("--").arg(&once).as_stranger().fails(127).says("once: not found").says("status was 127");
}

//! `ahead run` never fails a program; `ahead replay` reads regular files only.

use ahead_profile::{Extent, File, Profile};
use ahead_tests::rig::prelude::*;
use std::ffi::OsStr;

pub(crate) fn home() -> (tempfile::TempDir, PathBuf) {
    let home = on_disk();
    let path = home.path().to_owned();
    (home, path)
}

/// A profile's entry for the file at `path`: all of the file was used.
pub(crate) fn used(path: &Path) -> File {
    let now = fs::symlink_metadata(path).unwrap();
    let size_bytes = now.len().max(4096);
    File {
        path: path.as_os_str().as_bytes().to_vec(),
        fs_path: b"/file".to_vec(),
        size_bytes,
        mtime_ns: now.mtime() * 1_000_000_000 + now.mtime_nsec(),
        extents: vec![Extent { offset_bytes: 0, length_bytes: size_bytes, runs: 1, ..Extent::default() }],
        ..File::default()
    }
}

pub(crate) fn save(files: Vec<File>, path: &Path) {
    let mut profile = Profile { files, ..Profile::default() };
    profile.recording.runs = 1;
    ahead_files::save(&profile, path).unwrap();
}

fn replay(files: Vec<File>) -> Value {
    let profile = tempfile::NamedTempFile::new().unwrap();
    save(files, profile.path());
    ahead(["replay", "--wait", "--json"]).arg(profile.path()).json()
}

#[test]
fn run_passes_on_status_and_output_with_and_without_a_profile() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    ahead(["run", "-p"])
        .arg(&profile)
        .args(["--", "sh", "-c", "echo out; echo err >&2; exit 7"])
        .fails(7)
        .out_is("out\n")
        .err_is("err\n");
    fs::write(&profile, "no profile").unwrap();
    let line = "ahead: runs without a profile";
    ahead(["run", "-p"]).arg(&profile).args(["--", "sh", "-c", "exit 3"]).fails(3).says(line).in_one_line();
    ahead(["run", "--", "true"]).env("XDG_STATE_HOME", &home).ok().says(line).in_one_line();
    let named = ["ahead record --cold -- true"];
    ahead(["run", "--", "true"]).env("XDG_STATE_HOME", &home).ok().says_all(&named);
}

#[test]
fn verbose_run_prints_a_one_line_account() {
    let (_guard, home) = home();
    let (profile, data, account) = (home.join("p.ahead"), home.join("data"), home.join("account"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    let run = |options: &[&str]| {
        let run = ahead(["run", "-p"]).arg(&profile).args(options);
        run.args(["--", "sh", "-c", "echo out; exit 7"]).fails(7).out_is("out\n").err
    };
    let stderr = run(&["-v"]);
    assert!(stderr.starts_with("ahead: prefetched ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("the program waited "), "{stderr}");
    // --verbose together with --account.
    let stderr = run(&["-v", "--account", account.to_str().unwrap()]);
    assert!(stderr.starts_with("ahead: prefetched ") && stderr.lines().count() == 1, "{stderr}");
    let whole: serde_json::Value = serde_json::from_slice(&fs::read(&account).unwrap()).unwrap();
    assert!(whole["issued_bytes"].is_u64(), "{whole}");
    assert_eq!(run(&[]), "");
}

#[test]
fn a_program_that_cannot_be_started_has_the_shells_status() {
    let profile = tempfile::NamedTempFile::new().unwrap();
    save(Vec::new(), profile.path());
    let run = |program: &str| ahead(["run", "-p"]).arg(profile.path()).args(["--", program]).done();
    run("no-such-program-here").code(127).says("not found");
    // Regression: without a profile the advice to record one came first.
    let missing = ahead(["run", "--", "no-such-program-here"]).fails(127).out_is("");
    missing.says("no-such-program-here: not found").in_one_line();
    // The account is written nevertheless.
    let directory = tempfile::tempdir().unwrap();
    let account = directory.path().join("account");
    let asked = ahead(["run", "--account"]);
    asked.arg(&account).arg("-p").arg(profile.path()).args(["--", "no-such-program-here"]).fails(127);
    assert!(account.is_file());
    run("/").code(126);
    run("false").code(1).err_is("");
    ahead(["run"]).fails(2);
}

/// Regression: signals that a program may survive (SIGUSR1) ended `ahead run`, and the program continued without them.
#[test]
fn a_signal_to_run_reaches_the_program() {
    let (_guard, home) = home();
    let profile = home.join("p.ahead");
    save(Vec::new(), &profile);
    // The last is a real-time signal.
    for signal in ["TERM", "USR1", "USR2", "ALRM", "40"] {
        let program = format!("trap 'echo caught; exit 5' {signal}; echo ready; while :; do sleep 0.01; done");
        let mut running = ahead(["run", "-p"]).arg(&profile).args(["--", "sh", "-c", &program]).start();
        assert_eq!(running.line(), "ready");
        running.end_by(signal).code(5).out_is("ready\ncaught\n");
    }
}

#[test]
fn run_writes_its_account() {
    let (_guard, home) = home();
    let (profile, data, account) = (home.join("p.ahead"), home.join("data"), home.join("account.json"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    ahead(["run", "-p"]).arg(&profile).arg("--account").arg(&account).args(["--", "true"]).ok();
    let account: Value = serde_json::from_slice(&fs::read(&account).unwrap()).unwrap();
    let accounted = ["issued_bytes", "already_resident_bytes"].map(|key| account[key].as_u64().unwrap());
    let cancelled = account["skipped"]["cancelled"]["bytes"].as_u64().unwrap_or(0);
    assert_eq!(accounted.iter().sum::<u64>() + cancelled, 100_000, "{account}");
}

/// The account has the time that the program took.
#[test]
fn account_has_the_time_of_the_program_and_null_without_one() {
    let (_guard, home) = home();
    let (profile, data, account) = (home.join("p.ahead"), home.join("data"), home.join("account.json"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    let program_us = |place: &str, program: &[&str]| {
        let output = ahead(["run", "--account", place, "-p"]).arg(&profile).arg("--").args(program).done();
        let text = if place == "/dev/stdout" { output.out_bytes } else { fs::read(place).unwrap() };
        serde_json::from_slice::<Value>(&text).unwrap()["program_us"].as_u64()
    };
    let place = account.to_str().unwrap();
    for place in [place, "/dev/stdout"] {
        let took_us = program_us(place, &["sleep", "0.3"]);
        assert!(took_us.is_some_and(|us| (300_000..60_000_000).contains(&us)), "{place}: {took_us:?}");
    }
    assert_eq!(program_us(place, &["no-such-program-here"]), None);
    assert!(ahead(["replay", "--json"]).arg(&profile).done().json()["program_us"].is_null());
}

/// The fetching process has no descriptors of `ahead run`: `ahead run` itself writes to its own descriptors.
#[test]
fn the_account_may_go_to_an_open_descriptor() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    let run = |place: &str| ahead(["run", "--account", place, "-p"]).arg(&profile).args(["--", "echo", "out"]).done();
    let output = run("/dev/stdout");
    let text = output.out;
    let account: Value = serde_json::from_str(text.strip_prefix("out\n").expect(&text)).unwrap();
    assert!(account["devices"].is_array() && output.err.is_empty(), "{account}");
    let output = run("/dev/fd/2");
    assert!(output.out_is("out\n").err_json()["devices"].is_array());
}

#[test]
fn messages_go_to_their_file_and_not_to_standard_error() {
    let (_guard, home) = home();
    let (profile, messages) = (home.join("p.ahead"), home.join("messages"));
    fs::write(&profile, "no profile").unwrap();
    let run = ahead(["run", "--messages"]).arg(&messages).arg("-p").arg(&profile);
    let run = run.args(["--", "sh", "-c", "echo err >&2"]);
    run.ok().out_is("").err_is("err\n");
    let text = fs::read_to_string(&messages).unwrap();
    assert!(text.starts_with("ahead: runs without a profile") && text.lines().count() == 1, "{text}");
}

#[test]
fn only_regular_files_at_their_exact_path_are_fetched() {
    let (_guard, home) = home();
    let file = home.join("file");
    fs::write(&file, vec![1; 8192]).unwrap();
    let fifo = home.join("fifo");
    make_fifo(&fifo);
    std::os::unix::fs::symlink(&file, home.join("link")).unwrap();
    fs::create_dir(home.join("directory")).unwrap();
    std::os::unix::fs::symlink(&home, home.join("way")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(home.join("socket")).unwrap();
    let bad = ["fifo", "link", "directory", "way/file", "socket"].map(|name| home.join(name));
    let also_bad =
        ["/dev/null", "/dev/tty", "/dev/zero", "/proc/version", "/proc/self/mem", "/sys/kernel/uevent_seqnum"];
    let hostile: Vec<File> = bad.iter().map(PathBuf::as_path).chain(also_bad.map(Path::new)).map(used).collect();
    let bytes: u64 = hostile.iter().map(|file| file.size_bytes).sum();
    let count = hostile.len() as u64;
    let account = replay(hostile);
    assert_eq!(account["issued_bytes"], 0, "{account}");
    let skipped: Vec<&Value> = account["skipped"].as_object().unwrap().values().collect();
    assert_eq!(skipped.iter().map(|s| s["bytes"].as_u64().unwrap()).sum::<u64>(), bytes, "{account}");
    assert_eq!(skipped.iter().map(|s| s["spans"].as_u64().unwrap()).sum::<u64>(), count, "{account}");
    // A path through a symbolic link (way/file, /proc/self/mem) is missing.
    assert_eq!(account["skipped"]["missing"]["spans"], 2, "{account}");
    assert_eq!(account["skipped"]["refused"]["spans"], count - 2, "{account}");
}

/// The file's name for a program without arguments in the store.
fn store_name(program: &str, directory: &Path) -> String {
    format!("{program}-{:08x}.ahead", crc32fast::hash(directory.as_os_str().as_encoded_bytes()))
}

/// Regression: without a home directory `run` looked for the profile below the working directory.
#[test]
fn a_relative_home_is_ignored() {
    let (_guard, home) = home();
    let directory = fs::canonicalize(&home).unwrap();
    let name = store_name("true", &directory);
    for below in ["ahead", ".local/state/ahead", "relative/ahead", "relative/.local/state/ahead"] {
        fs::create_dir_all(directory.join(below)).unwrap();
        save(Vec::new(), &directory.join(below).join(&name));
    }
    for place in ["", "relative"] {
        let run = ahead(["run", "--", "true"]).current_dir(&home).env("HOME", place).env("XDG_STATE_HOME", place);
        run.ok().says("there is no profile for: true ");
    }
}

#[test]
fn ranges_beyond_the_end_of_a_file_fetch_nothing() {
    let (_guard, home) = home();
    let path = home.join("file");
    fs::write(&path, vec![1; 8192]).unwrap();
    let claiming = |bytes: u64| {
        let mut file = used(&path);
        (file.size_bytes, file.extents[0].length_bytes) = (bytes, bytes);
        file
    };
    let account = replay(vec![claiming(1 << 20)]);
    assert_eq!((&account["issued_bytes"], &account["stale_files"]), (&0.into(), &1.into()));
    let most = i64::MAX as u64;
    let account = replay(vec![claiming(most)]);
    assert_eq!((&account["issued_bytes"], &account["skipped"]["over_budget"]["bytes"]), (&0.into(), &most.into()));
}

/// Regression: a hostile profile could name any number of devices. Each got 16 threads and a search of all files.
#[test]
fn a_profile_of_many_devices_is_replayed_in_time() {
    let (_guard, home) = home();
    let path = home.join("file");
    fs::write(&path, vec![1; 8192]).unwrap();
    let claimed = |device| File { path: home.join("missing").as_os_str().as_bytes().to_vec(), device, ..used(&path) };
    let account = replay((0..5000).map(claimed).chain([used(&path)]).collect());
    let fetched = ["issued_bytes", "already_resident_bytes"].map(|key| account[key].as_u64().unwrap());
    assert_eq!(fetched.iter().sum::<u64>(), 8192);
    assert_eq!(account["skipped"]["missing"]["bytes"], 5000 * 8192);
}

/// Regression: a deadline beyond the range of the clock caused a panic.
#[test]
fn any_deadline_is_accepted() {
    let profile = tempfile::NamedTempFile::new().unwrap();
    save(Vec::new(), profile.path());
    for deadline in ["0us", "1us", "10000000000000000000s"] {
        ahead(["replay", "--deadline", deadline]).arg(profile.path()).ok().err_is("");
    }
}

#[test]
fn an_unreadable_profile_is_reported_in_one_line() {
    let (_guard, home) = home();
    fs::write(home.join("broken"), "AHEAD and then nonsense").unwrap();
    make_fifo(&home.join("fifo"));
    for bad in ["broken", "missing", "fifo", "."] {
        ahead(["replay"]).arg(home.join(bad)).fails(1).out_is("").in_one_line();
    }
}

#[test]
fn replay_prints_its_account_as_text() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join(OsStr::from_bytes(b"data \xff")));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    ahead(["replay", "--wait"]).arg(&profile).ok().prints("arrived after");
}

/// Regression: a file that could not be opened for lack of descriptors counted as missing.
#[test]
fn a_low_limit_of_open_files_makes_no_file_missing() {
    let (_guard, home) = home();
    let paths: Vec<PathBuf> = (0..100).map(|index| home.join(index.to_string())).collect();
    paths.iter().for_each(|path| fs::write(path, vec![1; 8192]).unwrap());
    let profile = home.join("p.ahead");
    save(paths.iter().map(|path| used(path)).collect(), &profile);
    let replay = |limit: u32| {
        for path in &paths {
            evict(path);
        }
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let done = ahead(["replay", "--wait", "--json"]).arg(&profile).by_script(&script).done();
        done.status.success().then(|| done.json())
    };
    let mut replays = 0;
    for limit in (4..40).chain([64, 128]) {
        // Below some limit replay cannot even create a pipe, and fails.
        let Some(account) = replay(limit) else { continue };
        replays += 1;
        let fetched = ["issued_bytes", "already_resident_bytes"].map(|key| account[key].as_u64().unwrap());
        let skipped = account["skipped"].as_object().unwrap();
        let too_many = skipped.get("too_many_open").map_or(0, |skipped| skipped["bytes"].as_u64().unwrap());
        assert!(skipped.keys().all(|reason| reason == "too_many_open"), "{limit}: {account}");
        assert_eq!(fetched.iter().sum::<u64>() + too_many, 100 * 8192, "{limit}: {account}");
        assert!(too_many == 0 || limit < 64, "{limit}: {account}");
    }
    assert!(replays > 20, "{replays}");
}

/// Regression: `sudo ahead record` does not know the user's XDG_STATE_HOME and saves in the user's `~/.local/state`. `run`
/// knows XDG_STATE_HOME, and looked only there.
#[test]
fn run_also_searches_the_directory_where_root_saves_profiles() {
    let (_guard, home) = home();
    let state = home.join("state");
    let stderr = || ahead(["run", "--", "true"]).env("HOME", &home).env("XDG_STATE_HOME", &state).ok().err;
    assert!(stderr().contains("there is no profile for: true "), "{}", stderr());
    let name = store_name("true", &std::env::current_dir().unwrap());
    let kept = home.join(".local/state/ahead");
    fs::create_dir_all(&kept).unwrap();
    save(Vec::new(), &kept.join(&name));
    assert_eq!(stderr(), "");
    // XDG_STATE_HOME has priority.
    fs::create_dir_all(state.join("ahead")).unwrap();
    fs::write(state.join("ahead").join(name), "no profile").unwrap();
    assert!(stderr().contains("runs without a profile"), "{}", stderr());
}

//! `ahead bench` without privilege: help, usage errors, and jobs in the user's own directory.

use crate::documents;
use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use std::path::Path;

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.arg("bench").args(arguments);
    command
}

/// A directory on a disk, where pages can be evicted: the directory for temporary files may be in memory.
fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn names(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn wrong_usage_is_status_2() {
    for arguments in [
        &[][..],
        &["nothing"],
        &["streams", "--streams", "0"],
        &["streams", "--streams", "1,x"],
        &["streams", "--size", "0"],
        &["streams", "--size", "5T"],
        &["streams", "--runs", "0"],
        &["random", "--count", "0"],
        &["mmapit", "--pages", "0"],
        &["mmapit", "--policy", "fixed(0)"],
        // Regression: other files or calls than requested were made, without an error.
        &["streams", "--size", "1B"],
        &["random", "--size", "4095B"],
        &["streams", "--size", "1M", "--block", "2M"],
        &["streams", "--size", "4G", "--block", "2G"],
        &["mmapit", "--block", "8K"],
        &["bonnie", "--block", "8K"],
        &["mmapit", "--streams", "2"],
        &["patterns", "--count", "7"],
        &["random", "--block", "5000B"],
    ] {
        ahead(arguments).assert().code(2).stdout("");
    }
}

#[test]
fn an_unknown_policy_is_reported_with_the_known_ones() {
    let reason = predicate::str::contains("no policy is called \"linux-9\"")
        .and(predicate::str::contains("linux-6.18"))
        .and(predicate::str::contains("true-readahead(n, P)"))
        .and(predicate::str::contains("kernel (its own read-ahead)"));
    ahead(&["streams", "--policy", "linux-9"]).assert().code(2).stderr(reason);
    ahead(&["mmapit", "--policy", "fixed(n)"]).assert().code(2).stderr(predicate::str::contains("--pages"));
}

#[test]
fn help_names_the_jobs() {
    let jobs = ["mmapit", "bonnie", "streams", "random", "patterns"];
    let output = ahead(&["--help"]).assert().success().get_output().stdout.clone();
    let help = String::from_utf8(output).unwrap();
    assert!(jobs.iter().all(|job| help.contains(job)), "{help}");
}

#[test]
fn an_unwritable_or_full_directory_is_reported() {
    ahead(&["streams", "--directory", "/no/such/directory"])
        .assert()
        .code(1)
        .stderr(predicate::str::contains("/no/such"));
    let home = home();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    ahead(&["streams", "--directory", file.to_str().unwrap(), "--size", "1M"]).assert().code(1);
    let place = home.path().to_str().unwrap();
    ahead(&["streams", "--directory", place, "--size", "4T"])
        .assert()
        .code(1)
        .stdout("")
        .stderr(predicate::str::contains("are free; make them smaller").and(predicate::str::contains("--size")));
    assert_eq!(names(home.path()), 1);
    ahead(&["streams", "--directory", place, "--html", place])
        .assert()
        .code(1)
        .stderr(predicate::str::contains("directory"));
}

#[test]
fn files_in_memory_are_not_measured_as_cold() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: no /dev/shm");
        return;
    }
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = home.path().to_str().unwrap();
    ahead(&["streams", "--directory", place, "--size", "1M", "--streams", "1"])
        .assert()
        .code(77)
        .stderr(predicate::str::contains("choose a directory on a disk"));
    assert_eq!(names(home.path()), 0);
}

/// Regression: the message was that they have too little space, and suggested smaller files.
#[test]
fn generated_file_systems_are_not_supported() {
    for directory in ["/proc", "/sys"] {
        ahead(&["random", "--directory", directory])
            .assert()
            .code(77)
            .stdout("")
            .stderr(predicate::str::contains("its file system has no disk").and(predicate::str::contains(directory)));
    }
}

/// Regression: the status was 1, and the change of the kernel's window was refused only after all files had been created.
#[test]
fn missing_privilege_is_status_77() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: root has the privilege (tests/root has this test with another user)");
        return;
    }
    let home = home();
    let place = home.path().to_str().unwrap();
    ahead(&["streams", "--directory", place, "--pages", "8"])
        .assert()
        .code(77)
        .stderr(predicate::str::contains("as root"));
    ahead(&["streams", "--directory", "/", "--size", "1M"])
        .assert()
        .code(77)
        .stderr(predicate::str::contains("may write"));
}

/// Direct reads have no window, so one run is enough.
#[test]
fn direct_reads_are_run_once_for_all_pages() {
    let home = home();
    let place = home.path().to_str().unwrap();
    let run = ahead(&["mmapit", "--directory", place, "--size", "1M", "--runs", "1", "--json"])
        .args(["--policy", "direct", "--policy", "fixed(n)", "--pages", "8,16"])
        .assert();
    if !run.get_output().status.success() {
        eprintln!("skipped: the file system has no direct I/O, or keeps pages that should be evicted");
        return;
    }
    let whole: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let names: Vec<&str> =
        whole["rows"].as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "direct").count(), 1, "{names:?}");
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn rows_are_json_with_every_key_and_nothing_is_left() {
    let home = home();
    let place = home.path().to_str().unwrap();
    let page = home.path().join("page.html");
    let policies = ["--policy", "kernel", "--policy", "true-readahead(n)"];
    let output = ahead(&["mmapit", "--directory", place, "--size", "4M", "--runs", "2", "--json"])
        .args(["--html", page.to_str().unwrap()])
        .args(if ahead_sys::machine::is_root() { &policies[..] } else { &policies[2..] })
        .args(["--pages", "16,64"])
        .assert();
    if !output.get_output().status.success()
        && String::from_utf8_lossy(&output.get_output().stderr).contains("in memory")
    {
        eprintln!("skipped: the file system keeps pages that should be evicted");
        return;
    }
    let output = output.success().get_output().stdout.clone();
    let whole: Value = serde_json::from_slice(&output).unwrap();
    documents::assert_documented(&["### ahead bench --json"], &whole);
    for key in ["machine", "kernel", "directory", "device", "read_ahead_kb", "traits", "rows"] {
        assert!(whole.get(key).is_some(), "{key}");
    }
    let rows = whole["rows"].as_array().unwrap();
    let of_policy = rows.iter().filter(|row| row["policy"].as_str().unwrap().starts_with("true-readahead"));
    assert_eq!(of_policy.clone().count(), 2);
    for row in of_policy {
        let count = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(count("hits") + count("locked") + count("misses"), 1024, "{row}");
        assert_eq!((count("read_bytes"), count("used_bytes"), count("runs")), (4 << 20, 4 << 20, 2));
        assert!(row["elapsed_s"]["median"].as_f64().unwrap() > 0.0 && row["queue_waits"].is_u64());
        assert!(row["timeline"].as_array().unwrap().len() > 10);
        assert_eq!(row.as_object().unwrap().len(), 30, "{row}");
    }
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("Times over the run") && page.contains("<svg") && !page.contains("<script"));
    assert_eq!(names(home.path()), 1, "only the page is left");
}

#[test]
fn warm_run_has_no_waits() {
    let home = home();
    let place = home.path().to_str().unwrap();
    let warm = || {
        let options = ["streams", "--directory", place, "--size", "1M", "--streams", "2", "--runs", "1", "--warm"];
        let run = ahead(&options).args(["--json", "--policy", "linux-6.18"]).assert();
        let whole: Option<Value> = serde_json::from_slice(&run.get_output().stdout).ok();
        whole.map(|whole| whole["rows"][0].clone())
    };
    // The kernel may reclaim pages between the two runs.
    let is_whole = |row: &Option<Value>| row.as_ref().is_none_or(|row| row["evicted_bytes"] == 0);
    let mut row = warm();
    for _ in 0..4 {
        if is_whole(&row) {
            break;
        }
        row = warm();
    }
    let Some(row) = row else { return eprintln!("skipped: the file system keeps pages that should be evicted") };
    assert_eq!((&row["hits"], &row["misses"], &row["issued_bytes"]), (&512.into(), &0.into(), &0.into()), "{row}");
}

/// Files stay open, also more than the shell's soft limit. Beyond the hard limit no file is created.
#[test]
fn too_many_files_are_reported_before_they_are_created() {
    let home = home();
    let bench = |limit: &str| {
        let script =
            format!("{limit} && exec \"$0\" bench streams --size 64K --streams 200 --runs 1 --directory \"$1\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).arg(assert_cmd::cargo::cargo_bin("ahead")).arg(home.path());
        command.assert()
    };
    bench("ulimit -n 150").code(77).stderr(predicate::str::contains("keeping 200 files open"));
    assert_eq!(names(home.path()), 0);
    bench("ulimit -Sn 150").success();
    assert_eq!(names(home.path()), 0);
}

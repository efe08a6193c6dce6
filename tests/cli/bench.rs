//! `ahead bench` without privilege: help, usage errors, and jobs in the user's own directory.

use crate::documents;
use ahead_tests::rig::prelude::*;

fn bench(arguments: &[&str]) -> Program {
    ahead(["bench"]).args(arguments)
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
        bench(arguments).fails(2).out_is("");
    }
}

#[test]
fn an_unknown_policy_is_reported_with_the_known_ones() {
    let reason =
        ["no policy is called \"linux-9\"", "linux-6.18", "true-readahead(n, P)", "kernel (its own read-ahead)"];
    bench(&["streams", "--policy", "linux-9"]).fails(2).says_all(&reason);
    bench(&["mmapit", "--policy", "fixed(n)"]).fails(2).says("--pages");
}

#[test]
fn help_names_the_jobs() {
    let jobs = ["mmapit", "bonnie", "streams", "random", "patterns"];
    let output = bench(&["--help"]).ok().out_bytes;
    let help = String::from_utf8(output).unwrap();
    assert!(jobs.iter().all(|job| help.contains(job)), "{help}");
}

#[test]
fn an_unwritable_or_full_directory_is_reported() {
    bench(&["streams", "--directory", "/no/such/directory"]).fails(1).says("/no/such");
    let home = on_disk();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    bench(&["streams", "--directory", file.to_str().unwrap(), "--size", "1M"]).fails(1);
    let place = home.path().to_str().unwrap();
    bench(&["streams", "--directory", place, "--size", "4T"])
        .fails(1)
        .out_is("")
        .says("are free; make them smaller")
        .says("--size");
    assert_eq!(names(home.path()), 1);
    bench(&["streams", "--directory", place, "--html", place]).fails(1).says("directory");
}

#[test]
fn files_in_memory_are_not_measured_as_cold() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: no /dev/shm");
        return;
    }
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = home.path().to_str().unwrap();
    bench(&["streams", "--directory", place, "--size", "1M", "--streams", "1"])
        .fails(77)
        .says("choose a directory on a disk");
    assert_eq!(names(home.path()), 0);
}

/// Regression: the message was that they have too little space, and suggested smaller files.
#[test]
fn generated_file_systems_are_not_supported() {
    for directory in ["/proc", "/sys"] {
        bench(&["random", "--directory", directory])
            .fails(77)
            .out_is("")
            .says("its file system has no disk")
            .says(directory);
    }
}

/// Regression: the status was 1, and the change of the kernel's window was refused only after all files had been created.
#[test]
fn missing_privilege_is_status_77() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: root has the privilege (tests/root has this test with another user)");
        return;
    }
    let home = on_disk();
    let place = home.path().to_str().unwrap();
    bench(&["streams", "--directory", place, "--pages", "8"]).fails(77).says("as root");
    bench(&["streams", "--directory", "/", "--size", "1M"]).fails(77).says("write permission");
}

/// Direct reads have no window, so one run is enough.
#[test]
fn direct_reads_are_run_once_for_all_pages() {
    let home = on_disk();
    let place = home.path().to_str().unwrap();
    let run = bench(&["mmapit", "--directory", place, "--size", "1M", "--runs", "1", "--json"]);
    let run = run.args(["--policy", "direct", "--policy", "fixed(n)", "--pages", "8,16"]).done();
    if !run.status.success() {
        return eprintln!("skipped: the file system has no direct I/O, or keeps pages that should be evicted");
    }
    let whole = run.json();
    let names: Vec<&str> =
        whole["rows"].as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "direct").count(), 1, "{names:?}");
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn rows_are_json_with_every_key_and_nothing_is_left() {
    let home = on_disk();
    let place = home.path().to_str().unwrap();
    let page = home.path().join("page.html");
    let policies = ["--policy", "kernel", "--policy", "true-readahead(n)"];
    let run = bench(&["mmapit", "--directory", place, "--size", "4M", "--runs", "2", "--json", "--pages", "16,64"]);
    let run = run.args(if ahead_sys::machine::is_root() { &policies[..] } else { &policies[2..] });
    let done = run.arg("--html").arg(&page).done();
    if !done.status.success() && done.err.contains("in memory") {
        return eprintln!("skipped: the file system keeps pages that should be evicted");
    }
    let whole = done.success().json();
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
    let home = on_disk();
    let place = home.path().to_str().unwrap();
    let warm = || {
        let options = ["streams", "--directory", place, "--size", "1M", "--streams", "2", "--runs", "1", "--warm"];
        let run = bench(&options).args(["--json", "--policy", "linux-6.18"]).done();
        let whole: Option<Value> = serde_json::from_slice(&run.out_bytes).ok();
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
    let home = on_disk();
    let bench = |limit: &str| {
        let many = bench(&["streams", "--size", "64K", "--streams", "200", "--runs", "1", "--directory"]);
        many.arg(home.path()).behind(["bash", "-c", &format!("{limit} && exec \"$@\""), "bash"]).done()
    };
    bench("ulimit -n 150").code(77).says("keeping 200 files open");
    assert_eq!(names(home.path()), 0);
    bench("ulimit -Sn 150").success();
    assert_eq!(names(home.path()), 0);
}

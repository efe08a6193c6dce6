//! `ahead top` beside programs whose reads are known.

use crate::mounted::Mounted;
use ahead_sys::mapping::Mapping;
use ahead_sys::{bdi, cache, evict};
use assert_cmd::Command;
use predicates::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn top(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.arg("top").args(arguments).timeout(Duration::from_secs(120));
    command
}

/// The files of this process that `ahead top --once --json` lists.
fn listed(arguments: &[&str]) -> Vec<Value> {
    let own = std::process::id().to_string();
    let done = top(&[&["--once", "--json", "--pid", &own], arguments].concat()).assert().success();
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

fn row(path: &Path, arguments: &[&str]) -> Value {
    let rows = listed(&[&["--path", path.to_str().unwrap()], arguments].concat());
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows[0].clone()
}

/// `ahead top` in the background; its output is read when it has ended.
fn begun(arguments: &[&str]) -> Child {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"));
    command.arg("top").args(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().unwrap()
}

/// Repeats work until `ahead top` with these arguments has ended, and returns its output.
fn top_beside(arguments: &[&str], mut work: impl FnMut()) -> String {
    let mut child = begun(arguments);
    while child.try_wait().unwrap().is_none() {
        work();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn open_file_is_listed_with_its_window_and_advice() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("plain", MIB);
    let disk_pages = bdi::read_ahead_kb(mounted.number()).unwrap() / 4;
    let file = File::open(&path).unwrap();
    let seen = row(&path, &[]);
    assert_eq!((&seen["window_pages"], &seen["pattern"]), (&disk_pages.into(), &"unknown".into()), "{seen:#}");
    assert_eq!((&seen["descriptor"], &seen["file_bytes"]), (&file.as_raw_fd().into(), &MIB.into()));
    assert_eq!((&seen["path"], &seen["advice"]), (&path.to_str().unwrap().into(), &Value::Null));
    for key in ["hits", "locked", "misses", "wait_us", "issued_bytes", "used_bytes", "wasted_bytes", "amplification"] {
        // A running `ahead steer` has counts.
        let is_counted = Path::new("/run/ahead/steer.counters").exists();
        assert!(seen.get(key).is_some_and(|value| value.is_null() || is_counted), "{key}: {seen:#}");
    }
    cache::sequential_reads(&file).unwrap();
    let seen = row(&path, &[]);
    assert_eq!((&seen["window_pages"], &seen["advice"]), (&(2 * disk_pages).into(), &"sequential".into()), "{seen:#}");
    cache::exact_reads(&file).unwrap();
    let seen = row(&path, &[]);
    assert_eq!((&seen["pattern"], &seen["advice"]), (&"advised".into(), &"random".into()), "{seen:#}");
}

#[test]
fn state_of_a_stream_shows_its_last_window() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("stream", 8 * MIB);
    let file = File::open(&path).unwrap();
    evict::file(&file).unwrap();
    let mut buffer = vec![0; 1 << 14];
    for at in (0..MIB).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, at).unwrap();
    }
    let seen = row(&path, &[]);
    assert_eq!(seen["pattern"], "sequential", "{seen:#}");
    let number = |key: &str| seen[key].as_u64().unwrap_or_else(|| panic!("{key}: {seen:#}"));
    assert!(number("last_pages") > 0 && number("last_start_page") + number("last_pages") > MIB / 4096, "{seen:#}");
    assert!(number("cached_pages") >= MIB / 4096 && number("async_pages") > 0, "{seen:#}");
}

#[test]
fn interval_fills_the_counts_of_a_stream() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("stream", 8 * MIB);
    let file = File::open(&path).unwrap();
    let (own, pattern) = (std::process::id().to_string(), path.to_str().unwrap());
    let mut buffer = vec![0; 1 << 14];
    let output = top_beside(&["--once", "--json", "--interval", "1s", "--pid", &own, "--path", pattern], || {
        evict::file(&file).unwrap();
        for at in (0..8 * MIB).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, at).unwrap();
        }
    });
    let seen: Value = serde_json::from_str(&output).unwrap();
    let number = |key: &str| seen[0][key].as_u64().unwrap_or_else(|| panic!("{key}: {seen:#}"));
    assert!(number("hits") > 0 && number("misses") > 0 && number("markers") > 0, "{seen:#}");
    assert!(number("issued_bytes") >= MIB && number("used_bytes") > 0, "{seen:#}");
    let amplification = seen[0]["amplification"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&amplification), "{seen:#}");
    assert!(["sequential", "once-only"].contains(&seen[0]["pattern"].as_str().unwrap()), "{seen:#}");
}

#[test]
fn random_faults_are_explained() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let bytes = 64 * MIB;
    let path = mounted.file("mapped", bytes);
    let file = File::open(&path).unwrap();
    evict::file(&file).unwrap();
    let mapping = Mapping::new(&file, bytes as usize).unwrap();
    let (own, pattern) = (std::process::id().to_string(), path.to_str().unwrap());
    let mut at = 1u64;
    let output = top_beside(&["--explain", &own, "--path", pattern, "--interval", "1s"], || {
        // Multiples of a large odd number are in no order. A few faults each time: the file must not become resident.
        for _ in 0..4 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            mapping.touch(((at >> 33) * 4096 % bytes) as usize).unwrap();
        }
        let _ = mapping.page_out(0..bytes as usize);
        evict::file(&file).unwrap();
    });
    for part in ["random mmap", "window of at most", "faults at random pages: each reads", "MADV_RANDOM", "ahead steer"]
    {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[test]
fn mapping_without_a_descriptor_is_found() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("library", 4 * MIB);
    let file = File::open(&path).unwrap();
    let mapping = Mapping::new(&file, 4 * MIB as usize).unwrap();
    drop(file);
    let (own, pattern) = (std::process::id().to_string(), path.to_str().unwrap());
    let output = top_beside(&["--once", "--json", "--interval", "1s", "--pid", &own, "--path", pattern], || {
        let _ = mapping.page_out(0..4 * MIB as usize);
        evict::file(File::open(&path).unwrap()).unwrap();
        for at in (0..4 * MIB as usize).step_by(1 << 18) {
            mapping.touch(at).unwrap();
        }
    });
    let seen: Value = serde_json::from_str(&output).unwrap();
    let row = seen.as_array().unwrap().iter().find(|row| row["descriptor"].is_null() && row["closed_files"] == 0);
    let row = row.unwrap_or_else(|| panic!("{seen:#}"));
    assert_eq!(row["path"], pattern, "{seen:#}");
    assert!(row["faults"].as_u64().unwrap() > 0, "{seen:#}");
}

#[test]
fn filters_and_limits_bound_the_list() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let files: Vec<File> =
        ["a.db", "b.db", "c.log"].iter().map(|name| File::open(mounted.file(name, MIB)).unwrap()).collect();
    let root = mounted.root.to_str().unwrap();
    let names = |arguments: &[&str]| -> Vec<String> {
        let rows = listed(&[&["--mount", root, "--sort", "pid"], arguments].concat());
        rows.iter().map(|row| row["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["a.db", "b.db", "c.log"]);
    assert_eq!(names(&["--path", "*.db"]), ["a.db", "b.db"]);
    assert_eq!(names(&["--file", &format!("{root}/*.log"), "--cgroup", "/"]), ["c.log"]);
    assert_eq!(names(&["--limit", "2"]), ["a.db", "b.db"]);
    assert!(names(&["--cgroup", "/no/such/group"]).is_empty());
    drop(files);
    assert!(names(&[]).is_empty());
}

#[test]
fn stream_has_one_line_for_each_interval() {
    let Some(_mounted) = Mounted::new("ext4") else { return };
    let done = top(&["--json", "--interval", "100ms", "--count", "3", "--limit", "2"]).assert().success();
    let lines: Vec<Value> = done
        .get_output()
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(line["time"].is_f64() && line["interval_s"].as_f64().unwrap() >= 0.1, "{line:#}");
        assert!(line["totals"]["open_files"].as_u64().unwrap() > 0 && line["files"].as_array().unwrap().len() <= 2);
    }
    // Without a terminal a table is printed for each interval.
    let text = top(&["--interval", "100ms", "--count", "2", "--limit", "1"]).assert().success();
    text.stdout(predicate::str::contains("access/s").count(2));
}

#[test]
fn signal_ends_the_stream() {
    let Some(_mounted) = Mounted::new("ext4") else { return };
    let mut child = begun(&["--json", "--interval", "100ms", "--limit", "1"]);
    let mut first = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut first).unwrap();
    assert!(serde_json::from_str::<Value>(&first).unwrap()["files"].is_array());
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn ten_thousand_open_files_are_listed() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let many = 10_000;
    let limit = getrlimit(Resource::Nofile);
    let room = limit.current.unwrap_or(u64::MAX).max(many + 2000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(room), maximum: limit.maximum.map(|most| most.max(room)) })
        .unwrap();
    let path = mounted.file("many", MIB);
    let files: Vec<File> = (0..many).map(|_| File::open(&path).unwrap()).collect();
    let root = mounted.root.to_str().unwrap();
    let rows = listed(&["--mount", root]);
    assert_eq!(rows.len(), files.len());
    assert!(rows.iter().all(|row| row["path"] == path.to_str().unwrap()));
    assert_eq!(listed(&["--mount", root, "--limit", "3", "--sort", "cached"]).len(), 3);
    let own = std::process::id().to_string();
    let said = top(&["--explain", &own, "--mount", root, "--interval", "10ms", "--limit", "5"]).assert().success();
    said.stdout(predicate::str::contains("descriptor").count(5));
}

//! `ahead tune` without privilege: Wu's table, usage errors, and paths without a window.

use ahead_tests::rig::prelude::*;

fn tune(arguments: &[&str]) -> Program {
    ahead(["tune"]).args(arguments)
}

const WU: [&str; 5] = ["--plan", "--access-time", "8ms", "--bandwidth", "100MB/s"];

#[test]
fn wrong_usage_is_status_2() {
    for arguments in [
        &[][..],
        &["--plan"],
        &["--plan", "--access-time", "8ms"],
        &["--plan", "--access-time", "8", "--bandwidth", "100MB/s"],
        &["--plan", "--access-time", "8ms", "--bandwidth", "0"],
        &["/", "--all"],
        &["/", "--access-time", "8ms"],
        &["/", "--kb", "5", "--apply"],
        &["/", "--kb", "0", "--apply"],
        // Regression: this set nothing, without an error.
        &["/", "--kb", "128"],
        &["/", "--check", "--apply"],
        &["/", "--restore", "--kb", "128"],
        &["/", "--streams", "1"],
        &["/", "--exhaustive", "--kb", "128"],
    ] {
        tune(arguments).fails(2).out_is("");
    }
    tune(&WU).arg("--apply").fails(2);
}

#[test]
fn the_plan_equals_wus_table() {
    let output = tune(&WU).ok().out_bytes;
    let text = String::from_utf8(output).unwrap();
    let rows: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in
        ["4 8.00 0.04 8.04 0.49% 497.57", "128 8.00 1.25 9.25 13.51% 13837.84", "4096 8.00 40.00 48.00 83.33% 85333.33"]
    {
        assert!(rows.iter().any(|printed| printed == row), "{text}");
    }
    assert!(text.contains("recommended: 512 KiB"));
}

#[test]
fn the_plan_is_json_with_every_key() {
    let output = tune(&WU).arg("--json").ok().out_bytes;
    let whole: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!((&whole["recommended_kb"], &whole["current_kb"]), (&512.into(), &Value::Null));
    assert!(whole["reason"].as_str().unwrap().contains("13.00 ms"));
    let candidates = whole["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 13);
    let row = candidates.iter().find(|row| row["kb"] == 128).unwrap();
    assert_eq!(row["latency_s"].as_f64().unwrap(), 0.00925);
    for key in ["transfer_s", "utilisation", "throughput_bytes_per_s"] {
        assert!(row[key].as_f64().unwrap() > 0.0, "{key}");
    }
}

#[test]
fn a_path_without_a_device_is_status_77() {
    for place in ["/proc", "/proc/self/status", "/dev/null"] {
        tune(&[place]).fails(77).out_is("").says("is not supported here");
    }
    if std::path::Path::new("/dev/shm").is_dir() {
        tune(&["/dev/shm", "--kb", "128", "--apply"]).fails(77).says("tmpfs");
    }
}

#[test]
fn a_missing_path_is_status_1() {
    tune(&["/no/such/place"]).fails(1).says("/no/such/place");
    let here = env!("CARGO_TARGET_TMPDIR");
    if ahead_sys::machine::is_root() {
        tune(&[here, "--workload", "/no/such.ahead"]).fails(1).says("/no/such.ahead");
    }
}

/// The trace is read before a setting changes.
#[test]
fn a_truncated_trace_is_status_1() {
    let Some(()) = needs_root() else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.trace");
    std::fs::write(&path, b"AHDTRACE\x02\x00").unwrap();
    let message = ["x.trace: the trace is truncated at byte 10"];
    tune(&[env!("CARGO_TARGET_TMPDIR"), "--workload", path.to_str().unwrap()]).fails(1).out_is("").says_all(&message);
}

#[test]
fn missing_privilege_is_status_77_with_the_remedy() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: is root");
        return;
    }
    let remedy = ["run it as root"];
    tune(&[env!("CARGO_TARGET_TMPDIR")]).fails(77).out_is("").says_all(&remedy);
}

/// Without saved values, `--restore` writes neither a setting nor a udev rule.
#[test]
fn restore_without_saved_values_does_nothing() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().to_str().unwrap();
    tune(&["--all", "--restore", "--root", root]).ok().out_is("nothing to restore\n");
    let output = tune(&["--all", "--restore", "--json", "--root", root]).ok().out_bytes;
    let whole: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(whole["restored"], Value::Array(Vec::new()));
}

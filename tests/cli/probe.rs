//! `ahead probe` without privilege, and on file systems without a disk.

use crate::documents;
use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.arg("probe").args(arguments);
    command
}

#[test]
fn help_explains_that_no_settings_are_read() {
    let output = ahead(&["--help"]).assert().success().get_output().stdout.clone();
    let words: Vec<String> = String::from_utf8(output).unwrap().split_whitespace().map(str::to_owned).collect();
    let help = words.join(" ");
    assert!(help.contains("It reads no settings") && help.contains("--timing-only"), "{help}");
}

#[test]
fn a_missing_path_is_named() {
    ahead(&["/no/such/place"]).assert().code(1).stderr(contains("/no/such/place"));
}

#[test]
fn file_systems_without_a_disk_are_not_supported() {
    for path in ["/proc", "/sys"] {
        ahead(&[path]).assert().code(77).stdout("").stderr(contains(path).and(contains("no disk behind it")));
    }
}

/// Regression: a file in memory was reported as used by another process, and a file of /proc as too short.
#[test]
fn files_without_a_disk_are_not_supported() {
    let in_memory = tempfile::Builder::new().prefix("ahead-test-").tempfile_in("/dev/shm").unwrap();
    in_memory.as_file().set_len(16 << 20).unwrap();
    for path in [in_memory.path().to_str().unwrap(), "/proc/self/status"] {
        ahead(&[path]).assert().code(77).stdout("").stderr(contains("no disk behind it"));
    }
}

/// Regression: a relative path was refused as "not an absolute path".
#[test]
fn relative_paths_are_accepted() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::create_dir(home.path().join("inner")).unwrap();
    for path in [".", "inner/.."] {
        ahead(&[path, "--only", "layout", "--size", "8M"]).current_dir(home.path()).assert().success();
    }
}

#[test]
fn an_unwritable_directory_is_not_permitted() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere: its tests are in tests/root.
    if fs::write(home.path().join("file"), "").is_err() {
        ahead(&[home.path().to_str().unwrap()]).assert().code(77).stderr(contains("a directory that you may write"));
    }
}

#[test]
fn a_file_that_fits_stays_cached() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().to_str().unwrap();
    let output = ahead(&[path, "--only", "cache", "--size", "8M", "--json"]).assert().success();
    let found: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(found["page_cache"]["value"], serde_json::Value::Null, "{found:#}");
    assert!(found["page_cache"]["method"].as_str().unwrap().contains("8388608 bytes stayed cached"), "{found:#}");
}

#[test]
fn a_special_or_small_file_is_refused() {
    ahead(&["/dev/null"]).assert().code(1).stderr(contains("give a directory"));
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let small = home.path().join("small");
    fs::write(&small, "a few bytes").unwrap();
    ahead(&[small.to_str().unwrap()]).assert().code(1).stderr(contains("has only 11 bytes"));
}

#[test]
fn too_little_space_is_reported() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().to_str().unwrap();
    ahead(&[path, "--size", "4096T"]).assert().code(1).stderr(contains("bytes free").and(contains("--size")));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn outputs_are_checked_before_the_work() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, missing) = (home.path().to_str().unwrap(), home.path().join("missing/twin.toml"));
    ahead(&[path, "--model", missing.to_str().unwrap()]).assert().code(1).stderr(contains("cannot write"));
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    ahead(&[path, "--figures", file.to_str().unwrap()]).assert().code(1).stderr(contains("is not a directory"));
}

#[test]
fn one_part_can_be_probed_alone() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output =
        ahead(&[home.path().to_str().unwrap(), "--only", "layout", "--size", "8M", "--json"]).assert().success();
    let found: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    documents::assert_documented(&["### ahead probe --json"], &found);
    assert!(found["block_size"]["value"].as_u64().is_some_and(u64::is_power_of_two), "{found:#}");
    assert_eq!(found["window"]["method"], "not asked for");
    ahead(&["/", "--only", "everything"]).assert().code(2).stderr(contains("windows"));
    ahead(&["/", "--only", "disk", "--model", "x"]).assert().code(2);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "no test file is left");
}

/// Regression: `--size 0` made a file of 1 MiB, and was ignored for a given file or device.
#[test]
fn a_size_of_zero_or_for_an_existing_file_is_refused() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = home.path().to_str().unwrap();
    for size in ["0", "1B", "1023K"] {
        ahead(&[directory, "--size", size]).assert().code(2).stderr(contains("at least 1M"));
    }
    let file = home.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    for path in [file.to_str().unwrap(), "/dev/null"] {
        ahead(&[path, "--size", "8M"]).assert().code(2).stdout("").stderr(contains("leave out --size"));
    }
}

/// Regression: the times of a hole were reported as the disk's.
#[test]
fn a_hole_has_no_times() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = home.path().join("file");
    fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    for options in [&["--only", "windows,layout", "--timing-only", "--json"][..], &["--only", "layout", "--json"]] {
        let output = ahead(&[&[file.to_str().unwrap()], options].concat()).assert().success();
        let found: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
        assert_eq!(found["direct_blocks"]["value"], serde_json::Value::Null, "{found:#}");
        assert_eq!(found["indirect_by"]["confidence"], serde_json::Value::Null, "{found:#}");
        if options.contains(&"--timing-only") {
            let method = found["window"]["method"].as_str().unwrap();
            assert!(found["window"]["value"].is_null() && method.contains("data in only"), "{found:#}");
        }
    }
}

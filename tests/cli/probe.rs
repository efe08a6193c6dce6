//! `ahead probe` without privilege, and on file systems without a disk.

use crate::documents;
use ahead_tests::rig::prelude::*;

fn probe(arguments: &[&str]) -> Program {
    ahead(["probe"]).args(arguments)
}

#[test]
fn help_explains_that_no_settings_are_read() {
    let output = probe(&["--help"]).ok().out_bytes;
    let words: Vec<String> = String::from_utf8(output).unwrap().split_whitespace().map(str::to_owned).collect();
    let help = words.join(" ");
    assert!(help.contains("It reads no settings") && help.contains("--timing-only"), "{help}");
}

#[test]
fn a_missing_path_is_named() {
    probe(&["/no/such/place"]).fails(1).says("/no/such/place");
}

#[test]
fn file_systems_without_a_disk_are_not_supported() {
    for path in ["/proc", "/sys"] {
        probe(&[path]).fails(77).out_is("").says(path).says("no disk behind it");
    }
}

/// Regression: a file in memory was reported as used by another process, and a file of /proc as too short.
#[test]
fn files_without_a_disk_are_not_supported() {
    let in_memory = tempfile::Builder::new().prefix("ahead-test-").tempfile_in("/dev/shm").unwrap();
    in_memory.as_file().set_len(16 << 20).unwrap();
    for path in [in_memory.path().to_str().unwrap(), "/proc/self/status"] {
        probe(&[path]).fails(77).out_is("").says("no disk behind it");
    }
}

/// Regression: a relative path was refused as "not an absolute path".
#[test]
fn relative_paths_are_accepted() {
    let home = on_disk();
    std::fs::create_dir(home.path().join("inner")).unwrap();
    for path in [".", "inner/.."] {
        probe(&[path, "--only", "layout", "--size", "8M"]).current_dir(home.path()).ok();
    }
}

#[test]
fn an_unwritable_directory_is_not_permitted() {
    let home = on_disk();
    set_mode(home.path(), 0o555);
    // Root may write everywhere: its tests are in tests/root.
    if fs::write(home.path().join("file"), "").is_err() {
        probe(&[home.path().to_str().unwrap()]).fails(77).says("a directory that you may write");
    }
}

#[test]
fn a_file_that_fits_stays_cached() {
    let home = on_disk();
    let path = home.path().to_str().unwrap();
    let output = probe(&[path, "--only", "cache", "--size", "8M", "--json"]).ok();
    let found: Value = output.json();
    assert_eq!(found["page_cache"]["value"], Value::Null, "{found:#}");
    assert!(found["page_cache"]["method"].as_str().unwrap().contains("8388608 bytes stayed cached"), "{found:#}");
}

#[test]
fn a_special_or_small_file_is_refused() {
    probe(&["/dev/null"]).fails(1).says("give a directory");
    let home = on_disk();
    let small = home.path().join("small");
    fs::write(&small, "a few bytes").unwrap();
    probe(&[small.to_str().unwrap()]).fails(1).says("has only 11 bytes");
}

#[test]
fn too_little_space_is_reported() {
    let home = on_disk();
    let path = home.path().to_str().unwrap();
    probe(&[path, "--size", "4096T"]).fails(1).says("bytes free").says("--size");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn outputs_are_checked_before_the_work() {
    let home = on_disk();
    let (path, missing) = (home.path().to_str().unwrap(), home.path().join("missing/twin.toml"));
    probe(&[path, "--model", missing.to_str().unwrap()]).fails(1).says("cannot write");
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    probe(&[path, "--figures", file.to_str().unwrap()]).fails(1).says("is not a directory");
}

#[test]
fn one_part_can_be_probed_alone() {
    let home = on_disk();
    let output = probe(&[home.path().to_str().unwrap(), "--only", "layout", "--size", "8M", "--json"]).ok();
    let found: Value = output.json();
    documents::assert_documented(&["### ahead probe --json"], &found);
    assert!(found["block_size"]["value"].as_u64().is_some_and(u64::is_power_of_two), "{found:#}");
    assert_eq!(found["window"]["method"], "not asked for");
    probe(&["/", "--only", "everything"]).fails(2).says("windows");
    probe(&["/", "--only", "disk", "--model", "x"]).fails(2);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "no test file is left");
}

/// Regression: `--size 0` made a file of 1 MiB, and was ignored for a given file or device.
#[test]
fn a_size_of_zero_or_for_an_existing_file_is_refused() {
    let home = on_disk();
    let directory = home.path().to_str().unwrap();
    for size in ["0", "1B", "1023K"] {
        probe(&[directory, "--size", size]).fails(2).says("at least 1M");
    }
    let file = home.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    for path in [file.to_str().unwrap(), "/dev/null"] {
        probe(&[path, "--size", "8M"]).fails(2).out_is("").says("leave out --size");
    }
}

/// Regression: the times of a hole were reported as the disk's.
#[test]
fn a_hole_has_no_times() {
    let home = on_disk();
    let file = home.path().join("file");
    fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    for options in [&["--only", "windows,layout", "--timing-only", "--json"][..], &["--only", "layout", "--json"]] {
        let output = probe(&[&[file.to_str().unwrap()], options].concat()).ok();
        let found: Value = output.json();
        assert_eq!(found["direct_blocks"]["value"], Value::Null, "{found:#}");
        assert_eq!(found["indirect_by"]["confidence"], Value::Null, "{found:#}");
        if options.contains(&"--timing-only") {
            let method = found["window"]["method"].as_str().unwrap();
            assert!(found["window"]["value"].is_null() && method.contains("data in only"), "{found:#}");
        }
    }
}

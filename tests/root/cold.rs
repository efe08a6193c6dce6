//! `ahead cold` on an emulated disk, as root and as another user.

use ahead_sys::mapping::Mapping;
use ahead_tests::rig::prelude::*;

/// A file of 4 MiB on an emulated rotating disk.
fn file_on_disk(disks: &mut Disks) -> PathBuf {
    let (_, mount) = disks.mounted("cold", &["--size", "64M", "--model", "hdd"]);
    set_mode(&mount, 0o755);
    fs::write(mount.join("data"), vec![7; 4 << 20]).unwrap();
    rustix::fs::sync();
    mount.join("data")
}

fn bytes(result: &Value, index: usize) -> u64 {
    result["results"][index]["device"]["bytes"].as_u64().unwrap_or_else(|| panic!("{result}"))
}

#[test]
fn cold_runs_read_the_file_from_the_disk_and_warm_ones_do_not() {
    let Some(mut disks) = Disks::alone() else { return };
    let file = file_on_disk(&mut disks);
    let result = ahead(["cold", "--json", "--runs", "6", "--", "cat"]).arg(&file).json();
    assert_eq!((bytes(&result, 0) >= 4 << 20, bytes(&result, 1)), (true, 0), "{result}");
    let median = |index: usize| result["results"][index]["median"].as_f64().unwrap();
    assert!(median(0) > 2.0 * median(1), "{result}");
    assert!(result["results"][0]["median_interval"].is_array(), "{result}");
    assert_eq!((&result["model"], &result["files_by"]), (&"hdd".into(), &"a recorded run".into()), "{result}");
    assert!(result["files_bytes"].as_u64().unwrap() >= 4 << 20, "{result}");
}

#[test]
fn file_that_another_process_has_mapped_is_not_cold_and_the_process_is_named() {
    let Some(mut disks) = Disks::alone() else { return };
    let file = file_on_disk(&mut disks);
    let mapping = Mapping::new(File::open(&file).unwrap(), 4 << 20).unwrap();
    (0..4 << 20).step_by(4096).for_each(|at| assert!(mapping.touch(at).is_some()));
    let result = ahead(["cold", "--json", "--runs", "1", "--", "cat"]).arg(&file).json();
    drop(mapping);
    assert_eq!(result["cold_state"]["is_cold"], false, "{result}");
    let kept = &result["kept_files"][0];
    assert_eq!((&kept["path"], &kept["kept_bytes"]), (&file.to_str().unwrap().into(), &(4 << 20).into()), "{result}");
    assert_eq!(kept["mapped_by"]["holders"][0]["pid"], u64::from(std::process::id()), "{result}");
}

/// By a script, so that the file is no argument.
#[test]
fn another_user_evicts_the_files_of_the_command() {
    let Some(mut disks) = Disks::alone() else { return };
    let file = file_on_disk(&mut disks);
    let home = tempfile::tempdir().unwrap();
    set_mode(home.path(), 0o755);
    let own = home.path().join("ahead");
    copy_ahead(&own);
    write_script(&home.path().join("script"), &format!("cat {} >/dev/null", file.display()));
    let cold = program(&own).args(["cold", "--json", "--runs", "2", "--"]).arg(home.path().join("script"));
    let result = cold.as_stranger().json();
    // Some pages may still be in the lists of a processor.
    assert!(bytes(&result, 0) > 3 << 20 && bytes(&result, 1) < 1 << 20, "{result}");
    assert_eq!(
        (&result["cold_state"]["evicted"], &result["files_by"]),
        (&"data".into(), &"a recorded run".into()),
        "{result}"
    );
    assert!(result["cold_state"]["unknown_bytes"].as_u64().unwrap() >= 4 << 20, "{result}");
}

//! `ahead resident` and `ahead evict` on real file systems, beside processes that hold pages, and as another user.

use ahead_sys::mapping::Mapping;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::silent_mount::SilentMount;

fn total(command: &str, path: &Path, key: &str) -> u64 {
    let seen = ahead([command, "--json"]).arg(path).json();
    seen["total"][key].as_u64().unwrap_or_else(|| panic!("{key}: {seen}"))
}

#[test]
fn files_of_every_file_system_are_counted_and_evicted() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(mounted) = Mounted::new(fs_type) else { continue };
        let file = mounted.pages("f", 300);
        rustix::fs::sync();
        assert_eq!(total("resident", &file, "cached_pages"), 300, "{fs_type}");
        let evicted = ahead(["evict", "--json"]).arg(&mounted.root).json();
        assert_eq!(
            (&evicted["total"]["evicted_pages"], &evicted["total"]["kept_pages"]),
            (&300.into(), &0.into()),
            "{evicted}"
        );
        assert_eq!(total("resident", &file, "cached_pages"), 0, "{fs_type}");
    }
}

/// Regression: cachestat counts no page of a file on overlayfs, so that it seemed cold.
#[test]
fn pages_of_a_file_on_overlayfs_are_found_in_its_layer() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.pages("lower/f", 30);
    rustix::fs::sync();
    let Some((merged, _guard)) = mounted.overlay() else { return };
    fs::read(merged.join("f")).unwrap();
    assert_eq!(total("resident", &merged.join("f"), "cached_pages"), 30);
    assert_eq!(total("evict", &merged.join("f"), "kept_pages"), 0);
    assert_eq!(total("resident", &file, "cached_pages"), 0);
}

#[test]
fn dirty_pages_are_counted_and_written_before_the_eviction() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.pages("f", 50);
    // Other tests sync the machine at any time, which cleans the pages. A new file: ext4 writes one that was cut to nothing when it is closed.
    wait_until("dirty pages", || {
        fs::remove_file(&file).unwrap();
        fs::write(&file, vec![7; 50 * PAGE as usize]).unwrap();
        total("resident", &file, "dirty_pages") == 50
    });
    assert_eq!(total("evict", &file, "kept_pages"), 0);
}

#[test]
fn process_that_maps_or_locks_a_file_is_named() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.pages("f", 4);
    rustix::fs::sync();
    let opened = File::open(&file).unwrap();
    let mapping = Mapping::new(&opened, 4 * PAGE as usize).unwrap();
    (0..4).for_each(|page| assert!(mapping.touch(page * PAGE as usize).is_some()));
    let evicted = ahead(["evict", "--json"]).arg(&file).json();
    let one = &evicted["files"][0];
    assert_eq!((&one["kept_pages"], &one["mapped_by"]["processes"]), (&4.into(), &1.into()), "{evicted}");
    assert_eq!(one["mapped_by"]["holders"][0]["pid"], u64::from(std::process::id()), "{evicted}");
    drop(mapping);
    let lock = "import mmap, ctypes, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); \
                print(ctypes.CDLL(None).mlockall(1), flush=True); sys.stdin.read()";
    let mut locker = program("python3").args(["-c", lock]).arg(&file).open_input().start();
    assert_eq!(locker.line(), "0");
    ahead(["evict"]).arg(&file).ok().prints("mapped, locked in memory by python3");
    locker.close_input();
    locker.ends_with(0);
}

#[test]
fn another_user_evicts_readable_files_and_unknown_ones_are_reported() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let (file, own) = (mounted.pages("f", 30), mounted.beside("bin").join("ahead"));
    rustix::fs::sync();
    copy_ahead(&own);
    let seen = program(&own).args(["resident", "--json"]).arg(&file).as_stranger().json();
    assert_eq!(
        (&seen["total"]["unknown_files"], &seen["files"][0]["cached_pages"]),
        (&1.into(), &Value::Null),
        "{seen}"
    );
    program(&own).args(["evict"]).arg(&file).as_stranger().ok().prints("unknown of 1 of 1 files");
    assert_eq!(total("resident", &file, "cached_pages"), 0);
    std::os::unix::fs::chown(&file, Some(STRANGER), None).unwrap();
    fs::read(&file).unwrap();
    let seen = program(&own).args(["resident", "--json"]).arg(&file).as_stranger().json();
    assert_eq!(seen["total"]["cached_pages"], 30, "{seen}");
}

#[test]
fn a_mounted_file_system_is_not_entered_and_one_that_does_not_answer_stops_nothing() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let file = mounted.pages("a", 3);
    let Some(silent) = SilentMount::read_by_server(mounted.root.join("silent")) else { return };
    let seen = ahead(["resident", "--json"]).arg(&mounted.root).limit(Duration::from_secs(10)).ok();
    assert_eq!(seen.json()["left_out"]["mount_points"], 1, "{seen}");
    let done = ahead(["evict"]).arg(silent.point.join("x")).arg(&file).fails(1);
    done.says("has not answered for 15 s").prints("of 1 file\n");
}

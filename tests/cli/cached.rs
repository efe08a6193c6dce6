//! `ahead resident` and `ahead evict` without privilege.

use ahead_tests::rig::cold::cold_file;
use ahead_tests::rig::prelude::*;

/// A file of 20 pages with data and 12 MiB of holes on a disk, whose data is cached. `None`: see [`cold_file`].
fn cached_file() -> Option<tempfile::NamedTempFile> {
    let file = cold_file(&[7; 20 * PAGE as usize])?;
    file.as_file().set_len(12 * MIB).unwrap();
    file.as_file().sync_all().unwrap();
    fs::read(file.path()).unwrap();
    Some(file)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[test]
fn cached_pages_are_counted_listed_and_evicted() {
    let Some(file) = cached_file() else { return };
    let seen = ahead(["resident", "--json", "--map"]).arg(file.path()).json();
    let one = &seen["files"][0];
    assert_eq!((number(&one["data_pages"]), number(&one["cached_pages"])), (20, 20), "{seen}");
    assert_eq!(number(&one["size_bytes"]), 12 * MIB);
    let listed =
        one["ranges"].as_array().unwrap().iter().map(|range| number(&range[1]) - number(&range[0])).sum::<u64>();
    assert_eq!(listed, PAGE * (20 + number(&one["cached_hole_pages"])));
    ahead(["resident"]).arg(file.path()).ok().prints("80.0 KiB of 80.0 KiB cached (100 %) in 1 file");
    let evicted = ahead(["evict", "--json"]).arg(file.path()).json();
    assert_eq!(
        (number(&evicted["total"]["kept_pages"]), &evicted["files"][0]["reason"]),
        (0, &Value::Null),
        "{evicted}"
    );
    assert!(number(&evicted["total"]["evicted_pages"]) >= 20, "{evicted}");
    ahead(["resident"]).arg(file.path()).ok().prints("0 B of 80.0 KiB cached (0 %)");
}

#[test]
fn a_file_with_two_names_is_counted_once_and_links_are_not_followed() {
    let home = tempfile::tempdir_in(machine::target_directory()).unwrap();
    fs::write(home.path().join("a"), [1; 8192]).unwrap();
    fs::hard_link(home.path().join("a"), home.path().join("b")).unwrap();
    std::os::unix::fs::symlink("/usr", home.path().join("link")).unwrap();
    make_fifo(&home.path().join("fifo"));
    let done = ahead(["resident", "--json"]).arg(home.path()).arg(home.path().join("a")).ok();
    let seen = done.says("left out: 1 symbolic link, 1 device, FIFO or socket").json();
    assert_eq!((number(&seen["total"]["files"]), number(&seen["left_out"]["other_names"])), (1, 2), "{seen}");
    // A link that the user names is followed.
    std::os::unix::fs::symlink("a", home.path().join("named")).unwrap();
    let named = ahead(["resident", "--json"]).arg(home.path().join("named")).json();
    assert_eq!(number(&named["total"]["data_pages"]), 2, "{named}");
}

#[test]
fn files_of_a_profile_count_by_their_used_parts() {
    let Some(file) = cached_file() else { return };
    let profile = file.path().with_extension("ahead");
    let list = format!("{}:0-8K\n/nonexistent/x:0-4K\n", file.path().display());
    ahead(["import", "-", "-o"]).arg(&profile).input(list).done();
    let seen = ahead(["resident", "--json", "-p"]).arg(&profile).json();
    fs::remove_file(&profile).unwrap();
    assert_eq!((number(&seen["total"]["data_pages"]), number(&seen["total"]["cached_pages"])), (2, 2), "{seen}");
}

#[test]
fn missing_and_generated_files_fail_and_the_others_are_evicted() {
    let Some(file) = cached_file() else { return };
    let done = ahead(["evict", "/nonexistent/x", "/proc", "/dev/null"]).arg(file.path()).fails(1);
    let done = done.says_all(&["/nonexistent/x: No such file", "/proc: the kernel generates", "/dev/null: neither"]);
    done.prints("of 1 file\n");
    for command in ["resident", "evict"] {
        ahead([command]).fails(2).says("<PATH>...");
        ahead([command, "-p", "x.ahead", "y"]).fails(2).says("cannot be used with");
        ahead([command, "-p", "/nonexistent/x.ahead"]).fails(1).says("x.ahead");
    }
}

#[test]
fn file_in_memory_is_resident_and_is_not_evicted() {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    fs::write(file.path(), [1; 8192]).unwrap();
    ahead(["resident"]).arg(file.path()).ok().prints("8.0 KiB of 8.0 KiB cached (100 %)");
    ahead(["evict"]).arg(file.path()).ok().prints_all(&["the file is nowhere else", "8.0 KiB of 1 file stay cached"]);
}

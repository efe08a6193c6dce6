//! Papers against the real page cache: read times show the kernel's behaviour on a real ext2, and no disk remains
//! afterwards.

use ahead_tests::rig::prelude::*;

fn live<'a>(lines: &'a Value, claim: &str) -> &'a str {
    let line = lines.as_array().unwrap().iter().find(|line| line["claim"].as_str().unwrap().contains(claim));
    line.unwrap()["live"].as_str().unwrap()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(", ").map(|word| word.parse().unwrap()).collect()
}

/// Remaining objects of an `ahead papers` with this process id: disks, mounts, its directory.
fn left_of(pid: u32) -> Vec<String> {
    let (disk, directory) = (format!("papers-{pid}"), format!("ahead-papers-{pid}"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(&disk)).map(str::to_owned).collect();
    left.extend(ahead_disk::find(&disk).ok().map(|disk| format!("disk {}", disk.name)));
    left.extend(names_with("/dev/shm", &directory));
    left.extend(notes_of(pid));
    left
}

/// Regression: the disk's daemon stayed alive and kept the disk mounted in the directory to remove.
#[test]
fn after_a_kill_restore_detaches_the_disk_and_removes_its_directory() {
    let Some(()) = needs_emulated_disks() else { return };
    let _alone = alone();
    let mut child = ahead(["papers", "roudier", "--live"]).start();
    let (pid, name) = (child.pid(), format!("papers-{}", child.pid()));
    let directory = PathBuf::from(format!("/dev/shm/ahead-papers-{pid}"));
    // The first file appears when the disk is complete; writing it takes seconds.
    wait_until("the disk", || directory.join("mnt/0").exists());
    let daemon = ahead_disk::find(&name).unwrap().daemon;
    child.kill();
    assert!(daemon.is_alive() && !left_of(pid).is_empty(), "nothing was left to undo");
    let restored = ahead(["restore"]).ok().prints(format!("undone: process {}", daemon.pid));
    let restored = restored.prints(format!("undone: directory {}", directory.display()));
    assert_eq!(left_of(pid), Vec::<String>::new(), "{restored}");
    assert!(!daemon.is_alive());
    let again = ahead(["restore"]).text();
    assert!(!again.contains("NOT undone"), "{again}");
}

#[test]
fn pelouins_drops_are_at_his_places() {
    let Some(()) = needs_emulated_disks() else { return };
    // Another measuring program would change the times.
    let _alone = alone();
    let lines = ahead(["papers", "pelouin", "--live", "--json"]).json();
    let drops = numbers(live(&lines, "four large drops"));
    // If a hypervisor or other programs occupy the processors, the reader waits and read-ahead catches up: one of the
    // five positions may show no drop. Without read-ahead in windows of 31 pages there would be no drop at all.
    let late = [122_880, 249_856, 376_832, 503_808].into_iter().filter(|drop| drops.contains(drop)).count();
    let early = usize::from(numbers(live(&lines, "the main dip")).contains(&49_152));
    assert!(late + early >= 4, "{drops:?}, {lines:#}");
    let left = ahead(["disk", "list", "--json"]).json();
    let is_ours = |disk: &Value| disk["name"].as_str().unwrap_or_default().starts_with("papers-");
    assert!(!left.as_array().unwrap().iter().any(is_ours), "{left}");
    assert_eq!(names_with("/dev/shm", "ahead-papers-"), Vec::<String>::new());
}

/// Each statement of section 3 has a result on this kernel. Only statements that no other program's work can change are compared.
#[test]
fn opdenackers_system_calls_are_shown_on_this_kernel() {
    let Some(()) = needs_emulated_disks() else { return };
    let _alone = alone();
    let lines = ahead(["papers", "opdenacker", "--live", "--json"]).json();
    let verdict = |claim: &str| {
        let line = lines.as_array().unwrap().iter().find(|line| line["claim"].as_str().unwrap().ends_with(claim));
        line.unwrap()["live_verdict"].as_str().unwrap()
    };
    for claim in [
        "readahead reads whole pages",
        "POSIX_FADV_SEQUENTIAL",
        "POSIX_FADV_NORMAL",
        "POSIX_FADV_RANDOM",
        "POSIX_FADV_WILLNEED",
        "POSIX_FADV_WILLNEED does not block",
        "POSIX_FADV_DONTNEED",
        "fadvise is not binding",
        "madvise reads pages of a mapped file, or discards them",
    ] {
        assert_eq!(verdict(claim), "holds", "{claim}: {lines:#}");
    }
    for claim in [
        "readahead blocks until all data have been read",
        "the readahead system call is binding",
        "POSIX_FADV_NOREUSE",
        "demand paging loads each page only when it is needed",
    ] {
        assert_eq!(verdict(claim), "differs", "{claim}: {lines:#}");
    }
    assert!(live(&lines, "demand paging").starts_with("16 touched pages load "));
    assert!(live(&lines, "preloading entire files").starts_with("the start of this program loads "));
}

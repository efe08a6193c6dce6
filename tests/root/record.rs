//! Recordings of real programs on real file systems: a profile holds exactly the pages used, under paths that can be opened.

mod awaited;
mod cached;
mod end;
mod first_start;
mod killed;
mod nobpf;
mod others;
mod paths;
mod rig;
mod rooted;
mod timeline;
mod user;
mod users;

use ahead_process::undo::{Action, ProcessId};
use ahead_profile::{MilestoneKind, Precision};
use ahead_tests::rig::prelude::*;
use rig::{Home, entry, find, install_below, ranges, resident_below, volume, volume_undisturbed};
use std::time::SystemTime;

/// Reads `length` bytes at `offset` with sysread, which bypasses perl's buffers: they would round the range up.
fn perl_read(path: &Path, offset: u64, length: u64) -> String {
    format!("open(F,'<',q({}));sysseek(F,{offset},0);sysread(F,$b,{length});", path.display())
}

#[test]
fn a_cold_precise_recording_equals_the_resident_set() {
    unless_reclaimed(|| {
        let Some(volume) = volume("ext4") else { return };
        let perl = ["/usr/bin/perl", "/usr/bin/env"];
        if !perl.iter().all(|program| Path::new(program).exists()) {
            return eprintln!("skipped: no perl");
        }
        install_below(&volume.root, &perl);
        let data = volume.pages("data", 300);
        volume.pages("untouched", 10);
        // perl opens it to read a script that is an argument.
        volume.pages("dev/null", 0);
        let inside = Path::new("/data");
        let script = [perl_read(inside, 5 * PAGE + 1, 2 * PAGE), perl_read(inside, 100 * PAGE, 64 * PAGE)].concat();
        let home = Home::new();
        let root = volume.place();
        let command = ["chroot", root, "/usr/bin/env", "-i", "/usr/bin/perl", "-e", &script];
        // Held until the resident set is read: another test's cold run would evict the pages.
        let (profile, _alone) = home.record_cold(&command);
        let (read_ahead, inode_blocks) = settings(&volume);
        assert_ne!((read_ahead.as_str(), inode_blocks.as_str()), ("0", "0"), "the settings were not restored");

        assert_eq!(profile.recording.precision, Precision::Precise);
        assert!(profile.recording.cold && profile.recording.metadata_seen);
        assert_eq!((profile.recording.lost_events, profile.recording.runs), (0, 1));
        let mut files = 0;
        for (path, resident) in resident_below(&volume.root) {
            let used = find(&profile, &path).map(ranges).unwrap_or_default();
            assert_eq!(used, resident, "{}", path.display());
            files += usize::from(!resident.is_empty());
        }
        assert!(files >= 5, "only {files} files were read");
        assert_eq!(ranges(entry(&profile, &data)), [5 * PAGE..8 * PAGE, 100 * PAGE..164 * PAGE]);
        assert_eq!(entry(&profile, &data).seen_path.as_deref(), Some(&b"/data"[..]));
        assert!(entry(&profile, &data).extents.iter().all(|extent| extent.physical_bytes.is_some()));

        let metadata =
            profile.metadata.iter().find(|m| m.mount_point == root.as_bytes()).expect("metadata of the volume");
        assert_eq!(metadata.device_path, volume.node().to_str().unwrap().as_bytes());
        assert!(metadata.extents.iter().all(|extent| extent.physical_bytes == Some(extent.offset_bytes)));
        let execs: Vec<_> = profile.milestones.iter().filter(|m| m.kind == MilestoneKind::Exec).collect();
        let perl_path = format!("{root}/usr/bin/perl");
        assert!(execs.iter().any(|milestone| milestone.path == perl_path.as_bytes()), "{execs:?}");
        let looked_up = |path: &str| profile.lookups.iter().find(|l| l.path == format!("{root}{path}").as_bytes());
        assert_ne!(looked_up("/data").expect("a lookup of the data file").inode, 0);
    });
}

/// Regression: SIGUSR1, which need not end a program, ended the recorder with read-ahead off on every disk.
#[test]
fn settings_are_restored_after_any_signal() {
    let Some(volume) = volume("ext4") else { return };
    let home = Home::new();
    let _alone = alone();
    let before = settings(&volume);
    // The parent process passes it on.
    home.recorder(&["--cold", "--", "sh", "-c", "kill -USR1 $PPID; exec sleep 600"]).fails(138);
    assert_eq!(settings(&volume), before);
}

/// `read_ahead_kb` and `inode_readahead_blks` of the volume.
fn settings(volume: &Mounted) -> (String, String) {
    let name = volume.node().file_name().unwrap().to_str().unwrap();
    let read = |path: String| fs::read_to_string(path).unwrap().trim().to_owned();
    (read(format!("/sys/block/{name}/queue/read_ahead_kb")), read(format!("/sys/fs/ext4/{name}/inode_readahead_blks")))
}

/// Regression: the recorded program set its disk's read-ahead, and pages read ahead were recorded as used.
#[test]
fn a_recording_with_read_ahead_switched_on_is_an_upper_bound() {
    let (Some(volume), Some(other)) = (volume("ext4"), volume("ext4")) else { return };
    let file = volume.pages("data", 256);
    let home = Home::new();
    let record_with = |changed: &Mounted| {
        let setting = {
            // The setting of a concurrent cold recording does not count.
            let _still = shared();
            Setting::kept(changed.queue("read_ahead_kb"))
        };
        let script = format!("echo 64 > {}; head -c 4096 {} > /dev/null", setting.file.display(), file.display());
        let (output, profile) = home.record(&["--cold", "--precise"], &["sh", "-c", &script]);
        (output.err, profile.recording.precision)
    };
    let (message, precision) = record_with(&volume);
    assert_eq!(precision, Precision::UpperBound, "{message}");
    assert!(message.contains("read-ahead was switched on") && message.contains("upper bound"), "{message}");
    // The setting of a disk without reads does not matter.
    let (message, precision) = record_with(&other);
    assert_eq!(precision, Precision::Precise, "{message}");
    assert!(!message.contains("was switched on"), "{message}");
}

#[test]
fn a_cold_recording_of_a_listing_sees_its_metadata_and_lookups() {
    let Some(volume) = volume("xfs") else { return };
    for index in 0..50 {
        volume.pages(format!("dir{}/file{index}", index % 5), 1);
    }
    let home = Home::new();
    let root = volume.place();
    let missing = format!("{root}/missing");
    let script =
        format!("ls -lR {root} > /dev/null; cd {root}/dir0 && test -e ../dir1/file1; test -e {missing} || true");
    let (_, profile) = home.record(&["--cold"], &["sh", "-c", &script]);
    let lookup = |path: &str| profile.lookups.iter().find(|lookup| lookup.path == path.as_bytes());
    for index in 0..50 {
        let path = format!("{root}/dir{}/file{index}", index % 5);
        assert_ne!(lookup(&path).unwrap_or_else(|| panic!("{path} was looked up")).inode, 0);
    }
    assert!((0..5).all(|index| lookup(&format!("{root}/dir{index}")).is_some_and(|lookup| lookup.listed)));
    assert_eq!(lookup(&missing).expect("a failed lookup").inode, 0);
}

#[test]
fn a_warm_recording_sees_cached_pages_and_repeats_cost_no_event() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let file = volume.pages("cached", 64);
    fs::read(&file).unwrap();
    let read = format!("open(F,'<',q({}));for(1..5000){{sysseek(F,0,0);sysread(F,$b,10*{PAGE})}}", file.display());
    let home = Home::new();
    let (_, profile) = home.record(&[], &["perl", "-e", &read]);
    assert_eq!(ranges(entry(&profile, &file)), vec![0..10 * PAGE]);
    assert_eq!((profile.recording.precision, profile.recording.cold), (Precision::UpperBound, false));
    assert!(!profile.recording.metadata_seen && profile.recording.lost_events == 0);
}

#[test]
fn reads_of_io_uring_workers_belong_to_their_program() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    if !program("fio").arg("--version").works() {
        return eprintln!("skipped: no fio");
    }
    let file = volume.pages("ring", 2048);
    // The file is not cached: only then the kernel passes buffered reads to its workers.
    evict(&file);
    let home = Home::new();
    let name = format!("--filename={}", file.display());
    let job = ["fio", "--name=x", &name, "--ioengine=io_uring", "--rw=randread", "--bs=4k", "--iodepth=32"];
    let fixed = ["--force_async=1", "--size=8M", "--invalidate=0", "--norandommap=0"];
    let (_, profile) = home.record(&[], &[&job[..], &fixed[..]].concat());
    assert_eq!(ranges(entry(&profile, &file)), vec![0..2048 * PAGE]);
}

/// A process that reads a file again and again.
fn endless_reader(path: &Path) -> ahead_tests::rig::program::Running {
    program(path).by_script("while :; do cat \"$1\" > /dev/null 2>&1; done").start()
}

#[test]
fn children_and_threads_are_followed_but_not_unrelated_processes() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let [child, grandchild, stranger] = ["child", "grandchild", "stranger"].map(|name| volume.pages(name, 4));
    let other = endless_reader(&stranger);
    let script =
        format!("(cat {} >/dev/null; sh -c 'cat {} >/dev/null; :' ); :", child.display(), grandchild.display());
    let home = Home::new();
    let (_, profile) = home.record(&[], &["sh", "-c", &script]);
    drop(other);
    assert_eq!(ranges(entry(&profile, &child)), vec![0..4 * PAGE]);
    assert_eq!(ranges(entry(&profile, &grandchild)), vec![0..4 * PAGE]);
    assert!(find(&profile, &stranger).is_none());
}

#[test]
fn several_runs_record_how_many_used_each_page() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let [always, sometimes] = ["always", "sometimes"].map(|name| volume.pages(name, 2));
    let home = Home::new();
    let mark = home.path("mark");
    let (mark, always_path, sometimes_path) = (mark.display(), always.display(), sometimes.display());
    let script = format!("cat {always_path}; if [ -e {mark} ]; then cat {sometimes_path}; fi >/dev/null; : > {mark}");
    let (_, profile) = home.record(&["--runs", "3"], &["sh", "-c", &script]);
    assert_eq!(profile.recording.runs, 3);
    assert!(entry(&profile, &always).extents.iter().all(|extent| extent.runs == 3));
    assert!(entry(&profile, &sometimes).extents.iter().all(|extent| extent.runs == 2));
}

#[test]
fn pages_that_the_program_wrote_are_not_fetched() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let old = volume.pages("old", 3);
    let root = volume.root.display();
    let script = format!(
        "cd {root}; cat old old old > new; cat new > /dev/null; cat old.log > /dev/null; cat old >> old.log; \
         cat old.log > /dev/null; cat data future > /dev/null; printf x | dd of=data conv=notrunc 2> /dev/null"
    );
    let log = volume.pages("old.log", 2);
    let data = volume.pages("data", 2);
    // The clock of such a machine is wrong until the network is up.
    let future = volume.pages("future", 1);
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    File::options().write(true).open(&future).unwrap().set_modified(tomorrow).unwrap();
    let home = Home::new();
    let (_, profile) = home.record(&[], &["sh", "-c", &script]);
    assert_eq!(ranges(entry(&profile, &old)), vec![0..3 * PAGE]);
    assert!(find(&profile, &volume.root.join("new")).is_none());
    // Each run changes the file, so an entry for it would be stale.
    assert!(find(&profile, &log).is_none());
    // Regression: files written in place, or with a time in the future, were skipped, too.
    assert_eq!(ranges(entry(&profile, &data)), vec![0..2 * PAGE]);
    assert_eq!(ranges(entry(&profile, &future)), vec![0..PAGE]);
    // The same with a redirection opened before the recording.
    let redirected = volume.pages("redirected", 2);
    let output = File::options().append(true).open(&redirected).unwrap();
    let (from, to) = (old.display(), redirected.display());
    let script = format!("cat {to} > /dev/null; cat {from}; cat {to} > /dev/null");
    let json = home.recorder(&["--json", "--", "sh", "-c", &script]).output_file(output).done().err_json();
    assert!(find(&home.load(), &redirected).is_none());
    assert_eq!(json["files_made_here"], 1, "{json}");
}

/// Regression: each change had its own line "not permitted", and the status was 1.
#[test]
fn a_restore_without_root_names_the_remedy_in_one_line() {
    let Some(home) = Home::alone() else { return };
    let gone = ProcessId { pid: std::process::id(), start_ticks: 1 };
    for name in ["a", "b"] {
        fs::write(home.path(name), "").unwrap();
        ahead_process::undo::note_for(gone, Action::remove(&home.path(name))).unwrap().leave();
    }
    let done = ahead(["restore"]).as_stranger().current_dir("/").done();
    ahead_process::undo::restore_owned_by(gone).unwrap();
    done.code(77).out_is("").says("sudo ahead restore").in_one_line();
}

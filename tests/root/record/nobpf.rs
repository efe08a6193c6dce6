//! Recordings without BPF: by ftrace, and by residency.

use super::rig::{Home, entry, find, is_possible, joined, needs_recorder, ranges, volume, volume_alone};
use super::{endless_reader, perl_read};
use ahead_process::undo::Action;
use ahead_profile::{Precision, Profile};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::process::{guardians, signal};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// The used ranges of files, by path.
type Used = Vec<(PathBuf, Vec<Range<u64>>)>;

/// Whether ftrace can be used here; prints the reason if not.
fn has_ftrace() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| needs_recorder().is_some() && is_possible(&["--source", "ftrace"]))
}

/// A volume on a machine with ftrace.
fn traced_volume(fs_type: &'static str) -> Option<Mounted> {
    volume(fs_type).filter(|_| has_ftrace())
}

/// The used pages of the files on a volume, by path.
fn used(profile: &Profile, volume: &Mounted) -> Used {
    let path = |file: &ahead_profile::File| PathBuf::from(std::ffi::OsStr::from_bytes(&file.path));
    let on_volume = profile.files.iter().filter(|file| path(file).starts_with(&volume.root));
    let mut used: Vec<_> = on_volume.map(|file| (path(file), ranges(file))).collect();
    used.sort_by(|one, other| one.0.cmp(&other.0));
    used
}

/// Files on the volume, and a program that reads and maps known pages of them.
fn known_reads(volume: &Mounted) -> ([String; 5], Used) {
    let (data, odd) = (volume.pages("data", 300), volume.pages("deep/er/odd", 9));
    File::options().write(true).open(&odd).unwrap().set_len(8 * PAGE + 100).unwrap();
    volume.pages("untouched", 10);
    let reads = [perl_read(&data, 5 * PAGE + 1, 2 * PAGE), perl_read(&data, 100 * PAGE, 64 * PAGE)].concat();
    let script = "perl -e \"$0\"; cat \"$1\" > /dev/null";
    let command = ["sh", "-c", script, &reads, odd.to_str().unwrap()].map(str::to_owned);
    let expected = vec![(data, vec![5 * PAGE..8 * PAGE, 100 * PAGE..164 * PAGE]), (odd, vec![0..8 * PAGE + 100])];
    (command, expected)
}

#[test]
fn a_cold_recording_by_ftrace_has_the_pages_of_one_by_bpf() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(volume) = traced_volume(fs_type) else { continue };
        let (command, expected) = known_reads(&volume);
        let home = Home::new();
        let (_, by_bpf) = home.record(&["--cold", "--precise"], &command);
        let (output, by_ftrace) = home.record(&["--cold", "--precise", "--source", "ftrace"], &command);
        output.says("recording by ftrace: ");
        assert!(by_ftrace.recording.source.starts_with("ftrace mm_filemap_"), "{}", by_ftrace.recording.source);
        assert_eq!(used(&by_bpf, &volume), expected, "{fs_type}");
        assert_eq!(used(&by_ftrace, &volume), expected, "{fs_type}");
        assert_eq!((by_bpf.recording.lost_events, by_ftrace.recording.lost_events), (0, 0));
        // A btrfs that another test mounts meanwhile has a window that cannot be assigned to a device.
        if fs_type != "btrfs" {
            let precisions = (by_bpf.recording.precision, by_ftrace.recording.precision);
            assert_eq!(precisions, (Precision::Precise, Precision::Precise));
        }
        if fs_type == "ext4" {
            assert_eq!(metadata_pages(&by_ftrace, &volume), metadata_pages(&by_bpf, &volume));
        }
    }
}

/// The metadata of a volume, by offset.
fn metadata_pages(profile: &Profile, volume: &Mounted) -> Vec<Range<u64>> {
    let is_its = |metadata: &&ahead_profile::Metadata| metadata.mount_point == volume.root.as_os_str().as_bytes();
    joined(profile.metadata.iter().filter(is_its).flat_map(|metadata| &metadata.extents))
}

/// Two files with the same device and inode number, as events have them.
#[test]
fn files_of_two_subvolumes_are_distinguished_by_residency() {
    let Some(volume) = traced_volume("btrfs") else { return };
    for name in ["one", "two"] {
        if !program("btrfs").args(["subvolume", "create"]).arg(volume.root.join(name)).works() {
            return eprintln!("skipped: no btrfs program");
        }
    }
    let (read, other) = (volume.pages("one/file", 20), volume.pages("two/file", 20));
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&read), inode(&other));
    let home = Home::new();
    let script = perl_read(&read, 3 * PAGE, 2 * PAGE);
    let (_, profile) = home.record(&["--cold", "--source", "ftrace"], &["perl", "-e", &script]);
    assert_eq!(used(&profile, &volume), [(read, vec![3 * PAGE..5 * PAGE])]);
}

#[test]
fn a_warm_recording_by_ftrace_follows_children_and_no_strangers() {
    let Some(volume) = traced_volume("ext4") else { return };
    let _still = shared();
    let [child, grandchild, stranger] = ["child", "grandchild", "stranger"].map(|name| volume.pages(name, 4));
    let other = endless_reader(&stranger);
    let script =
        format!("(cat {} > /dev/null; sh -c 'cat {} > /dev/null; :'); :", child.display(), grandchild.display());
    let home = Home::new();
    let (_, profile) = home.record(&["--source", "ftrace"], &["sh", "-c", &script]);
    drop(other);
    assert_eq!(used(&profile, &volume), [(child, vec![0..4 * PAGE]), (grandchild, vec![0..4 * PAGE])]);
    assert_eq!((profile.recording.precision, profile.recording.lost_events), (Precision::UpperBound, 0));
}

#[test]
fn a_recording_by_residency_contains_the_used_pages() {
    for fs_type in ["ext4", "btrfs"] {
        let Some(volume) = volume(fs_type) else { continue };
        let (command, expected) = known_reads(&volume);
        let home = Home::new();
        let (output, profile) = home.record(&["--cold", "--source", "resident"], &command);
        output.says("recording by residency: an upper bound");
        let recording = &profile.recording;
        assert_eq!(
            (recording.precision, recording.source.as_str()),
            (Precision::UpperBound, "residency after the run")
        );
        for (path, pages) in expected {
            let found = ranges(entry(&profile, &path));
            let is_in =
                |wanted: &Range<u64>| found.iter().any(|own| own.start <= wanted.start && wanted.end <= own.end);
            assert!(pages.iter().all(is_in), "{}: {found:?}", path.display());
        }
        assert!(find(&profile, &volume.root.join("untouched")).is_none());
        if fs_type == "ext4" {
            assert!(!metadata_pages(&profile, &volume).is_empty());
        }
    }
}

/// The kernel's type information is hidden, as if there were none.
#[test]
fn ftrace_is_used_where_bpf_is_not_possible() {
    if !has_ftrace() {
        return;
    }
    let Some(home) = Home::alone() else { return };
    let recorder = home.recorder(&["--", "cat", "/proc/self/exe"]);
    let done = recorder.apart("mount -t tmpfs none /sys/kernel/btf && exec \"$@\"").ok();
    done.says("recording by ftrace instead of BPF").says("type information");
    assert!(home.load().recording.source.starts_with("ftrace "));
}

/// Neither type information nor tracefs, and no right to mount it.
#[test]
fn residency_is_used_where_neither_bpf_nor_ftrace_is_possible() {
    let Some(volume) = volume_alone("ext4") else { return };
    let file = volume.pages("data", 20);
    let home = Home::new();
    // A recorder of another test may have mounted tracefs elsewhere, and the new namespace has a copy of it.
    let script = "umount -l -a -t tracefs && mount -t tmpfs none /sys/kernel && exec setpriv --bounding-set=-bpf,-sys_admin,-perfmon \
                  --inh-caps=-bpf,-sys_admin,-perfmon \"$@\"";
    let recorder = home.recorder(&["--cold", "--", "perl", "-e", &perl_read(&file, 3 * PAGE, 2 * PAGE)]);
    recorder.apart(script).ok().says("recording by residency instead of BPF");
    let profile = home.load();
    let found = ranges(entry(&profile, &file));
    assert!(found.iter().any(|range| range.start <= 3 * PAGE && 5 * PAGE <= range.end), "{found:?}");
    assert_eq!(profile.recording.precision, Precision::UpperBound);
}

/// A recorder whose standard error has reported that it observes.
fn start_observing(home: &Home, arguments: &[&str]) -> Running {
    let mut recorder = home.recorder(&[&["--source", "ftrace"], arguments].concat()).start();
    recorder.says("observing; ");
    recorder
}

/// The instance of a recorder, from its undo note.
fn instance_of(process: u32) -> Option<PathBuf> {
    ahead_process::undo::notes().unwrap().into_iter().find_map(|(_, note)| match note.action {
        Action::Remove { path, .. } if note.owner.pid == process && path.to_str()?.contains("/instances/") => {
            Some(path)
        }
        _ => None,
    })
}

#[test]
fn restore_removes_the_instance_of_a_killed_recording() {
    if !has_ftrace() {
        return;
    }
    // A guardian restores settings of the whole machine.
    let _alone = alone();
    let home = Home::new();
    let mut recorder = start_observing(&home, &["--all"]);
    let instance = instance_of(recorder.pid()).expect("the instance has a note");
    // Stays open when the mount is detached.
    let instances = File::open(instance.parent().unwrap()).unwrap();
    let seen = PathBuf::from(format!("/proc/self/fd/{}", instances.as_raw_fd())).join(instance.file_name().unwrap());
    let is_on = || fs::read_to_string(seen.join("tracing_on")).unwrap();
    assert_eq!(is_on(), "1\n");
    guardians(recorder.pid()).into_iter().for_each(|guardian| signal(guardian, "KILL"));
    recorder.kill();
    assert!(seen.exists() && is_on() == "1\n");
    ahead(["restore"]).ok();
    assert!(!seen.exists() && !instance.exists());
    let mounts = ahead_sys::mounts::own().unwrap();
    assert!(!mounts.iter().any(|mount| mount.mount_point.starts_with(b"/run/ahead/tracefs-")));
}

#[test]
fn events_that_do_not_fit_into_the_buffers_are_counted() {
    let Some(volume) = traced_volume("ext4") else { return };
    let _still = shared();
    let file = volume.pages("data", 1);
    // Each read of one byte is an event. All buffers together hold 64 MiB, 1.5 million events.
    let read = format!("open(F,'<',q({}));for(1..2000000){{sysseek(F,0,0);sysread(F,$b,1)}}", file.display());
    let script = "read start; perl -e \"$0\"; echo done; read end";
    let mut reader = program("sh").args(["-c", script, &read]).open_input().start();
    let home = Home::new();
    let recorder = start_observing(&home, &["--pid", &reader.pid().to_string()]);
    recorder.signal("STOP");
    wait_until("the stopped recorder", || process::stat_field(recorder.pid(), 0).is_some_and(|state| state == "T"));
    assert_eq!(reader.ask("start"), "done");
    recorder.signal("CONT");
    reader.end();
    recorder.ends_with(0).says("events LOST");
    let profile = home.load();
    assert!(profile.recording.lost_events > 100_000, "{}", profile.recording.lost_events);
    assert_eq!(ranges(entry(&profile, &file)), [0..PAGE]);
}

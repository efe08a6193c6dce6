//! Recordings without BPF: by ftrace, and by residency.

use super::killed::guardians;
use super::perl_read;
use super::rig::{Home, PAGE, Volume, ahead, can_record, entry, find, ranges, undisturbed, with_namespaces};
use ahead_profile::{Precision, Profile};
use ahead_undo::Action;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The used ranges of files, by path.
type Used = Vec<(PathBuf, Vec<Range<u64>>)>;

/// Whether ftrace can be used here; prints the reason if not.
fn has_ftrace() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        if !can_record() {
            return false;
        }
        let probe =
            ahead().args(["record", "--source", "ftrace", "-o", "/dev/shm/ahead-ftrace.ahead", "true"]).output();
        let probe = probe.unwrap();
        let _ = fs::remove_file("/dev/shm/ahead-ftrace.ahead");
        if probe.status.code() == Some(77) {
            eprintln!("skipped: {}", String::from_utf8_lossy(&probe.stderr));
            return false;
        }
        assert!(probe.status.success(), "{probe:?}");
        true
    })
}

/// The used pages of the files on a volume, by path.
fn used(profile: &Profile, volume: &Volume) -> Used {
    use std::os::unix::ffi::OsStrExt;
    let path = |file: &ahead_profile::File| PathBuf::from(std::ffi::OsStr::from_bytes(&file.path));
    let on_volume = profile.files.iter().filter(|file| path(file).starts_with(&volume.root));
    let mut used: Vec<_> = on_volume.map(|file| (path(file), ranges(file))).collect();
    used.sort_by(|one, other| one.0.cmp(&other.0));
    used
}

/// Files on the volume, and a program that reads and maps known pages of them.
fn known_reads(volume: &Volume) -> ([String; 5], Used) {
    let (data, odd) = (volume.file("data", 300), volume.file("deep/er/odd", 9));
    fs::File::options().write(true).open(&odd).unwrap().set_len(8 * PAGE + 100).unwrap();
    volume.file("untouched", 10);
    let reads = [perl_read(&data, 5 * PAGE + 1, 2 * PAGE), perl_read(&data, 100 * PAGE, 64 * PAGE)].concat();
    let script = "perl -e \"$0\"; cat \"$1\" > /dev/null";
    let command = ["sh", "-c", script, &reads, odd.to_str().unwrap()].map(str::to_owned);
    let expected = vec![(data, vec![5 * PAGE..8 * PAGE, 100 * PAGE..164 * PAGE]), (odd, vec![0..8 * PAGE + 100])];
    (command, expected)
}

#[test]
fn a_cold_recording_by_ftrace_has_the_pages_of_one_by_bpf() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(volume) = Volume::new(fs_type).filter(|_| has_ftrace()) else { continue };
        let (command, expected) = known_reads(&volume);
        let home = Home::new();
        let (_, by_bpf) = home.record(&["--cold", "--precise"], &command);
        let (output, by_ftrace) = home.record(&["--cold", "--precise", "--source", "ftrace"], &command);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("recording by ftrace: "), "{message}");
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
fn metadata_pages(profile: &Profile, volume: &Volume) -> Vec<Range<u64>> {
    use std::os::unix::ffi::OsStrExt;
    let is_its = |metadata: &&ahead_profile::Metadata| metadata.mount_point == volume.root.as_os_str().as_bytes();
    let extents = profile.metadata.iter().filter(is_its).flat_map(|metadata| &metadata.extents);
    let mut pages: Vec<_> = extents.map(|e| e.offset_bytes..e.offset_bytes + e.length_bytes).collect();
    pages.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in pages {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Two files with the same device and inode number, as events have them.
#[test]
fn files_of_two_subvolumes_are_distinguished_by_residency() {
    let Some(volume) = Volume::new("btrfs").filter(|_| has_ftrace()) else { return };
    for name in ["one", "two"] {
        let made = Command::new("btrfs").args(["subvolume", "create"]).arg(volume.root.join(name)).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return eprintln!("skipped: no btrfs program");
        }
    }
    let (read, other) = (volume.file("one/file", 20), volume.file("two/file", 20));
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(inode(&read), inode(&other));
    let home = Home::new();
    let script = perl_read(&read, 3 * PAGE, 2 * PAGE);
    let (_, profile) = home.record(&["--cold", "--source", "ftrace"], &["perl", "-e", &script]);
    assert_eq!(used(&profile, &volume), [(read, vec![3 * PAGE..5 * PAGE])]);
}

#[test]
fn a_warm_recording_by_ftrace_follows_children_and_no_strangers() {
    let Some(volume) = Volume::new("ext4").filter(|_| has_ftrace()) else { return };
    let _still = undisturbed();
    let [child, grandchild, stranger] = ["child", "grandchild", "stranger"].map(|name| volume.file(name, 4));
    let mut other = Command::new("sh")
        .args(["-c", &format!("while :; do cat {} > /dev/null 2>&1; done", stranger.display())])
        .spawn()
        .unwrap();
    let script =
        format!("(cat {} > /dev/null; sh -c 'cat {} > /dev/null; :'); :", child.display(), grandchild.display());
    let home = Home::new();
    let (_, profile) = home.record(&["--source", "ftrace"], &["sh", "-c", &script]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(used(&profile, &volume), [(child, vec![0..4 * PAGE]), (grandchild, vec![0..4 * PAGE])]);
    assert_eq!((profile.recording.precision, profile.recording.lost_events), (Precision::UpperBound, 0));
}

#[test]
fn a_recording_by_residency_contains_the_used_pages() {
    for fs_type in ["ext4", "btrfs"] {
        let Some(volume) = Volume::new(fs_type) else { continue };
        let (command, expected) = known_reads(&volume);
        let home = Home::new();
        let (output, profile) = home.record(&["--cold", "--source", "resident"], &command);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("recording by residency: an upper bound"), "{message}");
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
    let _alone = with_namespaces();
    let home = Home::new();
    let script = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["record", "-o"])
        .arg(home.profile())
        .args(["--", "cat", "/proc/self/exe"])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains("recording by ftrace instead of BPF") && message.contains("type information"),
        "{message}"
    );
    assert!(home.load().recording.source.starts_with("ftrace "));
}

/// Neither type information nor tracefs, and no right to mount it.
#[test]
fn residency_is_used_where_neither_bpf_nor_ftrace_is_possible() {
    let _alone = with_namespaces();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = volume.file("data", 20);
    let home = Home::new();
    // A recorder of another test may have mounted tracefs elsewhere, and the new namespace has a copy of it.
    let script = "umount -l -a -t tracefs && mount -t tmpfs none /sys/kernel && exec setpriv --bounding-set=-bpf,-sys_admin,-perfmon \
                  --inh-caps=-bpf,-sys_admin,-perfmon \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["record", "--cold", "-o"])
        .arg(home.profile())
        .args(["--", "perl", "-e", &perl_read(&file, 3 * PAGE, 2 * PAGE)])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("recording by residency instead of BPF"), "{message}");
    let profile = home.load();
    let found = ranges(entry(&profile, &file));
    assert!(found.iter().any(|range| range.start <= 3 * PAGE && 5 * PAGE <= range.end), "{found:?}");
    assert_eq!(profile.recording.precision, Precision::UpperBound);
}

/// A recorder whose standard error has reported that it observes.
fn start_observing(home: &Home, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut recorder = ahead()
        .args(["record", "--source", "ftrace", "-o"])
        .arg(home.profile())
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("observing; ") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).unwrap(), 0, "the recorder ended early");
    }
    (recorder, errors)
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// The instance of a recorder, from its undo note.
fn instance_of(process: u32) -> Option<PathBuf> {
    ahead_undo::notes().unwrap().into_iter().find_map(|(_, note)| match note.action {
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
    let _alone = crate::machine_lock::alone();
    let home = Home::new();
    let (mut recorder, _errors) = start_observing(&home, &["--all"]);
    let instance = instance_of(recorder.id()).expect("the instance has a note");
    // Stays open when the mount is detached.
    let instances = File::open(instance.parent().unwrap()).unwrap();
    let seen = PathBuf::from(format!("/proc/self/fd/{}", instances.as_raw_fd())).join(instance.file_name().unwrap());
    let is_on = || fs::read_to_string(seen.join("tracing_on")).unwrap();
    assert_eq!(is_on(), "1\n");
    guardians(recorder.id()).into_iter().for_each(|guardian| signal(guardian, "-KILL"));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(seen.exists() && is_on() == "1\n");
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert!(!seen.exists() && !instance.exists());
    let mounts = ahead_sys::mounts::own().unwrap();
    assert!(!mounts.iter().any(|mount| mount.mount_point.starts_with(b"/run/ahead/tracefs-")));
}

#[test]
fn events_that_do_not_fit_into_the_buffers_are_counted() {
    let Some(volume) = Volume::new("ext4").filter(|_| has_ftrace()) else { return };
    let _still = undisturbed();
    let file = volume.file("data", 1);
    // Each read of one byte is an event. All buffers together hold 64 MiB, 1.5 million events.
    let read = format!("open(F,'<',q({}));for(1..2000000){{sysseek(F,0,0);sysread(F,$b,1)}}", file.display());
    let script = "read start; perl -e \"$0\"; echo done; read end";
    let mut program =
        Command::new("sh").args(["-c", script, &read]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let home = Home::new();
    let (mut recorder, mut errors) = start_observing(&home, &["--pid", &program.id().to_string()]);
    signal(recorder.id(), "-STOP");
    let stat = format!("/proc/{}/stat", recorder.id());
    crate::crash::wait_until("the stopped recorder", || fs::read_to_string(&stat).unwrap().contains(") T "));
    let mut input = program.stdin.take().unwrap();
    writeln!(input, "start").unwrap();
    let mut done = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut done).unwrap();
    signal(recorder.id(), "-CONT");
    drop(input);
    program.wait().unwrap();
    let mut message = String::new();
    errors.read_to_string(&mut message).unwrap();
    assert!(recorder.wait().unwrap().success() && done == "done\n", "{message}");
    let profile = home.load();
    assert!(profile.recording.lost_events > 100_000, "{}", profile.recording.lost_events);
    assert!(message.contains("events LOST"), "{message}");
    assert_eq!(ranges(entry(&profile, &file)), [0..PAGE]);
}

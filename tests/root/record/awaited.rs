//! The next start of a program, which any process starts: followed from its exec on, once.

use super::rig::{entry, find, ranges, volume_undisturbed};
use ahead::Recorder;
use ahead::record::{ArmedRecorder, ProgramFile, Recording};
use ahead_model::DeviceNumber;
use ahead_profile::Precision;
use ahead_tests::rig::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::process::{Child, Command, Stdio};

/// Locked memory of the observer: a service has room for two beside its other tables.
const MEMORY_BYTES: u64 = 4 << 20;

/// A shell on a volume, and the recorder that waits for it.
struct Awaited {
    volume: Mounted,
    shell: PathBuf,
    recorder: ArmedRecorder,
}

impl Awaited {
    /// On the volume are files of three pages with these names.
    fn new(recorder: Recorder, names: &[&str]) -> Option<Awaited> {
        let volume = volume_undisturbed("ext4")?;
        let files: Vec<PathBuf> = names.iter().map(|name| volume.pages(name, 3)).collect();
        let shell = volume.root.join("awaited-shell");
        fs::copy(fs::canonicalize("/bin/sh").unwrap(), &shell).unwrap();
        let file = fs::metadata(&shell).unwrap();
        // What was created within a tick of the clock before the start may be the start's.
        let is_old = |file: &PathBuf| {
            fs::metadata(file).unwrap().created().unwrap().elapsed().unwrap() > Duration::from_millis(100)
        };
        wait_until("a later tick of the clock", || files.iter().all(is_old));
        let program = ProgramFile { device: DeviceNumber::from_stat(file.dev()), inode: file.ino() };
        let recorder = recorder.arm(&[program], MEMORY_BYTES).unwrap();
        assert!(recorder.first().is_none());
        Some(Awaited { volume, shell, recorder })
    }

    fn start(&self, script: &str) -> Child {
        Command::new(&self.shell)
            .args(["-c", script])
            .stdin(Stdio::null())
            .current_dir(&self.volume.root)
            .spawn()
            .unwrap()
    }

    fn finish(self) -> (Recording, Mounted, PathBuf) {
        poll(&mut [PollFd::new(&self.recorder, PollFlags::IN)], None).unwrap();
        assert!(self.recorder.first().is_some());
        (self.recorder.finish(None, &|_| ()).unwrap().unwrap(), self.volume, self.shell)
    }
}

#[test]
fn one_of_several_parallel_starts_is_observed_with_its_command_and_all_its_reads() {
    const NAMES: [&str; 6] = ["read-0", "read-1", "read-2", "read-3", "read-4", "read-by-another"];
    let Some(awaited) = Awaited::new(Recorder::default(), &NAMES) else { return };
    let files: Vec<PathBuf> = NAMES[..5].iter().map(|name| awaited.volume.root.join(name)).collect();
    // Not followed: another program.
    program("cat").arg(awaited.volume.root.join(NAMES[5])).ok();
    let scripts: Vec<String> = files.iter().map(|file| format!("cat {} > /dev/null; :", file.display())).collect();
    let mut children: Vec<Child> = scripts.iter().map(|script| awaited.start(script)).collect();
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    let first = {
        poll(&mut [PollFd::new(&awaited.recorder, PollFlags::IN)], None).unwrap();
        awaited.recorder.first().unwrap().clone()
    };
    let (recording, volume, shell) = awaited.finish();
    let winner = pids.iter().position(|pid| *pid == first.pid).expect("one of the children");
    let profile = &recording.profile;
    for (number, file) in files.iter().enumerate() {
        let used = find(profile, file).map(ranges);
        assert_eq!(used, (number == winner).then(|| vec![0..3 * PAGE]), "{number}");
    }
    assert!(find(profile, &volume.root.join(NAMES[5])).is_none());
    assert_eq!(ranges(entry(profile, &shell))[0].start, 0, "the first page of the program");
    assert_eq!((profile.recording.precision, profile.recording.cold), (Precision::UpperBound, false));
    assert_eq!((profile.recording.lost_events, recording.runs), (0, 1));
    // A process that has ended at once has only the name that execve got.
    let command = &profile.recording.command;
    let shell = shell.as_os_str().as_bytes();
    assert_eq!(command[0], shell);
    if let [_, option, script] = &command[..] {
        assert_eq!((&option[..], &script[..]), (&b"-c"[..], scripts[winner].as_bytes()));
        assert_eq!(profile.recording.directory, volume.root.as_os_str().as_bytes());
        assert_eq!(first.uid, Some(0));
    }
}

/// The first process ends before its child has read.
#[test]
fn start_lasts_until_its_last_process_ends() {
    let Some(awaited) = Awaited::new(Recorder::default(), &["read-last"]) else { return };
    let file = awaited.volume.root.join("read-last");
    let order = awaited.volume.root.join("order");
    make_fifo(&order);
    let mut child =
        awaited.start(&format!("(read x < {}; cat {} > /dev/null) & exit 0", order.display(), file.display()));
    assert!(child.wait().unwrap().success());
    fs::write(&order, "go\n").unwrap();
    let (recording, _volume, _) = awaited.finish();
    assert_eq!(ranges(entry(&recording.profile, &file)), vec![0..3 * PAGE]);
}

#[test]
fn window_ends_the_observation_of_a_running_program() {
    let window = Duration::from_millis(300);
    let Some(awaited) = Awaited::new(Recorder::default().duration(Some(window)), &[]) else { return };
    let shell = program(&awaited.shell).open_input().start();
    let (recording, ..) = awaited.finish();
    assert_eq!(recording.duration, window);
    assert!(recording.profile.recording.duration_us == 300_000 && recording.is_complete());
    drop(shell);
}

#[test]
fn recorder_whose_program_is_not_started_has_no_recording() {
    let Some(awaited) = Awaited::new(Recorder::default(), &[]) else { return };
    program("true").ok();
    assert!(awaited.recorder.finish(None, &|_| ()).unwrap().is_none());
}

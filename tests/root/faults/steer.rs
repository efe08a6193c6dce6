//! `ahead steer` as a user: its fetching for readers of other processes.
//!
//! A reader goes backward on a file, beside a fault of its device or of `steer`. It reads its bytes, and the next reader on a disk that works gets
//! its pages fetched. Without memory `steer` ends, as by a kill.

use super::{BAD, LONGEST};
use crate::library::target::{ColdFile, MIB, PAGE, Target, content};
use crate::steer::rig::{BACKWARD, Steering, Victim, backward_sum, is_act};
use ahead_tests::rig::group::Group;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::process::open_descriptors;
use ahead_tests::rig::silent_files::{Releasing, SilentFiles};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

const FILE_BYTES: u64 = 16 * MIB;

/// As `BACKWARD`, and goes on after errors.
const BACKWARD_ON: &str = "step()
for at in range(pages*4096-16384,-1,-16384):
    try: os.pread(f,16384,at)
    except OSError: pass
step()";

/// A `steer` for the files of some mounts, and a file on a disk that works.
struct Scene {
    steering: Steering,
    good: ColdFile,
}

impl Scene {
    /// `None`, with the reason printed, where nothing can be steered.
    fn new(target: &mut Target, mounts: &[&Path]) -> Option<Scene> {
        let path = target.other_disk("faults-steer-good").join("good");
        let good = ColdFile { path, content: content(FILE_BYTES) };
        fs::write(&good.path, &good.content).unwrap();
        let mounts = mounts.iter().copied().chain(good.path.parent());
        let rule = |mount: &Path| format!("[[include]]\ncommand = 'python3*'\nmount = '{}'\n", mount.display());
        let steering = Steering::start(&mounts.map(rule).collect::<String>(), &[])?;
        Some(Scene { steering, good })
    }

    /// A reader of the good file reads its bytes.
    fn read(&self) -> u32 {
        let mut victim = Victim::start(BACKWARD, &self.good.path);
        assert_eq!(victim.go_on(), backward_sum(&self.good.content));
        victim.pid()
    }

    /// As [`Scene::read`], and its pages are fetched.
    fn fetches(&mut self, what: &str) {
        let pid = self.read();
        self.steering.wait_for(what, |entry| is_act(entry, pid, "fetch", "done"));
    }

    fn end(self) {
        let began = Instant::now();
        self.steering.stop();
        assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    }
}

#[test]
fn steer_fetches_beside_devices_that_hang_fail_are_slow_or_vanish() {
    let Some(mut target) = Target::alone("faults-steer") else { return };
    let bad = target.cold_file("bad", FILE_BYTES);
    let silent = SilentFiles::new();
    let _releasing = Releasing(&silent);
    let root = target.root.clone();
    let Some(mut scene) = Scene::new(&mut target, &[&root, &silent.root]) else { return };
    scene.fetches("a fetch without a fault");
    let mut hanging = Victim::start(BACKWARD_ON, &silent.root.join("file"));
    hanging.release();
    wait_until("a request is held", || silent.held() > 0);
    scene.fetches("a fetch beside a device that hangs");
    let before = target.failed();
    target.fail(&bad, BAD, PAGE);
    Victim::start(BACKWARD_ON, &bad.path).go_on();
    assert!(target.failed() > before);
    scene.fetches("a fetch beside a device that fails");
    target.heal();
    target.stall(30);
    let mut slow = Victim::start(BACKWARD_ON, &bad.path);
    slow.release();
    scene.fetches("a fetch beside a slow device");
    target.vanish();
    scene.fetches("a fetch beside a device that has vanished");
    scene.end();
    assert!(silent.held() > 0, "the requests still hang");
}

#[test]
fn steer_without_threads_or_descriptors_fetches_when_there_are_some_again() {
    let Some(mut target) = Target::alone("faults-steer-scarce") else { return };
    let Some(group) = Group::with_processes(1) else { return };
    let Some(mut scene) = Scene::new(&mut target, &[]) else { return };
    group.add(scene.steering.pid());
    scene.read();
    fs::write(group.0.join("pids.max"), "max").unwrap();
    scene.fetches("a fetch after there were no threads");
    let pid = Pid::from_raw(scene.steering.pid() as i32);
    let open = open_descriptors(scene.steering.pid()).len() as u64;
    let limit = Rlimit { current: Some(open), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, limit).unwrap();
    scene.read();
    prlimit(pid, Resource::Nofile, before).unwrap();
    scene.fetches("a fetch after there were no descriptors");
    scene.end();
}

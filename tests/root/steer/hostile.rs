//! `ahead steer` beside programs that attack it (`attacker.c`): a descriptor leads to another file for whom looks it up.

use super::faults::assert_steers;
use super::rig::{Disk, FAULTS, Steering, Victim, is_act};
use ahead_tests::rig::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of the FUSE device.
const FUSE: (u32, u32) = (10, 229);

/// Rounds of an attacker, each with an act or several.
const ROUNDS: usize = 40;

fn attacker() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/root/steer/attacker.c");
        compiled(Path::new(source), &["-O1", "-pthread"])
    })
}

/// An attacker, which ends with this value.
struct Attacker {
    running: Running,
    _home: tempfile::TempDir,
}

impl Attacker {
    /// `None`, with the reason printed, where users may have no private FUSE server. `third`: `None`: a directory for the mount.
    fn start(mode: &str, file: &Path, third: Option<&Path>) -> Option<Attacker> {
        let home = tempfile::tempdir().unwrap();
        let [mountpoint] = make_directories(home.path(), ["mnt"]);
        let fuse = home.path().join("fuse");
        mknodat(CWD, &fuse, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(FUSE.0, FUSE.1)).unwrap();
        for (path, mode) in [(home.path(), 0o755), (&fuse, 0o666), (&mountpoint, 0o777)] {
            set_mode(path, mode);
        }
        let attacker = program(attacker()).arg(mode).arg(file).arg(third.unwrap_or(&mountpoint)).env("FUSE_DEV", &fuse);
        let mut running = attacker.in_own_process_group().start();
        let first = running.line();
        if first.starts_with("skipped") {
            eprintln!("{first}");
            return None;
        }
        assert_eq!(first, "round 1");
        Some(Attacker { running, _home: home })
    }

    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            let line = self.running.line();
            assert!(line.starts_with("round"), "{line}");
        }
    }
}

fn rules(disk: &Disk) -> String {
    format!("{}[[include]]\ncommand = 'attacker'\n", disk.rules())
}

/// Regression: the number of the thread's table was looked up in that of the process. The main thread took a file of the user's own FUSE server,
/// and waited for that server to close it, until the end of time and whatever signal it got.
#[test]
fn descriptor_of_another_table_does_not_freeze_the_steering() {
    attack("flush", |steering, attacker| {
        let pid = attacker.running.pid();
        steering.wait_for("an act", |entry| entry["pid"] == pid && entry["act"] == "window");
        attacker.rounds(ROUNDS / 4);
    });
}

/// Regression: the file behind a descriptor was exchanged after the decision.
#[test]
fn exchanged_descriptor_does_not_freeze_the_steering() {
    attack("race", |_, attacker| attacker.rounds(ROUNDS));
}

/// Regression: of a file of any overlay file system the inode number alone was compared. A user can put one above an own FUSE server: the threads that
/// opened its file waited for that server, and the steering could not end.
#[test]
fn overlay_of_a_user_is_not_opened() {
    attack("layer", |steering, attacker| {
        let pid = attacker.running.pid();
        steering.wait_for("a fetch", |entry| entry["pid"] == pid && entry["act"] == "fetch");
        attacker.rounds(ROUNDS / 2);
    });
}

fn attack(mode: &str, during: impl FnOnce(&mut Steering, &mut Attacker)) {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.quick_file();
    let Some(mut steering) = Steering::start(&rules(&disk), &[]) else { return };
    // Dropped before the steering: its server's end releases what waits for it.
    let Some(mut attacker) = Attacker::start(mode, &path, None) else { return };
    during(&mut steering, &mut attacker);
    assert_steers(&mut steering, &disk, &path);
    // It ends at once while the server is still silent.
    let (_, summary) = steering.stop();
    assert!(summary["windows_set"].as_u64() > Some(0), "{summary}");
}

/// Regression: root opened a block device that the user may not open, and kept it open; other files were opened, too, before they were compared.
#[test]
fn file_that_the_kernel_did_not_read_is_not_opened() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.quick_file();
    let Some(mut steering) = Steering::start(&rules(&disk), &[]) else { return };
    let node = ahead_sys::openat::block_device_node(disk.mounted.number().key()).unwrap();
    let Some(mut attacker) = Attacker::start("device", &path, Some(&node)) else { return };
    let pid = attacker.running.pid();
    let is_fetch = |entry: &Value| entry["pid"] == pid && entry["act"] == "fetch";
    let steering_pid = steering.pid();
    let opens_device = || process::open_descriptors(steering_pid).contains(&node);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // What is open for a second is seen by one that looks all the time.
        let looks = scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                if opens_device() {
                    return true;
                }
                std::thread::yield_now();
            }
            false
        });
        steering.wait_for("a fetch", is_fetch);
        attacker.rounds(ROUNDS / 8);
        has_ended.store(true, Ordering::Relaxed);
        assert!(!looks.join().unwrap(), "{} was opened", node.display());
    });
    steering.stop();
}

/// Regression: a name that is not UTF-8 did not match, nor did a file that is deleted.
#[test]
fn excluded_path_holds_for_names_that_are_not_text_and_for_deleted_files() {
    let Some(disk) = Disk::new("ext4") else { return };
    let root = disk.mounted.root.display();
    let exclude =
        format!("[[exclude]]\npath = '{root}/?t?.db'\n[[exclude]]\npath = '{root}/deleted.db'\n{}", disk.rules());
    let Some(mut steering) = Steering::start(&exclude, &[]) else { return };
    // Until the end of the test: an open file at the address of an excluded one, of the same inode, would for a second count as that one. Each
    // has its own file, because mapped pages are not evicted.
    let mut victims = Vec::new();
    for (name, script) in
        [(&b"\xe9t\xe9.db"[..], FAULTS.to_owned()), (b"deleted.db", format!("os.unlink(sys.argv[1])\n{}", FAULTS))]
    {
        let path = disk.mounted.root.join(std::ffi::OsStr::from_bytes(name));
        fs::rename(disk.quick_file(), &path).unwrap();
        let mut victim = Victim::start(&script, &path);
        victim.go_on();
        let pid = victim.pid();
        // Before it, a cold library or the shell that starts the program may be refused, which no rule includes.
        steering.wait_for("a refusal by the rule", |entry| {
            is_act(entry, pid, "none", "refused") && entry["reason"].as_str().unwrap().contains("excluded by the rule")
        });
        assert!(!steering.log.iter().any(|entry| entry["pid"] == pid && entry["act"] == "window"));
        victims.push(victim);
    }
    assert_steers(&mut steering, &disk, &disk.quick_file());
    drop(victims);
    steering.stop();
}

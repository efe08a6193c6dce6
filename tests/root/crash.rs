//! A command killed at any moment leaves nothing. `ahead` (and sometimes a disk's daemon, too) gets SIGKILL after its n-th
//! noted change; then `ahead restore` must restore the machine. A printed seed determines n and all other choices. A run
//! without a kill shows first how many changes a command notes.

use ahead_model::random::SplitMix64;
use ahead_process::undo::{Action, Note, ProcessId};
use ahead_sys::{holders, loopdev, mounting};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::process::kill_if_alive;
use ahead_tests::rig::program::signal_of;
use std::collections::BTreeSet;
use std::process::ExitStatus;

/// The seed to repeat a run: `AHEAD_TEST_SEED=… cargo test …`.
const SEED: &str = "AHEAD_TEST_SEED";

/// Rounds of create, attach, detach and a recording each. More rounds, up to the limit, follow if a command ended before its kill.
const ROUNDS: u64 = 2;
const MOST_ROUNDS: u64 = 6;

/// A change before the last of `count`: after the last, a command may end before the kill.
fn change(random: &mut SplitMix64, count: u64) -> u64 {
    assert!(count > 1, "only {count} changes were seen");
    1 + random.below(count - 1)
}

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().map(|text| text.parse().expect("a seed is a number"));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = given.unwrap_or(now);
    eprintln!("{SEED}={seed}");
    seed
}

/// The processes that have a disk's log open, noted as owner or not: the daemon, which opens it before its start, and
/// its children.
pub fn daemons(disk: &str) -> impl Iterator<Item = ProcessId> {
    let log = Path::new("/run/ahead/disk").join(format!("{disk}.log"));
    holders::of(&log).into_iter().filter_map(|holder| ProcessId::of(holder.pid).unwrap())
}

/// The changes that a command has noted, and its process.
#[derive(Default)]
struct Seen {
    files: BTreeSet<PathBuf>,
    owners: Vec<ProcessId>,
    settings: Vec<(PathBuf, String)>,
}

impl Seen {
    /// Reads the notes that this process wrote.
    fn look(&mut self, pid: u32) {
        let writer = format!("-{pid}-");
        for (path, Note { owner, action, .. }) in ahead_process::undo::notes().unwrap() {
            if !path.file_name().unwrap().to_str().unwrap().contains(&writer) {
                continue;
            }
            if !self.owners.contains(&owner) {
                self.owners.push(owner);
            }
            if let (true, Action::SetFile { path, old, .. }) = (self.files.insert(path), action) {
                self.settings.push((path, old));
            }
        }
    }
}

/// Kills a command after enough changes, or waits for its end. Also returns its exit status.
fn kill_when(command: Program, is_far_enough: impl Fn(&Seen) -> bool) -> (Seen, ExitStatus) {
    watch(command.start(), is_far_enough)
}

fn watch(mut running: Running, is_far_enough: impl Fn(&Seen) -> bool) -> (Seen, ExitStatus) {
    let mut seen = Seen::default();
    wait_until("the command", || {
        let has_ended = running.has_ended();
        seen.look(running.pid());
        has_ended || is_far_enough(&seen)
    });
    (seen, running.kill())
}

/// Whether the command was killed before its end.
fn was_killed(ended: ExitStatus) -> bool {
    signal_of(ended) == Some(9)
}

/// Number of visible changes that a command notes without a kill.
fn count(command: Program) -> u64 {
    let what = command.to_string();
    let (seen, ended) = kill_when(command, |_| false);
    assert!(ended.success(), "{what}: {ended}");
    seen.count()
}

impl Seen {
    fn count(&self) -> u64 {
        self.files.len() as u64
    }
}

/// A directory for one disk.
struct Place {
    directory: tempfile::TempDir,
    name: String,
}

impl Place {
    fn new(number: u64) -> Place {
        let directory = in_memory();
        fs::create_dir(directory.path().join("mnt")).unwrap();
        Place { directory, name: format!("crash-{}-{number}", std::process::id()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, what: &str, more: &[&str]) -> Program {
        let command = ahead(["disk", what]).arg(self.path("x.img")).arg("--mount").arg(self.path("mnt"));
        command.args(["--name", &self.name, "--model", "ssd"]).args(more)
    }

    fn create(&self, filesystem: &str) -> Program {
        let size = if filesystem == "xfs" { "320M" } else { "128M" };
        self.command("create", &["--size", size, "--fs", filesystem])
    }

    /// Kills a command that makes the disk after `changes` noted changes, and optionally its daemon.
    fn kill_at(&self, changes: u64, command: Program, daemon_too: bool) -> (Seen, ExitStatus) {
        let killed = kill_when(command, |seen| seen.count() >= changes);
        if daemon_too {
            daemons(&self.name).for_each(kill_if_alive);
        }
        killed
    }

    /// Waits until these owners and the daemon end. The daemon of an unfinished disk ends without a request. That of a
    /// finished disk needs one, and may be ending already.
    fn restore(&self, owners: &[ProcessId]) {
        wait_until("the daemon's end", || {
            if let Ok(disk) = ahead_disk::find(&self.name) {
                let _ = ahead_disk::detach(&disk);
            }
            owners.iter().all(|owner| !owner.is_alive()) && daemons(&self.name).next().is_none()
        });
        restore();
        self.assert_gone();
        let notes = ahead_process::undo::notes().unwrap();
        let own: Vec<_> = notes.iter().filter(|(_, note)| owners.contains(&note.owner)).collect();
        assert!(own.is_empty(), "{own:?}");
    }

    fn assert_gone(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.name), "{mounts}");
        assert!(!mounting::is_mount_point(&self.path("mnt")).unwrap());
        let is_ours = |device: &Path| {
            let status = loopdev::status(device).unwrap();
            status.is_some_and(|status| status.backing.to_string_lossy().contains(&self.name))
        };
        // A mkfs process may keep the device open for a moment after the kill.
        let devices =
            || fs::read_dir("/sys/block").unwrap().map(|entry| Path::new("/dev").join(entry.unwrap().file_name()));
        wait_until("the loop device's end", || !devices().any(|device| is_ours(&device)));
        assert_eq!(names_with("/run/ahead/disk", &self.name), Vec::<String>::new());
    }
}

fn restore() {
    ahead(["restore"]).ok();
}

#[test]
fn commands_killed_at_any_moment_leave_nothing() {
    let Some(()) = needs_emulated_disks() else { return };
    let _machine = alone();
    let mut random = SplitMix64::new(seed());
    // Whether a kill preceded the end: of create, of attach, of a recording.
    let mut came = [false; 3];
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && came == [true; 3] {
            break;
        }
        let filesystem = ["ext4", "ext2", "btrfs", "xfs"][random.below(4) as usize];
        let place = Place::new(round * 2);
        let create_changes = count(place.create(filesystem));
        came[1] |= killed_attach_and_detach(&mut random, &place, filesystem);
        came[0] |= killed_create(&mut random, &Place::new(round * 2 + 1), filesystem, create_changes);
        came[2] |= killed_recording(&mut random);
    }
    assert_eq!(came, [true; 3], "no kill came in time");
}

fn killed_create(random: &mut SplitMix64, place: &Place, filesystem: &str, count: u64) -> bool {
    let (changes, daemon_too) = (change(random, count), random.below(2) == 0);
    eprintln!("create {filesystem}: killed at change {changes} of {count}, the daemon too: {daemon_too}");
    let (seen, ended) = place.kill_at(changes, place.create(filesystem), daemon_too);
    let image = place.path("x.img");
    let is_noted = |note: &Note| matches!(&note.action, Action::Remove { path, .. } if *path == image);
    // The image of a complete disk stays.
    let unfinished = ahead_process::undo::notes().unwrap().iter().any(|(_, note)| is_noted(note));
    place.restore(&seen.owners);
    assert!(!unfinished || !image.exists(), "the image is left");
    was_killed(ended)
}

/// Kills `attach` and `detach` of a disk.
fn killed_attach_and_detach(random: &mut SplitMix64, place: &Place, filesystem: &str) -> bool {
    let disk = ahead_disk::find(&place.name).unwrap();
    let (stage, daemon_too) = (random.below(4), random.below(2) == 0);
    eprintln!("detach {filesystem}: killed at stage {stage}, the daemon too: {daemon_too}");
    let mount = place.path("mnt");
    kill_when(ahead(["disk", "detach", &place.name]), |_| match stage {
        0 => true,
        1 => !mounting::is_mount_point(&mount).unwrap(),
        2 => loopdev::status(&disk.device).unwrap().is_none_or(|s| !s.backing.to_string_lossy().contains(&place.name)),
        _ => !disk.daemon.is_alive(),
    });
    if daemon_too {
        kill_if_alive(disk.daemon);
    }
    place.restore(&[disk.daemon]);
    let attach = || place.command("attach", &[]);
    let count = count(attach());
    place.restore(&[ahead_disk::find(&place.name).unwrap().daemon]);
    let (changes, daemon_too) = (change(random, count), random.below(2) == 0);
    eprintln!("attach {filesystem}: killed at change {changes} of {count}, the daemon too: {daemon_too}");
    let (seen, ended) = place.kill_at(changes, attach(), daemon_too);
    place.restore(&seen.owners);
    assert!(place.path("x.img").exists(), "the image is gone");
    was_killed(ended)
}

fn killed_recording(random: &mut SplitMix64) -> bool {
    let home = tempfile::tempdir().unwrap();
    let record = || {
        let record = ahead(["record", "--cold", "--precise", "-o"]).arg(home.path().join("p.ahead"));
        record.args(["--", "cat", "/bin/sh"])
    };
    let count = count(record());
    let changes = change(random, count);
    eprintln!("record: killed at change {changes} of {count}");
    let child = record().start();
    let own = format!("debugfs-{}-", child.pid());
    let (seen, ended) = watch(child, |seen| seen.count() >= changes);
    restore();
    let notes = ahead_process::undo::notes().unwrap();
    assert!(notes.iter().all(|(_, note)| !seen.owners.contains(&note.owner)), "{notes:?}");
    for (path, old) in &seen.settings {
        // Another recording on this machine may hold the same setting.
        let is_held =
            notes.iter().any(|(_, note)| matches!(&note.action, Action::SetFile { path: p, .. } if p == path));
        let now = fs::read_to_string(path).unwrap_or_else(|_| old.clone());
        assert!(is_held || now.trim() == old, "{} is {now} where {old} was", path.display());
    }
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&own));
    let left = |directory: &Path, name: &str| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|entry| entry.to_string_lossy().contains(name)).count()
    };
    assert_eq!((left("/run/ahead".as_ref(), &own), left(home.path(), ".tmp")), (0, 0));
    was_killed(ended)
}

//! The kill campaign of `make soak`: commands that change the machine get SIGKILL at random moments. After `ahead restore` the
//! machine must be unchanged.
//!
//! ```text
//!     snapshot ─▶ start a command ─▶ SIGKILL after a random time ─▶ its daemons end ─▶ ahead restore ─▶ snapshot: the same?
//!                 (record, compare,   (the command alone, or all                       (exit status 0)
//!                 disk, tune, bench)   that it has started)
//! ```
//!
//! The bystander is an emulated disk of another user with its own window and files, and a change that a running process has
//! noted. The commands must not touch it. The machine must be quiet: the snapshot covers the whole machine.
//!
//! `AHEAD_KILLS` is the number of kills (100); `AHEAD_TEST_SEED` repeats the moments of an earlier campaign.

mod commands;
mod snapshot;

use ahead_model::random::SplitMix64;
use ahead_process::undo::ProcessId;
use ahead_sys::{holders, machine};
use commands::{Kind, Scene};
use snapshot::Snapshot;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

/// The limit of each step. The slowest command takes two seconds on a quiet machine.
const LONGEST: Duration = Duration::from_secs(120);

/// The longest time before a kill. Later kills would mostly meet commands that wait for their jobs.
const LATEST_KILL: Duration = Duration::from_secs(4);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}: expected a number")))
}

fn main() -> ExitCode {
    if !machine::is_root() || !["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists()) {
        eprintln!("skipped: needs root, FUSE and loop devices");
        return ExitCode::from(77);
    }
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_nanos() as u64;
    let (seed, kills) = (number("AHEAD_TEST_SEED").unwrap_or(now), number("AHEAD_KILLS").unwrap_or(100));
    println!("kills: {kills} with AHEAD_TEST_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let scene = Scene::new();
    let durations: BTreeMap<Kind, Duration> = Kind::ALL.iter().map(|kind| (*kind, scene.undisturbed(*kind))).collect();
    let (before, began) = (Snapshot::take(&scene), Instant::now());
    let mut in_time: BTreeMap<Kind, (u64, u64)> = BTreeMap::new();
    for kill in 1..=kills {
        let kind = Kind::ALL[random.below(Kind::ALL.len() as u64) as usize];
        let span = durations[&kind].min(LATEST_KILL).as_micros() as u64;
        let (after, whom) = (Duration::from_micros(random.below(span + span / 10)), Whom::chosen(&mut random));
        let came = kill_one(&scene, kind, after, whom);
        let counts = in_time.entry(kind).or_default();
        *counts = (counts.0 + u64::from(came), counts.1 + 1);
        let differences = before.differences(&scene);
        if !differences.is_empty() {
            println!("FAILED at kill {kill}: {kind:?} after {after:?}, {whom:?}; AHEAD_TEST_SEED={seed}");
            differences.iter().for_each(|difference| println!("    {difference}"));
            return ExitCode::FAILURE;
        }
        if kill % 50 == 0 {
            println!("{kill} kills, {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    for (kind, (came, all)) in &in_time {
        println!("    {kind:?}: {all} kills, {came} before the command's own end");
    }
    println!(
        "{kills} kills, nothing left, nothing else touched; AHEAD_TEST_SEED={seed}, {:.0} s",
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// The processes that get the signal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whom {
    /// The command alone.
    Command,
    /// The command, and then all its descendants, daemons and guardians too.
    All,
}

impl Whom {
    fn chosen(random: &mut SplitMix64) -> Whom {
        if random.below(2) == 0 { Whom::Command } else { Whom::All }
    }
}

/// Starts a command, kills it after a time, and restores. Returns whether the kill came before the command's end.
fn kill_one(scene: &Scene, kind: Kind, after: Duration, whom: Whom) -> bool {
    scene.prepare(kind);
    let mut child = scene.command(kind).spawn().expect("the command starts");
    let command = ProcessId::of(child.id()).expect("a process exists until it is waited for");
    // Not a synchronisation: the moment of the kill is the random input.
    std::thread::sleep(after);
    let family = descendants(child.id());
    let came = child.try_wait().expect("wait for the command").is_none();
    end(&mut child);
    if whom == Whom::All {
        family.into_iter().chain(scene.daemons()).for_each(kill);
    }
    settle(scene, command);
    scene.restore();
    scene.clean_up(kind);
    came
}

fn end(child: &mut Child) {
    // The process may have ended already.
    let _ = child.kill();
    child.wait().expect("wait for the process");
}

fn kill(process: ProcessId) {
    // Another process may have the number by now.
    if process.is_alive() {
        let pid = rustix::process::Pid::from_raw(process.pid as i32).expect("a process has a number above 0");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Waits for the end of the command's processes. The daemon of an unfinished disk ends without a request; a finished disk is
/// detached; the recorded program and the workers end with their work.
fn settle(scene: &Scene, command: Option<ProcessId>) {
    let deadline = Instant::now() + LONGEST;
    loop {
        scene.detach();
        let notes = ahead_process::undo::notes().expect("read the notes");
        let owners =
            notes.iter().map(|(_, note)| note.owner).filter(|owner| owner.is_alive() && !scene.is_bystander(*owner));
        let left: Vec<ProcessId> = owners.chain(scene.own_processes()).chain(scene.daemons()).chain(command).collect();
        if left.iter().all(|process| !process.is_alive()) {
            return;
        }
        assert!(Instant::now() < deadline, "processes did not end: {left:?}");
        std::thread::yield_now();
    }
}

/// All descendants of a process.
fn descendants(pid: u32) -> Vec<ProcessId> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|child| child.parse().ok());
    children.flat_map(|child| ProcessId::of(child).ok().flatten().into_iter().chain(descendants(child))).collect()
}

/// Processes that have this file open. A daemon has its log open from before its start.
pub fn holders_of(path: &Path) -> Vec<ProcessId> {
    holders::of(path).into_iter().filter_map(|holder| ProcessId::of(holder.pid).ok().flatten()).collect()
}

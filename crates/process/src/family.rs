//! The descendants of a process: finding and ending them.
//!
//! An orphan is adopted by the nearest ancestor that is a subreaper ([`adopt_orphans`]), or else by init, where it cannot be
//! found. Processes start and end while the list is read: [`end`] repeats until there are none.

use ahead_sys::process_id::ProcessId;
use ahead_sys::{Error, Result, polling};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal};
use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Makes the calling process a subreaper: it adopts orphans among its descendants.
pub fn adopt_orphans() -> Result<()> {
    rustix::process::set_child_subreaper(Some(getpid())).map_err(|e| Error::io("become a subreaper", e))
}

/// The process set by [`leave_out`]; 0: none.
static HELPER: AtomicU32 = AtomicU32::new(0);

/// Excludes a child from the descendants: it serves this process, not the program. There is at most one.
pub fn leave_out(pid: u32) {
    HELPER.store(pid, Ordering::Relaxed);
}

fn is_helper(pid: u32) -> bool {
    pid != 0 && HELPER.load(Ordering::Relaxed) == pid
}

/// All living descendants of a process, the nearest first, without the process itself and the one set by [`leave_out`].
pub fn descendants(ancestor: u32) -> Result<Vec<ProcessId>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").map_err(|e| Error::io("list /proc", e))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(pid).filter(|_| !is_helper(pid)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut at) = (vec![ancestor], 0);
    while let Some(pid) = found.get(at) {
        // `remove` prevents duplicates.
        found.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    found[1..].iter().filter_map(|pid| ProcessId::of(*pid).transpose()).collect()
}

/// Field 4 of `/proc/PID/stat`, counted from the end of the command name, which may contain any character.
fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Grace period between SIGTERM and SIGKILL. systemd waits 90 s, but the user of a recording or measurement has asked for its end.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum number of passes. Descendants may start processes while others are ended.
const ROUNDS: u32 = 8;

/// Sends SIGTERM to all descendants of a process, and does not wait.
pub fn terminate(ancestor: u32) -> Result<()> {
    for process in descendants(ancestor)?.into_iter().filter_map(open) {
        // An error means that it has ended.
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
    Ok(())
}

/// Ends all descendants of a process: SIGTERM, and SIGKILL to those that still run after [`GRACE`].
pub fn end(ancestor: u32) -> Result<()> {
    let deadline = Instant::now() + GRACE;
    for _ in 0..ROUNDS {
        let living = descendants(ancestor)?;
        if living.is_empty() {
            return Ok(());
        }
        let opened: Vec<OwnedFd> = living.iter().filter_map(|process| open(*process)).collect();
        let signal = if Instant::now() < deadline { Signal::TERM } else { Signal::KILL };
        for process in &opened {
            // An error means that it has ended.
            let _ = pidfd_send_signal(process, signal);
        }
        wait_for(opened, if signal == Signal::TERM { deadline } else { Instant::now() + GRACE })?;
        reap(&living);
    }
    match descendants(ancestor)?.first() {
        None => Ok(()),
        Some(process) => {
            Err(Error::io(format!("end process {}", process.pid), std::io::Error::from(std::io::ErrorKind::TimedOut)))
        }
    }
}

fn open(process: ProcessId) -> Option<OwnedFd> {
    let opened = pidfd_open(Pid::from_raw(process.pid as i32)?, PidfdFlags::empty()).ok()?;
    // The descriptor pins the process. Before, its number may have been reused.
    process.is_alive().then_some(opened)
}

fn wait_for(processes: Vec<OwnedFd>, deadline: Instant) -> Result<()> {
    for process in processes {
        polling::until(&mut [PollFd::new(&process, PollFlags::IN)], Some(deadline))?;
    }
    Ok(())
}

/// Reaps the ended processes that this process has adopted, so that no zombies stay. For others, the call fails and their own
/// parent reaps them.
fn reap(ended: &[ProcessId]) {
    for process in ended.iter().filter(|process| !process.is_alive()) {
        let _ = rustix::process::waitpid(Pid::from_raw(process.pid as i32), WaitOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Child, Command, Ended, Signals};

    fn start(script: &str) -> Child {
        let command = Command::new(["sh", "-c", script]);
        let mut child = Child::spawn_held(&command).unwrap();
        child.release(&command).unwrap();
        child
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "nothing happened within 10 s");
            std::thread::yield_now();
        }
    }

    #[test]
    fn descendants_are_found_and_ended() {
        let signals = Signals::take().unwrap();
        let mut child = start("sleep 1000 & sh -c 'sleep 1000 & wait' & wait");
        let pid = child.pid();
        wait_until(|| descendants(pid).unwrap().len() == 3);
        let members = descendants(pid).unwrap();
        end(pid).unwrap();
        assert!(members.iter().all(|member| !member.is_alive()));
        assert_eq!(child.wait(&signals).unwrap(), Ended::Exited(0));
    }
}

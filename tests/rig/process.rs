//! Processes by their number: signals, children, open files, and what is noted for them in /run/ahead.

use std::fs;
use std::path::{Path, PathBuf};

/// Sends a signal: `INT`, `KILL`, `USR1`.
pub fn signal(pid: u32, name: &str) {
    use rustix::process::{Pid, Signal, kill_process};
    let named = match name {
        "ALRM" => Signal::ALARM,
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        // Others, as those of real time, by their number.
        number => return drop(super::program::program("kill").args(["-s", number, &pid.to_string()]).ok()),
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), named).unwrap_or_else(|error| panic!("SIG{name}: {error}"));
}

/// Kills a process that may have ended already.
pub fn kill_if_alive(process: ahead_process::undo::ProcessId) {
    // Another process may have the number by now.
    if process.is_alive() {
        let _ = std::panic::catch_unwind(|| signal(process.pid, "KILL"));
    }
}

/// The changes that are noted for a process.
pub fn notes_of(pid: u32) -> Vec<String> {
    let notes = ahead_process::undo::notes().unwrap().into_iter().filter(|(_, note)| note.owner.pid == pid);
    notes.map(|(_, note)| note.action.to_string()).collect()
}

/// The child processes of a process's main thread.
pub fn children(parent: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The threads of a process.
pub fn threads(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| task.path()).collect()
}

/// The open descriptors of a process: pipes and sockets by number, all others by path.
pub fn open_descriptors(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

/// Whether a process has this file open, or one below this directory, also a deleted one.
pub fn has_open_below(pid: u32, place: &Path) -> bool {
    open_descriptors(pid).iter().any(|open| open.starts_with(place))
}

/// A field of /proc/PID/stat; 0 is the first one after the program's name, which may contain spaces (proc_pid_stat(5)).
pub fn stat_field(pid: u32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(index).map(str::to_owned)
}

/// Whether a child has ended; it need not have been waited for.
pub fn has_ended(pid: u32) -> bool {
    stat_field(pid, 0).is_none_or(|state| state == "Z")
}

/// The guardians of a process, found by their arguments.
pub fn guardians(of: u32) -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
        words.windows(2).any(|pair| pair == [b"--after", of.to_string().as_bytes()])
    };
    processes.filter(is_one).collect()
}

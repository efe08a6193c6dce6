//! Who uses a file, a directory or a device: to name him where something cannot be taken down. Names only; what is
//! really in use, the kernel alone knows.
//!
//! Mapped files are not looked for (`/proc/PID/maps`): reading them waits for a lock that a process keeps while it waits
//! for a disk, and whoever takes one disk down must not hang on another. A program that runs from there is seen by its
//! executable.

use std::fs;
use std::path::{Path, PathBuf};

/// A process that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Name of its program, as the kernel has it (at most 15 bytes).
    pub name: String,
}

/// The processes that have this path, or something below it, open, or run or work there. Without root only one's own
/// are seen; a process of another pid namespace is never.
pub fn of(place: &Path) -> Vec<Holder> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    processes
        .filter(|(_, process)| holds(process, place))
        .map(|(pid, process)| {
            let name = fs::read(process.join("comm")).unwrap_or_default();
            Holder { pid, name: String::from_utf8_lossy(name.trim_ascii_end()).into_owned() }
        })
        .collect()
}

/// The links are read, never followed: what they lead to may be a file system that does not answer.
fn holds(process: &Path, place: &Path) -> bool {
    let links = ["cwd", "root", "exe"].map(|link| process.join(link)).into_iter();
    let below = |directory: &str| {
        let entries = fs::read_dir(process.join(directory)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    links.chain(below("fd")).any(|link| fs::read_link(link).is_ok_and(|path| path.starts_with(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_file_open_holds_it_and_its_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        // What another test has just forked has a copy of all that we have open.
        let is_held_by_us = |place: &Path| of(place).iter().any(|holder| holder.pid == std::process::id());
        assert!(!is_held_by_us(&home));
        let file = fs::File::create(home.join("x")).unwrap();
        for place in [home.clone(), home.join("x")] {
            assert!(is_held_by_us(&place));
        }
        assert!(!is_held_by_us(&home.join("y")));
        drop(file);
        assert!(!is_held_by_us(&home));
    }

    #[test]
    fn who_runs_from_there_is_named() {
        let home = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(home.path()).unwrap();
        // Not by us: what another test forks would have it open for writing for a moment, and it could not be run.
        let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(place.join("dozing")).status();
        assert!(copied.unwrap().success());
        let mut child = std::process::Command::new(place.join("dozing")).arg("1000").current_dir("/").spawn().unwrap();
        let found = of(&place);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [Holder { pid: child.id(), name: "dozing".into() }]);
    }
}

//! The processes that use a file, a directory or a device: for messages when a device cannot be detached. Only the
//! kernel knows all of these processes.
//!
//! Mapped files (`/proc/PID/maps`) are not searched: reading that file waits for a lock that a process holds while it waits for
//! a disk. Detaching one disk must not wait for another. A running program is found by its executable.

use std::fs;
use std::path::{Path, PathBuf};

/// A process that uses the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Name of its program, as the kernel has it (at most 15 bytes).
    pub name: String,
}

/// The processes that have this path or a file below it open, execute it, or have it as working or root directory. Without
/// root only the caller's own processes are found; processes of another pid namespace never are.
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

/// Reads the links and does not follow them: the target may be on a file system that does not answer.
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
    fn process_with_an_open_file_holds_it_and_its_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        // A process that another test has just forked has a copy of all our descriptors.
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
    fn process_that_executes_a_file_holds_it() {
        let home = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(home.path()).unwrap();
        // cp writes the copy: a process that another test forks could keep our descriptor open for writing, and the file could
        // not be executed.
        let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(place.join("dozing")).status();
        assert!(copied.unwrap().success());
        let mut child = std::process::Command::new(place.join("dozing")).arg("1000").current_dir("/").spawn().unwrap();
        let found = of(&place);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [Holder { pid: child.id(), name: "dozing".into() }]);
    }
}

//! The processes that use a file, a directory or a device: for messages when a device cannot be detached. Only the
//! kernel knows all of these processes. And the processes that have a file mapped, whose pages therefore stay in the page cache.
//!
//! [`of`] does not search mapped files (`/proc/PID/maps`): reading that file waits for a lock that a process holds while it waits for
//! a disk. Detaching one disk must not wait for another. A running program is found by its executable. [`mappings_of`] gives up after a time.

use crate::maps::{self, Area};
use crate::within::Patience;
use ahead_model::DeviceNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process that uses the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    processes.filter(|(_, process)| holds(process, place)).map(|(pid, _)| Holder::of_process(pid)).collect()
}

impl Holder {
    fn of_process(pid: u32) -> Holder {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        Holder { pid, name: String::from_utf8_lossy(name.trim_ascii_end()).into_owned() }
    }
}

/// A file that may be mapped.
#[derive(Clone, Debug)]
pub struct MappedFile {
    /// Its path without symbolic links.
    pub path: PathBuf,
    /// Device number, as stat(2) reports it.
    pub device: u64,
    pub inode: u64,
}

impl MappedFile {
    /// On btrfs and overlayfs a mapping has another device number than stat(2), so there the path decides.
    fn is_mapped_at(&self, area: &Area) -> bool {
        let is_same_device = area.device == DeviceNumber::from_key(self.device);
        area.inode == self.inode && (is_same_device || area.path.as_ref() == Some(&self.path))
    }
}

/// The processes that have a file mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mappings {
    /// Some of them, in order of their numbers.
    pub holders: Vec<Holder>,
    /// How many there are.
    pub processes: u64,
    /// How many of them have locked it in memory (mlock).
    pub locking: u64,
}

/// Maximum number of processes that are named for a file.
const NAMED_HOLDERS: usize = 8;
/// Maximum time for the mappings of one process. Reading them takes microseconds, unless the process waits for a disk while it changes them.
const MAPS_TIME: Duration = Duration::from_millis(200);
/// Maximum number of processes whose answer is waited for in vain.
const MAPS_WAITING: usize = 4;

/// For each file, the processes that have it mapped. Without root only the caller's own processes are found, and processes whose mappings
/// cannot be read in time are left out.
pub fn mappings_of(files: &[MappedFile]) -> Vec<Mappings> {
    let mut found = vec![Mappings::default(); files.len()];
    let mut by_inode = BTreeMap::<u64, Vec<usize>>::new();
    for (index, file) in files.iter().enumerate() {
        by_inode.entry(file.inode).or_default().push(index);
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let mut patience = Patience::new(MAPS_TIME, MAPS_WAITING);
    for pid in pids {
        let areas = patience.ask(move || maps::files_of(pid)).unwrap_or_default();
        let mut mapped = BTreeMap::<usize, Vec<usize>>::new();
        for area in &areas {
            for index in
                by_inode.get(&area.inode).into_iter().flatten().filter(|index| files[**index].is_mapped_at(area))
            {
                mapped.entry(*index).or_default().push(area.addresses.start);
            }
        }
        if mapped.is_empty() {
            continue;
        }
        let locked = patience.ask(move || maps::locked_of(pid)).unwrap_or_default();
        for (index, starts) in mapped {
            let file = &mut found[index];
            file.processes += 1;
            file.locking += u64::from(starts.iter().any(|start| locked.contains(start)));
            if file.holders.len() < NAMED_HOLDERS {
                file.holders.push(Holder::of_process(pid));
            }
        }
    }
    found
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
    fn process_that_maps_a_file_is_found_and_so_is_its_lock() {
        use crate::mapping::Mapping;
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.as_file().set_len(8192).unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let device = DeviceNumber::from_stat(metadata.dev()).key();
        let own = MappedFile { path: file.path().canonicalize().unwrap(), device, inode: metadata.ino() };
        let elsewhere = MappedFile { path: "/nowhere".into(), device: device + 1, ..own.clone() };
        let found = || mappings_of(&[own.clone(), elsewhere.clone()]);
        // A process that another test has just forked has a copy of our mappings.
        let is_ours = |mappings: &Mappings| mappings.holders.iter().any(|holder| holder.pid == std::process::id());
        assert!(!is_ours(&found()[0]));
        let mapping = Mapping::new(file.as_file(), 8192).unwrap();
        let [mapped, other] = &found()[..] else { panic!("one answer for each file") };
        assert!(is_ours(mapped) && mapped.locking == 0 && *other == Mappings::default());
        drop(mapping);
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

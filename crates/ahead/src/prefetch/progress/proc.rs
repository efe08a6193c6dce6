//! Progress without privilege: what the program's processes execute, map and have open (proc_pid(5)).
//!
//! A program may have any number of processes, files and mappings. So the processes, the bytes and the links that are read at a time are
//! limited, and polls take at most a twentieth of a processor. What is missed is confirmed by a later file, or by the clock.
//!
//! Paths are compared, and nothing is opened by them: a path that the program makes up moves the window, at most.

use super::{Program, Progress, ProgressSource, Seen};
use ahead_plan::window::Flow;
use ahead_profile::{PathBytes, Profile};
use rustix::fs::{Mode, OFlags, RawDir, open, openat, readlinkat};
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Shortest time between two polls: a process lives for some milliseconds at least.
const INTERVAL: Duration = Duration::from_millis(5);

/// Polls take at most this part of a processor.
const SHARE: u32 = 20;

/// Processes that are looked at in a poll: a program that forks a thousand times must not keep us busy.
const MOST_PROCESSES: usize = 64;
/// Threads of a process whose children are looked for.
const MOST_THREADS: usize = 16;
/// Open files of a process that are looked at.
const MOST_FILES: usize = 256;
/// Bytes of the list of mappings of a process: a browser has some 200 KiB.
const MOST_MAPS_BYTES: usize = 256 << 10;
/// Events of different processes that are kept apart.
const MOST_KNOWN: usize = 1 << 16;

/// Reads /proc.
pub struct Proc {
    program: Program,
    files: HashMap<PathBytes, usize>,
    /// Files with marks within.
    large: HashSet<usize>,
    /// Files that were reported, by process.
    known: HashSet<(u32, usize)>,
    /// The last reported positions, by process and file.
    positions: HashMap<(u32, usize), u64>,
    last_took: Duration,
}

impl Proc {
    /// Progress of this program. Reads nothing yet.
    pub fn new(program: Program, profile: &Profile, flow: &Flow) -> Proc {
        let mut files = HashMap::new();
        for index in flow.of_file.keys() {
            let file = &profile.files[*index];
            files.insert(file.path.clone(), *index);
            if let Some(seen) = &file.seen_path {
                files.entry(seen.clone()).or_insert(*index);
            }
        }
        let large = flow.of_file.iter().filter(|(_, marks)| marks.len() > 1).map(|(file, _)| *file).collect();
        let (known, positions) = Default::default();
        Proc { program, files, large, known, positions, last_took: Duration::ZERO }
    }

    fn poll(&mut self, pid: u32) -> Result<Vec<Seen>, String> {
        if self.known.len() > MOST_KNOWN || self.positions.len() > MOST_KNOWN {
            self.known.clear();
            self.positions.clear();
        }
        let mut found = Vec::new();
        let (mut waiting, mut looked_at) = (VecDeque::from([pid]), 0);
        while let Some(process) = waiting.pop_front() {
            if looked_at == MOST_PROCESSES {
                break;
            }
            looked_at += 1;
            // It may have ended.
            let Some(directory) = directory(&format!("/proc/{process}")) else { continue };
            let children = children(&directory);
            waiting.extend(children.into_iter().take(MOST_PROCESSES));
            match self.look_at(process, &directory, &mut found) {
                Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) if process == pid => {
                    return Err("/proc of the program may not be read".into());
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn look_at(&mut self, process: u32, directory: &OwnedFd, found: &mut Vec<Seen>) -> rustix::io::Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        if let Ok(program) = readlinkat(directory, "exe", Vec::new()) {
            names.push(program.into_bytes());
        }
        let maps = read(directory, "maps", MOST_MAPS_BYTES)?;
        let mut last: &[u8] = &[];
        for line in maps.split(|byte| *byte == b'\n') {
            let Some(at) = line.iter().position(|byte| *byte == b'/') else { continue };
            if line[at..] != *last {
                last = &line[at..];
                names.push(last.to_vec());
            }
        }
        for name in names {
            let Some(file) = self.files.get(&name) else { continue };
            if self.known.insert((process, *file)) {
                found.push(Seen { file: *file, offset_bytes: 0 });
            }
        }
        self.look_at_open_files(process, directory, found)
    }

    fn look_at_open_files(
        &mut self,
        process: u32,
        directory: &OwnedFd,
        found: &mut Vec<Seen>,
    ) -> rustix::io::Result<()> {
        let links = openat(directory, "fd", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for number in names(&links, MOST_FILES) {
            let Ok(name) = readlinkat(&links, &number, Vec::new()) else { continue };
            let Some(file) = self.files.get(name.as_bytes()).copied() else { continue };
            if self.known.insert((process, file)) {
                found.push(Seen { file, offset_bytes: 0 });
            }
            if !self.large.contains(&file) {
                continue;
            }
            let Ok(info) = read(directory, &format!("fdinfo/{number}"), 4096) else { continue };
            let Some(offset_bytes) = position(&info) else { continue };
            let before = self.positions.insert((process, file), offset_bytes);
            if before != Some(offset_bytes) {
                found.push(Seen { file, offset_bytes });
            }
        }
        Ok(())
    }
}

impl Progress for Proc {
    fn source(&self) -> ProgressSource {
        ProgressSource::Proc
    }

    fn events(&mut self, timeout: Duration) -> Result<Vec<Seen>, String> {
        std::thread::sleep(timeout.min(INTERVAL.max(self.last_took * SHARE)));
        let Some(pid) = self.program.pid() else { return Ok(Vec::new()) };
        let began = Instant::now();
        let found = self.poll(pid);
        self.last_took = began.elapsed();
        found
    }
}

fn directory(path: &str) -> Option<OwnedFd> {
    open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The numeric names in a directory, at most this many.
fn names(directory: &OwnedFd, most: usize) -> Vec<String> {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(directory, &mut space);
    let mut found = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if name.iter().all(u8::is_ascii_digit) {
            found.push(String::from_utf8_lossy(name).into_owned());
        }
        if found.len() == most {
            break;
        }
    }
    found
}

/// The child processes of a process. The kernel may not list them (CONFIG_PROC_CHILDREN).
fn children(process: &OwnedFd) -> Vec<u32> {
    let Ok(tasks) = openat(process, "task", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in names(&tasks, MOST_THREADS) {
        let listed = read(&tasks, &format!("{thread}/children"), 4096).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        found.extend(listed.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok()));
    }
    found
}

/// The first bytes of a file below a directory of /proc.
fn read(directory: impl AsFd, name: &str, most: usize) -> rustix::io::Result<Vec<u8>> {
    let file = openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = vec![0; most];
    let mut length = 0;
    while length < most {
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut text[length..]))? {
            0 => break,
            more => length += more,
        }
    }
    text.truncate(length);
    Ok(text)
}

/// `pos:` of a file in fdinfo.
fn position(info: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(info).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_plan::window::Flow;
    use ahead_profile::{Extent, File};
    use std::io::{Read, Seek, SeekFrom};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    fn profile(paths: &[&Path]) -> (Profile, Flow) {
        let extent = |index: u64| Extent {
            offset_bytes: index << 20,
            length_bytes: 1 << 20,
            first_use_us: index,
            runs: 1,
            ..Extent::default()
        };
        let file = |path: &&Path| File {
            path: path.as_os_str().as_bytes().to_vec(),
            size_bytes: 4 << 20,
            extents: (0..4).map(extent).collect(),
            ..File::default()
        };
        let mut profile = Profile { files: paths.iter().map(file).collect(), ..Profile::default() };
        profile.recording.runs = 1;
        let flow = Flow::new(&profile, &ahead_plan::pieces(&profile, 4096), 1 << 20, 4096);
        (profile, flow)
    }

    #[test]
    fn mapped_and_open_files_of_a_process_and_of_its_child_are_seen() {
        let open = tempfile::NamedTempFile::new().unwrap();
        open.as_file().set_len(4 << 20).unwrap();
        let mut handle = open.reopen().unwrap();
        let own = std::env::current_exe().unwrap();
        let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
        let (profile, flow) = profile(&[open.path(), &own, &sleep, Path::new("/none")]);
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let program = Program::default();
        let mut progress = Proc::new(program.clone(), &profile, &flow);
        assert_eq!(progress.events(Duration::ZERO), Ok(vec![]));
        program.started(std::process::id());
        let mut seen = HashSet::new();
        let began = Instant::now();
        while seen.len() < 3 && began.elapsed() < Duration::from_secs(60) {
            seen.extend(progress.events(Duration::from_millis(1)).unwrap().into_iter().map(|seen| seen.file));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, HashSet::from([0, 1, 2]));
        handle.seek(SeekFrom::Start(2 << 20)).unwrap();
        handle.read_exact(&mut [0]).unwrap();
        let moved = progress.events(Duration::ZERO).unwrap();
        assert!(moved.contains(&Seen { file: 0, offset_bytes: (2 << 20) + 1 }), "{moved:?}");
    }

    #[test]
    fn process_that_has_ended_reports_nothing() {
        let (profile, flow) = profile(&[Path::new("/none")]);
        let program = Program::default();
        // Beyond the largest process number (PID_MAX_LIMIT).
        program.started(1 << 30);
        assert_eq!(Proc::new(program, &profile, &flow).events(Duration::ZERO), Ok(vec![]));
    }
}

//! The exec that a process is in, while it waits for a permission ([`crate::fanotify`]): its arguments, before there is a new program.
//!
//! ```text
//!     /proc/PID/syscall ─▶ execve(path, arguments, …) ─▶ addresses ─▶ /proc/PID/mem ─▶ words
//! ```
//!
//! Everything is the process's own memory: another thread may change it while it is read, and it may be on a page that a server never delivers. Then
//! the read waits, until this process is killed. So read it in a process that nothing waits for.
//!
//! Needs Linux 5.7: before, these files waited for the end of the exec itself (`cred_guard_mutex`).

use crate::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Arguments that are read; a program is recognized by its first few.
const MOST_WORDS: usize = 64;
/// Longest argument: `PATH_MAX`. One that is longer is cut.
const MOST_WORD_BYTES: usize = 4096;
/// Bytes of all arguments.
const MOST_BYTES: usize = 8192;
/// Memory is read up to the end of a page, because the next one may be missing.
const PAGE_BYTES: usize = 4096;
const POINTER_BYTES: usize = size_of::<usize>();

/// A process in an exec. Its number may be reused, this value stays with the process.
#[derive(Debug)]
pub struct ExecCall {
    directory: OwnedFd,
    memory: File,
    path: u64,
    arguments: u64,
    /// Of execveat(2).
    start: Option<i32>,
}

/// Real and effective ids of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    pub users: [u32; 2],
    pub groups: [u32; 2],
}

impl ExecCall {
    /// `None`: the first thread of this process is in no exec. Needs CAP_SYS_PTRACE.
    pub fn of(pid: u32) -> Result<Option<ExecCall>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |e| Error::io(format!("open process {pid}"), e);
        let directory = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).map_err(failed)?;
        let call = text(&directory, "syscall")?;
        let Some(Call { path, arguments, start }) = parse(&call) else { return Ok(None) };
        let memory = open(&directory, "mem")?;
        Ok(Some(ExecCall { directory, memory, path, arguments, start }))
    }

    /// The file's name as given. With execveat(2) it is relative to a descriptor.
    pub fn path(&self) -> Result<PathBuf> {
        let path = PathBuf::from(OsString::from_vec(self.word(self.path, MOST_WORD_BYTES)?));
        match self.start {
            Some(start) if start != libc::AT_FDCWD && !path.is_absolute() => {
                let directory = self.link(&format!("fd/{start}"))?;
                Ok(if path.as_os_str().is_empty() { directory } else { directory.join(path) })
            }
            _ => Ok(self.directory()?.join(path)),
        }
    }

    /// Its arguments, with the program's name: the first ones, where there are many.
    pub fn arguments(&self) -> Result<Vec<Vec<u8>>> {
        let (mut words, mut left) = (Vec::new(), MOST_BYTES);
        for index in 0..MOST_WORDS {
            let mut pointer = [0; POINTER_BYTES];
            self.read(self.arguments.wrapping_add((index * POINTER_BYTES) as u64), &mut pointer)?;
            let at = usize::from_ne_bytes(pointer) as u64;
            if at == 0 || left == 0 {
                break;
            }
            let word = self.word(at, left.min(MOST_WORD_BYTES))?;
            left = left.saturating_sub(word.len() + 1);
            words.push(word);
        }
        Ok(words)
    }

    /// The working directory.
    pub fn directory(&self) -> Result<PathBuf> {
        self.link("cwd")
    }

    /// Whether it sees the files of the machine: the mounts and the root directory of PID 1. A service may have its own mounts of the same files.
    /// Where PID 1 may not be looked at (a container), those of this process count.
    pub fn sees_the_machine(&self) -> Result<bool> {
        let of = |process: &str, name: &str| fs::read_link(Path::new("/proc").join(process).join(name));
        let first = |name: &str| of("1", name).or_else(|_| of("self", name)).map_err(|e| Error::io(name, e));
        Ok(self.link("ns/mnt")? == first("ns/mnt")? && self.link("root")? == first("root")?)
    }

    /// Who it is.
    pub fn ids(&self) -> Result<Ids> {
        let status = text(&self.directory, "status")?;
        let ids = |key: &str| {
            let mut numbers = status.lines().find_map(|line| line.strip_prefix(key))?.split_ascii_whitespace();
            Some([numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?])
        };
        let unknown = || Error::Parse { path: "/proc/PID/status".into(), text: "Uid".into() };
        Ok(Ids { users: ids("Uid:").ok_or_else(unknown)?, groups: ids("Gid:").ok_or_else(unknown)? })
    }

    fn link(&self, name: &str) -> Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.directory, name, Vec::new()).map_err(|e| Error::io(name, e))?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Bytes up to the NUL, at most this many.
    fn word(&self, at: u64, most: usize) -> Result<Vec<u8>> {
        let mut word = Vec::new();
        while word.len() < most {
            let begin = at.wrapping_add(word.len() as u64);
            let in_page = PAGE_BYTES - (begin % PAGE_BYTES as u64) as usize;
            let mut part = vec![0; in_page.min(most - word.len())];
            self.read(begin, &mut part)?;
            let end = part.iter().position(|byte| *byte == 0);
            word.extend(&part[..end.unwrap_or(part.len())]);
            if end.is_some() {
                break;
            }
        }
        Ok(word)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.memory.read_exact_at(bytes, at).map_err(|e| Error::io("read the memory of a process", e))
    }
}

fn open(directory: impl AsFd, name: &str) -> Result<File> {
    let opened = openat(directory.as_fd(), name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map(File::from).map_err(|e| Error::io(format!("open {name} of a process"), e))
}

fn text(directory: impl AsFd, name: &str) -> Result<String> {
    let mut text = String::new();
    let read = open(directory, name)?.take(MOST_BYTES as u64).read_to_string(&mut text);
    read.map_err(|e| Error::io(format!("read {name} of a process"), e))?;
    Ok(text)
}

#[derive(Debug, PartialEq, Eq)]
struct Call {
    path: u64,
    arguments: u64,
    start: Option<i32>,
}

/// The number of the call and its arguments: `59 0x7ffd… 0x… …`. A thread that runs, and one in another call, has no exec.
fn parse(text: &str) -> Option<Call> {
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    match number {
        libc::SYS_execve => Some(Call { path: next()?, arguments: next()?, start: None }),
        // An int, of which the kernel shows the whole register.
        libc::SYS_execveat => Some(Call { start: Some(next()? as i32), path: next()?, arguments: next()? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn exec_calls_are_parsed_and_other_calls_are_none() {
        let execve = format!("{} 0x7ffd10 0x55aa 0x0 0x8 0x0 0x1 0x7ffd00 0x7f00\n", libc::SYS_execve);
        assert_eq!(parse(&execve), Some(Call { path: 0x7f_fd10, arguments: 0x55aa, start: None }));
        let execveat = format!("{} 0xffffff9c 0x10 0x20 0x0 0x0 0x0 0x1 0x2\n", libc::SYS_execveat);
        assert_eq!(parse(&execveat), Some(Call { path: 0x10, arguments: 0x20, start: Some(libc::AT_FDCWD) }));
        for none in ["running\n", "", "-1 0x1 0x2\n", "0 0x0 0x1 0x2 0x0 0x0 0x0 0x1 0x2\n", "59 7 8"] {
            assert_eq!(parse(none), None, "{none:?}");
        }
    }

    /// Our own memory stands for that of a process in an exec.
    fn own(path: &std::ffi::CStr, arguments: &[*const libc::c_char]) -> ExecCall {
        ExecCall {
            directory: openat(CWD, "/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap(),
            memory: File::open("/proc/self/mem").unwrap(),
            path: path.as_ptr() as u64,
            arguments: arguments.as_ptr() as u64,
            start: None,
        }
    }

    #[test]
    fn words_are_read_from_memory_and_bounded() {
        let (long, null) = (vec![b'x'; 3 * MOST_WORD_BYTES], std::ptr::null());
        let long = std::ffi::CString::new(long).unwrap();
        let words = [c"true".as_ptr(), c"".as_ptr(), null];
        let call = own(c"/bin/true", &words);
        assert_eq!(call.path().unwrap(), Path::new("/bin/true"));
        assert_eq!(call.arguments().unwrap(), [b"true".to_vec(), vec![]]);
        let words = [long.as_ptr(), long.as_ptr(), long.as_ptr(), null];
        let call = own(c"tool", &words);
        assert_eq!(call.path().unwrap(), std::env::current_dir().unwrap().join("tool"));
        let lengths: Vec<usize> = call.arguments().unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [MOST_WORD_BYTES, MOST_BYTES - MOST_WORD_BYTES - 1]);
        let (many, nowhere) = ([c"a".as_ptr(); 100], [std::ptr::dangling(), null]);
        assert_eq!(own(c"", &many).arguments().unwrap().len(), MOST_WORDS);
        assert!(own(c"", &nowhere).arguments().is_err());
        assert_eq!(call.ids().unwrap().users[0], rustix::process::getuid().as_raw());
    }

    #[test]
    fn descriptor_of_execveat_is_the_directory_or_the_file() {
        let home = tempfile::tempdir().unwrap();
        let directory = File::open(home.path()).unwrap();
        let start = Some(directory.as_raw_fd());
        let at = fs::canonicalize(home.path()).unwrap();
        assert_eq!(ExecCall { start, ..own(c"tool", &[]) }.path().unwrap(), at.join("tool"));
        assert_eq!(ExecCall { start, ..own(c"", &[]) }.path().unwrap(), at);
        assert_eq!(ExecCall { start, ..own(c"/bin/true", &[]) }.path().unwrap(), Path::new("/bin/true"));
    }

    #[test]
    fn missing_and_other_processes_have_no_exec() {
        assert!(ExecCall::of(u32::MAX).is_err());
        // This thread reads, it does not execute.
        assert!(ExecCall::of(std::process::id()).map_or(true, |call| call.is_none()));
    }
}

//! What `/proc` shows of another process, each read bounded, none through a path that the process can change.

use ahead_sys::exec::Identity;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, open, openat, readlinkat, statx};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// The part of a command line that is kept, bytes. Linux permits 2 MiB; that of a compiler in a large tree has some ten KiB.
const COMMAND_MOST_BYTES: u64 = 64 << 10;

/// The directory of a process in `/proc`: after its end, it is not that of another process with the same number.
#[derive(Debug)]
pub struct ProcessFiles(OwnedFd);

impl ProcessFiles {
    /// `None`: there is no such process.
    pub fn of(pid: u32) -> Option<ProcessFiles> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        open(format!("/proc/{pid}"), flags, Mode::empty()).ok().map(ProcessFiles)
    }

    fn read(&self, name: &str, most_bytes: u64) -> Option<Vec<u8>> {
        let file = openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        File::from(file).take(most_bytes).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The command line, at most 64 KiB of it. `None`: the process has ended.
    pub fn command(&self) -> Option<Vec<Vec<u8>>> {
        let line = self.read("cmdline", COMMAND_MOST_BYTES)?;
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        (!line.is_empty()).then(|| line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
    }

    /// The working directory.
    pub fn directory(&self) -> Option<Vec<u8>> {
        readlinkat(&self.0, "cwd", Vec::new()).ok().map(|path| path.into_bytes())
    }

    /// The path of the executed file; that of a removed one ends with ` (deleted)`.
    pub fn program(&self) -> Option<Vec<u8>> {
        readlinkat(&self.0, "exe", Vec::new()).ok().map(|path| path.into_bytes())
    }

    /// The kernel's own copy of the attributes of the executed file: a server that does not answer is not asked.
    pub fn program_attributes(&self) -> Option<Statx> {
        statx(&self.0, "exe", AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()
    }

    /// The real user and group, and all groups.
    pub fn identity(&self) -> Option<Identity> {
        let status = String::from_utf8_lossy(&self.read("status", COMMAND_MOST_BYTES)?).into_owned();
        let numbers = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
        };
        let (uid, gid) = (*numbers("Uid:")?.first()?, *numbers("Gid:")?.first()?);
        Some(Identity { uid, gid, groups: numbers("Groups:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_shown_as_it_is() {
        let own = ProcessFiles::of(std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap().into_os_string().into_encoded_bytes();
        assert_eq!(own.program(), Some(program));
        assert!(own.program_attributes().unwrap().stx_size > 0);
        let identity = own.identity().unwrap();
        let groups: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        assert_eq!((identity.uid, identity.groups), (rustix::process::getuid().as_raw(), groups));
    }
}

//! A file system that does not answer, such as a network file system without its server.

use super::machine::{needs_root, skip};
use ahead_sys::mounting;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

/// A FUSE file system without answers. It is unmounted on drop.
///
/// ```text
///     read by its server       the kernel has sent the request: not even SIGKILL ends the wait of a process
///     not read                 a signal that ends the process ends its wait
/// ```
pub struct SilentMount {
    pub point: PathBuf,
    requests: Requests,
}

enum Requests {
    /// Except for the first, which makes the file system usable, they have no answer.
    Read(Option<JoinHandle<()>>),
    NotRead {
        _fuse: File,
    },
}

/// `FUSE_INIT` of linux/fuse.h.
const INIT: u32 = 26;

impl SilentMount {
    /// A file system on this new directory whose server reads all requests. `None`, with the reason printed, where that is impossible.
    pub fn read_by_server(point: PathBuf) -> Option<SilentMount> {
        let fuse = mount(&point, 0)?;
        Some(SilentMount { point, requests: Requests::Read(Some(std::thread::spawn(move || serve(fuse)))) })
    }

    /// The same, whose server reads no request, as a stopped one.
    pub fn not_read(point: PathBuf) -> Option<SilentMount> {
        SilentMount::not_read_of_user(point, 0)
    }

    /// The same, as if this user had mounted it.
    pub fn not_read_of_user(point: PathBuf, user: u32) -> Option<SilentMount> {
        let _fuse = mount(&point, user)?;
        Some(SilentMount { point, requests: Requests::NotRead { _fuse } })
    }
}

fn mount(point: &Path, user: u32) -> Option<File> {
    needs_root()?;
    fs::create_dir(point).unwrap();
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    let fuse = fuse.or_else(|error| skip(format!("/dev/fuse: {error}")).ok_or(())).ok()?;
    let options = format!("fd={},rootmode=40000,user_id={user},group_id=0,allow_other", fuse.as_raw_fd());
    let mounted = mounting::mount(Path::new("silent"), point, "fuse", false, &options);
    mounted.or_else(|error| skip(error).ok_or(())).ok()?;
    Some(fuse)
}

impl Drop for SilentMount {
    fn drop(&mut self) {
        // A forced unmount ends the connection, and waiting processes get an error.
        let umount = Command::new("umount").args(["-f", "-l", "-c"]).arg(&self.point).status();
        assert!(umount.unwrap().success() || std::thread::panicking());
        if let Requests::Read(server) = &mut self.requests {
            server.take().map(JoinHandle::join).unwrap().unwrap();
        }
    }
}

/// Serves until the file system is unmounted.
fn serve(mut fuse: File) {
    let mut request = vec![0; 1 << 20];
    while fuse.read(&mut request).is_ok() {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        if word(4) != INIT {
            continue;
        }
        // Header: length, error, number of the request. Then `struct fuse_init_out` of version 7.31: no flags, short writes.
        let mut answer = vec![0; 80];
        answer[..4].copy_from_slice(&80u32.to_ne_bytes());
        answer[8..16].copy_from_slice(&request[8..16]);
        for (at, value) in [(16, 7u32), (20, 31), (24, 4096), (36, 4096), (40, 1)] {
            answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        fuse.write_all(&answer).unwrap();
    }
}

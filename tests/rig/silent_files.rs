//! A FUSE file system with files whose first part is answered, and whose rest is not: as a server that has stopped in the middle.
//!
//! ```text
//!     begun      ├ answered: 128 KiB ┤├ held until `release` ...       any name: a file of 8 MiB
//!     silent-*   the lookup of the name is held
//! ```

use super::mounted::{KIB, MIB, PAGE};
use ahead_sys::locks::IgnorePoison;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

pub const FILE_BYTES: u64 = 8 * MIB;

/// Bytes of a file that are answered.
pub const ANSWERED_BYTES: u64 = 128 * KIB;

/// The name whose lookup releases everything: for children, which cannot end while the kernel holds one of their reads.
const RELEASE: &str = "release";

/// Answers take as long as those of a server: a reader sees that it has waited.
const LATENCY: Duration = Duration::from_millis(1);

/// A test that has not released the file system by then hangs: it is ended by errors.
const LONGEST: Duration = Duration::from_secs(120);

/// A request without an answer. When it is dropped, the answer is EIO.
#[derive(Debug)]
enum Held {
    Read { _reply: ReplyData },
    Lookup { _reply: ReplyEntry },
}

/// What is held; `None`: everything is released.
#[derive(Clone, Debug)]
struct Requests(Arc<Mutex<Option<Vec<Held>>>>);

impl Requests {
    fn hold(&self, request: Held) {
        if let Some(held) = self.0.lock().ignore_poison().as_mut() {
            held.push(request);
        }
    }

    fn release(&self) {
        let held = self.0.lock().ignore_poison().take();
        drop(held);
    }
}

/// The mounted file system. Dropping it answers all requests with EIO and unmounts it.
pub struct SilentFiles {
    pub root: PathBuf,
    requests: Requests,
    session: Option<BackgroundSession>,
    _alarm: Sender<()>,
    _home: tempfile::TempDir,
}

impl SilentFiles {
    #[allow(clippy::new_without_default, reason = "it mounts a file system")]
    pub fn new() -> SilentFiles {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let requests = Requests(Arc::new(Mutex::new(Some(Vec::new()))));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("silent".into()), MountOption::RO];
        let served = Served { content: content(ANSWERED_BYTES), requests: requests.clone() };
        let session = Some(fuser::spawn_mount(served, &root, &config).unwrap());
        let (alarm, ended) = mpsc::channel();
        let late = requests.clone();
        thread::spawn(move || {
            if ended.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                late.release();
            }
        });
        SilentFiles { root, requests, session, _alarm: alarm, _home: home }
    }

    /// Requests that are held. 0 after the release.
    pub fn held(&self) -> usize {
        self.requests.0.lock().unwrap().as_ref().map_or(0, Vec::len)
    }

    /// Answers everything with EIO, from now on; also from a child.
    pub fn release(&self) {
        let _ = self.root.join(RELEASE).metadata();
    }
}

impl Drop for SilentFiles {
    fn drop(&mut self) {
        self.requests.release();
        let unmounted = Command::new("umount").args(["-f", "-l", "-c"]).arg(&self.root).status();
        let ended = self.session.take().map(BackgroundSession::join);
        assert!(thread::panicking() || unmounted.unwrap().success(), "{ended:?}");
    }
}

/// Releases the file system at the end of a scope, also after a panic: a process with a held read cannot end.
pub struct Releasing<'a>(pub &'a SilentFiles);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[derive(Debug)]
struct Served {
    content: Vec<u8>,
    requests: Requests,
}

fn attributes(ino: INodeNo) -> FileAttr {
    let (kind, size) =
        if ino == INodeNo::ROOT { (FileType::Directory, 0) } else { (FileType::RegularFile, FILE_BYTES) };
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: PAGE as u32,
        flags: 0,
    }
}

/// Bytes that differ from page to page, and within each page.
pub fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at / PAGE * 31 + at % 251) as u8).collect()
}

/// Each name is another file.
fn inode_of(name: &OsStr) -> INodeNo {
    INodeNo(u64::from(crc32fast::hash(name.as_encoded_bytes())) + 2)
}

impl Filesystem for Served {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Otherwise the kernel asks for one name of a directory at a time.
        config
            .add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_READ)
            .map_err(|missing| std::io::Error::other(format!("the kernel's FUSE lacks {missing:?}")))
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == RELEASE {
            self.requests.release();
            reply.error(Errno::ENOENT);
        } else if name.as_encoded_bytes().starts_with(b"silent-") {
            self.requests.hold(Held::Lookup { _reply: reply });
        } else {
            reply.entry(&LONGEST, &attributes(inode_of(name)), Generation(0));
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LONGEST, &attributes(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = offset + u64::from(size);
        if end <= ANSWERED_BYTES {
            thread::sleep(LATENCY);
            reply.data(&self.content[offset as usize..end as usize]);
        } else {
            self.requests.hold(Held::Read { _reply: reply });
        }
    }
}

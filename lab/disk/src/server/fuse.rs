//! The FUSE file system: one directory with one file, which holds the bytes of the disk.

use super::answer_queue::{Answer, AnswerQueue, prioritize_reader};
use super::engine::Engine;
use super::image::Image;
use crate::write_log::WriteLog;
use ahead_disk::protocol::{ByteRange, Setup};
use ahead_disk::state::FILE_NAME;
use ahead_process::undo::ProcessId;
use ahead_sys::daemon::now_ns;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr, Request, WriteFlags,
};
use std::cell::Cell;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The longest request of the kernel, bytes: 256 pages, its limit without a sysctl (fuse_max_pages_limit).
pub const REQUEST_MAX_BYTES: u32 = 1 << 20;

/// Limit of outstanding requests. The default of 12 would limit every deep queue; a loop device has 128 tags, and large requests may be split.
const OUTSTANDING_MAX: u16 = 4096;

/// Threads that receive requests: one copies data while another receives the next request. With a single thread, requests waited up to
/// 450 µs for each other (measured); more than two threads only add wake-ups.
const READERS: usize = 2;

/// Lifetime of attributes in the kernel: unlimited, because only this file system changes them.
const ATTRIBUTE_TIME: Duration = Duration::from_secs(1 << 30);

/// `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE` of linux/falloc.h.
const PUNCH_HOLE: i32 = 0x02;
const ZERO_RANGE: i32 = 0x10;

const IMAGE: INodeNo = INodeNo(2);

/// The file system.
#[derive(Debug)]
pub struct DiskFile {
    capacity_bytes: u64,
    read_only: bool,
    image: Image,
    log: Option<WriteLog>,
    engine: Arc<Engine>,
    answers: Arc<AnswerQueue>,
}

/// The name of a disk in the mount table. The name is unique for a daemon, so that `restore` can identify the mount.
pub fn source(name: &str, daemon: ProcessId) -> String {
    format!("ahead-disk-{name}-{}-{}", daemon.pid, daemon.start_ticks)
}

/// The options of the FUSE mount.
pub fn mount_options(source: String) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName(source), MountOption::NoDev, MountOption::NoSuid];
    config.n_threads = Some(READERS);
    config
}

impl DiskFile {
    /// A file system that serves this image.
    pub fn new(
        setup: &Setup,
        image: Image,
        log: Option<WriteLog>,
        engine: Arc<Engine>,
        answers: Arc<AnswerQueue>,
    ) -> DiskFile {
        DiskFile { capacity_bytes: setup.capacity_bytes, read_only: setup.read_only, image, log, engine, answers }
    }

    /// Adds to the log of writes, if there is one.
    fn log(&self, add: impl FnOnce(&WriteLog) -> std::io::Result<()>) -> std::io::Result<()> {
        self.log.as_ref().map_or(Ok(()), add)
    }

    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let (kind, perm, size) = match ino {
            IMAGE => (FileType::RegularFile, 0o600, self.capacity_bytes),
            _ => (FileType::Directory, 0o700, 0),
        };
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// The part of a request that lies on the disk.
    fn on_disk(&self, offset: u64, size: u32) -> ByteRange {
        let length_bytes = u64::from(size).min(self.capacity_bytes.saturating_sub(offset));
        ByteRange { offset_bytes: offset, length_bytes }
    }
}

thread_local! {
    static IS_PRIORITIZED: Cell<bool> = const { Cell::new(false) };
}

/// Raises the priority of this thread on its first request, because the library makes the threads.
fn prioritize_this_reader() {
    if !IS_PRIORITIZED.replace(true) {
        prioritize_reader();
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without one of these flags the disk is slower; the measured floor shows this.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_MAX_PAGES;
        if let Err(missing) = config.add_capabilities(wanted) {
            tracing::warn!("this kernel's FUSE lacks {missing:?}");
            let _ = config.add_capabilities(wanted & !missing);
        }
        let _ = config.set_max_write(REQUEST_MAX_BYTES);
        let _ = config.set_max_background(OUTSTANDING_MAX);
        let _ = config.set_congestion_threshold(OUTSTANDING_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE_NAME {
            reply.entry(&ATTRIBUTE_TIME, &self.attributes(IMAGE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.engine.skip_number(request.unique().0);
        reply.attr(&ATTRIBUTE_TIME, &self.attributes(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if offset == 0 && reply.add(IMAGE, 1, FileType::RegularFile, FILE_NAME) {
            tracing::debug!("no space for one name");
        }
        reply.ok();
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        prioritize_this_reader();
        let range = self.on_disk(offset, size);
        let schedule = self.engine.arrive(request.unique().0, range);
        let before_ns = now_ns();
        let mut buffer = self.answers.buffer(range.length_bytes as usize);
        let result = match (schedule.fails, self.image.read(&mut buffer, offset)) {
            (false, Ok(())) => Ok(buffer),
            (true, _) => Err(Errno::EIO),
            (false, Err(e)) => {
                self.engine.image_failed("reading", offset, &e);
                Err(Errno::EIO)
            }
        };
        let ready_ns = now_ns();
        self.answers.send_when_due(Answer { schedule, ready_ns, image_ns: ready_ns - before_ns, result, reply });
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.engine.skip_number(request.unique().0);
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.capacity_bytes) {
            return reply.error(Errno::ENOSPC);
        }
        match self.image.write(data, offset).and_then(|()| self.log(|log| log.write(offset, data))) {
            Ok(()) => {
                self.engine.wrote(data.len() as u64);
                reply.written(data.len() as u32);
            }
            Err(e) => {
                self.engine.image_failed("writing", offset, &e);
                reply.error(e.into());
            }
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.engine.skip_number(request.unique().0);
        // The requests of a loop device: discard and write zeroes.
        if mode & (PUNCH_HOLE | ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if self.read_only || offset.checked_add(length).is_none_or(|end| end > self.capacity_bytes) {
            return reply.error(Errno::EINVAL);
        }
        let logged = || self.log(|log| log.zero(offset, length)).map_err(|e| ahead_sys::Error::io("log zeros", e));
        match self.image.zero(offset, length).and_then(|()| logged()) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.raw_os_error().map_or(Errno::EIO, Errno::from_i32)),
        }
    }

    fn getxattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        // ENOSYS: the kernel does not send this request again.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, request: &Request, _ino: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        self.engine.skip_number(request.unique().0);
        match self.log(WriteLog::flush) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        }
    }

    fn flush(&self, request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.engine.skip_number(request.unique().0);
        reply.ok();
    }
}

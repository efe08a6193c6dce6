//! Direct reads from a device, with many reads outstanding: measures the speed of the disk itself.
//!
//! Native asynchronous I/O of Linux (io_submit(2)) is used instead of io_uring: it is enabled everywhere, containers
//! included, and for direct reads does the same. Its structures are written by hand; they never change.

#![allow(unsafe_code)]

use crate::reserve::zeroed;
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Alignment of buffers for direct I/O, sufficient for every disk with blocks up to a page. Unit: bytes.
const ALIGNMENT: usize = 4096;

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;

/// `struct iocb` of linux/aio_abi.h (little endian: the key precedes the flags; both are 0 here).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// A buffer that is aligned for direct I/O.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Allocates `length` zero bytes. Without memory the process ends: for tools, not for the libraries.
    pub fn new(length: usize) -> AlignedBuffer {
        AlignedBuffer::of(vec![0; length + ALIGNMENT], length)
    }

    /// Allocates `length` zero bytes.
    ///
    /// Errors: `OutOfMemory`.
    pub fn try_new(length: usize) -> io::Result<AlignedBuffer> {
        Ok(AlignedBuffer::of(zeroed(length.saturating_add(ALIGNMENT))?, length))
    }

    /// No bytes. Allocates nothing.
    pub fn empty() -> AlignedBuffer {
        AlignedBuffer { memory: Vec::new(), start: 0, length: 0 }
    }

    fn of(memory: Vec<u8>, length: usize) -> AlignedBuffer {
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        AlignedBuffer { memory, start, length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Reads of one length from one file or device.
#[derive(Debug)]
pub struct DirectReads {
    file: OwnedFd,
    context: libc::c_ulong,
    length_bytes: usize,
    buffers: Vec<AlignedBuffer>,
    free: Vec<usize>,
}

impl DirectReads {
    /// Opens `path`. `length_bytes` is a multiple of the block size; at most `depth` reads are outstanding.
    pub fn open(path: &Path, length_bytes: usize, depth: usize) -> Result<DirectReads> {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Error::io(format!("open {}", path.display()), e))?;
        DirectReads::of(file, length_bytes, depth)
    }

    /// As [`DirectReads::open`], for a file that was opened with `O_DIRECT`.
    pub fn of(file: OwnedFd, length_bytes: usize, depth: usize) -> Result<DirectReads> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes one word, the context.
        if unsafe { libc::syscall(libc::SYS_io_setup, depth as libc::c_long, &raw mut context) } != 0 {
            return Err(Error::io("set up asynchronous reads", io::Error::last_os_error()));
        }
        let buffers = (0..depth).map(|_| AlignedBuffer::new(length_bytes)).collect();
        Ok(DirectReads { file, context, length_bytes, buffers, free: (0..depth).collect() })
    }

    /// Whether [`DirectReads::start`] may be called: fewer than `depth` reads are outstanding.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Starts a read and returns its slot, a number below the depth. [`DirectReads::wait`] returns the slot again. With `depth`
    /// reads outstanding: error `EAGAIN`.
    pub fn start(&mut self, offset_bytes: u64) -> Result<usize> {
        let Some(slot) = self.free.pop() else {
            return Err(Error::io("start a read", io::Error::from_raw_os_error(libc::EAGAIN)));
        };
        let mut request = Iocb {
            data: slot as u64,
            opcode: READ,
            file: self.file.as_raw_fd() as u32,
            buffer: self.buffers[slot].bytes().as_mut_ptr() as u64,
            length: self.length_bytes as u64,
            offset: offset_bytes as i64,
            ..Iocb::default()
        };
        let mut list = [&raw mut request];
        // SAFETY: the kernel copies the request before it returns. The buffer that it fills lives until the context is
        // destroyed, which waits for all reads; no code accesses the buffer before its slot is free again.
        let started = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1 as libc::c_long, list.as_mut_ptr()) };
        if started != 1 {
            self.free.push(slot);
            return Err(Error::io("start a read", io::Error::last_os_error()));
        }
        Ok(slot)
    }

    /// Waits until at least one outstanding read is complete, and returns the slots of the completed reads. Errors: of the
    /// first read that failed or was short.
    pub fn wait(&mut self) -> Result<&[usize]> {
        const AT_ONCE: usize = 64;
        if self.free.len() == self.buffers.len() {
            return Ok(&[]);
        }
        let mut events = [IoEvent::default(); AT_ONCE];
        let done = loop {
            // SAFETY: `events` has room for AT_ONCE events; the null pointer means no timeout.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    1 as libc::c_long,
                    AT_ONCE as libc::c_long,
                    events.as_mut_ptr(),
                    std::ptr::null_mut::<libc::timespec>(),
                )
            };
            match usize::try_from(done) {
                Ok(done) => break done,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(Error::io("wait for reads", error));
                    }
                }
            }
        };
        let events = &events[..done];
        let before = self.free.len();
        self.free.extend(events.iter().map(|event| event.data as usize));
        match events.iter().find(|event| event.result != self.length_bytes as i64) {
            None => Ok(&self.free[before..]),
            Some(event) if event.result < 0 => {
                Err(Error::io("read", io::Error::from_raw_os_error(-event.result as i32)))
            }
            Some(_) => Err(Error::io("read", io::Error::from(io::ErrorKind::UnexpectedEof))),
        }
    }
}

impl Drop for DirectReads {
    fn drop(&mut self) {
        // SAFETY: this value owns the context; the call waits for all outstanding reads before the buffers are freed.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((std::mem::size_of::<Iocb>(), std::mem::size_of::<IoEvent>()), (64, 32));
    }

    #[test]
    fn buffer_is_aligned() {
        assert_eq!(AlignedBuffer::new(4096).bytes().as_ptr() as usize % ALIGNMENT, 0);
    }

    #[test]
    fn each_read_completes_once_and_a_read_at_eof_is_an_error() {
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&[5; 64 << 10]).unwrap();
        file.as_file().sync_all().unwrap();
        let Ok(mut reads) = DirectReads::open(file.path(), 4096, 4) else {
            eprintln!("skipped: no direct I/O on this file system");
            return;
        };
        assert!(reads.wait().unwrap().is_empty());
        let mut done = 0;
        for step in 0..16 {
            if !reads.has_room() {
                assert!(reads.start(0).is_err());
                done += reads.wait().unwrap().len();
            }
            reads.start(step * 4096).unwrap();
        }
        while done < 16 {
            done += reads.wait().unwrap().len();
        }
        assert!(reads.buffers.iter_mut().all(|buffer| buffer.bytes() == [5; 4096]));
        reads.start(64 << 10).unwrap();
        assert!(reads.wait().is_err());
    }
}

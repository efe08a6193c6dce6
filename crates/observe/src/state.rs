//! The read-ahead state of open files, as the kernel keeps it (`bpf/state.bpf.c`).

use crate::fields::Fields;
use crate::objects::{self, Compiled, bpf_error, map};
use crate::tracer::check_host;
use ahead_model::{DeviceNumber, sorting};
use ahead_policy::steering::Readahead;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{Error, Result};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object, ProgramInput, ProgramMut};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Mutex;

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/state.bpf.deflate")));

/// An open file of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenState {
    /// The process.
    pub pid: u32,
    pub descriptor: u32,
    /// Name of the process, filled up with 0.
    pub comm: [u8; 16],
    /// Address of the open file (`struct file`). Descriptors with the same address share position, window and advice.
    pub open: u64,
    /// Address of the inode whose page cache is read.
    pub inode: u64,
    pub inode_number: u64,
    /// Device of the file system, or the block device itself.
    pub device: DeviceNumber,
    /// Size of the file or block device.
    pub file_bytes: u64,
    /// Cached pages of the file.
    pub cached_pages: u64,
    /// The file position.
    pub position_bytes: u64,
    /// The read-ahead state.
    pub readahead: Readahead,
    /// Window of the disk now (`read_ahead_kb`), pages: that of files opened from now on.
    pub disk_window_pages: u64,
    /// Whether reads of this open file go through the page cache, and not past it (`O_DIRECT`).
    pub is_cached: bool,
    /// Whether it was opened for reading.
    pub is_readable: bool,
    /// `FMODE_NOREUSE`: the program has set `POSIX_FADV_NOREUSE`. That is no advice for read-ahead, but `POSIX_FADV_NORMAL` ends it.
    pub is_not_reused: bool,
}

/// `struct open_state`.
const STATE_BYTES: usize = 112;
/// `struct state_query`: the arguments, and then the state.
const QUERY_BYTES: usize = 24 + STATE_BYTES;

// `enum state_flag`.
const RANDOM: u8 = 1;
const CACHED: u8 = 2;
const READABLE: u8 = 4;
const NOREUSE: u8 = 8;

/// Bytes that one read of the iterator asks for: what the kernel fills at most (`bpf_seq_read` has a buffer of eight pages).
const READ_BYTES: usize = 32 << 10;

/// Reads the state of open files. Only those of regular files and block devices on a disk, FUSE or network file system: pipes, sockets,
/// `/proc`, tmpfs and the like have no read-ahead. Of a file on overlayfs it reports the open file, inode and device of the layer: these
/// are read.
#[derive(Debug)]
pub struct StateQuery {
    object: Object,
    /// Reading it lists open files: of the process in the table `wanted_process`, one reader at a time.
    listing: Mutex<Link>,
}

impl StateQuery {
    /// Loads the programs. Needs root, or CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Unsupported`], with what is missing.
    pub fn new() -> Result<StateQuery> {
        check_host()?;
        let refused = |error: Error| Error::Unsupported {
            what: "reading the state of open files".into(),
            why: format!("the kernel refuses a program: {error}"),
        };
        let open = objects::open("state", &OBJECT)?;
        let object = open.load().map_err(|e| refused(bpf_error("load BPF programs", e)))?;
        let listing = program(&object, "on_listed").attach();
        let listing = listing.map_err(|e| refused(bpf_error("attach the list of open files", e)))?;
        Ok(StateQuery { object, listing: Mutex::new(listing) })
    }

    /// Every open file of every process, one entry for each process and descriptor: threads that share their descriptors count once.
    pub fn all(&self) -> Result<Vec<OpenState>> {
        self.list(0)
    }

    /// Every open file of one process; none if it does not exist.
    pub fn of_process(&self, pid: u32) -> Result<Vec<OpenState>> {
        self.list(pid)
    }

    fn list(&self, pid: u32) -> Result<Vec<OpenState>> {
        let listing = self.listing.lock().ignore_poison();
        let wanted = map(&self.object, "wanted_process")?;
        let set = wanted.update(&0u32.to_ne_bytes(), &pid.to_ne_bytes(), MapFlags::ANY);
        set.map_err(|e| bpf_error("choose the process", e))?;
        let mut pass = Iter::new(&listing).map_err(|e| bpf_error("list open files", e))?;
        let (mut states, mut buffer, mut filled) = (Vec::new(), vec![0; READ_BYTES], 0);
        loop {
            match pass.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                // After a million descriptors without a row, the kernel returns to the caller.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => continue,
                Err(error) => return Err(Error::io("list open files", error)),
            }
            // A row may be split between two reads.
            let (rows, rest) = buffer[..filled].as_chunks::<STATE_BYTES>();
            states.extend(rows.iter().map(OpenState::decode));
            let rest = rest.len();
            buffer.copy_within(filled - rest..filled, 0);
            filled = rest;
        }
        // The threads of a process whose first thread has ended are listed one by one.
        let key = |state: &OpenState| (state.pid, state.descriptor);
        if !states.is_sorted_by(|a, b| key(a) < key(b)) {
            sorting::sort_by_key(&mut states, key);
            states.dedup_by_key(|state| key(state));
        }
        Ok(states)
    }

    /// The open file of a descriptor of the calling process. `None`: it has no read-ahead.
    pub fn of_own(&self, descriptor: BorrowedFd<'_>) -> Result<Option<OpenState>> {
        self.query(0, 0, descriptor.as_raw_fd().cast_unsigned())
    }

    /// The open file at this address, if it is still one of this inode; `pid` and `descriptor` are 0. An address may be reused by another
    /// open file of the same inode.
    pub fn at(&self, open: u64, inode: u64) -> Result<Option<OpenState>> {
        if open == 0 { Ok(None) } else { self.query(open, inode, 0) }
    }

    fn query(&self, open: u64, inode: u64, descriptor: u32) -> Result<Option<OpenState>> {
        let mut query = [0; QUERY_BYTES];
        query[..8].copy_from_slice(&open.to_ne_bytes());
        query[8..16].copy_from_slice(&inode.to_ne_bytes());
        query[16..20].copy_from_slice(&descriptor.to_ne_bytes());
        let input = ProgramInput { context_in: Some(&mut query), ..ProgramInput::default() };
        program(&self.object, "query").test_run(input).map_err(|e| bpf_error("query an open file", e))?;
        let (arguments, state) = query.split_at(QUERY_BYTES - STATE_BYTES);
        let is_found = arguments[20..24] != [0; 4];
        Ok(is_found.then(|| OpenState::decode(state.try_into().expect("the rest is one state"))))
    }
}

/// A program by its name.
fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    object.progs_mut().find(|program| program.name() == name).expect("the object has this program")
}

impl OpenState {
    fn decode(bytes: &[u8; STATE_BYTES]) -> OpenState {
        let fields = Fields(bytes);
        let flags = fields.u8(94);
        OpenState {
            open: fields.u64(0),
            inode: fields.u64(8),
            inode_number: fields.u64(16),
            file_bytes: fields.u64(24),
            cached_pages: fields.u64(32),
            position_bytes: fields.u64(40),
            readahead: Readahead {
                start: fields.u64(48),
                prev_pos: fields.u64(56).cast_signed(),
                size: fields.u32(64).into(),
                async_size: fields.u32(68).into(),
                window_pages: fields.u32(72).into(),
                mmap_miss: fields.u16(92),
                is_random: flags & RANDOM != 0,
            },
            disk_window_pages: fields.u32(76).into(),
            device: DeviceNumber::from_kernel(fields.u32(80)),
            pid: fields.u32(84),
            descriptor: fields.u32(88),
            is_cached: flags & CACHED != 0,
            is_readable: flags & READABLE != 0,
            is_not_reused: flags & NOREUSE != 0,
            comm: fields.array(96),
        }
    }
}

#[cfg(test)]
mod tests;

//! An io_uring for reads into owned buffers, without helper threads.
//!
//! The ring owns each open file and each buffer until the kernel has completed the request that uses it: a caller cannot free memory that the
//! kernel still writes to. Only one thread at a time uses a ring (`&mut self`).

#![allow(unsafe_code)]

use crate::direct::AlignedBuffer;
use crate::fork_count::fork_count;
use crate::{Error, Result};
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of one request, bytes: far below the kernel's limit of 2 GiB.
pub const LARGEST_REQUEST_BYTES: usize = 64 << 20;

/// How long a ring that is dropped waits for requests that it has cancelled. Reads of a disk that answers take less; memory and file of a disk that
/// does not answer stay allocated.
const LONGEST_CANCEL: Duration = Duration::from_secs(1);

/// The token of the request that cancels the others.
const CANCEL: u64 = u64::MAX;

/// A request that the kernel has not completed yet.
#[derive(Debug)]
struct InFlight {
    token: u64,
    file: Arc<File>,
    buffer: AlignedBuffer,
}

/// A completed request.
#[derive(Debug)]
pub struct Completion {
    /// The number that the caller gave.
    pub token: u64,
    /// The bytes that were read.
    pub result: io::Result<usize>,
    /// The buffer of the read.
    pub buffer: AlignedBuffer,
}

/// A ring with its requests.
pub struct Ring {
    /// `None` only while it is dropped.
    ring: Option<IoUring>,
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Threads of the kernel execute the reads.
    is_async: bool,
    /// The process that made the ring.
    fork: u32,
}

impl Ring {
    /// A ring for this number of requests in flight.
    ///
    /// Errors: the kernel has no io_uring or forbids it (seccomp, `kernel.io_uring_disabled`), or descriptors are exhausted.
    pub fn new(depth: u32) -> Result<Ring> {
        let fork = fork_count();
        let ring = IoUring::new(depth.max(2)).map_err(|e| Error::io("set up io_uring", e))?;
        let slots = depth as usize;
        let (slots, free) = ((0..slots).map(|_| None).collect(), (0..slots).rev().collect());
        Ok(Ring { ring: Some(ring), slots, free, is_async: false, fork })
    }

    /// Lets threads of the kernel execute the reads. For file systems that may answer late (FUSE, network): the kernel executes their reads in the
    /// call that submits them, which then waits for the server.
    pub fn use_threads(&mut self) {
        self.is_async = true;
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Tokens of the requests in flight.
    pub fn tokens(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().map(|in_flight| in_flight.token)
    }

    /// Whether another request can be submitted.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Submits a read of `length_bytes` into the buffer, which comes back with the completion. Returns the buffer if there is no room.
    ///
    /// Errors: the kernel refused the submission; the request is not in flight.
    pub fn read(
        &mut self,
        file: &Arc<File>,
        offset_bytes: u64,
        length_bytes: usize,
        mut buffer: AlignedBuffer,
        token: u64,
    ) -> std::result::Result<(), (AlignedBuffer, Option<Error>)> {
        if !self.has_room() {
            return Err((buffer, None));
        }
        let length = length_bytes.min(buffer.bytes().len()).min(LARGEST_REQUEST_BYTES) as u32;
        let address = buffer.bytes().as_mut_ptr();
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), address, length).offset(offset_bytes).build();
        let entry = if self.is_async { entry.flags(squeue::Flags::ASYNC) } else { entry };
        let submitted = self.submit(entry, InFlight { token, file: file.clone(), buffer });
        submitted.map_err(|(in_flight, error)| (in_flight.buffer, Some(error)))
    }

    fn submit(&mut self, entry: squeue::Entry, in_flight: InFlight) -> std::result::Result<(), (InFlight, Error)> {
        let (Some(ring), Some(slot)) = (self.ring.as_mut(), self.free.pop()) else {
            return Err((in_flight, Error::io("submit to io_uring", io::Error::from_raw_os_error(libc::EAGAIN))));
        };
        self.slots[slot] = Some(in_flight);
        let entry = entry.user_data(slot as u64);
        // SAFETY: file and buffer of the entry are in the slot until the completion of the request is seen, also if this value is dropped.
        let pushed = unsafe { ring.submission().push(&entry) };
        let failure = match pushed {
            Err(_) => Some(io::Error::from_raw_os_error(libc::EAGAIN)),
            Ok(()) => match retry(|| ring.submit()) {
                Ok(_) => None,
                // The entry stays in the queue and is submitted with the next one: it counts as in flight.
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) || error.kind() == io::ErrorKind::WouldBlock =>
                {
                    None
                }
                Err(error) => {
                    // It may be submitted later nevertheless, so its slot stays taken.
                    return Err((self.detach(slot), Error::io("submit to io_uring", error)));
                }
            },
        };
        match failure {
            None => Ok(()),
            Some(error) => {
                let in_flight = self.slots[slot].take().expect("it was put there");
                self.free.push(slot);
                Err((in_flight, Error::io("submit to io_uring", error)))
            }
        }
    }

    /// The kernel may still take the entry of this slot: the caller gets another buffer, an empty one if there is no memory.
    fn detach(&mut self, slot: usize) -> InFlight {
        let kept = self.slots[slot].as_mut().expect("it was put there");
        let another = AlignedBuffer::try_new(kept.buffer.bytes().len());
        let buffer = another.unwrap_or_else(|_| AlignedBuffer::empty());
        InFlight { token: kept.token, file: kept.file.clone(), buffer }
    }

    /// Takes the completions that are there, without waiting.
    pub fn completions(&mut self) -> Vec<Completion> {
        let Some(ring) = self.ring.as_mut() else { return Vec::new() };
        let mut done = Vec::new();
        for entry in ring.completion() {
            let slot = entry.user_data();
            let Some(in_flight) = self.slots.get_mut(slot as usize).and_then(Option::take) else { continue };
            self.free.push(slot as usize);
            let result = match entry.result() {
                negative @ ..0 => Err(io::Error::from_raw_os_error(-negative)),
                bytes => Ok(bytes as usize),
            };
            done.push(Completion { token: in_flight.token, result, buffer: in_flight.buffer });
        }
        done
    }

    /// Waits until at least one request is complete, and takes all that are. Empty: none is in flight.
    ///
    /// Errors: the kernel cannot wait.
    pub fn wait(&mut self) -> Result<Vec<Completion>> {
        loop {
            let done = self.completions();
            if !done.is_empty() || self.in_flight() == 0 {
                return Ok(done);
            }
            let Some(ring) = self.ring.as_ref() else { return Ok(done) };
            retry(|| ring.submit_and_wait(1)).map_err(|e| Error::io("wait for io_uring", e))?;
        }
    }

    /// Cancels what is in flight and waits for its end. Returns whether nothing is in flight any more.
    fn cancel(&mut self) -> bool {
        if self.in_flight() == 0 {
            return true;
        }
        if let Some(ring) = self.ring.as_mut() {
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build().user_data(CANCEL);
            // SAFETY: this request uses no memory. If the queue is full, or the kernel is older than 5.19, the requests end by themselves.
            let _ = unsafe { ring.submission().push(&cancel) };
        }
        let until = std::time::Instant::now() + LONGEST_CANCEL;
        while self.in_flight() > 0 {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let Some(ring) = self.ring.as_ref() else { return false };
            let timeout = types::Timespec::from(left);
            let arguments = types::SubmitArgs::new().timespec(&timeout);
            let waited = retry(|| ring.submitter().submit_with_args(1, &arguments));
            self.completions();
            if left.is_zero() || waited.is_err_and(|error| error.raw_os_error() != Some(libc::ETIME)) {
                break;
            }
        }
        self.in_flight() == 0
    }

    /// Whether the ring was made by this process. A child of fork(2) may only drop the ring of its parent, which does not touch it: the requests
    /// and their memory are the parent's.
    pub fn is_own(&self) -> bool {
        self.fork == fork_count()
    }
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.ring.take());
            self.slots.drain(..).for_each(std::mem::forget);
        } else if !self.cancel() {
            // The kernel may still write into the buffers: they stay allocated.
            self.slots.drain(..).for_each(std::mem::forget);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    }

    fn ring(depth: u32) -> Option<Ring> {
        Ring::new(depth).map_err(|error| eprintln!("skipped: {error}")).ok()
    }

    #[test]
    fn each_read_completes_once_with_its_buffer() {
        let Some(mut ring) = ring(4) else { return };
        let file = file(&(0..=255u8).cycle().take(64 << 10).collect::<Vec<_>>());
        let mut seen = Vec::new();
        for token in 0..16u64 {
            if !ring.has_room() {
                seen.extend(ring.wait().unwrap());
            }
            ring.read(&file, token * 4096 + 1, 4096, AlignedBuffer::new(4096), token).unwrap();
        }
        while ring.in_flight() > 0 {
            seen.extend(ring.wait().unwrap());
        }
        seen.sort_by_key(|completion| completion.token);
        assert_eq!(seen.iter().map(|done| done.token).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
        for mut done in seen {
            let bytes = if done.token == 15 { 4095 } else { 4096 };
            assert_eq!(done.result.unwrap(), bytes);
            assert_eq!(done.buffer.bytes()[0], 1);
        }
        assert!(ring.wait().unwrap().is_empty());
    }

    #[test]
    fn full_ring_returns_the_buffer() {
        let Some(mut ring) = ring(1) else { return };
        let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let silent = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        ring.read(&silent, 0, 1, AlignedBuffer::new(1), 7).unwrap();
        let (mut buffer, error) = ring.read(&silent, 0, 1, AlignedBuffer::new(9), 8).unwrap_err();
        assert!(buffer.bytes().len() == 9 && error.is_none());
    }

    /// The read never completes by itself: the drop has to cancel it.
    #[test]
    fn drop_cancels_what_is_in_flight() {
        let Some(mut ring) = ring(2) else { return };
        let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let silent = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        ring.read(&silent, 0, 4096, AlignedBuffer::new(4096), 1).unwrap();
        let began = std::time::Instant::now();
        drop(ring);
        assert_eq!(Arc::strong_count(&silent), 1);
        assert!(began.elapsed() < LONGEST_CANCEL);
    }

    #[test]
    fn errors_of_a_read_are_in_its_completion() {
        let Some(mut ring) = ring(2) else { return };
        let directory = Arc::new(File::open(".").unwrap());
        ring.read(&directory, 0, 4096, AlignedBuffer::new(4096), 3).unwrap();
        let done = ring.wait().unwrap().remove(0);
        assert_eq!((done.token, done.result.unwrap_err().raw_os_error()), (3, Some(libc::EISDIR)));
    }
}

//! Reads past the page cache (O_DIRECT), into buffers of this process that are filled ahead of the reader.
//!
//! ```text
//!     reader ──▶ ├ chunk, complete ┤├ chunk, in flight ┤├ chunk, in flight ┤◀ edge       each with its own aligned buffer
//!                       │ copy              ╰─ io_uring of this reader, or the pool's threads
//!                       ▼
//!                 the program's buffer      a chunk that failed is read again in blocks up to the one that fails
//! ```
//!
//! Chunks are handed over only while the file is as it was before they were read ([`Version`]): each read looks, which costs a system call, as a
//! read from the page cache does. Otherwise they are dropped and read again. A file that was changed a moment ago is not read ahead.

use crate::stream::ahead::{Ahead, Extent};
use crate::stream::budget::{Budget, Share};
use crate::stream::counters::Counters;
use crate::stream::distance::{Distance, LARGEST_PIECE_BYTES};
use crate::stream::options::ReaderOptions;
use crate::stream::version::Version;
use ahead_fetch::DirectReads;
use ahead_model::DeviceNumber;
use ahead_policy::pattern::{Detector, Pattern};
use ahead_sys::block::O_DIRECT;
use ahead_sys::cache;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::fork_count::fork_count;
use ahead_sys::ring::Completion;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Instant;

/// Unit of direct reads, bytes: the largest logical block of common devices, and the alignment of [`AlignedBuffer`].
const BLOCK_BYTES: u64 = 4096;

/// Free buffers that are kept for the next chunks.
const KEPT_BUFFERS: usize = 2;

/// A read of one piece.
#[derive(Debug)]
struct Chunk {
    token: u64,
    /// The result, once it is there.
    done: Option<(io::Result<usize>, AlignedBuffer)>,
    /// The program has received bytes of it.
    is_used: bool,
}

/// The chunks of one reader.
#[derive(Debug)]
pub(crate) struct Direct {
    file: Arc<File>,
    extent: Extent,
    /// That of the file when the oldest chunk was submitted.
    version: Version,
    /// A change would make another version. Until then no chunk outlives the read that has submitted it.
    is_settled: bool,
    budget: Budget,
    largest_bytes: u64,
    detector: Detector,
    distance: Distance,
    share: Option<Share>,
    ahead: Ahead<Chunk>,
    reads: DirectReads,
    /// Reads in flight that were given up, with the bytes that they hold until they end.
    given_up: Vec<(u64, u64)>,
    free: Vec<AlignedBuffer>,
    next_token: u64,
    /// The process that has submitted the chunks.
    fork: u32,
    counters: Counters,
}

impl Direct {
    /// Opens the file again with O_DIRECT.
    ///
    /// Errors: the file system refuses it (EINVAL), /proc is not mounted, descriptors are exhausted.
    pub fn new(file: &File, options: &ReaderOptions, may_use_io_uring: bool) -> io::Result<Direct> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = File::options().read(true).custom_flags(O_DIRECT).open(path)?;
        let device = DeviceNumber::from_stat(file.metadata()?.dev());
        let version = Version::of(&file)?;
        let largest_bytes = options.largest_distance_bytes;
        let largest_bytes = (largest_bytes - largest_bytes % BLOCK_BYTES).max(BLOCK_BYTES);
        Ok(Direct {
            file: Arc::new(file),
            extent: Extent { size_bytes: version.size_bytes, page_bytes: BLOCK_BYTES },
            version,
            is_settled: version.is_settled(),
            budget: options.budget.clone(),
            largest_bytes,
            detector: options.pattern.map_or_else(Detector::default, Detector::given),
            distance: Distance::new(largest_bytes),
            share: None,
            ahead: Ahead::new(),
            reads: DirectReads::new(device, may_use_io_uring),
            given_up: Vec::new(),
            free: Vec::new(),
            next_token: 0,
            fork: fork_count(),
            counters: Counters { is_direct: true, ..Counters::default() },
        })
    }

    pub fn counters(&self) -> Counters {
        Counters { distance_bytes: self.distance.bytes(), ..self.counters }
    }

    /// As [`crate::stream::page_cache::PageCache::read`].
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.counters.reads += 1;
        if self.fork != fork_count() {
            self.forget_parent();
        }
        self.drop_outdated()?;
        if !self.detector.read(offset..offset.saturating_add(buffer.len() as u64)) {
            self.abandon();
        }
        let mut done = 0;
        while done < buffer.len() {
            match self.step(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.counters.bytes += done as u64;
        Ok(done)
    }

    /// Drops the chunks if the file may have changed since.
    fn drop_outdated(&mut self) -> io::Result<()> {
        let version = Version::of(&self.file)?;
        if version == self.version && self.is_settled {
            return Ok(());
        }
        self.abandon();
        if version != self.version {
            // A file that changes all the time is read ahead in small pieces only.
            self.distance = Distance::new(self.largest_bytes);
        }
        (self.version, self.extent.size_bytes) = (version, version.size_bytes);
        self.is_settled = version.is_settled();
        Ok(())
    }

    /// Copies the next bytes, from a chunk that is there or that is read now.
    fn step(&mut self, rest: &mut [u8], at: u64) -> io::Result<usize> {
        if at >= self.extent.size_bytes {
            // The file may have grown.
            self.look_up_size()?;
            if at >= self.extent.size_bytes {
                self.release_all();
                return Ok(0);
            }
        }
        let pattern = self.detector.pattern();
        let end = at.saturating_add(rest.len() as u64).min(self.extent.size_bytes);
        while let Some((piece, chunk)) = self.ahead.pop_passed(pattern, &(at..end)) {
            self.release(&piece, chunk);
            if matches!(pattern, Pattern::Sequential | Pattern::Backward) {
                self.distance.passed();
            }
        }
        let was_requested = self.ahead.find(at).is_some();
        if !was_requested {
            self.abandon();
            if self.read_own(at..end).is_err() {
                return self.read_failed(rest, at);
            }
        }
        self.fill(&(at..end));
        self.take(rest, at, was_requested)
    }

    fn look_up_size(&mut self) -> io::Result<()> {
        self.extent.size_bytes = self.file.metadata()?.len();
        Ok(())
    }

    /// Submits the read of the bytes that the program needs now. It has to wait only for reads that were given up.
    ///
    /// Errors: there is no memory for the buffer.
    fn read_own(&mut self, range: Range<u64>) -> io::Result<()> {
        let share = self.share.get_or_insert_with(|| self.budget.register());
        self.distance.limit(self.largest_bytes.min(share.limit_bytes()));
        let start = self.extent.floor(range.start);
        let bytes = match self.detector.pattern() {
            Pattern::Sequential if self.is_settled => self.distance.piece_bytes(),
            _ => (self.extent.ceil(range.end) - start).min(LARGEST_PIECE_BYTES).min(share.limit_bytes()),
        };
        let piece = start..(start + bytes).min(self.extent.ceil(self.extent.size_bytes));
        let length = piece.end - piece.start;
        while self.share.as_mut().is_some_and(|share| !share.take(length)) && !self.given_up.is_empty() {
            self.complete(true);
        }
        let chunk = self.submit(&piece)?;
        self.ahead.push_own(self.detector.pattern(), piece, chunk);
        Ok(())
    }

    /// Submits reads ahead, as far as there is room.
    fn fill(&mut self, read: &Range<u64>) {
        if !self.is_settled {
            return;
        }
        let pattern = self.detector.pattern();
        let Some(limit) = self.share.as_ref().map(Share::limit_bytes) else { return };
        self.distance.limit(self.largest_bytes.min(limit));
        while self.reads.has_room()
            && let Some(next) = self.ahead.next(pattern, read, &self.distance, self.extent)
        {
            if self.share.as_mut().is_none_or(|share| !share.take(next.piece.end - next.piece.start)) {
                break;
            }
            let Ok(chunk) = self.submit(&next.piece) else { break };
            self.ahead.push(next, chunk);
        }
    }

    /// Submits a read of a piece that was taken from the share.
    ///
    /// Errors: there is no memory for the buffer; the share has it back.
    fn submit(&mut self, piece: &Range<u64>) -> io::Result<Chunk> {
        let length = (piece.end - piece.start) as usize;
        let fits = |buffer: &mut AlignedBuffer| buffer.bytes().len() >= length;
        let buffer = self.free.iter_mut().position(fits).map(|index| self.free.swap_remove(index));
        let buffer = buffer.map_or_else(|| AlignedBuffer::try_new(length), Ok).inspect_err(|_| {
            if let Some(share) = self.share.as_mut() {
                share.give_back(length as u64);
            }
        });
        let mut buffer = Some(buffer?);
        let token = self.next_token;
        self.next_token += 1;
        self.counters.requests += 1;
        self.counters.requested_bytes += length as u64;
        while let Some(given) = buffer.take() {
            // Full of reads that were given up.
            if let Err(given) = self.reads.start(&self.file, piece.start, length, given, token) {
                buffer = Some(given);
                self.complete(true);
            }
        }
        Ok(Chunk { token, done: None, is_used: false })
    }

    /// Notes completed reads. `waits`: at least one, if any is in flight.
    fn complete(&mut self, waits: bool) {
        for Completion { token, result, buffer } in self.reads.completed(waits) {
            let Some(buffer) = buffer else { continue };
            if let Some((_, chunk)) = self.ahead.iter_mut().find(|(_, chunk)| chunk.token == token) {
                chunk.done = Some((result, buffer));
            } else if let Some(index) = self.given_up.iter().position(|(given_up, _)| *given_up == token) {
                let (_, bytes) = self.given_up.swap_remove(index);
                self.keep(buffer, bytes);
            }
        }
    }

    /// Copies from the chunk with this offset, and waits for it.
    fn take(&mut self, rest: &mut [u8], at: u64, was_requested: bool) -> io::Result<usize> {
        self.complete(false);
        let mut is_late = false;
        let began = Instant::now();
        while self.ahead.find(at).is_some_and(|(_, chunk)| chunk.done.is_none()) {
            is_late = true;
            self.complete(true);
        }
        if is_late {
            self.counters.waits += 1;
            self.counters.waited_us += began.elapsed().as_micros() as u64;
            if was_requested {
                self.distance.waited();
            }
        }
        let Some((piece, Chunk { done: Some((Ok(length), buffer)), is_used, .. })) = self.ahead.find(at) else {
            return self.read_failed(rest, at);
        };
        *is_used = true;
        let skip = (at - piece.start) as usize;
        let length = *length;
        if skip < length {
            let count = (length - skip).min(rest.len());
            rest[..count].copy_from_slice(&buffer.bytes()[skip..skip + count]);
            return Ok(count);
        }
        // The chunk was read up to the end of the file, which may have moved since.
        self.look_up_size()?;
        if at >= self.extent.size_bytes { Ok(0) } else { self.read_failed(rest, at) }
    }

    /// Gives up the chunk with this offset, and reads its part of the bytes again, block by block: up to the block that fails.
    fn read_failed(&mut self, rest: &mut [u8], at: u64) -> io::Result<usize> {
        let end = self.ahead.find(at).map_or(at + BLOCK_BYTES, |(piece, _)| piece.end);
        if let Some((piece, chunk)) = self.ahead.remove(at) {
            self.release(&piece, chunk);
        }
        let mut block = AlignedBuffer::try_new(BLOCK_BYTES as usize)?;
        let (mut done, room) = (0, rest.len().min((end - at) as usize));
        while done < room {
            let next = at + done as u64;
            let start = self.extent.floor(next);
            let read = match cache::read_waiting(&self.file, block.bytes(), start) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(read) => read,
            };
            let skip = (next - start) as usize;
            let count = read.saturating_sub(skip).min(room - done);
            rest[done..done + count].copy_from_slice(&block.bytes()[skip..skip + count]);
            done += count;
            if read < BLOCK_BYTES as usize {
                break;
            }
        }
        Ok(done)
    }

    /// Gives up a chunk, or what is left of it.
    fn release(&mut self, piece: &Range<u64>, chunk: Chunk) {
        let bytes = piece.end - piece.start;
        match chunk.done {
            Some((_, buffer)) => self.keep(buffer, bytes),
            None => self.given_up.push((chunk.token, bytes)),
        }
    }

    /// Takes a buffer back that nothing uses any more.
    fn keep(&mut self, buffer: AlignedBuffer, bytes: u64) {
        if let Some(share) = self.share.as_mut() {
            share.give_back(bytes);
        }
        if self.free.len() < KEPT_BUFFERS {
            self.free.push(buffer);
        }
    }

    fn abandon(&mut self) {
        while let Some((piece, chunk)) = self.ahead.pop() {
            self.counters.abandoned_bytes += if chunk.is_used { 0 } else { piece.end - piece.start };
            self.release(&piece, chunk);
        }
    }

    /// At the end of the file nothing is held.
    fn release_all(&mut self) {
        while let Some((piece, chunk)) = self.ahead.pop() {
            self.release(&piece, chunk);
        }
        if self.given_up.is_empty() {
            self.share = None;
            self.free.clear();
        }
    }

    /// The chunks in flight are the parent's. They are read again.
    fn forget_parent(&mut self) {
        self.fork = fork_count();
        while self.ahead.pop().is_some() {}
        self.given_up.clear();
        self.reads.forget();
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        if self.fork != fork_count() {
            self.forget_parent();
        }
    }
}

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

use crate::stream::counters::Counters;
use crate::stream::options::ReaderOptions;
use crate::stream::version::Version;
use ahead_fetch::{Budget, DirectReads, Share};
use ahead_model::DeviceNumber;
use ahead_policy::reading::{Extent, Host, Reading, Refused, Release};
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

/// The reads of one reader.
#[derive(Debug)]
pub(crate) struct Direct {
    reading: Reading<Chunk>,
    chunks: Chunks,
    /// That of the file when the oldest chunk was submitted.
    version: Version,
    /// A change would make another version. Until then no chunk outlives the read that has submitted it.
    is_settled: bool,
    /// The process that has submitted the chunks.
    fork: u32,
}

/// Submits chunks, and has the memory of those that were released.
#[derive(Debug)]
struct Chunks {
    file: Arc<File>,
    budget: Budget,
    share: Option<Share>,
    reads: DirectReads,
    /// Reads in flight that were given up, with the bytes that they hold until they end.
    given_up: Vec<(u64, u64)>,
    free: Vec<AlignedBuffer>,
    next_token: u64,
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
        let extent = Extent { size_bytes: version.size_bytes, page_bytes: BLOCK_BYTES };
        let chunks = Chunks {
            file: Arc::new(file),
            budget: options.budget.clone(),
            share: None,
            reads: DirectReads::new(device, may_use_io_uring),
            given_up: Vec::new(),
            free: Vec::new(),
            next_token: 0,
            counters: Counters { is_direct: true, ..Counters::default() },
        };
        let reading = Reading::new(options.pattern, options.largest_distance_bytes, extent);
        Ok(Direct { reading, chunks, version, is_settled: version.is_settled(), fork: fork_count() })
    }

    pub fn counters(&self) -> Counters {
        Counters { distance_bytes: self.reading.distance.bytes(), ..self.chunks.counters }
    }

    /// As [`crate::stream::page_cache::PageCache::read`].
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.chunks.counters.reads += 1;
        if self.fork != fork_count() {
            self.forget_parent();
        }
        self.drop_outdated()?;
        if self.reading.note(&(offset..offset.saturating_add(buffer.len() as u64))) == Some(false) {
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
        self.chunks.counters.bytes += done as u64;
        Ok(done)
    }

    /// Drops the chunks if the file may have changed since.
    fn drop_outdated(&mut self) -> io::Result<()> {
        let version = Version::of(&self.chunks.file)?;
        if version == self.version && self.is_settled {
            return Ok(());
        }
        self.abandon();
        if version != self.version {
            // A file that changes all the time is read ahead in small pieces only.
            self.reading.reset_distance();
        }
        (self.version, self.reading.extent.size_bytes) = (version, version.size_bytes);
        self.is_settled = version.is_settled();
        Ok(())
    }

    /// Copies the next bytes, from a chunk that is there or that is read now.
    fn step(&mut self, rest: &mut [u8], at: u64) -> io::Result<usize> {
        if at >= self.reading.extent.size_bytes {
            // The file may have grown.
            self.look_up_size()?;
            if at >= self.reading.extent.size_bytes {
                self.release_all();
                return Ok(0);
            }
        }
        let range = at..at.saturating_add(rest.len() as u64).min(self.reading.extent.size_bytes);
        self.reading.pass(&range, &mut self.chunks);
        let was_requested = self.reading.pieces.find(at).is_some();
        if !was_requested {
            self.abandon();
            if self.read_own(&range).is_err() {
                return self.read_failed(rest, at);
            }
        }
        if self.is_settled {
            self.reading.fill(&range, false, &mut self.chunks);
        }
        self.take(rest, at, was_requested)
    }

    fn look_up_size(&mut self) -> io::Result<()> {
        self.reading.extent.size_bytes = self.chunks.file.metadata()?.len();
        Ok(())
    }

    /// Submits the read of the bytes that the program needs now. It has to wait only for reads that were given up.
    ///
    /// Errors: there is no memory for the buffer.
    fn read_own(&mut self, range: &Range<u64>) -> io::Result<()> {
        self.chunks.register();
        let piece = self.reading.own_piece(range, self.is_settled, &self.chunks);
        let length = piece.end - piece.start;
        while self.chunks.share.as_mut().is_some_and(|share| !share.take(length)) && !self.chunks.given_up.is_empty() {
            self.complete(true);
        }
        while !self.chunks.reads.has_room() {
            // Full of reads that were given up.
            self.complete(true);
        }
        let chunk = self.chunks.submit(&piece)?;
        self.reading.push_own(piece, chunk);
        Ok(())
    }

    /// Notes completed reads. `waits`: at least one, if any is in flight.
    fn complete(&mut self, waits: bool) {
        for Completion { token, result, buffer } in self.chunks.reads.completed(waits) {
            if let Some((_, chunk)) = self.reading.pieces.iter_mut().find(|(_, chunk)| chunk.token == token) {
                chunk.done = Some((result, buffer));
            } else if let Some(index) = self.chunks.given_up.iter().position(|(given_up, _)| *given_up == token) {
                let (_, bytes) = self.chunks.given_up.swap_remove(index);
                self.chunks.keep(buffer, bytes);
            }
        }
    }

    /// Copies from the chunk with this offset, and waits for it.
    fn take(&mut self, rest: &mut [u8], at: u64, was_requested: bool) -> io::Result<usize> {
        self.complete(false);
        let mut is_late = false;
        let began = Instant::now();
        while self.reading.pieces.find(at).is_some_and(|(_, chunk)| chunk.done.is_none()) {
            is_late = true;
            self.complete(true);
        }
        if is_late {
            self.chunks.counters.waits += 1;
            self.chunks.counters.waited_us += began.elapsed().as_micros() as u64;
            if was_requested {
                self.reading.distance.waited();
            }
        }
        let Some((piece, Chunk { done: Some((Ok(length), buffer)), is_used, .. })) = self.reading.pieces.find(at)
        else {
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
        if at >= self.reading.extent.size_bytes { Ok(0) } else { self.read_failed(rest, at) }
    }

    /// Gives up the chunk with this offset, and reads its part of the bytes again, block by block: up to the block that fails.
    fn read_failed(&mut self, rest: &mut [u8], at: u64) -> io::Result<usize> {
        let end = self.reading.pieces.find(at).map_or(at + BLOCK_BYTES, |(piece, _)| piece.end);
        if let Some((piece, chunk)) = self.reading.pieces.remove(at) {
            self.chunks.release(&piece, chunk, Release::Passed);
        }
        let mut block = AlignedBuffer::try_new(BLOCK_BYTES as usize)?;
        let (mut done, room) = (0, rest.len().min((end - at) as usize));
        while done < room {
            let next = at + done as u64;
            let start = self.reading.extent.floor(next);
            let read = match cache::read_waiting(&self.chunks.file, block.bytes(), start) {
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

    fn abandon(&mut self) {
        self.reading.abandon(&mut self.chunks);
    }

    /// At the end of the file nothing is held.
    fn release_all(&mut self) {
        while let Some((piece, chunk)) = self.reading.pieces.pop() {
            self.chunks.release(&piece, chunk, Release::Passed);
        }
        if self.chunks.given_up.is_empty() {
            self.chunks.unregister();
            self.chunks.free.clear();
        }
    }

    /// The chunks in flight are the parent's. They are read again.
    fn forget_parent(&mut self) {
        self.fork = fork_count();
        while self.reading.pieces.pop().is_some() {}
        self.chunks.given_up.clear();
        self.chunks.reads.forget();
    }
}

impl Chunks {
    /// Submits a read of a piece that was taken from the share.
    ///
    /// Errors: there is no memory for the buffer, or no room; the share has it back.
    fn submit(&mut self, piece: &Range<u64>) -> io::Result<Chunk> {
        let length = (piece.end - piece.start) as usize;
        let fits = |buffer: &mut AlignedBuffer| buffer.bytes().len() >= length;
        let buffer = self.free.iter_mut().position(fits).map(|index| self.free.swap_remove(index));
        let buffer = buffer.map_or_else(|| AlignedBuffer::try_new(length), Ok);
        let token = self.next_token;
        let started = buffer.and_then(|buffer| {
            let started = self.reads.start(&self.file, piece.start, length, buffer, token);
            started.map_err(|_| io::ErrorKind::WouldBlock.into())
        });
        match (started, &mut self.share) {
            (Ok(()), _) => {}
            (Err(error), share) => {
                share.iter_mut().for_each(|share| share.give_back(length as u64));
                return Err(error);
            }
        }
        self.next_token += 1;
        self.counters.requests += 1;
        self.counters.requested_bytes += length as u64;
        Ok(Chunk { token, done: None, is_used: false })
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
}

impl Host<Chunk> for Chunks {
    fn limit_bytes(&self) -> Option<u64> {
        self.share.as_ref().map(Share::limit_bytes)
    }

    fn register(&mut self) {
        self.share.get_or_insert_with(|| self.budget.register());
    }

    fn unregister(&mut self) {
        self.share = None;
    }

    /// The page cache does not matter.
    fn is_cached(&mut self, _piece: &Range<u64>) -> bool {
        false
    }

    fn request(&mut self, piece: &Range<u64>, _is_needed: bool) -> Result<Chunk, Refused> {
        if !self.reads.has_room_ahead() {
            return Err(Refused::Queue);
        }
        if self.share.as_mut().is_none_or(|share| !share.take(piece.end - piece.start)) {
            return Err(Refused::Budget);
        }
        self.submit(piece).map_err(|_| Refused::Budget)
    }

    fn release(&mut self, piece: &Range<u64>, chunk: Chunk, why: Release) {
        let bytes = piece.end - piece.start;
        self.counters.abandoned_bytes += if why == Release::Abandoned && !chunk.is_used { bytes } else { 0 };
        match chunk.done {
            Some((_, buffer)) => self.keep(buffer, bytes),
            None => self.given_up.push((chunk.token, bytes)),
        }
    }

    fn size_bytes(&mut self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        if self.fork != fork_count() {
            self.forget_parent();
        }
    }
}

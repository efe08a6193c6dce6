//! Carries out the exchanges of a record, in either direction.
//!
//! ```text
//!     each file:    handle ▸ the recorded inode? ▸ no writer? ▸ open for writing
//!     each piece:   both sides where the record says? ▸ read ahead ▸ exchange ▸ signal?
//! ```
//!
//! A file is open for writing only during its exchanges. A process that opens it for writing in this time is not hindered: the kernel keeps
//! exchanges and writes apart. But the next check sees it, and the rest of the file stays.

use super::Progress;
use super::reason::Reason;
use super::survey::{check_idle, check_properties};
use ahead::{Result, Signals};
use ahead_fetch::calls;
use ahead_model::DeviceNumber;
use ahead_plan::relocation::{Direction, Move, PackedFile, Record, Run, moved_bytes, pending, runs_of};
use ahead_sys::openat::{self, Handle};
use ahead_sys::{Error, ext4, fiemap, filehandle, generation};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of one exchange: a tenth of a second on a rotating disk, so that signals and writers are noticed soon.
const PIECE_BYTES: u64 = 8 << 20;

/// After this number of bytes the file system is synced: it limits the dirty pages.
const SYNC_BYTES: u64 = 64 << 20;

/// The exchanges of a record.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The durable record.
    pub record: &'a Record,
    /// The donor, open for reading and writing.
    pub donor: &'a File,
    /// The root of the file system.
    pub mount_point: &'a Path,
    /// Which way.
    pub direction: Direction,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Exchanged {
    /// Files (indices in the record) that were left, at least in part.
    pub refused: Vec<(usize, Reason)>,
    /// The signal that ended the work.
    pub stopped_by: Option<i32>,
    /// After an undo: bytes of the record that lie at neither place, because another program has moved or truncated them.
    pub elsewhere_bytes: u64,
}

/// Attempts to exchange pages of a file that has been written: each writes its pages first, and a writer may be faster.
const ATTEMPTS: u32 = 3;

/// Why the rest of a file is left.
enum Left {
    Refused(Reason),
    Stopped(i32),
    Failed(Error),
}

impl From<Reason> for Left {
    fn from(reason: Reason) -> Left {
        Left::Refused(reason)
    }
}

impl From<Error> for Left {
    fn from(error: Error) -> Left {
        Left::Failed(error)
    }
}

impl Exchange<'_> {
    /// Makes every exchange that has not been made.
    ///
    /// # Errors
    /// A system call failed that cannot fail for one file alone.
    pub fn run(&self, signals: &Signals, progress: Progress<'_>) -> Result<Exchanged> {
        let mut by_file: Vec<Vec<&Move>> = vec![Vec::new(); self.record.files.len()];
        self.record.moves.iter().for_each(|one| by_file[one.file].push(one));
        let (mut done, total) = (Exchanged::default(), self.record.bytes());
        let (mut bytes, mut unsynced) = (0, 0);
        for (index, moves) in by_file.iter().enumerate() {
            let file = &self.record.files[index];
            let own_bytes: u64 = moves.iter().map(|one| one.length_bytes).sum();
            progress(bytes, total, &String::from_utf8_lossy(&file.path));
            match self.file(file, moves, signals) {
                Ok(elsewhere_bytes) => done.elsewhere_bytes += elsewhere_bytes,
                Err(Left::Refused(reason)) => done.refused.push((index, reason)),
                Err(Left::Stopped(signal)) => {
                    done.stopped_by = Some(signal);
                    return Ok(done);
                }
                Err(Left::Failed(error)) => return Err(error.into()),
            }
            bytes += own_bytes;
            unsynced += own_bytes;
            if unsynced >= SYNC_BYTES {
                unsynced = 0;
                rustix::fs::syncfs(self.donor).map_err(|error| Error::io("syncfs", error))?;
            }
        }
        Ok(done)
    }

    /// Exchanges the ranges of one file. Returns the bytes that lie at neither place.
    fn file(&self, file: &PackedFile, moves: &[&Move], signals: &Signals) -> std::result::Result<u64, Left> {
        let Some(handle) = self.find(file)? else { return Ok(moves.iter().map(|one| one.length_bytes).sum()) };
        let reader = handle.reopen().map_err(|_| Reason::NotReadable)?;
        for one in moves {
            let mut at = 0;
            while at < one.length_bytes {
                let length_bytes = PIECE_BYTES.min(one.length_bytes - at);
                self.piece(&handle, &reader, file, &part(one, at, length_bytes), signals)?;
                at += length_bytes;
            }
        }
        self.elsewhere(&reader, moves)
    }

    /// The file of the record: by its path, or for an undo also by its inode if it was renamed. `None`: it was deleted, so that nothing is left
    /// to undo.
    fn find(&self, file: &PackedFile) -> std::result::Result<Option<Handle>, Left> {
        let path = Path::new(OsStr::from_bytes(&file.path));
        let handle = openat::handle(path).ok().filter(|handle| is_file(handle, file));
        match (handle, self.direction) {
            (Some(handle), Direction::Undo) => Ok(Some(handle)),
            (Some(handle), Direction::Pack) => {
                let identity = handle.identity();
                let is_same = identity.size_bytes == file.size_bytes && identity.mtime_ns == file.mtime_ns;
                if is_same { Ok(Some(handle)) } else { Err(Reason::Changed.into()) }
            }
            (None, Direction::Pack) => Err(Reason::Changed.into()),
            (None, Direction::Undo) => {
                let found = filehandle::path_of(self.mount_point, "ext4", file.inode, file.generation);
                // ESTALE: there is no such inode any more.
                let Ok(path) = found else { return Ok(None) };
                match openat::handle(&path).ok().filter(|handle| is_file(handle, file)) {
                    Some(handle) => Ok(Some(handle)),
                    // It exists and has no name: it ends with the last process that has it open.
                    None => Ok(None),
                }
            }
        }
    }

    fn piece(
        &self,
        handle: &Handle,
        reader: &OwnedFd,
        file: &PackedFile,
        one: &Move,
        signals: &Signals,
    ) -> std::result::Result<(), Left> {
        if let Some(signal) = signals.poll() {
            return Err(Left::Stopped(signal.number));
        }
        let (file_runs, donor_runs) = (self.runs(reader, one.offset_bytes, one.length_bytes)?, self.donor_runs(one)?);
        let ranges = pending(one, self.direction, &file_runs, &donor_runs);
        if ranges.is_empty() {
            return Ok(());
        }
        self.check(handle, reader, file)?;
        let writer = ext4::open_for_exchange(handle)?;
        for range in ranges {
            // The exchange reads page by page.
            let bytes = one.offset_bytes + range.start..one.offset_bytes + range.end;
            drop(calls::read_ahead(DeviceNumber::from_key(handle.identity().device), reader, &bytes));
            self.exchange(&writer, one, range)?;
        }
        if self.direction == Direction::Pack && !has_recorded_times(reader, file) {
            return Err(Reason::Changed.into());
        }
        Ok(())
    }

    fn check(&self, handle: &Handle, reader: &OwnedFd, file: &PackedFile) -> std::result::Result<(), Left> {
        check_properties(reader)?;
        match (check_idle(handle, reader), self.direction) {
            // The kernel keeps writes and exchanges apart; an undo is wanted for every file.
            (Ok(()), _) | (Err(Reason::BeingWritten), Direction::Undo) => {}
            (Err(reason), _) => return Err(reason.into()),
        }
        match self.direction == Direction::Undo || has_recorded_times(reader, file) {
            true => Ok(()),
            false => Err(Reason::Changed.into()),
        }
    }

    fn exchange(&self, writer: &OwnedFd, one: &Move, range: std::ops::Range<u64>) -> std::result::Result<(), Left> {
        let block = self.record.block_bytes;
        let (mut at, mut attempts) = (range.start, 0);
        while at < range.end {
            let wanted = ext4::Exchange {
                original_start: (one.offset_bytes + at) / block,
                donor_start: (one.donor_bytes + at) / block,
                blocks: (range.end - at) / block,
            };
            match ext4::exchange(writer, self.donor, wanted) {
                Ok(0) => return Err(Reason::Busy.into()),
                Ok(moved) => at += moved * block,
                // Pages that are not written yet, or written at this moment.
                Err(error) if error.is_busy() && attempts < ATTEMPTS => {
                    attempts += 1;
                    rustix::fs::fdatasync(writer).map_err(|error| Error::io("fdatasync", error))?;
                }
                Err(error) if error.is_busy() => return Err(Reason::Busy.into()),
                Err(error) if error.is_unavailable() => return Err(Reason::NotExchangeable.into()),
                Err(error) => return Err(Left::Failed(error)),
            }
        }
        Ok(())
    }

    fn runs(&self, reader: &OwnedFd, offset_bytes: u64, length_bytes: u64) -> std::result::Result<Vec<Run>, Error> {
        Ok(runs_of(&fiemap::extents(reader, offset_bytes, length_bytes)?, false))
    }

    fn donor_runs(&self, one: &Move) -> std::result::Result<Vec<Run>, Error> {
        Ok(runs_of(&fiemap::extents(self.donor, one.donor_bytes, one.length_bytes)?, true))
    }

    /// After an undo: bytes of the file that lie at neither place.
    fn elsewhere(&self, reader: &OwnedFd, moves: &[&Move]) -> std::result::Result<u64, Left> {
        if self.direction == Direction::Pack {
            return Ok(0);
        }
        let mut bytes = 0;
        for one in moves {
            let back = Move { new_physical_bytes: one.old_physical_bytes, ..**one };
            bytes += one.length_bytes - moved_bytes(&back, &self.runs(reader, one.offset_bytes, one.length_bytes)?);
        }
        Ok(bytes)
    }
}

/// A part of a move.
fn part(one: &Move, at: u64, length_bytes: u64) -> Move {
    Move {
        file: one.file,
        offset_bytes: one.offset_bytes + at,
        donor_bytes: one.donor_bytes + at,
        length_bytes,
        old_physical_bytes: one.old_physical_bytes + at,
        new_physical_bytes: one.new_physical_bytes + at,
    }
}

fn is_file(handle: &Handle, file: &PackedFile) -> bool {
    let is_generation = || handle.reopen().ok().and_then(|reader| generation::of(&reader)) == Some(file.generation);
    handle.is_regular_file() && handle.identity().inode == file.inode && is_generation()
}

fn has_recorded_times(reader: &OwnedFd, file: &PackedFile) -> bool {
    let identity = openat::identity(reader.as_fd());
    identity.is_ok_and(|now| now.size_bytes == file.size_bytes && now.mtime_ns == file.mtime_ns)
}

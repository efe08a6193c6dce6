//! The state behind a [`Reader`](crate::reader::Reader): a source, a position and a small buffer. No Python here, except for signals.
//!
//! ```text
//!     file       ────────────────┬──────────── buffer ─────────────┬───────────
//!                                │ consumed        │ available     │
//!                                              position
//!     large reads   are made without the buffer, from the source into the caller's memory
//!     small ones    from the buffer: 8 KiB after a seek, twice as much with each refill, so that single reads stay small
//! ```

use crate::errors::unsupported;
use crate::space::Space;
use ahead_read::stream::{Counters, Reader, ReaderOptions};
use pyo3::prelude::*;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};

/// First refill after a seek, bytes: Python's own buffer.
const FIRST_REFILL_BYTES: usize = 8 << 10;

/// Largest refill, bytes: a call of 128 KiB costs less than a thousandth of what it copies.
const LARGEST_REFILL_BYTES: usize = 128 << 10;

/// Where the bytes come from.
enum FileSource {
    /// A regular file or a block device, read at offsets, with read-ahead.
    Offsets(Reader),
    /// A FIFO, terminal, socket or character device, read in order.
    Order(File),
}

/// An open file.
pub struct OpenFile {
    source: FileSource,
    /// Offset of the next byte that the program gets.
    position: u64,
    buffer: Vec<u8>,
    /// Begin of the available bytes in the buffer.
    consumed: usize,
    /// Length of the next refill, bytes.
    refill_bytes: usize,
    /// An error behind bytes that were delivered. The next read raises it.
    error: Option<io::Error>,
    /// Where the last read that was shorter than asked for ended: at the end of the file, at that time.
    end: Option<u64>,
}

impl OpenFile {
    /// Blocks while a device or network answers.
    pub fn new(file: File, options: ReaderOptions) -> io::Result<OpenFile> {
        use std::os::unix::fs::FileTypeExt;
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(rustix::io::Errno::ISDIR.into());
        }
        let source = if kind.is_file() || kind.is_block_device() {
            FileSource::Offsets(Reader::with_options(file, options)?)
        } else {
            FileSource::Order(file)
        };
        let buffer = Vec::new();
        Ok(OpenFile {
            source,
            position: 0,
            buffer,
            consumed: 0,
            refill_bytes: FIRST_REFILL_BYTES,
            error: None,
            end: None,
        })
    }

    /// Counters of the read-ahead; zero for a source without.
    pub fn counters(&self) -> Counters {
        match &self.source {
            FileSource::Offsets(reader) => reader.counters(),
            FileSource::Order(_) => Counters::default(),
        }
    }

    /// The file of the operating system.
    pub fn file(&self) -> &File {
        match &self.source {
            FileSource::Offsets(reader) => reader.file(),
            FileSource::Order(file) => file,
        }
    }

    /// Whether the source has offsets.
    pub fn is_seekable(&self) -> bool {
        matches!(self.source, FileSource::Offsets(_))
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file().is_terminal()
    }

    /// Offset of the next byte that the program gets.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The bytes in the buffer: they are read without blocking.
    pub fn available(&self) -> &[u8] {
        &self.buffer[self.consumed..]
    }

    /// Takes bytes from the buffer.
    pub fn take(&mut self, out: &mut [u8]) -> usize {
        let bytes = out.len().min(self.available().len());
        out[..bytes].copy_from_slice(&self.available()[..bytes]);
        self.consume(bytes);
        bytes
    }

    /// Removes bytes from the buffer.
    pub fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
        self.position += bytes as u64;
    }

    /// Whether the last read from the file has seen that it ends here.
    pub fn has_seen_end(&self) -> bool {
        self.end == Some(self.position)
    }

    /// Forgets where the file ended: it may have grown.
    pub fn forget_end(&mut self) {
        self.end = None;
    }

    /// Length of the file now, bytes. `None`: the source has none.
    pub fn length(&mut self) -> io::Result<Option<u64>> {
        match &mut self.source {
            FileSource::Offsets(reader) => reader.seek(SeekFrom::End(0)).map(Some),
            FileSource::Order(_) => Ok(None),
        }
    }

    /// Sets the position. What is in the buffer stays there if the position is within it.
    pub fn seek(&mut self, position: u64) {
        let first = self.position - self.consumed as u64;
        self.error = None;
        match position.checked_sub(first) {
            Some(consumed) if consumed <= self.buffer.len() as u64 => self.consumed = consumed as usize,
            _ => {
                self.buffer.clear();
                self.consumed = 0;
                self.refill_bytes = FIRST_REFILL_BYTES;
            }
        }
        self.position = position;
    }

    /// One read of the source at the position, into memory outside of the buffer, which must be empty. 0: the end.
    fn read_source(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let bytes = match &mut self.source {
            FileSource::Offsets(reader) => {
                let bytes = reader.read_at(out, self.position)?;
                self.end = Some(self.position + bytes as u64).filter(|_| bytes < out.len());
                bytes
            }
            FileSource::Order(file) => file.read(out)?,
        };
        Ok(bytes)
    }

    /// Reads the next part of the source into the empty buffer. `false`: the end.
    pub fn refill(&mut self) -> io::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.consumed = 0;
        buffer.clear();
        buffer.try_reserve(self.refill_bytes)?;
        buffer.resize(self.refill_bytes, 0);
        let read = self.read_source(&mut buffer);
        buffer.truncate(*read.as_ref().unwrap_or(&0));
        self.buffer = buffer;
        self.refill_bytes = (2 * self.refill_bytes).min(LARGEST_REFILL_BYTES);
        read.map(|bytes| bytes > 0)
    }

    /// Reads once: what is available, or else one read of the source. 0: the end.
    pub fn read_once(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.available().is_empty() && out.len() < self.refill_bytes {
            self.refill()?;
        } else if self.available().is_empty() {
            let bytes = self.read_source(out)?;
            self.buffer.clear();
            self.consumed = 0;
            self.position += bytes as u64;
            return Ok(bytes);
        }
        Ok(self.take(out))
    }

    /// Leaves an error for the next read.
    pub fn delay(&mut self, error: io::Error) {
        self.error = Some(error);
    }

    /// Reads until the space is full, or to the end. Blocks without the GIL; signals are handled in between.
    ///
    /// An error behind some bytes is raised by the next read: those bytes are delivered first.
    pub fn fill(&mut self, py: Python<'_>, space: &mut Space<'_>) -> PyResult<io::Result<()>> {
        while !space.is_full() && !self.available().is_empty() {
            let bytes = self.take(space.part());
            space.fill(bytes);
        }
        if space.is_full() {
            return Ok(Ok(()));
        }
        match uninterrupted(py, || self.fill_from_source(space))? {
            Err(error) if space.filled() > 0 => {
                self.delay(error);
                Ok(Ok(()))
            }
            result => Ok(result),
        }
    }

    fn fill_from_source(&mut self, space: &mut Space<'_>) -> io::Result<()> {
        while !space.is_full() {
            match self.read_once(space.part())? {
                0 => break,
                bytes => space.fill(bytes),
            }
        }
        Ok(())
    }
}

/// Calls a function that blocks, without the GIL, until no signal interrupts it. The program's handlers run in between: `Ctrl-C` raises
/// `KeyboardInterrupt`.
pub fn uninterrupted<T: Send>(
    py: Python<'_>,
    mut call: impl FnMut() -> io::Result<T> + Send,
) -> PyResult<io::Result<T>> {
    loop {
        match py.detach(&mut call) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
            result => return Ok(result),
        }
    }
}

/// The position of `seek(offset, whence)`.
///
/// Errors: a position before the begin, an unknown whence, a source without offsets.
pub fn target(py: Python<'_>, file: &mut OpenFile, offset: i64, whence: i32) -> PyResult<io::Result<u64>> {
    if !file.is_seekable() {
        return Err(unsupported(py, "the file has no offsets: it is a pipe, a terminal or another device"));
    }
    let base = match whence {
        0 => 0,
        1 => file.position(),
        2 => match py.detach(|| file.length()) {
            Ok(length) => length.unwrap_or(0),
            Err(error) => return Ok(Err(error)),
        },
        _ => {
            let message = format!("whence: expected 0 (begin), 1 (position) or 2 (end), got {whence}");
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
    };
    // As lseek(2): offsets are signed.
    let position = base.checked_add_signed(offset).filter(|position| *position <= i64::MAX as u64);
    Ok(position.ok_or_else(|| rustix::io::Errno::INVAL.into()))
}

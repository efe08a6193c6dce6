//! A file that is read ahead: `Read`, `Seek`, `BufRead`, and reads at an offset.

use crate::stream::counters::Counters;
use crate::stream::direct::Direct;
use crate::stream::options::ReaderOptions;
use crate::stream::page_cache::PageCache;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Buffer of [`BufRead`], bytes: a call to the kernel costs a tenth of the copy.
const BUFFER_BYTES: usize = 64 << 10;

/// How the bytes are read.
#[derive(Debug)]
enum Source {
    /// Not a regular file: pipe, socket, device.
    Plain(Counters),
    PageCache(Box<PageCache>),
    Direct(Box<Direct>),
}

/// An open file that is read ahead of the program.
///
/// It gives the same bytes and errors as [`File`]. It has its own position, which begins at that of the file, and does not move that of the
/// file. While a reader exists, the kernel's read-ahead is off for the open file.
///
/// A reader can be moved to another thread, and is usable in a child of fork(2): both processes then have their own position.
#[derive(Debug)]
pub struct Reader {
    origin: Origin,
    source: Source,
    position: u64,
    /// Bytes of [`BufRead`], from `buffer_start` on.
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl Reader {
    /// Opens a file for reading.
    ///
    /// Errors: those of open(2).
    pub fn open(path: impl AsRef<Path>) -> io::Result<Reader> {
        Reader::open_with(path, ReaderOptions::default())
    }

    /// As [`Reader::open`], with options.
    ///
    /// Errors: those of open(2).
    pub fn open_with(path: impl AsRef<Path>, options: ReaderOptions) -> io::Result<Reader> {
        Origin { file: Arc::new(File::open(path)?), options, is_shared: false, may_use_io_uring: true }.reader(None)
    }

    /// Reads an open file. One that is not regular is read plainly.
    ///
    /// Errors: the file cannot be examined.
    pub fn new(file: File) -> io::Result<Reader> {
        Reader::with_options(file, ReaderOptions::default())
    }

    /// As [`Reader::new`], with options.
    ///
    /// Errors: the file cannot be examined.
    pub fn with_options(file: File, options: ReaderOptions) -> io::Result<Reader> {
        Origin { file: Arc::new(file), options, is_shared: true, may_use_io_uring: true }.reader(None)
    }

    /// The offset of the next read, bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What this reader did so far.
    pub fn counters(&self) -> Counters {
        match &self.source {
            Source::Plain(counters) => *counters,
            Source::PageCache(pages) => pages.counters(),
            Source::Direct(direct) => direct.counters(),
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.origin.file
    }

    /// What a reader in the place of this one needs.
    pub(crate) fn origin(&self) -> Origin {
        self.origin.clone()
    }

    /// Reads at an offset, until the buffer is full or the file ends. Moves no position. The reads count for the pattern.
    ///
    /// Errors: those of pread(2).
    #[inline(always)]
    pub fn read_at(&mut self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        match &mut self.source {
            Source::PageCache(pages) if !buffer.is_empty() && offset_bytes <= LAST_OFFSET => {
                pages.read(buffer, offset_bytes)
            }
            _ => self.read_at_otherwise(buffer, offset_bytes),
        }
    }

    #[inline(never)]
    fn read_at_otherwise(&mut self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let read = match &mut self.source {
            Source::Plain(_) | Source::PageCache(_) => self.origin.file.read_at(buffer, offset_bytes),
            _ if buffer.is_empty() || offset_bytes > LAST_OFFSET => self.origin.file.read_at(buffer, offset_bytes),
            Source::Direct(direct) => direct.read(buffer, offset_bytes),
        };
        match (read, &mut self.source) {
            (Ok(read), Source::Plain(counters)) => {
                counters.reads += 1;
                counters.bytes += read as u64;
                Ok(read)
            }
            (Err(error), Source::Direct(direct)) if is_refused(&error) && direct.counters().bytes == 0 => {
                self.source = self.origin.page_cache()?;
                self.read_at(buffer, offset_bytes)
            }
            (read, _) => read,
        }
    }

    /// The bytes of [`BufRead`] from the position on.
    fn buffered(&self) -> &[u8] {
        let skip = self.position.checked_sub(self.buffer_start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default()
    }

    /// Reads at the position, past the buffer.
    #[inline(always)]
    fn read_here(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Source::PageCache(pages) if !buffer.is_empty() => pages.read(buffer, self.position),
            _ => self.read_otherwise(buffer),
        }
    }

    #[inline(never)]
    fn read_otherwise(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Source::Plain(counters) = &mut self.source else { return self.read_at(buffer, self.position) };
        let read = (&*self.origin.file).read(buffer)?;
        counters.reads += 1;
        counters.bytes += read as u64;
        Ok(read)
    }

    fn seek_to(&mut self, from: u64, offset: i64) -> io::Result<u64> {
        let target = from.checked_add_signed(offset).filter(|target| i64::try_from(*target).is_ok());
        self.position = target.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
        Ok(self.position)
    }
}

/// An open file and how it is read: what a reader in the place of another needs.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    file: Arc<File>,
    pub options: ReaderOptions,
    /// The open file belongs to the caller, too.
    is_shared: bool,
    /// `false` only in tests, as where io_uring is forbidden.
    may_use_io_uring: bool,
}

impl Origin {
    /// A reader at an offset, with nothing read ahead. `None`: at the position of the file.
    pub fn reader(self, at: Option<u64>) -> io::Result<Reader> {
        let source = if self.file.metadata()?.is_file() { self.source()? } else { Source::Plain(Counters::default()) };
        // A pipe has no position.
        let position = at.unwrap_or_else(|| (&*self.file).stream_position().unwrap_or(0));
        Ok(Reader { origin: self, source, position, buffer: Vec::new(), buffer_start: 0 })
    }

    fn source(&self) -> io::Result<Source> {
        if self.options.direct {
            match Direct::new(&self.file, &self.options, self.may_use_io_uring) {
                Ok(direct) => return Ok(Source::Direct(Box::new(direct))),
                Err(error) => tracing::debug!("no direct reads: {error}"),
            }
        }
        self.page_cache()
    }

    fn page_cache(&self) -> io::Result<Source> {
        Ok(Source::PageCache(Box::new(PageCache::new(self.file.clone(), &self.options, self.is_shared)?)))
    }
}

/// The last offset that the kernel takes, bytes.
const LAST_OFFSET: u64 = i64::MAX as u64;

/// Invalid argument: the same number in Linux on every architecture.
const EINVAL: i32 = 22;

/// Whether the file system has no direct reads, or no blocks of this size.
fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EINVAL)
}

impl Read for Reader {
    #[inline(always)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.buffer.is_empty() {
            return self.read_buffered(buffer);
        }
        let read = self.read_here(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Reader {
    /// Reads what is left of the buffer of [`BufRead`], and then on past it.
    #[inline(never)]
    fn read_buffered(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.buffered();
        let copied = ready.len().min(buffer.len());
        buffer[..copied].copy_from_slice(&ready[..copied]);
        self.position += copied as u64;
        if copied == buffer.len() {
            return Ok(copied);
        }
        self.buffer.clear();
        // A pipe would wait for more.
        if copied > 0 && matches!(self.source, Source::Plain(_)) {
            return Ok(copied);
        }
        match self.read_here(&mut buffer[copied..]) {
            Ok(read) => {
                self.position += read as u64;
                Ok(copied + read)
            }
            // The next read reports it.
            Err(_) if copied > 0 => Ok(copied),
            Err(error) => Err(error),
        }
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.buffered().is_empty() {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            buffer.try_reserve_exact(BUFFER_BYTES)?;
            buffer.resize(BUFFER_BYTES, 0);
            let read = self.read_here(&mut buffer);
            buffer.truncate(*read.as_ref().unwrap_or(&0));
            (self.buffer, self.buffer_start) = (buffer, self.position);
            read?;
        }
        Ok(self.buffered())
    }

    fn consume(&mut self, amount: usize) {
        self.position += amount.min(self.buffered().len()) as u64;
    }
}

impl Seek for Reader {
    /// As for [`File`]: a target before the beginning is `InvalidInput`, one beyond the end is valid. A relative seek keeps the bytes of
    /// [`BufRead`], others drop them.
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        if matches!(self.source, Source::Plain(_)) {
            let buffered = self.buffered().len() as i64;
            let target = match target {
                SeekFrom::Current(offset) => SeekFrom::Current(offset.saturating_sub(buffered)),
                target => target,
            };
            self.position = (&*self.origin.file).seek(target)?;
            self.buffer.clear();
            return Ok(self.position);
        }
        match target {
            SeekFrom::Current(offset) => self.seek_to(self.position, offset),
            SeekFrom::Start(offset) => {
                self.buffer.clear();
                self.seek_to(offset, 0)
            }
            SeekFrom::End(offset) => {
                self.buffer.clear();
                let size = self.origin.file.metadata()?.len();
                self.seek_to(size, offset)
            }
        }
    }
}

#[cfg(test)]
mod tests;

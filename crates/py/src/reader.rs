//! `ahead.open` and `ahead.Reader`: a binary file object with read-ahead.

use crate::arguments;
use crate::counters;
use crate::errors::{check_memory, os_error};
use crate::file::{OpenFile, target, uninterrupted};
use crate::lock::{Exclusive, Guard};
use crate::space::{Space, append, copied, new_bytes, reserve};
use ahead_read::stream::{Counters, ReaderOptions};
use ahead_sys::reserve::LONGEST_PATH_BYTES;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Above this size, bytes, the length of the file limits what `read(n)` allocates: `read(1 << 40)` of a small file is valid.
const TRUSTED_BYTES: usize = 1 << 20;

/// First part of a file of unknown length in `read()`, bytes. It doubles.
const FIRST_PART_BYTES: usize = 64 << 10;

/// Opens a file for reading in binary mode, with read-ahead.
///
/// path: str, bytes or os.PathLike.
/// budget: memory that the read-ahead may hold: an ahead.Budget, bytes or "16M"; None: the 64 MiB of the process, shared.
/// pattern: "sequential", "backward", "random" or "stride"; None: found from the reads.
/// stride: distance between the beginnings of reads in bytes, for pattern="stride".
/// direct: direct I/O, which keeps the file out of the page cache. What was read ahead is dropped when the file was changed since (its size, mtime
///     or ctime is another one); not seen are direct writes that are under way meanwhile, and changes by other machines before the file system
///     shows them.
///
/// Raises OSError with errno and filename.
#[pyfunction]
#[pyo3(signature = (path, *, budget=None, pattern=None, stride=None, direct=false))]
pub fn open(
    path: &Bound<'_, PyAny>,
    budget: Option<&Bound<'_, PyAny>>,
    pattern: Option<&str>,
    stride: Option<i64>,
    direct: bool,
) -> PyResult<Reader> {
    check_memory()?;
    let py = path.py();
    let name = path.clone().unbind();
    let path =
        crate::items::path_of(path)?.ok_or_else(|| arguments::wrong_type("path", "str, bytes or os.PathLike", path))?;
    let options = ReaderOptions::default()
        .budget(arguments::budget(budget)?)
        .pattern(arguments::pattern(pattern, stride)?)
        .direct(direct);
    let named = |error: io::Error| os_error(py, &error, Some(&name));
    let file = uninterrupted(py, || open_file(&path))?.map_err(named)?;
    let file = py.detach(|| OpenFile::new(file, options)).map_err(named)?;
    let state = ReaderState { file: Some(file), last_counters: Counters::default() };
    Ok(Reader { state: Exclusive::new(state), name, is_closed: AtomicBool::new(false) })
}

/// As `File::open`, but a signal ends the wait for the writer of a FIFO.
fn open_file(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "path: embedded null byte"));
    }
    if path.as_os_str().len() > LONGEST_PATH_BYTES {
        return Err(rustix::io::Errno::NAMETOOLONG.into());
    }
    Ok(File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

/// A binary file object with read-ahead, made by ahead.open(). It has the methods of io.BufferedReader.
///
/// Several threads may use it; each call is made as a whole. After os.fork() parent and child each have a position.
#[pyclass(frozen, weakref, module = "ahead")]
pub struct Reader {
    state: Exclusive<ReaderState>,
    /// What was passed to `open`.
    name: Py<PyAny>,
    /// Known without waiting for a read of another thread.
    is_closed: AtomicBool,
}

struct ReaderState {
    /// `None`: closed.
    file: Option<OpenFile>,
    /// Counters at the time of closing.
    last_counters: Counters,
}

impl Guard<'_, ReaderState> {
    fn file(&mut self) -> PyResult<&mut OpenFile> {
        self.file.as_mut().ok_or_else(closed)
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

impl Reader {
    fn error(&self, py: Python<'_>, error: &io::Error) -> PyErr {
        os_error(py, error, Some(&self.name))
    }

    fn named<T>(&self, py: Python<'_>, result: io::Result<T>) -> PyResult<T> {
        result.map_err(|error| self.error(py, &error))
    }

    /// `read(n)`: at most `size` bytes, fewer only at the end.
    fn read_exactly<'py>(&self, py: Python<'py>, file: &mut OpenFile, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        if size <= file.available().len() {
            let bytes = copied(py, &file.available()[..size])?;
            file.consume(size);
            return Ok(bytes);
        }
        new_bytes(py, size, |space| self.named(py, file.fill(py, space)?))
    }

    /// `read()`: to the end, but at most `limit` bytes. The length of the file is a guess: it may change, and those in /proc have none.
    fn read_to_end<'py>(&self, py: Python<'py>, file: &mut OpenFile, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        file.forget_end();
        let length = self.named(py, py.detach(|| file.length()))?.unwrap_or(0);
        let expected = usize::try_from(length.saturating_sub(file.position())).unwrap_or(usize::MAX).min(limit);
        let first = self.read_exactly(py, file, expected)?;
        let is_short = first.as_bytes().len() < expected;
        if is_short || expected == limit || self.is_at_end(py, file)? {
            return Ok(first);
        }
        let mut all = Vec::new();
        append(&mut all, first.as_bytes())?;
        drop(first);
        let mut part_bytes = FIRST_PART_BYTES;
        loop {
            let start = all.len();
            let wanted = part_bytes.min(limit - start);
            reserve(&mut all, wanted)?;
            all.resize(start + wanted, 0);
            let mut space = Space::new(&mut all[start..]);
            self.named(py, file.fill(py, &mut space)?)?;
            let filled = space.filled();
            all.truncate(start + filled);
            if filled < wanted || all.len() == limit {
                return copied(py, &all);
            }
            part_bytes *= 2;
        }
    }

    /// Whether no byte follows. An error is left for the next read.
    fn is_at_end(&self, py: Python<'_>, file: &mut OpenFile) -> PyResult<bool> {
        if !file.available().is_empty() || file.has_seen_end() {
            return Ok(file.available().is_empty());
        }
        match uninterrupted(py, || file.refill())? {
            Ok(has_more) => Ok(!has_more),
            Err(error) => {
                file.delay(error);
                Ok(true)
            }
        }
    }

    /// A line of at most `limit` bytes, with its end; empty at the end of the file.
    fn line<'py>(&self, py: Python<'py>, file: &mut OpenFile, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut before: Vec<u8> = Vec::new();
        loop {
            let available = file.available();
            let available = &available[..available.len().min(limit - before.len())];
            let end = memchr::memchr(b'\n', available);
            let part = end.map_or(available, |at| &available[..=at]);
            let is_complete = end.is_some() || before.len() + part.len() == limit;
            let bytes = part.len();
            if is_complete && before.is_empty() {
                let line = copied(py, part)?;
                file.consume(bytes);
                return Ok(line);
            }
            append(&mut before, part)?;
            file.consume(bytes);
            if is_complete {
                return copied(py, &before);
            }
            match uninterrupted(py, || file.refill())? {
                Ok(true) => {}
                Ok(false) => return copied(py, &before),
                Err(error) if before.is_empty() => return Err(self.error(py, &error)),
                Err(error) => {
                    file.delay(error);
                    return copied(py, &before);
                }
            }
        }
    }
}

/// `None` and negative sizes: no limit.
fn limit(size: Option<isize>) -> usize {
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX)
}

#[pymethods]
impl Reader {
    /// Reads size bytes, or to the end of the file if size is negative or None. Fewer bytes: the file ends.
    #[pyo3(signature = (size=Some(-1), /), text_signature = "($self, size=-1, /)")]
    fn read<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let mut state = self.state.enter(py)?;
        let file = state.file()?;
        match limit(size) {
            size if size <= TRUSTED_BYTES => self.read_exactly(py, file, size),
            size => self.read_to_end(py, file, size),
        }
    }

    /// Reads up to size bytes with at most one read of the file.
    #[pyo3(signature = (size=-1, /), text_signature = "($self, size=-1, /)")]
    fn read1<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyBytes>> {
        let mut state = self.state.enter(py)?;
        let file = state.file()?;
        if size != 0 && file.available().is_empty() {
            self.named(py, uninterrupted(py, || file.refill())?)?;
        }
        let bytes = limit(Some(size)).min(file.available().len());
        self.read_exactly(py, file, bytes)
    }

    /// Reads into a writable buffer until it is full or the file ends; returns the number of bytes.
    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut memory = Writable::new("readinto() buffer", buffer)?;
        let mut state = self.state.enter(py)?;
        let mut space = Space::new(memory.bytes());
        self.named(py, state.file()?.fill(py, &mut space)?)?;
        Ok(space.filled())
    }

    /// Reads into a writable buffer with at most one read of the file; returns the number of bytes.
    #[pyo3(signature = (buffer, /))]
    fn readinto1(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut memory = Writable::new("readinto1() buffer", buffer)?;
        let mut state = self.state.enter(py)?;
        let file = state.file()?;
        let out = memory.bytes();
        if !file.available().is_empty() {
            return Ok(file.take(out));
        }
        self.named(py, uninterrupted(py, || file.read_once(out))?)
    }

    /// The next bytes without changing the position: at least one unless the file ends, at most what one read returns.
    #[pyo3(signature = (size=0, /))]
    fn peek<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyBytes>> {
        let _ = size;
        let mut state = self.state.enter(py)?;
        let file = state.file()?;
        if file.available().is_empty() {
            self.named(py, uninterrupted(py, || file.refill())?)?;
        }
        copied(py, file.available())
    }

    /// Reads a line with its end, or its first size bytes. Empty: the file ends.
    #[pyo3(signature = (size=Some(-1), /), text_signature = "($self, size=-1, /)")]
    fn readline<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let mut state = self.state.enter(py)?;
        self.line(py, state.file()?, limit(size))
    }

    /// Reads the lines up to the end of the file, or until they have hint bytes.
    #[pyo3(signature = (hint=Some(-1), /), text_signature = "($self, hint=-1, /)")]
    fn readlines<'py>(&self, py: Python<'py>, hint: Option<isize>) -> PyResult<Bound<'py, PyList>> {
        // As in Python's io, 0 is no limit here.
        let hint = limit(hint.filter(|hint| *hint != 0));
        let lines = PyList::empty(py);
        let mut bytes = 0;
        while bytes < hint {
            let line = self.readline(py, None)?;
            if line.as_bytes().is_empty() {
                break;
            }
            bytes += line.as_bytes().len();
            lines.append(line)?;
        }
        Ok(lines)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.require_open()?;
        Ok(slf)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line = self.readline(py, None)?;
        Ok(Some(line).filter(|line| !line.as_bytes().is_empty()))
    }

    /// Sets the position; whence: 0 from the begin, 1 from the position, 2 from the end. Returns the new position.
    #[pyo3(signature = (offset, whence=0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let mut state = self.state.enter(py)?;
        let file = state.file()?;
        let position = self.named(py, target(py, file, offset, whence)?)?;
        file.seek(position);
        Ok(position)
    }

    /// The position.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.state.enter(py)?.file()?.position())
    }

    /// Closes the file and cancels its read-ahead. Waits for the reads of other threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state.enter(py)?;
        self.is_closed.store(true, Ordering::Relaxed);
        if let Some(file) = state.file.take() {
            state.last_counters = file.counters();
            py.detach(|| drop(file));
        }
        Ok(())
    }

    /// Whether the file is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// What was passed to ahead.open().
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// "rb".
    #[getter]
    fn mode(&self) -> &'static str {
        "rb"
    }

    /// The file descriptor. Its offset in the kernel is not the position of this object.
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        Ok(self.state.enter(py)?.file()?.file().as_raw_fd())
    }

    /// Whether the file is a terminal.
    fn isatty(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state.enter(py)?.file()?.is_terminal())
    }

    /// True.
    fn readable(&self) -> PyResult<bool> {
        self.require_open()?;
        Ok(true)
    }

    /// False.
    fn writable(&self) -> PyResult<bool> {
        self.require_open()?;
        Ok(false)
    }

    /// Whether the file has offsets: a regular file or a block device.
    fn seekable(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state.enter(py)?.file()?.is_seekable())
    }

    /// Does nothing: the file is not written.
    fn flush(&self) -> PyResult<()> {
        self.require_open()
    }

    /// What the read-ahead did, by name. After close(): the last numbers.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state.enter(py)?;
        counters::of_reader(py, &state.file.as_ref().map_or(state.last_counters, OpenFile::counters))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.require_open()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<ahead.Reader name={}>", self.name.bind(py).repr()?))
    }

    /// A path object of the program may refer to this reader. Its own members break the cycle, so there is nothing to clear here.
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.name)
    }
}

impl Reader {
    fn require_open(&self) -> PyResult<()> {
        if self.closed() { Err(closed()) } else { Ok(()) }
    }
}

/// Memory of the program that a read fills. The exporter keeps its address and length while this exists.
struct Writable {
    buffer: PyUntypedBuffer,
}

impl Writable {
    /// Errors: `TypeError` if it has no buffer, or a read-only one; `ValueError` if it has gaps.
    fn new(what: &str, object: &Bound<'_, PyAny>) -> PyResult<Writable> {
        let refuse = || arguments::wrong_type(what, "a writable bytes-like object", object);
        let buffer = PyUntypedBuffer::get(object).map_err(|_| refuse())?;
        if buffer.readonly() {
            return Err(refuse());
        }
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(format!("{what}: not contiguous in memory")));
        }
        Ok(Writable { buffer })
    }

    fn bytes(&mut self) -> &mut [u8] {
        if self.buffer.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the exporter keeps the memory, which is writable and contiguous, until the buffer is released; the slice borrows this value,
        // which releases it. Bytes have no invalid values. Other threads of the program may use the memory meanwhile, as with
        // readinto() of Python's files: it is their race.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.buf_ptr().cast(), self.buffer.len_bytes()) }
    }
}

//! `ahead.advise`: read-ahead for mapped memory, such as `mmap.mmap` and `numpy.memmap`.

#![allow(unsafe_code)]

use crate::arguments::{self, stride_of, unknown_name};
use crate::counters;
use crate::errors::{check_memory, os_error};
use crate::lock::Exclusive;
use ahead_read::advise::{Advised, Behaviour, Counters, advise_raw};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Reads a mapped file ahead, in this process, until the result is closed or deleted.
///
/// buffer: any object with contiguous memory: mmap.mmap, numpy.memmap, a memoryview of one.
/// behaviour: "normal", "sequential", "random", "willneed", "dontneed", "backward" or "stride".
/// pages: size of the groups of pages that are read ahead, at most 16384; 0: adapts to the program's waits.
/// stride: distance between accesses in bytes, for behaviour="stride".
///
/// Until then the object is in use: mmap.close() raises BufferError. The kernel's read-ahead for the mapping is off and comes back at the end.
/// The advice changes no content: "dontneed" marks the pages as the first that the kernel reclaims.
///
/// Raises ValueError for memory that is not a mapped file, such as a bytearray.
#[pyfunction]
#[pyo3(signature = (buffer, behaviour="sequential", pages=0, *, stride=None))]
pub fn advise(buffer: &Bound<'_, PyAny>, behaviour: &str, pages: i64, stride: Option<i64>) -> PyResult<PyAdvised> {
    check_memory()?;
    let py = buffer.py();
    let behaviour = behaviour_of(behaviour, stride)?;
    let pages = usize::try_from(pages).map_err(|_| PyValueError::new_err("pages: must not be negative"))?;
    let memory = PyUntypedBuffer::get(buffer).map_err(|_| {
        arguments::wrong_type("buffer", "an object with memory, such as mmap.mmap or numpy.memmap", buffer)
    })?;
    if !memory.is_c_contiguous() && !memory.is_fortran_contiguous() {
        return Err(PyValueError::new_err("buffer: not contiguous in memory; advise the whole array"));
    }
    let (address, length_bytes) = (memory.buf_ptr() as usize, memory.len_bytes());
    let advised = py.detach(|| advise_raw(address, length_bytes, behaviour, pages));
    let advised = advised.map_err(|error| os_error(py, &error, None))?;
    Ok(PyAdvised { length_bytes, state: Exclusive::new(AdviseState::Open(advised, memory)) })
}

fn behaviour_of(name: &str, stride: Option<i64>) -> PyResult<Behaviour> {
    let stride = stride_of("behaviour", Some(name), stride)?;
    Ok(match (name, stride) {
        ("normal", _) => Behaviour::Normal,
        ("sequential", _) => Behaviour::Sequential,
        ("random", _) => Behaviour::Random,
        ("willneed", _) => Behaviour::WillNeed,
        ("dontneed", _) => Behaviour::DontNeed,
        ("backward", _) => Behaviour::Backward,
        ("stride", Some(bytes)) => Behaviour::Stride { bytes },
        _ => {
            let expected = r#""normal", "sequential", "random", "willneed", "dontneed", "backward" or "stride""#;
            return Err(unknown_name("behaviour", name, expected));
        }
    })
}

/// Mapped memory that is read ahead, made by ahead.advise(). A context manager.
#[pyclass(frozen, weakref, name = "Advised", module = "ahead")]
pub struct PyAdvised {
    length_bytes: usize,
    state: Exclusive<AdviseState>,
}

enum AdviseState {
    /// The read-ahead ends before the memory is released: fields are dropped in their order.
    Open(Advised, PyUntypedBuffer),
    Closed(Counters),
}

#[pymethods]
impl PyAdvised {
    /// Reports where in the buffer the program is, in bytes. Optional: otherwise it is found from the pages that become mapped.
    #[pyo3(signature = (offset, /))]
    fn progress(&self, py: Python<'_>, offset: usize) -> PyResult<()> {
        if offset > self.length_bytes {
            let message = format!("offset: {offset} is beyond the end of the buffer, {} bytes", self.length_bytes);
            return Err(PyValueError::new_err(message));
        }
        match &*self.state.enter(py)? {
            AdviseState::Open(advised, _) => advised.progress(offset),
            AdviseState::Closed(_) => return Err(PyValueError::new_err("the advice has ended")),
        }
        Ok(())
    }

    /// What the read-ahead did, by name. After close(): the last numbers.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::of_advised(py, &self.state.enter(py)?.counters())
    }

    /// Ends the read-ahead and releases the object.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.enter(py)?.end(py);
        Ok(())
    }

    /// Whether the read-ahead has ended.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(*self.state.enter(py)?, AdviseState::Closed(_)))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// The buffer's owner may refer to this object. One that is in use just now counts as referenced from outside.
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        // SAFETY: the collector traverses with the GIL; the token is only used to look at a pointer, and no count of references changes.
        let py = unsafe { Python::assume_attached() };
        match self.state.try_enter().as_deref() {
            Some(AdviseState::Open(_, memory)) => visit.call(memory.obj(py).map(Bound::as_unbound)),
            _ => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        if let Some(mut state) = self.state.try_enter() {
            state.end(py);
        }
    }
}

impl AdviseState {
    /// Ends the read-ahead, and then releases the memory.
    fn end(&mut self, py: Python<'_>) {
        let counters = self.counters();
        if let AdviseState::Open(advised, memory) = std::mem::replace(self, AdviseState::Closed(counters)) {
            py.detach(|| drop(advised));
            memory.release(py);
        }
    }

    fn counters(&self) -> Counters {
        match self {
            AdviseState::Open(advised, _) => advised.counters(),
            AdviseState::Closed(counters) => *counters,
        }
    }
}

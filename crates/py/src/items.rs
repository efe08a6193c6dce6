//! The program's iterable as items of a prefetcher: each element with the file that it names.
//!
//! ```text
//!     iterable ──▶ element ──resolve──▶ path, or (path, start, stop) ──▶ Item        nothing is read ahead for None
//!                     └──────────────── the same object ───────────────▶ the program
//! ```
//!
//! Elements are taken before the program gets them. An exception is therefore kept with the element, or behind the last one, and raised when
//! the program gets there. Only an exception that ends the program, such as `KeyboardInterrupt`, is raised at once.

#![allow(unsafe_code)]

use crate::arguments::type_name;
use crate::space::append;
use ahead_read::prefetcher::Item;
use ahead_sys::locks::IgnorePoison;
use pyo3::exceptions::{PyBaseException, PyException, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What the program gets for one element.
pub struct Entry {
    /// The element, or the exception in its place: an object, which the garbage collector can visit.
    pub outcome: Result<Py<PyAny>, Py<PyBaseException>>,
    /// What is read ahead for it; the prefetcher takes it.
    pub item: Cell<Option<Item>>,
}

/// The program's objects behind an iteration, shared with the garbage collector.
pub struct Shared {
    /// `None`: exhausted, or closed.
    iterator: Mutex<Option<Py<PyAny>>>,
    resolve: Option<Py<PyAny>>,
    /// An exception that is raised before all entries.
    urgent: Mutex<Option<Py<PyBaseException>>>,
}

impl Entry {
    /// What the program gets.
    pub fn into_outcome(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.outcome.map_err(|exception| raised(py, exception))
    }

    /// Shows the element, or the exception, to the garbage collector.
    pub fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        match &self.outcome {
            Ok(element) => visit.call(element),
            Err(exception) => visit.call(exception),
        }
    }
}

fn raised(py: Python<'_>, exception: Py<PyBaseException>) -> PyErr {
    PyErr::from_value(exception.into_bound(py).into_any())
}

impl Shared {
    /// An iteration that has not begun.
    pub fn new(iterator: Py<PyAny>, resolve: Option<Py<PyAny>>) -> Arc<Shared> {
        Arc::new(Shared { iterator: Mutex::new(Some(iterator)), resolve, urgent: Mutex::new(None) })
    }

    /// The exception that is to be raised now.
    pub fn take_urgent(&self, py: Python<'_>) -> Option<PyErr> {
        let urgent = self.urgent.lock().ignore_poison().take();
        urgent.map(|exception| raised(py, exception))
    }

    /// Leaves out elements, fewer if there are not as many.
    pub fn skip(&self, py: Python<'_>, elements: u64) -> PyResult<()> {
        let Some(iterator) = self.iterator(py) else { return Ok(()) };
        for element in iterator.bind(py).try_iter()?.take(usize::try_from(elements).unwrap_or(usize::MAX)) {
            element?;
        }
        Ok(())
    }

    /// Takes no more elements.
    pub fn close(&self) {
        let iterator = self.iterator.lock().ignore_poison().take();
        // The lock is released first: the end of a generator runs code of the program.
        drop(iterator);
    }

    /// Shows the objects to the garbage collector. One that is in use just now counts as referenced from outside.
    pub fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        if let Ok(iterator) = self.iterator.try_lock() {
            visit.call(&*iterator)?;
        }
        if let Ok(urgent) = self.urgent.try_lock() {
            visit.call(&*urgent)?;
        }
        visit.call(&self.resolve)
    }

    fn iterator(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.iterator.lock().ignore_poison().as_ref().map(|iterator| iterator.clone_ref(py))
    }

    /// The next element.
    fn next(&self, py: Python<'_>) -> Option<Entry> {
        let iterator = self.iterator(py)?;
        match iterator.bind(py).cast::<pyo3::types::PyIterator>().ok()?.clone().next() {
            Some(Ok(element)) => self.entry(py, &element),
            Some(Err(error)) => self.failed(py, error),
            None => {
                self.close();
                None
            }
        }
    }

    fn entry(&self, py: Python<'_>, element: &Bound<'_, PyAny>) -> Option<Entry> {
        let item = match &self.resolve {
            None => item_of(element),
            // The exception shall not wait for calls of the program.
            Some(_) if self.has_urgent() => Ok(None),
            Some(resolve) => resolve.bind(py).call1((element,)).and_then(|answer| match answer.is_none() {
                true => Ok(None),
                false => item_of(&answer),
            }),
        };
        Some(match item {
            Ok(item) => Entry { outcome: Ok(element.clone().unbind()), item: Cell::new(item) },
            Err(error) if error.is_instance_of::<PyException>(py) => {
                Entry { outcome: Err(error.into_value(py)), item: Cell::new(None) }
            }
            Err(error) => {
                // The element itself is not lost.
                self.raise_now(py, error);
                Entry { outcome: Ok(element.clone().unbind()), item: Cell::new(None) }
            }
        })
    }

    /// The iterator has raised: nothing follows, as behind a generator that has raised.
    fn failed(&self, py: Python<'_>, error: PyErr) -> Option<Entry> {
        self.close();
        if error.is_instance_of::<PyException>(py) {
            return Some(Entry { outcome: Err(error.into_value(py)), item: Cell::new(None) });
        }
        self.raise_now(py, error);
        None
    }

    fn has_urgent(&self) -> bool {
        self.urgent.lock().ignore_poison().is_some()
    }

    fn raise_now(&self, py: Python<'_>, error: PyErr) {
        self.urgent.lock().ignore_poison().get_or_insert_with(|| error.into_value(py));
    }
}

/// The elements, for the prefetcher, which takes them in the thread of the program.
pub struct Elements {
    /// The program's objects.
    pub shared: Arc<Shared>,
}

impl Iterator for Elements {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        Python::attach(|py| self.shared.next(py))
    }
}

/// The file that an element, or the answer of `resolve`, names.
///
/// Errors: `TypeError`, `ValueError`.
fn item_of(element: &Bound<'_, PyAny>) -> PyResult<Option<Item>> {
    if let Some(path) = path_of(element)? {
        return Ok(Some(path.into()));
    }
    let refuse = || {
        let got = type_name(element);
        PyTypeError::new_err(format!(
            "expected a path (str, bytes, os.PathLike) or a tuple (path, start, stop), got {got}; for other items give resolve="
        ))
    };
    let tuple = element.cast::<PyTuple>().map_err(|_| refuse())?;
    if tuple.len() != 3 {
        return Err(refuse());
    }
    let path = path_of(&tuple.get_item(0)?)?.ok_or_else(refuse)?;
    let (Ok(start), Ok(stop)) = (tuple.get_item(1)?.extract::<u64>(), tuple.get_item(2)?.extract::<u64>()) else {
        return Err(PyValueError::new_err(
            "start and stop of (path, start, stop) must be int offsets in bytes, not negative",
        ));
    };
    if start > stop {
        return Err(PyValueError::new_err(format!("start {start} is larger than stop {stop} in (path, start, stop)")));
    }
    Ok(Some((path, start..stop).into()))
}

/// The path in a str, bytes or os.PathLike. `None`: another type.
///
/// Errors: those of the program's `__fspath__`, and of a str that has no bytes in the encoding of the file system.
pub fn path_of(object: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    static PATH_LIKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static FSPATH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(path) = plain_path_of(object)? {
        return Ok(Some(path));
    }
    let py = object.py();
    if !object.is_instance(PATH_LIKE.import(py, "os", "PathLike")?)? {
        return Ok(None);
    }
    plain_path_of(&FSPATH.import(py, "os", "fspath")?.call1((object,))?)
}

fn plain_path_of(object: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let encoded = match object.cast::<PyString>() {
        // SAFETY: the function returns a new object, or null with an exception.
        Ok(text) => unsafe {
            let bytes = ffi::PyUnicode_EncodeFSDefault(text.as_ptr());
            Bound::from_owned_ptr_or_err(object.py(), bytes)?.cast_into::<PyBytes>()?
        },
        Err(_) => match object.cast::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            Err(_) => return Ok(None),
        },
    };
    let mut path = Vec::new();
    append(&mut path, encoded.as_bytes())?;
    Ok(Some(OsString::from_vec(path).into()))
}

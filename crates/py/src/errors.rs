//! I/O errors as Python's exceptions: `OSError` with errno and file name, in the subclass that Python chooses (`FileNotFoundError`, …).

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io;

/// errno of an error that has none, such as a file that became shorter: an I/O error.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// The exception of an error at the file `name`. Arguments that the library refuses become `ValueError`,
/// and memory that it cannot allocate `MemoryError`.
pub fn os_error(py: Python<'_>, error: &io::Error, name: Option<&Py<PyAny>>) -> PyErr {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ahead_sys::Error>());
    let errno = error.raw_os_error().or_else(|| inner.and_then(ahead_sys::Error::raw_os_error));
    if errno.is_none() && error.kind() == io::ErrorKind::OutOfMemory {
        return PyMemoryError::new_err(());
    }
    if errno.is_none() && error.kind() == io::ErrorKind::InvalidInput {
        return PyValueError::new_err(error.to_string());
    }
    let (errno, message) = match errno {
        Some(errno) => (errno, strerror(py, errno).unwrap_or_else(|_| error.to_string())),
        None => (EIO, error.to_string()),
    };
    match name {
        Some(name) => PyOSError::new_err((errno, message, name.clone_ref(py))),
        None => PyOSError::new_err((errno, message)),
    }
}

/// Python's text for an errno, without Rust's `(os error 2)`.
fn strerror(py: Python<'_>, errno: i32) -> PyResult<String> {
    py.import("os")?.call_method1("strerror", (errno,))?.extract()
}

/// `io.UnsupportedOperation`, an `OSError` and a `ValueError`.
pub fn unsupported(py: Python<'_>, message: &str) -> PyErr {
    let make = || py.import("io")?.getattr("UnsupportedOperation")?.call1((message,));
    make().map_or_else(|error| error, PyErr::from_value)
}

/// Memory for a new object of this package, and for the threads that it may start.
///
/// Errors: `MemoryError`.
pub fn check_memory() -> PyResult<()> {
    ahead_sys::reserve::check_new().map_err(|_| PyMemoryError::new_err(()))
}

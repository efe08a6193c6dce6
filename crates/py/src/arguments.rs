//! What the program passes: sizes, budgets, patterns.

use ahead_model::quantity::parse_size;
use ahead_read::stream::{Budget, Pattern};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

/// A size in bytes: an `int`, or a text such as `"32M"` (powers of 1024).
///
/// Errors: `TypeError` or `ValueError` that names the argument.
pub fn size(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let bytes = if let Ok(text) = value.cast::<PyString>() {
        parse_size(&text.to_cow()?).map_err(|why| PyValueError::new_err(format!("{argument}: {why}")))?
    } else if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        let refuse = |_| PyValueError::new_err(format!("{argument}: {value} is not between 1 and 2**64 - 1 bytes"));
        value.extract::<u64>().map_err(refuse)?
    } else {
        return Err(wrong_type(argument, "an int of bytes or a str such as \"32M\"", value));
    };
    if bytes == 0 {
        return Err(PyValueError::new_err(format!("{argument}: must be larger than 0")));
    }
    Ok(bytes)
}

/// `TypeError`: `argument: expected …, got float`.
pub fn wrong_type(argument: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{argument}: expected {expected}, got {}", type_name(value)))
}

/// The name of an object's type, for messages.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// Memory that read-ahead may hold, shared by the objects that were given it.
///
/// Budget(size): size in bytes, or a text such as "64M". A reader or Prefetcher without a budget shares the one of the process: 64 MiB.
#[pyclass(frozen, name = "Budget", module = "ahead")]
#[derive(Clone)]
pub struct PyBudget {
    budget: Budget,
}

#[pymethods]
impl PyBudget {
    #[new]
    #[pyo3(signature = (size, /), text_signature = "(size, /)")]
    fn new(size: &Bound<'_, PyAny>) -> PyResult<PyBudget> {
        Ok(PyBudget { budget: Budget::new(self::size("size", size)?) })
    }

    /// Size, bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.budget.bytes()
    }

    /// What is requested or buffered, and not consumed yet, bytes.
    #[getter]
    fn used_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Number of objects that share the budget now.
    #[getter]
    fn readers(&self) -> usize {
        self.budget.readers()
    }

    /// In another process it is another budget of the same size.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (u64,)) {
        (slf.get_type().into_any(), (slf.get().bytes(),))
    }

    fn __repr__(&self) -> String {
        format!("ahead.Budget({})", self.bytes())
    }
}

/// The argument `budget`: a `Budget`, a size, or `None` for the budget of the process.
pub fn budget(value: Option<&Bound<'_, PyAny>>) -> PyResult<Budget> {
    let Some(value) = value else { return Ok(Budget::global()) };
    match value.cast::<PyBudget>() {
        Ok(shared) => Ok(shared.get().budget.clone()),
        Err(_) if value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() => {
            Ok(Budget::new(size("budget", value)?))
        }
        Err(_) => Err(wrong_type("budget", "an ahead.Budget, an int of bytes or a str such as \"64M\"", value)),
    }
}

/// The arguments `pattern` and `stride` of `open`. `None`: found from the reads.
pub fn pattern(name: Option<&str>, stride: Option<i64>) -> PyResult<Option<Pattern>> {
    let stride = stride_of("pattern", name, stride)?;
    Ok(match name {
        None => stride.map(Pattern::Stride),
        Some("random") => Some(Pattern::Random),
        Some("sequential") => Some(Pattern::Sequential),
        Some("backward") => Some(Pattern::Backward),
        Some("stride") => stride.map(Pattern::Stride),
        Some(other) => return Err(unknown_name("pattern", other, r#""random", "sequential", "backward" or "stride""#)),
    })
}

/// Refuses a stride without the behaviour, and the behaviour without a stride. `argument` names the behaviour.
pub fn stride_of(argument: &str, name: Option<&str>, stride: Option<i64>) -> PyResult<Option<i64>> {
    match (name, stride) {
        (_, Some(0)) => Err(PyValueError::new_err("stride: must not be 0")),
        (Some("stride"), None) => {
            Err(PyValueError::new_err(format!("{argument}=\"stride\" needs stride=, the distance in bytes")))
        }
        (Some(other), Some(_)) if other != "stride" => {
            Err(PyValueError::new_err(format!("stride: only with {argument}=\"stride\", not with {other:?}")))
        }
        _ => Ok(stride),
    }
}

/// `ValueError`: `pattern: expected …, got "sideways"`.
pub fn unknown_name(argument: &str, name: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{argument}: expected {expected}, got {name:?}"))
}

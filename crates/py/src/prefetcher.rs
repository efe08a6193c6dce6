//! `ahead.Prefetcher`: an iterator over the program's items that reads their files ahead.
//!
//! Nothing starts before the first `next()`: a Prefetcher that a parent makes for its workers, forked or spawned, has no threads there.

use crate::arguments::{self, wrong_type};
use crate::counters;
use crate::errors::check_memory;
use crate::items::{Elements, Entry, Shared};
use crate::lock::Exclusive;
use ahead_read::prefetcher::{Counters, PrefetcherOptions, Window};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Iterates over items and reads the files that they name ahead, in their order.
///
/// items: any iterable of str, bytes, os.PathLike or tuples (path, start, stop) in bytes; with resolve, of any objects. The same objects come
///     out in the same order. Up to 4,096 items are taken before the first is consumed.
/// window: how far ahead of the last item: bytes or "32M". Default: "32M".
/// items_ahead: how far ahead, as a number of items, instead of window.
/// seconds: how far ahead, as the items that are consumed in this time, instead of window.
/// budget: memory that the read-ahead may hold: an ahead.Budget, bytes or "64M"; None: the 64 MiB of the process, shared.
/// threads: largest number of threads that read ahead. 0: 8.
/// resolve: a function from an item to its path, to (path, start, stop), or to None: nothing is read ahead.
///
/// On a rotating disk next() may wait until its item is requested in the order of the disk; other threads run meanwhile.
///
/// Missing files are skipped: the program gets its own error when it opens them. An exception of the iterable or of resolve is raised in the
/// place of its item. The reading stops at close(), at the end of a with block, and when the object is deleted.
#[pyclass(frozen, weakref, module = "ahead")]
pub struct Prefetcher {
    arguments: PrefetcherArguments,
    shared: Arc<Shared>,
    /// Whether the items can be iterated only once, as a generator.
    is_one_shot: bool,
    /// Items that were delivered, or skipped by unpickling.
    delivered: AtomicU64,
    state: Exclusive<PrefetcherState>,
}

/// What was passed, for pickle.
struct PrefetcherArguments {
    items: Py<PyAny>,
    window: Option<Py<PyAny>>,
    items_ahead: Option<i64>,
    seconds: Option<f64>,
    budget: Option<Py<PyAny>>,
    threads: i64,
    resolve: Option<Py<PyAny>>,
}

enum PrefetcherState {
    /// Nothing is taken from the iterable yet.
    New(PrefetcherOptions),
    /// Reading ahead.
    Running(Box<Running>),
    Closed(Counters),
}

struct Running {
    prefetcher: ahead_read::prefetcher::Prefetcher<Entry>,
    /// Taken from the prefetcher when an urgent exception was raised, and delivered next.
    kept: Option<Entry>,
}

#[pymethods]
impl Prefetcher {
    #[new]
    #[pyo3(signature = (items, *, window=None, items_ahead=None, seconds=None, budget=None, threads=0, resolve=None))]
    fn new(
        items: &Bound<'_, PyAny>,
        window: Option<&Bound<'_, PyAny>>,
        items_ahead: Option<i64>,
        seconds: Option<f64>,
        budget: Option<&Bound<'_, PyAny>>,
        threads: i64,
        resolve: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Prefetcher> {
        check_memory()?;
        if let Some(path) = crate::items::path_of(items)? {
            let message = format!("items: expected an iterable of paths, got the single path {path:?}");
            return Err(PyTypeError::new_err(message));
        }
        if let Some(resolve) = resolve.filter(|resolve| !resolve.is_callable()) {
            return Err(wrong_type("resolve", "a callable", resolve));
        }
        let options = PrefetcherOptions::default()
            .window(window_of(window, items_ahead, seconds)?)
            .budget(arguments::budget(budget)?)
            .threads(usize::try_from(threads).map_err(|_| PyValueError::new_err("threads: must not be negative"))?);
        let iterator = items.try_iter()?.into_any();
        let is_one_shot = iterator.is(items);
        let owned = |argument: &Bound<'_, PyAny>| argument.clone().unbind();
        let arguments = PrefetcherArguments {
            items: owned(items),
            window: window.map(owned),
            items_ahead,
            seconds,
            budget: budget.map(owned),
            threads,
            resolve: resolve.map(owned),
        };
        let shared = Shared::new(iterator.unbind(), resolve.map(owned));
        let state = Exclusive::new(PrefetcherState::New(options));
        Ok(Prefetcher { arguments, shared, is_one_shot, delivered: AtomicU64::new(0), state })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let mut state = self.state.enter(py)?;
        if let PrefetcherState::New(options) = &*state {
            let elements = Elements { shared: self.shared.clone() };
            let item_of = |entry: &Entry| entry.item.take();
            let prefetcher = ahead_read::prefetcher::Prefetcher::of_keys(elements, item_of, options.clone());
            *state = PrefetcherState::Running(Box::new(Running { prefetcher, kept: None }));
        }
        let PrefetcherState::Running(running) = &mut *state else {
            return Err(PyValueError::new_err("the Prefetcher is closed"));
        };
        if running.kept.is_none() && running.prefetcher.would_wait() {
            py.detach(|| running.prefetcher.wait());
        }
        let entry = running.kept.take().or_else(|| running.prefetcher.next());
        if let Some(error) = self.shared.take_urgent(py) {
            running.kept = entry;
            return Err(error);
        }
        let Some(entry) = entry else { return Ok(None) };
        self.delivered.fetch_add(1, Ordering::Relaxed);
        entry.into_outcome(py).map(Some)
    }

    /// The length of the iterable, if it has one: the number of all items, not of the rest.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.arguments.items.bind(py).len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __length_hint__(&self, py: Python<'_>) -> PyResult<u64> {
        let all: u64 = py.import("operator")?.call_method1("length_hint", (&self.arguments.items,))?.extract()?;
        let delivered = if self.is_one_shot { 0 } else { self.delivered.load(Ordering::Relaxed) };
        Ok(all.saturating_sub(delivered))
    }

    /// Stops the reading ahead. The iteration cannot go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let before = self.state.enter(py)?.end();
        // The lock is released first: the end of an element runs code of the program. It ends with the GIL: without, the interpreter's other
        // threads would find a list of references to drop, behind a lock that a forked child could not take.
        drop(before);
        self.shared.close();
        Ok(())
    }

    /// What the reading ahead did, by name. After close(): the last numbers.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.state.enter(py)?.counters();
        counters::of_prefetcher(py, &counters)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// A Prefetcher over the items that were not delivered. Those that were read ahead of a generator cannot be put back.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let this = slf.get();
        let is_new = matches!(*this.state.enter(py)?, PrefetcherState::New(_));
        if this.is_one_shot && !is_new {
            let message = "cannot pickle a Prefetcher over an iterator that it has begun: give it a list";
            return Err(PyTypeError::new_err(message));
        }
        let delivered = this.delivered.load(Ordering::Relaxed);
        let arguments = &this.arguments;
        let named = PyDict::new(py);
        named.set_item("window", &arguments.window)?;
        named.set_item("items_ahead", arguments.items_ahead)?;
        named.set_item("seconds", arguments.seconds)?;
        named.set_item("budget", &arguments.budget)?;
        named.set_item("threads", arguments.threads)?;
        named.set_item("resolve", &arguments.resolve)?;
        let restore = py.import("ahead._ahead")?.getattr("_restore_prefetcher")?;
        Ok((restore, (&arguments.items, delivered, named).into_pyobject(py)?))
    }

    /// Prefetcher[T] in annotations.
    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<ahead.Prefetcher over {}>", arguments::type_name(self.arguments.items.bind(py))))
    }

    /// One that is in use just now counts as referenced from outside.
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        let PrefetcherArguments { items, window, budget, resolve, .. } = &self.arguments;
        visit.call(items)?;
        for argument in [window, budget, resolve] {
            visit.call(argument)?;
        }
        self.shared.traverse(&visit)?;
        match self.state.try_enter().as_deref() {
            Some(PrefetcherState::Running(running)) => {
                running.prefetcher.pulled().chain(&running.kept).try_for_each(|entry| entry.traverse(&visit))
            }
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        let before = self.state.try_enter().map(|mut state| state.end());
        drop(before);
        self.shared.close();
    }
}

impl PrefetcherState {
    /// Closes it, and returns what it was.
    fn end(&mut self) -> PrefetcherState {
        let counters = self.counters();
        std::mem::replace(self, PrefetcherState::Closed(counters))
    }

    fn counters(&self) -> Counters {
        match self {
            PrefetcherState::New(_) => Counters::default(),
            PrefetcherState::Running(running) => running.prefetcher.counters(),
            PrefetcherState::Closed(counters) => *counters,
        }
    }
}

/// Unpickles a Prefetcher: over the items without the first ones, which were delivered.
#[pyfunction]
pub fn _restore_prefetcher<'py>(
    items: Bound<'py, PyAny>,
    delivered: u64,
    named: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = items.py();
    let prefetcher = py.get_type::<Prefetcher>().call((items,), Some(named))?;
    let this = prefetcher.cast::<Prefetcher>()?.get();
    this.shared.skip(py, delivered)?;
    this.delivered.store(delivered, Ordering::Relaxed);
    Ok(prefetcher)
}

fn window_of(window: Option<&Bound<'_, PyAny>>, items: Option<i64>, seconds: Option<f64>) -> PyResult<Window> {
    match (window, items, seconds) {
        (None, None, None) => Ok(Window::default()),
        (Some(window), None, None) => Ok(Window::Bytes(arguments::size("window", window)?)),
        (None, Some(items), None) => match usize::try_from(items) {
            Ok(items) if items > 0 => Ok(Window::Items(items)),
            _ => Err(PyValueError::new_err("items_ahead: must be larger than 0")),
        },
        (None, None, Some(seconds)) => match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(Window::Time(time)),
            _ => Err(PyValueError::new_err(format!("seconds: must be larger than 0 and finite, not {seconds}"))),
        },
        _ => Err(PyValueError::new_err("window, items_ahead and seconds: give only one of them")),
    }
}

//! Counters as dictionaries. The names are those of the library in Rust.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Puts fields of a struct into a dictionary, under their names.
macro_rules! dictionary {
    ($py:expr, $counters:expr, $($field:ident),+ $(,)?) => {{
        let dictionary = PyDict::new($py);
        $(dictionary.set_item(stringify!($field), $counters.$field)?;)+
        Ok(dictionary)
    }};
}

/// Those of a `Reader`.
pub fn of_reader<'py>(py: Python<'py>, counters: &ahead_read::stream::Counters) -> PyResult<Bound<'py, PyDict>> {
    dictionary!(
        py,
        counters,
        reads,
        bytes,
        waits,
        waited_us,
        requests,
        requested_bytes,
        cached_requests,
        abandoned_bytes,
        distance_bytes,
        is_direct,
    )
}

/// Those of a `Prefetcher`.
pub fn of_prefetcher<'py>(
    py: Python<'py>,
    counters: &ahead_read::prefetcher::Counters,
) -> PyResult<Bound<'py, PyDict>> {
    dictionary!(
        py,
        counters,
        items,
        prefetched_items,
        prefetched_bytes,
        cached_items,
        skipped,
        late,
        consumed_before_start,
        unchecked,
    )
}

/// Those of an `Advised`.
pub fn of_advised<'py>(py: Python<'py>, counters: &ahead_read::advise::Counters) -> PyResult<Bound<'py, PyDict>> {
    dictionary!(py, counters, groups, cached_groups, requested_bytes, retried, waits, waited_us, looks, distance_bytes,)
}

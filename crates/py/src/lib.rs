//! The Python package `ahead`: `open`, `Prefetcher` and `advise` over the crates of the same names.
//!
//! ```text
//!     Python   ahead.open()        ahead.Prefetcher()     ahead.advise()
//!                  │                    │                     │
//!     here      reader, file, space  prefetcher, items     advise           arguments, errors, counters
//!                  │                    │                     │             lock: threads, signals, fork
//!     Rust      ahead_stream         ahead_prefetcher      ahead_advise
//! ```
//!
//! Memory that cannot be allocated is a `MemoryError`: what has the length of the program's data is allocated by functions that can fail, and small
//! things have a reserve ([`ahead_sys::reserve`]).
//!
//! Calls that may block run without the GIL. The state of each object is behind a lock ([`lock`]) that is never waited for with the GIL, so
//! objects may be shared by threads. All threads of the library are below these crates and never take the GIL.
//!
//! The package `ahead` itself is `python/ahead`; this module is `ahead._ahead`. One wheel is valid for Python 3.11 and newer (abi3).

#![allow(unsafe_code)]

/// Small allocations do not fail: the standard library ends the process if one does.
#[global_allocator]
static ALLOCATOR: ahead_sys::reserve::Reserve = ahead_sys::reserve::Reserve;

mod advise;
mod arguments;
mod counters;
mod errors;
mod file;
mod items;
mod lock;
mod prefetcher;
mod reader;
mod space;

/// The extension module.
#[pyo3::pymodule]
mod _ahead {
    #[pymodule_export]
    use super::advise::{PyAdvised, advise};
    #[pymodule_export]
    use super::arguments::PyBudget;
    #[pymodule_export]
    use super::prefetcher::{_restore_prefetcher, Prefetcher};
    #[pymodule_export]
    use super::reader::{Reader, open};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // From now on forks are counted: objects of this process do not wait for threads of its parent.
        ahead_sys::fork_count::fork_count();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

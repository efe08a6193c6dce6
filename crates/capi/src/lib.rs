//! `libahead`: the read-ahead of `ahead-stream`, `ahead-advise` and `ahead-prefetcher` for C and C++.
//!
//! ```text
//!     C program                 this crate                                    Rust
//!     ─────────                 ──────────                                    ────
//!     ahead_reader_read ──────▶ reader.rs ──▶ errors.rs: no panic leaves ──▶ ahead_read::stream::Reader
//!     ahead_advise ───────────▶ advised.rs                               ──▶ ahead_read::advise::advise_raw
//!     ahead_prefetcher_next ──▶ prefetcher.rs                            ──▶ ahead_read::prefetcher::Prefetcher
//!     ahead_budget_new ───────▶ budget.rs                                ──▶ ahead_read::stream::Budget
//!                               sized.rs: options and counters that may grow
//!                               ahead_sys::reserve: little memory is an error, and no end of the process
//!
//!     docstrings ──cbindgen──▶ include/ahead.h ──▶ dist/man3/*.3           compared by tests/generated
//! ```
//!
//! The docstrings of this crate are the documentation of the C functions. The rules for all functions (errors, threads, fork) are in the
//! header of `include/ahead.h`, which `cbindgen.toml` defines. Each C function has the contract of that header, so the docstrings have no
//! sections about safety.

#![allow(unsafe_code, clippy::missing_safety_doc)]

mod advised;
mod budget;
mod errors;
mod prefetcher;
mod reader;
mod sized;

use std::ffi::{CStr, c_char, c_int};

/// Small allocations do not fail: the standard library ends the process if one does.
#[global_allocator]
static ALLOCATOR: ahead_sys::reserve::Reserve = ahead_sys::reserve::Reserve;

/// Behaviour: no announcement. The order of reads is found from the reads, as without a call.
pub const AHEAD_NORMAL: c_int = 0;

/// Behaviour: reads are in no order. Nothing is read ahead.
pub const AHEAD_RANDOM: c_int = 1;

/// Behaviour: reads go from lower to higher offsets.
pub const AHEAD_SEQUENTIAL: c_int = 2;

/// Behaviour: all of it will be read soon. For ahead_advise() only.
pub const AHEAD_WILLNEED: c_int = 3;

/// Behaviour: it will not be read again soon. For ahead_advise() only.
pub const AHEAD_DONTNEED: c_int = 4;

/// Behaviour: reads go from higher to lower offsets.
pub const AHEAD_BACKWARD: c_int = 5;

/// Behaviour: reads begin at equal distances. For ahead_reader_options only; for mappings see ahead_advise_stride().
pub const AHEAD_STRIDE: c_int = 6;

/// The version, with its terminating null byte.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("the version has a null byte"),
};

/// Gets the version of the library that was loaded, which may be newer than the header.
///
/// Returns a string that is never freed, for example "0.1.0".
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn ahead_version() -> *const c_char {
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_package() {
        // SAFETY: the function returns a string that is never freed.
        let version = unsafe { CStr::from_ptr(ahead_version()) };
        assert_eq!(version.to_str().unwrap(), env!("CARGO_PKG_VERSION"));
    }
}

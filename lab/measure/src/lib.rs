//! Measures disks, kernels and read-ahead with real I/O.
//!
//! ```text
//!     jobs ───────────────▶ bench ──▶ rows: times, hits, requests of the device
//!     directory, device ──▶ probe ──▶ parameters, each with its confidence; a model of the disk
//!     target, workload ───▶ tune ───▶ the window that serves the disk best, with the evidence (by the jobs of `bench`)
//! ```
//!
//! This crate must never leave a test file or a setting behind, or report noise as a finding.

pub mod bench;
pub mod probe;
pub mod tune;

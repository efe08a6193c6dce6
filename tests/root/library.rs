//! The library (`Reader`, `Blocks`, `Prefetcher`, `advise`) on devices and in processes where something fails: no byte is lost, repeated or wrong, each
//! error is the kernel's and is at its offset, and nothing hangs.

mod changes;
mod disk_errors;
mod forks;
mod hanging;
mod mapped_errors;
mod scarce;
pub mod target;

pub use scarce::use_up_descriptors;

//! Types that all crates share.
//!
//! ```text
//!     DeviceNumber   8:1            which device                       stat(2), sysfs, the mount table, traces
//!     Mount          a mounted file system, and the search for the mount that a path lies on
//!     FileSystemKind ext4: on a disk, numbers of inodes are stored, …   what depends on the type of a file system
//!     RangeSet       [0,4096) [8192,12288)   sets of bytes or pages    what is used, resident, issued
//!     size, time     128K, 8ms      quantities as users write them
//!     Spread         median, minimum and maximum of repeated measurements
//!     options!       structs of options with a setter for each field
//!     DeviceDescription             properties of a device: access, bandwidth, cost per request, burst, seeks
//! ```
//!
//! Values come in, values go out: no I/O, no clock, no thread, no `unsafe`. This crate knows no other crate of ours, and must
//! never decide anything: a policy, a plan or a limit belongs to the crate that applies it.

pub mod checked_toml;
pub mod device_description;
pub mod device_number;
pub mod file_system_kind;
pub mod mounts;
mod options;
pub mod physical_extent;
pub mod quantity;
pub mod random;
pub mod range_set;
pub mod sorting;
pub mod spread;
pub mod xfs;

pub use device_description::{DescribedDevice, DeviceDescription};
pub use device_number::DeviceNumber;
pub use file_system_kind::FileSystemKind;
pub use mounts::Mount;
pub use physical_extent::PhysicalExtent;
pub use range_set::RangeSet;
pub use spread::Spread;

/// Bytes of a page of the page cache, as policies and models count: that of x86_64. What a machine really has is asked of it.
pub const PAGE_BYTES: u64 = 4096;

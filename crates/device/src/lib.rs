//! The time that a disk takes: pure models of rotating, flash and cloud disks.
//!
//! In: a model (built in or from TOML), the state of a disk, a request and its submission time. Out: the time at which the
//! request is complete. The simulator and the emulated block device both use these times, so a result of one can be checked
//! with the other.
//!
//! ```text
//!   now_ns                      start_ns                                  end_ns
//!     |  waits for a slot          |                                        |
//!     |  (earlier requests)        |   hdd:   command, seek, rotation, platter or buffer
//!     +----------------------------+   flash: latency, then transfer on the shared bus
//!                                      cloud: tokens for I/Os and bytes, then latency
//! ```
//!
//! Requests are served in the order of their submission; the I/O scheduler above may reorder them. A rotating disk
//! serves one request at a time, and a flash disk one in each channel. A cloud volume serves up to its maximum of
//! outstanding requests.
//!
//! This crate must never read a clock, sleep, log, do I/O, or panic on an untrusted model. The same model, requests and times
//! give the same result on every machine.
//!
//! ```
//! use ahead_device::{Device, Model, Op, Request};
//!
//! let model = Model::builtin("hdd").expect("built in");
//! let mut disk = Device::new(&model, 4 << 30);
//!
//! // A block at each end of the disk, then the block after the second one.
//! let read = |offset_bytes| Request { op: Op::Read, offset_bytes, length_bytes: 4096 };
//! let first = disk.submit(&read(0), 0);
//! let far = disk.submit(&read(3 << 30), first.end_ns);
//! let next = disk.submit(&read((3 << 30) + 4096), far.end_ns + 50_000);
//!
//! assert!(far.seeked && far.end_ns - far.start_ns > 5_000_000);
//! // The drive has read ahead: the next block is in its buffer.
//! assert!(!next.seeked && next.end_ns - next.start_ns < 200_000);
//!
//! // A custom disk, in TOML. Errors have the line.
//! let text = "kind = \"flash\"\nname = \"card\"\nchannels = 1\nread_us = 900\nread_mb_per_s = 20\n";
//! let card = Model::from_toml(text).unwrap();
//! assert_eq!(card.channels(), 1);
//! assert!(Model::from_toml("kind = \"flash\"\nchannels = 0\n").unwrap_err().to_string().starts_with("line 2:"));
//! ```

mod cloud;
mod common;
mod device;
mod flash;
mod hdd;
mod least;
mod model;
mod request;
mod slots;
mod time;
mod typical;

pub use ahead_model::checked_toml::TextError as ModelError;
pub use cloud::Cloud;
pub use device::{Device, MAX_CAPACITY_BYTES, time_for};
pub use flash::Flash;
pub use hdd::Hdd;
pub use least::least_ns;
pub use model::Model;
pub use request::{Op, Request, Served};

//! How long a disk takes: pure models of rotating, flash and cloud disks.
//!
//! In: a model (built in or from TOML), the state of one such disk, a request and the time at which it is handed over.
//! Out: when that request is served. The simulator asks this crate, the emulated block device sleeps by it; so a figure
//! from one can be checked against the other.
//!
//! ```text
//!   now_ns                      start_ns                                  end_ns
//!     |  waits for a slot          |                                        |
//!     |  (earlier requests)        |   hdd:   command, seek, rotation, platter or buffer
//!     +----------------------------+   flash: latency, then its turn on the shared bus
//!                                      cloud: tokens for I/Os and bytes, then latency
//! ```
//!
//! Requests are served in the order in which they are handed over: reordering is the business of the scheduler above.
//! A rotating disk serves one at a time, a flash disk as many as it has channels, a cloud volume as many as may be
//! outstanding.
//!
//! What it must never do: read a clock, sleep, log, do I/O or panic on a model that came from outside. The same model,
//! requests and times give the same answer on every machine.
//!
//! ```
//! use ahead_device::{Device, Model, Op, Request};
//!
//! let model = Model::builtin("hdd").expect("built in");
//! let mut disk = Device::new(&model, 4 << 30);
//!
//! // Two blocks at the two ends of the disk, then the one after the second.
//! let read = |offset_bytes| Request { op: Op::Read, offset_bytes, length_bytes: 4096 };
//! let first = disk.submit(&read(0), 0);
//! let far = disk.submit(&read(3 << 30), first.end_ns);
//! let next = disk.submit(&read((3 << 30) + 4096), far.end_ns + 50_000);
//!
//! assert!(far.seeked && far.end_ns - far.start_ns > 5_000_000);
//! // The drive read on: what follows comes out of its buffer.
//! assert!(!next.seeked && next.end_ns - next.start_ns < 200_000);
//!
//! // One's own disk, in TOML. Mistakes are named by line.
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
pub use model::Model;
pub use request::{Op, Request, Served};

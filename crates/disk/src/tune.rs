//! The read-ahead window of a disk: which disk a path lies on, and how its window is set and kept.
//!
//! ```text
//!     path ──▶ Target: the backing device whose window governs it, and its identity
//!                 │
//!                 ├─ set:      record the earlier value, write the new one and read it back
//!                 │
//!                 └─ keep:     a udev rule, or a systemd unit where no udev event names the target, sets the window after a restart
//! ```
//!
//! The laboratory (`ahead tune`) measures which window serves a disk best.
//!
//! Paths and windows come in; settings, rules and units come out. This crate must never set the window of a device other than
//! the named one. It must never write a rule that could name another device, or write an unchecked value into a rule or a unit.

mod device;
mod error;
mod find;
mod identity;
mod keep;
pub mod lower_cache;
mod places;
mod rule;
mod system;
mod target;
mod value;

pub use error::{Error, Result};
pub use find::find;
pub use identity::Identity;
pub use keep::{Checked, Restored, Set, Settings, Store, Window};
pub use system::System;
pub use target::{Kind, Target, all, backing, number_under};

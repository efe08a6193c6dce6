//! The read-ahead window of a disk: which disk a path lies on, and how its window is set and kept.
//!
//! ```text
//!     path ──▶ Target: the backing device whose window governs it, and what tells it from all others
//!                 │
//!                 ├─ set:      the value that was there is noted, the new one written and read back
//!                 │
//!                 └─ keep:     a udev rule, or a systemd unit where no udev event names the target, sets it again after a restart
//! ```
//!
//! Which window serves a disk best is measured in the laboratory (`ahead tune`).
//!
//! Paths and windows come in; settings, rules and units come out. This crate must never set the window of another device than the one named,
//! write a rule that could name another one, or write into a rule or a unit a value that was not checked.

pub mod below;
mod device;
mod error;
mod identity;
mod keep;
mod rule;
mod system;
mod target;
mod value;

pub use error::{Error, Result};
pub use identity::Identity;
pub use keep::{Checked, Restored, Set, Settings, Store, Window};
pub use system::System;
pub use target::{Kind, Target, all, backing, find, number_under};

//! The launch service: each program that is started is found by its key, prefetched if it has a profile, and recorded if it waits for the disk.
//!
//! ```text
//!     exec ─▶ Launches ─▶ start ─▶ UserApps: decide ─▶ plain, covered   only its waits are counted
//!                           │                       ├▶ prefetched        a worker, as the user of the start ─▶ Account ╮
//!                           │                       ├▶ left alone        a worker looks what is absent ─────▶ Account ╮│
//!                           │                       ╰▶ to be recorded    the one recording worker waits for its next start
//!                           ▼                                                      ╰─▶ profile ─▶ UserApps: learn    ││
//!                         end, or 10 s later: waits, accounts ─▶ AppStart ─▶ UserApps: add ◀─────────────────────────╯╯
//! ```
//!
//! One thread, one loop. Whatever may wait for a disk, or needs the identity of a user, is done by a worker (`ahead_process::Worker`).
//!
//! Execs and the store come in; pages in the page cache and what was learned go out. The service must never delay the start of a program that
//! has no profile, open a path of a user as root, wait for a file system of a user, or keep a table that a user can fill without a limit.

mod cli;
mod conditions;
mod counters;
mod head_start;
pub mod hold;
mod idle;
mod prefetching;
mod recording;
mod service;
mod settings;
mod starts;
mod survey;
mod users;

pub use cli::ServiceCli;
pub use counters::metrics_reference;
pub use service::{ServiceOptions, run};
pub use settings::SettingsError;

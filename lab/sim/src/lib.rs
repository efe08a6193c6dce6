//! A deterministic machine that runs read-ahead policies over workloads.
//!
//! In: a scenario (machine, disk, workloads, policies; TOML). Out: counters for each policy: user, system and idle time; hits,
//! waits and misses; issued, used and wasted pages; written pages; requests of the disk.
//!
//! ```text
//!     pattern, profile, trace
//!             ▼
//!     workload ──▶ processes ──▶ page cache ◀── policy          the same objects as in the live engine
//!                  one processor     │  ▲
//!              locked, then present  ▼  │    dirty, then written
//!                               request queue ──▶ device model  the same model as of the emulated disk
//! ```
//!
//! `layout` places the pages of a file on the disk. Metadata blocks that contain these places are read, too.
//!
//! A run never reads a clock, and uses neither threads nor a random source. Every run of a scenario ends, with the same result each time.
//! Beside the machine: [`recordings`] makes workloads of profiles and traces, [`report`] runs sweeps and renders results, [`conform`] compares the
//! trace of a kernel with a policy, without the machine.
//!
//! ```
//! use ahead_sim::Scenario;
//!
//! let text = r#"
//!     policies = ["none", "linux-6.18"]
//!     [disk]
//!     model = "ssd"
//!     [[workload]]
//!     pattern = "sequential"
//!     file_mb = 4
//! "#;
//! let scenario = Scenario::from_toml(text, ".".as_ref()).unwrap();
//! let [none, linux] = [0, 1].map(|index| scenario.run(&scenario.policies[index]).unwrap());
//! assert_eq!(none.misses, 1024);
//! assert!(linux.misses == 1 && linux.elapsed_ns < none.elapsed_ns / 3);
//! ```
//!
//! # A custom policy
//!
//! A custom policy runs beside those of the catalogue, on the scenario's machine, disk and workloads:
//!
//! ```
//! use ahead_policy::{Access, By, Found, Policy, Requests, View};
//! use ahead_sim::Scenario;
//!
//! /// After each miss of a call, requests twice the pages of the call.
//! struct Twice;
//!
//! impl Policy for Twice {
//!     fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
//!         if access.found == Found::Absent && access.by == By::Read {
//!             let left = view.file_pages(access.file) - access.page;
//!             requests.pages(access.file, access.page, (2 * access.wanted).min(left));
//!         }
//!     }
//! }
//!
//! let text = r#"
//!     policies = ["none", "ahead"]
//!     [disk]
//!     model = "cloud"
//!     [[workload]]
//!     pattern = "sequential"
//!     file_mb = 4
//! "#;
//! let scenario = Scenario::from_toml(text, ".".as_ref()).unwrap();
//! let twice = scenario.run_with(Box::new(Twice));
//! let [none, ahead] = [0, 1].map(|index| scenario.run(&scenario.policies[index]).unwrap());
//! // Calls of 16 pages: every second one misses.
//! assert_eq!((none.device.requests, twice.device.requests, twice.wasted_pages), (1024, 32, 0));
//! assert!(ahead.elapsed_ns < twice.elapsed_ns && twice.elapsed_ns < none.elapsed_ns);
//! ```

mod cache;
pub mod conform;
mod counters;
mod layout;
mod machine;
mod patterns;
mod planned;
mod queue;
mod recording;
pub mod recordings;
pub mod replay;
pub mod report;
mod scenario;
mod workload;
mod world;

pub use cache::{Cache, Evicted, Fresh, Use};
pub use counters::{Counters, Finished, Moved};
pub use layout::{Allocator, Block, FileLayout, Place, Scheme};
pub use machine::{Costs, DirtyLimits, Machine, Program, Settings};
pub use patterns::{Chance, Pattern, Stream};
pub use planned::UsedRanges;
pub use queue::{Added, Done, Queue, Range, Scheduler, Served};
pub use recording::{Manner, NoRecordings, Recording, RecordingKind, Recordings};
pub use scenario::{Blame, Disk, Impossible, Scenario, ScenarioError, Workload, read_small};
pub use workload::{Mapped, Op, Ops, PrefetchOp, foretell};
pub use world::{METADATA, World};

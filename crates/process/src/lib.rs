//! Starting, watching and ending processes, and undoing their changes of the machine ([`undo`]).
//!
//! ```text
//!     Command ──▶ Child::spawn_held ──▶ (the caller arms its tracer) ──▶ release ──▶ wait ──▶ Ended ──▶ exit status
//!                                                                                      ▲
//!     Signals ─────── signals that are sent to us, as events, passed on to the child ──┘
//!     Worker          a copy of this process for work that may wait for a dead device
//!     family          all descendants of a process: found, and ended
//!     messages        between a process and its workers
//!     Publisher       metrics in a file or on a socket
//! ```
//!
//! Programs and signals come in; statuses, results and errors go out. `ahead-sys` makes the system calls.
//!
//! This crate must never start a program that its caller did not release. It must never pass an unnecessary descriptor or
//! variable of root to a user's program, or lose a program's exit status.

mod child;
mod environment;
pub mod family;
pub mod messages;
mod publisher;
mod signals;
pub mod undo;
mod worker;

pub use child::{Child, Command, Ended, Event, ExecError, end, wait_end};
pub use publisher::{MetricsPlace, Publisher};
pub use signals::{Arrived, Signals, end_by_signals};
pub use worker::{CancelToken, ResultPipe, Worker};

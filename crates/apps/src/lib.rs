//! What the launch service knows of each program that is started: which starts belong together, how long they waited for the disk, whether a
//! prefetch saves time, and the recorded starts.
//!
//! ```text
//!     start ─▶ StartKey ─▶ UserApps ─▶ App ─▶ decide ─▶ plain, observed, prefetched (its profile), left alone
//!                              ▲                                        │
//!                              ╰── AppStart (waits, bytes), recording ──╯
//! ```
//!
//! Starts come in; decisions and profiles go out. The service's loop is elsewhere: here is no clock, no thread, and no other input than the
//! files of the store.
//!
//! This crate must never trust a file in a directory that a user may write, show a program of one user to another, leave a file half written,
//! or let one user push out what was learned for others.

mod agreement;
mod changes;
mod decision;
mod history;
mod key;
pub mod listing;
mod shared;
mod store;
mod user_apps;

pub use agreement::{JOIN_FROM, SPLIT_BELOW, VariantState, Variants, agreement};
pub use changes::{AppChange, ChangeError, calling_user};
pub use decision::{DecisionReason, StartDecision, StartSituation, UserChoice, WaitLimits, decide, too_little_gain};
pub use history::{AppStart, COLD_PERCENT, History, RECENT_STARTS, StartGain, StartTiming, Treatment};
pub use key::{AppKey, AppVersion, Script, StartKey};
pub use shared::{key_of_command, pin_recorded, profile_of_command};
pub use store::{App, AppStore, AppsError, AppsLock, Forgotten, HOME, KEPT_STARTS, MAX_APPS, UseDays, UserStore};
pub use user_apps::UserApps;

//! Output of `ahead`: tables for terminals, JSON of profiles, SVG and HTML pages, progress bars, the log.
//!
//! Plain values (and a profile, for its page) come in; strings go out. Text from outside (paths, command lines, kernel strings) is
//! escaped: control characters for the terminal, markup for HTML.
//!
//! ```text
//!     values ──▶ table::Table ──┬─▶ render(Screen) ─▶ terminal, or a pipe
//!                               └─▶ html::Page ─────▶ one file, no script, no network
//!     profile ─▶ profile::page ──▶ svg::timeline, svg::page_map ──▶ html::Page
//!             └▶ profile::json
//! ```
//!
//! This crate must never compute a result, read a file, print (except progress and the log, on standard error), or make a browser load
//! anything.

pub mod html;
pub mod json;
pub mod log;
pub mod metrics;
pub mod number;
pub mod profile;
pub mod progress;
pub mod svg;
pub mod table;
pub mod text;

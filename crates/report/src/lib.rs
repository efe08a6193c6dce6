//! What `ahead` shows: tables for terminals, SVG and HTML for colleagues, progress for the patient.
//!
//! In come plain values (and a profile, for its page); out come strings. Whatever comes from outside (paths, command
//! lines, kernel strings) is escaped on its way out: control characters for the terminal, markup for HTML.
//!
//! ```text
//!     values ──▶ table::Table ──┬─▶ render(Screen) ─▶ terminal, or a pipe
//!                               └─▶ html::Page ─────▶ one file, no script, no network
//!     profile ─▶ profile::page ──▶ svg::timeline, svg::page_map ──▶ html::Page
//! ```
//!
//! What it must never do: compute a result (it shows what others computed), read a file, print by itself (but for
//! progress, on standard error), or load anything into the reader's browser.

pub mod html;
pub mod number;
pub mod profile;
pub mod progress;
pub mod svg;
pub mod table;
pub mod text;

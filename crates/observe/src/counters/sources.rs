//! The programs that fit this kernel, and what cannot be seen without the others.

use super::Counters;
use super::types::{CounterOptions, DecisionSource, Detail, Sources};
use ahead_sys::{Error, Result};

/// Starts with the first source that works.
pub(super) fn start(
    _options: &CounterOptions,
    attach: impl Fn(DecisionSource) -> Result<Counters>,
) -> Result<Counters> {
    attach(DecisionSource::Tracepoints).map_err(|error| Error::Unsupported {
        what: "observing read-ahead".into(),
        why: format!(
            "the kernel lacks a tracepoint (readahead:* are in Linux 6.18 and newer) or refuses a program: {error}"
        ),
    })
}

/// Programs that observe decisions.
fn programs(source: DecisionSource) -> &'static [&'static str] {
    match source {
        DecisionSource::Tracepoints => &["on_sync", "on_async", "on_order", "on_unbounded"],
        DecisionSource::Fentry | DecisionSource::Kprobes | DecisionSource::Missing => &[],
    }
}

/// Programs that every source needs.
const ALWAYS: [&str; 2] = ["on_switch", "on_deleted"];
/// Without observed accesses.
const FAULTS: [&str; 1] = ["on_fault"];
/// Programs that observe accesses.
const ACCESSES: [&str; 6] =
    ["on_get_pages", "on_map_pages", "on_accessed_fault", "on_user_fault", "on_kernel_fault", "on_added"];

pub(super) fn is_wanted(program: &str, source: DecisionSource, options: &CounterOptions) -> bool {
    let by_detail: &[&str] = if options.detail == Detail::Decisions { &FAULTS } else { &ACCESSES };
    ALWAYS.contains(&program) || programs(source).contains(&program) || by_detail.contains(&program)
}

/// What is seen with these programs.
pub(super) fn seen(options: &CounterOptions, source: DecisionSource) -> Sources {
    Sources { decisions: source, hits: options.detail != Detail::Decisions, missing: Vec::new() }
}

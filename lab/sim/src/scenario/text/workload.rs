//! A workload of a scenario: a pattern with its sizes, or the name of a recording.

use super::lines::Lines;
use super::numbers::{Amount, Whole};
use crate::layout::Scheme;
use crate::patterns::{Pattern, Stream};
use crate::recording::{Manner, Recording, RecordingKind, Recordings};
use crate::scenario::{ScenarioError, Workload};
use ahead_policy::{Advice, PAGE_BYTES};
use serde::Deserialize;
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadText {
    name: Option<String>,
    pattern: Option<Pattern>,
    profile: Option<toml::Spanned<String>>,
    trace: Option<toml::Spanned<String>>,
    file_mb: Option<Whole<1, 16_777_216>>,
    #[serde(default = "one")]
    streams: Whole<1, 100_000>,
    #[serde(default = "one")]
    passes: Whole<1, 1_000_000>,
    via: Option<Via>,
    advice: Option<AdviceText>,
    #[serde(default)]
    huge: bool,
    #[serde(default)]
    executable: bool,
    block_kb: Option<Whole<4, 1_048_576>>,
    call_bytes: Option<Whole<1, 1_073_741_824>>,
    stride_kb: Option<Whole<4, 1_048_576>>,
    readers: Option<Whole<2, 4096>>,
    blocks: Option<Whole<1, 1_000_000_000_000>>,
    #[serde(default)]
    user_us_per_page: Amount<1_000_000>,
    #[serde(default)]
    compute_us: Amount<1_000_000_000>,
    rate_kb_per_s: Option<Whole<1, 100_000_000>>,
    #[serde(default)]
    reopens: bool,
    #[serde(default)]
    fsync: bool,
}

fn one<const MOST: u64>() -> Whole<1, MOST> {
    Whole(1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Via {
    Read,
    Mmap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AdviceText {
    Normal,
    Sequential,
    Random,
}

impl From<AdviceText> for Advice {
    fn from(text: AdviceText) -> Advice {
        match text {
            AdviceText::Normal => Advice::Normal,
            AdviceText::Sequential => Advice::Sequential,
            AdviceText::Random => Advice::Random,
        }
    }
}

impl WorkloadText {
    fn is_mapped(&self) -> bool {
        self.via == Some(Via::Mmap)
    }

    /// The number of equal programs.
    pub(super) fn streams(&self) -> u64 {
        self.streams.0
    }

    /// A field that is present but requires a pattern.
    fn of_a_pattern(&self) -> Option<&'static str> {
        let given = [
            ("file_mb", self.file_mb.is_some()),
            ("streams", self.streams.0 > 1),
            ("passes", self.passes.0 > 1),
            ("call_bytes", self.call_bytes.is_some()),
            ("stride_kb", self.stride_kb.is_some()),
            ("readers", self.readers.is_some()),
            ("blocks", self.blocks.is_some()),
            ("user_us_per_page", self.user_us_per_page.0 > 0.0),
            ("compute_us", self.compute_us.0 > 0.0),
            ("rate_kb_per_s", self.rate_kb_per_s.is_some()),
            ("reopens", self.reopens),
            ("fsync", self.fsync),
            ("advice", self.advice.is_some()),
            ("huge", self.huge),
            ("executable", self.executable),
        ];
        given.into_iter().find_map(|(field, given)| given.then_some(field))
    }

    /// The default name: `sequential`, `4 × random, mmap`.
    fn describe(&self) -> String {
        let streams = if self.streams.0 > 1 { format!("{} × ", self.streams.0) } else { String::new() };
        let recording = self.profile.as_ref().or(self.trace.as_ref());
        let pattern = match (self.pattern, recording) {
            (Some(Pattern::InterleavedBackward), _) => "interleaved backward".to_owned(),
            (Some(other), _) => format!("{other:?}").to_lowercase(),
            (None, recording) => recording.map_or(String::new(), |path| path.get_ref().clone()),
        };
        let via = if self.is_mapped() { ", mmap" } else { "" };
        format!("{streams}{pattern}{via}")
    }
}

/// The workload to simulate: its streams, or a recording.
pub(super) fn workload(
    spanned: &toml::Spanned<WorkloadText>,
    (seed, layout): (u32, Scheme),
    lines: &Lines,
    directory: &Path,
    recordings: &dyn Recordings,
) -> Result<Workload, ScenarioError> {
    let text = spanned.get_ref();
    let name = text.name.clone().unwrap_or_else(|| text.describe());
    if let Some(recording) = recording(spanned, lines, directory, recordings)? {
        return Ok(Workload { name, streams: Vec::new(), recording: Some(recording.into()) });
    }
    let one = stream(spanned, seed, layout, lines)?;
    Ok(Workload { name, streams: vec![one; text.streams.0 as usize], recording: None })
}

const TRACE_TAKES: &str = "a trace takes name";

/// The recording that a workload names; `None`: the workload has a pattern.
fn recording(
    spanned: &toml::Spanned<WorkloadText>,
    lines: &Lines,
    directory: &Path,
    recordings: &dyn Recordings,
) -> Result<Option<Recording>, ScenarioError> {
    let text = spanned.get_ref();
    let (kind, name) = match (text.pattern, &text.profile, &text.trace) {
        (Some(_), None, None) => return Ok(None),
        (None, Some(profile), None) => (RecordingKind::Profile, profile),
        (None, None, Some(trace)) => (RecordingKind::Trace, trace),
        _ => return lines.wrong(spanned.span(), "a workload has one of these: a pattern, a profile, a trace"),
    };
    if let Some(field) = text.of_a_pattern() {
        let takes = if kind == RecordingKind::Profile { "a profile takes name, via and block_kb" } else { TRACE_TAKES };
        return lines.wrong_in(spanned, &[field], format!("{field} goes with a pattern alone; {takes} besides"));
    }
    let of_profile = [("via", text.via.is_some()), ("block_kb", text.block_kb.is_some())];
    if let Some((field, _)) = of_profile.iter().find(|(_, given)| *given && kind == RecordingKind::Trace) {
        let message = format!("{field} goes with a pattern or a profile; {TRACE_TAKES} besides: it tells how it read");
        return lines.wrong_in(spanned, &[field], message);
    }
    let path = directory.join(name.get_ref());
    let loaded = recordings.load(kind, &path).and_then(|recording| recording.check().map(|()| recording));
    let wanted = match kind {
        RecordingKind::Profile => "name a file that `ahead record` wrote",
        RecordingKind::Trace => "name a file that `ahead sim trace` wrote",
    };
    let recording = loaded.or_else(|error| {
        let hint = if error.contains(wanted) { String::new() } else { format!("; {wanted}") };
        let path = if name.get_ref().is_empty() { "\"\"".into() } else { path.display().to_string() };
        lines.wrong(name.span(), format!("{path}: {error}{hint}"))
    })?;
    let call_bytes = text.block_kb.map_or(64, |kb| kb.0) << 10;
    Ok(Some(recording.done(Manner { mapped: text.is_mapped(), call_bytes })))
}

/// The work of each program of a pattern.
fn stream(
    spanned: &toml::Spanned<WorkloadText>,
    seed: u32,
    layout: Scheme,
    lines: &Lines,
) -> Result<Stream, ScenarioError> {
    let text = spanned.get_ref();
    let (Some(pattern), Some(file_mb)) = (text.pattern, text.file_mb) else {
        return lines.wrong_in(spanned, &[], "missing field `file_mb`: a pattern goes through a file of this size");
    };
    let default_kb = if text.is_mapped() { 4 } else { 64 };
    let block_pages = text.block_kb.map_or(default_kb, |kb| kb.0) / 4;
    let stream = Stream {
        pattern,
        id: 0,
        file_pages: (file_mb.0 << 20) / PAGE_BYTES,
        block_pages,
        call_bytes: text.call_bytes.map_or(block_pages * PAGE_BYTES, |bytes| bytes.0),
        stride_pages: text.stride_kb.map_or(4 * block_pages, |kb| kb.0 / 4),
        readers: text.readers.map_or(4, |readers| readers.0),
        most_blocks: text.blocks.map_or(u64::MAX, |blocks| blocks.0),
        passes: text.passes.0,
        mapped: text.is_mapped(),
        advice: text.advice.map_or(Advice::Normal, Advice::from),
        huge: text.huge,
        executable: text.executable,
        user_per_page_ns: text.user_us_per_page.0 * 1e3,
        compute_ns: (text.compute_us.0 * 1e3) as u64,
        sleep_ns: text.rate_kb_per_s.map_or(0, |rate| block_pages * 4 * 1_000_000_000 / rate.0),
        reopens: text.reopens,
        syncs: text.fsync,
        seed: u64::from(seed),
    };
    check_places(spanned, &stream, lines)?;
    check_manner(spanned, &stream, lines)?;
    if stream.file_pages > layout.most_pages() {
        let most_mb = layout.most_pages() >> 8;
        let message = format!("with this layout a file (file_mb) has at most {most_mb} MiB");
        return lines.wrong_in(spanned, &["file_mb"], message);
    }
    Ok(stream)
}

/// Checks the places in the file: blocks, strides, readers.
fn check_places(spanned: &toml::Spanned<WorkloadText>, stream: &Stream, lines: &Lines) -> Result<(), ScenarioError> {
    let (text, pattern) = (spanned.get_ref(), stream.pattern);
    let wrong = |fields: &[&str], message: &str| lines.wrong_in(spanned, fields, message);
    for (name, kb) in [("block_kb", text.block_kb.map(|kb| kb.0)), ("stride_kb", text.stride_kb.map(|kb| kb.0))] {
        if kb.is_some_and(|kb| kb % 4 != 0) {
            return wrong(&[name], &format!("{name} is a multiple of 4: whole pages"));
        }
    }
    if text.readers.is_some_and(|readers| readers.0 > stream.file_pages.div_ceil(stream.block_pages)) {
        return wrong(&["readers"], "there are more readers than blocks in the file");
    }
    if stream.block_pages > stream.file_pages {
        return wrong(&["block_kb", "file_mb"], "a block (block_kb) is larger than the file (file_mb)");
    }
    if pattern == Pattern::Stride && stream.stride_pages < stream.block_pages {
        return wrong(&["stride_kb"], "the stride (stride_kb) is shorter than a block (block_kb)");
    }
    if text.stride_kb.is_some() && pattern != Pattern::Stride {
        return wrong(&["stride_kb"], "stride_kb goes with pattern = \"stride\" alone");
    }
    let is_interleaved = matches!(pattern, Pattern::Interleaved | Pattern::InterleavedBackward);
    if text.readers.is_some() && !is_interleaved {
        return wrong(&["readers"], "readers goes with pattern = \"interleaved\" and \"interleaved-backward\" alone");
    }
    Ok(())
}

/// Checks the manner of access: calls, or a mapping.
fn check_manner(spanned: &toml::Spanned<WorkloadText>, stream: &Stream, lines: &Lines) -> Result<(), ScenarioError> {
    let (text, writes) = (spanned.get_ref(), stream.pattern.writes());
    let wrong = |fields: &[&str], message: &str| lines.wrong_in(spanned, fields, message);
    if text.call_bytes.is_some() && stream.mapped {
        return wrong(&["call_bytes"], "call_bytes goes with via = \"read\" alone");
    }
    if stream.call_bytes > stream.block_pages * PAGE_BYTES {
        return wrong(&["call_bytes"], "a call (call_bytes) reads at most a block (block_kb)");
    }
    if writes && stream.mapped {
        return wrong(&["via"], "a pattern that writes goes with via = \"read\" alone: by calls");
    }
    for (field, given) in [("huge", text.huge), ("executable", text.executable)] {
        if given && !stream.mapped {
            return wrong(&[field], &format!("{field} goes with via = \"mmap\" alone: it is said of a mapping"));
        }
    }
    if text.fsync && !writes {
        return wrong(&["fsync"], "fsync goes with the patterns write and rewrite alone");
    }
    Ok(())
}

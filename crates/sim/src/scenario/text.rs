//! A scenario from TOML; `docs/formats.md` has every field. What comes from outside is checked here, and complaints name
//! their line.

mod numbers;

use super::check::MOST_STREAMS;
use super::{Blame, Disk, MAX_TEXT_BYTES, Scenario, ScenarioError, Workload};
use crate::layout::Scheme;
use crate::machine::{Costs, DirtyLimits, Settings};
use crate::patterns::{Pattern, Stream};
use crate::queue::Scheduler;
use crate::recording::{Manner, NoRecordings, Recording, RecordingKind, Recordings};
use ahead_device::Model;
use ahead_policy::{Choice, PAGE_BYTES};
use numbers::{Amount, Slice, Whole};
use serde::Deserialize;
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    name: String,
    policies: Vec<toml::Spanned<String>>,
    #[serde(default)]
    machine: MachineText,
    #[serde(default)]
    disk: DiskText,
    workload: Vec<toml::Spanned<WorkloadText>>,
    #[serde(default)]
    seed: Whole<0, 4_294_967_295>,
}

/// Costs are those of a present machine unless stated: 10 GB/s of copying, half a microsecond for a fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MachineText {
    memory_mb: Whole<1, 1_048_576>,
    copy_us_per_page: Amount<1_000_000>,
    call_us: Amount<1_000_000>,
    fault_us: Amount<1_000_000>,
    request_us_per_page: Amount<1_000_000>,
    pio_us_per_page: Amount<1_000_000>,
    fault_around_pages: toml::Spanned<Whole<1, 512>>,
    dirty_background_ratio: Whole<0, 100>,
    dirty_ratio: Whole<0, 100>,
    dirty_expire_ms: Whole<0, 1_000_000_000>,
    dirty_writeback_ms: Whole<1, 1_000_000_000>,
    slice_ms: Slice,
    end_s: Whole<1, 1_000_000_000>,
}

impl Default for MachineText {
    fn default() -> Self {
        MachineText {
            memory_mb: Whole(1024),
            copy_us_per_page: Amount(0.4),
            call_us: Amount(0.2),
            fault_us: Amount(0.5),
            request_us_per_page: Amount(0.2),
            pio_us_per_page: Amount(0.0),
            fault_around_pages: toml::Spanned::new(0..0, Whole(16)),
            dirty_background_ratio: Whole(10),
            dirty_ratio: Whole(20),
            dirty_expire_ms: Whole(30_000),
            dirty_writeback_ms: Whole(5_000),
            slice_ms: Slice(3.0),
            end_s: Whole(1_000_000),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DiskText {
    model: toml::Spanned<String>,
    read_ahead_kb: Whole<0, 4_194_304>,
    nr_requests: Option<Whole<1, 65_536>>,
    max_request_kb: Option<Whole<4, 65_536>>,
    scheduler: Option<toml::Spanned<String>>,
    turnaround_us: Option<toml::Spanned<Amount<1_000_000>>>,
    layout: Scheme,
    folio_order: Option<toml::Spanned<Whole<0, 9>>>,
}

impl Default for DiskText {
    fn default() -> Self {
        DiskText {
            model: toml::Spanned::new(0..0, "hdd".into()),
            read_ahead_kb: Whole(128),
            nr_requests: None,
            max_request_kb: None,
            scheduler: None,
            turnaround_us: None,
            layout: Scheme::Extents,
            folio_order: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadText {
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

impl WorkloadText {
    fn is_mapped(&self) -> bool {
        self.via == Some(Via::Mmap)
    }

    /// What it is called unless it says so: `sequential`, `4 × random, mmap`.
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

/// The lines of a text.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, at: usize) -> usize {
        1 + self.0.as_bytes()[..at.min(self.0.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    /// The line of a field in the `index`th table with this header; the header's own line if the field is not written there.
    fn key(&self, header: &str, index: usize, field: &str) -> Option<usize> {
        self.written(header, index, field).or_else(|| Some(1 + self.header(header, index)?))
    }

    /// The same; `None` if the field is not written there.
    fn written(&self, header: &str, index: usize, field: &str) -> Option<usize> {
        self.below(self.header(header, index)? + 1, field)
    }

    /// The line of a field in the table whose header is on this line.
    fn below(&self, header: usize, field: &str) -> Option<usize> {
        let table = self.0.lines().enumerate().skip(header).take_while(|(_, line)| !line.trim_start().starts_with('['));
        let is_field = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == field);
        table.into_iter().find(|(_, line)| is_field(line)).map(|(line, _)| line + 1)
    }

    /// Lines before the `index`th header.
    fn header(&self, header: &str, index: usize) -> Option<usize> {
        let is_header = |line: &str| line.split('#').next().is_some_and(|line| line.trim() == header);
        Some(self.0.lines().enumerate().filter(|(_, line)| is_header(line)).nth(index)?.0)
    }

    /// `None`: nobody has written it.
    fn wrong_at<T>(&self, line: Option<usize>, message: impl Into<String>) -> Result<T, ScenarioError> {
        Err(ScenarioError::Field { line: line.unwrap_or(1), message: message.into() })
    }

    fn wrong<T>(&self, span: std::ops::Range<usize>, message: impl Into<String>) -> Result<T, ScenarioError> {
        Err(ScenarioError::Field { line: self.of(span.start), message: message.into() })
    }

    /// The first of these fields that is written in a table is wrong; if none is, the table itself.
    fn wrong_in<S, T>(
        &self,
        table: &toml::Spanned<S>,
        fields: &[&str],
        message: impl Into<String>,
    ) -> Result<T, ScenarioError> {
        let header = self.of(table.span().start);
        let line = fields.iter().find_map(|field| self.below(header, field)).unwrap_or(header);
        self.wrong_at(Some(line), message)
    }
}

impl Scenario {
    /// The line of its text where a field stands, or the table that it belongs to begins; `None`: nobody has written that (or it is a policy).
    pub fn line_of(&self, blame: Blame) -> Option<usize> {
        let lines = Lines(&self.text);
        match blame {
            Blame::Policy(_) => None,
            Blame::Machine(field) => lines.key("[machine]", 0, field),
            Blame::Disk(field) => lines.key("[disk]", 0, field),
            Blame::Workload(index, field) => lines.key("[[workload]]", index, field),
        }
    }

    /// Reads a scenario; models that are files are looked for in `directory`.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn from_toml(text: &str, directory: &Path) -> Result<Scenario, ScenarioError> {
        Scenario::from_toml_with(text, directory, &NoRecordings)
    }

    /// The same with workloads from recordings, which are looked for in `directory`, too.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn from_toml_with(
        text: &str,
        directory: &Path,
        recordings: &dyn Recordings,
    ) -> Result<Scenario, ScenarioError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(ScenarioError::TooLarge);
        }
        let lines = Lines(text);
        let parsed: Text = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.of(span.start));
            ScenarioError::Field { line, message: error.message().replace('\n', " ") }
        })?;
        let policies = parsed.policies.iter().map(|name| {
            ahead_policy::named(name.get_ref()).or_else(|error| lines.wrong(name.span(), error.to_string()))
        });
        let policies: Vec<Choice> = policies.collect::<Result<_, _>>()?;
        if policies.is_empty() {
            return lines.wrong(0..0, "policies is empty: name one at least (ahead sim policies lists them)");
        }
        for (index, name) in parsed.policies.iter().enumerate() {
            if policies[..index].iter().any(|before| before.to_string() == policies[index].to_string()) {
                return lines.wrong(name.span(), format!("{} is named twice: once is enough", policies[index]));
            }
        }
        let mut streams = 0_u64;
        let workloads = parsed.workload.iter().map(|workload| {
            // Before room is made for them.
            streams = streams.saturating_add(workload.get_ref().streams.0);
            if streams > MOST_STREAMS as u64 {
                let message = format!("there are at most {MOST_STREAMS} streams, here {streams}");
                return lines.wrong_in(workload, &["streams"], message);
            }
            let text = workload.get_ref();
            let name = text.name.clone().unwrap_or_else(|| text.describe());
            if let Some(recording) = recording(workload, &lines, directory, recordings)? {
                return Ok(Workload { name, streams: Vec::new(), recording: Some(recording.into()) });
            }
            let one = stream(workload, parsed.seed.0 as u32, parsed.disk.layout, &lines)?;
            Ok(Workload { name, streams: vec![one; text.streams.0 as usize], recording: None })
        });
        let workloads: Vec<Workload> = workloads.collect::<Result<_, _>>()?;
        if workloads.is_empty() {
            return lines.wrong(0..0, "there is no [[workload]]");
        }
        let machine = &parsed.machine;
        if machine.dirty_background_ratio.0 > machine.dirty_ratio.0 {
            let at = lines
                .written("[machine]", 0, "dirty_background_ratio")
                .or_else(|| lines.key("[machine]", 0, "dirty_ratio"));
            let message = "dirty_background_ratio is at most dirty_ratio, or writers wait before anything is written";
            return lines.wrong_at(at, message);
        }
        if !machine.fault_around_pages.get_ref().0.is_power_of_two() {
            let message = "fault_around_pages is a power of two: the pages around a fault are an aligned group";
            return lines.wrong(machine.fault_around_pages.span(), message);
        }
        let scenario = Scenario {
            name: parsed.name,
            text: text.into(),
            policies,
            disk: disk(&parsed.disk, &lines, directory)?,
            settings: settings(machine),
            memory_pages: memory_pages(machine),
            workloads,
        };
        scenario.check().or_else(|impossible| {
            let at = match impossible.blame {
                Blame::Policy(index) => parsed.policies.get(index).map(|name| lines.of(name.span().start)),
                other => scenario.line_of(other),
            };
            lines.wrong_at(at, impossible.message)
        })?;
        Ok(scenario)
    }
}

fn model(disk: &DiskText, lines: &Lines, directory: &Path) -> Result<Model, ScenarioError> {
    let name = disk.model.get_ref();
    if let Some(model) = Model::builtin(name) {
        return Ok(model);
    }
    let path = directory.join(name);
    let known = [&Model::BUILTIN[..], &Model::PAPERS].concat().join(", ");
    match super::read_small(&path) {
        Ok(text) => Model::from_toml(&text)
            .or_else(|error| lines.wrong(disk.model.span(), format!("{}: {error}", path.display()))),
        Err(error) => lines.wrong(
            disk.model.span(),
            format!("{name:?} is neither a model ({known}) nor a file that can be read: {error}"),
        ),
    }
}

fn disk(text: &DiskText, lines: &Lines, directory: &Path) -> Result<Disk, ScenarioError> {
    let scheduler = match &text.scheduler {
        None => None,
        Some(name) => match Scheduler::NAMED.iter().find(|(known, _)| known == name.get_ref()) {
            Some((_, scheduler)) => Some(*scheduler),
            None => {
                let known = Scheduler::NAMED.map(|(name, _)| name).join(", ");
                return lines.wrong(name.span(), format!("{:?} is no scheduler; there are {known}", name.get_ref()));
            }
        },
    };
    let turnaround_ns = match (&text.turnaround_us, scheduler) {
        (None, _) => 0,
        (Some(us), Some(Scheduler::Cfq)) => (us.get_ref().0 * 1e3) as u64,
        (Some(us), _) => return lines.wrong(us.span(), "turnaround_us is for scheduler = \"cfq\""),
    };
    if !text.read_ahead_kb.0.is_multiple_of(4) {
        let message = "a window has whole pages: read_ahead_kb is a multiple of 4";
        return lines.wrong_at(lines.key("[disk]", 0, "read_ahead_kb"), message);
    }
    let folio_order = match (&text.folio_order, text.layout) {
        (None, Scheme::Extents) => 9,
        (None, _) => 0,
        (Some(order), Scheme::Ext2 | Scheme::Ext2Kib) if order.get_ref().0 > 0 => {
            return lines.wrong(order.span(), "ext2 takes single pages: folio_order is 0 with layout = \"ext2\"");
        }
        (Some(order), _) => order.get_ref().0 as u8,
    };
    Ok(Disk {
        model: model(text, lines, directory)?,
        window_pages: text.read_ahead_kb.0 / 4,
        folio_order,
        layout: text.layout,
        nr_requests: text.nr_requests.map(|number| number.0 as u32),
        longest_bytes: text.max_request_kb.map(|kb| kb.0 << 10),
        scheduler,
        turnaround_ns,
    })
}

fn memory_pages(machine: &MachineText) -> u64 {
    (machine.memory_mb.0 << 20) / PAGE_BYTES
}

fn settings(machine: &MachineText) -> Settings {
    let costs = Costs {
        copy_per_page_ns: machine.copy_us_per_page.0 * 1e3,
        call_ns: machine.call_us.0 * 1e3,
        fault_ns: machine.fault_us.0 * 1e3,
        request_per_page_ns: machine.request_us_per_page.0 * 1e3,
        pio_per_page_ns: machine.pio_us_per_page.0 * 1e3,
    };
    Settings {
        costs,
        slice_ns: (machine.slice_ms.0 * 1e6) as u64,
        fault_around_pages: machine.fault_around_pages.get_ref().0,
        dirty: DirtyLimits {
            background_pages: memory_pages(machine) * machine.dirty_background_ratio.0 / 100,
            most_pages: memory_pages(machine) * machine.dirty_ratio.0 / 100,
            expire_ns: machine.dirty_expire_ms.0 * 1_000_000,
            interval_ns: machine.dirty_writeback_ms.0 * 1_000_000,
        },
        end_ns: machine.end_s.0 * 1_000_000_000,
    }
}

const TRACE_TAKES: &str = "a trace takes name";

/// The recording that a workload names; `None`: it has a pattern.
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
    let given = [
        ("file_mb", text.file_mb.is_some()),
        ("streams", text.streams.0 > 1),
        ("passes", text.passes.0 > 1),
        ("call_bytes", text.call_bytes.is_some()),
        ("stride_kb", text.stride_kb.is_some()),
        ("readers", text.readers.is_some()),
        ("blocks", text.blocks.is_some()),
        ("user_us_per_page", text.user_us_per_page.0 > 0.0),
        ("compute_us", text.compute_us.0 > 0.0),
        ("rate_kb_per_s", text.rate_kb_per_s.is_some()),
        ("reopens", text.reopens),
        ("fsync", text.fsync),
    ];
    if let Some((field, _)) = given.iter().find(|(_, given)| *given) {
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
    let recording = loaded.or_else(|error| lines.wrong(name.span(), format!("{}: {error}", path.display())))?;
    let call_bytes = text.block_kb.map_or(64, |kb| kb.0) << 10;
    Ok(Some(recording.done(Manner { mapped: text.is_mapped(), call_bytes })))
}

fn stream(
    spanned: &toml::Spanned<WorkloadText>,
    seed: u32,
    layout: Scheme,
    lines: &Lines,
) -> Result<Stream, ScenarioError> {
    let text = spanned.get_ref();
    let wrong = |fields: &[&str], message: &str| lines.wrong_in(spanned, fields, message);
    let (Some(pattern), Some(file_mb)) = (text.pattern, text.file_mb) else {
        return wrong(&[], "missing field `file_mb`: a pattern goes through a file of this size");
    };
    let default_kb = if text.is_mapped() { 4 } else { 64 };
    let block_pages = text.block_kb.map_or(default_kb, |kb| kb.0) / 4;
    let file_pages = (file_mb.0 << 20) / PAGE_BYTES;
    let stride_pages = text.stride_kb.map_or(4 * block_pages, |kb| kb.0 / 4);
    for (name, kb) in [("block_kb", text.block_kb.map(|kb| kb.0)), ("stride_kb", text.stride_kb.map(|kb| kb.0))] {
        if kb.is_some_and(|kb| kb % 4 != 0) {
            return wrong(&[name], &format!("{name} is a multiple of 4: whole pages"));
        }
    }
    if text.readers.is_some_and(|readers| readers.0 > file_pages.div_ceil(block_pages)) {
        return wrong(&["readers"], "there are more readers than blocks in the file");
    }
    if block_pages > file_pages {
        return wrong(&["block_kb", "file_mb"], "a block (block_kb) is larger than the file (file_mb)");
    }
    if pattern == Pattern::Stride && stride_pages < block_pages {
        return wrong(&["stride_kb"], "the stride (stride_kb) is shorter than a block (block_kb)");
    }
    if text.stride_kb.is_some() && pattern != Pattern::Stride {
        return wrong(&["stride_kb"], "stride_kb goes with pattern = \"stride\" alone");
    }
    let is_interleaved = matches!(pattern, Pattern::Interleaved | Pattern::InterleavedBackward);
    if text.readers.is_some() && !is_interleaved {
        return wrong(&["readers"], "readers goes with pattern = \"interleaved\" and \"interleaved-backward\" alone");
    }
    let block_bytes = block_pages * PAGE_BYTES;
    if text.call_bytes.is_some() && text.is_mapped() {
        return wrong(&["call_bytes"], "call_bytes goes with via = \"read\" alone");
    }
    if text.call_bytes.is_some_and(|bytes| bytes.0 > block_bytes) {
        return wrong(&["call_bytes"], "a call (call_bytes) reads at most a block (block_kb)");
    }
    if pattern.writes() && text.is_mapped() {
        return wrong(&["via"], "a pattern that writes goes with via = \"read\" alone: by calls");
    }
    if text.fsync && !pattern.writes() {
        return wrong(&["fsync"], "fsync goes with the patterns write and rewrite alone");
    }
    if file_pages > layout.most_pages() {
        let most_mb = layout.most_pages() >> 8;
        return wrong(&["file_mb"], &format!("with this layout a file (file_mb) has at most {most_mb} MiB"));
    }
    let sleep_ns = text.rate_kb_per_s.map_or(0, |rate| block_pages * 4 * 1_000_000_000 / rate.0);
    Ok(Stream {
        pattern,
        id: 0,
        file_pages,
        block_pages,
        call_bytes: text.call_bytes.map_or(block_bytes, |bytes| bytes.0),
        stride_pages,
        readers: text.readers.map_or(4, |readers| readers.0),
        most_blocks: text.blocks.map_or(u64::MAX, |blocks| blocks.0),
        passes: text.passes.0,
        mapped: text.is_mapped(),
        user_per_page_ns: text.user_us_per_page.0 * 1e3,
        compute_ns: (text.compute_us.0 * 1e3) as u64,
        sleep_ns,
        reopens: text.reopens,
        syncs: text.fsync,
        seed: u64::from(seed),
    })
}

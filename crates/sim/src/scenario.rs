//! A scenario: machine, disk, workloads and policies, in TOML. `docs/formats.md` has every field.

use crate::cache::Cache;
use crate::counters::Counters;
use crate::machine::{Costs, Machine, Program, Settings};
use crate::patterns::{Pattern, Stream};
use crate::queue::{Queue, Scheduler};
use crate::workload::Op;
use crate::world::{FileLayout, World};
use ahead_device::Model;
use ahead_policy::{Choice, DeviceTraits, FileId, Limits, PAGE_BYTES, Page, Parameters};
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest scenario, bytes: a scenario is a page of text.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// So many accesses are foretold to a policy that knows the future, at most.
const MOST_FORETOLD: usize = 1 << 26;
/// A file begins at a multiple of this, bytes: file systems leave gaps.
const FILE_ALIGN_BYTES: u64 = 1 << 20;

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than any scenario.
    #[error("a scenario may have at most {MAX_TEXT_BYTES} bytes")]
    TooLarge,
    /// Something in it is wrong.
    #[error("line {line}: {message}")]
    Field {
        /// Line in the text, from 1.
        line: usize,
        /// What, and what is accepted.
        message: String,
    },
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole<const LEAST: u64, const MOST: u64>(u64);

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Whole<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        match u64::try_from(number) {
            Ok(number) if (LEAST..=MOST).contains(&number) => Ok(Whole(number)),
            _ => Err(serde::de::Error::custom(format!("{number} is not a whole number from {LEAST} to {MOST}"))),
        }
    }
}

/// A number from 0 to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Amount<const MOST: u64>(f64);

impl<'de, const MOST: u64> Deserialize<'de> for Amount<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (0.0..=MOST as f64).contains(&number) {
            Ok(Amount(number))
        } else {
            Err(serde::de::Error::custom(format!("{number} is not a number from 0 to {MOST}")))
        }
    }
}

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
    seed: u32,
}

/// Costs are those of a present machine unless stated: 10 GB/s of copying, half a microsecond for a fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MachineText {
    memory_mb: Whole<1, 16_777_216>,
    copy_us_per_page: Amount<1_000_000>,
    call_us: Amount<1_000_000>,
    fault_us: Amount<1_000_000>,
    request_us_per_page: Amount<1_000_000>,
    pio_us_per_page: Amount<1_000_000>,
    fault_around_pages: Whole<1, 512>,
    slice_ms: Amount<10_000>,
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
            fault_around_pages: Whole(16),
            slice_ms: Amount(3.0),
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
    folio_order: Whole<0, 9>,
}

impl Default for DiskText {
    fn default() -> Self {
        DiskText {
            model: toml::Spanned::new(0..0, "hdd".into()),
            read_ahead_kb: Whole(128),
            nr_requests: None,
            max_request_kb: None,
            scheduler: None,
            folio_order: Whole(9),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadText {
    pattern: Pattern,
    file_mb: Whole<1, 16_777_216>,
    #[serde(default = "one")]
    streams: Whole<1, 100_000>,
    #[serde(default = "one")]
    passes: Whole<1, 1_000_000>,
    #[serde(default)]
    via: Via,
    block_kb: Option<Whole<4, 1_048_576>>,
    stride_kb: Option<Whole<4, 1_048_576>>,
    readers: Option<Whole<2, 4096>>,
    #[serde(default)]
    user_us_per_page: Microseconds,
    #[serde(default)]
    compute_us: Microseconds,
    rate_kb_per_s: Option<Whole<1, 100_000_000>>,
    #[serde(default)]
    reopens: bool,
}

fn one<const MOST: u64>() -> Whole<1, MOST> {
    Whole(1)
}

/// Microseconds; 0 unless stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
struct Microseconds(f64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Via {
    #[default]
    Read,
    Mmap,
}

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// The policies to compare, in this order.
    pub policies: Vec<Choice>,
    /// The disk.
    pub model: Model,
    /// The disk's settings.
    pub limits: Limits,
    /// The machine.
    pub settings: Settings,
    /// The memory that the page cache has, pages.
    pub memory_pages: u64,
    streams: Vec<Stream>,
    nr_requests: u32,
    longest_bytes: u64,
    scheduler: Scheduler,
}

/// The lines of a text.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, at: usize) -> usize {
        1 + self.0.as_bytes()[..at.min(self.0.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    fn wrong<T>(&self, span: std::ops::Range<usize>, message: impl Into<String>) -> Result<T, ScenarioError> {
        Err(ScenarioError::Field { line: self.of(span.start), message: message.into() })
    }
}

impl Scenario {
    /// Loads a scenario; models are looked for beside it.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        let io = |source| ScenarioError::Io { path: path.into(), source };
        if std::fs::metadata(path).map_err(io)?.len() > MAX_TEXT_BYTES as u64 {
            return Err(ScenarioError::TooLarge);
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Scenario::from_toml(&text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads a scenario; models that are files are looked for in `directory`.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn from_toml(text: &str, directory: &Path) -> Result<Scenario, ScenarioError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(ScenarioError::TooLarge);
        }
        let lines = Lines(text);
        let parsed: Text = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.of(span.start));
            ScenarioError::Field { line, message: error.message().replace('\n', " ") }
        })?;
        let model = model(&parsed.disk, &lines, directory)?;
        let scheduler = scheduler(&parsed.disk, &model, &lines)?;
        let policies = parsed.policies.iter().map(|name| {
            ahead_policy::named(name.get_ref()).or_else(|error| lines.wrong(name.span(), error.to_string()))
        });
        let policies: Vec<Choice> = policies.collect::<Result<_, _>>()?;
        if policies.is_empty() {
            return lines.wrong(0..0, "policies is empty: name one at least (ahead sim policies lists them)");
        }
        let longest_bytes = parsed.disk.max_request_kb.map_or(model.max_request_bytes(), |kb| kb.0 << 10);
        let limits = Limits {
            window_pages: parsed.disk.read_ahead_kb.0 / 4,
            request_pages: longest_bytes / PAGE_BYTES,
            folio_order: parsed.disk.folio_order.0 as u8,
        };
        let memory_pages = (parsed.machine.memory_mb.0 << 20) / PAGE_BYTES;
        let mut streams = Vec::new();
        for workload in &parsed.workload {
            let one = stream(workload, parsed.seed, &lines)?;
            if one.block_pages > memory_pages {
                return lines.wrong(workload.span(), "a block is larger than the memory (memory_mb)");
            }
            let first = streams.len() as u32;
            streams.extend((0..workload.get_ref().streams.0 as u32).map(|index| Stream { id: first + index, ..one }));
        }
        if streams.is_empty() {
            return lines.wrong(0..0, "there is no [[workload]]");
        }
        let nr_requests = parsed.disk.nr_requests.map_or(model.nr_requests(), |number| number.0 as u32);
        Ok(Scenario {
            name: parsed.name,
            policies,
            limits,
            settings: settings(&parsed.machine),
            memory_pages,
            streams,
            nr_requests,
            longest_bytes,
            scheduler,
            model,
        })
    }

    fn layouts(&self) -> (Vec<FileLayout>, u64) {
        let mut at = 0;
        let layout = |stream: &Stream| {
            let layout = FileLayout { pages: stream.file_pages, offset_bytes: at };
            at += (stream.file_pages * PAGE_BYTES).next_multiple_of(FILE_ALIGN_BYTES);
            layout
        };
        let files = self.streams.iter().map(layout).collect();
        (files, at)
    }

    /// The traits of its disk, as a policy is told them: what a small random read and a long one take.
    pub fn traits(&self) -> DeviceTraits {
        let access_ns = typical_access_ns(&self.model);
        let bandwidth_bytes_per_s = self.model.bandwidth_bytes_per_s();
        DeviceTraits { access_ns, bandwidth_bytes_per_s, parallelism: self.model.channels() }
    }

    /// Every access that will come, if the streams take turns block by block.
    fn future(&self) -> Arc<[(FileId, Page)]> {
        let mut streams: Vec<_> = self.streams.iter().map(|stream| stream.ops()).collect();
        let mut future = Vec::new();
        while !streams.is_empty() && future.len() < MOST_FORETOLD {
            streams.retain_mut(|ops| {
                for op in ops.by_ref() {
                    let (file, first, pages) = match op {
                        Op::Read { file, offset_bytes, length_bytes, .. } => {
                            (file, offset_bytes / PAGE_BYTES, length_bytes.div_ceil(PAGE_BYTES))
                        }
                        Op::Touch { file, first, pages, .. } => (file, first, pages),
                        _ => continue,
                    };
                    future.extend((first..first + pages).map(|page| (file, page)));
                    return true;
                }
                false
            });
        }
        future.into()
    }

    /// Runs one policy.
    ///
    /// Errors: the policy cannot be built.
    pub fn run(&self, choice: &Choice) -> Result<Counters, ahead_policy::UnknownPolicy> {
        let future = choice.description().needs_future().then(|| self.future());
        let budget_pages = Some(self.memory_pages / 4);
        let policy = choice.build(&Parameters { device: self.traits(), budget_pages, future })?;
        let (files, capacity_bytes) = self.layouts();
        let queue = Queue::new(&self.model, capacity_bytes, self.nr_requests, self.longest_bytes, self.scheduler);
        let cache = Cache::new(self.memory_pages);
        let world = World { now_ns: 0, files, cache, queue, limits: self.limits };
        let program = |stream: &Stream| Program { ops: stream.ops(), user_per_page_ns: stream.user_per_page_ns };
        Ok(Machine::new(world, policy, self.settings, self.streams.iter().map(program).collect()).run())
    }
}

/// A random read of one page on a fresh disk of 64 GiB: the median of 63.
fn typical_access_ns(model: &Model) -> u64 {
    let capacity_bytes: u64 = 64 << 30;
    let mut device = ahead_device::Device::new(model, capacity_bytes);
    let mut chance = crate::patterns::Chance::new(1);
    let mut now_ns = 0;
    let mut times: Vec<u64> = (0..63)
        .map(|_| {
            let offset_bytes = chance.below(capacity_bytes / PAGE_BYTES) * PAGE_BYTES;
            let request = ahead_device::Request { op: ahead_device::Op::Read, offset_bytes, length_bytes: PAGE_BYTES };
            let served = device.submit(&request, now_ns);
            let took_ns = served.end_ns - now_ns;
            now_ns = served.end_ns + 1_000_000;
            took_ns
        })
        .collect();
    times.sort_unstable();
    times[31]
}

fn model(disk: &DiskText, lines: &Lines, directory: &Path) -> Result<Model, ScenarioError> {
    let name = disk.model.get_ref();
    if let Some(model) = Model::builtin(name) {
        return Ok(model);
    }
    let path = directory.join(name);
    let known = [&Model::BUILTIN[..], &Model::PAPERS].concat().join(", ");
    match std::fs::read_to_string(&path) {
        Ok(text) => Model::from_toml(&text)
            .or_else(|error| lines.wrong(disk.model.span(), format!("{}: {error}", path.display()))),
        Err(error) => lines.wrong(
            disk.model.span(),
            format!("{name:?} is neither a model ({known}) nor a file that can be read: {error}"),
        ),
    }
}

fn scheduler(disk: &DiskText, model: &Model, lines: &Lines) -> Result<Scheduler, ScenarioError> {
    let name = disk.scheduler.as_ref().map_or(model.scheduler(), |name| name.get_ref());
    match name {
        "none" => Ok(Scheduler::None),
        "mq-deadline" => Ok(Scheduler::Deadline),
        _ => {
            let span = disk.scheduler.as_ref().map_or(0..0, toml::Spanned::span);
            lines.wrong(span, format!("{name:?} is no scheduler; there are none and mq-deadline"))
        }
    }
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
        slice_ns: ((machine.slice_ms.0 * 1e6) as u64).max(1000),
        fault_around_pages: machine.fault_around_pages.0,
        end_ns: machine.end_s.0 * 1_000_000_000,
    }
}

fn stream(spanned: &toml::Spanned<WorkloadText>, seed: u32, lines: &Lines) -> Result<Stream, ScenarioError> {
    let (text, span) = (spanned.get_ref(), spanned.span());
    let default_kb = if text.via == Via::Mmap { 4 } else { 64 };
    let block_pages = text.block_kb.map_or(default_kb, |kb| kb.0) / 4;
    let file_pages = (text.file_mb.0 << 20) / PAGE_BYTES;
    let stride_pages = text.stride_kb.map_or(4 * block_pages, |kb| kb.0 / 4);
    if block_pages > file_pages {
        return lines.wrong(span, "a block (block_kb) is larger than the file (file_mb)");
    }
    if text.pattern == Pattern::Stride && stride_pages < block_pages {
        return lines.wrong(span, "the stride (stride_kb) is shorter than a block (block_kb)");
    }
    if text.stride_kb.is_some() && text.pattern != Pattern::Stride {
        return lines.wrong(span, "stride_kb goes with pattern = \"stride\" alone");
    }
    if text.readers.is_some() && text.pattern != Pattern::Interleaved {
        return lines.wrong(span, "readers goes with pattern = \"interleaved\" alone");
    }
    if !(0.0..1e9).contains(&text.compute_us.0) || !(0.0..1e9).contains(&text.user_us_per_page.0) {
        return lines.wrong(span, "compute_us and user_us_per_page are from 0 to 1000000000");
    }
    let sleep_ns = text.rate_kb_per_s.map_or(0, |rate| block_pages * 4 * 1_000_000_000 / rate.0);
    Ok(Stream {
        pattern: text.pattern,
        id: 0,
        file_pages,
        block_pages,
        stride_pages,
        readers: text.readers.map_or(4, |readers| readers.0),
        passes: text.passes.0,
        mapped: text.via == Via::Mmap,
        user_per_page_ns: text.user_us_per_page.0 * 1e3,
        compute_ns: (text.compute_us.0 * 1e3) as u64,
        sleep_ns,
        reopens: text.reopens,
        seed: u64::from(seed),
    })
}

//! A scenario: machine, disk, workloads and policies, and their run.

mod check;
mod text;

pub use check::{Blame, Impossible};

use crate::cache::Cache;
use crate::counters::{Counters, Finished};
use crate::layout::{Allocator, FileLayout, Scheme};
use crate::machine::{Machine, Program, Settings};
use crate::patterns::{Pattern, Stream};
use crate::planned::PlanSettings;
use crate::queue::{Queue, Scheduler};
use crate::recording::{NoRecordings, Recording, Recordings};
use crate::workload::{Op, Ops, PrefetchOp, foretell};
use crate::world::World;
use ahead_device::Model;
use ahead_policy::{Choice, FileId, Limits, PAGE_BYTES, Page, Parameters, Policy, UnknownPolicy};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The limit on the length of a scenario, bytes. A scenario is a page of text.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Part of the memory that a prefetch fills at most, as `ahead run` without a budget.
const PREFETCHED_SHARE: u64 = 2;

/// The reason why a scenario cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The text is longer than the limit.
    #[error("a scenario may have at most {MAX_TEXT_BYTES} bytes")]
    TooLarge,
    /// A field is wrong.
    #[error("line {line}: {message}")]
    Field {
        /// Line in the text, from 1.
        line: usize,
        /// The error, and the accepted values.
        message: String,
    },
}

/// A disk and its settings.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The model of the disk.
    pub model: Model,
    /// The largest window (`read_ahead_kb`), pages.
    pub window_pages: u64,
    /// The largest folio as a power of two.
    pub folio_order: u8,
    /// The layout of the files.
    pub layout: Scheme,
    /// The limit on waiting requests; `None`: the model's limit.
    pub nr_requests: Option<u32>,
    /// The longest request, bytes; `None`: the model's limit.
    pub longest_bytes: Option<u64>,
    /// The scheduler; `None`: the model's scheduler.
    pub scheduler: Option<Scheduler>,
    /// With CFQ, while others wait: time from the end of a request to the next one at the disk, nanoseconds.
    pub turnaround_ns: u64,
}

impl Disk {
    fn longest_bytes(&self) -> u64 {
        self.longest_bytes.unwrap_or(self.model.max_request_bytes())
    }

    fn limits(&self) -> Limits {
        let request_pages = self.longest_bytes() / PAGE_BYTES;
        Limits { window_pages: self.window_pages, request_pages, folio_order: self.folio_order }
    }

    fn scheduler(&self) -> Scheduler {
        self.scheduler.unwrap_or(match self.model.scheduler() {
            "none" => Scheduler::None,
            _ => Scheduler::Deadline,
        })
    }
}

/// Equal programs, each with a separate file, or recorded operations of programs.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name of the workload.
    pub name: String,
    /// The work of each program.
    pub streams: Vec<Stream>,
    /// The recording, if the workload has one.
    pub recording: Option<Arc<Recording>>,
}

/// All data that a run needs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: String,
    /// The text from which the scenario was read.
    pub text: Arc<str>,
    /// The policies to compare, in order; empty: the scenario names none.
    pub policies: Vec<Choice>,
    /// The disk.
    pub disk: Disk,
    /// The machine.
    pub settings: Settings,
    /// The memory of the page cache, pages.
    pub memory_pages: u64,
    /// The workloads, which run at the same time.
    pub workloads: Vec<Workload>,
}

impl Scenario {
    /// Loads a scenario. Paths of models are relative to the scenario's directory.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        Scenario::load_with(path, &NoRecordings)
    }

    /// The same with workloads from recordings. Their paths are relative to the scenario's directory, too.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn load_with(path: &Path, recordings: &dyn Recordings) -> Result<Scenario, ScenarioError> {
        let text = read_small(path)?;
        Scenario::from_toml_with(&text, path.parent().unwrap_or(Path::new(".")), recordings)
    }

    /// Each recording, with the numbers of its first file and opening.
    fn recordings(&self) -> impl Iterator<Item = (&Recording, u32, u32)> {
        let streams = self.streams().count() as u32;
        let recordings = self.workloads.iter().filter_map(|workload| workload.recording.as_deref());
        recordings.scan((streams, streams), |(files, opens), recording| {
            let before = (*files, *opens);
            *files += recording.file_pages.len() as u32;
            *opens += recording.opens();
            Some((recording, before.0, before.1))
        })
    }

    /// The operations of each program, and its work on each page.
    fn programs(&self) -> Vec<Program> {
        let stream = |stream: Stream| Program { ops: stream.ops(), user_per_page_ns: stream.user_per_page_ns };
        let recorded = self.recordings().flat_map(|(recording, files, opens)| {
            recording.programs.iter().cloned().map(move |program| {
                let ops = (0..program.len()).map(move |index| program[index].shifted(files, opens));
                Program { ops: Box::new(ops) as Ops, user_per_page_ns: 0.0 }
            })
        });
        self.streams().map(stream).chain(recorded).collect()
    }

    fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        let streams = self.workloads.iter().flat_map(|workload| &workload.streams);
        streams.zip(0..).map(|(stream, id)| Stream { id, ..*stream })
    }

    /// The places of the workloads' files, and the size of the disk.
    fn layouts(&self) -> (Vec<FileLayout>, u64) {
        let mut disk = Allocator::new(self.disk.layout);
        let file = |stream: Stream| {
            let mut file = disk.file(stream.file_pages);
            // A file that is rewritten has blocks, but no content.
            if stream.pattern == Pattern::Write {
                file.pages = 0;
            }
            file
        };
        let mut files: Vec<FileLayout> = self.streams().map(file).collect();
        let recorded = self.recordings().flat_map(|(recording, ..)| recording.file_pages.iter().copied());
        files.extend(recorded.map(|pages| disk.file(pages)));
        (files, disk.disk_bytes())
    }

    /// Runs one policy.
    ///
    /// Errors: the policy cannot be built.
    pub fn run(&self, choice: &Choice) -> Result<Counters, UnknownPolicy> {
        Ok(self.machine(choice)?.run())
    }

    /// Runs a policy that is not in the catalogue over the scenario's workloads. The scenario's policies are ignored.
    pub fn run_with(&self, policy: Box<dyn Policy>) -> Counters {
        self.build(policy, self.layouts(), self.programs()).run()
    }

    /// Runs one policy, and returns each call and run of touches in the order of their ends. Each entry has its times
    /// and the processor times up to its end. The entries of the whole run stay in memory.
    ///
    /// Errors: the policy cannot be built.
    pub fn run_with_calls(&self, choice: &Choice) -> Result<(Counters, Vec<Finished>), UnknownPolicy> {
        Ok(self.machine(choice)?.run_with_calls())
    }

    fn machine(&self, choice: &Choice) -> Result<Machine, UnknownPolicy> {
        let (files, programs) = (self.layouts(), self.programs());
        if choice.description().needs_profile() {
            let policy = choice.build(&Parameters { is_prefetched: self.has_profile(), ..Parameters::default() })?;
            let programs = self.with_prefetch(programs, &files.0);
            return Ok(self.build(policy, files, programs));
        }
        let foretold = || foretell(self.programs().into_iter().map(|program| program.ops.filter_map(|op| op.pages())));
        let future = choice.description().needs_future().then(foretold);
        Ok(self.build(self.policy(choice, future)?, files, programs))
    }

    fn policy(&self, choice: &Choice, future: Option<Arc<[(FileId, Page)]>>) -> Result<Box<dyn Policy>, UnknownPolicy> {
        choice.build(&Parameters { device: self.disk.model.device_description(), future, ..Parameters::default() })
    }

    /// Whether a workload repeats a profile.
    fn has_profile(&self) -> bool {
        self.recordings().any(|(recording, ..)| recording.used.is_some())
    }

    /// The programs with the prefetch of each profile: a program waits for its head start.
    fn with_prefetch(&self, mut programs: Vec<Program>, files: &[FileLayout]) -> Vec<Program> {
        let mut workers = Vec::new();
        let mut next = self.streams().count();
        for (gate, (recording, first_file, _)) in (0..).zip(self.recordings()) {
            let own = next..next + recording.programs.len();
            next = own.end;
            let Some(used) = &recording.used else { continue };
            let (of_plan, is_held) = used.workers(&PlanSettings {
                description: self.disk.model.device_description(),
                cap_bytes: self.disk.longest_bytes().max(self.disk.window_pages * PAGE_BYTES),
                budget_bytes: self.memory_pages * PAGE_BYTES / PREFETCHED_SHARE,
                files: &files[first_file as usize..],
                first_file,
                gate,
            });
            workers.extend(of_plan);
            for program in programs[own].iter_mut().filter(|_| is_held) {
                let ops = std::mem::replace(&mut program.ops, Box::new(std::iter::empty()));
                let waits = Op::Prefetch(PrefetchOp::AwaitRelease { gate });
                program.ops = Box::new(std::iter::once(waits).chain(ops));
            }
        }
        // The prefetch begins first.
        let workers = workers.into_iter().map(|ops| Program { ops, user_per_page_ns: 0.0 });
        workers.chain(programs).collect()
    }

    /// The scenario's machine and disk with other programs instead of its workloads. The files are numbered from 0,
    /// have these lengths (pages) and are on the disk in this order.
    ///
    /// Errors: the policy cannot be built. A policy that must know the future cannot be built here.
    pub fn machine_for(
        &self,
        choice: &Choice,
        file_pages: &[u64],
        programs: Vec<Program>,
    ) -> Result<Machine, UnknownPolicy> {
        Ok(self.machine_with(self.policy(choice, None)?, file_pages, programs))
    }

    /// The same with a policy that is not in the catalogue.
    pub fn machine_with(&self, policy: Box<dyn Policy>, file_pages: &[u64], programs: Vec<Program>) -> Machine {
        let mut disk = Allocator::new(self.disk.layout);
        let files = file_pages.iter().map(|pages| disk.file(*pages)).collect();
        self.build(policy, (files, disk.disk_bytes()), programs)
    }

    fn build(
        &self,
        policy: Box<dyn Policy>,
        (files, capacity_bytes): (Vec<FileLayout>, u64),
        programs: Vec<Program>,
    ) -> Machine {
        let disk = &self.disk;
        let nr_requests = disk.nr_requests.unwrap_or(disk.model.nr_requests());
        let queue = Queue::new(&disk.model, capacity_bytes, nr_requests, disk.longest_bytes(), disk.scheduler())
            .with_turnaround(disk.turnaround_ns);
        let cache = Cache::new(self.memory_pages);
        let world = World { now_ns: 0, files, cache, queue, limits: disk.limits() };
        Machine::new(world, policy, self.settings, programs)
    }
}

/// The text of a scenario or model. A text longer than the limit is cut a little behind the limit.
///
/// Errors: those of reading; the file is not a regular file; the file is not text (the error names the line).
pub fn read_small(path: &Path) -> std::io::Result<String> {
    // A device or FIFO must not be opened at all.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_TEXT_BYTES {
        // The cut can be within a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        std::io::Error::new(std::io::ErrorKind::InvalidData, format!("line {line}: not UTF-8"))
    })
}

//! The real world: the observer, other processes, disks and memory.

mod disks;
mod memory;
mod mount_points;
mod setting;
mod speed;

use crate::fetching::Fetcher;
use crate::helpers::{Helpers, Wanted};
use crate::refusal::Refusal;
use crate::times::Times;
use crate::world::{Process, World, descriptor_of};
use ahead_model::DeviceNumber;
use ahead_observe::{Counters, OpenState, StateQuery};
use ahead_policy::steering::{Machine, Target};
use ahead_sys::process_id::{Kind, ProcessId};
use ahead_sys::within::Patience;
use ahead_sys::{other_process, priority};
use disks::Disks;
use memory::Memory;
use mount_points::MountPoints;
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait for a lock of another process, or for a table that it can make long. Usually microseconds.
const LOOKUP: Duration = Duration::from_millis(200);

/// Threads that wait for such locks.
const MOST_LOOKUPS: usize = 4;

/// The real world.
pub(crate) struct Kernel {
    counters: Counters,
    states: StateQuery,
    disks: Disks,
    memory: Memory,
    mount_points: MountPoints,
    fetcher: Fetcher,
    /// `None`: nothing is done to other processes.
    helpers: Option<Helpers>,
    /// For what other processes can hold up.
    patience: Patience,
    /// Time for which the setting of a disk had another value.
    exposed: Times,
}

impl Kernel {
    /// `helpers`: settings of disks may be changed, and are noted when the disk is first seen.
    pub(crate) fn new(counters: Counters, states: StateQuery, helpers: Option<Helpers>) -> Kernel {
        Kernel {
            counters,
            states,
            disks: Disks::new(helpers.is_some()),
            memory: Memory::new(),
            mount_points: MountPoints::default(),
            fetcher: Fetcher::default(),
            helpers,
            patience: Patience::new(LOOKUP, MOST_LOOKUPS),
            exposed: Times::default(),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    pub(crate) fn exposed(&self) -> &Times {
        &self.exposed
    }

    /// Whether tasks waited for memory in the last interval.
    pub(crate) fn has_pressure(&self) -> bool {
        self.memory.was_pressed()
    }

    /// Time for which taken descriptors were held.
    pub(crate) fn held(&self) -> Times {
        self.helpers.as_ref().map_or_else(Times::default, |helpers| helpers.held().clone())
    }

    /// Times from a decision to the end of its requests.
    pub(crate) fn fetch_latency(&self) -> Times {
        let mut all = self.fetcher.latency();
        self.helpers.iter().for_each(|helpers| all.merge(helpers.latency()));
        all
    }

    /// What can wait until the pending decisions are done.
    pub(crate) fn close_idle(&mut self) {
        self.disks.settle();
        self.helpers.iter_mut().for_each(Helpers::prepare);
        if self.fetcher.is_active() {
            self.fetcher.close_idle();
        }
    }
}

impl World for Kernel {
    fn now_ns(&self) -> u64 {
        ahead_observe::now_ns()
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
    }

    fn process(&mut self, pid: u32) -> Option<Process> {
        let (process, kind) = ProcessId::with_kind(pid).ok()??;
        let comm = other_process::name(pid)?.into();
        Some(Process { start_ticks: process.start_ticks, comm, is_kernel_thread: kind == Kind::KernelThread })
    }

    fn cgroups(&mut self, pid: u32) -> Vec<Vec<u8>> {
        let text = other_process::cgroups(pid).unwrap_or_default();
        // `0::/path`, `7:memory:/path`.
        let path = |line: &[u8]| line.splitn(3, |byte| *byte == b':').nth(2).map(<[u8]>::to_vec);
        text.split(|byte| *byte == b'\n').filter_map(path).collect()
    }

    fn path(&mut self, target: &Target) -> Option<PathBuf> {
        if let Some(descriptor) = descriptor_of(target) {
            return other_process::descriptor_path(&descriptor);
        }
        let (pid, addresses) = (target.pid, target.mapping?.addresses());
        self.patience.ask(move || other_process::mapping_path(pid, &addresses))?
    }

    fn mount(&mut self, target: &Target) -> Option<Vec<u8>> {
        let Some(descriptor) = descriptor_of(target) else {
            let path = self.path(target)?;
            return self.mount_points.of_path(target.pid, &path, &mut self.patience);
        };
        let facts = other_process::descriptor_facts(&descriptor)?;
        self.mount_points.of(target.pid, facts.mount_id, &mut self.patience)
    }

    fn machine(&mut self, target: &Target) -> Machine {
        let disk = self.disks.of(target, &mut self.patience);
        let (device, request_pages) = (disk.speed.description(), disk.request_pages);
        // Where a close has effects, an open may have some, too: FUSE drops the cached pages of a file, and its reader would wait for them.
        let can_fetch = !disk.acts_on_close || target.descriptor.is_none();
        let (available_pages, pressure) = self.memory.of(target.pid);
        Machine { available_pages, pressure, device, request_pages, can_fetch }
    }

    fn machine_overall(&mut self) -> Machine {
        let (available_pages, pressure) = self.memory.overall();
        Machine { available_pages, pressure, ..Machine::default() }
    }

    fn waited(&mut self, device: DeviceNumber, waits: u64, wait_ns: u64, pages: u64) {
        if let Some(speed) = self.disks.speed(device) {
            speed.waited(waits, wait_ns, pages);
        }
    }

    fn set_window(&mut self, target: &Target, expected_pages: u64, pages: u64) -> Result<(), Refusal> {
        let descriptor = descriptor_of(target).ok_or(Refusal::NoDescriptor)?;
        let disk = self.disks.of(target, &mut self.patience);
        let (setting, acts_on_close) = (disk.setting.ok_or(Refusal::NoSetting)?, disk.acts_on_close);
        if acts_on_close {
            // Closing our duplicate calls the file system as if the program had closed its own.
            let facts = other_process::descriptor_facts(&descriptor).ok_or(Refusal::Gone)?;
            if !facts.is_read_only {
                return Err(Refusal::Written);
            }
        }
        let prepared = match self.disks.setting(setting).prepare(pages) {
            Ok(prepared) => prepared,
            Err(error) => {
                // The device was removed, and another one may have its number now.
                self.disks.forget_all();
                return Err(Refusal::Failed(error.to_string()));
            }
        };
        let helpers = self.helpers.as_mut().ok_or(Refusal::NoSetting)?;
        let (number, is_quiet_on_close) = (descriptor.number, !acts_on_close);
        let wanted = Wanted { target: *target, number, expected_pages, is_quiet_on_close };
        let (disk_setting, exposed) = (self.disks.setting(setting), &mut self.exposed);
        priority::without_interruption(|| {
            helpers.with_taken(&wanted, |disk_pages, advise| disk_setting.during(prepared, disk_pages, exposed, advise))
        })
    }

    fn fetch(&mut self, target: &Target, ranges: &[Range<u64>], decided_ns: u64) -> Result<(), Refusal> {
        let disk = self.disks.of(target, &mut self.patience);
        let (request_pages, acts_on_close) = (disk.request_pages, disk.acts_on_close);
        match (target.descriptor, &target.mapping) {
            // An own descriptor of such a file system could not be closed without waiting.
            (Some(_), _) if !acts_on_close => self.fetcher.fetch(target, ranges, request_pages, decided_ns),
            (_, Some(mapping)) => {
                let helpers = self.helpers.as_mut().ok_or(Refusal::FetchOff)?;
                helpers.will_need(target, mapping, ranges, request_pages, decided_ns)
            }
            _ => Err(Refusal::NoDescriptor),
        }
    }

    fn stop_fetching(&mut self, open: u64) {
        self.fetcher.stop(open);
    }

    fn failed_fetches(&mut self) -> Vec<(u64, Refusal)> {
        let mut failures = self.fetcher.take_failures();
        self.helpers.iter_mut().for_each(|helpers| failures.append(&mut helpers.take_failures()));
        failures
    }

    fn state(&mut self, open: u64, inode: u64) -> Option<OpenState> {
        match self.states.at(open, inode) {
            Ok(state) => state,
            Err(error) => {
                tracing::debug!("{error}");
                None
            }
        }
    }

    fn waits(&mut self, open: u64) -> Option<(u64, u64)> {
        let counts = self.counters.of_open(open).ok()??.counts;
        Some((counts.waits, counts.wait_ns))
    }

    fn holders(&mut self) -> HashMap<u64, (u32, u32)> {
        let all = self.states.all().unwrap_or_default();
        all.into_iter().map(|state| (state.open, (state.pid, state.descriptor))).collect()
    }

    fn set_quiet(&mut self, open: u64, quiet: bool) {
        if let Err(error) = self.counters.set_quiet(open, quiet) {
            tracing::debug!("{error}");
        }
    }

    fn forget(&mut self, open: u64) {
        self.counters.forget(open);
    }
}

//! The real world: the observer, other processes, disks and memory.

mod disks;
mod memory;
mod mount_points;
mod setting;
mod speed;

use crate::acting;
use crate::counts::reason;
use crate::fetching::{Closer, Fetcher};
use crate::times::Times;
use crate::world::{NotDone, Process, Target, World};
use ahead_model::DeviceNumber;
use ahead_observe::{Counters, OpenState, StateQuery};
use ahead_policy::steering::Machine;
use ahead_sys::process_id::{Kind, ProcessId};
use ahead_sys::{other_process, priority};
use disks::Disks;
use memory::Memory;
use mount_points::MountPoints;
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The real world.
pub(crate) struct Kernel {
    counters: Counters,
    states: StateQuery,
    disks: Disks,
    memory: Memory,
    mount_points: MountPoints,
    fetcher: Fetcher,
    /// Time for which taken descriptors were held.
    held: Times,
    /// Time for which the setting of a disk had another value.
    exposed: Times,
}

impl Kernel {
    /// `is_noted`: settings of disks may be changed, and are noted when the disk is first seen.
    pub(crate) fn new(counters: Counters, states: StateQuery, is_noted: bool) -> Kernel {
        Kernel {
            counters,
            states,
            disks: Disks::new(is_noted),
            memory: Memory::new(),
            mount_points: MountPoints::default(),
            fetcher: Fetcher::default(),
            held: Times::default(),
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

    /// Time for which taken descriptors were held, those that workers close included.
    pub(crate) fn held(&self) -> Times {
        let mut all = self.held.clone();
        all.merge(&self.fetcher.held());
        all
    }

    /// What can wait until the decisions at hand are done.
    pub(crate) fn close_idle(&mut self) {
        self.disks.settle();
        if self.fetcher.is_active() {
            self.fetcher.close_idle();
        }
    }

    /// Sets the window of a taken descriptor.
    fn set_taken(
        &mut self,
        taken: BorrowedFd<'_>,
        target: &Target,
        expected_pages: u64,
        setting: usize,
        prepared: setting::Prepared,
    ) -> Result<(), NotDone> {
        let states = &self.states;
        let state = acting::check(|taken| states.of_own(taken), taken, target, expected_pages)?;
        let act = || acting::reset_window(taken, &state);
        let disk_pages = state.disk_window_pages.into();
        self.disks.setting(setting).during(prepared, disk_pages, &mut self.exposed, act)
    }

    /// Closes a taken descriptor. On some file systems a close waits for a daemon: there another thread does it.
    fn give_back(&mut self, closer: Option<Closer>, descriptor: OwnedFd, taken: Instant) {
        match closer {
            Some(closer) => closer.close(descriptor, taken),
            None => {
                drop(descriptor);
                self.held.add(taken.elapsed());
            }
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

    fn cgroups(&mut self, pid: u32) -> Vec<String> {
        let text = other_process::cgroups(pid).unwrap_or_default();
        // `0::/path`, `7:memory:/path`.
        text.lines().filter_map(|line| line.splitn(3, ':').nth(2).map(str::to_owned)).collect()
    }

    fn path(&mut self, target: &Target) -> Option<PathBuf> {
        match (target.descriptor, &target.mapping) {
            (Some(descriptor), _) => other_process::descriptor_path(target.pid, descriptor),
            (None, Some(mapping)) => other_process::mapping_path(target.pid, &mapping.addresses()),
            (None, None) => None,
        }
    }

    fn mount(&mut self, target: &Target) -> Option<Vec<u8>> {
        let Some(descriptor) = target.descriptor else {
            return mount_points::of_path(target.pid, &self.path(target)?);
        };
        let facts = other_process::descriptor_facts(target.pid, descriptor)?;
        self.mount_points.of(target.pid, facts.mount_id)
    }

    fn machine(&mut self, target: &Target) -> Machine {
        let disk = self.disks.of(target);
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

    fn set_window(&mut self, target: &Target, expected_pages: u64, pages: u64) -> Result<(), NotDone> {
        let number = target.descriptor.ok_or(NotDone::Impossible(reason::NO_DESCRIPTOR))?;
        let disk = self.disks.of(target);
        let (setting, acts_on_close) =
            (disk.setting.ok_or(NotDone::Impossible(reason::NO_SETTING))?, disk.acts_on_close);
        if acts_on_close {
            // Closing our duplicate calls the file system as if the program had closed its own.
            let facts = other_process::descriptor_facts(target.pid, number).ok_or(NotDone::Gone)?;
            if !facts.is_read_only {
                return Err(NotDone::Impossible(reason::WRITTEN));
            }
        }
        let prepared = match self.disks.setting(setting).prepare(pages) {
            Ok(prepared) => prepared,
            Err(error) => {
                // The device was removed, and another one may have its number now.
                self.disks.forget_all();
                return Err(NotDone::Failed(error.to_string()));
            }
        };
        let process = acting::process_of(target)?;
        let closer = acts_on_close.then(|| self.fetcher.reserve_closer(target.device)).transpose()?;
        priority::without_interruption(|| {
            let taken = Instant::now();
            let descriptor = acting::take(&process, number)?;
            let done = self.set_taken(descriptor.as_fd(), target, expected_pages, setting, prepared);
            self.give_back(closer, descriptor, taken);
            done
        })
    }

    fn fetch(&mut self, target: &Target, ranges: &[Range<u64>], decided_ns: u64) -> Result<(), NotDone> {
        let disk = self.disks.of(target);
        // An own descriptor of such a file system could not be closed without waiting.
        let target = Target { descriptor: target.descriptor.filter(|_| !disk.acts_on_close), ..*target };
        self.fetcher.fetch(&target, ranges, disk.request_pages, decided_ns)
    }

    fn stop_fetching(&mut self, open: u64) {
        self.fetcher.stop(open);
    }

    fn failed_fetches(&mut self) -> Vec<(u64, NotDone)> {
        self.fetcher.take_failures()
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
        let counters = self.counters.of_open(open).ok()??;
        Some((counters.waits, counters.wait_ns))
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

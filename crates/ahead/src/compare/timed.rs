//! What every timed run of a program has in common: cold files, device reads, evictions, and the machine's lock.

use super::Sample;
use crate::cold::{self, Devices, Kept};
use crate::error::IoContext;
use crate::notify::Notify;
use crate::stopping::{check_stopped, pause};
use crate::until::{Finished, Until};
use crate::{Error, Result, record};
use ahead_disk::DiskInfo;
use ahead_model::DeviceNumber;
use ahead_observe::Evictions;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::{Command, Signals};
use ahead_profile::Profile;
use ahead_sys::diskstats::{self, Reads};
use ahead_sys::usage::{self, Cpu};
use ahead_sys::{bdi, machine};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::stderr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to ask whether the requests of a run are served; there is no event to wait for. A rotating disk needs ten times as long for one.
const REQUESTED_EVERY: Duration = Duration::from_millis(1);

/// Times runs of programs that use the files of a profile.
pub struct Timed<'a> {
    profile: Arc<Profile>,
    pub(super) signals: &'a Signals,
    notify: Notify<'a>,
    devices: Arc<Devices>,
    /// While it is held, no other ahead process evicts or switches read-ahead off (root only: no other user can).
    pub(super) lock: Option<MachineLock>,
    /// Counts what is evicted during a run (root only).
    evictions: Option<Evictions>,
    /// The device numbers of the pages that count.
    cached_under: BTreeSet<DeviceNumber>,
    /// The read-ahead windows that were seen, KiB. More than one: another process changed it meanwhile.
    pub(super) windows: Vec<u64>,
    /// Another recording had switched fault-around off before or after a run.
    pub(super) single_faults: bool,
    /// What stayed in memory before each cold run.
    pub(super) kept: Vec<Kept>,
    notified: BTreeSet<String>,
}

impl<'a> Timed<'a> {
    /// `lock`: of the machine, as root.
    pub fn new(
        profile: &Arc<Profile>,
        lock: Option<MachineLock>,
        signals: &'a Signals,
        notify: Notify<'a>,
    ) -> Result<Timed<'a>> {
        Ok(Timed {
            devices: Arc::new(cold::of_profile(profile)?),
            evictions: observe_evictions(),
            cached_under: cold::cached_under(profile)?,
            profile: profile.clone(),
            lock,
            windows: Vec::new(),
            single_faults: false,
            kept: Vec::new(),
            notified: BTreeSet::new(),
            signals,
            notify,
        })
    }

    /// The emulated disk, if there is exactly one: several have no common bound. Reads elsewhere (of a launcher from the machine's own disk,
    /// say) keep the bound a bound.
    pub fn emulated_disk(&self) -> Option<DiskInfo> {
        let mut disks = self.devices.keys().filter_map(|device| ahead_disk::find_by_device(*device));
        disks.next().filter(|_| disks.next().is_none())
    }

    /// Runs the command that has to run before each run; its time does not count.
    pub fn prepare(&self, shell: Option<&str>) -> Result<()> {
        check_stopped(self.signals)?;
        let Some(shell) = shell else { return Ok(()) };
        let command = Command::new(["sh", "-c", shell])
            .discard_output(true)
            .input(Some(Arc::new(File::open("/dev/null").what("open /dev/null")?)))
            .errors(Some(Arc::new(stderr().as_fd().try_clone_to_owned().what("share standard error")?.into())));
        let finished = Until::default().run(&command, self.signals)?.unless_stopped()?;
        match finished.status {
            0 => Ok(()),
            status => Err(Error::Failed(format!("--prepare failed (exit status {status}): {shell}"))),
        }
    }

    /// Passes a notice on, once.
    pub fn notify_once(&mut self, line: String) {
        if !self.notified.contains(&line) {
            (self.notify)(&line);
            self.notified.insert(line);
        }
    }

    /// Makes the profile's files cold.
    pub fn make_cold(&self) -> Result<Kept> {
        cold::make_cold(&self.profile, &self.devices, self.signals)
    }

    /// The same before a cold run: what stays counts.
    pub fn make_cold_for_a_run(&mut self) -> Result<()> {
        let kept = self.make_cold()?;
        self.kept.push(kept);
        Ok(())
    }

    /// Runs a command to its end or readiness, and says what that cost.
    pub fn time(&mut self, command: &Command, until: &Until) -> Result<(Sample, Finished)> {
        check_stopped(self.signals)?;
        self.check_settings();
        let (before, evicted_before) = (self.reads()?, self.evicted_bytes()?);
        let (cpu_before, started) = (usage::cpu_of_ended_children(), Instant::now());
        let finished = until.run(command, self.signals)?.unless_stopped()?;
        let s = finished.at.duration_since(started).as_secs_f64();
        let Cpu { user, system } = usage::cpu_of_ended_children() - cpu_before;
        self.wait_for_requested()?;
        let (Reads { requests, bytes }, evicted) = (self.reads()? - before, self.evicted_bytes()?);
        let evicted_bytes = evicted.zip(evicted_before).map(|(after, before)| after - before);
        self.check_settings();
        let (user_s, system_s) = (user.as_secs_f64(), system.as_secs_f64());
        Ok((Sample { s, requests, bytes, evicted_bytes, user_s, system_s, status: finished.status }, finished))
    }

    /// Notes the read-ahead window of the disk that is measured, and how faults are served.
    fn check_settings(&mut self) {
        self.single_faults |= record::is_fault_around_off();
        let device =
            self.emulated_disk().map(|disk| disk.device_number).or_else(|| self.devices.keys().next().copied());
        if let Some(window) = device.and_then(|device| bdi::read_ahead_kb(device).ok())
            && !self.windows.contains(&window)
        {
            self.windows.push(window);
        }
    }

    /// Completed reads of the devices that count.
    fn reads(&self) -> Result<Reads> {
        let mut sum = Reads::default();
        for device in self.counted() {
            let reads = diskstats::reads(device)?;
            sum = Reads { requests: sum.requests + reads.requests, bytes: sum.bytes + reads.bytes };
        }
        Ok(sum)
    }

    /// The emulated disk, or else all devices involved: the machine's own disk, from which a launcher comes, may serve other programs meanwhile.
    fn counted(&self) -> Vec<DeviceNumber> {
        match self.emulated_disk() {
            Some(disk) => vec![disk.device_number],
            None => self.devices.keys().copied().collect(),
        }
    }

    /// Waits until the devices have served what is requested of them now. What a prefetch has requested belongs to its run, also where the program
    /// has ended before: the next run would wait for it, and pages that are being read cannot be evicted.
    fn wait_for_requested(&self) -> Result<()> {
        for device in self.counted() {
            let pending = diskstats::reads_in_flight(device)?;
            let before = diskstats::reads(device)?;
            // Another program may keep the device busy.
            let are_served = || Ok::<bool, Error>((diskstats::reads(device)? - before).requests >= pending);
            while diskstats::reads_in_flight(device)? > 0 && !are_served()? {
                pause(self.signals, REQUESTED_EVERY)?;
            }
        }
        Ok(())
    }

    /// The bytes that the page cache has lost of the devices involved since the comparison began.
    fn evicted_bytes(&self) -> Result<Option<u64>> {
        let Some(evictions) = &self.evictions else { return Ok(None) };
        let each = self.cached_under.iter().map(|device| Ok(evictions.of(*device)?.bytes));
        Ok(Some(each.sum::<ahead_sys::Result<u64>>()?))
    }
}

/// Counts evictions from the page cache. `None` where they cannot be seen: without root, on a kernel without BTF.
pub fn observe_evictions() -> Option<Evictions> {
    if !machine::is_root() {
        return None;
    }
    Evictions::start().inspect_err(|error| tracing::info!("evictions are not observed: {error}")).ok()
}

//! One comparison of program runs: evict, check, run, count.

use super::{ProgramComparison, observe_evictions};
use crate::cold::{self, Devices, Kept};
use crate::compare::scratch::Scratch;
use crate::compare::{Runner, Sample};
use crate::error::IoContext;
use crate::machine::wait_for_machine_as_root;
use crate::notify::Notify;
use crate::stopping::{check_stopped, pause};
use crate::until::{Finished, Until};
use crate::{Account, Error, Result, record};
use ahead_disk::DiskInfo;
use ahead_model::DeviceNumber;
use ahead_observe::Evictions;
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::{Command, Signals};
use ahead_sys::bdi;
use ahead_sys::diskstats::{self, Reads};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Cold,
    Ahead,
    Warm,
    /// Index into [`ProgramComparison::rivals`].
    Rival(usize),
}

impl Variant {
    /// For the name of a file.
    fn word(self) -> String {
        match self {
            Variant::Rival(index) => format!("rival{index}"),
            own => format!("{own:?}").to_lowercase(),
        }
    }
}

/// Runs the program, and keeps what the report says about all runs.
pub struct ProgramRunner<'a> {
    pub(super) setup: &'a ProgramComparison,
    pub(super) signals: &'a Signals,
    pub(super) notify: Notify<'a>,
    pub(super) devices: Arc<Devices>,
    pub(super) scratch: Scratch,
    /// While it is held, no other ahead process evicts or switches read-ahead off (root only: no other user can).
    pub(super) lock: Option<MachineLock>,
    /// Counts what is evicted during a run (root only).
    evictions: Option<Evictions>,
    /// The device numbers of the pages that count.
    cached_under: BTreeSet<DeviceNumber>,
    accounts: Vec<Account>,
    accounts_bytes: u64,
    /// The read-ahead windows that were seen, KiB.
    windows: Vec<u64>,
    /// Another recording had switched fault-around off before or after a run.
    single_faults: bool,
    /// What stayed in memory before each cold run.
    kept: Vec<Kept>,
    /// The first status of the program that was not 0, in runs without a rival; 0: none.
    program_status: i32,
    /// The end that was asked for came in every run without a rival.
    always_ready: bool,
    /// The same for each rival's own status.
    rival_statuses: Vec<i32>,
    runs: u32,
    notified: BTreeSet<String>,
}

/// The most bytes of an account: a million ranges at some 60 bytes each.
const MAX_ACCOUNT_BYTES: u64 = 64 << 20;
/// The most bytes of the accounts of all runs together: they are kept to the end, and there may be a thousand runs. The account of a profile
/// of 10,000 files takes half a megabyte.
const MAX_ACCOUNTS_BYTES: u64 = 1 << 30;
/// How often to ask whether the requests of a run are served; there is no event to wait for. A rotating disk needs ten times as long for one.
const REQUESTED_EVERY: Duration = Duration::from_millis(1);

impl<'a> ProgramRunner<'a> {
    /// Waits for the machine's lock, as root.
    pub fn new(setup: &'a ProgramComparison, signals: &'a Signals, notify: Notify<'a>) -> Result<ProgramRunner<'a>> {
        Ok(ProgramRunner {
            lock: wait_for_machine_as_root(signals, notify)?,
            devices: Arc::new(cold::of_profile(&setup.profile)?),
            evictions: observe_evictions(),
            cached_under: cold::cached_under(&setup.profile)?,
            scratch: Scratch::new(setup.user.as_ref())?,
            accounts: Vec::new(),
            accounts_bytes: 0,
            windows: Vec::new(),
            single_faults: false,
            kept: Vec::new(),
            program_status: 0,
            always_ready: true,
            rival_statuses: vec![0; setup.rivals.len()],
            runs: 0,
            notified: BTreeSet::new(),
            setup,
            signals,
            notify,
        })
    }

    /// The read-ahead windows that were seen, KiB. More than one: another process changed it meanwhile.
    pub fn windows(&self) -> &[u64] {
        &self.windows
    }

    /// Another recording ran beside a run.
    pub fn was_recorded_meanwhile(&self) -> bool {
        self.single_faults
    }

    /// What stayed in memory before each cold run.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Gives away the accounts of the runs with the profile: they are too long to copy.
    pub fn take_accounts(&mut self) -> Vec<Account> {
        std::mem::take(&mut self.accounts)
    }

    /// The first status of the program that was not 0; 0: none.
    pub fn program_status(&self) -> i32 {
        self.program_status
    }

    /// Whether the end that was asked for came in every run.
    pub fn was_always_ready(&self) -> bool {
        self.always_ready
    }

    /// The first status of this rival that was not 0; 0: none.
    pub fn rival_status(&self, index: usize) -> i32 {
        self.rival_statuses[index]
    }

    /// The emulated disk, if there is exactly one: several have no common bound. Reads elsewhere (of a launcher from the machine's own disk,
    /// say) keep the bound a bound.
    pub fn emulated_disk(&self) -> Option<DiskInfo> {
        let mut disks = self.devices.keys().filter_map(|device| ahead_disk::find_by_device(*device));
        disks.next().filter(|_| disks.next().is_none())
    }

    /// Runs the command that has to run before each run; its time does not count.
    pub(super) fn prepare(&self) -> Result<()> {
        check_stopped(self.signals)?;
        let Some(shell) = &self.setup.prepare else { return Ok(()) };
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

    /// The command of a run. `name`: of the files that it leaves.
    pub(super) fn command(&self, variant: Variant, name: &str) -> Result<Command> {
        self.run_of(self.argv(variant, name))
    }

    /// A command as the user, with the input of each run.
    pub(super) fn run_of(&self, argv: Vec<OsString>) -> Result<Command> {
        let input = Some(self.setup.input.open()?);
        Ok(Command::new(argv).user(self.setup.user.clone()).discard_output(true).input(input))
    }

    /// `name`: of the file for an account or a rival's status.
    fn argv(&self, variant: Variant, name: &str) -> Vec<OsString> {
        let (setup, file) = (self.setup, self.scratch.file(name));
        let command = setup.command.iter().cloned();
        match variant {
            Variant::Cold | Variant::Warm => command.collect(),
            Variant::Ahead => {
                // The output that is waited for is the program's, not ours.
                let messages = self.scratch.file(&messages_of(name));
                let files = [("--profile", setup.profile_path.clone()), ("--account", file), ("--messages", messages)];
                let device = setup.device.clone().map(|device| ("--device", device));
                let flags =
                    files.into_iter().chain(device).flat_map(|(flag, file)| [OsString::from(flag), file.into()]);
                let head = [setup.ahead_program.clone().into(), "run".into(), "--account-ranges".into()];
                let head = head.into_iter().chain(flags);
                head.chain(["--".into()]).chain(command).collect()
            }
            Variant::Rival(index) => {
                // The shell runs the rival to its end, then becomes the program, whose input the rival must not read.
                let shell = &setup.rivals[index].shell;
                let script = format!("{{ {shell}\n}} </dev/null\necho $? >\"$0\"\nexec \"$@\"");
                let head: [OsString; 4] = ["sh".into(), "-c".into(), script.into(), file.into()];
                head.into_iter().chain(command).collect()
            }
        }
    }

    /// Reads what `ahead run` wrote, and its length.
    pub(super) fn read_account(&self, name: &str, status: i32) -> Result<(Account, u64)> {
        let text = self.scratch.read(name, MAX_ACCOUNT_BYTES);
        let text = text.what(&format!("ahead run left no account: it failed or was killed (status {status})"))?;
        let account = serde_json::from_slice(&text).map_err(io::Error::other);
        Ok((account.what("understand the account of ahead run")?, text.len() as u64))
    }

    /// Passes a notice on, once.
    pub(super) fn notify_once(&mut self, line: String) {
        if !self.notified.contains(&line) {
            (self.notify)(&line);
            self.notified.insert(line);
        }
    }

    /// Makes the profile's files cold.
    pub(super) fn make_cold(&self) -> Result<Kept> {
        cold::make_cold(&self.setup.profile, &self.devices, self.signals)
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

    /// Keeps what the report says about a run beside its sample.
    fn keep(&mut self, variant: Variant, name: &str, finished: Finished) -> Result<()> {
        let Finished { status, ready, .. } = finished;
        let mut failed_rival = None;
        match variant {
            Variant::Ahead => {
                let (account, length_bytes) = self.read_account(name, status)?;
                self.accounts_bytes += length_bytes;
                if self.accounts_bytes > MAX_ACCOUNTS_BYTES {
                    let limit = MAX_ACCOUNTS_BYTES >> 20;
                    let why = format!("the accounts of the runs are longer than {limit} MiB: measure fewer runs");
                    return Err(Error::Failed(why));
                }
                self.accounts.push(account);
            }
            Variant::Rival(index) => {
                let own = self.read_status(name).unwrap_or(status.max(1));
                failed_rival = Some(own).filter(|own| *own != 0);
                set_if_zero(&mut self.rival_statuses[index], own);
            }
            Variant::Cold | Variant::Warm => {}
        }
        if !matches!(variant, Variant::Rival(_)) {
            set_if_zero(&mut self.program_status, status);
            self.always_ready &= ready;
        }
        if let Some(own) = failed_rival {
            let name = self.setup.name_of(variant);
            self.notify_once(format!("{name} failed with exit status {own}: excluded from the results"));
        } else if status != 0 && variant == Variant::Cold && self.runs == 1 && !self.setup.even_if_failed {
            return Err(Error::CommandFailed(status));
        } else if status != 0 {
            self.notify_once(format!("the command's exit status was {status}: is that what should be measured?"));
        }
        if self.setup.until.is_set() && !ready {
            self.notify_once("the command ended without being ready: its time is that to its end".into());
        }
        Ok(())
    }

    /// The status of a rival; `None`: the shell did not reach its end.
    fn read_status(&self, name: &str) -> Option<i32> {
        String::from_utf8(self.scratch.read(name, 16).ok()?).ok()?.trim().parse().ok()
    }
}

impl Runner for ProgramRunner<'_> {
    type Variant = Variant;

    fn run(&mut self, variant: &Variant) -> Result<Sample> {
        let variant = *variant;
        self.prepare()?;
        if variant != Variant::Warm {
            let kept = self.make_cold()?;
            self.kept.push(kept);
        }
        let name = format!("{}-{}", variant.word(), self.runs);
        self.runs += 1;
        let command = self.command(variant, &name)?;
        check_stopped(self.signals)?;
        self.check_settings();
        let (before, evicted_before) = (self.reads()?, self.evicted_bytes()?);
        let started = Instant::now();
        let finished = self.setup.until.run(&command, self.signals)?.unless_stopped()?;
        let s = finished.at.duration_since(started).as_secs_f64();
        self.wait_for_requested()?;
        let (Reads { requests, bytes }, evicted) = (self.reads()? - before, self.evicted_bytes()?);
        let evicted_bytes = evicted.zip(evicted_before).map(|(after, before)| after - before);
        self.check_settings();
        for line in self.scratch.lines(&messages_of(&name)) {
            self.notify_once(line.trim_start_matches("ahead: ").to_owned());
        }
        self.keep(variant, &name, finished)?;
        Ok(Sample { s, requests, bytes, evicted_bytes })
    }
}

/// The name of the file for the messages of an `ahead run`.
pub(super) fn messages_of(name: &str) -> String {
    format!("{name}.messages")
}

fn set_if_zero(first: &mut i32, status: i32) {
    if *first == 0 {
        *first = status;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_counts() {
        let first_of = |statuses: [i32; 4]| {
            let mut first = 0;
            statuses.into_iter().for_each(|status| set_if_zero(&mut first, status));
            first
        };
        assert_eq!((first_of([0, 3, 0, 4]), first_of([0; 4])), (3, 0));
    }
}

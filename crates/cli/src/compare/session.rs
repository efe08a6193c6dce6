//! One comparison under way: evict, check, run, count.

use super::devices::{self, Devices, Kept};
use super::input::Input;
use super::result::{ColdState, Comparison, DeviceReads, Measured, RivalResult, Sample, recovered_share, verdict};
use super::scratch::{Messages, Scratch};
use super::stats::Spread;
use super::usage::{self, Usage};
use super::{Compare, bound, late};
use crate::patience::unless_stopped;
use crate::{record, restore, words};
use ahead::Account;
use ahead::until::{Finished, Until};
use ahead_model::DeviceNumber;
use ahead_observe::{Arrivals, Evictions, Options, Tracer};
use ahead_process::{Child, Command, Signals};
use ahead_profile::Profile;
use ahead_report::text::command_line;
use ahead_sys::bdi;
use ahead_sys::diskstats::{self, Reads};
use ahead_sys::machine;
use ahead_sys::user::User;
use ahead_undo::machine_lock::MachineLock;
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Cold,
    Ahead,
    Warm,
    /// Index into `--against`.
    Rival(usize),
}

/// One run.
struct Run {
    seconds: f64,
    reads: Reads,
    /// What the page cache lost of the devices involved during the run, bytes; `None`: could not be observed.
    evicted_bytes: Option<u64>,
    /// The program's exit status.
    status: i32,
    /// The end that was asked for was reached (`--until-…`).
    ready: bool,
    /// The exit status of a rival.
    rival_status: Option<i32>,
    /// What of the profile was still in memory when the run began.
    kept: Kept,
    account: Option<Account>,
}

impl Run {
    fn sample(&self) -> Sample {
        let Reads { requests, bytes } = self.reads;
        Sample { s: self.seconds, requests, bytes, evicted_bytes: self.evicted_bytes }
    }
}

impl Kind {
    /// For the name of a file.
    fn word(self) -> String {
        match self {
            Kind::Rival(index) => format!("rival{index}"),
            own => format!("{own:?}").to_lowercase(),
        }
    }
}

pub struct Session<'a> {
    options: &'a Compare,
    /// The end of each run.
    until: Until,
    profile_path: PathBuf,
    profile: Arc<Profile>,
    signals: Signals,
    user: Option<User>,
    devices: Arc<Devices>,
    /// Tells what is evicted during a run (root only).
    evictions: Option<Evictions>,
    /// Under which numbers.
    cached_under: BTreeSet<DeviceNumber>,
    input: Input,
    runs: BTreeMap<Kind, Vec<Run>>,
    accounts_bytes: u64,
    /// The read-ahead windows that were seen, KiB. More than one: somebody has changed it meanwhile.
    windows: Vec<u64>,
    /// A recording of somebody else had switched fault-around off before or after a run.
    single_faults: bool,
    /// What was said already.
    said: BTreeSet<String>,
    scratch: Scratch,
    /// Nobody else evicts or switches read-ahead off meanwhile (root only: nobody else can).
    alone: Option<MachineLock>,
}

impl<'a> Session<'a> {
    pub fn new(
        options: &'a Compare,
        profile_path: PathBuf,
        profile: Profile,
        user: Option<User>,
        input: Input,
    ) -> anyhow::Result<Self> {
        let signals = Signals::take()?;
        Ok(Session {
            alone: alone(&signals)?,
            signals,
            devices: Arc::new(devices::of_profile(&profile)?),
            evictions: observe_evictions(),
            cached_under: devices::cached_under(&profile)?,
            scratch: Scratch::new(user.as_ref())?,
            user,
            input,
            runs: BTreeMap::new(),
            accounts_bytes: 0,
            windows: Vec::new(),
            single_faults: false,
            said: BTreeSet::new(),
            until: options.until.until(),
            options,
            profile_path,
            profile: Arc::new(profile),
        })
    }

    /// Measures one run.
    pub fn measure(&mut self, kind: Kind) -> anyhow::Result<()> {
        self.prepare()?;
        let kept = match kind {
            Kind::Warm => Kept::default(),
            _ => devices::make_cold(&self.profile, &self.devices, &self.signals)?,
        };
        let round = self.runs.get(&kind).map_or(0, Vec::len);
        let note = format!("{}-{round}", kind.word());
        let argv = self.argv(kind, &note)?;
        record::go_on(&self.signals)?;
        self.look_at_settings();
        let (before, evicted_before) = (self.reads()?, self.evicted_bytes()?);
        let (seconds, finished) = self.run_as(self.user.clone(), argv, &self.until, None)?;
        let (reads, evicted) = (self.reads()? - before, self.evicted_bytes()?);
        let evicted_bytes = evicted.zip(evicted_before).map(|(after, before)| after - before);
        self.look_at_settings();
        self.scratch.lines(&said(&note)).into_iter().for_each(|line| self.say_once(line));
        let account = match kind {
            Kind::Ahead => Some(self.take_account(&note, finished.status)?),
            _ => None,
        };
        let rival_status = match kind {
            Kind::Rival(_) => Some(read_status(&self.scratch, &note).unwrap_or(finished.status.max(1))),
            _ => None,
        };
        let (status, ready) = (finished.status, finished.ready);
        let run = Run { seconds, reads, evicted_bytes, status, ready, rival_status, kept, account };
        self.warn(kind, &run);
        self.runs.entry(kind).or_default().push(run);
        Ok(())
    }

    fn take_account(&mut self, note: &str, status: i32) -> anyhow::Result<Account> {
        let (account, length_bytes) = read_account(&self.scratch, note, status)?;
        self.accounts_bytes += length_bytes;
        ensure!(
            self.accounts_bytes <= MAX_ACCOUNTS_BYTES,
            "the accounts of the runs are longer than {}: measure fewer runs",
            ahead_report::number::size(MAX_ACCOUNTS_BYTES)
        );
        Ok(account)
    }

    /// What is measured all the same, but perhaps not what was meant.
    fn warn(&mut self, kind: Kind, run: &Run) {
        let name = self.options.name_of(kind);
        if let Some(status) = run.rival_status.filter(|status| *status != 0) {
            self.say_once(format!("ahead: {name} failed with exit status {status}: it takes no part"));
        } else if run.status != 0 {
            let status = run.status;
            self.say_once(format!("ahead: the command's exit status was {status}: is that what should be measured?"));
        }
        if self.until.is_set() && !run.ready {
            self.say_once("ahead: the command ended without being ready: its time is that to its end".into());
        }
    }

    fn say_once(&mut self, line: String) {
        if !self.said.contains(&line) {
            eprintln!("{}", ahead_report::text::one_line(&line));
            self.said.insert(line);
        }
    }

    /// Notes the read-ahead window of the disk that is measured, and how faults are served.
    fn look_at_settings(&mut self) {
        self.single_faults |= ahead_observe::is_fault_around_off();
        let device =
            self.emulated_disk().map(|disk| disk.device_number).or_else(|| self.devices.keys().next().copied());
        if let Some(window) = device.and_then(|device| bdi::read_ahead_kb(device).ok())
            && !self.windows.contains(&window)
        {
            self.windows.push(window);
        }
    }

    /// Completed reads of the emulated disk, or else of all devices involved: the machine's own disk, from which a launcher
    /// comes, may be busy with other things.
    fn reads(&self) -> anyhow::Result<Reads> {
        let counted = match self.emulated_disk() {
            Some(disk) => vec![disk.device_number],
            None => self.devices.keys().copied().collect(),
        };
        let mut sum = Reads::default();
        for device in counted {
            let reads = diskstats::reads(device)?;
            sum = Reads { requests: sum.requests + reads.requests, bytes: sum.bytes + reads.bytes };
        }
        Ok(sum)
    }

    /// What the page cache has lost of the devices involved since the session began.
    fn evicted_bytes(&self) -> anyhow::Result<Option<u64>> {
        let Some(evictions) = &self.evictions else { return Ok(None) };
        let each = self.cached_under.iter().map(|device| Ok(evictions.of(*device)?.bytes));
        Ok(Some(each.sum::<anyhow::Result<u64>>()?))
    }

    /// The command line of a run. `note`: the name of what it leaves, its account or a rival's status.
    fn argv(&self, kind: Kind, note: &str) -> anyhow::Result<Vec<OsString>> {
        let own = std::env::current_exe().context("find the ahead binary")?;
        let (note, messages) = (self.scratch.note(note), self.scratch.note(&said(note)));
        let command = self.options.command.clone();
        Ok(match kind {
            Kind::Cold | Kind::Warm => command,
            Kind::Ahead => {
                // What is waited for in the output is the program's, not ours.
                let files = [("--profile", self.profile_path.clone()), ("--account", note), ("--messages", messages)];
                let flags = files.into_iter().flat_map(|(flag, file)| [OsString::from(flag), file.into()]);
                let head = [own.into(), "run".into()].into_iter().chain(flags);
                head.chain(["--".into()]).chain(command).collect()
            }
            Kind::Rival(index) => {
                // The shell runs the rival to its end, then becomes the program, whose input the rival must not read.
                let shell = &self.options.against[index].shell;
                let script = format!("{{ {shell}\n}} </dev/null\necho $? >\"$0\"\nexec \"$@\"");
                let head: [OsString; 4] = ["sh".into(), "-c".into(), script.into(), note.into()];
                head.into_iter().chain(command).collect()
            }
        })
    }

    /// Seconds to the end or readiness, and how it went. Fails when a signal asks us to stop; the program has ended then.
    /// Its output is thrown away, its errors too unless `errors` takes them.
    fn run_as(
        &self,
        user: Option<User>,
        argv: Vec<OsString>,
        until: &Until,
        errors: Option<Arc<File>>,
    ) -> anyhow::Result<(f64, Finished)> {
        let input = Some(self.input.open()?);
        let command = Command { argv, user, discard_output: true, input, errors, ..Command::default() };
        let started = Instant::now();
        let finished = until.run(&command, &self.signals)?.unless_stopped()?;
        Ok((finished.at.duration_since(started).as_secs_f64(), finished))
    }

    /// Judges what was measured.
    pub fn finish(self, reference: Option<Profile>, late_bytes: Option<u64>) -> anyhow::Result<Comparison> {
        let [cold, ahead, warm] = [Kind::Cold, Kind::Ahead, Kind::Warm].map(|kind| measured(&self.runs[&kind]));
        let kept = self.runs.values().flatten().fold(Kept::default(), |most, run| most.max(run.kept));
        let disk = self.emulated_disk();
        let (used, used_according_to) = self.what_was_used(reference.as_ref());
        let device_s = disk.as_ref().map(|disk| bound::device_seconds(used, disk)).transpose()?;
        let bound_s = device_s.map(|device_s| device_s.max(warm.spread.median_s));
        let least_s = bound_s.unwrap_or(warm.spread.median_s);
        let noise_s = cold.spread.noise_s().max(warm.spread.noise_s());
        let share =
            |measured: &Measured| recovered_share(cold.spread.median_s, measured.spread.median_s, least_s, noise_s);
        let against = self.options.against.iter().enumerate().map(|(index, rival)| {
            let runs = &self.runs[&Kind::Rival(index)];
            let (measured, status) = (measured(runs), first_failure(runs.iter().filter_map(|run| run.rival_status)));
            let recovered_share = share(&measured).filter(|_| status == 0);
            RivalResult { name: rival.name.clone(), status, recovered_share, measured }
        });
        let own_runs = || [Kind::Cold, Kind::Ahead, Kind::Warm].into_iter().flat_map(|kind| &self.runs[&kind]);
        let words: Vec<_> = self.options.command.iter().map(|word| word.as_bytes().to_vec()).collect();
        let usage = self.usage(used);
        Ok(Comparison {
            command: words::lossy(&words),
            command_percent: words::percent_where_needed(&words),
            command_line: command_line(&words),
            kernel: machine::kernel_release(),
            machine: machine::describe(),
            read_ahead_kb: self.windows.first().copied(),
            read_ahead_kb_seen: self.windows.clone(),
            recorded_meanwhile: self.single_faults,
            program_status: first_failure(own_runs().map(|run| run.status)),
            ready: self.until.is_set().then(|| own_runs().all(|run| run.ready)),
            runs: self.options.runs,
            model: disk.as_ref().map(|disk| disk.model.name.clone()),
            beyond_rig: disk.as_ref().is_some_and(|disk| disk.beyond_rig),
            cold_state: ColdState {
                evicted: if machine::is_root() { "everything" } else { "data" },
                kept_bytes: kept.cached,
                unknown_bytes: kept.unknown,
            },
            speedup: cold.spread.median_s / ahead.spread.median_s,
            recovered_share: share(&ahead),
            bound_s,
            prefetched_bytes: usage.prefetched_bytes,
            used_bytes: usage.used_bytes,
            bridged_bytes: usage.bridged_bytes,
            wasted_bytes: usage.wasted_bytes,
            late_bytes,
            stale_bytes: usage.stale_bytes,
            used_according_to,
            device: ahead.device,
            verdict: verdict(&cold.spread, &ahead.spread, self.options.runs),
            against: against.collect(),
            cold,
            ahead,
            warm,
        })
    }

    /// What tells which bytes were used, for the bound and for the account: an exact recording of now, or else the profile.
    fn what_was_used<'p>(&'p self, reference: Option<&'p Profile>) -> (&'p Profile, &'static str) {
        match reference {
            Some(recorded) if usage::is_exact(recorded) => (recorded, "a recorded run"),
            _ if usage::is_exact(&self.profile) => (&self.profile, "the profile"),
            _ => (&self.profile, "the profile, which is an upper bound"),
        }
    }

    /// What became of the bytes of the run with the median amount.
    fn usage(&self, used: &Profile) -> Usage {
        let accounts = self.runs[&Kind::Ahead].iter().filter_map(|run| run.account.as_ref());
        let mut judged: Vec<Usage> = accounts.map(|account| usage::judge(&self.profile, used, account)).collect();
        judged.sort_by_key(|usage| usage.prefetched_bytes);
        judged.swap_remove(judged.len() / 2)
    }

    /// Records the command once more, exactly, where that is permitted: it is the measure of waste.
    pub fn record_reference(&mut self) -> anyhow::Result<Option<Profile>> {
        if self.options.no_reference || !machine::is_root() {
            return Ok(None);
        }
        self.prepare()?;
        let path = self.scratch.reference();
        let own = std::env::current_exe().context("find the ahead binary")?;
        let head = [own.into(), "record".into(), "--cold".into(), "--discard-output".into()];
        let argv = head.into_iter().chain(["-o".into(), path.clone().into()]);
        let argv = argv.chain(self.options.until.to_arguments()).chain(["--".into()]);
        // It ends when the recording does, which knows about readiness.
        let argv = argv.chain(self.options.command.clone()).collect();
        let messages = Messages::new()?;
        // It waits to be alone itself.
        self.alone = None;
        // As root: it takes the user behind sudo for the program by itself.
        self.run_as(None, argv, &Until::default(), Some(messages.0.clone()))?;
        self.alone = alone(&self.signals)?;
        let recorded = ahead_profile::load(&path);
        if let Err(error) = &recorded {
            let said = messages.lines().pop();
            let cause = said.map_or(error.to_string(), |line| line.trim_start_matches("ahead: ").to_owned());
            self.say_once(format!(
                "ahead: what was used is told by the profile, for recording it once more failed: {cause}"
            ));
        }
        Ok(recorded.ok())
    }

    /// Runs the command once more with ahead and observes what came too late; `None` where that cannot be seen.
    pub fn observe_late(&self) -> anyhow::Result<Option<u64>> {
        if self.options.no_reference || !machine::is_root() || !late::can_be_told(&self.profile) {
            return Ok(None);
        }
        self.prepare()?;
        let note = "late";
        let argv = self.argv(Kind::Ahead, note)?;
        let (user, input) = (self.user.clone(), Some(self.input.open()?));
        let command = Command { argv, user, discard_output: true, input, ..Command::default() };
        let (command, watch) = self.until.prepare(&command)?;
        let mut child = Child::spawn_held(&command)?;
        let observers = Tracer::start(&Options::default()).and_then(|tracer| Ok((tracer, Arrivals::start()?)));
        let (tracer, arrivals) = match observers {
            Ok(observers) => observers,
            Err(error) => {
                eprintln!("ahead: what came late cannot be observed: {error}");
                return Ok(None);
            }
        };
        tracer.follow(child.pid(), true)?;
        devices::make_cold(&self.profile, &self.devices, &self.signals)?;
        record::go_on(&self.signals)?;
        let (started, started_ns) = (SystemTime::now(), ahead_observe::now_ns());
        child.release(&command)?;
        let finished = watch.wait(&mut child, &self.signals, None)?.unless_stopped()?;
        let (observed, arrived) = (tracer.finish()?, arrivals.finish()?);
        let run = ahead::record::Run {
            command: Vec::new(),
            directory: Vec::new(),
            started_ns,
            ended_ns: ahead_observe::now_ns(),
            started,
            cpu: std::time::Duration::ZERO,
            ready: finished.ready,
            cold: true,
            // Pages asked for are used; the windows around faults are not of interest here.
            precise: true,
            single_faults: false,
        };
        if observed.lost_events() + arrived.lost_events > 0 {
            return Ok(None);
        }
        let (seen, _) = unless_stopped(&self.signals, move || ahead::record::learn(&observed, &run))??;
        let (account, _) = read_account(&self.scratch, note, finished.status)?;
        let issued = usage::issued(&self.profile, &account);
        Ok(Some(late::bytes(&seen, started_ns, &issued, &arrived)))
    }

    /// What has to be done before each run; its time does not count. Fails when a signal asks us to stop.
    fn prepare(&self) -> anyhow::Result<()> {
        record::go_on(&self.signals)?;
        let Some(shell) = &self.options.prepare else { return Ok(()) };
        let command = Command {
            argv: vec!["sh".into(), "-c".into(), shell.into()],
            discard_output: true,
            input: Some(Arc::new(File::open("/dev/null").context("open /dev/null")?)),
            errors: Some(Arc::new(stderr().as_fd().try_clone_to_owned().context("share standard error")?.into())),
            ..Command::default()
        };
        let finished = Until::default().run(&command, &self.signals)?.unless_stopped()?;
        ensure!(finished.status == 0, "--prepare failed (exit status {}): {shell}", finished.status);
        Ok(())
    }

    /// The emulated disk, if there is exactly one: several have no common bound. What else was read (a launcher from the
    /// machine's own disk, say) leaves the bound a bound.
    fn emulated_disk(&self) -> Option<ahead_disk::DiskInfo> {
        let mut disks = self.devices.keys().filter_map(|device| ahead_disk::find_by_device(*device));
        disks.next().filter(|_| disks.next().is_none())
    }
}

/// `None` where it cannot be seen: without root, on a kernel without BTF.
pub fn observe_evictions() -> Option<Evictions> {
    if !machine::is_root() {
        return None;
    }
    Evictions::start().inspect_err(|error| tracing::info!("evictions are not observed: {error}")).ok()
}

/// Waits until nobody else needs the machine's caches and read-ahead, where we may.
fn alone(signals: &Signals) -> anyhow::Result<Option<MachineLock>> {
    if machine::is_root() {
        return record::wait_to_be_alone(signals).map(Some);
    }
    restore::try_set_back();
    Ok(None)
}

fn measured(runs: &[Run]) -> Measured {
    let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    let mut by_time: Vec<&Run> = runs.iter().collect();
    by_time.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Reads { requests, bytes } = by_time[(by_time.len() - 1) / 2].reads;
    Measured {
        spread: Spread::of(&seconds).expect("every kind is measured in every round, and there is at least one"),
        device: DeviceReads { requests, bytes },
        evicted_bytes: runs.iter().filter_map(|run| run.evicted_bytes).max(),
        samples: runs.iter().map(Run::sample).collect(),
    }
}

/// The first exit status that is not 0, if there is one.
fn first_failure(mut statuses: impl Iterator<Item = i32>) -> i32 {
    statuses.find(|status| *status != 0).unwrap_or(0)
}

/// Most bytes of an account: a million ranges at some 60 bytes each.
const MAX_ACCOUNT_BYTES: u64 = 64 << 20;
/// Most bytes of the accounts of all runs together: they are kept to the end, and there may be a thousand. Those of a profile
/// of 10,000 files take half a megabyte each.
const MAX_ACCOUNTS_BYTES: u64 = 1 << 30;

/// The name of the file for what an `ahead run` has to say.
fn said(note: &str) -> String {
    format!("{note}.said")
}

/// Reads what `ahead run` wrote, and returns its length, too.
fn read_account(scratch: &Scratch, note: &str, status: i32) -> anyhow::Result<(Account, u64)> {
    let text = scratch
        .read(note, MAX_ACCOUNT_BYTES)
        .with_context(|| format!("ahead run left no account: it failed or was killed (status {status})"))?;
    Ok((serde_json::from_slice(&text).context("understand the account of ahead run")?, text.len() as u64))
}

/// The status of a rival; `None`: the shell did not come so far.
fn read_status(scratch: &Scratch, note: &str) -> Option<i32> {
    String::from_utf8(scratch.read(note, 16).ok()?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: requests and bytes were medians of their own, of no run at all.
    #[test]
    fn the_reads_are_those_of_the_run_with_the_median_time() {
        let run = |seconds, requests, bytes| Run {
            seconds,
            reads: Reads { requests, bytes },
            evicted_bytes: None,
            status: 0,
            ready: false,
            rival_status: None,
            kept: Kept::default(),
            account: None,
        };
        let device = |runs: &[Run]| {
            let DeviceReads { requests, bytes } = measured(runs).device;
            (requests, bytes)
        };
        assert_eq!(device(&[run(3.0, 5, 50), run(1.0, 9, 10), run(2.0, 1, 90)]), (1, 90));
        assert_eq!(device(&[run(2.0, 1, 90), run(1.0, 9, 10)]), (9, 10));
    }

    #[test]
    fn the_first_failure_counts() {
        assert_eq!(first_failure([0, 3, 0, 4].into_iter()), 3);
        assert_eq!(first_failure([0, 0].into_iter()), 0);
    }
}

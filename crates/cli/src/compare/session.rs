//! One comparison under way: evict, check, run, count.

use super::devices::{self, Devices};
use super::result::{ColdState, Comparison, DeviceReads, Measured, RivalResult, recovered_share, verdict};
use super::stats::{Spread, median_u64};
use super::usage::{self, Account, Usage};
use super::{Compare, bound, late};
use crate::until::Until;
use ahead_kernel::bdi;
use ahead_kernel::diskstats::{self, Reads};
use ahead_kernel::machine;
use ahead_kernel::process::{Child, Command, Signals, User};
use ahead_profile::Profile;
use ahead_trace::{Arrivals, Options, Tracer};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
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
    /// Bytes of the profile that were still in the page cache when the run began.
    kept_bytes: u64,
    account: Option<Account>,
}

pub struct Session<'a> {
    options: &'a Compare,
    profile_path: PathBuf,
    profile: Profile,
    signals: Signals,
    user: Option<User>,
    devices: Devices,
    runs: BTreeMap<Kind, Vec<Run>>,
    program_status: Option<i32>,
    scratch: tempfile::TempDir,
}

impl<'a> Session<'a> {
    pub fn new(options: &'a Compare, profile_path: PathBuf, profile: Profile) -> anyhow::Result<Self> {
        let signals = Signals::take()?;
        let user = User::behind_sudo()?;
        let scratch =
            tempfile::Builder::new().prefix("ahead-compare-").tempdir().context("make a scratch directory")?;
        if let Some(user) = &user {
            chown(scratch.path(), Some(user.uid), Some(user.gid)).context("make a scratch directory")?;
        }
        Ok(Session {
            signals,
            user,
            devices: devices::of_profile(&profile)?,
            scratch,
            runs: BTreeMap::new(),
            program_status: None,
            options,
            profile_path,
            profile,
        })
    }

    /// Measures one run.
    pub fn measure(&mut self, kind: Kind) -> anyhow::Result<()> {
        self.prepare()?;
        let kept_bytes = match kind {
            Kind::Warm => 0,
            _ => devices::make_cold(&self.profile, &self.devices)?,
        };
        let account_path = self.scratch.path().join("account.json");
        let argv = self.argv(kind, &account_path)?;
        let before = self.reads()?;
        let (seconds, status) = self.run_program(argv, &self.options.until)?;
        let reads = self.reads()? - before;
        self.note_status(kind, status);
        let account = match kind {
            Kind::Ahead => Some(read_account(&account_path)?),
            _ => None,
        };
        self.runs.entry(kind).or_default().push(Run { seconds, reads, kept_bytes, account });
        Ok(())
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

    fn argv(&self, kind: Kind, account: &Path) -> anyhow::Result<Vec<OsString>> {
        let own = std::env::current_exe().context("find the ahead binary")?;
        let command = self.options.command.clone();
        Ok(match kind {
            Kind::Cold | Kind::Warm => command,
            Kind::Ahead => {
                let flags = ["run".into(), "--profile".into(), self.profile_path.clone().into(), "--account".into()];
                let head = [own.into()].into_iter().chain(flags).chain([account.into(), "--".into()]);
                head.chain(command).collect()
            }
            Kind::Rival(index) => {
                // The shell runs the rival to its end, then becomes the program.
                let script = format!("{}\nexec \"$@\"", self.options.against[index].shell);
                let head: [OsString; 4] = ["sh".into(), "-c".into(), script.into(), "sh".into()];
                head.into_iter().chain(command).collect()
            }
        })
    }

    /// Seconds to the end or readiness, and the status. Fails when a signal asks us to stop; the program has ended then.
    fn run_program(&self, argv: Vec<OsString>, until: &Until) -> anyhow::Result<(f64, i32)> {
        self.run_as(self.user.clone(), argv, until)
    }

    fn run_as(&self, user: Option<User>, argv: Vec<OsString>, until: &Until) -> anyhow::Result<(f64, i32)> {
        let command = Command { argv, user, discard_output: true, ..Command::default() };
        let started = Instant::now();
        let finished = until.run(&command, &self.signals)?;
        let seconds = finished.at.duration_since(started).as_secs_f64();
        ensure!(!finished.stopped, "stopped by a signal; nothing is left behind");
        Ok((seconds, finished.status))
    }

    /// A program that fails is measured all the same, and said once.
    fn note_status(&mut self, kind: Kind, status: i32) {
        if status != *self.program_status.get_or_insert(0) {
            eprintln!("ahead: the command's exit status was {status} ({kind:?} run): is that what should be measured?");
            self.program_status = Some(status);
        }
    }

    /// Judges what was measured.
    pub fn finish(self, reference: Option<Profile>, late_bytes: Option<u64>) -> anyhow::Result<Comparison> {
        let [cold, ahead, warm] = [Kind::Cold, Kind::Ahead, Kind::Warm].map(|kind| measured(&self.runs[&kind]));
        let disk = self.emulated_disk();
        let device_s = disk.as_ref().map(|disk| bound::device_seconds(&self.profile, disk)).transpose()?;
        let bound_s = device_s.map(|device_s| device_s.max(warm.spread.median_s));
        let least_s = bound_s.unwrap_or(warm.spread.median_s);
        let share = |measured: &Measured| recovered_share(cold.spread.median_s, measured.spread.median_s, least_s);
        let against = self.options.against.iter().enumerate().map(|(index, rival)| {
            let measured = measured(&self.runs[&Kind::Rival(index)]);
            RivalResult { name: rival.name.clone(), recovered_share: share(&measured), measured }
        });
        let (usage, according_to) = self.usage(reference);
        Ok(Comparison {
            command: display(&self.options.command),
            kernel: machine::kernel_release(),
            machine: machine::describe(),
            read_ahead_kb: disk
                .as_ref()
                .map(|disk| disk.device_number)
                .or_else(|| self.devices.keys().next().copied())
                .and_then(|device| bdi::read_ahead_kb(device).ok()),
            runs: self.options.runs,
            model: disk.as_ref().map(|disk| disk.model.name.clone()),
            beyond_rig: disk.as_ref().is_some_and(|disk| disk.beyond_rig),
            cold_state: ColdState {
                evicted: if machine::is_root() { "everything" } else { "data" },
                kept_bytes: self.runs.values().flatten().map(|run| run.kept_bytes).max().unwrap_or(0),
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
            used_according_to: according_to,
            device: ahead.device,
            verdict: verdict(&cold.spread, &ahead.spread),
            against: against.collect(),
            cold,
            ahead,
            warm,
        })
    }

    /// What became of the bytes of the run with the median amount.
    fn usage(&self, reference: Option<Profile>) -> (Usage, &'static str) {
        let (reference, according_to) = match &reference {
            Some(recorded) if usage::is_exact(recorded) => (recorded, "a recorded run"),
            _ if usage::is_exact(&self.profile) => (&self.profile, "the profile"),
            _ => (&self.profile, "the profile, which is an upper bound"),
        };
        let accounts = self.runs[&Kind::Ahead].iter().filter_map(|run| run.account.as_ref());
        let mut judged: Vec<Usage> = accounts.map(|account| usage::judge(&self.profile, reference, account)).collect();
        judged.sort_by_key(|usage| usage.prefetched_bytes);
        (judged.swap_remove(judged.len() / 2), according_to)
    }

    /// Records the command once more, exactly, where that is permitted: it is the measure of waste.
    pub fn record_reference(&self) -> anyhow::Result<Option<Profile>> {
        if self.options.no_reference || !machine::is_root() {
            return Ok(None);
        }
        self.prepare()?;
        let path = self.scratch.path().join("reference.ahead");
        let own = std::env::current_exe().context("find the ahead binary")?;
        let head: [OsString; 5] = [own.into(), "record".into(), "--cold".into(), "-o".into(), path.clone().into()];
        let argv = head.into_iter().chain(self.options.until.to_arguments()).chain(["--".into()]);
        // It ends when the recording does, which knows about readiness.
        let argv = argv.chain(self.options.command.clone()).collect();
        // As root: it takes the user behind sudo for the program by itself.
        let (_, status) = self.run_as(None, argv, &Until::default())?;
        let recorded = ahead_profile::load(&path);
        if let Err(error) = &recorded {
            eprintln!(
                "ahead: waste is judged by the profile, the reference recording failed (status {status}): {error}"
            );
        }
        Ok(recorded.ok())
    }

    /// Runs the command once more with ahead and observes what came too late; `None` where that cannot be seen.
    pub fn observe_late(&self) -> anyhow::Result<Option<u64>> {
        if self.options.no_reference || !machine::is_root() || !late::can_be_told(&self.profile) {
            return Ok(None);
        }
        self.prepare()?;
        let account_path = self.scratch.path().join("late.json");
        let argv = self.argv(Kind::Ahead, &account_path)?;
        let command = Command { argv, user: self.user.clone(), discard_output: true, ..Command::default() };
        let (command, watch) = self.options.until.prepare(&command)?;
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
        devices::make_cold(&self.profile, &self.devices)?;
        let (started, started_ns) = (SystemTime::now(), ahead_trace::now_ns());
        child.release(&command)?;
        let finished = watch.wait(&mut child, &self.signals, None)?;
        ensure!(!finished.stopped, "stopped by a signal; nothing is left behind");
        let (observed, arrived) = (tracer.finish()?, arrivals.finish()?);
        let run = ahead_trace::Run {
            command: Vec::new(),
            directory: Vec::new(),
            started_ns,
            ended_ns: ahead_trace::now_ns(),
            started,
            cpu: std::time::Duration::ZERO,
            ready: finished.ready,
            cold: true,
            // Pages asked for are used; the windows around faults are not of interest here.
            precise: true,
            single_faults: false,
        };
        let (seen, _) = ahead_trace::to_profile(&observed, &run)?;
        if observed.lost_events() + arrived.lost_events > 0 {
            return Ok(None);
        }
        let issued = usage::issued(&self.profile, &read_account(&account_path)?);
        Ok(Some(late::bytes(&seen, started_ns, &issued, &arrived)))
    }

    /// What has to be done before each run; its time does not count.
    fn prepare(&self) -> anyhow::Result<()> {
        let Some(shell) = &self.options.prepare else { return Ok(()) };
        let status = std::process::Command::new("sh").args(["-c", shell]).stdout(Stdio::null()).status();
        match status.with_context(|| format!("run {shell}"))? {
            status if status.success() => Ok(()),
            status => anyhow::bail!("--prepare failed ({status}): {shell}"),
        }
    }

    /// The emulated disk, if there is exactly one: several have no common bound. What else was read (a launcher from the
    /// machine's own disk, say) leaves the bound a bound.
    fn emulated_disk(&self) -> Option<ahead_disk::DiskInfo> {
        let mut disks = self.devices.keys().filter_map(|device| ahead_disk::find_by_device(*device));
        disks.next().filter(|_| disks.next().is_none())
    }
}

fn measured(runs: &[Run]) -> Measured {
    let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    Measured {
        spread: Spread::of(&seconds).expect("every kind is measured in every round, and there is at least one"),
        device: DeviceReads {
            requests: median_u64(runs.iter().map(|run| run.reads.requests).collect()),
            bytes: median_u64(runs.iter().map(|run| run.reads.bytes).collect()),
        },
    }
}

fn display(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn read_account(path: &Path) -> anyhow::Result<Account> {
    let text = std::fs::read(path).context("read the account of ahead run")?;
    serde_json::from_slice(&text).context("understand the account of ahead run")
}

//! `ahead replay`: fetches what a profile lists, without starting anything.

use ahead_fetch::{Account, HeadStart, Options, Stopper};
use ahead_kernel::process::Signals;
use ahead_report::number::{count, size, time};
use anyhow::bail;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Fetch what a profile lists, without starting anything
///
/// Returns when everything is submitted: the kernel reads on by itself. What differs from the recording, is there already
/// or may not be read is passed over and counted.
#[derive(Debug, Args)]
pub struct Replay {
    /// Profile to fetch
    #[arg(value_name = "FILE")]
    profile: PathBuf,
    /// Return only when everything has arrived
    #[arg(long)]
    wait: bool,
    /// Fetch at most this much [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = crate::units::parse_size)]
    budget: Option<u64>,
    /// Give up after this time, as in 30s
    #[arg(long, value_name = "TIME", value_parser = crate::units::parse_time)]
    deadline: Option<std::time::Duration>,
    /// Print the account as JSON
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        let profile = Arc::new(ahead_profile::load(&self.profile)?);
        let options = Options {
            budget_bytes: self.budget,
            deadline: self.deadline,
            head_start: HeadStart::None,
            wait: self.wait,
            ..Options::default()
        };
        let running = ahead_fetch::start(profile, options)?;
        let interrupted = stop_at_signal(signals, running.stopper());
        let account = running.finish();
        let mut out = std::io::stdout().lock();
        let printed = match self.json {
            true => writeln!(out, "{}", serde_json::to_string(&account)?),
            false => print(&mut out, &account, self.wait),
        };
        match interrupted.load(Ordering::Relaxed) {
            0 => printed?,
            number => bail!("stopped by signal {number}; the account tells how far it came"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Stops the fetch when a signal arrives; its number is then in what this returns. The thread ends with the process.
fn stop_at_signal(signals: Signals, stopper: Stopper) -> Arc<AtomicI32> {
    let arrived = Arc::new(AtomicI32::new(0));
    let noted = arrived.clone();
    std::thread::spawn(move || {
        if let Ok(Some(signal)) = signals.wait(None) {
            noted.store(signal.number, Ordering::Relaxed);
            stopper.stop();
        }
    });
    arrived
}

fn print(out: &mut impl Write, account: &Account, waited: bool) -> std::io::Result<()> {
    let fetched = account.issued_bytes - account.bridged_bytes;
    writeln!(out, "fetched           {:>10}  in {}", size(fetched), count(account.requests, "request", "requests"))?;
    let rows = [
        ("  metadata", account.metadata_bytes),
        ("  unreadable", account.unreadable_bytes),
        ("bridged", account.bridged_bytes),
        ("already there", account.already_resident_bytes),
        ("changed since", account.stale_bytes),
        ("failed", account.failed_bytes),
    ];
    for (what, bytes) in rows.into_iter().filter(|(_, bytes)| *bytes > 0) {
        writeln!(out, "{what:<17} {:>10}", size(bytes))?;
    }
    for (reason, skipped) in &account.skipped {
        writeln!(out, "{:<17} {:>10}  skipped", reason.name(), size(skipped.bytes))?;
    }
    if account.lookups > 0 {
        writeln!(out, "looked up         {:>10}  paths", account.lookups)?;
    }
    if let Some(failure) = &account.first_failure {
        writeln!(out, "first failure: {failure}")?;
    }
    match account.arrived_us {
        Some(arrived_us) => writeln!(out, "arrived after {}", time(arrived_us)),
        None if waited => writeln!(out, "submitted after {}; not all has arrived", time(account.submitted_us)),
        None => writeln!(out, "submitted after {}", time(account.submitted_us)),
    }
}

//! `ahead replay`: fetches what a profile lists, without starting anything.

use crate::exit::Stopped;
use crate::run::stop_when;
use ahead_fetch::{Account, HeadStart, Options};
use ahead_kernel::process::Signals;
use ahead_kernel::worker::{Dismissal, Employer, Worker};
use ahead_profile::Profile;
use ahead_report::number::{count, size, time};
use anyhow::ensure;
use clap::Args;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

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
        let mut worker = Worker::fork(|employer, dismissal| self.fetch(profile, options, employer, dismissal))?;
        let (account, signal) = hear(&mut worker, &signals)?;
        ensure!(!account.is_empty(), "the fetch broke off");
        let printed = std::io::stdout().write_all(&account);
        match signal {
            None => printed.map(|()| ExitCode::SUCCESS).map_err(Into::into),
            Some(number) => {
                let told = "the account tells how far it came";
                let _ = writeln!(std::io::stderr(), "ahead: stopped by signal {number}; {told}");
                Ok(ExitCode::from(Stopped(number).code()))
            }
        }
    }

    /// The worker's part: fetches, and tells the account. A process of its own may be left to a device that does not answer.
    fn fetch(&self, profile: Arc<Profile>, options: Options, mut employer: Employer, dismissal: Dismissal) {
        let told = ahead_fetch::start(profile, options).map_err(anyhow::Error::from).and_then(|running| {
            stop_when(dismissal, running.stopper());
            let account = running.finish();
            let text = match self.json {
                true => serde_json::to_string(&account)? + "\n",
                false => text(&account, self.wait),
            };
            Ok(employer.write_all(text.as_bytes())?)
        });
        if let Err(error) = told {
            eprintln!("ahead: {error:#}");
        }
    }
}

/// What the worker tells until its end, and the signal that has stopped it meanwhile, if one has.
fn hear(worker: &mut Worker, signals: &Signals) -> anyhow::Result<(Vec<u8>, Option<i32>)> {
    let (mut told, mut stopped, mut part) = (Vec::new(), None, [0; 4096]);
    loop {
        if let Some(signal) = signals.wait_or(&*worker)? {
            stopped = Some(signal.number);
            worker.dismiss();
            continue;
        }
        match (&*worker).read(&mut part)? {
            0 => return Ok((told, stopped)),
            length => told.extend(&part[..length]),
        }
    }
}

/// The account, for people.
fn text(account: &Account, waited: bool) -> String {
    let mut lines = Vec::new();
    let fetched = account.issued_bytes - account.bridged_bytes;
    lines.push(format!(
        "fetched           {:>10}  in {}",
        size(fetched),
        count(account.requests, "request", "requests")
    ));
    let rows = [
        ("  metadata", account.metadata_bytes),
        ("  unreadable", account.unreadable_bytes),
        ("bridged", account.bridged_bytes),
        ("already there", account.already_resident_bytes),
        ("changed since", account.stale_bytes),
        ("failed", account.failed_bytes),
    ];
    for (what, bytes) in rows.into_iter().filter(|(_, bytes)| *bytes > 0) {
        lines.push(format!("{what:<17} {:>10}", size(bytes)));
    }
    for (reason, skipped) in &account.skipped {
        lines.push(format!("{:<17} {:>10}  skipped", reason.name(), size(skipped.bytes)));
    }
    if account.lookups > 0 {
        lines.push(format!("looked up         {:>10}  paths", account.lookups));
    }
    if let Some(failure) = &account.first_failure {
        lines.push(format!("first failure: {failure}"));
    }
    lines.push(match account.arrived_us {
        Some(arrived_us) => format!("arrived after {}", time(arrived_us)),
        None if waited => format!("submitted after {}; not all has arrived", time(account.submitted_us)),
        None => format!("submitted after {}", time(account.submitted_us)),
    });
    lines.join("\n") + "\n"
}

//! `ahead replay`: fetches what a profile lists, without starting anything.

use crate::account;
use crate::exit::{self, Stopped};
use crate::run::{LOADED, stop_when};
use ahead::device_store::Descriptions;
use ahead::prefetch::{HeadStart, NOT_ANSWERING, Options};
use ahead_process::Signals;
use ahead_process::{CancelToken, ResultPipe, Worker};
use anyhow::bail;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    #[arg(long, value_name = "SIZE", value_parser = ahead_model::quantity::parse_size)]
    budget: Option<u64>,
    /// Give up after this time, as in 30s
    #[arg(long, value_name = "TIME", value_parser = ahead_model::quantity::parse_time)]
    deadline: Option<Duration>,
    /// How much of the disks to take from other programs: idle leaves them what they want, and fills no rotating disk's queue
    #[arg(long, value_name = "CLASS", default_value = "idle")]
    priority: Priority,
    /// Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    /// Print the account as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Priority {
    Idle,
    Normal,
}

/// What the worker says when it could not do its work; the reason follows.
const FAILED: u8 = b'e';

/// How long the worker may take for its last words once it is stopped, or its time is over.
const LAST_WORD: Duration = Duration::from_secs(1);

impl Replay {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (began, signals) = (Instant::now(), Signals::take()?);
        let mut worker = Worker::fork(|results, cancelled| self.work(results, cancelled, began))?;
        let signal = self.hear(&mut worker, &signals, began)?;
        let received = worker.received().strip_prefix(&[LOADED]).unwrap_or(worker.received());
        let (account, failure) = match received {
            [FAILED, why @ ..] => (&[][..], Some(String::from_utf8_lossy(why))),
            account => (account, None),
        };
        let printed = std::io::stdout().write_all(account);
        match (signal, failure) {
            (Some(number), _) => {
                let follows =
                    if account.is_empty() { "there is no account" } else { "the account tells how far it came" };
                let _ = writeln!(std::io::stderr(), "ahead: stopped by signal {number}; {follows}");
                Ok(ExitCode::from(Stopped(number).code()))
            }
            (None, Some(why)) => bail!("{why}"),
            (None, None) if !account.is_empty() => printed.map(|()| ExitCode::SUCCESS).map_err(Into::into),
            (None, None) if worker.is_complete() => bail!("the prefetch worker panicked"),
            (None, None) => {
                let after = began.elapsed().as_secs_f64();
                bail!("{}: no answer of its file system for {after:.1} s", self.profile.display())
            }
        }
    }

    /// The worker's part. A process of its own may be left to a file system that does not answer: that of the profile, too.
    fn work(&self, mut results: ResultPipe, cancelled: CancelToken, began: Instant) {
        let told = ahead_profile::load(&self.profile).map_err(anyhow::Error::from).and_then(|profile| {
            // Before: from then on only devices of the profile are waited for.
            let descriptions = match &self.device {
                Some(path) => Descriptions::given(path).map_err(anyhow::Error::msg)?,
                None => Descriptions::saved(&profile),
            };
            results.write_all(&[LOADED])?;
            let options = Options {
                descriptions,
                budget_bytes: self.budget,
                deadline: self.deadline,
                since: Some(began),
                priority: match self.priority {
                    Priority::Idle => ahead::prefetch::Priority::Idle,
                    Priority::Normal => ahead::prefetch::Priority::Normal,
                },
                head_start: HeadStart::None,
                wait: self.wait,
                ..Options::default()
            };
            let running = ahead::prefetch::start(Arc::new(profile), options)?;
            stop_when(cancelled, running.stopper());
            let account = running.finish();
            let text = match self.json {
                true => serde_json::to_string(&account)? + "\n",
                false => account::lines(&account, self.wait),
            };
            Ok(results.write_all(text.as_bytes())?)
        });
        if let Err(error) = told {
            // Nobody may be listening any more.
            drop(results.write_all(&[FAILED]).and_then(|()| results.write_all(exit::message(&error).as_bytes())));
        }
    }

    /// Hears the worker to its end, or as long as it may take, and gives the signal that has stopped it, if one has.
    fn hear(&self, worker: &mut Worker, signals: &Signals, began: Instant) -> anyhow::Result<Option<i32>> {
        let mut stopped = None;
        let mut until = self.deadline.and_then(|deadline| began.checked_add(deadline)?.checked_add(LAST_WORD));
        while !worker.is_complete() {
            // Once it has read the profile, it gives up by itself what does not answer.
            let loads_until = worker.received().is_empty().then(|| began + NOT_ANSWERING);
            let deadline = [until, loads_until].into_iter().flatten().min();
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            if let Some(number) = worker.wait(signals, deadline)? {
                stopped = stopped.or(Some(number));
                worker.cancel();
                until = Some(Instant::now() + LAST_WORD);
            }
        }
        Ok(stopped)
    }
}

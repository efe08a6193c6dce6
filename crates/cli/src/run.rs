//! `ahead run`: starts a program with what it will read already on its way.
//!
//! ```text
//!     we ──▶ worker: loads the profile ─▶ "l" ─▶ fetches ─▶ "s" ─▶ … ─▶ account
//!      │                                   │                 │
//!      └───▶ program, held ··(2 s at most)·┴······(11 s)·····┴─▶ runs ─▶ its end is ours
//! ```
//!
//! The worker is a process of its own: it may be waiting for a device that does not answer when the program has ended. So it
//! has none of our descriptors, and touches every file for us: the profile lies on a file system, too.

use crate::{account, exit, output};
use ahead::device_store::Descriptions;
use ahead::prefetch::{LONGEST_HEAD_START, LONGEST_STILL, Options, Running, Stopper};
use ahead::store;
use ahead_process::{CancelToken, ResultPipe, Worker};
use ahead_process::{Child, Command, Ended, Event, Signals};
use ahead_profile::Profile;
use ahead_sys::errors_stream;
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Start a program with the files it will read already on their way into memory
///
/// Reads the profile that `ahead record` made and fetches what it lists: metadata first, then data, in the order that
/// suits the disk, while the program starts. The program is never failed by a failed fetch: without a usable profile it
/// simply runs. Its exit status is passed on.
#[derive(Debug, Args)]
#[command(override_usage = "ahead run [OPTIONS] [--] <CMD>...")]
pub struct Run {
    /// Profile to fetch [default: the one that `ahead record` keeps for this command and directory]
    #[arg(short, long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Fetch at most this much [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = ahead_model::quantity::parse_size)]
    budget: Option<u64>,
    /// Use this description of the disks, instead of what `ahead probe --save` has kept of them: a device description or a disk model
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    /// Write what was fetched to this file, as JSON
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Print what was prefetched as one line on standard error, after the program's end
    #[arg(short, long)]
    verbose: bool,
    /// Write our own messages to this file: standard error is then the program's alone
    #[arg(long, hide = true, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.run_program())
    }

    fn run_program(self) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        let errors = self.messages.as_deref().and_then(send_messages_to);
        let command = Command { argv: self.command.clone(), errors, ..Command::default() };
        let began = Instant::now();
        let worker = Worker::fork(|results, cancelled| self.fetch(results, cancelled, began));
        let mut worker = worker.inspect_err(|error| warn(&format!("runs without a fetch: {error}"))).ok();
        let ended = self.run_held(&command, &signals, worker.as_mut(), began);
        // However it ended, or if it could not be started: the account is kept by then.
        if let Some(worker) = &mut worker {
            worker.cancel();
            let is_wanted = self.account.is_some() || self.verbose;
            if is_wanted && !worker.wait_complete(LONGEST_ACCOUNT).unwrap_or(false) {
                warn("there is no account: the worker has not written it in time");
            }
            // Whatever comes of it, the program's status counts.
            if !worker.wait_end(LAST_WORD).unwrap_or(false) {
                tracing::info!("the fetch still waits for a device, and is left to itself");
            }
            self.use_received_account(worker.received());
        }
        Ok(ExitCode::from(ended?.code() as u8))
    }

    /// The worker's part: says when the program may start, and keeps the account.
    fn fetch(&self, mut results: ResultPipe, cancelled: CancelToken, began: Instant) {
        let Some(profile) = self.load() else { return };
        let descriptions = self.descriptions(&profile);
        // Whoever cannot be told hears our end.
        let _ = results.write_all(&[LOADED]);
        let Some(running) = self.start(profile, descriptions, began) else { return };
        stop_when(cancelled, running.stopper());
        running.hold();
        let _ = results.write_all(&[START]);
        let account = running.finish();
        // The program does its work: its status is what counts.
        let kept = serde_json::to_vec_pretty(&account).map_err(anyhow::Error::from).and_then(|json| {
            let file = self.account.as_deref().filter(|path| !output::is_open(path));
            if self.verbose || self.account.is_some() && file.is_none() {
                results.write_all(&json)?;
            }
            file.map_or(Ok(()), |file| output::replace(file, &json))
        });
        if let Err(error) = kept {
            warn(&format!("the account is not kept: {error:#}"));
        }
    }

    /// Prints the account that the worker has sent, and writes it where it goes to a descriptor (`/dev/stdout`) that we have and the worker
    /// has not.
    fn use_received_account(&self, received: &[u8]) {
        let Some((_, json @ [_, ..])) = received.split_at_checked(2) else { return };
        if let Some(path) = self.account.as_deref().filter(|path| output::is_open(path))
            && let Err(error) = output::replace(path, json)
        {
            warn(&format!("the account is not kept: {error:#}"));
        }
        if self.verbose {
            match serde_json::from_slice(json) {
                Ok(account) => warn(&account::line(&account)),
                Err(error) => warn(&format!("the account is not complete: {error}")),
            }
        }
    }

    /// The profile; without one the program runs nevertheless, and a line says why.
    fn load(&self) -> Option<Profile> {
        let path = self.place();
        match ahead_profile::load(&path) {
            Ok(profile) => Some(profile),
            Err(error) => {
                let hint = match self.profile.is_none() && !path.exists() {
                    true => match store::count_similar(&self.command) {
                        0 => "; ahead record makes one".into(),
                        1 => "; ahead record makes one (there is one for other arguments or elsewhere: ahead list)"
                            .into(),
                        more => {
                            format!(
                                "; ahead record makes one (there are {more} for other arguments or elsewhere: ahead list)"
                            )
                        }
                    },
                    false => String::new(),
                };
                warn(&format!("runs without a profile: {error}{hint}"));
                None
            }
        }
    }

    /// What is known of the profile's devices. A file that was named and cannot be used is reported, and what is kept is used instead.
    fn descriptions(&self, profile: &Profile) -> Descriptions {
        let given = self.device.as_deref().and_then(|path| {
            let warned = |why: &String| warn(&format!("{why}; uses what is known without it"));
            Descriptions::given(path).inspect_err(warned).ok()
        });
        given.unwrap_or_else(|| Descriptions::saved(profile))
    }

    fn start(&self, profile: Profile, descriptions: Descriptions, began: Instant) -> Option<Running> {
        let (keep_ranges, since) = (self.account.is_some(), Some(began));
        let options = Options { budget_bytes: self.budget, keep_ranges, since, descriptions, ..Options::default() };
        match ahead::prefetch::start(Arc::new(profile), options) {
            Ok(running) => Some(running),
            Err(error) => {
                warn(&format!("runs without a fetch: {error}"));
                None
            }
        }
    }

    /// Runs the program, from the end of the head start on.
    fn run_held(
        &self,
        command: &Command,
        signals: &Signals,
        mut worker: Option<&mut Worker>,
        began: Instant,
    ) -> anyhow::Result<Ended> {
        let mut child = Child::spawn_held(command)?;
        if let Some(worker) = worker.as_deref_mut()
            && let Some(ended) = self.wait_for_head_start(&mut child, signals, worker, began)?
        {
            return Ok(ended);
        }
        child.release(command)?;
        loop {
            let streams = worker.as_deref().map(Worker::streams).unwrap_or_default();
            match child.wait_event(signals, &streams, None)? {
                Event::Ended(ended) => return Ok(ended),
                Event::Readable(_) => worker.as_deref_mut().map_or((), Worker::receive),
                Event::Timeout | Event::Signal(_) => {}
            }
        }
    }

    /// Waits for the head start to be over. `Some`: a signal ended the program before it began.
    fn wait_for_head_start(
        &self,
        child: &mut Child,
        signals: &Signals,
        worker: &mut Worker,
        began: Instant,
    ) -> anyhow::Result<Option<Ended>> {
        loop {
            let deadline = match worker.received() {
                [] => began + LONGEST_STILL,
                [LOADED] => began + LONGEST_SILENCE,
                _ => return Ok(None),
            };
            if worker.is_complete() {
                return Ok(None);
            }
            match child.wait_event(signals, &worker.streams(), Some(deadline))? {
                Event::Ended(ended) => return Ok(Some(ended)),
                Event::Readable(_) => worker.receive(),
                // A signal is passed on to the program, which lives or dies by it.
                Event::Signal(_) => {}
                Event::Timeout if Instant::now() < deadline => {}
                Event::Timeout => {
                    if worker.received().is_empty() {
                        let limit = LONGEST_STILL.as_secs();
                        // Its usual place is not looked for here: that, too, may not answer.
                        let path =
                            self.profile.as_ref().map_or("the profile".into(), |path| path.display().to_string());
                        warn(&format!("starts without a fetch: {path} was not read within {limit} s"));
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Where the profile is.
    fn place(&self) -> PathBuf {
        self.profile.clone().unwrap_or_else(|| store::profile_path_for(&self.command, None))
    }
}

/// Gives what standard error was. Where messages cannot go elsewhere, they stay there.
fn send_messages_to(path: &Path) -> Option<Arc<File>> {
    let file = File::options().create(true).append(true).open(path);
    let sent = file.map_err(anyhow::Error::from).and_then(|file| Ok(errors_stream::send_to(&file)?));
    sent.map(Arc::new).inspect_err(|error| warn(&format!("messages stay here: {error:#}"))).ok()
}

/// What the worker says when it has read the profile.
pub const LOADED: u8 = b'l';

/// What it says when the program may start.
const START: u8 = b's';

/// How long the program is held though the worker says nothing: it does not even come to look at the clock.
const LONGEST_SILENCE: Duration = LONGEST_HEAD_START.saturating_add(Duration::from_secs(1));

/// How long the worker may take to write the account when the program has ended. It is never written by a thread that waits for a
/// device, but the machine may be busy, and the account's own file system may not answer.
const LONGEST_ACCOUNT: Duration = Duration::from_secs(10);

/// How long the worker may take to end when the program has ended. One that does not wait for a device needs some
/// milliseconds, and 250 to give up those of its threads that do.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Stops the fetch when nobody wants it any more. The thread ends with the process. Where there is none for it, the fetch goes on
/// to its end.
pub fn stop_when(cancelled: CancelToken, stopper: Stopper) {
    let wait = move || {
        cancelled.wait();
        stopper.stop();
    };
    if let Err(error) = std::thread::Builder::new().name("ahead-cancelled".into()).spawn(wait) {
        tracing::debug!("a thread was refused: {error}");
    }
}

fn warn(message: &str) {
    // Nobody may be listening any more; the program runs all the same.
    let _ = writeln!(std::io::stderr(), "ahead: {message}");
}

//! Prefetching in a separate process.
//!
//! ```text
//!     PrefetchProcess::start ──▶ loads the profile ─▶ "l" ─▶ prefetches ─▶ "s": the program may start ─▶ … ─▶ account
//!                                                                                        "e" and why: it failed ◀─┘
//! ```
//!
//! A process cannot end while one of its threads waits for a device that does not answer. So the prefetch has its own process,
//! which may wait, and the caller ends in time. This process has none of the caller's descriptors. It also loads the profile,
//! because the profile's file system may not answer either.

use super::node::{self, RankTurn};
use super::ranges::{Resolved, resolve};
use super::reserve_descriptors;
use super::shared::as_us;
use super::{Account, HeadStart, NOT_ANSWERING, Options, Program, Reason, Replay, Running, Stopper};
use crate::device_store::Descriptions;
use crate::notify::Notify;
use crate::store::note::{self, Verdict};
use crate::{Error, Result, output, store};
use ahead_fetch::YieldToReaders;
use ahead_files::lists::List;
use ahead_plan::worth::worth;
use ahead_process::{CancelToken, ResultPipe, Signals, Worker};
use ahead_profile::Profile;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::root::Root;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The profile to load. The process also searches for it and looks up the files of a list, because a file system may not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileFile {
    /// This file.
    Named(PathBuf),
    /// The stored profile of this command in this directory.
    OfCommand(Vec<OsString>),
    /// The files of this list, as they are now.
    Listed(List),
}

ahead_model::options! {
    /// The task of the process.
    #[derive(Clone, Debug)]
    pub struct Request {
        /// The profile.
        pub profile: ProfileFile,
        /// The options of the prefetch.
        pub options: Options,
        /// The directory below which the paths of the profile or list are; `None`: the root directory.
        pub root: Option<PathBuf>,
        /// A device description or disk model to use instead of the saved descriptions. An unusable file is an error if no program waits,
        /// otherwise a notice.
        pub device: Option<PathBuf>,
        /// The file for the account, as JSON.
        pub account_file: Option<PathBuf>,
        /// Send the account back: [`PrefetchProcess::account`].
        pub send_account: bool,
        /// Let all other readers of the disks go first ([`ahead_fetch::YieldToReaders`]).
        pub yields: bool,
    }
}

/// The progress of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It loads the profile.
    Loading,
    /// It has loaded the profile.
    Loaded,
    /// The program may start.
    Started,
}

/// A process that prefetches. On drop it is cancelled, and ends by itself.
#[derive(Debug)]
pub struct PrefetchProcess {
    worker: Worker,
}

const LOADED: u8 = b'l';
const STARTED: u8 = b's';
/// Sent to the process in place of the program's number: the program has ended.
const PROGRAM_ENDED: u32 = 0;
/// Sent before the reason of a failure.
const FAILED: u8 = b'e';

/// Time limit for its end after it was cancelled. It takes some milliseconds, or 250 ms if some of its threads wait for a device.
const END_TIME: Duration = Duration::from_secs(1);

/// Time limit for the account after it was cancelled. The thread that writes it does not wait for a device of the profile, but the
/// machine may be busy, and the file system of the account may not answer.
const ACCOUNT_TIME: Duration = Duration::from_secs(10);

impl PrefetchProcess {
    /// Starts the process. `explain` makes the message for an unusable profile; it runs in that process, because it may read files.
    ///
    /// # Errors
    /// The process could not be started; the calling process has threads already.
    pub fn start(request: &Request, notify: Notify<'_>, explain: &dyn Fn(&Error) -> String) -> Result<PrefetchProcess> {
        let worker = Worker::fork(|results, cancelled| work(request, results, cancelled, notify, explain))?;
        Ok(PrefetchProcess { worker })
    }

    /// Its pipes, for poll(2); [`PrefetchProcess::receive`] reads them.
    pub(crate) fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Reports the program that was started.
    pub(crate) fn follow(&mut self, pid: u32) {
        self.worker.send(pid);
    }

    /// Its progress.
    pub(crate) fn stage(&self) -> Stage {
        match self.worker.received() {
            [LOADED, STARTED, ..] => Stage::Started,
            [LOADED, ..] => Stage::Loaded,
            _ => Stage::Loading,
        }
    }

    /// Why it failed; `None`: it did not.
    pub fn failure(&self) -> Option<String> {
        match self.after_stages() {
            [FAILED, why @ ..] => Some(String::from_utf8_lossy(why).into_owned()),
            _ => None,
        }
    }

    /// The complete account; `None`: it was not requested, or nothing was prefetched.
    ///
    /// # Errors
    /// The account is not complete.
    pub fn account(&self) -> Result<Option<Account>> {
        let json = match self.after_stages() {
            [] | [FAILED, ..] => return Ok(None),
            json => json,
        };
        let account = serde_json::from_slice(json).map_err(io::Error::other);
        account.map(Some).map_err(|error| Error::io("the account is not complete", error))
    }

    fn after_stages(&self) -> &[u8] {
        let received = self.worker.received();
        let stages = received.iter().take(2).take_while(|byte| [LOADED, STARTED].contains(byte)).count();
        &received[stages..]
    }

    /// Whether all of its messages have arrived.
    pub fn is_complete(&self) -> bool {
        self.worker.is_complete()
    }

    /// Waits for its end within the time limits, for a caller that starts no program. Returns the signal that stopped it.
    ///
    /// `began`: when the caller was started, the beginning of `deadline`.
    ///
    /// # Errors
    /// The signals cannot be read.
    pub fn wait(&mut self, signals: &Signals, began: Instant, deadline: Option<Duration>) -> Result<Option<i32>> {
        let mut stopped = None;
        let mut until = deadline.and_then(|deadline| began.checked_add(deadline)?.checked_add(END_TIME));
        while !self.worker.is_complete() {
            // After it has loaded the profile, it gives up devices that do not answer by itself.
            let loads_until = (self.stage() == Stage::Loading).then(|| began + NOT_ANSWERING);
            let limit = [until, loads_until].into_iter().flatten().min();
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                break;
            }
            if let Some(number) = self.worker.wait(signals, limit)? {
                stopped = stopped.or(Some(number));
                self.worker.cancel();
                until = Some(Instant::now() + END_TIME);
            }
        }
        Ok(stopped)
    }

    /// Cancels it and waits for its end. Then its account is complete, or a notice reports that it is not. `has_ended`: the program was started
    /// and has ended now.
    pub(crate) fn end(&mut self, is_account_wanted: bool, has_ended: bool, notify: Notify<'_>) {
        if has_ended {
            self.worker.send(PROGRAM_ENDED);
        }
        self.worker.cancel();
        if is_account_wanted && !self.worker.wait_complete(ACCOUNT_TIME).unwrap_or(false) {
            notify("there is no account: the worker has not written it in time");
        }
        if !self.worker.wait_end(END_TIME).unwrap_or(false) {
            tracing::info!("the prefetch process still waits for a device, and is left to it");
        }
    }
}

fn work(
    request: &Request,
    mut results: ResultPipe,
    cancelled: CancelToken,
    notify: Notify<'_>,
    explain: &dyn Fn(&Error) -> String,
) {
    if let Err(error) = prefetch(request, &mut results, cancelled, notify) {
        // The caller may have ended: then the pipe has no reader.
        drop(results.write_all(&[FAILED]).and_then(|()| results.write_all(explain(&error).as_bytes())));
    }
}

fn prefetch(request: &Request, results: &mut ResultPipe, cancelled: CancelToken, notify: Notify<'_>) -> Result<()> {
    if request.yields {
        ahead_fetch::set_before_request(YieldToReaders::default());
    }
    let root = request.root.as_deref().map_or_else(|| Ok(Root::default()), Root::at)?;
    let loaded = match &request.profile {
        ProfileFile::Named(path) => ahead_files::load(path)?,
        ProfileFile::OfCommand(command) => store::load_for(command)?,
        ProfileFile::Listed(list) => return prefetch_list(request, list.clone(), &root, results, cancelled, notify),
    };
    // Before the message that the profile is loaded: after that, the caller waits only for devices of the profile.
    let descriptions = find_descriptions(request, &loaded, &root, notify)?;
    if let Some(account) = not_worth_it(request, &loaded) {
        let _ = results.write_all(&[LOADED, STARTED]);
        return hand_over(request, results, &account);
    }
    let turn = node::take_turn(&loaded);
    if matches!(turn, RankTurn::Others) {
        let mut account = Account::default();
        account.skip(Reason::ByOthers, loaded.data_bytes());
        let _ = results.write_all(&[LOADED, STARTED]);
        return hand_over(request, results, &account);
    }
    // A failed write means that the caller has ended, which cancels the work.
    let _ = results.write_all(&[LOADED]);
    let used_bytes = loaded.data_bytes();
    let prefetcher = Replay::new(loaded).root(root).descriptions(descriptions).options(request.options.clone());
    prefetcher.reserve_descriptors();
    let running = prefetcher.start()?;
    let stopping = Stopping::when(cancelled, request.options.program.clone());
    stopping.applies_to(running.stopper());
    let account = finish(request, running, &stopping, results, Resolved::default(), notify)?;
    drop(turn);
    if account.stale_bytes > used_bytes / 2 {
        request.leave_note(Verdict::Stale { stale_bytes: account.stale_bytes, used_bytes });
    }
    Ok(())
}

/// The account where the program waits for less than a prefetch costs: nothing is prefetched, and the next start finds a note.
fn not_worth_it(request: &Request, profile: &Profile) -> Option<Account> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let worth = request.starts_a_program().then(|| worth(profile, processors))??;
    if worth.is_gain() {
        return None;
    }
    let (waits_us, cost_us) = (worth.waits_us as u64, worth.cost_us as u64);
    request.leave_note(Verdict::NoWaits { waits_us, cost_us });
    let mut account = Account::default();
    account.skip(Reason::NoWaits, profile.data_bytes());
    Some(account)
}

impl Request {
    /// To prefetch a profile. The account is not kept.
    pub fn new(profile: ProfileFile, options: Options) -> Request {
        Request { profile, options, root: None, device: None, account_file: None, send_account: false, yields: false }
    }

    /// Whether a program waits for the prefetch (`ahead run`).
    fn starts_a_program(&self) -> bool {
        self.options.program.is_some() && self.options.head_start != HeadStart::None
    }

    /// Leaves a note for the next start. Only the store has notes: a profile that the user names may lie anywhere.
    fn leave_note(&self, verdict: Verdict) {
        if let ProfileFile::OfCommand(command) = &self.profile {
            note::write(&store::profile_path_for(command, None), Some(verdict));
        }
    }
}

/// Looks up the files of a list, and prefetches those that are there.
fn prefetch_list(
    request: &Request,
    list: List,
    root: &Root,
    results: &mut ResultPipe,
    cancelled: CancelToken,
    notify: Notify<'_>,
) -> Result<()> {
    // Before the first thread, and before a lookup, which may take long: it gives up file systems that do not answer by itself.
    reserve_descriptors(list.files().len());
    let _ = results.write_all(&[LOADED]);
    let stopping = Stopping::when(cancelled, request.options.program.clone());
    let mut resolved = resolve(list, root, &request.options, || stopping.has_begun())?;
    resolved.left_out_lines().iter().for_each(|line| notify(line));
    let descriptions = find_descriptions(request, &resolved.profile, root, notify)?;
    let running = Replay::new(std::mem::take(&mut resolved.profile))
        .root(root.clone())
        .descriptions(descriptions)
        .options(request.options.clone())
        .start()?;
    stopping.applies_to(running.stopper());
    finish(request, running, &stopping, results, resolved, notify).map(drop)
}

/// Waits for the end, hands the account over, and returns it. `resolved`: what of a list is not in the profile.
fn finish(
    request: &Request,
    running: Running,
    stopping: &Stopping,
    results: &mut ResultPipe,
    resolved: Resolved,
    notify: Notify<'_>,
) -> Result<Account> {
    if request.options.head_start != HeadStart::None {
        running.hold();
    }
    let _ = results.write_all(&[STARTED]);
    let mut account = running.finish();
    account.add_left_out(resolved.left_out, resolved.holes_bytes);
    // The program does not need the account: an error is not fatal.
    if let Err(error) = hand_over(request, results, &account) {
        notify(&format!("the account is not kept: {error}"));
        return Ok(account);
    }
    // The account that was sent gets the time of the program's end from the receiver.
    if let (Some(file), Some(_), Some(since)) = (&request.account_file, &request.options.program, request.options.since)
        && let Some(ended) = stopping.wait_for_program()
    {
        account.program_us = Some(as_us(ended.saturating_duration_since(since)));
        if let Err(error) = to_json(&account).and_then(|json| output::replace(file, &json)) {
            notify(&format!("the account is without the time of the program: {error}"));
        }
    }
    Ok(account)
}

fn find_descriptions(request: &Request, profile: &Profile, root: &Root, notify: Notify<'_>) -> Result<Descriptions> {
    match request.device.as_deref().map(Descriptions::given) {
        Some(Ok(given)) => return Ok(given),
        Some(Err(why)) if request.options.head_start == HeadStart::None => return Err(Error::Failed(why)),
        Some(Err(why)) => notify(&format!("{why}; using the saved description")),
        None => {}
    }
    Ok(Descriptions::saved(profile, root))
}

fn hand_over(request: &Request, results: &mut ResultPipe, account: &Account) -> Result<()> {
    let json = to_json(account)?;
    if request.send_account {
        results.write_all(&json).map_err(|error| Error::io("send the account", error))?;
    }
    request.account_file.as_deref().map_or(Ok(()), |file| output::replace(file, &json))
}

fn to_json(account: &Account) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(account).map_err(|error| Error::io("write the account", error.into()))
}

/// Stops the work when the caller cancels it: a lookup of names, and then the prefetch.
#[derive(Clone, Debug, Default)]
struct Stopping(Arc<(Mutex<Stop>, Condvar)>);

#[derive(Debug, Default)]
struct Stop {
    has_begun: bool,
    /// No thread waits for the caller.
    is_deaf: bool,
    /// When the program ended.
    program_ended: Option<Instant>,
    stopper: Option<Stopper>,
}

impl Stopping {
    /// Starts a thread that waits for the caller. It ends with the process. If it cannot be started, the work goes on to its end.
    fn when(cancelled: CancelToken, program: Option<Program>) -> Stopping {
        let stopping = Stopping::default();
        let own = stopping.clone();
        let wait = move || {
            cancelled.wait(|number| match number {
                PROGRAM_ENDED => own.lock().program_ended = Some(Instant::now()),
                pid => program.iter().for_each(|program| program.started(pid)),
            });
            let mut stop = own.lock();
            stop.has_begun = true;
            stop.stopper.iter().for_each(Stopper::stop);
            own.0.1.notify_all();
        };
        if let Err(error) = std::thread::Builder::new().name("ahead-cancelled".into()).spawn(wait) {
            tracing::debug!("no thread for cancelling: {error}");
            stopping.lock().is_deaf = true;
        }
        stopping
    }

    fn lock(&self) -> MutexGuard<'_, Stop> {
        self.0.0.lock().ignore_poison()
    }

    /// Waits until the caller cancels the work. Returns when the program ended; `None`: there was none, or the caller has ended before it.
    fn wait_for_program(&self) -> Option<Instant> {
        let waited = self.0.1.wait_while(self.lock(), |stop| !stop.has_begun && !stop.is_deaf);
        waited.ignore_poison().program_ended
    }

    fn has_begun(&self) -> bool {
        self.lock().has_begun
    }

    /// Stops this prefetch, too: at once if the caller has cancelled the work already.
    fn applies_to(&self, stopper: Stopper) {
        let mut stop = self.lock();
        if stop.has_begun {
            stopper.stop();
        }
        stop.stopper = Some(stopper);
    }
}

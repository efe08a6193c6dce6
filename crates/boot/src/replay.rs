//! The replay at the start of the machine.

use super::packages::{self, Known, PACKAGE_PROFILES};
use super::store::BootStore;
use super::{Circumstances, Off};
use ahead::output::system;
use ahead::prefetch::{Account, HeadStart, Options, PrefetchProcess, Priority, ProfileFile, Request, account_lines};
use ahead::{Error, Notify, Result};
use ahead_process::Signals;
use ahead_process::undo::home;
use ahead_profile::Profile;
use ahead_sys::root::Root;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What became of a replay.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// `ahead` leaves this boot alone.
    Off(Off),
    /// This boot is recorded again, without replay.
    Recording,
    /// The hook of the initramfs has started a replay.
    Early,
    /// There is no profile for this root.
    NoProfile,
    /// The profile was prefetched.
    Done(PathBuf, Box<Account>),
}

/// The longest replay. A boot from the slowest disk takes as long without one.
const DEADLINE: Duration = Duration::from_secs(120);

/// The hook of an initramfs creates it: `/run` stays when the root is handed over.
const EARLY: &str = "/run/ahead-replayed-early";

/// The account of that replay (`start-replay`).
const EARLY_ACCOUNT: &str = "/run/initramfs/ahead-replay";
/// It has some twenty short lines.
const MAX_EARLY_ACCOUNT_BYTES: u64 = 64 << 10;

/// The account of the last replay: read when the boot is done.
pub(super) const ACCOUNT: &str = "/run/ahead/boot-replay.json";

/// Prefetches what earlier boots read. Returns when everything is submitted.
///
/// # Errors
/// The profile cannot be used, its file system does not answer, or a signal arrived. The boot goes on without it.
pub fn replay(signals: &Signals, notify: Notify<'_>) -> Result<Replayed> {
    let (began, circumstances) = (Instant::now(), Circumstances::now());
    if let Some(off) = circumstances.off() {
        return Ok(Replayed::Off(off));
    }
    let store = BootStore::here();
    if circumstances.asks_for_recording() || store.state().requested {
        return Ok(Replayed::Recording);
    }
    if Path::new(EARLY).exists() {
        return Ok(Replayed::Early);
    }
    let profile = match store.profile_to_replay() {
        Some(profile) => profile,
        None if save_packages_profile(notify)? => PACKAGES.into(),
        None => return Ok(Replayed::NoProfile),
    };
    // The boot waits for these pages: they are not less urgent than its own reads.
    let options = Options::default().priority(Priority::Normal).head_start(HeadStart::None);
    let options = options.deadline(Some(DEADLINE)).since(Some(began));
    let request = Request::new(ProfileFile::Named(profile.clone()), options).send_account(true);
    let mut process = PrefetchProcess::start(&request, notify, &|error: &Error| error.to_string())?;
    if let Some(signal) = process.wait(signals, began, Some(DEADLINE))? {
        return Err(Error::Stopped(ahead::Stopped(signal)));
    }
    if let Some(why) = process.failure() {
        return Err(Error::Failed(why));
    }
    let account = process.account()?.ok_or_else(|| not_answering(&profile))?;
    // Without it the boot is recorded a little too seldom.
    keep(&account).unwrap_or_else(|error| notify(&error.to_string()));
    Ok(Replayed::Done(profile, Box::new(account)))
}

/// What packages carry, as one profile. The root is not writable yet.
const PACKAGES: &str = "/run/ahead/boot-packages.ahead";
/// Time to look up the packages' files: the boot reads some of these meanwhile.
const LOOKUP_TIME: Duration = Duration::from_secs(10);

/// Saves the packages' profiles for a machine that has recorded no boot yet. Returns whether there is anything to replay.
fn save_packages_profile(notify: Notify<'_>) -> Result<bool> {
    let root = Root::default();
    let packages = packages::load(&root, Path::new(PACKAGE_PROFILES));
    let (mut profile, until) = (Profile::default(), Instant::now() + LOOKUP_TIME);
    packages::add_to(&mut profile, &packages, &Known::new(), &root, until, notify)?;
    if profile.files.is_empty() {
        return Ok(false);
    }
    home::make_directory("replay the profiles of packages", Path::new(home::HOME))?;
    ahead_profile::fit(&mut profile);
    ahead_files::save(&profile, Path::new(PACKAGES))?;
    Ok(true)
}

fn not_answering(profile: &Path) -> Error {
    Error::Failed(format!("{}: its file system does not answer", profile.display()))
}

fn keep(account: &Account) -> Result<()> {
    home::make_directory("keep the account of a boot", Path::new(home::HOME))?;
    let text = serde_json::to_vec(account).map_err(|error| Error::io("write the account", error.into()))?;
    system::replace(Path::new(ACCOUNT), &text)
}

/// The account of this boot's replay, and whether that began before PID 1; `None`: there was none.
pub(super) fn last_account() -> Option<(Account, bool)> {
    let of_unit = || serde_json::from_slice(&std::fs::read(ACCOUNT).ok()?).ok();
    // The unit replays after an early replay has failed.
    let early = || {
        let mut text = String::new();
        File::open(EARLY_ACCOUNT).ok()?.take(MAX_EARLY_ACCOUNT_BYTES).read_to_string(&mut text).ok()?;
        account_lines::from_lines(&text)
    };
    of_unit().map(|account| (account, false)).or_else(|| Some((early()?, true)))
}

//! The observation of a boot, from the start of PID 1's first services until the machine is idle.

use super::decision::{Reason, reason_to_record};
use super::earlier::{Earlier, began_us};
use super::packages::{self, PACKAGE_PROFILES};
use super::replay::last_account;
use super::state::BootState;
use super::store::BootStore;
use super::{Circumstances, Off};
use ahead::output::system;
use ahead::prefetch::{self, Account};
use ahead::record::{Recorder, Scope};
use ahead::{Error, Notify, Result};
use ahead_model::sorting;
use ahead_process::Signals;
use ahead_process::undo::home;
use ahead_profile::{Milestone, MilestoneKind, Profile};
use ahead_sys::root::Root;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What became of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// `ahead` leaves this boot alone.
    Off(Off),
    /// The recordings are recent and fit.
    NotNeeded,
    /// The boot is over: the service was started again later.
    Over,
    /// The machine was shut down, or the service stopped, before the boot was done.
    Interrupted,
    /// Recorded: the reason, the number of files, and the bytes.
    Recorded(Reason, usize, u64),
}

/// Exists when the boot is done. Content: when default.target was reached, microseconds of CLOCK_MONOTONIC; 0: unknown.
const DONE: &str = "/run/ahead/boot-done";
/// The units, by the names under which the service manager knows them.
const RECORD_UNIT: &str = "ahead-boot-record.service";
const TARGET: &str = "default.target";

/// Observes this boot until [`end_observation`] ends it, and keeps what was read.
///
/// # Errors
/// Observing is not permitted or not supported here, or the recording cannot be saved. The boot goes on.
pub fn observe(signals: &Signals, notify: Notify<'_>) -> Result<Learned> {
    let circumstances = Circumstances::now();
    if let Some(off) = circumstances.off() {
        return Ok(Learned::Off(off));
    }
    if Path::new(DONE).exists() {
        return Ok(Learned::Over);
    }
    let store = BootStore::here();
    let state = store.state();
    let Some(reason) = reason_to_record(&circumstances, &state, store.recordings().len()) else {
        // The early boot has a root that is not yet writable: the state is saved when the boot is done.
        return Ok(Learned::NotNeeded);
    };
    let _alone = observe_alone()?;
    let earlier = Earlier::now();
    let recorder = Recorder::default().starts_cold(true);
    let recording = recorder.observe(&Scope::Everything, Some(signals), notify)?;
    let Ok(done) = std::fs::read_to_string(DONE) else { return Ok(Learned::Interrupted) };
    let mut profile = recording.profile;
    let reached_us = done.trim().parse().unwrap_or(0);
    // In a container, files of the host are mounted one by one: the host's metadata does not belong to this boot.
    profile.metadata.retain(|metadata| Path::new(OsStr::from_bytes(&metadata.mount_point)).is_dir());
    let alone = reason == Reason::Requested;
    let replayed = if alone { None } else { store.replayed() };
    let started_us = recording.started_ns / 1000;
    profile = earlier.add_to(profile, started_us, replayed.as_ref())?;
    leave_out_own_program(&mut profile);
    mark_ready(&mut profile, reached_us, started_us);
    let (files, bytes) = (profile.files.len(), profile.data_bytes());
    let packages = packages::digests(&packages::load(&Root::default(), Path::new(PACKAGE_PROFILES)));
    let _lock = store.lock(LOCK_TIME)?;
    store.add(profile, alone)?;
    // After the profile: a recording that was not saved is wanted at the next boot, too.
    store.save_state(&store.state().after_recording(&state, packages))?;
    Ok(Learned::Recorded(reason, files, bytes))
}

/// The lock of the process that observes this boot.
const OBSERVER: &str = "/run/ahead/boot-observe.lock";
/// A trigger of a package manager has the lock of the recordings for some seconds.
const LOCK_TIME: Duration = Duration::from_secs(15);

/// Makes this process the only one that observes this boot: two recordings of one boot would count twice.
fn observe_alone() -> Result<File> {
    let lock = home::open_lock("observe a boot", Path::new(OBSERVER))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Failed(format!("another process observes this boot already; see: fuser -v {OBSERVER}")))
        }
        Err(TryLockError::Error(error)) => Err(Error::io(format!("lock {OBSERVER}"), error)),
    }
}

/// A boot that is not observed runs it at its end, and for the unit's replay, which reads it by itself.
fn leave_out_own_program(profile: &mut Profile) {
    if let Ok(own) = std::env::current_exe() {
        profile.files.retain(|file| file.path != own.as_os_str().as_bytes());
    }
}

/// The end of the early list. `reached_us`: when the target was reached, 0: unknown; `started_us`: when the observation began. Both are times
/// of CLOCK_MONOTONIC.
fn mark_ready(profile: &mut Profile, reached_us: u64, started_us: u64) {
    let time_us = began_us(profile).unwrap_or(0).saturating_add(reached_us).checked_sub(started_us);
    let Some(time_us) = time_us.filter(|time| reached_us > 0 && *time > 0) else { return };
    profile.milestones.push(Milestone { time_us, kind: MilestoneKind::Ready, path: Vec::new(), warm_us: None });
    sorting::sort_by_key(&mut profile.milestones, |milestone| milestone.time_us);
    profile.recording.duration_us = time_us;
}

/// Ends the observation of this boot, and keeps what the replay found. `stale_limit_percent`: more stale bytes make the next boot recorded.
///
/// # Errors
/// The state cannot be saved, or the service manager does not answer.
pub fn end_observation(stale_limit_percent: u32) -> Result<()> {
    if Circumstances::now().off().is_some() {
        return Ok(());
    }
    home::make_directory("end the observation of a boot", Path::new(home::HOME))?;
    system::replace(Path::new(DONE), format!("{}\n", target_reached_us().unwrap_or(0)).as_bytes())?;
    let store = BootStore::here();
    let before = store.recordings();
    let stopped = Command::new("systemctl").args(["stop", RECORD_UNIT]).status();
    stopped.map_err(|error| Error::io(format!("systemctl stop {RECORD_UNIT}"), error))?;
    let _lock = store.lock(LOCK_TIME)?;
    if store.repair()? {
        tracing::warn!("{}: damaged; made again from the recordings", store.profile_path().display());
    }
    // Only now: a boot that was recorded has a new state, and its recording has the files that were stale.
    let (state, is_recorded) = (store.state(), store.recordings() != before);
    let (boots_since_recording, stale_percent) = if is_recorded {
        (0, 0)
    } else {
        (
            state.boots_since_recording.saturating_add(1),
            match last_account() {
                Ok(Some((account, is_early))) => stale_percent(&account, is_early),
                Ok(None) => 0,
                Err(why) => {
                    tracing::warn!("{why}");
                    0
                }
            },
        )
    };
    let stale_limit_percent = Some(stale_limit_percent);
    store.save_state(&BootState { boots_since_recording, stale_percent, stale_limit_percent, ..state })
}

/// When default.target was reached, microseconds of CLOCK_MONOTONIC.
fn target_reached_us() -> Option<u64> {
    let arguments = ["show", "--value", "--property=ActiveEnterTimestampMonotonic", TARGET];
    let shown = Command::new("systemctl").args(arguments).output().ok()?;
    String::from_utf8(shown.stdout).ok()?.trim().parse().ok()
}

/// The share of the profile that no longer fits, percent, rounded up: changed and missing files. Files that an early replay misses may be on
/// file systems that were not mounted yet.
fn stale_percent(account: &Account, is_early: bool) -> u32 {
    let missing = account.skipped.get(&prefetch::Reason::Missing).filter(|_| !is_early);
    let missing_bytes = missing.map_or(0, |skipped| skipped.bytes);
    let all = account.accounted_bytes();
    let stale = account.stale_bytes.saturating_add(missing_bytes).min(all);
    if all == 0 { 0 } else { (u128::from(stale) * 100).div_ceil(u128::from(all)) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_list_ends_where_the_target_was_reached() {
        let mut profile = Profile::default();
        mark_ready(&mut profile, 0, 5_000);
        mark_ready(&mut profile, 4_000, 5_000);
        assert!(profile.milestones.is_empty());
        mark_ready(&mut profile, 9_000, 5_000);
        assert_eq!((profile.milestones[0].time_us, profile.recording.duration_us), (4_000, 4_000));
    }

    #[test]
    fn changed_and_missing_files_are_stale() {
        let mut account = Account::default();
        (account.issued_bytes, account.bridged_bytes) = (120, 20);
        assert_eq!((stale_percent(&Account::default(), false), stale_percent(&account, false)), (0, 0));
        account.stale_bytes = 50;
        account.skip(prefetch::Reason::Missing, 50);
        account.skip(prefetch::Reason::OverBudget, 100);
        assert_eq!((stale_percent(&account, false), stale_percent(&account, true)), (34, 17));
    }
    #[test]
    fn contradictory_account_is_no_overflow() {
        let mut account = Account::default();
        (account.bridged_bytes, account.stale_bytes) = (u64::MAX, u64::MAX);
        (account.already_resident_bytes, account.failed_bytes) = (u64::MAX, u64::MAX);
        account.skip(prefetch::Reason::Missing, u64::MAX);
        assert_eq!(stale_percent(&account, false), 100);
    }
}

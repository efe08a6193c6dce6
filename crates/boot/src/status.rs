//! The state of boots on this machine.

use super::decision::reason_to_record;
use super::packages::{self, PACKAGE_PROFILES};
use super::replay::last_account;
use super::state::BootState;
use super::store::BootStore;
use super::units::{is_installed, systemd_runs};
use super::{Circumstances, Initramfs, Off};
use ahead::Account;
use ahead_sys::root::Root;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What is known about boots.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether the units are enabled.
    pub installed: bool,
    /// Whether systemd, which the units are for, is the service manager.
    pub systemd_runs: bool,
    /// The image of the initramfs; `None`: the units are not enabled, so nothing of ahead belongs into it.
    pub initramfs: Option<Initramfs>,
    /// Why this boot is neither observed nor replayed.
    pub off: Option<Off>,
    /// The recordings of this root file system and kernel.
    pub directory: PathBuf,
    /// The number of kept recordings.
    pub recordings: usize,
    /// The profile that the next boot replays.
    pub profile: Option<PathBuf>,
    /// Why the next boot is recorded; `None`: it is not, because no recording is due, or because nothing records it.
    pub next_recording: Option<String>,
    /// What is known about the last boots.
    pub state: BootState,
    /// The profiles that packages carry.
    pub packages: PackageCounts,
    /// The account of this boot's replay; an error: why it is not known.
    pub account: Result<Option<Account>, String>,
    /// Whether that began before PID 1.
    pub replayed_early: bool,
}

/// The profiles that packages carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PackageCounts {
    /// Those that are used, because no recorded boot includes them yet.
    pub used: usize,
    /// Those that recorded boots include.
    pub learned: usize,
    /// Why others are skipped, with their paths.
    pub skipped: Vec<String>,
}

impl PackageCounts {
    /// For a table: a name and a text in each row.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let PackageCounts { used, learned, skipped } = self;
        let counts = format!("profiles: {used} used, {learned} no longer needed (a recorded boot has them)");
        let counts = (used + learned > 0).then_some(("packages", counts));
        counts.into_iter().chain(skipped.iter().map(|why| ("skipped", why.clone()))).collect()
    }
}

/// The state of boots on this machine. Changes nothing. Reads a few small files, and lists the image of the initramfs.
pub fn status() -> Status {
    let (circumstances, store) = (Circumstances::now(), BootStore::here());
    let (state, recordings) = (store.state(), store.recordings().len());
    let reason = reason_to_record(&circumstances, &state, recordings);
    let profile = store.profile_to_replay();
    let known = profile.as_deref().and_then(BootStore::of_profile).map(|store| store.state().known_packages);
    let known = known.unwrap_or_default();
    let packages = packages::load(&Root::default(), Path::new(PACKAGE_PROFILES));
    let (readable, skipped): (Vec<_>, Vec<_>) = packages.iter().partition(|package| package.files.is_ok());
    let learned = readable.iter().filter(|package| package.is_known(&known)).count();
    let (installed, systemd_runs) = (is_installed(Path::new("/")), systemd_runs());
    let (account, replayed_early) = match last_account() {
        Ok(last) => {
            let (account, replayed_early) = last.unzip();
            (Ok(account), replayed_early)
        }
        Err(why) => (Err(why), None),
    };
    Status {
        installed,
        systemd_runs,
        initramfs: installed.then(Initramfs::here),
        off: circumstances.off(),
        directory: store.directory().to_path_buf(),
        recordings,
        profile,
        next_recording: reason.filter(|_| installed && systemd_runs).map(|reason| reason.text()),
        state,
        packages: PackageCounts {
            used: readable.len() - learned,
            learned,
            skipped: skipped.into_iter().filter_map(|package| package.files.as_ref().err().cloned()).collect(),
        },
        account,
        replayed_early: replayed_early.unwrap_or(false),
    }
}

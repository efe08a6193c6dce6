//! The state of boots on this machine.

use super::decision::{DEFAULT_STALE_PERCENT, reason_to_record};
use super::replay::last_account;
use super::store::{BootStore, State};
use super::units::is_installed;
use super::{Circumstances, Off};
use crate::Account;
use std::path::{Path, PathBuf};

/// What is known about boots.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether the units are enabled.
    pub installed: bool,
    /// Why this boot is neither observed nor replayed.
    pub off: Option<Off>,
    /// The recordings of this root file system and kernel.
    pub directory: PathBuf,
    /// The number of kept recordings.
    pub recordings: usize,
    /// The profile that the next boot replays.
    pub profile: Option<PathBuf>,
    /// Why the next boot is recorded.
    pub next_recording: Option<String>,
    /// What is known about the last boots.
    pub state: State,
    /// The account of this boot's replay.
    pub account: Option<Account>,
}

/// The state of boots on this machine. Changes nothing, and reads a few small files.
pub fn status() -> Status {
    let (circumstances, store) = (Circumstances::now(), BootStore::here());
    let (state, recordings) = (store.state(), store.recordings().len());
    let reason = reason_to_record(&circumstances, &state, recordings, DEFAULT_STALE_PERCENT);
    Status {
        installed: is_installed(Path::new("/")),
        off: circumstances.off(),
        directory: store.directory().to_path_buf(),
        recordings,
        profile: store.profile_to_replay(),
        next_recording: reason.map(|reason| reason.text()),
        state,
        account: last_account(),
    }
}

//! Progress from BPF programs, for root.

use super::{Program, Progress, ProgressSource, Seen};
use ahead_observe::{ProgressEvents, WatchedFile};
use ahead_plan::current_devices::current_device_numbers;
use ahead_plan::window::Flow;
use ahead_profile::Profile;
use ahead_sys::mounts;
use std::time::Duration;

/// Watches the files of a profile.
pub struct Observer {
    events: ProgressEvents,
    program: Program,
    is_following: bool,
}

/// The files with marks, on their current devices. A file that was replaced has another inode, and is not prefetched either.
pub fn files(profile: &Profile, flow: &Flow, root: &[u8]) -> Vec<WatchedFile> {
    let devices = mounts::own().map(|mounts| current_device_numbers(profile, root, &mounts)).unwrap_or_default();
    let watched = |index: &usize| {
        let file = &profile.files[*index];
        let device = *devices.get(&file.device)?;
        Some(WatchedFile { device, inode: file.inode, number: u32::try_from(*index).ok()? })
    };
    flow.of_file.keys().filter_map(watched).collect()
}

impl Observer {
    /// Loads the BPF programs.
    ///
    /// Errors: why there is no observer.
    pub fn start(files: &[WatchedFile], program: Program) -> Result<Observer, String> {
        let events = ProgressEvents::start(files).map_err(|error| error.to_string())?;
        Ok(Observer { events, program, is_following: false })
    }
}

impl Progress for Observer {
    fn source(&self) -> ProgressSource {
        ProgressSource::Observer
    }

    fn events(&mut self, timeout: Duration) -> Result<Vec<Seen>, String> {
        if !self.is_following {
            let Some(pid) = self.program.wait_for_pid(timeout) else { return Ok(Vec::new()) };
            self.events.follow(pid).map_err(|error| error.to_string())?;
            self.is_following = true;
        }
        let found = self.events.poll(timeout).map_err(|error| error.to_string())?;
        let seen = |(file, offset_bytes): (u32, u64)| Seen { file: file as usize, offset_bytes };
        Ok(found.into_iter().map(seen).collect())
    }
}

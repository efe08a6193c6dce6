//! What the store has for all users, read by a worker: which programs are on a disk that seeks, and which are started most often.

use ahead::Profile;
use ahead::device_store::Descriptions;
use ahead_apps::{AppKey, AppStore, UserChoice, too_little_gain};
use ahead_plan::current_devices::current_device_numbers;
use ahead_plan::from_recording;
use ahead_process::Worker;
use ahead_sys::root::Root;
use ahead_sys::{block, mounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Programs that are reported: more than a user starts in a week.
const MOST_FOUND: usize = 512;

/// A program with a profile that is prefetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyedApp {
    pub uid: u32,
    pub gid: u32,
    pub key: AppKey,
    /// Of its file at the last start.
    pub inode: u64,
    /// A device of the profile seeks.
    pub seeks: bool,
    pub starts: u64,
    pub last_use_day: u32,
}

/// The worker.
#[derive(Debug)]
pub struct Survey(Worker);

impl Survey {
    /// Starts to read the store in this directory. `None`, with a message: that is not possible.
    pub fn begin(home: &Path) -> Option<Survey> {
        let worker = Worker::fork(|mut results, _| {
            for app in apps_with_profile(home) {
                // The service may have ended.
                let _ = serde_json::to_vec(&app).map(|line| results.write_all(&[&line[..], b"\n"].concat()));
            }
        });
        worker.inspect_err(|error| tracing::warn!("the store is not read: {error}")).ok().map(Survey)
    }

    /// What was found, the most recently started first. `None`: it is not over.
    pub fn found(&mut self) -> Option<Vec<SurveyedApp>> {
        self.0.receive();
        let lines = self.0.received().split(|byte| *byte == b'\n');
        let is_over = self.0.is_complete() && self.0.has_ended();
        is_over.then(|| lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// For poll(2).
    pub fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.streams().into_iter()
    }
}

fn apps_with_profile(home: &Path) -> Vec<SurveyedApp> {
    ahead_process::end_by_signals();
    let Ok(Some(store)) = AppStore::open(home) else { return Vec::new() };
    let mut found = Vec::new();
    for user in store.users().into_iter().filter_map(|user| store.user(user).ok()?).filter(|user| !user.is_off()) {
        for app in user.apps() {
            let is_left_out = match app.choice {
                UserChoice::None => too_little_gain(&app.history).is_some(),
                UserChoice::Pinned => false,
                UserChoice::Excluded => true,
            };
            let Some(profile) = (!is_left_out).then(|| user.profile(&app)).flatten() else { continue };
            found.push(SurveyedApp {
                uid: user.user(),
                gid: user.group(),
                key: app.key,
                inode: app.history.version.inode,
                seeks: seeks(&profile),
                starts: app.history.starts,
                last_use_day: app.history.last_use_day,
            });
        }
    }
    found.sort_by_key(|app| std::cmp::Reverse(app.last_use_day));
    found.truncate(MOST_FOUND);
    found
}

/// Whether a device of a profile seeks: by its saved description, or else by the recording, or by what the kernel says.
pub fn seeks(profile: &Profile) -> bool {
    let descriptions = Descriptions::saved(profile, &Root::default());
    let numbers = current_device_numbers(profile, b"", &mounts::own().unwrap_or_default());
    let mut devices: BTreeMap<u64, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    profile.files.iter().enumerate().for_each(|(at, file)| devices.entry(file.device).or_default().0.push(at));
    profile.metadata.iter().enumerate().for_each(|(at, it)| devices.entry(it.device).or_default().1.push(at));
    devices.into_iter().any(|(recorded, (files, metadata))| {
        let number = numbers.get(&recorded).copied();
        let rotates = number.and_then(|number| block::disk_setting(number, "rotational")).map(|setting| setting == "1");
        let described = descriptions.of(number).map(|known| known.description);
        let described = described.or_else(|| from_recording::description(profile, &files, &metadata, rotates));
        described.map_or(rotates == Some(true), |description| description.seeks())
    })
}

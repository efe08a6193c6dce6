//! Disks by the device number of a file system: setting, largest request, speed.

use super::mount_points::table_of;
use super::setting::{self, DiskSetting};
use super::speed::Speed;
use ahead_model::{DeviceNumber, PAGE_BYTES};
use ahead_policy::steering::Target;
use ahead_sys::mounts::{self, Mount};
use ahead_sys::within::Patience;
use ahead_sys::{bdi, block};
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};

/// Largest number of disks that are known at a time. Mounts come and go.
const MOST: usize = 256;

/// Largest request of a disk without a queue: the initial window of a backing device (`VM_READAHEAD_PAGES`). Unit: KiB.
const USUAL_REQUEST_KB: u64 = 128;

/// A disk, or a file system without one.
#[derive(Debug)]
pub(super) struct Disk {
    /// Index of its setting; several file systems may share one. `None`: it has none.
    pub setting: Option<usize>,
    pub request_pages: u64,
    pub speed: Speed,
    /// A close of a taken descriptor may wait or write.
    pub acts_on_close: bool,
}

/// The known disks.
#[derive(Debug, Default)]
pub(super) struct Disks {
    by_device: FxHashMap<DeviceNumber, Disk>,
    settings: Vec<(PathBuf, DiskSetting)>,
    is_noted: bool,
}

impl Disks {
    /// `is_noted`: a setting is noted when its disk is first seen, so that the first act does not wait for the note.
    pub(super) fn new(is_noted: bool) -> Disks {
        Disks { is_noted, ..Disks::default() }
    }

    /// The disk of an open file.
    pub(super) fn of(&mut self, target: &Target, patience: &mut Patience) -> &mut Disk {
        if !self.by_device.contains_key(&target.device) {
            if self.by_device.len() >= MOST {
                self.forget_all();
            }
            let disk = self.look_up(target, patience);
            self.by_device.insert(target.device, disk);
        }
        self.by_device.get_mut(&target.device).expect("it was inserted")
    }

    /// The speed of a disk that is known.
    pub(super) fn speed(&mut self, device: DeviceNumber) -> Option<&mut Speed> {
        self.by_device.get_mut(&device).map(|disk| &mut disk.speed)
    }

    pub(super) fn setting(&mut self, index: usize) -> &mut DiskSetting {
        &mut self.settings[index].1
    }

    /// The notes of changes that are over are settled.
    pub(super) fn settle(&mut self) {
        self.settings.iter_mut().for_each(|(_, setting)| setting.settle());
    }

    /// Looks every disk up again: a setting does not work any more. Notes are removed.
    pub(super) fn forget_all(&mut self) {
        self.by_device.clear();
        self.settings.clear();
    }

    fn look_up(&mut self, target: &Target, patience: &mut Patience) -> Disk {
        let device = target.device;
        let mount = mount_of(target, patience);
        let sys = Path::new("/sys");
        let governing = match &mount {
            Some(mount) => bdi::governing_mount(sys, mount),
            None => bdi::governing(sys, device),
        };
        let setting = governing.and_then(|(_, path)| self.open_setting(path));
        let request_kb = block::disk_setting(device, "max_sectors_kb").and_then(|text| text.parse().ok());
        let is_rotating = block::disk_setting(device, "rotational").is_some_and(|text| text == "1");
        Disk {
            setting,
            request_pages: (request_kb.unwrap_or(USUAL_REQUEST_KB) * 1024 / PAGE_BYTES).max(1),
            speed: Speed::new(is_rotating),
            // A block device that is read directly has no mount.
            acts_on_close: match mount {
                Some(mount) => !mount.kind().is_quiet_on_close(),
                None => device.is_anonymous(),
            },
        }
    }

    fn open_setting(&mut self, path: PathBuf) -> Option<usize> {
        let path = path.canonicalize().unwrap_or(path);
        if let Some(index) = self.settings.iter().position(|(known, _)| *known == path) {
            return Some(index);
        }
        let opened = DiskSetting::open(&path);
        match opened.and_then(|setting| if self.is_noted { setting.with_note(setting::note) } else { Ok(setting) }) {
            Ok(setting) => self.settings.push((path, setting)),
            Err(error) => {
                tracing::warn!("windows are not set on this disk: {error}");
                return None;
            }
        }
        Some(self.settings.len() - 1)
    }
}

/// A mount of the file system: in our namespace, or in that of the process.
fn mount_of(target: &Target, patience: &mut Patience) -> Option<Mount> {
    let is_it = |mount: &Mount| mount.device == target.device;
    let own = mounts::own().ok()?.into_iter().find(is_it);
    own.or_else(|| table_of(target.pid, patience)?.into_iter().find(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_of_a_file_has_its_largest_request() {
        let here = rustix::fs::stat(env!("CARGO_MANIFEST_DIR")).unwrap().st_dev;
        let target = Target { pid: std::process::id(), device: DeviceNumber::from_stat(here), ..Target::default() };
        let (mut disks, mut patience) = (Disks::default(), Patience::new(std::time::Duration::from_secs(60), 1));
        let disk = disks.of(&target, &mut patience);
        assert!(disk.request_pages >= 1 && disk.speed.description().access_ns > 0);
        let nowhere = Target { device: DeviceNumber::new(4095, 1), ..target };
        let disk = disks.of(&nowhere, &mut patience);
        assert!(disk.setting.is_none() && !disk.acts_on_close);
        assert!(disks.of(&Target { device: DeviceNumber::new(0, 999_999), ..target }, &mut patience).acts_on_close);
        assert!(disks.speed(nowhere.device).is_some());
        disks.forget_all();
        assert!(disks.speed(nowhere.device).is_none());
    }
}

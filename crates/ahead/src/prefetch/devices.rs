//! The devices of a profile, and what it lists on each.

use crate::prefetch::Options;
use crate::prefetch::account::{DescriptionSource, UsedDevice};
use ahead_model::{DeviceDescription, DeviceNumber};
use ahead_plan::{Piece, Source, from_recording};
use ahead_profile::Profile;
use ahead_sys::{block, mounts};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One device, by the number that it had when the profile was recorded.
#[derive(Debug)]
pub struct Device {
    /// What it is like, as far as is known before its first read.
    pub description: DeviceDescription,
    /// Where that comes from.
    source: DescriptionSource,
    /// The file of a description that was given or saved.
    file: Option<PathBuf>,
    /// Its number today.
    number: Option<DeviceNumber>,
    /// What it is taken for if its description is discarded, and where that comes from.
    fallback: (DeviceDescription, DescriptionSource),
    /// The pieces to fetch; the thread that plans takes them.
    pieces: Mutex<Vec<Piece>>,
    /// Indices into `profile.metadata`.
    pub metadata: Vec<usize>,
    /// Indices into `profile.files`.
    pub files: Vec<usize>,
    /// Indices into `profile.lookups`.
    pub lookups: Vec<usize>,
    /// How much of it may be fetched.
    pub budget_bytes: u64,
}

impl Device {
    /// What it is taken for, as the account has it.
    pub fn used(&self) -> UsedDevice {
        UsedDevice {
            device: self.number.map(|number| number.to_string()),
            description_file: self.file.as_ref().map(|path| path.display().to_string()),
            ..UsedDevice::new(&self.description, self.source)
        }
    }

    /// Whether its description comes from a file, so that its first reads may contradict it.
    pub fn is_described(&self) -> bool {
        self.file.is_some()
    }

    /// What it is taken for if its description is discarded.
    pub fn fallback(&self) -> DeviceDescription {
        self.fallback.0
    }

    /// The same as [`Device::used`] once its description is discarded.
    pub fn used_without_description(&self, why: String) -> UsedDevice {
        let (description, source) = &self.fallback;
        let fallback = UsedDevice::new(description, *source);
        let UsedDevice { device, description_file, .. } = self.used();
        UsedDevice { device, description_file, discarded: Some(why), ..fallback }
    }

    /// To look at what is to be fetched, or to take it.
    pub fn pieces(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of them, in order of their numbers.
#[derive(Debug)]
pub struct Devices {
    all: Vec<Device>,
    by_number: BTreeMap<u64, usize>,
}

impl Devices {
    /// Of a profile and its pieces. Nothing is opened.
    pub fn new(profile: &Profile, pieces: Vec<Piece>, options: &Options, mut budget_bytes: u64) -> Devices {
        let numbers = pieces.iter().map(|piece| number_of(profile, piece.source));
        let numbers = numbers.chain(profile.lookups.iter().map(|lookup| lookup.device));
        let mut by_number: BTreeMap<u64, usize> = numbers.map(|number| (number, 0)).collect();
        for (index, known) in by_number.values_mut().enumerate() {
            *known = index;
        }
        let empty = || Device {
            description: DeviceDescription::FLASH,
            source: DescriptionSource::Assumed,
            file: None,
            number: None,
            fallback: (DeviceDescription::FLASH, DescriptionSource::Assumed),
            pieces: Mutex::default(),
            metadata: Vec::new(),
            files: Vec::new(),
            lookups: Vec::new(),
            budget_bytes: 0,
        };
        let mut all: Vec<Device> = by_number.values().map(|_| empty()).collect();
        // What has nothing to be fetched may lie on a device that is not among them.
        let mut list = |number: u64, index: usize, of: fn(&mut Device) -> &mut Vec<usize>| {
            if let Some(device) = by_number.get(&number) {
                of(&mut all[*device]).push(index);
            }
        };
        profile.metadata.iter().enumerate().for_each(|(index, m)| list(m.device, index, |device| &mut device.metadata));
        profile.files.iter().enumerate().for_each(|(index, f)| list(f.device, index, |device| &mut device.files));
        profile.lookups.iter().enumerate().for_each(|(index, l)| list(l.device, index, |device| &mut device.lookups));
        for piece in pieces {
            let device = &mut all[by_number[&number_of(profile, piece.source)]];
            device.pieces.get_mut().unwrap_or_else(PoisonError::into_inner).push(piece);
        }
        let today = mounts::own()
            .map(|mounts| ahead_plan::current_devices::current_device_numbers(profile, &mounts))
            .unwrap_or_default();
        let mut known = BTreeMap::new();
        for (number, index) in &by_number {
            let device = &mut all[*index];
            let ask = |number| *known.entry(number).or_insert_with(|| rotates(number));
            device.number = today.get(number).copied();
            let rotates = device.number.and_then(ask);
            device.fallback = match from_recording::description(profile, &device.files, &device.metadata, rotates) {
                Some(recorded) => (recorded, DescriptionSource::Recording),
                None if rotates == Some(true) => (DeviceDescription::ROTATING, DescriptionSource::Assumed),
                None => (DeviceDescription::FLASH, DescriptionSource::Assumed),
            };
            (device.description, device.source) = device.fallback;
            if let Some(known) = options.descriptions.of(device.number) {
                let source = if known.is_given { DescriptionSource::Given } else { DescriptionSource::Saved };
                (device.description, device.source) = (known.description, source);
                device.file = Some(known.path.clone());
            }
            device.budget_bytes = budget_bytes;
            let planned_bytes = ahead_plan::planned_bytes(&device.pieces(), budget_bytes);
            budget_bytes = budget_bytes.saturating_sub(planned_bytes);
        }
        Devices { all, by_number }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> &Device {
        &self.all[index]
    }

    /// Which of them holds this.
    pub fn of(&self, profile: &Profile, source: Source) -> usize {
        self.by_number[&number_of(profile, source)]
    }

    /// What they are taken for.
    pub fn used(&self) -> impl Iterator<Item = UsedDevice> {
        self.all.iter().map(Device::used)
    }

    /// Whether order does not matter on any.
    pub fn are_by_first_use(&self) -> bool {
        !self.all.iter().any(|device| device.description.seeks())
    }
}

/// The recorded number of a source's device.
pub fn number_of(profile: &Profile, source: Source) -> u64 {
    match source {
        Source::Metadata(index) => profile.metadata[index].device,
        Source::File(index) => profile.files[index].device,
    }
}

/// Whether the kernel reports that the disk with this number rotates. `None`: it is no disk.
fn rotates(device: DeviceNumber) -> Option<bool> {
    let setting = block::disk_setting(device, "rotational")?;
    Some(setting == "1")
}

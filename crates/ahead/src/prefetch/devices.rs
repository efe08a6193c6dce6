//! The devices of a profile, with the pieces and lookups on each.

use crate::device_store::Descriptions;
use crate::prefetch::account::{DescriptionSource, Order, UsedDevice};
use ahead_model::mounts::{Mount, covering};
use ahead_model::{DeviceDescription, DeviceNumber, sorting};
use ahead_plan::current_devices::current_device_numbers;
use ahead_plan::{Piece, Source, from_recording};
use ahead_profile::{Lookup, Profile};
use ahead_sys::locks::IgnorePoison;
use ahead_sys::root::Root;
use ahead_sys::{block, mounts};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// A device, identified by its number at the recording.
#[derive(Debug)]
pub struct Device {
    /// Its description before the first read.
    pub description: DeviceDescription,
    /// The source of the description.
    source: DescriptionSource,
    /// The file of a given or saved description.
    file: Option<PathBuf>,
    /// Its current number.
    number: Option<DeviceNumber>,
    /// The description to use if this one is discarded, and its source.
    fallback: (DeviceDescription, DescriptionSource),
    /// The pieces to prefetch. The planning thread takes them.
    pieces: Mutex<Vec<Piece>>,
    /// Indices into `profile.metadata`.
    pub metadata: Vec<usize>,
    /// Indices into `profile.files`.
    pub files: Vec<usize>,
    /// Indices into `profile.lookups`: without names that did not exist on a file system whose server may take minutes to answer so.
    pub lookups: Vec<usize>,
    /// Its part of the budget, bytes.
    pub budget_bytes: u64,
    /// It is read by first use although it seeks, because memory is scarce.
    low_memory: bool,
}

impl Device {
    /// Its entry in the account.
    pub fn used(&self) -> UsedDevice {
        UsedDevice {
            device: self.number.map(|number| number.to_string()),
            description_file: self.file.as_ref().map(|path| path.display().to_string()),
            ..self.used_as(&self.description, self.source)
        }
    }

    fn used_as(&self, description: &DeviceDescription, source: DescriptionSource) -> UsedDevice {
        let used = UsedDevice::new(description, source);
        if self.low_memory { UsedDevice { order: Order::ByFirstUse, ..used } } else { used }
    }

    /// Whether its description comes from a file, so that its first reads may contradict it.
    pub fn is_described(&self) -> bool {
        self.file.is_some()
    }

    /// The description to use if its own is discarded.
    pub fn fallback(&self) -> DeviceDescription {
        self.fallback.0
    }

    /// Its entry in the account after its description was discarded.
    pub fn used_without_description(&self, why: String) -> UsedDevice {
        let (description, source) = &self.fallback;
        let fallback = self.used_as(description, *source);
        let UsedDevice { device, description_file, .. } = self.used();
        UsedDevice { device, description_file, discarded: Some(why), ..fallback }
    }

    /// Its current number; `None`: unknown.
    pub fn number(&self) -> Option<DeviceNumber> {
        self.number
    }

    /// Locks the pieces to prefetch.
    pub fn pieces(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().ignore_poison()
    }
}

/// All devices of a profile, in order of their numbers.
#[derive(Debug)]
pub struct Devices {
    all: Vec<Device>,
    by_number: BTreeMap<u64, usize>,
}

impl Devices {
    /// The devices of a profile and its pieces. Opens no file.
    pub fn new(
        profile: &Profile,
        pieces: Vec<Piece>,
        root: &Root,
        descriptions: &Descriptions,
        low_memory: bool,
        mut budget_bytes: u64,
    ) -> Devices {
        let mounts = mounts::own().unwrap_or_default();
        let lookups = needed_lookups(profile, &mounts, |path| root.outer(path));
        let numbers = pieces.iter().map(|piece| number_of(profile, piece.source));
        let numbers = numbers.chain(lookups.iter().map(|index| profile.lookups[*index].device));
        let mut by_number: BTreeMap<u64, usize> = sorting::map_of(numbers.map(|number| (number, 0)));
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
            low_memory,
        };
        let mut all: Vec<Device> = by_number.values().map(|_| empty()).collect();
        // Files without pieces may be on a device that is not in the list.
        let mut list = |number: u64, index: usize, of: fn(&mut Device) -> &mut Vec<usize>| {
            if let Some(device) = by_number.get(&number) {
                of(&mut all[*device]).push(index);
            }
        };
        profile.metadata.iter().enumerate().for_each(|(index, m)| list(m.device, index, |device| &mut device.metadata));
        profile.files.iter().enumerate().for_each(|(index, f)| list(f.device, index, |device| &mut device.files));
        lookups.iter().for_each(|index| list(profile.lookups[*index].device, *index, |device| &mut device.lookups));
        for piece in pieces {
            let device = &mut all[by_number[&number_of(profile, piece.source)]];
            device.pieces.get_mut().ignore_poison().push(piece);
        }
        let today = current_device_numbers(profile, &root.outer(b""), &mounts);
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
            if let Some(known) = descriptions.of(device.number) {
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

    /// The number of devices.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Their current numbers, as far as known.
    pub fn numbers(&self) -> impl Iterator<Item = Option<DeviceNumber>> {
        self.all.iter().map(Device::number)
    }

    /// The device with this index.
    pub fn get(&self, index: usize) -> &Device {
        &self.all[index]
    }

    /// The index of the device that has this source.
    pub fn of(&self, profile: &Profile, source: Source) -> usize {
        self.by_number[&number_of(profile, source)]
    }

    /// Their entries in the account.
    pub fn used(&self) -> impl Iterator<Item = UsedDevice> {
        self.all.iter().map(Device::used)
    }

    /// Whether all devices are read by first use, because none seeks or memory is scarce.
    pub fn are_by_first_use(&self) -> bool {
        !self.all.iter().any(|device| device.description.seeks() && !device.low_memory)
    }
}

/// The lookups to repeat, as indices into `profile.lookups`. A name that did not exist saves at most one read of a directory. Where a server,
/// another process or an automounter answers for it, each may take minutes, and they are left out. `outer`: a path of the profile as this
/// process sees it.
fn needed_lookups(profile: &Profile, mounts: &[Mount], outer: impl Fn(&[u8]) -> Vec<u8>) -> Vec<usize> {
    let all = || 0..profile.lookups.len();
    if !mounts.iter().any(|mount| mount.kind().is_answered_by_others()) {
        return all().collect();
    }
    let is_needed = |lookup: &Lookup| {
        let at = || covering(mounts, &outer(&lookup.path));
        lookup.inode != 0 || !at().is_some_and(|index| mounts[index].kind().is_answered_by_others())
    };
    all().filter(|index| is_needed(&profile.lookups[*index])).collect()
}

/// The recorded number of a source's device.
pub fn number_of(profile: &Profile, source: Source) -> u64 {
    match source {
        Source::Metadata(index) => profile.metadata[index].device,
        Source::File(index) => profile.files[index].device,
    }
}

/// Whether the kernel reports that the disk with this number rotates. `None`: it is not a disk.
fn rotates(device: DeviceNumber) -> Option<bool> {
    let setting = block::disk_setting(device, "rotational")?;
    Some(setting == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_model::mounts;

    /// Regression: names that did not exist were looked up again below automounters and on servers, and each waited for the answer.
    #[test]
    fn missing_names_are_looked_up_on_local_file_systems_only() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /net rw - autofs auto rw\n3 1 0:51 / /srv rw - nfs4 s:/x rw\n\
            4 3 8:2 / /srv/local rw - xfs /dev/sdb1 rw\n5 1 0:52 / /home/me/remote rw - fuse.sshfs me@s: rw\n";
        let mounts = mounts::parse(table).unwrap();
        let lookup = |(path, inode): &(&str, u64)| Lookup {
            path: path.as_bytes().to_vec().into(),
            inode: *inode,
            ..Lookup::default()
        };
        let names = [
            ("/usr/x", 0),
            ("/net/host/x", 0),
            ("/srv/x", 0),
            ("/srv/local/x", 0),
            ("/home/me/remote/x", 0),
            ("/srv/y", 7),
        ];
        let profile = Profile { lookups: names.iter().map(lookup).collect(), ..Profile::default() };
        assert_eq!(needed_lookups(&profile, &mounts, <[u8]>::to_vec), [0, 3, 5]);
        let below = |path: &[u8]| [b"/net", path].concat();
        assert_eq!(needed_lookups(&profile, &mounts, below), [5]);
        assert_eq!(needed_lookups(&profile, &mounts[..1], <[u8]>::to_vec), [0, 1, 2, 3, 4, 5]);
    }
}

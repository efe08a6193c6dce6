//! What a device is like, as far as order and merging depend on it.
//!
//! Known from the recording itself where it was cold and exact: the time between two uses far apart on the disk is then
//! an access of that very disk, and one between two uses close together tells whether distance matters, that is, whether
//! something seeks. Nothing is read to find out. `rotational` in sysfs, which lies on virtual machines, is a hint, and is
//! believed only where the recording cannot tell.
use ahead_profile::{Precision, Profile};
use serde::{Deserialize, Serialize};

/// In which order a device is best read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Ascending on the disk: it seeks.
    ByPosition,
    /// As the program will ask: it does not.
    ByFirstUse,
}

/// What a device is like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceTraits {
    /// In which order it is best read.
    pub order: Order,
    /// Time for a small read away from the last one, microseconds.
    pub access_us: f64,
    /// Sequential bandwidth, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Requests that it works on at a time.
    pub parallelism: u32,
}

/// How far requests are joined across what nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bridging {
    /// Gaps up to this are read through, bytes.
    pub max_gap_bytes: u64,
    /// Gaps may make up this share of all that is fetched; the smallest are bridged first.
    pub max_share: f64,
}

impl DeviceTraits {
    /// A rotating disk: 7200 rpm, an average access. The bandwidth is that of its middle.
    pub const ROTATING: DeviceTraits =
        DeviceTraits { order: Order::ByPosition, access_us: 12_000.0, bandwidth_bytes_per_s: 120e6, parallelism: 1 };

    /// A SATA solid-state disk, the slowest kind that needs no order. Faster ones lose nothing by being taken for it.
    pub const FLASH: DeviceTraits =
        DeviceTraits { order: Order::ByFirstUse, access_us: 100.0, bandwidth_bytes_per_s: 500e6, parallelism: 16 };

    /// How to bridge. On a rotating disk the platter passes under a small gap whether it is read or not: reading through
    /// saves the command and costs memory. Elsewhere a gap costs its bytes, and the saving is one request, that is about
    /// 20 us of the processor (system call, block layer, interrupt): two or three pages at 500 MB/s.
    pub fn bridging(&self) -> Bridging {
        match self.order {
            // A fifth, not the quarter that we allow ourselves in all: some of the used pages will be resident.
            Order::ByPosition => Bridging { max_gap_bytes: 128 << 10, max_share: 0.20 },
            Order::ByFirstUse => Bridging { max_gap_bytes: 16 << 10, max_share: 0.04 },
        }
    }

    /// What one request adds to the time of a full queue, microseconds, its bytes apart.
    pub fn request_us(&self) -> f64 {
        self.access_us / f64::from(self.parallelism.max(1))
    }

    /// What a request of these bytes takes of a full queue's time, microseconds.
    pub fn step_us(&self, bytes: u64) -> f64 {
        self.request_us() + self.transfer_us(bytes)
    }

    /// What these bytes take, microseconds.
    pub fn transfer_us(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bandwidth_bytes_per_s * 1e6
    }
}

/// One use of a device in the recording.
#[derive(Clone, Copy, Debug)]
struct Use {
    time_us: u64,
    position_bytes: u64,
    end_bytes: u64,
}

/// Uses further apart than this are far: two tracks of a large disk, so that the arm has moved. Bytes.
const FAR_BYTES: u64 = 8 << 20;

/// Uses within this distance ahead are near: on one track of any disk, and in the buffer of one that reads on. Bytes.
const NEAR_BYTES: u64 = 64 << 10;

/// Extents up to this are taken for one access, bytes.
const SHORT_BYTES: u64 = 8192;

/// Fewer far accesses than this tell nothing.
const MIN_SAMPLES: usize = 16;

/// A use that was followed by at least this time waited for a mechanism: more than any flash disk or network volume in
/// one zone takes, less than the shortest mean access of a rotating disk (5 ms at 15,000 rpm). Microseconds.
const SLOW_US: u64 = 3000;

/// This share of slow far uses is proof enough. The others found their page in the cache, or in the buffer of a drive that
/// reads on.
const PROOF: f64 = 0.25;

/// This share is, too, if the kernel also says that the disk rotates: a listing finds most inodes read with their
/// neighbours.
const HINT: f64 = 0.1;

/// Far uses are slow this much more often than near ones if something seeks; a slow network volume is slow for both.
const SEEK_RATIO: f64 = 1.5;

/// What the recording tells about the device of these files and metadata (indices into the profile); `None`: it was not exact
/// and cold, or too short. `rotates`: what the kernel says, if it does.
///
/// ```text
///     time      ─u0────────u1───────────────u2──▶     a use is noted when it begins:
///     position    ╰distance╯╰────elapsed────╯         the time after u1 is the access that its distance from u0 caused
/// ```
pub fn from_recording(
    profile: &Profile,
    files: &[usize],
    metadata: &[usize],
    rotates: Option<bool>,
) -> Option<DeviceTraits> {
    let recording = &profile.recording;
    if !recording.cold || recording.precision != Precision::Precise {
        return None;
    }
    let mut uses: Vec<Use> = uses_of(profile, files, metadata).collect();
    uses.sort_by_key(|u| u.time_us);
    let (mut near, mut far) = (Vec::new(), Vec::new());
    // A long extent was read page by page: the time to the next one would not be that of one access.
    for uses in uses.windows(3).filter(|uses| uses[1].end_bytes - uses[1].position_bytes <= SHORT_BYTES) {
        let elapsed = uses[2].time_us - uses[1].time_us;
        let forward = uses[1].position_bytes.checked_sub(uses[0].end_bytes);
        if uses[1].position_bytes.abs_diff(uses[0].end_bytes) >= FAR_BYTES {
            far.push(elapsed);
        } else if forward.is_some_and(|distance| distance <= NEAR_BYTES) {
            near.push(elapsed);
        }
    }
    if far.len() < MIN_SAMPLES {
        return None;
    }
    // Near uses are slow, too, where the arm went elsewhere for something in between (lookups of `git status`): where the
    // kernel says that the disk rotates, and far uses are slow, they are not asked.
    let seeks = match rotates {
        Some(true) => slow_share(&far) >= HINT,
        _ => slow_share(&far) >= PROOF && slow_share(&far) >= SEEK_RATIO * slow_share(&near),
    };
    // Half of the uses and more may have found their page: not the middle of all, but of those that waited.
    far.retain(|elapsed| !seeks || *elapsed >= SLOW_US);
    let waited = if seeks { far.len() / 2 } else { far.len() * 3 / 4 };
    let (_, access_us, _) = far.select_nth_unstable(waited);
    let like = if seeks { DeviceTraits::ROTATING } else { DeviceTraits::FLASH };
    Some(DeviceTraits { access_us: *access_us as f64, ..like })
}

fn slow_share(elapsed_us: &[u64]) -> f64 {
    let slow = elapsed_us.iter().filter(|elapsed| **elapsed >= SLOW_US).count();
    if elapsed_us.is_empty() { 0.0 } else { slow as f64 / elapsed_us.len() as f64 }
}

fn uses_of(profile: &Profile, files: &[usize], metadata: &[usize]) -> impl Iterator<Item = Use> {
    let data = files.iter().flat_map(|index| &profile.files[*index].extents);
    let metadata = metadata.iter().flat_map(|index| &profile.metadata[*index].extents);
    data.chain(metadata).filter_map(|extent| {
        let position_bytes = extent.physical_bytes?;
        let end_bytes = position_bytes.saturating_add(extent.length_bytes);
        Some(Use { time_us: extent.first_use_us, position_bytes, end_bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_device(profile: &Profile, device: u64, rotates: Option<bool>) -> Option<DeviceTraits> {
        let files = profile.files.iter().enumerate().filter(|(_, file)| file.device == device);
        let metadata = profile.metadata.iter().enumerate().filter(|(_, metadata)| metadata.device == device);
        let (files, metadata): (Vec<_>, Vec<_>) =
            (files.map(|(at, _)| at).collect(), metadata.map(|(at, _)| at).collect());
        from_recording(profile, &files, &metadata, rotates)
    }
    use ahead_profile::{Extent, File, Recording};

    /// A recording of single pages, far and near in turn, each taking what `access_us` says for its distance; every
    /// other use of each kind finds its page there.
    fn recording(access_us: impl Fn(bool) -> u64) -> Profile {
        let mut next_us = 0;
        let extents = (0..400u64).map(|index| {
            let (first_use_us, is_far) = (next_us, index % 2 == 0);
            next_us += if index / 2 % 2 == 0 { access_us(is_far) } else { 20 };
            let physical_bytes = Some(index / 2 * 40_000_000 + (index % 2) * 8192);
            Extent { offset_bytes: index * 8192, length_bytes: 4096, first_use_us, runs: 1, physical_bytes }
        });
        let file = File { device: 7, extents: extents.collect(), ..File::default() };
        let recording = Recording { cold: true, precision: Precision::Precise, ..Recording::default() };
        Profile { recording, files: vec![file], ..Profile::default() }
    }

    fn order(profile: &Profile) -> Option<Order> {
        of_device(profile, 7, None).map(|traits| traits.order)
    }

    #[test]
    fn what_takes_longer_the_farther_seeks() {
        assert_eq!(order(&recording(|far| if far { 9000 } else { 150 })), Some(Order::ByPosition));
    }

    #[test]
    fn few_slow_uses_are_proof_only_if_the_kernel_agrees() {
        let mut far = 0;
        let mostly_there = std::cell::RefCell::new(&mut far);
        let profile = recording(|is_far| {
            **mostly_there.borrow_mut() += usize::from(is_far);
            if is_far && **mostly_there.borrow() % 3 == 0 { 9000 } else { 60 }
        });
        let order = |rotates| of_device(&profile, 7, rotates).unwrap().order;
        assert_eq!(
            (order(Some(true)), order(Some(false)), order(None)),
            (Order::ByPosition, Order::ByFirstUse, Order::ByFirstUse)
        );
    }

    #[test]
    fn a_slow_network_volume_does_not_seek() {
        assert_eq!(order(&recording(|_| 5000)), Some(Order::ByFirstUse));
    }

    /// Regression: `git status` looks up so many places that a use near the last one often waited for the arm, too; its
    /// rotating disk was taken for a slow network volume, and the start took as long as without us.
    #[test]
    fn a_rotating_disk_seeks_though_near_uses_are_slow_too() {
        let profile = recording(|_| 9000);
        assert_eq!(of_device(&profile, 7, Some(true)).unwrap().order, Order::ByPosition);
    }

    #[test]
    fn a_solid_state_disk_does_not_seek() {
        let traits = of_device(&recording(|far| if far { 110 } else { 60 }), 7, Some(true)).unwrap();
        assert_eq!((traits.order, traits.access_us), (Order::ByFirstUse, 110.0));
    }

    #[test]
    fn a_warm_or_short_recording_tells_nothing() {
        let mut profile = recording(|_| 9000);
        assert!(of_device(&profile, 8, None).is_none());
        profile.files[0].extents.truncate(9);
        assert!(of_device(&profile, 7, None).is_none());
        let mut profile = recording(|_| 9000);
        profile.recording.cold = false;
        assert!(of_device(&profile, 7, None).is_none());
    }
}

//! Derives properties of the device from the recording that was made on it: access time, and whether the device seeks.
//!
//! A recording with read-ahead has times that were measured after it. Without read-ahead, times of use show the same: the time between two
//! uses far apart on the disk is an access of that disk, and the time between two uses close together shows whether distance matters, that
//! is, whether the disk seeks. No test reads are needed. `rotational` in sysfs is wrong on virtual machines. It is used only if the
//! recording does not show the answer.

use ahead_model::DeviceDescription;
use ahead_profile::{DeviceTimes, Profile};
use std::ops::Range;

/// Uses farther apart than this are far: two tracks of a large disk, so that the arm has moved. Bytes.
const FAR_BYTES: u64 = 8 << 20;

/// Uses within this distance ahead are near: on one track of any disk, and in the buffer of a drive that reads ahead. Bytes.
const NEAR_BYTES: u64 = 64 << 10;

/// Extents up to this size count as one access, bytes.
const SHORT_BYTES: u64 = 8192;

/// With fewer far accesses, nothing is derived.
const MIN_SAMPLES: usize = 16;

/// A use that took at least this time waited for a mechanical part: longer than an access to any flash disk or network volume in
/// one zone, shorter than the shortest mean access of a rotating disk (5 ms at 15,000 rpm). Microseconds.
const SLOW_US: u64 = 3000;

/// If this share of the far uses is slow, the disk seeks. The others hit the page cache, or the buffer of a drive that reads
/// ahead.
const PROOF: f64 = 0.25;

/// This share is enough if the kernel reports a rotating disk: a directory listing hits most inodes, because they were read with
/// their neighbours.
const HINT: f64 = 0.1;

/// On a disk that seeks, far uses are slow this many times more often than near ones. On a slow network volume, both are slow.
const SEEK_RATIO: f64 = 1.5;

/// The properties of the device of these files and metadata (indices into the profile). `None`: no times were measured, and the recording
/// is not cold and without read-ahead, or too short. `rotates`: what the kernel reports, if known.
///
/// ```text
///     time      ─u0────────u1───────────────u2──▶     a use is recorded when it begins:
///     position    ╰distance╯╰────elapsed────╯         the time after u1 is the access whose seek is the distance from u0
/// ```
pub fn description(
    profile: &Profile,
    files: &[usize],
    metadata: &[usize],
    rotates: Option<bool>,
) -> Option<DeviceDescription> {
    if let Some(times) = measured(profile, files, metadata) {
        return Some(from_times(times, rotates));
    }
    if !profile.recording.is_without_read_ahead() {
        return None;
    }
    let mut uses: Vec<(u64, Range<u64>)> = uses_of(profile, files, metadata).collect();
    uses.sort_by_key(|(time_us, _)| *time_us);
    let (mut near, mut far) = (Vec::new(), Vec::new());
    // A long extent was read page by page: the time to the next use is not that of one access.
    for uses in uses.windows(3) {
        let [(_, before), (time_us, at), (next_us, _)] = uses else { continue };
        if at.end - at.start > SHORT_BYTES {
            continue;
        }
        let elapsed = next_us - time_us;
        let forward = at.start.checked_sub(before.end);
        if at.start.abs_diff(before.end) >= FAR_BYTES {
            far.push(elapsed);
        } else if forward.is_some_and(|distance| distance <= NEAR_BYTES) {
            near.push(elapsed);
        }
    }
    if far.len() < MIN_SAMPLES {
        return None;
    }
    // Near uses are slow, too, if lookups in between moved the arm (`git status`). So they are ignored if far uses are slow and
    // the kernel reports a rotating disk.
    let seeks = match rotates {
        Some(true) => slow_share(&far) >= HINT,
        _ => slow_share(&far) >= PROOF && slow_share(&far) >= SEEK_RATIO * slow_share(&near),
    };
    // More than half of the uses may be hits: the median is that of the uses that waited.
    far.retain(|elapsed| !seeks || *elapsed >= SLOW_US);
    let waited = if seeks { far.len() / 2 } else { far.len() * 3 / 4 };
    let (_, access_us, _) = far.select_nth_unstable(waited);
    let like = if seeks { DeviceDescription::ROTATING } else { DeviceDescription::FLASH };
    Some(like.with_access_ns(access_us.saturating_mul(1000)))
}

fn measured<'a>(profile: &'a Profile, files: &[usize], metadata: &[usize]) -> Option<&'a DeviceTimes> {
    let of_file = files.first().map(|index| profile.files[*index].device);
    let device = of_file.or_else(|| metadata.first().map(|index| profile.metadata[*index].device))?;
    profile.recording.devices.iter().find(|times| times.device == device)
}

fn from_times(times: &DeviceTimes, rotates: Option<bool>) -> DeviceDescription {
    let seeks = seeks(times.far_ns, times.near_ns, rotates);
    let like = if seeks { DeviceDescription::ROTATING } else { DeviceDescription::FLASH };
    let known = |measured: u64, assumed: f64| if measured > 0 { measured as f64 } else { assumed };
    DeviceDescription {
        bandwidth_bytes_per_s: known(times.bandwidth_bytes_per_s, like.bandwidth_bytes_per_s),
        request_ns: if seeks { like.request_ns } else { times.request_ns.min(times.far_ns) },
        ..like.with_access_ns(times.far_ns)
    }
}

/// Whether a device with these times of far and near reads seeks (nanoseconds). `rotates`: what the kernel reports, if known.
pub fn seeks(far_ns: u64, near_ns: u64, rotates: Option<bool>) -> bool {
    far_ns >= SLOW_US * 1000 && (rotates == Some(true) || far_ns as f64 >= SEEK_RATIO * near_ns as f64)
}

fn slow_share(elapsed_us: &[u64]) -> f64 {
    let slow = elapsed_us.iter().filter(|elapsed| **elapsed >= SLOW_US).count();
    if elapsed_us.is_empty() { 0.0 } else { slow as f64 / elapsed_us.len() as f64 }
}

/// The uses of a device in the recording: when, in microseconds, and where on the device.
fn uses_of(profile: &Profile, files: &[usize], metadata: &[usize]) -> impl Iterator<Item = (u64, Range<u64>)> {
    let data = files.iter().flat_map(|index| &profile.files[*index].extents);
    let metadata = metadata.iter().flat_map(|index| &profile.metadata[*index].extents);
    data.chain(metadata).filter_map(|extent| {
        let start = extent.physical_bytes?;
        Some((extent.first_use_us, start..start.saturating_add(extent.length_bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_device(profile: &Profile, device: u64, rotates: Option<bool>) -> Option<DeviceDescription> {
        let files = profile.files.iter().enumerate().filter(|(_, file)| file.device == device);
        let metadata = profile.metadata.iter().enumerate().filter(|(_, metadata)| metadata.device == device);
        let (files, metadata): (Vec<_>, Vec<_>) =
            (files.map(|(at, _)| at).collect(), metadata.map(|(at, _)| at).collect());
        description(profile, &files, &metadata, rotates)
    }
    use ahead_profile::{Extent, File, Precision, Recording};

    /// A recording of single pages, far and near alternately. Each takes `access_us` of its distance; every other use of each
    /// kind is a hit.
    fn recording(access_us: impl Fn(bool) -> u64) -> Profile {
        let mut next_us = 0;
        let extents = (0..400u64).map(|index| {
            let (first_use_us, is_far) = (next_us, index % 2 == 0);
            next_us += if index / 2 % 2 == 0 { access_us(is_far) } else { 20 };
            let physical_bytes = Some(index / 2 * 40_000_000 + (index % 2) * 8192);
            Extent {
                offset_bytes: index * 8192,
                length_bytes: 4096,
                first_use_us,
                runs: 1,
                physical_bytes,
                ..Extent::default()
            }
        });
        let file = File { device: 7, extents: extents.collect(), ..File::default() };
        let recording = Recording { cold: true, precision: Precision::Precise, ..Recording::default() };
        Profile { recording, files: vec![file], ..Profile::default() }
    }

    fn seeks(profile: &Profile) -> Option<bool> {
        of_device(profile, 7, None).map(|description| description.seeks())
    }

    #[test]
    fn latency_that_grows_with_distance_shows_seeks() {
        assert_eq!(seeks(&recording(|far| if far { 9000 } else { 150 })), Some(true));
    }

    #[test]
    fn few_slow_uses_are_proof_only_if_the_kernel_agrees() {
        let mut far = 0;
        let mostly_there = std::cell::RefCell::new(&mut far);
        let profile = recording(|is_far| {
            **mostly_there.borrow_mut() += usize::from(is_far);
            if is_far && **mostly_there.borrow() % 3 == 0 { 9000 } else { 60 }
        });
        let seeks = |rotates| of_device(&profile, 7, rotates).unwrap().seeks();
        assert_eq!((seeks(Some(true)), seeks(Some(false)), seeks(None)), (true, false, false));
    }

    #[test]
    fn a_slow_network_volume_does_not_seek() {
        assert_eq!(seeks(&recording(|_| 5000)), Some(false));
    }

    /// Regression: `git status` looks up many scattered paths, so that uses near the last one often waited for the arm. The
    /// rotating disk was planned for as a slow network volume, and the start took as long as without prefetching.
    #[test]
    fn a_rotating_disk_seeks_though_near_uses_are_slow_too() {
        let profile = recording(|_| 9000);
        assert!(of_device(&profile, 7, Some(true)).unwrap().seeks());
    }

    #[test]
    fn a_solid_state_disk_does_not_seek() {
        let description = of_device(&recording(|far| if far { 110 } else { 60 }), 7, Some(true)).unwrap();
        assert_eq!((description.seeks(), description.access_us()), (false, 110.0));
    }

    #[test]
    fn measured_times_are_used_instead_of_times_of_use() {
        let described = |far_ns, near_ns, rotates| {
            let mut profile = recording(|_| 60);
            profile.recording.read_ahead_kb = 128;
            assert!(of_device(&profile, 7, None).is_none());
            profile.recording.devices = vec![DeviceTimes { device: 7, far_ns, near_ns, ..DeviceTimes::default() }];
            let description = of_device(&profile, 7, rotates).unwrap();
            (description.seeks(), description.access_ns)
        };
        assert_eq!(described(9_000_000, 300_000, None), (true, 9_000_000));
        // A network volume, and a rotating disk whose reads nearby miss the buffer.
        assert_eq!(described(5_000_000, 5_000_000, Some(false)), (false, 5_000_000));
        assert_eq!(described(9_000_000, 8_000_000, Some(true)), (true, 9_000_000));
        assert_eq!(described(110_000, 60_000, Some(true)), (false, 110_000));
    }

    #[test]
    fn measured_rates_limit_the_device() {
        let mut profile = recording(|_| 60);
        let times = DeviceTimes { device: 7, far_ns: 1_000_000, near_ns: 1_000_000, ..DeviceTimes::default() };
        let mut described = |times| {
            profile.recording.devices = vec![times];
            of_device(&profile, 7, None).unwrap()
        };
        let volume = described(DeviceTimes { request_ns: 333_333, bandwidth_bytes_per_s: 125_000_000, ..times });
        assert_eq!((volume.request_ns, volume.bandwidth_bytes_per_s, volume.pages_per_request()), (333_333, 125e6, 10));
        let unmeasured = described(times);
        assert_eq!((unmeasured.request_ns, unmeasured.bandwidth_bytes_per_s), (0, 500e6));
    }

    #[test]
    fn warm_or_short_recording_does_not_show_whether_the_disk_seeks() {
        let mut profile = recording(|_| 9000);
        assert!(of_device(&profile, 8, None).is_none());
        profile.files[0].extents.truncate(9);
        assert!(of_device(&profile, 7, None).is_none());
        let mut profile = recording(|_| 9000);
        profile.recording.cold = false;
        assert!(of_device(&profile, 7, None).is_none());
    }
}

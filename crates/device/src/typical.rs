//! The description of a model: the times that the device takes for typical reads. They are measured on a new simulated
//! device, so the description agrees with the simulator and the emulated disk.

use crate::{Device, Model, Op, Request};
use ahead_model::device_description::{Burst, DeviceDescription};
use ahead_model::{PAGE_BYTES, random::SplitMix64};

/// Size of the measured device, bytes: typical of root file systems. The distance of seeks depends on it.
const CAPACITY_BYTES: u64 = 64 << 30;

/// Single reads of which the median is taken.
const READS: usize = 63;

/// Pause between single reads, nanoseconds: the drive's buffer and a volume's burst recover.
const PAUSE_NS: u64 = 1_000_000;

/// A hop in an ascending sweep, as a part of the disk: a sweep of some thousand ranges.
const HOP_SHARE: u64 = 1024;

/// The cost of a request is the mean over this number of reads: large enough that a volume's burst does not matter.
const BUSY_READS: u64 = 4096;

impl Model {
    /// The description of a disk of this model, for policies and the planner.
    pub fn device_description(&self) -> DeviceDescription {
        let (mut random, mut random_hop) = (SplitMix64::new(1), SplitMix64::new(2));
        let anywhere = |_| random.below(CAPACITY_BYTES / PAGE_BYTES) * PAGE_BYTES;
        let access_ns = median_ns(self, anywhere);
        // Different lengths: with equal ones the platter would have turned by the same angle after each.
        let mut place_bytes = 0;
        let ascending = |_| {
            place_bytes += (random_hop.below(2 * CAPACITY_BYTES / HOP_SHARE / PAGE_BYTES) + 1) * PAGE_BYTES;
            place_bytes
        };
        DeviceDescription {
            access_ns,
            hop_ns: self.rotational().then(|| median_ns(self, ascending)),
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s(),
            parallelism: self.channels(),
            request_ns: request_ns(self),
            burst: match self {
                Model::Cloud(cloud) => {
                    Some(Burst { requests: cloud.burst_ios, bytes: u64::from(cloud.burst_kb) << 10 })
                }
                Model::Hdd(_) | Model::Flash(_) => None,
            },
        }
    }
}

fn page_at(offset_bytes: u64) -> Request {
    Request { op: Op::Read, offset_bytes, length_bytes: PAGE_BYTES }
}

/// Single reads of a page on a new disk: their median.
fn median_ns(model: &Model, mut place: impl FnMut(usize) -> u64) -> u64 {
    let mut device = Device::new(model, CAPACITY_BYTES);
    let mut now_ns = 0;
    let mut times: Vec<u64> = (0..READS)
        .map(|index| {
            let end_ns = device.submit(&page_at(place(index)), now_ns).end_ns;
            let took_ns = end_ns - now_ns;
            now_ns = end_ns + PAUSE_NS;
            took_ns
        })
        .collect();
    times.sort_unstable();
    times[READS / 2]
}

/// Time per read for many reads of a page, submitted together: every second page of a part of a new disk.
fn request_ns(model: &Model) -> u64 {
    let mut device = Device::new(model, CAPACITY_BYTES);
    let ends = (0..BUSY_READS).map(|index| device.submit(&page_at(2 * index * PAGE_BYTES), 0).end_ns);
    ends.max().unwrap_or(0) / BUSY_READS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> DeviceDescription {
        Model::builtin(name).unwrap().device_description()
    }

    #[test]
    fn only_a_rotating_disk_seeks_and_a_hop_is_shorter_than_an_access() {
        let hdd = of("hdd");
        assert!((9_000_000..16_000_000).contains(&hdd.access_ns), "{hdd:?}");
        assert!((4_000_000..7_000_000).contains(&hdd.hop_ns.unwrap()), "{hdd:?}");
        assert!(hdd.has_arm() && hdd.burst.is_none());
        assert!(["ssd", "nvme", "emmc", "cloud"].iter().all(|name| !of(name).seeks()));
    }

    #[test]
    fn volume_description_has_its_limits() {
        let cloud = of("cloud");
        assert_eq!((cloud.parallelism, cloud.bandwidth_bytes_per_s), (128, 125e6));
        // 3000 requests per second, plus the burst of 30.
        assert!((330_000..334_000).contains(&cloud.request_ns), "{cloud:?}");
        assert_eq!(cloud.burst, Some(Burst { requests: 30, bytes: 256 << 10 }));
        assert!((1_000_000..1_100_000).contains(&cloud.access_ns), "{cloud:?}");
    }

    #[test]
    fn every_description_survives_a_round_trip() {
        for name in Model::BUILTIN.into_iter().chain(Model::PAPERS) {
            let own = of(name);
            let read = DeviceDescription::from_toml(&own.to_toml()).unwrap();
            assert!((read.bandwidth_bytes_per_s - own.bandwidth_bytes_per_s).abs() < 1.0, "{name}");
            assert_eq!(DeviceDescription { bandwidth_bytes_per_s: own.bandwidth_bytes_per_s, ..read }, own, "{name}");
        }
    }
}

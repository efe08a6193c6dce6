//! The description of a device, which policies, the planner, the simulator and the emulated disk share.
//!
//! ```text
//!     time of one read    ├──── access ────┤├ transfer ┤            alone, anywhere on the device
//!                         ├─ hop ─┤├ transfer ┤                     a little farther on, if the device seeks
//!
//!     a full queue        ├request┤├request┤├request┤ …             one every `request_ns` at any queue depth,
//!                         ├ transfer ┤├ transfer ┤ …                and no faster than the bandwidth: the slower of the two
//!
//!     a burst             the first `requests` and `bytes` wait for neither; both are refilled at these two rates
//! ```
//!
//! It comes from a disk model (`ahead-device`), from a few reads (`ahead-measure`), from a recording (`ahead-plan`), or from a file of
//! `ahead probe --save`.

use crate::PAGE_BYTES;
use crate::checked_toml::{Accepts, Field, Schema, TextError, checked_table};
use serde::{Deserialize, Serialize};

/// The parameters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct DeviceDescription {
    /// Access time: from request to arrival of a small random read, nanoseconds.
    pub access_ns: u64,
    /// The same for a small read a little farther on, as in an ascending sweep, nanoseconds. `None`: the device does not seek, and the place
    /// of a read does not matter.
    pub hop_ns: Option<u64>,
    /// Bandwidth of a long sequential read, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Number of requests that it serves at the same time.
    pub parallelism: u32,
    /// Cost of each request on a busy device, for ascending single pages near one another, nanoseconds: the inverse of its requests per
    /// second. 0: a request costs only its bytes.
    pub request_ns: u64,
    /// The burst before the two limits apply. `None`: no burst.
    pub burst: Option<Burst>,
}

/// The burst that a network volume serves before its limits apply. It is refilled at the rates that the limits allow: a request every
/// [`DeviceDescription::request_ns`], and [`DeviceDescription::bandwidth_bytes_per_s`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub requests: u32,
    pub bytes: u64,
}

/// The head passes smaller gaps by the rotation of the platter, without a seek: one track of a large disk, bytes.
const TRACK_BYTES: u64 = 1 << 20;

/// A device with one channel has an arm if adjacent pages are this many times faster than random ones.
const ARM_FACTOR: u64 = 8;

/// Bytes in a megabyte as data sheets count.
const BYTES_PER_MB: f64 = 1e6;

impl DeviceDescription {
    /// The disk of Wu's calculations (2010): 8 ms and 100 MB/s, without other costs.
    pub const WU_2010: DeviceDescription = DeviceDescription {
        access_ns: 8_000_000,
        hop_ns: None,
        bandwidth_bytes_per_s: 100e6,
        parallelism: 1,
        request_ns: 0,
        burst: None,
    };

    /// An unknown rotating disk: 7200 rpm, an average access, the bandwidth of its middle. A hop is half an access: the seek is shorter, the
    /// rotational latency is not.
    pub const ROTATING: DeviceDescription = DeviceDescription {
        access_ns: 12_000_000,
        hop_ns: Some(6_000_000),
        bandwidth_bytes_per_s: 120e6,
        parallelism: 1,
        request_ns: 50_000,
        burst: None,
    };

    /// A SATA solid-state disk, the slowest kind of disk that does not seek. Faster disks lose nothing with this description.
    pub const FLASH: DeviceDescription = DeviceDescription {
        access_ns: 100_000,
        hop_ns: None,
        bandwidth_bytes_per_s: 500e6,
        parallelism: 16,
        request_ns: 0,
        burst: None,
    };

    /// The same description with another access time, and a hop in proportion.
    pub fn with_access_ns(self, access_ns: u64) -> DeviceDescription {
        let share = access_ns as f64 / self.access_ns.max(1) as f64;
        let hop_ns = self.hop_ns.map(|hop_ns| (hop_ns as f64 * share) as u64);
        DeviceDescription { access_ns, hop_ns, ..self }
    }

    /// Whether the device seeks, so that ascending order pays.
    pub fn seeks(&self) -> bool {
        self.hop_ns.is_some()
    }

    /// Whether its parameters are those of a device with an arm: it serves one request at a time, and adjacent pages much faster than random
    /// ones. For descriptions from measured reads, which have no hop.
    pub fn has_arm(&self) -> bool {
        self.parallelism == 1 && self.request_ns * ARM_FACTOR < self.access_ns
    }

    /// Number of pages that the device transfers during an access, or during the cost of a request if that is longer (a volume with a limit of
    /// requests per second). Most of the time of a shorter request is latency.
    pub fn pages_per_access(&self) -> u64 {
        let bytes = self.bandwidth_bytes_per_s * self.access_ns.max(self.request_ns) as f64 * 1e-9;
        ((bytes / PAGE_BYTES as f64) as u64).max(1)
    }

    /// The time in which the device could have served other requests while a process waited for this one, nanoseconds; 0 if it transferred
    /// data for most of that time. (A device that serves one request at a time could not serve others, but the wait is spent nevertheless.)
    pub fn idle_ns(&self, wait_ns: u64, pages: u64) -> u64 {
        let idle_ns = wait_ns.saturating_sub(pages.saturating_mul(self.page_ns()));
        if idle_ns < wait_ns / 2 { 0 } else { idle_ns }
    }

    /// Time of a page in a long sequential read, nanoseconds.
    pub fn page_ns(&self) -> u64 {
        (PAGE_BYTES as f64 * 1e9 / self.bandwidth_bytes_per_s) as u64
    }

    /// The access time, microseconds.
    pub fn access_us(&self) -> f64 {
        self.access_ns as f64 / 1e3
    }

    /// Time that a request adds to a full queue, without its bytes, microseconds: an access on a device that seeks; on others, an access
    /// divided by the parallelism, or the cost of a request if that is more.
    pub fn request_us(&self) -> f64 {
        let in_parallel_us = self.access_us() / f64::from(self.parallelism.max(1));
        if self.seeks() { in_parallel_us } else { in_parallel_us.max(self.request_ns as f64 / 1e3) }
    }

    /// Time that a request with these bytes adds to a full queue, microseconds.
    pub fn step_us(&self, bytes: u64) -> f64 {
        self.request_us() + self.transfer_us(bytes)
    }

    /// Mean time to another place nearby, microseconds: a hop; on a device that does not seek, an access.
    pub fn hop_us(&self) -> f64 {
        self.hop_ns.unwrap_or(self.access_ns) as f64 / 1e3
    }

    /// Time in which the head passes a gap before the next read, microseconds, where no seek is needed: the gap is within
    /// a track. `None`: it is not.
    pub fn pass_us(&self, gap_bytes: u64) -> Option<f64> {
        (gap_bytes <= TRACK_BYTES).then(|| self.transfer_us(gap_bytes).min(self.hop_us()))
    }

    /// Time of the transfer of these bytes, microseconds.
    pub fn transfer_us(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bandwidth_bytes_per_s * 1e6
    }

    /// Number of whole pages whose transfer takes at most the cost of a request. Reading a smaller gap is cheaper than another request, if
    /// requests limit the device.
    pub fn pages_per_request(&self) -> u64 {
        (self.request_ns as f64 / 1e9 * self.bandwidth_bytes_per_s) as u64 / PAGE_BYTES
    }

    /// Reads a description from TOML.
    ///
    /// Errors: text of more than 64 KiB, no TOML, an unknown or missing field, a value out of range. The message names the line.
    pub fn from_toml(text: &str) -> Result<DeviceDescription, TextError> {
        DescribedDevice::from_toml(text).map(|described| described.description)
    }

    /// The description as TOML; [`DeviceDescription::from_toml`] reads it again.
    pub fn to_toml(&self) -> String {
        toml::to_string(&Unchecked::from(*self)).expect("a description is a flat table of numbers")
    }
}

impl Default for DeviceDescription {
    /// The disk of Wu's calculations, which a policy without a description assumes.
    fn default() -> Self {
        DeviceDescription::WU_2010
    }
}

/// A description and the device that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedDevice {
    /// The identity of the device (its serial number, or the UUID of the file system on it); `None`: any device.
    pub identity: Option<String>,
    /// The source of the parameters, as text.
    pub origin: Option<String>,
    /// The parameters.
    pub description: DeviceDescription,
}

impl DescribedDevice {
    /// Reads a description and its device from TOML.
    ///
    /// Errors: as [`DeviceDescription::from_toml`].
    pub fn from_toml(text: &str) -> Result<DescribedDevice, TextError> {
        let mut table = checked_table(text, &SCHEMA)?;
        let mut text_of = |key: &str| match table.remove(key) {
            Some(toml::Value::String(text)) => Some(text),
            _ => None,
        };
        let (identity, origin) = (text_of("identity"), text_of("origin"));
        let at_line_1 = |message: String| TextError::Field { line: 1, message };
        let unchecked: Unchecked =
            table.try_into().map_err(|error: toml::de::Error| at_line_1(error.message().to_owned()))?;
        Ok(DescribedDevice { identity, origin, description: unchecked.try_into().map_err(at_line_1)? })
    }

    /// Description and device as TOML. Names are cut to the accepted length: one line of 200 characters.
    pub fn to_toml(&self) -> String {
        let line = |key: &str, text: &Option<String>| {
            text.as_ref().map(|text| format!("{key} = {}\n", toml::Value::from(one_line(text)))).unwrap_or_default()
        };
        line("identity", &self.identity) + &line("origin", &self.origin) + &self.description.to_toml()
    }
}

/// Cut to the length that is accepted, without control characters.
fn one_line(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(200).collect()
}

/// Ranges: from the slowest card to a little beyond the fastest disk that can be bought.
const FIELDS: [Field; 9] = [
    Field::optional("identity", Accepts::Text),
    Field::optional("origin", Accepts::Text),
    Field::required("access_us", Accepts::Number(0.1, 1e7)),
    Field::optional("hop_us", Accepts::Number(0.1, 1e7)),
    Field::required("bandwidth_mb_per_s", Accepts::Number(0.01, 1e6)),
    Field::required("parallelism", Accepts::Whole(1, 65_536)),
    Field::optional("request_us", Accepts::Number(0.0, 1e7)),
    Field::optional("burst_requests", Accepts::Whole(0, 1_000_000)),
    Field::optional("burst_kb", Accepts::Whole(0, 1 << 30)),
];

const SCHEMA: Schema = Schema { what: "a device description", kind: None, fields: |_| FIELDS.to_vec() };

/// The file format of a description. Units as in disk models: `_mb_per_s` counts 10^6 bytes, `_kb` 1024 bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    access_us: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hop_us: Option<f64>,
    bandwidth_mb_per_s: f64,
    parallelism: u32,
    #[serde(default)]
    request_us: f64,
    #[serde(default, skip_serializing_if = "is_zero")]
    burst_requests: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    burst_kb: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl From<DeviceDescription> for Unchecked {
    fn from(description: DeviceDescription) -> Unchecked {
        let us = |ns: u64| ns as f64 / 1e3;
        let burst = description.burst.unwrap_or(Burst { requests: 0, bytes: 0 });
        Unchecked {
            access_us: us(description.access_ns),
            hop_us: description.hop_ns.map(us),
            bandwidth_mb_per_s: description.bandwidth_bytes_per_s / BYTES_PER_MB,
            parallelism: description.parallelism,
            request_us: us(description.request_ns),
            burst_requests: burst.requests,
            burst_kb: burst.bytes >> 10,
        }
    }
}

impl TryFrom<Unchecked> for DeviceDescription {
    type Error = String;

    /// Checked here, too: it may come from JSON.
    fn try_from(unchecked: Unchecked) -> Result<DeviceDescription, String> {
        let Unchecked { access_us, hop_us, bandwidth_mb_per_s, parallelism, request_us, burst_requests, burst_kb } =
            unchecked;
        let within = |name: &str, value: f64| {
            let field = FIELDS.iter().find(|field| field.name == name).expect("a name of FIELDS");
            let range = match field.accepts {
                Accepts::Number(least, most) => least..=most,
                Accepts::Whole(least, most) => least as f64..=most as f64,
                Accepts::Text | Accepts::Word(_) => unreachable!("only numbers are asked for"),
            };
            let message = || format!("{name} must be a number from {} to {}", range.start(), range.end());
            range.contains(&value).then_some(value).ok_or_else(message)
        };
        let ns = |us: f64| (us * 1e3).round() as u64;
        let burst = Burst {
            requests: within("burst_requests", f64::from(burst_requests))? as u32,
            bytes: (within("burst_kb", burst_kb as f64)? as u64) << 10,
        };
        Ok(DeviceDescription {
            access_ns: ns(within("access_us", access_us)?),
            hop_ns: hop_us.map(|hop_us| within("hop_us", hop_us).map(ns)).transpose()?,
            bandwidth_bytes_per_s: within("bandwidth_mb_per_s", bandwidth_mb_per_s)? * BYTES_PER_MB,
            parallelism: within("parallelism", f64::from(parallelism))? as u32,
            request_ns: ns(within("request_us", request_us)?),
            burst: (burst.requests > 0 || burst.bytes > 0).then_some(burst),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: &str = "access_us = 1000\nbandwidth_mb_per_s = 125\nparallelism = 128\nrequest_us = 333.3\n";

    #[test]
    fn mistakes_are_named_by_line_and_field() {
        for (wrong, message) in [
            ("", "line 1: access_us is missing; it must be a number from 0.1 to 10000000"),
            ("access_us = ", "line 1: not TOML"),
            ("access_us = 1\naccess_us = 2", "line 2: not TOML"),
            ("\naccess_us = 0", "line 2: access_us must be a number from 0.1 to 10000000"),
            ("access_us = nan", "line 1: access_us must be"),
            (
                "access_us = 1\nspeed = 3",
                "line 2: unknown field \"speed\"; the fields of a device description are identity,",
            ),
            ("access_us = 1\n[x]", "line 2: unknown field \"x\""),
            ("identity = 7", "line 1: identity must be one line of text"),
        ] {
            let error = DeviceDescription::from_toml(wrong).unwrap_err().to_string();
            assert!(error.starts_with(message), "{wrong:?}: {error}");
        }
        let long = "#".repeat(70_000);
        assert!(
            DeviceDescription::from_toml(&long)
                .unwrap_err()
                .to_string()
                .starts_with("a device description may have at most")
        );
    }

    #[test]
    fn a_request_of_a_limited_volume_costs_what_its_bytes_cost() {
        let volume = DeviceDescription::from_toml(VOLUME).unwrap();
        assert_eq!((volume.seeks(), volume.burst), (false, None));
        // 41,662 bytes.
        assert_eq!((volume.pages_per_request(), DeviceDescription::FLASH.pages_per_request()), (10, 0));
    }

    #[test]
    fn a_described_device_is_written_and_read() {
        let description = DeviceDescription::from_toml(VOLUME).unwrap();
        let text = "a \"quoted\"\nname".repeat(40);
        let device = DescribedDevice { identity: Some("serial x".into()), origin: Some(text), description };
        let read = DescribedDevice::from_toml(&device.to_toml()).unwrap();
        assert_eq!((read.identity, read.description), (device.identity, description));
        assert!(read.origin.unwrap().starts_with("a \"quoted\"name"));
    }

    #[test]
    fn json_is_checked_like_toml() {
        let json = serde_json::to_string(&DeviceDescription::ROTATING).unwrap();
        assert_eq!(serde_json::from_str::<DeviceDescription>(&json).unwrap(), DeviceDescription::ROTATING);
        let wrong = json.replace("\"parallelism\":1", "\"parallelism\":0");
        assert!(
            serde_json::from_str::<DeviceDescription>(&wrong).unwrap_err().to_string().contains("parallelism must be")
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            access_ns in 100..10_000_000_000u64, hop_ns in prop::option::of(100..1_000_000_000u64), mb in 1..100_000u32,
            parallelism in 1..65_536u32, request_ns in 0..1_000_000_000u64, burst in prop::option::of((1..1000u32, 1..1000u64)),
        ) {
            let burst = burst.map(|(requests, kb)| Burst { requests, bytes: kb << 10 });
            let bandwidth_bytes_per_s = f64::from(mb) * 1e6;
            let own = DeviceDescription { access_ns, hop_ns, bandwidth_bytes_per_s, parallelism, request_ns, burst };
            prop_assert_eq!(DeviceDescription::from_toml(&own.to_toml()).unwrap(), own);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "(?s).{0,200}|(access_us|hop_us|parallelism) = [-0-9.e]{0,9}\n") {
            let _ = DescribedDevice::from_toml(&text);
        }
    }
}

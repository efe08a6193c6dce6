//! Device numbers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The number of a block device, or the anonymous number (major 0) of a file system without one.
///
/// Displayed and parsed as sysfs writes it, `8:1`; serialized as the pair `[8, 1]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct DeviceNumber {
    /// Number of the driver; 0 for anonymous devices.
    pub major: u32,
    /// Number of the device or partition among those of the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From its two parts.
    pub const fn new(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    /// From `st_dev` or `st_rdev` of stat(2), which glibc and the kernel encode in 64 bits: 12 and 20 bits of the major number, 8
    /// and 24 bits of the minor number (include/linux/kdev_t.h, `new_encode_dev`; glibc bits/sysmacros.h).
    pub const fn from_stat(encoded: u64) -> DeviceNumber {
        DeviceNumber {
            major: (encoded >> 32 & 0xffff_f000 | encoded >> 8 & 0xfff) as u32,
            minor: (encoded >> 12 & 0xffff_ff00 | encoded & 0xff) as u32,
        }
    }

    /// The number as stat(2) gives it, the inverse of [`DeviceNumber::from_stat`].
    pub const fn to_stat(self) -> u64 {
        let (major, minor) = (self.major as u64, self.minor as u64);
        (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
    }

    /// From the kernel's own `dev_t`, 12 bits for the major and 20 for the minor number (include/linux/kdev_t.h, `MKDEV`).
    pub const fn from_kernel(dev: u32) -> DeviceNumber {
        DeviceNumber { major: dev >> 20, minor: dev & 0xf_ffff }
    }

    /// The kernel's own `dev_t`, the inverse of [`DeviceNumber::from_kernel`].
    pub const fn to_kernel(self) -> u32 {
        self.major << 20 | self.minor
    }

    /// From the key that profiles store, the inverse of [`DeviceNumber::key`].
    pub const fn from_key(key: u64) -> DeviceNumber {
        DeviceNumber { major: (key >> 32) as u32, minor: key as u32 }
    }

    /// One number for both parts, `major << 32 | minor`, as profiles store it.
    pub const fn key(self) -> u64 {
        (self.major as u64) << 32 | self.minor as u64
    }

    /// Whether the kernel made the number up for a file system that lies on no single block device (tmpfs, btrfs, NFS, FUSE).
    pub const fn is_anonymous(self) -> bool {
        self.major == 0
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

/// The text is not two numbers with a colon between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseDeviceNumberError;

impl fmt::Display for ParseDeviceNumberError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not a device number; expected MAJOR:MINOR, as in 8:1")
    }
}

impl std::error::Error for ParseDeviceNumberError {}

impl FromStr for DeviceNumber {
    type Err = ParseDeviceNumberError;

    /// Parses `8:1`, with white space around it, as files in sysfs have.
    fn from_str(text: &str) -> Result<DeviceNumber, ParseDeviceNumberError> {
        let (major, minor) = text.trim().split_once(':').ok_or(ParseDeviceNumberError)?;
        let number = |text: &str| text.parse().map_err(|_| ParseDeviceNumberError);
        Ok(DeviceNumber { major: number(major)?, minor: number(minor)? })
    }
}

impl From<(u32, u32)> for DeviceNumber {
    fn from((major, minor): (u32, u32)) -> DeviceNumber {
        DeviceNumber { major, minor }
    }
}

impl From<DeviceNumber> for (u32, u32) {
    fn from(number: DeviceNumber) -> (u32, u32) {
        (number.major, number.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat_encoding_of_known_devices() {
        assert_eq!(DeviceNumber::from_stat(0x0801), DeviceNumber::new(8, 1));
        assert_eq!(DeviceNumber::from_stat(0x10_3b05), DeviceNumber::new(0x3b, 0x105));
    }

    #[test]
    fn kernel_encoding_of_known_devices() {
        assert_eq!(DeviceNumber::from_kernel(254 << 20 | 3), DeviceNumber::new(254, 3));
        assert_eq!(DeviceNumber::from_kernel(7 << 20 | 300_000).key(), 7 << 32 | 300_000);
    }

    #[test]
    fn text_that_is_no_device_number_is_an_error() {
        for text in ["", ":", "8", "8:", "8:1:2", "-1:2", "8:4294967296"] {
            assert!(text.parse::<DeviceNumber>().is_err(), "{text}");
        }
        assert_eq!(" 8:1\n".parse(), Ok(DeviceNumber::new(8, 1)));
    }

    proptest! {
        #[test]
        fn every_encoding_is_reversible(major: u32, minor: u32) {
            let number = DeviceNumber { major, minor };
            prop_assert_eq!(DeviceNumber::from_key(number.key()), number);
            prop_assert_eq!(number.to_string().parse(), Ok(number));
            prop_assert_eq!(DeviceNumber::from_stat(number.to_stat()), number);
        }

        #[test]
        fn kernel_encoding_is_reversible(dev: u32) {
            prop_assert_eq!(DeviceNumber::from_kernel(dev).to_kernel(), dev);
        }
    }
}

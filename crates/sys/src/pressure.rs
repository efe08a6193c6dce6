//! Pressure stall information: how long tasks waited for memory or disks (`/proc/pressure`).

use crate::{Error, Result};
use std::fs;
use std::time::Duration;

/// The resource that tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Memory: reclaim, refaults.
    Memory,
    /// Disks.
    Io,
}

/// How long at least one task waited for a resource, since boot (the total of the `some` line).
///
/// Errors: [`Error::Unsupported`] if the kernel does not account for it (`psi=0`, before Linux 4.20, hidden by a container).
pub fn total(resource: Resource) -> Result<Duration> {
    let path = match resource {
        Resource::Memory => "/proc/pressure/memory",
        Resource::Io => "/proc/pressure/io",
    };
    let text = fs::read_to_string(path).map_err(|_| Error::Unsupported {
        what: "reading pressure stall information".into(),
        why: format!("no {path}"),
    })?;
    parse(&text).ok_or_else(|| Error::Parse { path: path.into(), text })
}

fn parse(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_line_is_parsed() {
        let text = "some avg10=1.50 avg60=0.12 avg300=0.64 total=16005033\nfull avg10=0.00 avg60=0 avg300=0 total=0\n";
        assert_eq!(parse(text), Some(Duration::from_micros(16_005_033)));
        assert_eq!(parse("full avg10=0.00 total=0"), None);
        assert_eq!(parse("some avg10=0.00 total=x"), None);
    }

    #[test]
    fn pressure_of_this_machine_is_valid_or_unsupported() {
        for resource in [Resource::Memory, Resource::Io] {
            assert!(
                total(resource).is_ok_and(|total| total < Duration::MAX)
                    || total(resource).unwrap_err().is_unavailable()
            );
        }
    }
}

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

/// The `some` line: at least one task waited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// Share of the last ten seconds. Unit: per cent.
    pub avg10_percent: f64,
    /// Since boot.
    pub total: Duration,
}

/// Reads the pressure on a resource.
///
/// Errors: [`Error::Unsupported`] if the kernel does not account for it (`psi=0`, before Linux 4.20, hidden by a container).
pub fn some(resource: Resource) -> Result<Pressure> {
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

fn parse(text: &str) -> Option<Pressure> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = |key: &str| line.split(' ').find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
    Some(Pressure {
        avg10_percent: value("avg10")?.parse().ok()?,
        total: Duration::from_micros(value("total")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_line_is_parsed() {
        let text = "some avg10=1.50 avg60=0.12 avg300=0.64 total=16005033\nfull avg10=0.00 avg60=0 avg300=0 total=0\n";
        let expected = Pressure { avg10_percent: 1.5, total: Duration::from_micros(16_005_033) };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("full avg10=0.00 total=0"), None);
        assert_eq!(parse("some avg10=x total=0"), None);
    }

    #[test]
    fn pressure_of_this_machine_is_valid_or_unsupported() {
        for resource in [Resource::Memory, Resource::Io] {
            match some(resource) {
                Ok(pressure) => assert!((0.0..=100.0).contains(&pressure.avg10_percent)),
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
        }
    }
}

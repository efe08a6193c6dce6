//! Whether this boot is observed and replayed at all.

use std::path::Path;

/// What decides whether `ahead` takes part in a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// The words of the kernel's command line; in a container, of the command line of its PID 1.
    pub command_line: Vec<String>,
    /// Whether PID 1 runs in a container.
    pub in_container: bool,
    /// Whether `AHEAD_CONTAINER=1` permits containers.
    pub container_permitted: bool,
    /// Whether the firmware's power profile is the one that saves power.
    pub saves_power: bool,
}

/// Why `ahead` leaves a boot alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// `ahead=off` on the kernel's command line.
    CommandLine,
    /// In a container, without `AHEAD_CONTAINER=1`.
    Container,
    /// The battery saver is on.
    PowerSaver,
}

impl Off {
    /// The reason as text.
    pub fn reason(self) -> &'static str {
        match self {
            Off::CommandLine => "ahead=off on the kernel's command line",
            Off::Container => "in a container, where AHEAD_CONTAINER=1 is needed",
            Off::PowerSaver => "the power profile low-power is set",
        }
    }
}

/// systemd writes the kind of the container into this file.
const CONTAINER: &str = "/run/systemd/container";
/// In the environment of a container's PID 1, it permits both.
const PERMISSION: &str = "AHEAD_CONTAINER=1";
/// The power profile of the firmware (Documentation/ABI/testing/sysfs-platform_profile).
const POWER_PROFILE: &str = "/sys/firmware/acpi/platform_profile";

impl Circumstances {
    /// Those of this boot. A file that cannot be read counts as absent.
    pub fn now() -> Circumstances {
        let in_container = Path::new(CONTAINER).exists();
        let read = |path: &str| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let command_line = if in_container { read("/proc/1/cmdline") } else { read("/proc/cmdline") };
        Circumstances {
            command_line: command_line
                .split(|at: char| at == '\0' || at.is_ascii_whitespace())
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
            in_container,
            // systemd does not pass its environment on.
            container_permitted: read("/proc/1/environ").split('\0').any(|variable| variable == PERMISSION),
            saves_power: read(POWER_PROFILE).trim() == "low-power",
        }
    }

    /// Why `ahead` leaves this boot alone; `None`: it does not.
    pub fn off(&self) -> Option<Off> {
        if self.last_setting() == Some("off") {
            Some(Off::CommandLine)
        } else if self.in_container && !self.container_permitted {
            Some(Off::Container)
        } else {
            self.saves_power.then_some(Off::PowerSaver)
        }
    }

    /// Whether `ahead=record` asks for a recording of a boot without replay, in place of all earlier ones.
    pub fn asks_for_recording(&self) -> bool {
        self.last_setting() == Some("record")
    }

    /// The value of the last `ahead=`: as the kernel does, a later word overrides an earlier one.
    fn last_setting(&self) -> Option<&str> {
        self.command_line.iter().rev().find_map(|word| word.strip_prefix("ahead="))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str) -> Circumstances {
        Circumstances { command_line: line.split(' ').map(str::to_owned).collect(), ..Circumstances::default() }
    }

    #[test]
    fn command_line_switches_off_and_asks_for_a_recording() {
        assert_eq!(with("quiet root=/dev/sda1").off(), None);
        assert_eq!(with("quiet ahead=off").off(), Some(Off::CommandLine));
        assert_eq!(with("ahead=off ahead=record").off(), None);
        assert!(with("ahead=off ahead=record").asks_for_recording());
        assert!(!with("ahead=recording xahead=record").asks_for_recording());
    }

    #[test]
    fn container_and_power_saver_switch_off() {
        let container = Circumstances { in_container: true, ..with("systemd") };
        assert_eq!(container.off(), Some(Off::Container));
        assert_eq!(Circumstances { container_permitted: true, ..container }.off(), None);
        assert_eq!(Circumstances { saves_power: true, ..with("quiet") }.off(), Some(Off::PowerSaver));
    }
}

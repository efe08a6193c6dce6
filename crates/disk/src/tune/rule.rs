//! Keeps a window: the text of a udev rule, or of a systemd unit where udev has no event.
//!
//! udev reads a disk's rule whenever the disk appears. NFS, FUSE and btrfs have a backing device only while they are mounted,
//! with another number each time. A unit wanted by the mount unit sets the window after systemd has mounted the file system.
//! The unit looks the number up in the mount table by mount point, source and type, so that another mount there is not changed.
//! For btrfs it uses the UUID.

use crate::tune::identity::{Identity, is_name};
use crate::tune::value::{MountUnit, RuleValue, UnitValue, comment};
use std::path::{Path, PathBuf};

/// The path of the file that keeps a window, below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RulePlace {
    pub path: PathBuf,
    /// A symbolic link to it, which enables a unit.
    pub link: Option<PathBuf>,
}

/// A file that keeps a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Its path.
    pub place: RulePlace,
    /// Its content.
    pub text: String,
}

/// The first line of our files: others are not touched.
const HEADER: &str = "# Written by `ahead tune --persist`";
const RULES: &str = "etc/udev/rules.d";
const UNITS: &str = "etc/systemd/system";
/// In the line of a rule: its beginning, the text before the window, and its end.
const IN_RULE: (&str, &str, &str) = ("ACTION==", "queue/read_ahead_kb}=\"", "\"");
/// The beginning of a unit's line with the window.
const IN_UNIT: &str = "Environment=AHEAD_KB=";

impl RulePlace {
    /// The path of the rule for an identity.
    pub fn of(identity: &Identity) -> RulePlace {
        let name = identity.file_name();
        match identity {
            Identity::Mount { point, .. } | Identity::Btrfs { point, .. } => {
                let name = format!("ahead-tune-{name}.service");
                let link = PathBuf::from(format!("{UNITS}/{}.wants/{name}", MountUnit::of(point)));
                RulePlace { path: Path::new(UNITS).join(name), link: Some(link) }
            }
            // After 60-persistent-storage.rules, which finds serial numbers, and after rules that set windows of all disks.
            _ => RulePlace { path: format!("{RULES}/99-ahead-tune-{name}.rules").into(), link: None },
        }
    }
}

impl Rule {
    /// The file that keeps this window for this target.
    ///
    /// Errors: a part of the identity cannot be written there; which, and why.
    pub fn new(identity: &Identity, kb: u64) -> Result<Rule, String> {
        let text = match identity {
            Identity::Mount { point, source, fs_type } => {
                let (source, fs_type) = (UnitValue::new(source)?, UnitValue::of_type(fs_type)?);
                let environment = [("POINT", UnitValue::new(point)?), ("SOURCE", source), ("TYPE", fs_type)];
                unit(identity, MountUnit::of(point).checked()?, &environment, OF_MOUNT, kb)
            }
            Identity::Btrfs { uuid, point } => {
                let environment = [("UUID", UnitValue::of_uuid(uuid)?)];
                unit(identity, MountUnit::of(point).checked()?, &environment, OF_BTRFS, kb)
            }
            Identity::Property { name, value } => udev(identity, &format!("ENV{{{}}}", known(name)?), value, DISK, kb)?,
            Identity::Attribute { name, value } => {
                udev(identity, &format!("ATTR{{{}}}", known(name)?), value, DISK, kb)?
            }
            Identity::FileSystem { uuid, on_partition } => {
                udev(identity, "ENV{ID_FS_UUID}", uuid, if *on_partition { PARTITION } else { DISK }, kb)?
            }
        };
        Ok(Rule { place: RulePlace::of(identity), text })
    }

    /// The window of such a file, KiB. `None`: the file is not ours, or has none. Comments and values are not searched.
    pub fn kb(text: &str) -> Option<u64> {
        let (begins, before, ends) = IN_RULE;
        let of_line = |line: &str| match line.strip_prefix(IN_UNIT) {
            Some(kb) => kb.parse().ok(),
            None => line.strip_prefix(begins)?.strip_suffix(ends)?.rsplit_once(before)?.1.parse().ok(),
        };
        Rule::is_ours(text).then(|| text.lines().find_map(of_line)).flatten()
    }

    /// Whether a file is ours.
    pub fn is_ours(text: &str) -> bool {
        text.starts_with(HEADER)
    }
}

/// Checks that a rule or a unit can name an identity.
pub(crate) fn check_identity(identity: Identity) -> Result<Identity, String> {
    Rule::new(&identity, 0).map(|_| identity)
}

/// The udev type of a device (`DEVTYPE`), and the relative path to its disk's directory in sysfs.
const DISK: (&str, &str) = ("disk", "");
const PARTITION: (&str, &str) = ("partition", "../");

/// Checks the name of a property, because a state may contain any name.
fn known(name: &str) -> Result<&str, String> {
    if is_name(name) { Ok(name) } else { Err(format!("{name:?} is not a disk property that rules use")) }
}

fn header(identity: &Identity) -> String {
    let plain = comment(&identity.to_string());
    format!("{HEADER}: the read-ahead window of {plain}.\n# `sudo ahead tune --restore` takes it away.\n")
}

fn udev(identity: &Identity, name: &str, value: &str, (kind, above): (&str, &str), kb: u64) -> Result<String, String> {
    let (begins, before, ends) = IN_RULE;
    let value = RuleValue::new(value)?;
    Ok(format!(
        "{}{begins}\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"{kind}\", {name}==\"{value}\", ATTR{{{above}{before}{kb}{ends}\n",
        header(identity)
    ))
}

/// The command of a unit: finds the number of the mount if it is the expected one, and writes its setting.
const OF_MOUNT: &str = r#"number=$(findmnt -k -n -f -o MAJ:MIN -M "$AHEAD_POINT" -S "$AHEAD_SOURCE" -t "$AHEAD_TYPE" | tr -d " ") && echo "$AHEAD_KB" > "/sys/class/bdi/$number/read_ahead_kb""#;
/// The same for btrfs.
const OF_BTRFS: &str = r#"echo "$AHEAD_KB" > "/sys/fs/btrfs/$AHEAD_UUID/bdi/read_ahead_kb""#;

fn unit(identity: &Identity, mount: MountUnit, environment: &[(&str, UnitValue)], script: &str, kb: u64) -> String {
    let line = |(name, value): &(&str, UnitValue)| format!("Environment=\"AHEAD_{name}={value}\"\n");
    let environment: String = environment.iter().map(line).collect();
    // In a unit, a dollar sign begins a variable of systemd.
    let script = script.replace('$', "$$");
    format!(
        "{}[Unit]
Description=Read-ahead window of {mount}
BindsTo={mount}
After={mount}

[Service]
Type=oneshot
RemainAfterExit=yes
{IN_UNIT}{kb}
{environment}ExecStart=/bin/sh -c '{script}'

[Install]
WantedBy={mount}
",
        header(identity)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(value: &str) -> Identity {
        Identity::Property { name: "ID_SERIAL".into(), value: value.into() }
    }

    fn mount(point: &str, source: &str) -> Identity {
        Identity::Mount { point: point.into(), source: source.into(), fs_type: "nfs4".into() }
    }

    fn last_line(identity: &Identity) -> String {
        Rule::new(identity, 512).unwrap().text.lines().last().unwrap().to_owned()
    }

    #[test]
    fn disk_is_named_by_its_serial_number() {
        let expected = r#"ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ENV{ID_SERIAL}=="QEMU_1", ATTR{queue/read_ahead_kb}="512""#;
        assert_eq!(last_line(&property("QEMU_1")), expected);
        let rule = Rule::new(&property("QEMU_1"), 512).unwrap();
        assert!(rule.place.path.to_str().unwrap().starts_with("etc/udev/rules.d/99-ahead-tune-ID-SERIAL-QEMU-1-"));
        assert_eq!((Rule::kb(&rule.text), rule.place.link), (Some(512), None));
    }

    #[test]
    fn other_identities_have_separate_keys() {
        let mapped = Identity::Attribute { name: "dm/uuid".into(), value: "LVM-x".into() };
        assert!(last_line(&mapped).contains(r#", ATTR{dm/uuid}=="LVM-x", ATTR{queue/read_ahead_kb}="512""#));
        let on = |on_partition| Identity::FileSystem { uuid: "12-34".into(), on_partition };
        assert!(
            last_line(&on(false))
                .contains(r#"ENV{DEVTYPE}=="disk", ENV{ID_FS_UUID}=="12-34", ATTR{queue/read_ahead_kb}"#)
        );
        assert!(
            last_line(&on(true))
                .contains(r#"ENV{DEVTYPE}=="partition", ENV{ID_FS_UUID}=="12-34", ATTR{../queue/read_ahead_kb}"#)
        );
    }

    #[test]
    fn pattern_characters_are_escaped_for_udev() {
        assert!(last_line(&property("a*b?c[d]")).contains(r#"=="a[*]b[?]c[[]d]""#));
    }

    #[test]
    fn rule_contains_no_kernel_name() {
        let rules = [last_line(&property("x")), last_line(&mount("/m", "s:/x"))];
        assert!(rules.iter().all(|rule| !rule.contains("KERNEL") && !rule.contains("sd")), "{rules:?}");
    }

    #[test]
    fn unit_of_a_mount_matches_exactly_that_mount() {
        let rule = Rule::new(&mount("/mnt/my data", "server:/a%b\"c"), 1024).unwrap();
        assert!(
            rule.text.contains("BindsTo=mnt-my\\x20data.mount\n")
                && rule.text.contains("WantedBy=mnt-my\\x20data.mount\n")
        );
        assert!(rule.text.contains("Environment=\"AHEAD_SOURCE=server:/a%%b\\\"c\"\n"), "{}", rule.text);
        assert_eq!(Rule::kb(&rule.text), Some(1024));
        let link = rule.place.link.unwrap();
        assert_eq!(link.parent().unwrap(), Path::new("etc/systemd/system/mnt-my\\x20data.mount.wants"));
        assert_eq!(link.file_name(), rule.place.path.file_name());
    }

    #[test]
    fn btrfs_is_named_by_its_uuid() {
        let rule = Rule::new(&Identity::Btrfs { uuid: "12-34".into(), point: "/".into() }, 1024).unwrap();
        assert!(rule.text.contains("BindsTo=-.mount\n") && rule.text.contains("AHEAD_UUID=12-34"), "{}", rule.text);
        assert!(
            rule.text.contains("/sys/fs/btrfs/$$AHEAD_UUID/bdi/read_ahead_kb") && Rule::kb(&rule.text) == Some(1024)
        );
    }

    #[test]
    fn foreign_file_has_no_window() {
        assert_eq!(Rule::kb("ATTR{queue/read_ahead_kb}=\"512\"\n"), None);
        assert_eq!(Rule::kb(&format!("{HEADER}\nATTR{{queue/read_ahead_kb}}=\"many\"\n")), None);
    }

    /// Regression: the type of a FUSE mount, which any user may choose, was not escaped. Text after a line feed in it became a
    /// line of the unit.
    #[test]
    fn no_value_becomes_a_separate_line() {
        let evil = "x\nExecStartPre=/bin/sh -c id";
        let of = |point: &str, source: &str, fs_type: &str| Identity::Mount {
            point: point.into(),
            source: source.into(),
            fs_type: fs_type.into(),
        };
        let refused = [
            of("/mnt", "s:/x", &format!("fuse.{evil}")),
            of("/mnt", evil, "nfs4"),
            of(&format!("/mnt/{evil}"), "s:/x", "nfs4"),
            of("/mnt", "s:/x", "nfs4,ext4"),
            property("x\", RUN+=\"/bin/id"),
            property("x\nRUN+=\"/bin/id\""),
            property("a|*"),
            Identity::Property { name: "X}==\"\", RUN+=\"/bin/id\", ENV{Y".into(), value: "x".into() },
            Identity::Attribute { name: "../../x".into(), value: "x".into() },
            Identity::FileSystem { uuid: evil.into(), on_partition: false },
            Identity::Btrfs { uuid: "../../x".into(), point: "/".into() },
        ];
        for identity in refused {
            let why = Rule::new(&identity, 512).unwrap_err();
            assert!(!why.contains('\n'), "{why:?}");
            // A state file may contain any identity. Its path stays inside the directory.
            let path = RulePlace::of(&identity).path.to_str().unwrap().to_owned();
            assert!(!path.chars().any(char::is_control) && path.matches('/').count() == 3, "{path:?}");
        }
    }

    /// Regression: the window was also searched in the comment, which contains the target's names.
    #[test]
    fn window_is_not_read_from_a_name() {
        let unit = Rule::new(&mount("/mnt/Environment=AHEAD_KB=7", "Environment=AHEAD_KB=8"), 512).unwrap();
        let rule = Rule::new(&property("queue/read_ahead_kb}=9"), 64).unwrap();
        assert_eq!((Rule::kb(&unit.text), Rule::kb(&rule.text)), (Some(512), Some(64)));
    }

    /// systemd itself reads the unit without a message, and udev the rule.
    #[test]
    fn systemd_and_udev_accept_the_files() {
        let home = tempfile::tempdir().unwrap();
        let write = |rule: &Rule| {
            let path = home.path().join(rule.place.path.file_name().unwrap());
            std::fs::write(&path, &rule.text).unwrap();
            path
        };
        let unit = write(&Rule::new(&mount("/mnt/my data", "server:/a%b\"c"), 1024).unwrap());
        let verified = std::process::Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
        match verified {
            Ok(output) => {
                let output = String::from_utf8_lossy(&output.stderr).into_owned();
                let name = unit.file_name().unwrap().to_string_lossy().into_owned();
                // Messages about the missing mount are expected.
                let wrong = output.lines().find(|line| line.contains(&name) && !line.contains(".mount"));
                assert_eq!(wrong, None, "{output}");
            }
            Err(_) => eprintln!("skipped: no systemd-analyze"),
        }
        let rules = write(&Rule::new(&property("a*b?c[d]$e%f"), 64).unwrap());
        match std::process::Command::new("udevadm").arg("verify").arg(&rules).output() {
            // Older versions of udev have no verify.
            Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("Unknown") => {
                assert!(output.status.success(), "{output:?}");
            }
            _ => eprintln!("skipped: no udevadm verify"),
        }
    }
}

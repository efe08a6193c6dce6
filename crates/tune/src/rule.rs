//! How a window stays: the text of a udev rule, or of a systemd unit where udev tells nothing.
//!
//! A disk's rule is read whenever udev sees the disk. NFS, FUSE and btrfs have a backing device only as long as they are mounted,
//! with another number each time: a unit that is wanted by the mount's sets it when systemd has mounted it. It looks the number up
//! in the mount table, by place, source and type, so that what else may be mounted there is left alone. btrfs has its UUID.

use crate::identity::Identity;
use std::path::{Path, PathBuf};

/// A file that keeps a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Where it belongs, below the root.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
    /// A symbolic link to it, which switches a unit on.
    pub link: Option<PathBuf>,
}

/// How a file of ours begins: others are not touched.
const HEADER: &str = "# Written by `ahead tune --persist`";
const RULES: &str = "etc/udev/rules.d";
const UNITS: &str = "etc/systemd/system";
/// Before and behind the value in a rule.
const IN_RULE: (&str, &str) = ("queue/read_ahead_kb}=\"", "\"\n");
/// The same in a unit.
const IN_UNIT: (&str, &str) = ("Environment=AHEAD_KB=", "\n");

impl Rule {
    /// The file that keeps this window for this target.
    pub fn new(identity: &Identity, kb: u64) -> Rule {
        match identity {
            Identity::Mount { point, source, fs_type } => {
                let environment = [("POINT", point), ("SOURCE", source), ("TYPE", fs_type)];
                unit(identity, point, &environment, OF_MOUNT, kb)
            }
            Identity::Btrfs { uuid, point } => unit(identity, point, &[("UUID", uuid)], OF_BTRFS, kb),
            _ => Rule {
                // Behind 60-persistent-storage.rules, which finds serial numbers, and whatever sets windows for all disks.
                path: format!("{RULES}/99-ahead-tune-{}.rules", identity.file_name()).into(),
                text: udev(identity, kb),
                link: None,
            },
        }
    }

    /// The window that such a file keeps, KiB; `None`: it is not ours, or says none.
    pub fn kb(text: &str) -> Option<u64> {
        let between = |(before, behind): (&str, &str)| text.split_once(before)?.1.split_once(behind)?.0.parse().ok();
        if !Rule::is_ours(text) { None } else { between(IN_RULE).or_else(|| between(IN_UNIT)) }
    }

    /// Whether we wrote such a file.
    pub fn is_ours(text: &str) -> bool {
        text.starts_with(HEADER)
    }
}

fn header(identity: &Identity) -> String {
    let plain: String = identity.to_string().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("{HEADER}: the read-ahead window of {plain}.\n# `ahead tune --restore` takes it away.\n")
}

fn udev(identity: &Identity, kb: u64) -> String {
    let (name, own, place) = match identity {
        Identity::Property { name, value } => (format!("ENV{{{name}}}"), value, ("disk", "")),
        Identity::Attribute { name, value } => (format!("ATTR{{{name}}}"), value, ("disk", "")),
        Identity::FileSystem { uuid, on_partition: false } => ("ENV{ID_FS_UUID}".into(), uuid, ("disk", "")),
        Identity::FileSystem { uuid, .. } => ("ENV{ID_FS_UUID}".into(), uuid, ("partition", "../")),
        Identity::Mount { .. } | Identity::Btrfs { .. } => unreachable!("a mount has a unit"),
    };
    let ((kind, above), own, set) = (place, pattern(own), IN_RULE.0);
    format!(
        "{}ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"{kind}\", {name}==\"{own}\", ATTR{{{above}{set}{kb}\"\n",
        header(identity)
    )
}

/// udev compares by patterns, in which a set of one letter is that letter.
fn pattern(value: &str) -> String {
    value.chars().map(|c| if matches!(c, '*' | '?' | '[') { format!("[{c}]") } else { c.to_string() }).collect()
}

/// What a unit runs: the number of what is mounted there, if it is what it should be, and then its setting.
const OF_MOUNT: &str = r#"number=$(findmnt -k -n -f -o MAJ:MIN -M "$AHEAD_POINT" -S "$AHEAD_SOURCE" -t "$AHEAD_TYPE" | tr -d " ") && echo "$AHEAD_KB" > "/sys/class/bdi/$number/read_ahead_kb""#;
/// The same of a btrfs.
const OF_BTRFS: &str = r#"echo "$AHEAD_KB" > "/sys/fs/btrfs/$AHEAD_UUID/bdi/read_ahead_kb""#;

fn unit(identity: &Identity, point: &str, environment: &[(&str, &String)], script: &str, kb: u64) -> Rule {
    let mount = format!("{}.mount", escape_path(point));
    let name = format!("ahead-tune-{}.service", identity.file_name());
    let line = |(name, value): &(&str, &String)| format!("Environment=\"AHEAD_{name}={}\"\n", quoted(value));
    let (environment, set): (String, _) = (environment.iter().map(line).collect(), IN_UNIT.0);
    // To systemd a dollar begins a variable of its own.
    let script = script.replace('$', "$$");
    let text = format!(
        "{}[Unit]
Description=Read-ahead window of {mount}
BindsTo={mount}
After={mount}

[Service]
Type=oneshot
RemainAfterExit=yes
{set}{kb}
{environment}ExecStart=/bin/sh -c '{script}'

[Install]
WantedBy={mount}
",
        header(identity)
    );
    let link = PathBuf::from(format!("{UNITS}/{mount}.wants/{name}"));
    Rule { path: Path::new(UNITS).join(name), text, link: Some(link) }
}

/// Between double quotes in a unit (systemd.syntax(7)); `%` begins a specifier, `$` nothing in an environment.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        '%' => "%%".into(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// The name of a mount's unit without its ending, as `systemd-escape --path` has it.
pub(crate) fn escape_path(path: &str) -> String {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return "-".into();
    }
    let escape = |(index, byte): (usize, u8)| match byte {
        b'/' => "-".to_owned(),
        b'.' if index == 0 => "\\x2e".into(),
        byte if byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'.') => char::from(byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    trimmed.bytes().enumerate().map(escape).collect()
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
        Rule::new(identity, 512).text.lines().last().unwrap().to_owned()
    }

    #[test]
    fn a_disk_is_named_by_its_serial_number() {
        let expected = r#"ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ENV{ID_SERIAL}=="QEMU_1", ATTR{queue/read_ahead_kb}="512""#;
        assert_eq!(last_line(&property("QEMU_1")), expected);
        let rule = Rule::new(&property("QEMU_1"), 512);
        assert!(rule.path.to_str().unwrap().starts_with("etc/udev/rules.d/99-ahead-tune-ID-SERIAL-QEMU-1-"));
        assert_eq!((Rule::kb(&rule.text), rule.link), (Some(512), None));
    }

    #[test]
    fn other_identities_have_their_own_keys() {
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
    fn letters_that_mean_something_to_udev_mean_themselves() {
        assert!(last_line(&property("a*b?c[d]")).contains(r#"=="a[*]b[?]c[[]d]""#));
    }

    #[test]
    fn no_kernel_name_is_in_a_rule() {
        let rules = [last_line(&property("x")), last_line(&mount("/m", "s:/x"))];
        assert!(rules.iter().all(|rule| !rule.contains("KERNEL") && !rule.contains("sd")), "{rules:?}");
    }

    #[test]
    fn a_mount_has_a_unit_that_looks_for_exactly_it() {
        let rule = Rule::new(&mount("/mnt/my data", "server:/a%b\"c"), 1024);
        assert!(
            rule.text.contains("BindsTo=mnt-my\\x20data.mount\n")
                && rule.text.contains("WantedBy=mnt-my\\x20data.mount\n")
        );
        assert!(rule.text.contains("Environment=\"AHEAD_SOURCE=server:/a%%b\\\"c\"\n"), "{}", rule.text);
        assert_eq!(Rule::kb(&rule.text), Some(1024));
        let link = rule.link.unwrap();
        assert_eq!(link.parent().unwrap(), Path::new("etc/systemd/system/mnt-my\\x20data.mount.wants"));
        assert_eq!(link.file_name(), rule.path.file_name());
    }

    #[test]
    fn btrfs_is_named_by_its_uuid() {
        let rule = Rule::new(&Identity::Btrfs { uuid: "12-34".into(), point: "/".into() }, 1024);
        assert!(rule.text.contains("BindsTo=-.mount\n") && rule.text.contains("AHEAD_UUID=12-34"), "{}", rule.text);
        assert!(
            rule.text.contains("/sys/fs/btrfs/$$AHEAD_UUID/bdi/read_ahead_kb") && Rule::kb(&rule.text) == Some(1024)
        );
    }

    #[test]
    fn what_is_not_ours_keeps_nothing() {
        assert_eq!(Rule::kb("ATTR{queue/read_ahead_kb}=\"512\"\n"), None);
        assert_eq!(Rule::kb(&format!("{HEADER}\nATTR{{queue/read_ahead_kb}}=\"many\"\n")), None);
    }

    #[test]
    fn paths_are_escaped_as_systemd_does() {
        let known = [("/", "-"), ("/mnt/x/", "mnt-x"), ("/.a/b-c", "\\x2ea-b\\x2dc"), ("/é_1:2", "\\xc3\\xa9_1:2")];
        for (path, escaped) in known {
            assert_eq!(escape_path(path), escaped);
            let theirs = std::process::Command::new("systemd-escape").args(["--path", path]).output();
            if let Ok(theirs) = theirs.map(|output| String::from_utf8(output.stdout).unwrap()) {
                assert_eq!(theirs.trim(), escaped);
            }
        }
    }

    /// systemd itself reads the unit without a word, and udev the rule.
    #[test]
    fn systemd_and_udev_understand_what_is_written() {
        let home = tempfile::tempdir().unwrap();
        let write = |rule: &Rule| {
            let path = home.path().join(rule.path.file_name().unwrap());
            std::fs::write(&path, &rule.text).unwrap();
            path
        };
        let unit = write(&Rule::new(&mount("/mnt/my data", "server:/a%b\"c"), 1024));
        let verified = std::process::Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
        match verified {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let name = unit.file_name().unwrap().to_string_lossy().into_owned();
                // The mount is not there, which is another matter.
                let wrong = said.lines().find(|line| line.contains(&name) && !line.contains(".mount"));
                assert_eq!(wrong, None, "{said}");
            }
            Err(_) => eprintln!("skipped: no systemd-analyze"),
        }
        let rules = write(&Rule::new(&property("a*b?c[d]"), 64));
        match std::process::Command::new("udevadm").arg("verify").arg(&rules).output() {
            // Older ones have no verify.
            Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("Unknown") => {
                assert!(output.status.success(), "{output:?}");
            }
            _ => eprintln!("skipped: no udevadm verify"),
        }
    }
}

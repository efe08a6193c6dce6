//! All state of a machine that `ahead` could change or leave, as lines to compare.

use crate::commands::Scene;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time until the kernel removes loop devices and mounts after their last close, seconds.
const LONGEST_SETTLING: Duration = Duration::from_secs(20);

/// The state of each object (a path, a mount, a process).
pub struct Snapshot(BTreeMap<String, String>);

impl Snapshot {
    pub fn take(scene: &Scene) -> Snapshot {
        let mut lines = BTreeMap::new();
        mounts(&mut lines);
        for entry in names("/sys/block") {
            settings(&mut lines, &Path::new("/sys/block").join(&entry).join("queue"));
            one(&mut lines, &Path::new("/sys/block").join(&entry).join("loop/backing_file"));
        }
        for entry in names("/sys/class/bdi") {
            one(&mut lines, &Path::new("/sys/class/bdi").join(entry).join("read_ahead_kb"));
        }
        one(&mut lines, &scene.debugfs().join("fault_around_bytes"));
        lines.insert("tracing instances".into(), names("/sys/kernel/tracing/instances").join(" "));
        for directory in ["/etc/udev/rules.d", "/etc/systemd/system", "/run/udev/rules.d", "/run/systemd/system"] {
            lines.insert(directory.into(), names(directory).join(" "));
        }
        for directory in [Path::new("/run/ahead"), scene.home(), scene.target(), scene.bystander()] {
            tree(&mut lines, directory);
        }
        let processes: Vec<String> = scene.all_processes().iter().map(|process| process.pid.to_string()).collect();
        lines.insert("processes".into(), processes.join(" "));
        lines.insert("the bystander's note".into(), scene.has_own_note().to_string());
        Snapshot(lines)
    }

    /// The differences from the present state, after the kernel has removed unused loop devices and mounts.
    pub fn differences(&self, scene: &Scene) -> Vec<String> {
        let deadline = Instant::now() + LONGEST_SETTLING;
        loop {
            let now = Snapshot::take(scene);
            let keys = self.0.keys().chain(now.0.keys().filter(|key| !self.0.contains_key(*key)));
            let differences: Vec<String> = keys
                .filter(|key| self.0.get(*key) != now.0.get(*key))
                .map(|key| format!("{key}: {:?} before, {:?} now", self.0.get(key), now.0.get(key)))
                .collect();
            if differences.is_empty() || Instant::now() > deadline {
                return differences;
            }
            std::thread::yield_now();
        }
    }
}

fn names(directory: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Mount points with type, source and options, but without the mounts' numbers, which change when other mounts come and go.
fn mounts(lines: &mut BTreeMap<String, String>) {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("read the mount table");
    for (index, line) in table.lines().enumerate() {
        let fields: Vec<&str> = line.split(' ').collect();
        // Fields 0 and 1 are numbers of mounts (proc(5)); several mounts may have one mount point.
        let order = table.lines().take(index).filter(|line| line.split(' ').nth(4) == Some(fields[4])).count();
        lines.insert(format!("mount {} {order}", fields[4]), fields[2..].join(" "));
    }
}

/// Settings: the files that root may write.
fn settings(lines: &mut BTreeMap<String, String>, directory: &Path) {
    for name in names(directory) {
        let path = directory.join(name);
        let is_setting = |metadata: fs::Metadata| metadata.is_file() && metadata.permissions().mode() & 0o200 != 0;
        if path.symlink_metadata().is_ok_and(is_setting) {
            one(lines, &path);
        }
    }
}

fn one(lines: &mut BTreeMap<String, String>, path: &Path) {
    if let Ok(text) = fs::read_to_string(path) {
        lines.insert(path.display().to_string(), text.trim().to_owned());
    }
}

/// Every file: kind, mode, owner, and the content of short regular files. Lock files are excluded. Mount points are not
/// entered: reading debugfs may block without end.
fn tree(lines: &mut BTreeMap<String, String>, directory: &Path) {
    let Ok(device) = directory.metadata().map(|metadata| metadata.dev()) else { return };
    for name in names(directory) {
        let path = directory.join(&name);
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let kind = metadata.file_type();
        let is_text = kind.is_file() && metadata.len() < 1 << 20 && !name.ends_with(".log");
        let content = if is_text { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let state = format!(
            "{:o} {} {} {}",
            metadata.mode(),
            metadata.uid(),
            if kind.is_socket() { "socket" } else { "" },
            crc32fast::hash(&content)
        );
        if !name.ends_with("lock") {
            lines.insert(path.display().to_string(), state);
        }
        if kind.is_dir() && metadata.dev() == device {
            tree(lines, &path);
        }
    }
}

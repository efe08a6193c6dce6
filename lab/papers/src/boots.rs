//! Boots of real systems, as `bench/boot/run.py` writes them into `bench/results/boot.json`.
//!
//! ```text
//!     trees ─▶ disks ─▶ ways (nothing, whole files, …) ─▶ boot_s, idle_s: one value for each boot
//! ```
//!
//! The file is untrusted: its size, the number of entries and the values are limited. Unknown keys are ignored.

use serde::Deserialize;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of the file, bytes. A boot takes about 40 bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of trees, of disks of a tree, and of ways of a disk: each is printed.
const MAX_ENTRIES: usize = 32;
/// Maximum length of a text, bytes.
const MAX_TEXT_BYTES: usize = 200;
/// Longest time of a boot, seconds: a day.
const MAX_S: f64 = 86_400.0;

/// The way without any replay, with which the others are compared.
pub const NOTHING: &str = "nothing";
/// The way of the paper: whole files in the order of the disk.
pub const WHOLE_FILES: &str = "whole files";

/// Boots of real systems.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RealBoots {
    /// The measured commit.
    pub commit: String,
    /// The day of the measurement.
    pub date: String,
    pub machine: String,
    pub kernel: String,
    /// The systems.
    pub trees: Vec<Tree>,
}

/// A system that is booted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Tree {
    /// Its name: `minbase`, `services`.
    pub tree: String,
    /// The disks from which it is booted.
    pub disks: Vec<Disk>,
}

/// The boots of a system from a disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Disk {
    /// The name of the disk's model.
    pub disk: String,
    /// The boots, by the way in which files are prefetched.
    pub ways: Vec<Way>,
}

/// Boots with the same prefetch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Way {
    /// The way: [`NOTHING`], [`WHOLE_FILES`], ….
    pub way: String,
    /// Time to the login prompt, seconds, of each boot.
    pub boot_s: Vec<f64>,
    /// Idle time of the processors until then, seconds.
    pub idle_s: Vec<f64>,
}

/// Why a file of boots cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BootsError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not what `bench/boot/run.py` writes.
    #[error("{path}: {why}; make bench-boot writes such a file")]
    Invalid {
        path: PathBuf,
        /// The problem and its place.
        why: String,
    },
}

impl RealBoots {
    /// Loads a file.
    ///
    /// Errors: not a regular file, or not such a file.
    pub fn load(path: &Path) -> Result<RealBoots, BootsError> {
        let failed = |source| BootsError::Io { path: path.into(), source };
        let file = ahead_sys::directory::open_regular_file(path, false).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        RealBoots::parse(&bytes).map_err(|why| BootsError::Invalid { path: path.into(), why })
    }

    /// Parses the content of a file.
    ///
    /// Errors: the problem and its place.
    pub fn parse(bytes: &[u8]) -> Result<RealBoots, String> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("longer than {MAX_BYTES} bytes"));
        }
        let boots: RealBoots = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        boots.check()?;
        Ok(boots)
    }

    fn check(&self) -> Result<(), String> {
        for (key, text) in
            [("commit", &self.commit), ("date", &self.date), ("machine", &self.machine), ("kernel", &self.kernel)]
        {
            check_text(text).map_err(|why| format!("{key}: {why}"))?;
        }
        check_names("trees", self.trees.iter().map(|tree| &tree.tree))?;
        for tree in &self.trees {
            check_names(&format!("tree {}", tree.tree), tree.disks.iter().map(|disk| &disk.disk))?;
            for disk in &tree.disks {
                let place = format!("tree {}, disk {}", tree.tree, disk.disk);
                check_names(&place, disk.ways.iter().map(|way| &way.way))?;
                disk.ways
                    .iter()
                    .try_for_each(|way| way.check().map_err(|why| format!("{place}, {}: {why}", way.way)))?;
            }
        }
        Ok(())
    }

    /// Where and when the boots were measured.
    pub fn origin(&self) -> String {
        // The description of a machine may name the kernel already.
        let kernel =
            if self.machine.contains(&self.kernel) { String::new() } else { format!(", Linux {}", self.kernel) };
        format!("{}{kernel}, commit {}, {}", self.machine, self.commit, self.date)
    }
}

/// Checks the names of a list, which are printed.
fn check_names<'a>(place: &str, names: impl Iterator<Item = &'a String> + Clone) -> Result<(), String> {
    if names.clone().count() > MAX_ENTRIES {
        return Err(format!("{place}: more than {MAX_ENTRIES} entries"));
    }
    for (index, name) in names.clone().enumerate() {
        check_text(name).map_err(|why| format!("{place}, entry {}: {why}", index + 1))?;
        if names.clone().take(index).any(|other| other == name) {
            return Err(format!("{place}: {name} is listed twice"));
        }
    }
    Ok(())
}

/// A text is printed on a terminal, in one line.
fn check_text(text: &str) -> Result<(), String> {
    match text {
        "" => Err("the text is empty".into()),
        _ if text.len() > MAX_TEXT_BYTES => Err(format!("a text is longer than {MAX_TEXT_BYTES} bytes")),
        _ if text.chars().any(char::is_control) => Err("a text has a control character".into()),
        _ => Ok(()),
    }
}

impl Disk {
    /// The boots of a way.
    pub fn way(&self, name: &str) -> Option<&Way> {
        self.ways.iter().find(|way| way.way == name)
    }
}

impl Way {
    fn check(&self) -> Result<(), String> {
        if self.boot_s.is_empty() || self.boot_s.len() != self.idle_s.len() {
            return Err(format!("{} boot times and {} idle times", self.boot_s.len(), self.idle_s.len()));
        }
        let wrong = |value: &&f64| !(0.0..=MAX_S).contains(*value);
        match self.boot_s.iter().chain(&self.idle_s).find(wrong) {
            Some(value) => Err(format!("{value} s is not the time of a boot")),
            None => Ok(()),
        }
    }
}

/// The mean of values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample; 0 for one value.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

/// The change of the mean, percent. `None`: the mean of `from` is 0.
pub fn change_percent(from: &[f64], to: &[f64]) -> Option<f64> {
    let from = mean(from);
    (from > 0.0).then(|| 100.0 * (mean(to) / from - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ways(ways: &str) -> String {
        format!(
            r#"{{"commit": "c", "date": "2026-11-24", "machine": "m", "kernel": "6.18", "trees": [
                {{"tree": "minbase", "disks": [{{"disk": "hdd", "ways": [{ways}]}}]}}]}}"#
        )
    }

    fn error(text: &str) -> String {
        RealBoots::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn means_changes_and_deviations_are_those_of_the_values() {
        let values = [2.0, 4.0, 6.0];
        assert_eq!((mean(&values), deviation(&values), deviation(&[5.0])), (4.0, 2.0, 0.0));
        assert_eq!(change_percent(&[48.368], &[39.942]).unwrap().round(), -17.0);
        assert_eq!(change_percent(&[0.0], &[1.0]), None);
    }

    #[test]
    fn missing_ways_and_unknown_keys_are_accepted() {
        let way = r#"{"way": "warm", "boot_s": [1.5], "idle_s": [0], "requests": [1], "seconds": null}"#;
        let boots = RealBoots::parse(with_ways(way).as_bytes()).unwrap();
        let disk = &boots.trees[0].disks[0];
        assert_eq!((disk.way("warm").unwrap().boot_s[0], disk.way(NOTHING)), (1.5, None));
        assert_eq!(boots.origin(), "m, Linux 6.18, commit c, 2026-11-24");
    }

    #[test]
    fn mistakes_have_their_place() {
        let way = |name: &str, boot: &str, idle: &str| {
            with_ways(&format!(r#"{{"way": "{name}", "boot_s": [{boot}], "idle_s": [{idle}]}}"#))
        };
        let place = "tree minbase, disk hdd, warm: ";
        assert_eq!(error(&way("warm", "", "")), format!("{place}0 boot times and 0 idle times"));
        assert_eq!(error(&way("warm", "1, 2", "1")), format!("{place}2 boot times and 1 idle times"));
        assert_eq!(error(&way("warm", "-1", "1")), format!("{place}-1 s is not the time of a boot"));
        assert_eq!(error(&way("warm", "1", "1e9")), format!("{place}1000000000 s is not the time of a boot"));
        assert!(error(&way("\\u001b[2J", "1", "1")).ends_with("entry 1: a text has a control character"));
        assert!(error(&way("", "1", "1")).ends_with("entry 1: the text is empty"));
        let one = r#"{"way": "warm", "boot_s": [1], "idle_s": [1]}"#;
        assert_eq!(error(&with_ways(&[one, one].join(","))), "tree minbase, disk hdd: warm is listed twice");
        assert!(error("{}").starts_with("missing field") && error("[").contains("line 1 column 1"));
        assert!(error(&" ".repeat(MAX_BYTES as usize + 1)).starts_with("longer than"));
    }
}

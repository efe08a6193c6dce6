//! Rules: which programs and files are steered, and how far.
//!
//! ```text
//!     process and file ──▶ [[exclude]] matches? ── yes ─▶ left alone
//!                              │ no
//!                              └──▶ [[include]] matches, or there is none? ── yes ─▶ steered
//! ```
//!
//! The text is hostile until it is checked: its size and the number of its rules are limited, an unknown key is a mistake with its line and
//! column, and a file that others may have written is refused for root.

mod parse;

use ahead_files::lists::{NamePattern, Pattern};
use ahead_sys::root::Root;
use ahead_sys::trusted::{self, Use};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest rules file. Unit: bytes.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// Which programs and files are steered, and how far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The limits of all acts.
    pub limits: Limits,
    include: Vec<Rule>,
    exclude: Vec<Rule>,
}

/// The limits of all acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Largest window of an open file. Unit: bytes.
    pub max_window_bytes: u64,
    /// Smallest window of an open file. Unit: bytes.
    pub min_window_bytes: u64,
    /// All windows and fetched pages together, as a share of the available memory: from 0 to 1.
    pub memory_share: f64,
    /// Acts per second; further ones wait for the next decision of the kernel.
    pub max_acts_per_second: u32,
    /// Open files that are tracked at a time.
    pub max_files: usize,
    /// Whether pages are fetched ahead; otherwise only windows are set.
    pub fetch: bool,
}

impl Default for Limits {
    /// Windows from 4 KiB to 16 MiB, a quarter of the available memory, 2000 acts per second, 4096 open files.
    fn default() -> Limits {
        Limits {
            max_window_bytes: 16 << 20,
            min_window_bytes: 4 << 10,
            memory_share: 0.25,
            max_acts_per_second: 2000,
            max_files: 4096,
            fetch: true,
        }
    }
}

/// Conditions that must all hold.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    line: usize,
    command: Option<NamePattern>,
    path: Option<Pattern>,
    mount: Option<Pattern>,
    cgroup: Option<Pattern>,
}

/// Why a rules file was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It is not a regular file.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Users other than root may have written it, or may replace it.
    #[error(transparent)]
    Untrusted(ahead_sys::Error),
    /// It is too large.
    #[error("rules have at most {MAX_TEXT_BYTES} bytes")]
    TooLarge,
    /// A mistake in the text.
    #[error("line {line}, column {column}: {message}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// Column, from 1, characters.
        column: usize,
        /// The mistake, and what is accepted.
        message: String,
    },
}

/// What rules are matched with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subject<'a> {
    /// Name of the process.
    pub command: &'a [u8],
    /// Path of the file as /proc has it: with ` (deleted)` behind that of a deleted one. `None`: not known.
    pub path: Option<&'a [u8]>,
    /// Mount point of the file; `None`: not known.
    pub mount: Option<&'a [u8]>,
    /// Control groups of the process, one path for each hierarchy.
    pub cgroups: &'a [Vec<u8>],
}

/// The result of the rules for a process and a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is steered.
    Steered,
    /// It is left alone, with the reason.
    LeftAlone(String),
}

impl Rules {
    /// Parses rules.
    ///
    /// Errors: the first mistake, with its line and column.
    pub fn parse(text: &str) -> Result<Rules, RulesError> {
        if text.len() as u64 > MAX_TEXT_BYTES {
            return Err(RulesError::TooLarge);
        }
        parse::rules(text)
    }

    /// Reads a rules file. For root, it and every directory above must belong to root, and no other user may write them: rules decide what a
    /// privileged process does.
    ///
    /// Errors: those of the file, and those of [`Rules::parse`].
    pub fn load(path: &Path) -> Result<Rules, RulesError> {
        let unreadable = |source| RulesError::Unreadable { path: path.into(), source };
        let file = if ahead_sys::machine::is_root() { open_as_root(path)? } else { open(path).map_err(unreadable)? };
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(RulesError::NotRegular { path: path.into() });
        }
        let mut text = String::new();
        file.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        Rules::parse(&text)
    }

    /// Whether a process and a file are steered. A property that is not known counts as excluded, never as included.
    pub(crate) fn verdict(&self, subject: &Subject<'_>) -> Verdict {
        if let Some(rule) = self.exclude.iter().find(|rule| rule.matches(subject, true)) {
            return rule.excluded();
        }
        if self.include.is_empty() || self.include.iter().any(|rule| rule.matches(subject, false)) {
            return Verdict::Steered;
        }
        Verdict::LeftAlone(NOT_INCLUDED.into())
    }

    /// The verdict for all files of a process. `None`: it depends on the path or the mount of the file, which cost system calls.
    pub(crate) fn verdict_of_process(&self, command: &[u8], cgroups: &[Vec<u8>]) -> Option<Verdict> {
        let subject = Subject { command, path: None, mount: None, cgroups };
        let applies = |rule: &&Rule| rule.matches_process(&subject);
        if let Some(rule) = self.exclude.iter().filter(applies).find(|rule| !rule.needs_place()) {
            return Some(rule.excluded());
        }
        let mut include = self.include.iter().filter(applies).peekable();
        if !self.include.is_empty() && include.peek().is_none() {
            return Some(Verdict::LeftAlone(NOT_INCLUDED.into()));
        }
        let includes_all = self.include.is_empty() || include.any(|rule| !rule.needs_place());
        let excludes_some = self.exclude.iter().any(|rule| applies(&rule));
        (includes_all && !excludes_some).then_some(Verdict::Steered)
    }

    /// Whether a rule has a condition on the mount of a file.
    pub(crate) fn needs_mounts(&self) -> bool {
        self.include.iter().chain(&self.exclude).any(|rule| rule.mount.is_some())
    }

    /// Whether a rule has a condition on the control groups of a process.
    pub(crate) fn needs_cgroups(&self) -> bool {
        self.include.iter().chain(&self.exclude).any(|rule| rule.cgroup.is_some())
    }
}

/// The path of a deleted file before it was deleted.
fn former(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b" (deleted)")
}

/// A FIFO would block the open.
fn open(path: &Path) -> std::io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

fn open_as_root(path: &Path) -> Result<File, RulesError> {
    let refused = |error| match error {
        ahead_sys::Error::Io { source, .. } => RulesError::Unreadable { path: path.into(), source },
        refused => RulesError::Untrusted(refused),
    };
    let absolute = std::path::absolute(path).map_err(|source| RulesError::Unreadable { path: path.into(), source })?;
    let handle = trusted::trusted_path("reading rules", &Root::default(), &absolute, Use::Now).map_err(refused)?;
    if !handle.is_regular_file() {
        return Err(RulesError::NotRegular { path: path.into() });
    }
    handle.reopen().map(File::from).map_err(refused)
}

/// The reason if only some programs and files are included.
const NOT_INCLUDED: &str = "no [[include]] rule matches";

impl Rule {
    fn matches(&self, subject: &Subject<'_>, if_unknown: bool) -> bool {
        let holds = |pattern: &Option<Pattern>, text: Option<&[u8]>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => {
                pattern.matches(text) || former(text).is_some_and(|text| pattern.matches(text))
            }
            (Some(_), None) => if_unknown,
        };
        self.matches_process(subject) && holds(&self.mount, subject.mount) && holds(&self.path, subject.path)
    }

    /// Whether the conditions on the process hold.
    fn matches_process(&self, subject: &Subject<'_>) -> bool {
        let in_group = |pattern: &Pattern| subject.cgroups.iter().any(|group| pattern.matches(group));
        self.command.as_ref().is_none_or(|pattern| pattern.matches(subject.command))
            && self.cgroup.as_ref().is_none_or(in_group)
    }

    fn needs_place(&self) -> bool {
        self.path.is_some() || self.mount.is_some()
    }

    fn excluded(&self) -> Verdict {
        Verdict::LeftAlone(format!("excluded by the rule on line {}", self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn subject<'a>(command: &'a str, path: Option<&'a str>, cgroups: &'a [Vec<u8>]) -> Subject<'a> {
        let mount = path.map(|_| b"/srv".as_slice());
        Subject { command: command.as_bytes(), path: path.map(str::as_bytes), mount, cgroups }
    }

    fn is_steered(rules: &Rules, command: &str, path: Option<&str>) -> bool {
        let groups = [b"/system.slice/db.service".to_vec()];
        rules.verdict(&subject(command, path, &groups)) == Verdict::Steered
    }

    #[test]
    fn exclude_counts_before_include_and_no_include_is_everything() {
        let all = Rules::parse("").unwrap();
        assert!(is_steered(&all, "fio", None) && !all.needs_mounts());
        let text = "[[exclude]]\ncommand = 'fio*'\n[[include]]\npath = '/srv/**'\n";
        let rules = Rules::parse(text).unwrap();
        assert!(is_steered(&rules, "cat", Some("/srv/a/b")));
        assert!(!is_steered(&rules, "fio2", Some("/srv/a/b")));
        assert!(!is_steered(&rules, "cat", Some("/home/a")));
    }

    #[test]
    fn all_conditions_of_a_rule_must_hold() {
        let rules = Rules::parse("[[exclude]]\ncommand = 'cat'\ncgroup = '/system.slice/*'\nmount = '/srv'\n").unwrap();
        let Verdict::LeftAlone(why) = rules.verdict(&subject("cat", Some("/srv/a"), &[b"/system.slice/x".to_vec()]))
        else {
            panic!("steered")
        };
        assert_eq!(why, "excluded by the rule on line 1");
        assert_eq!(rules.verdict(&subject("cat", Some("/srv/a"), &[b"/user.slice".to_vec()])), Verdict::Steered);
        assert!(is_steered(&rules, "dd", Some("/srv/a")));
    }

    #[test]
    fn unknown_path_is_excluded_and_never_included() {
        let exclude = Rules::parse("[[exclude]]\npath = '/srv/**'\n").unwrap();
        let include = Rules::parse("[[include]]\npath = '/srv/**'\n").unwrap();
        assert!(!is_steered(&exclude, "cat", None) && !is_steered(&include, "cat", None));
    }

    #[test]
    fn process_alone_decides_where_no_rule_needs_a_path() {
        let of = |text: &str, command: &str| Rules::parse(text).unwrap().verdict_of_process(command.as_bytes(), &[]);
        let left_alone = |verdict: Option<Verdict>| matches!(verdict, Some(Verdict::LeftAlone(_)));
        assert_eq!(of("", "cat"), Some(Verdict::Steered));
        let exclude = "[[exclude]]\ncommand = 'cat'\n";
        assert!(left_alone(of(exclude, "cat")));
        assert_eq!(of(exclude, "dd"), Some(Verdict::Steered));
        let exclude = "[[exclude]]\ncommand = 'cat'\npath = '/x'\n";
        assert_eq!((of(exclude, "cat"), of(exclude, "dd")), (None, Some(Verdict::Steered)));
        let include = "[[include]]\ncommand = 'cat'\npath = '/x'\n";
        assert_eq!(of(include, "cat"), None);
        assert!(left_alone(of(include, "dd")));
        assert_eq!(of(&format!("{include}[[include]]\ncommand = 'c*'\n"), "cat"), Some(Verdict::Steered));
    }

    #[test]
    fn file_that_others_may_write_is_refused_for_root() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        fs::write(&path, "[limits]\nfetch = false\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!Rules::load(&path).unwrap().limits.fetch);
        if ahead_sys::machine::is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
            let refused = Rules::load(&path).unwrap_err().to_string();
            assert!(refused.contains("chmod go-w"), "{refused}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(matches!(Rules::load(&path), Err(RulesError::Untrusted(_))));
        }
    }

    /// Regression: only the file itself was checked. Who may write a directory above it can put another file in its place.
    #[test]
    fn file_below_a_directory_that_others_may_write_is_refused_for_root() {
        let home = tempfile::tempdir().unwrap();
        let (open, path) = (home.path().join("open"), home.path().join("open/steer/rules.toml"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        for (path, mode) in [(home.path(), 0o755), (&open, 0o777), (path.parent().unwrap(), 0o755), (&path, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let loaded = Rules::load(&path);
        if ahead_sys::machine::is_root() {
            let refused = loaded.unwrap_err().to_string();
            assert!(refused.contains(&format!("{} may be written by other users", open.display())), "{refused}");
        } else {
            loaded.unwrap();
        }
    }

    #[test]
    fn fifo_directory_and_huge_file_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        assert!(matches!(Rules::load(&path), Err(RulesError::Unreadable { .. })));
        assert!(matches!(Rules::load(home.path()), Err(RulesError::NotRegular { .. })));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(matches!(Rules::load(&path), Err(RulesError::NotRegular { .. })));
        fs::remove_file(&path).unwrap();
        fs::write(&path, vec![b'#'; MAX_TEXT_BYTES as usize + 1]).unwrap();
        assert!(matches!(Rules::load(&path), Err(RulesError::TooLarge)));
        fs::write(&path, [0xff]).unwrap();
        assert!(matches!(Rules::load(&path), Err(RulesError::Unreadable { .. })));
    }
}

//! `ahead check`: whether the files of a profile are there as recorded, and a profile without those that are not.

use crate::root::RootArgument;
use ahead_files::ProfilePlace;
use ahead_files::lists::{Checked, Finding, Fixed, Problem};
use ahead_profile::Profile;
use ahead_report::json::add_path;
use ahead_report::number;
use ahead_report::progress::Progress;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use ahead_sys::machine;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare a profile with the files that are there now
///
/// Reports files that are missing, have changed, were replaced by another file with the same size and time, are no regular files, or are
/// listed twice: by one path, or by two paths of one file. The exit status is 1 if there is any, also with --fix. No file that the profile
/// names is read, except with --by-content, and with --fix those that have changed.
#[derive(Debug, Args)]
pub struct Check {
    /// Profile to check
    profile: PathBuf,
    /// Write the profile again: without missing files and those of other kinds, with the new size and time of changed files that
    /// still have the used parts, and with each file once
    #[arg(long)]
    fix: bool,
    /// Read the used parts of changed and replaced files: those that have the recorded content are no problem, and --fix gives their
    /// entries the new time and inode. Those whose content the profile does not know stay as recorded
    #[arg(long)]
    by_content: bool,
    #[command(flatten)]
    root: RootArgument,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
}

/// Files between two steps of the progress bar.
const STEP: usize = 256;

impl Check {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let root = self.root.open()?;
        // A symbolic link stays, and the profile that it leads to is replaced.
        let path = std::fs::canonicalize(&self.profile).unwrap_or_else(|_| self.profile.clone());
        let place = self.fix.then(|| ProfilePlace::open(&path)).transpose()?;
        let (profile, access) = match &place {
            Some(place) => place.load().map(|(profile, access)| (profile, Some(access)))?,
            None => (ahead_files::load(&self.profile)?, None),
        };
        let total = profile.files.len();
        let progress = Progress::new(total as u64);
        let mut checked = ahead_files::lists::check(&profile, &root, |done| {
            if done % STEP == STEP - 1 {
                progress.at(done as u64, total as u64, "checking files");
            }
        });
        if self.by_content {
            checked.accept_same_content(&profile, &root);
        }
        drop(progress);
        let fixed = match &place {
            Some(place) => {
                let (better, fixed) = ahead_files::lists::fix(profile.clone(), &checked, &root, self.by_content);
                if fixed != Fixed::default() {
                    place.save(&better, access.filter(|_| machine::is_root()))?;
                }
                Some(fixed)
            }
            None => None,
        };
        let report = CheckReport { profile: &profile, checked: &checked, fixed };
        let text = if self.json { format!("{:#}\n", report.json()) } else { report.text() };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::from(u8::from(!checked.findings.is_empty())))
    }
}

struct CheckReport<'a> {
    profile: &'a Profile,
    checked: &'a Checked,
    fixed: Option<Fixed>,
}

/// The names of problems in the JSON and in the table, with those of several files.
const PROBLEMS: [(&str, &str); 7] = [
    ("missing", "missing"),
    ("changed", "changed"),
    ("replaced", "replaced (another inode), same size and time"),
    ("not_regular", "not regular"),
    ("same_path", "same path"),
    ("same_file", "same file"),
    ("unknown", "unknown"),
];

impl CheckReport<'_> {
    /// The schema is documented in docs/reference/json.md.
    fn json(&self) -> Value {
        let mut value = json!({
            "files": self.profile.files.len(),
            "deleted": self.checked.deleted,
            "same_content": self.checked.accepted.len(),
            "problems": self.checked.findings.iter().map(|finding| self.problem(finding)).collect::<Vec<_>>(),
            "fixed": self.fixed.map(|Fixed { removed, updated, merged }| {
                json!({ "removed": removed, "updated": updated, "merged": merged })
            }),
        });
        for (key, _) in PROBLEMS {
            value[key] = self.checked.count(key).into();
        }
        value
    }

    fn problem(&self, finding: &Finding) -> Value {
        let file = &self.profile.files[finding.file];
        let mut row = json!({
            "problem": finding.problem.name(),
            "size_bytes": file.size_bytes,
            "mtime_ns": file.mtime_ns,
        });
        add_path(&mut row, "path", &file.path);
        if let Some(now) = self.checked.now[finding.file] {
            row["size_bytes_now"] = now.size_bytes.into();
            row["mtime_ns_now"] = now.mtime_ns.into();
            row["inode"] = file.inode.into();
            row["inode_now"] = now.inode.into();
        }
        if let Some((of, overlapping_bytes)) = finding.problem.duplicate() {
            add_path(&mut row, "of", &self.profile.files[of].path);
            row["overlapping_bytes"] = overlapping_bytes.into();
        }
        row
    }

    fn text(&self) -> String {
        let mut table = Table::new([("problem", Kind::Text), ("file", Kind::Path), ("", Kind::Text)]);
        for finding in &self.checked.findings {
            let path = printable(&self.profile.files[finding.file].path);
            let name = PROBLEMS.iter().find(|(key, _)| *key == finding.problem.name()).map_or("", |(_, name)| *name);
            table.row([name.to_owned(), path, self.detail(finding)]);
        }
        let rows = if table.is_empty() { String::new() } else { table.render(Screen::stdout()) + "\n" };
        let counts = PROBLEMS.iter().map(|(key, name)| (self.checked.count(key), name)).filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
        let files = number::count(self.profile.files.len() as u64, "file", "files");
        let found = if counts.is_empty() { "as recorded".to_owned() } else { counts.join(", ") };
        let found = match self.checked.accepted.len() {
            0 => found,
            accepted => format!("{found}; {accepted} with another time or inode and the recorded content"),
        };
        let fixed = self.fixed.map_or(String::new(), |Fixed { removed, updated, merged }| {
            format!("fixed: {removed} removed, {updated} updated, {merged} merged\n")
        });
        format!("{rows}{files}: {found}\n{fixed}")
    }

    fn detail(&self, finding: &Finding) -> String {
        let file = &self.profile.files[finding.file];
        match (finding.problem.duplicate(), self.checked.now[finding.file]) {
            (Some((of, overlapping_bytes)), _) => {
                let of = printable(&self.profile.files[of].path);
                format!("as {of}, {} twice", number::size(overlapping_bytes))
            }
            (None, Some(now)) if now.size_bytes != file.size_bytes => {
                format!("{}, now {}", number::size(file.size_bytes), number::size(now.size_bytes))
            }
            (None, Some(now)) if finding.problem == Problem::Replaced => {
                format!("inode {}, now {}", file.inode, now.inode)
            }
            (None, Some(_)) => "modified".to_owned(),
            (None, None) => String::new(),
        }
    }
}

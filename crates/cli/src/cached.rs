//! What `ahead resident` and `ahead evict` share: which files, and their figures.

use crate::messages;
use ahead::cold::{CachedFile, CachedPages, Finding, Item, Passed, Task, bytes_of, survey};
use ahead::{Signals, load};
use ahead_report::json::add_path;
use ahead_report::number::{count, grouped};
use ahead_report::progress::Progress;
use ahead_report::text::printable;
use ahead_sys::machine;
use clap::Args;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Which files.
#[derive(Args, Clone, Debug)]
pub struct FilesArguments {
    /// Files, and directories with everything below them. Symbolic links that you name are followed, those in directories are not, and
    /// other file systems that are mounted in a directory are not entered
    #[arg(value_name = "PATH", required_unless_present = "profile", conflicts_with = "profile")]
    paths: Vec<PathBuf>,
    /// The files of this profile
    #[arg(short, long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// List every file
    #[arg(long)]
    files: bool,
    /// Print JSON (see docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Maximum number of files that are listed; the sums have all. Each takes half a kilobyte.
const MAX_LISTED: usize = 1 << 18;
/// Files between two steps of the progress.
const STEP: u64 = 256;

/// Figures of several files: of those whose pages the kernel reports, except `files`.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub files: u64,
    pub unknown_files: u64,
    pub size_bytes: u64,
    pub data_pages: u64,
    pub hole_pages: u64,
    pub before: CachedPages,
    /// After an eviction, of the files of which both are known.
    pub evicted_pages: u64,
    pub kept_pages: u64,
    pub kept_files: u64,
}

impl Sum {
    /// Adds a file.
    pub fn add(&mut self, file: &CachedFile) {
        self.files += 1;
        let Some(before) = file.before else {
            self.unknown_files += 1;
            return;
        };
        self.size_bytes += file.size_bytes;
        self.data_pages += file.data_pages;
        self.hole_pages += file.hole_pages;
        let more = |sum: &mut Option<u64>, pages: Option<u64>| {
            *sum = sum.or(pages.map(|_| 0)).map(|sum| sum + pages.unwrap_or(0))
        };
        self.before.data += before.data;
        self.before.holes += before.holes;
        more(&mut self.before.dirty, before.dirty);
        more(&mut self.before.writeback, before.writeback);
        more(&mut self.before.recently_evicted, before.recently_evicted);
        if let Some(after) = file.after {
            self.evicted_pages += before.cached().saturating_sub(after.cached());
            self.kept_pages += after.cached();
            self.kept_files += u64::from(after.cached() > 0);
        }
    }

    fn json(&self, is_evicted: bool) -> Value {
        let mut value = json!({
            "files": self.files,
            "unknown_files": self.unknown_files,
            "size_bytes": self.size_bytes,
            "data_pages": self.data_pages,
            "hole_pages": self.hole_pages,
        });
        add_pages(&mut value, Some(&self.before));
        if is_evicted {
            value["evicted_pages"] = self.evicted_pages.into();
            value["kept_pages"] = self.kept_pages.into();
            value["kept_files"] = self.kept_files.into();
        }
        value
    }
}

fn add_pages(value: &mut Value, pages: Option<&CachedPages>) {
    value["cached_pages"] = pages.map(|pages| pages.data).into();
    value["cached_hole_pages"] = pages.map(|pages| pages.holes).into();
    value["dirty_pages"] = pages.and_then(|pages| pages.dirty).into();
    value["writeback_pages"] = pages.and_then(|pages| pages.writeback).into();
    value["recently_evicted_pages"] = pages.and_then(|pages| pages.recently_evicted).into();
}

/// What was found.
#[derive(Debug)]
pub struct Surveyed {
    items: Vec<Item>,
    /// The sums of each item.
    sums: Vec<Sum>,
    /// By item and path.
    pub listed: Vec<CachedFile>,
    failed: Vec<(usize, String)>,
    pub total: Sum,
    pub passed: Passed,
    task: Task,
    pub lists_files: bool,
    is_of_profile: bool,
}

impl FilesArguments {
    /// Does the task with the files. `is_listed`: of these files the text has a line, also without --files.
    pub fn survey(&self, task: Task, is_listed: impl Fn(&CachedFile) -> bool) -> anyhow::Result<Surveyed> {
        let items = match &self.profile {
            Some(profile) => Item::of_profile(&load(profile)?),
            None => self.paths.iter().cloned().map(Item::Named).collect(),
        };
        let signals = Signals::take()?;
        let mut found = Surveyed {
            sums: vec![Sum::default(); items.len()],
            items,
            listed: Vec::new(),
            failed: Vec::new(),
            total: Sum::default(),
            passed: Passed::default(),
            task,
            lists_files: self.files || self.json || task == Task::List,
            is_of_profile: self.profile.is_some(),
        };
        // Helper processes are forked while there is one thread: the bar has none.
        let (bar, items) = (Progress::new(found.items.len() as u64), found.items.clone());
        let passed = survey(&items, task, &signals, &mut |finding| {
            found.take(finding, &is_listed);
            if found.total.files.is_multiple_of(STEP) {
                bar.at(0, 0, count(found.total.files, "file", "files"));
            }
        });
        drop(bar);
        found.passed = passed?;
        found.listed.sort_by(|a, b| (a.item, &a.path).cmp(&(b.item, &b.path)));
        Ok(found)
    }
}

impl Surveyed {
    fn take(&mut self, finding: Finding, is_listed: impl Fn(&CachedFile) -> bool) {
        match finding {
            Finding::File(file) => {
                self.sums[file.item].add(&file);
                self.total.add(&file);
                if (self.lists_files || is_listed(&file)) && self.listed.len() < MAX_LISTED {
                    self.listed.push(*file);
                }
            }
            Finding::Failed(item, why) => self.failed.push((item, why)),
            _ => {}
        }
    }

    /// Name and sums of each named path, or of the profile.
    pub fn rows(&self) -> Vec<(String, &Sum)> {
        if self.is_of_profile {
            return vec![("files of the profile".into(), &self.total)];
        }
        let rows = self.items.iter().zip(&self.sums).filter(|(_, sum)| sum.files > 0);
        rows.map(|(item, sum)| (printable(item.path().as_os_str().as_bytes()), sum)).collect()
    }

    /// Prints why items could not be looked at, and what was left out. The status to exit with.
    pub fn remarks(&self) -> ExitCode {
        for (item, why) in &self.failed {
            messages::print(&format!("{}: {why}", printable(self.items[*item].path().as_os_str().as_bytes())));
        }
        let Passed { symbolic_links, not_regular, mount_points, unread_directories, is_cut, .. } = self.passed;
        let mut left_out = Vec::new();
        let parts = [
            (symbolic_links, "symbolic link", "symbolic links"),
            (not_regular, "device, FIFO or socket", "devices, FIFOs and sockets"),
            (mount_points, "mounted file system", "mounted file systems"),
            (unread_directories, "unreadable directory", "unreadable directories"),
            (
                self.total.files - self.listed.len() as u64,
                "file beyond the longest list",
                "files beyond the longest list",
            ),
        ];
        let parts = &parts[..if self.lists_files { 5 } else { 4 }];
        left_out.extend(parts.iter().filter(|part| part.0 > 0).map(|(number, one, many)| count(*number, one, many)));
        if is_cut {
            left_out.push("what exceeds the limits of a search".into());
        }
        if !left_out.is_empty() {
            messages::print(&format!("left out: {}", left_out.join(", ")));
        }
        // Files of a profile that are gone are stale, which is no failure.
        ExitCode::from(u8::from(!self.failed.is_empty() && !self.is_of_profile))
    }

    /// A line about files of which nothing is known.
    pub fn unknown(&self) -> Option<String> {
        let first = self.listed.iter().find_map(|file| file.problem.as_deref()).unwrap_or("not reported by the kernel");
        let files = self.total.unknown_files;
        (files > 0).then(|| format!("unknown of {} of {} files: {first}\n", grouped(files), grouped(self.total.files)))
    }

    /// The schema is documented in docs/reference/json.md.
    pub fn json(&self) -> Value {
        let is_evicted = self.task == Task::Evict;
        let of_path = |(item, sum): (&Item, &Sum)| {
            let mut value = sum.json(is_evicted);
            add_path(&mut value, "path", item.path().as_os_str().as_bytes());
            value
        };
        let failed = |(item, why): &(usize, String)| {
            let mut value = json!({ "reason": why });
            add_path(&mut value, "path", self.items[*item].path().as_os_str().as_bytes());
            value
        };
        let paths =
            if self.is_of_profile { Vec::new() } else { self.items.iter().zip(&self.sums).map(of_path).collect() };
        json!({
            "page_bytes": machine::page_size(),
            "total": self.total.json(is_evicted),
            "paths": paths,
            "files": self.listed.iter().map(|file| self.file(file)).collect::<Vec<_>>(),
            "files_not_listed": self.total.files - self.listed.len() as u64,
            "left_out": self.passed,
            "failed": self.failed.iter().map(failed).collect::<Vec<_>>(),
        })
    }

    fn file(&self, file: &CachedFile) -> Value {
        let mut value = json!({
            "size_bytes": file.size_bytes,
            "inode": file.inode,
            "in_memory": file.is_in_memory,
            "data_pages": file.data_pages,
            "hole_pages": file.hole_pages,
            "problem": file.problem,
        });
        add_path(&mut value, "path", &file.path);
        add_pages(&mut value, file.before.as_ref());
        match self.task {
            Task::Evict => {
                value["kept_pages"] = file.after.map(|after| after.cached()).into();
                value["reason"] = file.reason().into();
                value["mapped_by"] = json!(file.mapped_by);
            }
            Task::List => value["ranges"] = file.ranges.iter().map(|range| [range.start, range.end]).collect(),
            _ => {}
        }
        value
    }
}

/// A share of pages in percent.
pub fn percent(part: u64, whole: u64) -> String {
    ahead_report::number::share(bytes_of(part), bytes_of(whole))
}

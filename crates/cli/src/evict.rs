//! `ahead evict`: removes files from the page cache, and says what stays.

use crate::cached::{FilesArguments, Surveyed};
use ahead::cold::{CachedFile, Task, bytes_of};
use ahead_report::number::{count, size};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use clap::Args;
use std::cmp::Reverse;
use std::io::Write;
use std::process::ExitCode;

/// Remove files from the page cache, and say what stays and why
///
/// Needs no root: a user who may read a file may evict its pages. Dirty pages are written to the disk first, of files that you own or may
/// write. Pages stay that a process has mapped or locked, and files in memory (tmpfs) stay as a whole; that is no failure. The names of
/// files and directories stay cached: only root can evict these, as `ahead cold` and `ahead record --cold` do.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ahead evict database.db
  ahead evict /usr/lib/libreoffice
  ahead evict --json -p server.ahead")]
pub struct Evict {
    #[command(flatten)]
    files: FilesArguments,
}

/// Rows of files of which pages stay, unless all are asked for.
const ROWS: usize = 20;

impl Evict {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let stays = |file: &CachedFile| file.problem.is_some() || kept_pages(file) > 0;
        let found = self.files.survey(Task::Evict, stays)?;
        let text = match self.files.json {
            true => format!("{:#}\n", found.json()),
            false => text(&found),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(found.remarks())
    }
}

fn kept_pages(file: &CachedFile) -> u64 {
    file.after.map_or(0, |after| after.cached())
}

fn text(found: &Surveyed) -> String {
    let mut table =
        Table::new([("evicted", Kind::Number), ("stays", Kind::Number), ("path", Kind::Path), ("why", Kind::Text)]);
    let mut rows: Vec<&CachedFile> =
        found.listed.iter().filter(|file| found.lists_files || kept_pages(file) > 0).collect();
    rows.sort_by_key(|file| Reverse(kept_pages(file)));
    let shown = if found.lists_files { rows.len() } else { rows.len().min(ROWS) };
    for file in &rows[..shown] {
        let evicted = file.before.zip(file.after).map(|(before, after)| before.cached().saturating_sub(after.cached()));
        let pages = |pages: Option<u64>| pages.map_or("unknown".into(), |pages| size(bytes_of(pages)));
        let why = file.reason().or(file.problem.clone()).unwrap_or_default();
        table.row([pages(evicted), pages(file.after.map(|after| after.cached())), printable(&file.path), why]);
    }
    let more = match rows.len() - shown {
        0 => String::new(),
        more => format!("and {}; --files lists all\n", count(more as u64, "more file", "more files")),
    };
    let table = if table.is_empty() { String::new() } else { table.render(Screen::stdout()) + &more + "\n" };
    let total = &found.total;
    let kept = match total.kept_pages {
        0 => String::new(),
        pages => format!("; {} of {} stay cached", size(bytes_of(pages)), count(total.kept_files, "file", "files")),
    };
    let files = count(total.files, "file", "files");
    let unknown = found.unknown().unwrap_or_default();
    format!("{table}evicted {} of {files}{kept}\n{unknown}", size(bytes_of(total.evicted_pages)))
}

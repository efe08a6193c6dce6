//! `ahead resident`: which pages of files are in the page cache.

use crate::cached::{FilesArguments, Sum, Surveyed, percent};
use ahead::cold::{CachedFile, Task, bytes_of};
use ahead_report::number::{count, size};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{height, printable};
use clap::Args;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

/// Show how much of files is in the page cache
///
/// Counts pages with data: of a sparse file without its holes, of a profile's files those that the profile lists. A file is counted
/// once, whatever number of names it has. The kernel reports the pages of a file to its owner, to users who may write it, and to root.
/// Dirty pages are known since Linux 6.5. Nothing is read, and nothing changes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ahead resident /var/lib/postgresql
  ahead resident --map database.db
  sudo ahead resident --json -p server.ahead")]
pub struct Resident {
    #[command(flatten)]
    files: FilesArguments,
    /// List every file with a map of its pages: a bar is as high as the cached share of its part of the file
    #[arg(long)]
    map: bool,
}

/// Signs of a map.
const MAP_WIDTH: u64 = 40;

impl Resident {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let task = if self.map { Task::List } else { Task::Count };
        let found = self.files.survey(task, |file| file.problem.is_some())?;
        let text = match self.files.json {
            true => format!("{:#}\n", found.json()),
            false => self.text(&found),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(found.remarks())
    }

    fn text(&self, found: &Surveyed) -> String {
        let (number, path) = (Kind::Number, if self.map { Kind::Text } else { Kind::Path });
        let columns = [("cached", number), ("data", number), ("share", number), ("dirty", number)];
        let map = self.map.then_some(("pages", Kind::Text));
        let mut table = Table::new(columns.into_iter().chain(map).chain([("path", path)]));
        if found.lists_files {
            for file in &found.listed {
                let mut sum = Sum::default();
                sum.add(file);
                let map = self.map.then(|| map_of(file));
                table.row(cells(&sum).into_iter().chain(map).chain([printable(&file.path)]));
            }
        } else {
            for (name, sum) in found.rows() {
                let files =
                    if sum.files == 1 { String::new() } else { format!(" ({})", count(sum.files, "file", "files")) };
                table.row(cells(sum).into_iter().chain([name + &files]));
            }
        }
        let rows = if table.is_empty() { String::new() } else { table.render(Screen::stdout()) + "\n" };
        let total = &found.total;
        let holes = if total.before.holes > 0 {
            format!("; also {} of zeros in holes", size(bytes_of(total.before.holes)))
        } else {
            String::new()
        };
        format!(
            "{rows}{} of {} cached ({}) in {}{holes}\n{}",
            size(bytes_of(total.before.data)),
            size(bytes_of(total.data_pages)),
            percent(total.before.data, total.data_pages),
            count(total.files, "file", "files"),
            found.unknown().unwrap_or_default(),
        )
    }
}

fn cells(sum: &Sum) -> Vec<String> {
    let is_known = sum.unknown_files < sum.files || sum.files == 0;
    let known = |text: String| if is_known { text } else { "unknown".into() };
    vec![
        known(size(bytes_of(sum.before.data))),
        size(bytes_of(sum.data_pages)),
        known(percent(sum.before.data, sum.data_pages)),
        sum.before.dirty.map_or("unknown".into(), |dirty| size(bytes_of(dirty))),
    ]
}

/// The cached share of each part of a file.
fn map_of(file: &CachedFile) -> String {
    let part = file.size_bytes.div_ceil(MAP_WIDTH).max(1);
    let cached =
        |range: &Range<u64>, part: &Range<u64>| range.end.min(part.end).saturating_sub(range.start.max(part.start));
    let parts = (0..file.size_bytes).step_by(part as usize).map(|start| start..(start + part).min(file.size_bytes));
    let share = |part: Range<u64>| {
        let bytes: u64 = file.ranges.iter().map(|range| cached(range, &part)).sum();
        bytes as f64 / (part.end - part.start) as f64
    };
    parts.map(|part| height(share(part))).collect()
}

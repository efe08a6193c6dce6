//! `ahead show`: the content of a profile as tables, as JSON and as a page.

use crate::missing::MissingProfile;
use crate::root::RootArgument;
use crate::{list, output};
use ahead::store;
use ahead_files::lists::Problem;
use ahead_model::sorting;
use ahead_profile::{File, Profile};
use ahead_report::number;
use ahead_report::profile::{FileState, Shown};
use ahead_report::table::Screen;
use ahead_report::text::printable;
use ahead_sys::root::Root;
use anyhow::bail;
use clap::{ArgGroup, Args, ValueEnum};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what a profile holds
///
/// Prints the origin of the profile and, in order of first use, the files that were used and how much of each. Each file is compared with
/// the file at its path now: a file whose size or modification time has changed is stale, and a run leaves it out. The command opens and
/// reads no file that the profile names.
#[derive(Debug, Args)]
#[command(override_usage = "ahead show [OPTIONS] <FILE|-- <CMD>...>")]
#[command(group = ArgGroup::new("shown").args(["file", "command"]).required(true))]
pub struct Show {
    /// Profile that `ahead record` wrote
    file: Option<PathBuf>,
    /// Print JSON instead of tables (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
    /// Write one self-contained page with a timeline and page maps to this file; tables are then printed only with --sort, --top,
    /// --all, --extents or --timeline
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Order of the files [default: order]
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// How many files and milestones to print [default: 20]
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// Print every file and milestone, the first uses of files included
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Print every extent, too, by first use; a run fetches extents in this order, from a rotating disk in order of position
    #[arg(long)]
    extents: bool,
    /// Print the program's own timeline, too: when each use comes with everything cached, and in which thread
    #[arg(long)]
    timeline: bool,
    #[command(flatten)]
    root: RootArgument,
    /// Show the profile that `ahead run` uses for this command, as in `ahead show -- git status`
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Files and milestones that are printed without --top.
const DEFAULT_ROWS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By first use
    Order,
    /// Most bytes used first
    Bytes,
    /// By name
    Path,
}

impl Show {
    /// That of a file, as tables or as JSON.
    pub fn of_file(file: PathBuf, json: bool, all: bool) -> Show {
        let (file, command) = (Some(file), Vec::new());
        Show {
            file,
            json,
            html: None,
            sort: None,
            top: None,
            all,
            extents: false,
            timeline: false,
            root: RootArgument::default(),
            command,
        }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => store::profile_path_for(&self.command, None),
        };
        if self.file.is_none() && matches!(file.try_exists(), Ok(false)) {
            let missing = MissingProfile { command: &self.command, file: None, until: None };
            bail!("{}{}", missing.message(), list::hint(&self.command));
        }
        let (profile, root) = (ahead_files::load(&file)?, self.root.open()?);
        let states: Vec<FileState> = profile.files.iter().map(|file| state(file, &root)).collect();
        let shown = Shown { profile: &profile, states: &states };
        // A closed pipe must not prevent the page.
        let written = self.write(shown);
        if let Some(path) = &self.html {
            output::replace_for_user(path, shown.page(&file).as_bytes())?;
        }
        written?;
        if let Some(path) = self.html.as_deref().filter(|path| !self.json && !is_standard_output(path)) {
            writeln!(std::io::stdout(), "wrote {}", printable(path.as_os_str().as_bytes()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether tables are printed: always without a page, beside a page only where a flag is about them.
    fn prints_tables(&self) -> bool {
        self.html.is_none() || self.sort.is_some() || self.top.is_some() || self.all || self.extents || self.timeline
    }

    /// Writes JSON or tables to standard output.
    fn write(&self, shown: Shown) -> anyhow::Result<()> {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        if self.json {
            writeln!(out, "{:#}", shown.json(&self.order(shown.profile), self.extents, self.timeline))?;
        } else if self.prints_tables() {
            self.print(&mut out, shown)?;
        }
        Ok(out.flush()?)
    }

    fn order(&self, profile: &Profile) -> Vec<usize> {
        let mut order: Vec<usize> = (0..profile.files.len()).collect();
        let file = |index: &usize| &profile.files[*index];
        match self.sort.unwrap_or(Sort::Order) {
            // As recorded; a merged profile lists files that few runs used last.
            Sort::Order => (),
            Sort::Bytes => sorting::sort_by_key(&mut order, |index| std::cmp::Reverse(file(index).used_bytes())),
            Sort::Path => sorting::sort_by(&mut order, |a, b| file(a).path.cmp(&file(b).path)),
        }
        order
    }

    fn print(&self, out: &mut impl Write, shown: Shown) -> anyhow::Result<()> {
        let screen = Screen::stdout();
        let limit = if self.all { usize::MAX } else { self.top.unwrap_or(DEFAULT_ROWS) };
        for (name, value) in shown.facts() {
            writeln!(out, "{}  {value}", screen.faint(&format!("{name:>11}")))?;
        }
        for warning in shown.warnings() {
            writeln!(out, "\n{} {warning}", screen.warning("WARNING:"))?;
        }
        let total: Vec<String> = shown.figures().iter().map(|(label, value)| format!("{value} {label}")).collect();
        writeln!(out, "\n{}\n", screen.heading(&total.join(", ")))?;
        let mut order = self.order(shown.profile);
        let more = order.len().saturating_sub(limit);
        order.truncate(limit);
        write!(out, "{}", shown.file_table(&order).render(screen))?;
        write_more(out, more, "more file", "more files")?;
        let metadata = shown.metadata_table();
        if !metadata.is_empty() {
            write!(out, "\nMetadata blocks\n{}", metadata.render(screen))?;
        }
        let (milestones, more) = shown.milestone_table(limit, self.all);
        if !milestones.is_empty() {
            write!(out, "\nMilestones\n{}", milestones.render(screen))?;
            write_more(out, more, "more milestone", "more milestones")?;
        }
        if self.extents {
            writeln!(out, "\nExtents by first use, those that fewer than half of the runs used last")?;
            writeln!(
                out,
                "A run fetches them in this order; from a rotating disk each of the two groups in order of position."
            )?;
            write!(out, "{}", shown.extent_table().render(screen))?;
        }
        if self.timeline {
            writeln!(out, "\n{}", shown.timeline_summary())?;
            write!(out, "{}", shown.timeline_table().render(screen))?;
        }
        Ok(())
    }
}

fn write_more(out: &mut impl Write, more: usize, one: &str, many: &str) -> std::io::Result<()> {
    match more {
        0 => Ok(()),
        _ => writeln!(out, "… and {} (--all)", number::count(more as u64, one, many)),
    }
}

/// Whether the path leads to standard output, as `/dev/stdout` does.
fn is_standard_output(path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    fs::metadata(path).ok().zip(fs::metadata("/dev/stdout").ok()).is_some_and(|(page, stdout)| same(page, stdout))
}

/// The state of a recorded file: what `ahead check` finds at its path now.
fn state(file: &File, root: &Root) -> FileState {
    if file.deleted {
        return FileState::Deleted;
    }
    match ahead_files::lists::compare(file, root).1 {
        // A run prefetches a replaced file, too: it has the recorded size and time.
        None | Some(Problem::Replaced) => FileState::Current,
        Some(Problem::Missing) => FileState::Missing,
        Some(Problem::Unknown) => FileState::Unknown,
        Some(_) => FileState::Changed,
    }
}

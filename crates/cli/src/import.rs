//! `ahead import`: a profile from a list of another program, or from a template.

use crate::messages;
use crate::root::RootArgument;
use ahead::prefetch::{Options, resolve};
use ahead::store::{Arguments, ProfileOutput};
use ahead_files::lists::{List, Syntax};
use ahead_profile::MAX_FILE_BYTES;
use ahead_report::number::{count, size};
use ahead_report::progress::Progress;
use ahead_report::text::printable;
use ahead_sys::directory;
use ahead_sys::root::Root;
use ahead_sys::user::User;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make a profile of a list: of paths, of ureadahead or readahead-list, or of patterns
///
/// The profile has the files in the order of the list, with their current sizes, times and places on the disk. Files that are missing
/// or no regular files are left out and named. An entry that ends like a range, as x:0-4K, is the file of this name if it exists.
#[derive(Debug, Args)]
pub struct Import {
    /// List to read; `-`: standard input
    list: PathBuf,
    /// Where to write the profile
    #[arg(short, long, value_name = "PROFILE")]
    output: PathBuf,
    /// What the list is [default: ureadahead if it has its signature, else list]
    #[arg(long, value_enum)]
    format: Option<ImportFormat>,
    /// Entries end with a NUL byte, as those of find -print0
    #[arg(short = '0', long, conflicts_with = "format")]
    null: bool,
    #[command(flatten)]
    root: RootArgument,
}

/// What a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportFormat {
    /// PATH or PATH:START-END on each line
    List,
    /// A path on each line
    ReadaheadList,
    /// The pack of ureadahead
    Ureadahead,
    /// Patterns with *, ?, [a-z] and ** on each line, with or without a range
    Template,
}

impl Import {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let user = User::behind_sudo()?;
        let root = self.root.open()?;
        let output = ProfileOutput::prepare(Some(&self.output), &[], Arguments::Same, user.as_ref())?;
        let name = printable(self.list.as_os_str().as_bytes());
        let bytes = read(&self.list).with_context(|| format!("read {name}"))?;
        let list = self.parse(&bytes, &root).with_context(|| name.clone())?;
        let progress = Progress::spinner();
        progress.say(format!("looking up {}", count(list.files().len() as u64, "file", "files")));
        let mut resolved = resolve(list, &root, &Options::default(), || false)?;
        drop(progress);
        resolved.left_out_lines().iter().for_each(|line| messages::print(line));
        if resolved.holes_bytes > 0 {
            messages::print(&format!("left out: {} in holes of files", size(resolved.holes_bytes)));
        }
        let mut profile = std::mem::take(&mut resolved.profile);
        if profile.files.is_empty() {
            bail!("{name}: no file of this list can be prefetched; nothing was written");
        }
        ahead_files::lists::add_content_checks(&mut profile, &root);
        ahead_files::lists::add_origin(&mut profile, &name, &root);
        output.save(&profile)?;
        let files = count(profile.files.len() as u64, "file", "files");
        messages::print(&format!(
            "{files}, {}: {}",
            size(profile.data_bytes()),
            printable(self.output.as_os_str().as_bytes())
        ));
        Ok(ExitCode::SUCCESS)
    }

    fn parse(&self, bytes: &[u8], root: &Root) -> anyhow::Result<List> {
        let format = match self.format {
            None if !self.null && bytes.starts_with(ahead_files::lists::PACK_SIGNATURE) => ImportFormat::Ureadahead,
            format => format.unwrap_or(ImportFormat::List),
        };
        Ok(match format {
            ImportFormat::List => ahead_files::lists::parse(bytes, Syntax { nul: self.null, paths_only: false })?,
            ImportFormat::ReadaheadList => ahead_files::lists::parse(bytes, Syntax { nul: false, paths_only: true })?,
            ImportFormat::Ureadahead => ahead_files::lists::decode_pack(bytes)?,
            ImportFormat::Template => expand(bytes, root)?,
        })
    }
}

/// The files that match the patterns.
fn expand(bytes: &[u8], root: &Root) -> anyhow::Result<List> {
    let template = ahead_files::lists::parse_template(bytes)?;
    let progress = Progress::spinner();
    let expanded =
        ahead_files::lists::expand(&template, root, |entries| progress.say(format!("{entries} directory entries")))?;
    drop(progress);
    if expanded.unreadable > 0 {
        let directories = count(expanded.unreadable, "directory", "directories");
        messages::print(&format!("{directories} could not be listed: not permitted, or not on a disk"));
    }
    if !expanded.unmatched.is_empty() {
        let lines: Vec<String> = expanded.unmatched.iter().map(u64::to_string).collect();
        messages::print(&format!("no file matches the pattern of line {}", lines.join(", ")));
    }
    Ok(expanded.list)
}

/// Reads a list, at most one byte more than its limit.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match path == Path::new("-") {
        true => io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?,
        false => directory::open_regular_file(path, false)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

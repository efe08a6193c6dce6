//! `ahead export`: the files of a profile as a list for other programs.

use crate::{messages, output};
use ahead_files::lists::PackHeader;
use ahead_model::DeviceNumber;
use ahead_profile::Profile;
use ahead_report::number::count;
use ahead_report::text::printable;
use ahead_sys::block;
use ahead_sys::root::Root;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Write the files of a profile as a list: for `ahead replay -`, ureadahead or readahead-list
///
/// Files are in order of first use. Files without a name at the end of the recording are left out.
#[derive(Debug, Args)]
pub struct Export {
    /// Profile to write as a list
    profile: PathBuf,
    /// The format of the list
    #[arg(long, value_enum, default_value_t = ExportFormat::List)]
    format: ExportFormat,
    /// Where to write the list [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write only files below this directory, with paths relative to it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// End entries with a NUL byte instead of a line end
    #[arg(short = '0', long)]
    null: bool,
}

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// PATH:START-END on each line; PATH where the whole file was used; PATH/:START-END where a file has the name PATH:START-END
    List,
    /// A path on each line
    ReadaheadList,
    /// The pack of ureadahead, for the device with the most files
    Ureadahead,
}

impl Export {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let profile = self.relative(ahead_files::load(&self.profile)?)?;
        let list = match self.format {
            ExportFormat::List => ahead_files::lists::write(&profile, self.null, |path| self.exists(&profile, path))?,
            ExportFormat::ReadaheadList => ahead_files::lists::write_paths(&profile, self.null)?,
            ExportFormat::Ureadahead => pack(&profile)?,
        };
        match &self.output {
            None if self.format == ExportFormat::Ureadahead && std::io::stdout().is_terminal() => {
                bail!("a pack is not text: name a file with -o, or redirect the output")
            }
            None => std::io::stdout().write_all(&list)?,
            Some(path) => output::replace_for_user(path, &list)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether a file has this path of the profile, or anything else.
    fn exists(&self, profile: &Profile, path: &[u8]) -> bool {
        let root = self.root.as_ref().map_or(&profile.recording.root[..], |root| root.as_os_str().as_bytes());
        std::fs::symlink_metadata(OsStr::from_bytes(&[root, path].concat())).is_ok()
    }

    /// The profile with paths relative to the root directory, if one is named.
    fn relative(&self, profile: Profile) -> anyhow::Result<Profile> {
        let Some(root) = &self.root else { return Ok(profile) };
        if !profile.recording.root.is_empty() {
            let known = printable(&profile.recording.root);
            bail!("{}: its paths are relative to {known} already; leave --root out", self.profile.display());
        }
        let named = Root::at(root)?;
        let prefix = named.prefix().as_os_str().as_bytes();
        let (profile, outside) = ahead_profile::relative_to(profile, if prefix.is_empty() { b"/" } else { prefix });
        if outside.files > 0 {
            messages::print(&format!("left out: {} outside {}", count(outside.files, "file", "files"), root.display()));
        }
        Ok(profile)
    }
}

fn pack(profile: &Profile) -> anyhow::Result<Vec<u8>> {
    let device = DeviceNumber::from_key(ahead_files::lists::main_device(profile));
    let others = profile.files.iter().filter(|file| !file.deleted && file.device != device.key()).count();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let rotational = block::disk_setting(device, "rotational").is_some_and(|setting| setting == "1");
    let (pack, too_long) =
        ahead_files::lists::encode_pack(profile, PackHeader { created_unix_s: now.as_secs(), rotational });
    for (files, why) in [(others as u64, "on other devices"), (too_long, "with paths longer than 255 bytes")] {
        if files > 0 {
            messages::print(&format!("left out: {} {why}", count(files, "file", "files")));
        }
    }
    Ok(pack)
}

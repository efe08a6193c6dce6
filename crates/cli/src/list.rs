//! `ahead list` and `ahead forget`: the profiles in the store.

use crate::missing::MissingProfile;
use ahead::store::{self, Arguments, Stored, note};
use ahead_profile::Profile;
use ahead_report::json::lossy;
use ahead_report::number;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{command_line, printable};
use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List the profiles that `ahead run` finds by itself
///
/// Each is for one command in one directory, or for a program with any arguments (record --any-arguments). Profiles that were
/// recorded with -o are not listed: their paths are not stored.
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let stored = store::list().context("list the profiles")?;
        let text = match self.json {
            true => format!("{:#}\n", Value::from(stored.iter().map(as_json).collect::<Vec<_>>())),
            false if stored.is_empty() => {
                "there are no profiles; make one with: sudo ahead record --cold -- CMD\n".into()
            }
            false => table(&stored).render(Screen::stdout()),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn as_json(stored: &Stored) -> Value {
    let mut value =
        json!({ "path": stored.path.to_string_lossy(), "any_arguments": stored.arguments == Arguments::Any });
    match &stored.profile {
        Ok(profile) => {
            let recording = &profile.recording;
            value["command"] = json!(lossy(&recording.command));
            value["directory"] = json!(String::from_utf8_lossy(&recording.directory));
            value["created_unix_s"] = json!(recording.created_unix_s);
            value["runs"] = json!(recording.runs);
            value["files"] = json!(profile.files.len());
            value["bytes"] = json!(profile.data_bytes());
        }
        Err(error) => value["error"] = json!(error.to_string()),
    }
    value
}

fn table(stored: &[Stored]) -> Table {
    let mut table = Table::new([
        ("command", Kind::Text),
        ("directory", Kind::Text),
        ("recorded", Kind::Text),
        ("files", Kind::Number),
        ("data", Kind::Number),
        ("profile", Kind::Path),
    ]);
    for stored in stored {
        let path = printable(stored.path.as_os_str().as_bytes());
        table.row(match &stored.profile {
            Ok(profile) => [
                command_of(stored, profile),
                printable(&profile.recording.directory),
                number::date(profile.recording.created_unix_s),
                number::grouped(profile.files.len() as u64),
                number::size(profile.data_bytes()),
                path,
            ],
            Err(error) => [error.to_string(), String::new(), String::new(), String::new(), String::new(), path],
        });
    }
    table
}

fn command_of(stored: &Stored, profile: &Profile) -> String {
    let words = &profile.recording.command;
    match stored.arguments {
        Arguments::Same => command_line(words),
        Arguments::Any => format!("{} …", command_line(&words[..words.len().min(1)])),
    }
}

/// What may be meant where a command has no profile: `; there are profiles for: git log (in /srv)`. Empty without any.
pub fn hint(argv: &[OsString]) -> String {
    /// More are not named.
    const MOST: usize = 3;
    let similar = store::similar(argv);
    let described: Vec<String> = similar
        .iter()
        .filter_map(|stored| Some((stored, stored.profile.as_ref().ok()?)))
        .take(MOST)
        .map(|(stored, profile)| {
            format!("{} (in {})", command_of(stored, profile), printable(&profile.recording.directory))
        })
        .collect();
    match similar.len() {
        0 => String::new(),
        more if more > MOST => {
            format!("; there are profiles for: {} and {} more (ahead list)", described.join(", "), more - MOST)
        }
        _ => format!("; there are profiles for: {}", described.join(", ")),
    }
}

/// Remove profiles from the place where `ahead run` finds them
#[derive(Debug, Args)]
#[command(override_usage = "ahead forget <--profile <FILE>|--all|-- <CMD>...>")]
#[command(group = ArgGroup::new("forgotten").args(["profile", "all", "command"]).required(true))]
pub struct Forget {
    /// Remove this profile, as `ahead list` names it
    #[arg(long, value_name = "FILE", conflicts_with = "all")]
    profile: Option<PathBuf>,
    /// Remove all that `ahead list` lists
    #[arg(long)]
    all: bool,
    /// The command whose profile is removed, in the directory where it was recorded
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Forget {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let stored = store::list().context("list the profiles")?;
        let wanted: Vec<&Path> = match &self.profile {
            _ if self.all => stored.iter().map(|stored| stored.path.as_path()).collect(),
            Some(path) => vec![path],
            None => vec![],
        };
        let found = store::profile_path_for(&self.command, None);
        let wanted = if self.command.is_empty() { wanted } else { vec![found.as_path()] };
        // Only what is in the store: a wrong argument must not remove another file.
        if let Some(other) = wanted.iter().find(|path| !stored.iter().any(|stored| stored.path == **path)) {
            if self.command.is_empty() {
                let other = printable(other.as_os_str().as_bytes());
                bail!("there is no profile {other} in the store; see its profiles with: ahead list");
            }
            let missing = MissingProfile { command: &self.command, file: None, until: None };
            bail!("{}{}", missing.message(), hint(&self.command));
        }
        for path in wanted {
            std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
            note::write(path, None);
            eprintln!("ahead: removed {}", printable(path.as_os_str().as_bytes()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

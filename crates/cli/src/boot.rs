//! `ahead boot`: the units that observe and replay the start of the machine, and what they learned.

mod print;

use crate::{messages, show};
use ahead::Signals;
use ahead_boot::{BootState, BootStore, DEFAULT_STALE_PERCENT, Installation, Learned, Replayed};
use ahead_model::quantity;
use ahead_sys::machine;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Make the machine start faster: observe boots, and prefetch what they read
///
/// After `ahead boot install` each boot is observed until one minute after default.target, and what the last boots read is
/// prefetched from the start of the next one: by systemd, or earlier, by an initramfs that was made since. ahead=off on the kernel's
/// command line switches both off, ahead=record asks for a new recording. In a container nothing happens unless PID 1 has
/// AHEAD_CONTAINER=1 in its environment.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo ahead boot install && sudo update-initramfs -u
  ahead boot status
  sudo ahead boot record && sudo reboot")]
pub struct Boot {
    #[command(subcommand)]
    command: BootCommand,
}

#[derive(Debug, Subcommand)]
enum BootCommand {
    /// Install and enable the units of systemd
    Install(Install),
    /// Show whether boots are observed and replayed, and what the last replay did
    Status {
        /// Print JSON (see docs/reference/json.md)
        #[arg(long)]
        json: bool,
    },
    /// Record the next boot, without replay, in place of the earlier recordings
    Record,
    /// Show the profile that the next boot replays, as `ahead show` does
    Show {
        /// Print JSON instead of tables (see docs/reference/json.md)
        #[arg(long)]
        json: bool,
        /// Print every file and milestone
        #[arg(long)]
        all: bool,
    },
    /// Disable and remove the units
    Remove(Remove),
    /// Prefetch what earlier boots read (ahead-boot-replay.service)
    #[command(hide = true)]
    Replay,
    /// Observe this boot (ahead-boot-record.service)
    #[command(hide = true)]
    Observe,
    /// End the observation (ahead-boot-done.service)
    #[command(hide = true)]
    Done {
        /// Record the next boot if more of the last replay was stale, percent
        #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_STALE_PERCENT)]
        stale: u32,
    },
    /// Note that packages were changed (package triggers)
    #[command(hide = true)]
    Changed,
}

#[derive(Debug, Args)]
struct Install {
    /// How long after default.target the observation goes on: what starts beside the login competes for the disk
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::parse_time)]
    linger: Duration,
    /// Record a boot again when more than this share of the last replay was stale, percent
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_STALE_PERCENT, value_parser = clap::value_parser!(u32).range(0..=100))]
    stale: u32,
    /// Install into the system in this directory, which has the program at the path of --program
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The path of the program in that system [default: that of this program; with --root /usr/bin/ahead]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Remove {
    /// Remove what was learned, too
    #[arg(long)]
    purge: bool,
    /// Remove from the system in this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl Boot {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            BootCommand::Install(install) => install.run(),
            BootCommand::Status { json } => print::status(&ahead_boot::status(), json),
            BootCommand::Record => request_recording(),
            BootCommand::Show { json, all } => {
                let store = BootStore::here();
                let Some(profile) = store.profile_to_replay() else {
                    let why = "no boot is recorded yet; install with: sudo ahead boot install; then restart";
                    bail!("{}: {why}", store.directory().display());
                };
                show::Show::of_file(profile, json, all).run()
            }
            BootCommand::Remove(remove) => remove.run(),
            BootCommand::Replay => in_boot("replay", replay),
            BootCommand::Observe => in_boot("observe", observe),
            BootCommand::Done { stale } => in_boot("done", || ahead_boot::end_observation(stale).map(|()| None)),
            BootCommand::Changed => in_boot("changed", note_changes),
        }
    }
}

impl Install {
    fn run(self) -> anyhow::Result<ExitCode> {
        needs_root("installing units")?;
        let program = match self.program {
            Some(program) => program,
            None if self.root == Path::new("/") => std::env::current_exe().context("the path of this program")?,
            None => "/usr/bin/ahead".into(),
        };
        let Install { linger, stale: stale_limit_percent, root, .. } = self;
        let made = ahead_boot::install(&Installation { root: root.clone(), program, linger, stale_limit_percent })?;
        made.iter().for_each(|path| println!("made {}", path.display()));
        print::next_steps(&root, linger);
        Ok(ExitCode::SUCCESS)
    }
}

impl Remove {
    fn run(self) -> anyhow::Result<ExitCode> {
        needs_root("removing units")?;
        let removed = ahead_boot::remove(&self.root, self.purge)?;
        for path in &removed {
            println!("removed {}", path.display());
        }
        if removed.is_empty() {
            println!("nothing is installed in {}", self.root.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn needs_root(what: &str) -> anyhow::Result<()> {
    if machine::is_root() { Ok(()) } else { Err(ahead_sys::Error::needs_root(what).into()) }
}

fn request_recording() -> anyhow::Result<ExitCode> {
    needs_root("requesting a recording")?;
    let store = BootStore::here();
    let _lock = store.lock(Duration::from_secs(15))?;
    store.save_state(&BootState { requested: true, ..store.state() })?;
    match (ahead_boot::is_installed(Path::new("/")), ahead_boot::systemd_runs()) {
        (true, true) => println!("the next boot is recorded, without replay"),
        (false, _) => messages::print("noted, but boots are not observed: sudo ahead boot install"),
        (true, false) => messages::print("noted, but boots are not observed: systemd does not run here"),
    }
    Ok(ExitCode::SUCCESS)
}

/// A step of a boot. It never fails: a failed unit would mark the machine as degraded. Each failure is a line in the log.
fn in_boot(step: &str, run: impl FnOnce() -> ahead::Result<Option<String>>) -> anyhow::Result<ExitCode> {
    match run() {
        Ok(Some(text)) => println!("{step}: {text}"),
        Ok(None) => {}
        Err(error) => println!("{step}: skipped: {error}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn replay() -> ahead::Result<Option<String>> {
    let signals = Signals::take()?;
    Ok(Some(match ahead_boot::replay(&signals, &messages::print)? {
        Replayed::Off(off) => format!("off: {}", off.reason()),
        Replayed::Recording => "skipped: this boot is recorded again".into(),
        Replayed::Early => "skipped: the initramfs has started a replay".into(),
        Replayed::NoProfile => "skipped: no boot is recorded yet".into(),
        Replayed::Done(path, account) => format!("{}: {}", path.display(), crate::account::line(&account)),
    }))
}

fn observe() -> ahead::Result<Option<String>> {
    let signals = Signals::take()?;
    Ok(Some(match ahead_boot::observe(&signals, &messages::print)? {
        Learned::Off(off) => format!("off: {}", off.reason()),
        Learned::NotNeeded => "skipped: the recordings are recent and fit".into(),
        Learned::Over => "skipped: this boot is over".into(),
        Learned::Interrupted => "skipped: the boot was not done when the observation ended".into(),
        Learned::Recorded(reason, files, bytes) => {
            format!("recorded {files} files, {} KiB ({})", bytes >> 10, reason.text())
        }
    }))
}

fn note_changes() -> ahead::Result<Option<String>> {
    Ok(ahead_boot::note_changes(&messages::print)?.map(|changes| changes.to_string()))
}

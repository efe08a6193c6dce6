//! `ahead apps`: what the launch service knows of programs, and what its user wants.

use crate::output;
use ahead_apps::listing;
use ahead_apps::{AppChange, AppStore, HOME, calling_user};
use ahead_report::table::Screen;
use ahead_report::text::printable;
use ahead_sys::machine;
use ahead_sys::user::User;
use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what the launch service knows of programs: starts, time saved, waste, and why one is not prefetched
///
/// Saved time is measured against cold starts that were left alone; `est.` marks estimates, before there was one. Each user sees
/// the own programs.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  ahead apps
  ahead apps --html apps.html
  ahead apps exclude backup
  sudo ahead apps off")]
pub struct Apps {
    #[command(subcommand)]
    command: Option<AppsCommand>,
    /// Print JSON instead of a table (see docs/reference/json.md)
    #[arg(long)]
    json: bool,
    /// Write a page instead: seconds saved by day and program
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Of this user [default: of the calling one]
    #[arg(long, global = true)]
    user: Option<String>,
    /// Of all users
    #[arg(long, conflicts_with = "user")]
    all: bool,
    /// The directory of the service, for tests
    #[arg(long, global = true, hide = true, value_name = "DIR", default_value = HOME)]
    store: PathBuf,
}

#[derive(Debug, Subcommand)]
enum AppsCommand {
    /// Prefetch programs always, with the profile as it is now
    Pin(Named),
    /// Forget programs: their profiles, starts, and what was wanted of them
    Forget(Named),
    /// Leave programs alone; a path may name one that is not known yet
    Exclude(Named),
    /// End pin and exclude: the service decides again
    Include(Named),
    /// Switch the service on
    On,
    /// Switch the service off: as root for all users, or else for the calling one
    Off,
}

#[derive(Debug, Args)]
struct Named {
    /// Names, paths, or keys as in --json
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// The launch service.
const UNIT: &str = "aheadd.service";
const NOT_RUNNING: &str = "it does not run; see: systemctl status aheadd";

/// Whether the unit is active. `true` if systemd does not say.
fn is_active() -> bool {
    let status = std::process::Command::new("systemctl").args(["is-active", "--quiet", UNIT]).status();
    status.map_or(true, |status| status.success())
}

impl Apps {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if (self.user.is_some() || self.all) && !machine::is_root() {
            return Err(ahead_sys::Error::needs_root("seeing programs of other users").into());
        }
        let (user, group) = match &self.user {
            Some(name) => User::lookup(name).map(|user| (user.uid, user.gid))?,
            None => calling_user(),
        };
        let store = AppStore::open(&self.store)?;
        let (named, change, done) = match &self.command {
            None => return self.list(store.as_ref(), user),
            Some(AppsCommand::On) => return self.switch(store, user, false),
            Some(AppsCommand::Off) => return self.switch(store, user, true),
            Some(AppsCommand::Pin(named)) => (named, AppChange::Pin, "pinned:"),
            Some(AppsCommand::Forget(named)) => (named, AppChange::Forget, "forgotten:"),
            Some(AppsCommand::Exclude(named)) => (named, AppChange::Exclude, "left alone:"),
            Some(AppsCommand::Include(named)) => (named, AppChange::Include, "included:"),
        };
        let own = store.map(|store| store.user_to_change(user, group)).transpose()?.flatten();
        let own = own.context("the launch service has recorded no start of this user; see: ahead apps")?;
        for word in &named.names {
            for name in own.change(word, change)? {
                println!("{done} {}", printable(name.as_bytes()));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, store: Option<&AppStore>, user: u32) -> anyhow::Result<ExitCode> {
        let page = self.html.as_deref().map(output::Output::prepare_page).transpose()?;
        let users = if self.all { store.map(AppStore::users).unwrap_or_default() } else { vec![user] };
        let (listed, off) = store.map(|store| store.listed(&users)).transpose()?.unwrap_or_default();
        let off = ahead_boot::Circumstances::now().off().map(ahead_boot::Off::reason).or(off);
        let is_of_machine = self.store == Path::new(HOME) && ahead_boot::systemd_runs();
        let off = off.or_else(|| (is_of_machine && !is_active()).then_some(NOT_RUNNING));
        match page {
            Some(page) => page.commit(listing::page(&listed, self.all).as_bytes())?,
            None => {
                let text = match (self.json, listed.is_empty()) {
                    (true, _) => format!("{:#}\n", listing::json(&listed, off)),
                    (false, true) => "no program is known yet: the launch service has recorded no start\n".into(),
                    (false, false) => listing::table(&listed, self.all).render(Screen::stdout()),
                };
                std::io::stdout().write_all(text.as_bytes())?;
            }
        }
        off.iter().filter(|_| !self.json).for_each(|why| eprintln!("ahead: the launch service does nothing: {why}"));
        Ok(ExitCode::SUCCESS)
    }

    fn switch(&self, store: Option<AppStore>, user: u32, is_off: bool) -> anyhow::Result<ExitCode> {
        let word = if is_off { "off" } else { "on" };
        let for_all = machine::is_root() && self.user.is_none();
        let verb = if is_off { "disable" } else { "enable" };
        if for_all && self.store == Path::new(HOME) && ahead_boot::systemd_runs() {
            let status = std::process::Command::new("systemctl").args([verb, "--now", UNIT]).status();
            ensure!(
                status.context("systemctl")?.success(),
                "systemctl {verb} --now {UNIT} failed; see its message above"
            );
            println!("switched {word} for all users: systemctl {verb} --now {UNIT}");
            return Ok(ExitCode::SUCCESS);
        } else if for_all {
            store.map_or_else(|| AppStore::make(&self.store), Ok)?.set_off(is_off)?;
            println!("switched {word} for all users: {}", self.store.join("off").display());
            return Ok(ExitCode::SUCCESS);
        }
        let own = store.as_ref().map(|store| store.user(user)).transpose()?.flatten();
        let refused = || ahead_sys::Error::needs_root(format!("switching the launch service {word} for all users"));
        let own = own.ok_or_else(refused)?;
        own.set_off(is_off)?;
        println!("switched {word} for user {user}; for all users: sudo ahead apps {word}");
        Ok(ExitCode::SUCCESS)
    }
}

//! The laboratory's program, `ahead-lab`: `ahead sim …` becomes `ahead-lab sim …`.
//!
//! It is looked for beside this program and then where `make install` has put both, never through `PATH`: as root, a command must not start
//! what another user has put into a directory.

use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Its name.
const PROGRAM: &str = "ahead-lab";

/// The commands that only it has.
const COMMANDS: [&str; 5] = ["bench", "disk", "papers", "probe", "sim"];

/// Where `make install PREFIX=` has put it; set when it builds.
const INSTALLED: Option<&str> = option_env!("AHEAD_PREFIX");

/// A command of the laboratory (ahead-lab)
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct LaboratoryCommand {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

impl LaboratoryCommand {
    /// Becomes `ahead-lab NAME …`. Returns only if that fails.
    pub fn run(self, name: &str) -> anyhow::Result<ExitCode> {
        become_laboratory([name.into()].into_iter().chain(self.arguments))
    }
}

/// Whether these arguments, the program's name first, are `help COMMAND` for a command of the laboratory, whose help only that can print.
pub fn is_help_of_laboratory(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let words: Vec<OsString> = arguments.into_iter().skip(1).take(2).collect();
    match &words[..] {
        [help, name] => help == "help" && COMMANDS.iter().any(|command| name == command),
        _ => false,
    }
}

/// Becomes `ahead-lab` with the arguments of this process.
pub fn become_laboratory_with_own_arguments() -> anyhow::Result<ExitCode> {
    become_laboratory(std::env::args_os().skip(1))
}

fn become_laboratory(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let own = std::fs::read_link("/proc/self/exe").context("read /proc/self/exe")?;
    let candidates = candidates(&own, INSTALLED.map(Path::new));
    let Some(program) = candidates.iter().find(|candidate| candidate.is_file()) else {
        let places: Vec<String> = candidates.iter().map(|place| place.display().to_string()).collect();
        bail!(ahead_sys::Error::Unsupported {
            what: "this command".into(),
            why: format!("it is in the program {PROGRAM}, which is not installed (looked for {})", places.join(", ")),
        });
    };
    // Help and errors name the command as the user typed it.
    let error = Command::new(program).arg0("ahead").args(arguments).exec();
    Err(error).with_context(|| format!("start {}", program.display()))
}

fn candidates(own: &Path, prefix: Option<&Path>) -> Vec<PathBuf> {
    let beside = own.parent().map(|directory| directory.join(PROGRAM));
    let installed = prefix.map(|prefix| prefix.join("bin").join(PROGRAM));
    beside.into_iter().chain(installed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_a_laboratory_command_is_recognized() {
        let is_help = |words: &[&str]| is_help_of_laboratory(words.iter().map(OsString::from));
        assert!(is_help(&["ahead", "help", "sim"]) && is_help(&["ahead", "help", "sim", "sweep"]));
        assert!(
            !is_help(&["ahead", "help", "run"]) && !is_help(&["ahead", "help"]) && !is_help(&["ahead", "sim", "help"])
        );
    }

    #[test]
    fn program_beside_this_one_comes_before_the_installed_one() {
        let found = candidates(Path::new("/opt/x/ahead"), Some(Path::new("/usr/local")));
        assert_eq!(found, [Path::new("/opt/x/ahead-lab"), Path::new("/usr/local/bin/ahead-lab")]);
        assert_eq!(candidates(Path::new("/opt/x/ahead"), None), [Path::new("/opt/x/ahead-lab")]);
    }
}

//! The programs beside this one, each with some of the commands: `ahead sim …` becomes `ahead-lab sim …`, `ahead top …` becomes
//! `ahead-steer top …`.
//!
//! They are looked for beside this program and then where `make install` has put all of them, never through `PATH`: as root, a command must
//! not start what another user has put into a directory.

use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A program beside this one.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    /// The Debian package that has it.
    package: &'static str,
    commands: &'static [&'static str],
}

/// The laboratory: it measures, models and explains.
pub const LABORATORY: Program =
    Program { name: "ahead-lab", package: "ahead-lab", commands: &["bench", "disk", "papers", "probe", "sim"] };

/// The program that observes and steers the read-ahead of running programs. It has BPF programs and a terminal interface, which `ahead`
/// would read at each cold start.
pub const STEERING: Program = Program { name: "ahead-steer", package: "ahead", commands: &["top", "steer"] };

/// Where `make install PREFIX=` has put them; set when it builds.
const INSTALLED: Option<&str> = option_env!("AHEAD_PREFIX");

/// A command of the laboratory (ahead-lab)
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct PassedOn {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

impl PassedOn {
    /// Becomes `PROGRAM NAME …`. Returns only if that fails.
    pub fn run(self, program: &Program, name: &str) -> anyhow::Result<ExitCode> {
        program.replace_process([name.into()].into_iter().chain(self.arguments))
    }
}

/// The program that prints the help for these arguments, the name of this program first: they are `help COMMAND` for one of its commands.
pub fn with_help(arguments: impl IntoIterator<Item = OsString>) -> Option<&'static Program> {
    let words: Vec<OsString> = arguments.into_iter().skip(1).take(2).collect();
    let [help, name] = &words[..] else { return None };
    let has_command = |program: &&Program| help == "help" && program.commands.iter().any(|command| name == command);
    [&LABORATORY, &STEERING].into_iter().find(has_command)
}

/// The definition of a command line, named as the user typed it: `ahead sim` or `ahead-lab sim`.
pub fn name_as_typed(definition: clap::Command) -> clap::Command {
    let first = std::env::args_os().next().unwrap_or_default();
    match Path::new(&first).file_name() {
        Some(name) if name == "ahead" => definition.name("ahead").bin_name("ahead"),
        _ => definition,
    }
}

impl Program {
    /// Becomes this program with the arguments of this process. Returns only if that fails.
    pub fn replace_process_with_own_arguments(&self) -> anyhow::Result<ExitCode> {
        self.replace_process(std::env::args_os().skip(1))
    }

    fn replace_process(&self, arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
        let own = std::fs::read_link("/proc/self/exe").context("read /proc/self/exe")?;
        let candidates = self.candidates(&own, INSTALLED.map(Path::new));
        let Some(program) = candidates.iter().find(|candidate| candidate.is_file()) else {
            let places: Vec<String> = candidates.iter().map(|place| place.display().to_string()).collect();
            let (name, package, places) = (self.name, self.package, places.join(" or "));
            bail!(ahead_sys::Error::Unsupported {
                what: "this command".into(),
                why: format!("it is in the program {name}, which is not at {places}; install the package {package}"),
            });
        };
        // Help and errors name the command as the user typed it.
        let error = Command::new(program).arg0("ahead").args(arguments).exec();
        Err(error).with_context(|| format!("start {}", program.display()))
    }

    fn candidates(&self, own: &Path, prefix: Option<&Path>) -> Vec<PathBuf> {
        let beside = own.parent().map(|directory| directory.join(self.name));
        let installed =
            prefix.map(|prefix| prefix.join("bin").join(self.name)).filter(|path| beside.as_ref() != Some(path));
        beside.into_iter().chain(installed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_a_command_is_printed_by_its_program() {
        let program = |words: &[&str]| with_help(words.iter().map(OsString::from)).map(|program| program.name);
        for words in [&["ahead", "help", "sim"][..], &["ahead", "help", "sim", "sweep"]] {
            assert_eq!(program(words), Some("ahead-lab"), "{words:?}");
        }
        assert_eq!(program(&["ahead", "help", "top"]), Some("ahead-steer"));
        for words in [&["ahead", "help", "run"][..], &["ahead", "help"], &["ahead", "sim", "help"], &["ahead"]] {
            assert_eq!(program(words), None, "{words:?}");
        }
    }

    #[test]
    fn program_beside_this_one_comes_before_the_installed_one() {
        let found = LABORATORY.candidates(Path::new("/opt/x/ahead"), Some(Path::new("/usr/local")));
        assert_eq!(found, [Path::new("/opt/x/ahead-lab"), Path::new("/usr/local/bin/ahead-lab")]);
        assert_eq!(STEERING.candidates(Path::new("/opt/x/ahead"), None), [Path::new("/opt/x/ahead-steer")]);
    }

    /// Regression: the message about a missing laboratory had the same path twice.
    #[test]
    fn installed_program_is_looked_for_once() {
        let found = LABORATORY.candidates(Path::new("/usr/bin/ahead"), Some(Path::new("/usr")));
        assert_eq!(found, [Path::new("/usr/bin/ahead-lab")]);
    }
}

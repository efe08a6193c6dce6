//! The command line: flags are those of `ahead replay`, as far as they make sense on a small machine.

use ahead::prefetch::{HeadStart, Options, Priority};
use ahead_model::quantity::{parse_size_with_unit, parse_time};
use lexopt::{Arg, Parser, ValueExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Threads of the process: one reads, the other one checks time and memory.
const THREADS: usize = 2;

const HELP: &str = "\
Prefetch the pages of a profile or a list, on a small machine

Usage: ahead-replay [OPTIONS] FILE

FILE is a profile of `ahead record`, or a list as `ahead export` writes it: PATH or PATH:START-END on each line (END exclusive). A
list begins with / or #, or is read from standard input: -. Returns when everything is submitted: the kernel reads on by itself. Files
that differ from the recording, are in memory already or may not be read are skipped and counted. The account has one figure per line.

Options:
  -0, --null            FILE is a list whose entries end with a NUL byte
      --low-memory      Read in the order of first use, at most a quarter of the available memory, and no gaps between used ranges
      --wait            Return only when everything has arrived
      --budget SIZE     Prefetch at most this much, as in 20M [default: half of the available memory]
      --deadline TIME   Give up after this time, as in 30s
      --priority CLASS  normal: as any program; idle: after the reads of all other programs [default: normal]
      --root DIR        The paths are below this directory, as in an initramfs
      --json            Print the account as JSON, as `ahead replay --json` does
  -h, --help            Print help
  -V, --version         Print version
";

const VERSION: &str = concat!("ahead-replay ", env!("CARGO_PKG_VERSION"), "\n");

/// What the user asks for.
#[derive(Debug)]
pub enum Asked {
    /// To print this text.
    Text(&'static str),
    /// To prefetch.
    Replay(Arguments),
}

/// The arguments of a replay.
#[derive(Debug, Default)]
pub struct Arguments {
    /// The profile or the list; `-`: a list from standard input.
    pub file: PathBuf,
    /// Whether it is a list whose entries end with a NUL byte.
    pub nul: bool,
    /// The directory below which the paths are.
    pub root: Option<PathBuf>,
    /// Whether the account is JSON.
    pub json: bool,
    low_memory: bool,
    wait: bool,
    budget_bytes: Option<u64>,
    deadline: Option<Duration>,
    priority: Priority,
}

impl Arguments {
    /// The options of the prefetch. `began`: when the program was started.
    pub fn options(&self, began: Instant) -> Options {
        Options::default()
            .budget_bytes(self.budget_bytes)
            .deadline(self.deadline)
            .since(Some(began))
            .priority(self.priority)
            .head_start(HeadStart::None)
            .wait(self.wait)
            .threads(Some(THREADS))
            .low_memory(self.low_memory)
    }
}

/// Parses a command line.
///
/// Errors: the first mistake, for the user.
pub fn parse(mut parser: Parser) -> Result<Asked, lexopt::Error> {
    let mut arguments = Arguments::default();
    let mut file = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('0') | Arg::Long("null") => arguments.nul = true,
            Arg::Long("json") => arguments.json = true,
            Arg::Long("low-memory") => arguments.low_memory = true,
            Arg::Long("wait") => arguments.wait = true,
            Arg::Long("budget") => arguments.budget_bytes = Some(value(&mut parser, "--budget", parse_size_with_unit)?),
            Arg::Long("deadline") => arguments.deadline = Some(value(&mut parser, "--deadline", parse_time)?),
            Arg::Long("priority") => arguments.priority = value(&mut parser, "--priority", parse_priority)?,
            Arg::Long("root") => arguments.root = Some(parser.value()?.into()),
            Arg::Short('h') | Arg::Long("help") => return Ok(Asked::Text(HELP)),
            Arg::Short('V') | Arg::Long("version") => return Ok(Asked::Text(VERSION)),
            Arg::Value(path) if file.is_none() => file = Some(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    arguments.file = file.ok_or("no FILE is given")?;
    Ok(Asked::Replay(arguments))
}

fn value<T>(parser: &mut Parser, flag: &str, parse: fn(&str) -> Result<T, String>) -> Result<T, lexopt::Error> {
    let text = parser.value()?.string()?;
    parse(&text).map_err(|why| format!("{flag}: {why}").into())
}

fn parse_priority(text: &str) -> Result<Priority, String> {
    match text {
        "normal" => Ok(Priority::Normal),
        "idle" => Ok(Priority::Idle),
        _ => Err(format!("{text:?} is not a priority; write normal or idle")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        match parse(Parser::from_args(arguments)) {
            Ok(Asked::Replay(arguments)) => Ok(arguments.options(Instant::now())),
            Ok(Asked::Text(text)) => panic!("{text}"),
            Err(why) => Err(why.to_string()),
        }
    }

    #[test]
    fn flags_become_options() {
        let plain = parsed(&["p.ahead"]).unwrap();
        assert_eq!((plain.threads, plain.low_memory, plain.wait, plain.budget_bytes), (Some(2), false, false, None));
        assert_eq!((plain.priority, plain.head_start, plain.deadline), (Priority::Normal, HeadStart::None, None));
        let all = ["--low-memory", "--wait", "--budget=20M", "--deadline", "30s", "p.ahead", "--priority", "idle"];
        let all = parsed(&all).unwrap();
        assert_eq!((all.low_memory, all.wait, all.budget_bytes), (true, true, Some(20 << 20)));
        assert_eq!((all.priority, all.deadline), (Priority::Idle, Some(Duration::from_secs(30))));
    }

    #[test]
    fn path_of_the_profile_may_begin_with_a_dash_after_two_dashes() {
        let Ok(Asked::Replay(arguments)) = parse(Parser::from_args(["--wait", "--", "-p"])) else { panic!() };
        assert_eq!(arguments.file, PathBuf::from("-p"));
    }

    #[test]
    fn dash_is_a_file_and_null_has_two_names() {
        for (arguments, nul) in [(&["-"][..], false), (&["-0", "-"], true), (&["--null", "-"], true)] {
            let Ok(Asked::Replay(arguments)) = parse(Parser::from_args(arguments)) else { panic!() };
            assert_eq!((arguments.file, arguments.nul), (PathBuf::from("-"), nul));
        }
    }

    #[test]
    fn root_is_a_directory_by_its_path() {
        let Ok(Asked::Replay(arguments)) = parse(Parser::from_args(["--root", "/root", "p"])) else { panic!() };
        assert_eq!((arguments.root, arguments.file), (Some("/root".into()), "p".into()));
    }

    #[test]
    fn mistakes_name_the_argument() {
        for (arguments, expected) in [
            (&[][..], "no FILE is given"),
            (&["a", "b"], "unexpected argument \"b\""),
            (&["--observe", "a"], "invalid option '--observe'"),
            (&["--budget"], "missing argument for option '--budget'"),
            (&["--budget", "4096", "a"], "--budget: \"4096\" has no unit"),
            (&["--deadline", "soon", "a"], "--deadline: \"soon\" is not a time"),
            (&["--priority", "high", "a"], "--priority: \"high\" is not a priority; write normal or idle"),
            (&["a", "--root"], "missing argument for option '--root'"),
            (&["--wait=yes", "a"], "unexpected argument for option '--wait'"),
        ] {
            let why = parsed(arguments).unwrap_err();
            assert!(why.contains(expected), "{arguments:?}: {why}");
        }
    }
}

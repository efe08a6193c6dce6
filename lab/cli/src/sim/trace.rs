//! `ahead sim trace`: runs a program, and keeps what the kernel's read-ahead decided for it.

use ahead::stopping::check_stopped;
use ahead_cli::exit;
use ahead_cli::output::{self, Output};
use ahead_observe::Decisions;
use ahead_process::{Child, Command, Signals};
use ahead_report::number::{grouped, size};
use ahead_report::text::one_line;
use ahead_sys::user::User;
use ahead_sys::{evict, machine};
use ahead_traces::Header;
use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::ExitCode;

/// Of the command line so much is kept in a trace, bytes.
const COMMAND_BYTES: usize = 4096;

/// Record what the kernel's read-ahead decides for a program
///
/// Every read, fault and advice of the program and of all that it starts, every decision of the kernel with the state before
/// it, and all that comes into the page cache and leaves it. Files that are partly cached when they are first touched cannot
/// be compared: begin cold, or with files of your own. What a program did until a signal ended it is kept. Needs root and Linux
/// 6.18 or newer. The program's exit status is passed on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo ahead sim trace --cold -o grep.trace -- grep -r needle /usr/share/doc
  ahead sim conform grep.trace")]
pub struct Trace {
    /// Where to keep the trace
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Evict the page cache, dentries and inodes of the whole machine before
    #[arg(long)]
    cold: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Trace {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        exit::status_beside_program(self.trace())
    }

    fn trace(&self) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        let user = User::behind_sudo()?;
        // Before the program runs: what it does may not be done twice.
        let output = output::with_rights_of(user.as_ref(), || Output::prepare(&self.output))?;
        let mut file = tempfile::tempfile().context("make a temporary file")?;
        let command = Command { argv: self.command.clone(), user: user.clone(), ..Command::default() };
        // Before the observer: a small process is quickly copied.
        let mut child = Child::spawn_held(&command)?;
        let decisions = Decisions::start(file.try_clone()?, &self.header())?;
        decisions.follow(child.pid())?;
        if self.cold {
            check_stopped(&signals)?;
            evict::everything()?;
        }
        check_stopped(&signals)?;
        child.release(&command)?;
        // A signal is the program's affair: what it did until then is kept.
        let ended = child.wait(&signals)?;
        let trailer = decisions.finish()?;
        if trailer.lost > 0 {
            bail!("{} events were lost, so that the trace would prove nothing; it is not kept", grouped(trailer.lost));
        }
        let mut trace = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut trace)?;
        output::with_rights_of(user.as_ref(), || output.commit(&trace))?;
        let (path, records) = (self.output.display().to_string(), grouped(trailer.records));
        eprintln!("ahead: {records} records in {} ({})", one_line(&path), size(trace.len() as u64));
        Ok(ExitCode::from(ended.code() as u8))
    }

    fn header(&self) -> Header {
        let mut left = COMMAND_BYTES;
        let words = self.command.iter().map(|word| word.to_string_lossy().into_owned());
        let fits = |word: &String| {
            left = left.saturating_sub(word.len() + 1);
            left > 0
        };
        Header {
            kernel: machine::kernel_release(),
            machine: machine::architecture(),
            page_bytes: machine::page_size() as u32,
            command: words.take_while(fits).collect(),
        }
    }
}

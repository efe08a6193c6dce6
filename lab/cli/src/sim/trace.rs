//! `ahead sim trace`: runs a program, and records the decisions of the kernel's read-ahead.

use ahead::check_stopped;
use ahead_cli::exit;
use ahead_cli::output::{self, Output};
use ahead_observe::Decisions;
use ahead_policy::traces::Header;
use ahead_process::{Child, Command, Signals};
use ahead_report::number::{grouped, size};
use ahead_report::text::one_line;
use ahead_sys::user::User;
use ahead_sys::{evict, machine};
use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::ExitCode;

/// Limit of the command line in a trace, bytes.
const COMMAND_BYTES: usize = 4096;

/// Record the decisions of the kernel's read-ahead for a program
///
/// Records every read, fault and advice of the program and its children, every decision of the kernel with the state before it, and every page
/// that enters or leaves the page cache. Files that are partly cached at their first access cannot be compared: start cold, or with new files.
/// If a signal ends the program, the trace until then is kept. Needs root and Linux 6.18 or newer. Passes on the program's exit status.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo ahead sim trace --cold -o grep.trace -- grep -r needle /usr/share/doc
  ahead sim conform grep.trace")]
pub struct Trace {
    /// File for the trace
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// First evict the page cache, dentries and inodes of the whole machine
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
        // Checked before the program runs, which perhaps must not run twice.
        let output = output::with_rights_of(user.as_ref(), || Output::prepare(&self.output))?;
        let mut file = tempfile::tempfile().context("make a temporary file")?;
        let command = Command::new(&self.command).user(user.clone());
        // Before the observer starts: a fork of a small process is fast.
        let mut child = Child::spawn_held(&command)?;
        let decisions = Decisions::start(file.try_clone()?, &self.header())?;
        decisions.follow(child.pid())?;
        if self.cold {
            check_stopped(&signals)?;
            evict::everything()?;
        }
        check_stopped(&signals)?;
        child.release(&command)?;
        // A signal ends the program, not the recording.
        let ended = child.wait(&signals)?;
        let trailer = decisions.finish()?;
        if trailer.lost > 0 {
            bail!("{} events were lost; the trace would prove nothing and is not kept", grouped(trailer.lost));
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

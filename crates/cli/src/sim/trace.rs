//! `ahead sim trace`: runs a program, and keeps what the kernel's read-ahead decided for it.

use crate::exit::{self, Stopped};
use crate::record::go_on;
use ahead_conform::{Header, Trailer};
use ahead_kernel::process::{Child, Command, Event, Signals};
use ahead_kernel::user::User;
use ahead_kernel::{evict, machine};
use ahead_report::number::grouped;
use ahead_trace::Decisions;
use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Of the command line so much is kept in a trace, bytes.
const COMMAND_BYTES: usize = 4096;

/// Record what the kernel's read-ahead decides for a program
///
/// Every read, fault and advice of the program and of all that it starts, every decision of the kernel with the state before
/// it, and all that comes into the page cache and leaves it. Files that are partly cached when they are first touched cannot
/// be compared: begin cold, or with files of your own. Needs root and Linux 6.18 or newer. The program's exit status is passed
/// on.
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
        let directory = match self.output.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let file = NamedTempFile::new_in(directory).with_context(|| format!("write {}", self.output.display()))?;
        let command = Command { argv: self.command.clone(), user, ..Command::default() };
        // Before the observer: a small process is quickly copied.
        let mut child = Child::spawn_held(&command)?;
        let decisions = Decisions::start(file.as_file().try_clone()?, &self.header())?;
        decisions.follow(child.pid())?;
        if self.cold {
            go_on(&signals)?;
            evict::everything()?;
        }
        go_on(&signals)?;
        child.release(&command)?;
        let mut stopped = None;
        let ended = loop {
            match child.wait_event(&signals, &[], None)? {
                Event::Ended(ended) => break ended,
                Event::Signal(number) => stopped = Some(number),
                _ => {}
            }
        };
        let trailer = decisions.finish()?;
        if let Some(number) = stopped {
            bail!(Stopped(number));
        }
        file.persist(&self.output).map_err(|error| error.error).with_context(|| self.output.display().to_string())?;
        self.tell(trailer)?;
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

    fn tell(&self, trailer: Trailer) -> anyhow::Result<()> {
        let (path, records) = (self.output.display(), grouped(trailer.records));
        let bytes = std::fs::metadata(&self.output)?.len();
        eprintln!("ahead: {records} records in {path} ({})", ahead_report::number::size(bytes));
        if trailer.lost > 0 {
            eprintln!("ahead: {} events were LOST, so that this trace proves nothing", grouped(trailer.lost));
        }
        Ok(())
    }
}

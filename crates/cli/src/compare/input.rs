//! Standard input, the same for every run: each gets a descriptor of its own, which starts where ours stands.

use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, OFlags};
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, stdin};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;

/// So much of a pipe is kept for all runs, bytes: in memory, so that evicting files does not slow its reading.
const KEPT_MOST_BYTES: u64 = 1 << 30;

/// After this time without input it is said what is waited for.
const SILENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What every run reads.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    offset: u64,
    _kept: Option<File>,
}

impl Input {
    /// A file is opened again for each run, anything else is read to its end now; a terminal is left alone, and so is what
    /// was not given to be read (nohup gives such a thing): root could open it, the user perhaps not.
    pub fn take() -> anyhow::Result<Input> {
        let stdin = stdin();
        if stdin.is_terminal() || !is_readable(&stdin)? {
            return Ok(Input { path: "/dev/null".into(), offset: 0, _kept: None });
        }
        let stat = rustix::fs::fstat(&stdin).context("look at standard input")?;
        let path = PathBuf::from("/proc/self/fd/0");
        if FileType::from_raw_mode(stat.st_mode).is_file() && File::open(&path).is_ok() {
            let offset = rustix::fs::tell(&stdin).context("look at standard input")?;
            return Ok(Input { path, offset, _kept: None });
        }
        if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&SILENCE)) == Ok(0) {
            eprintln!("ahead: reading standard input to its end, for every run gets the same (</dev/null: nothing)");
        }
        Input::kept(stdin.lock(), KEPT_MOST_BYTES)
    }

    fn kept(source: impl Read, most_bytes: u64) -> anyhow::Result<Input> {
        let kept = rustix::fs::memfd_create("ahead-compare-input", MemfdFlags::CLOEXEC);
        let mut kept = File::from(kept.context("keep standard input")?);
        let copied = std::io::copy(&mut source.take(most_bytes + 1), &mut kept).context("keep standard input")?;
        ensure!(
            copied <= most_bytes,
            "standard input is longer than {}, the most that is kept for all runs: put it into a file and give it with \
             <FILE",
            ahead_report::number::size(most_bytes)
        );
        Ok(Input { path: format!("/proc/self/fd/{}", kept.as_raw_fd()).into(), offset: 0, _kept: Some(kept) })
    }

    /// For one run.
    pub fn open(&self) -> anyhow::Result<Arc<File>> {
        let open = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.offset))?;
            std::io::Result::Ok(Arc::new(file))
        };
        open().context("open standard input for a run")
    }
}

fn is_readable(fd: impl AsFd) -> anyhow::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd).context("look at standard input")?;
    Ok(!flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::WRONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_reads_the_whole_input() {
        let input = Input::kept(&b"the input"[..], 9).unwrap();
        for _ in 0..2 {
            assert_eq!(std::io::read_to_string(&*input.open().unwrap()).unwrap(), "the input");
        }
    }

    /// Regression: root opened for reading what he had been given for writing only.
    #[test]
    fn what_was_given_for_writing_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_readable(File::options().append(true).open(file.path()).unwrap()).unwrap());
        assert!(is_readable(file.as_file()).unwrap() && is_readable(File::open(file.path()).unwrap()).unwrap());
    }

    #[test]
    fn too_long_an_input_is_an_error_that_says_what_to_do() {
        let error = Input::kept(&b"the input"[..], 8).unwrap_err().to_string();
        assert!(error.contains("<FILE"), "{error}");
    }
}

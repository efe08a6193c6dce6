//! Standard input, the same for every run: each run gets its own descriptor, at the position of ours.

use crate::error::IoContext;
use crate::{Error, Notify, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, OFlags};
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, stdin};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;

/// The most that is kept of a pipe for all runs, bytes: in memory, so that evicting files does not slow its reading.
const MAX_KEPT_BYTES: u64 = 1 << 30;

/// After this time without input, a notice says that standard input is being read.
const SILENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The standard input of every run.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    offset: u64,
    _kept: Option<File>,
}

impl Input {
    /// No input.
    pub fn none() -> Input {
        Input { path: "/dev/null".into(), offset: 0, _kept: None }
    }

    /// A file is opened again for each run; a pipe is read to its end now (at most 1 GiB). A terminal is not read, and neither is a descriptor
    /// that was not opened for reading (as nohup gives it): root could open it, the user perhaps not.
    ///
    /// # Errors
    /// The input is too long, or cannot be read.
    pub fn take(notify: Notify<'_>) -> Result<Input> {
        let stdin = stdin();
        if stdin.is_terminal() || !is_readable(&stdin)? {
            return Ok(Input::none());
        }
        let stat = rustix::fs::fstat(&stdin).what("look at standard input")?;
        let path = PathBuf::from("/proc/self/fd/0");
        if FileType::from_raw_mode(stat.st_mode).is_file() && File::open(&path).is_ok() {
            let offset = rustix::fs::tell(&stdin).what("look at standard input")?;
            return Ok(Input { path, offset, _kept: None });
        }
        if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&SILENCE)) == Ok(0) {
            notify("reading standard input to its end, because every run gets the same (</dev/null: nothing)");
        }
        Input::kept(stdin.lock(), MAX_KEPT_BYTES)
    }

    fn kept(source: impl Read, most_bytes: u64) -> Result<Input> {
        let kept = rustix::fs::memfd_create("ahead-compare-input", MemfdFlags::CLOEXEC);
        let mut kept = File::from(kept.what("keep standard input")?);
        let copied = std::io::copy(&mut source.take(most_bytes + 1), &mut kept).what("keep standard input")?;
        if copied > most_bytes {
            let limit = most_bytes >> 20;
            return Err(Error::Failed(format!(
                "standard input is longer than {limit} MiB, the most that is kept for all runs: put it into a file and give it with <FILE"
            )));
        }
        Ok(Input { path: format!("/proc/self/fd/{}", kept.as_raw_fd()).into(), offset: 0, _kept: Some(kept) })
    }

    /// Opens it for one run.
    ///
    /// # Errors
    /// The file cannot be opened any more.
    pub fn open(&self) -> Result<Arc<File>> {
        let open = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.offset))?;
            std::io::Result::Ok(Arc::new(file))
        };
        open().what("open standard input for a run")
    }
}

fn is_readable(fd: impl AsFd) -> Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd).what("look at standard input")?;
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

    /// Regression: root opened a descriptor for reading that was opened for writing only.
    #[test]
    fn descriptor_opened_for_writing_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_readable(File::options().append(true).open(file.path()).unwrap()).unwrap());
        assert!(is_readable(file.as_file()).unwrap() && is_readable(File::open(file.path()).unwrap()).unwrap());
    }

    #[test]
    fn too_long_input_is_an_error_with_a_remedy() {
        let error = Input::kept(&b"the input"[..], 8).unwrap_err().to_string();
        assert!(error.contains("<FILE"), "{error}");
    }
}

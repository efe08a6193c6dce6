//! Captured output of a program: passes it on, and searches it for a line.

use crate::{Error, Result};
use ahead_process::Signals;
use regex_lite::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;

/// One captured stream of the program.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) pipe: File,
    is_errors: bool,
    line: Vec<u8>,
    pub(super) is_empty: bool,
    pub(super) read_bytes: u64,
}

/// How output is passed on. The process that reads it may be slow or stopped, and must not delay the handling of a signal.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    pub(super) signals: &'a Signals,
    /// Waits for the reading process until a signal arrives. After a signal, output that cannot be written at once is dropped.
    pub(super) is_patient: bool,
}

/// Bytes that a writable pipe accepts without blocking (`PIPE_BUF`).
const AT_ONCE_BYTES: usize = 4096;

impl Pass<'_> {
    fn write(self, to: &mut (impl Write + AsFd), bytes: &[u8]) -> std::io::Result<()> {
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = if self.is_patient { None } else { Some(&no_time) };
        for part in bytes.chunks(AT_ONCE_BYTES) {
            let is_writable = {
                let mut fds = [PollFd::new(&*to, PollFlags::OUT), PollFd::new(self.signals, PollFlags::IN)];
                rustix::io::retry_on_intr(|| poll(&mut fds, limit))?;
                !fds[0].revents().is_empty()
            };
            if !is_writable {
                return Ok(());
            }
            to.write_all(part)?;
            to.flush()?;
        }
        Ok(())
    }
}

pub(super) enum LineSeen {
    Nothing,
    Match,
    End,
}

/// Only this part of a line is matched. It limits the memory for a program that prints no newline. It also limits the time:
/// each read matches the line so far again, which is quadratic if the line arrives byte by byte.
const LINE_MOST_BYTES: usize = 64 << 10;

/// Largest capacity of a pipe by default (`/proc/sys/fs/pipe-max-size`); our pipes have less. Bytes.
pub(super) const PIPE_MOST_BYTES: u64 = 1 << 20;

impl Stream {
    pub(super) fn new(pipe: File, is_errors: bool) -> Result<Stream> {
        rustix::io::ioctl_fionbio(&pipe, true).map_err(|e| Error::io("set up a pipe", e.into()))?;
        Ok(Stream { pipe, is_errors, line: Vec::new(), is_empty: false, read_bytes: 0 })
    }

    /// Reads once, passes the output on, and searches each line, also an incomplete one, for the pattern.
    pub(super) fn read(&mut self, pattern: Option<&Regex>, pass: Option<Pass<'_>>) -> Result<LineSeen> {
        let mut buffer = [0; 1 << 16];
        let bytes = match self.pipe.read(&mut buffer) {
            Ok(0) => return Ok(LineSeen::End),
            Ok(count) => {
                self.read_bytes += count as u64;
                &buffer[..count]
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_empty = true;
                return Ok(LineSeen::Nothing);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(LineSeen::Nothing),
            Err(error) => return Err(Error::io("read the program's output", error)),
        };
        if let Some(pass) = pass {
            // The process that reads our output may have ended (`| head`). The program goes on.
            let _ = if self.is_errors {
                pass.write(&mut std::io::stderr(), bytes)
            } else {
                pass.write(&mut std::io::stdout(), bytes)
            };
        }
        Ok(if self.matches(bytes, pattern) { LineSeen::Match } else { LineSeen::Nothing })
    }

    fn matches(&mut self, bytes: &[u8], pattern: Option<&Regex>) -> bool {
        let mut matched = false;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_MOST_BYTES.saturating_sub(self.line.len()).min(piece.len());
            self.line.extend(&piece[..room]);
            let is_whole = piece.ends_with(b"\n");
            if room > 0 {
                // A prompt has no newline: the incomplete line is matched, too.
                let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                // Output may be invalid UTF-8: every invalid byte becomes U+FFFD.
                matched |= pattern.is_some_and(|pattern| pattern.is_match(&String::from_utf8_lossy(text)));
            }
            if is_whole {
                self.line.clear();
            }
        }
        matched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};

    #[test]
    fn unread_output_is_dropped_after_a_signal() {
        let signals = Signals::take().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pass = Pass { signals: &signals, is_patient: false };
        // More than any pipe holds.
        pass.write(&mut writer, &vec![b'x'; 4 << 20]).unwrap();
        drop(writer);
        let passed = std::io::read_to_string(reader).unwrap().len();
        assert!((AT_ONCE_BYTES..4 << 20).contains(&passed), "{passed}");
    }

    /// Regression: a line without an end was matched again at each byte, up to a mebibyte.
    #[test]
    fn a_line_that_is_too_long_is_not_matched_again() {
        let mut stream = Stream::new(tempfile::tempfile().unwrap(), false).unwrap();
        let pattern = Regex::new("x$").unwrap();
        assert!(!stream.matches(&vec![b'y'; LINE_MOST_BYTES], Some(&pattern)));
        assert!(!stream.matches(b"x", Some(&pattern)));
        assert_eq!(stream.line.len(), LINE_MOST_BYTES);
        assert!(!stream.matches(b"x\n", Some(&pattern)) && stream.matches(b"x\n", Some(&pattern)));
    }

    #[test]
    fn patterns_have_classes_and_match_any_bytes() {
        let is_match = |pattern: &str, line: &[u8]| {
            let mut stream = Stream::new(tempfile::tempfile().unwrap(), false).unwrap();
            stream.matches(line, Some(&Regex::new(pattern).unwrap()))
        };
        assert!(is_match(r"^ready in \d+\s?ms$", b"ready in 12 ms\n"));
        assert!(is_match("caf\u{e9}.$", b"caf\xc3\xa9\xff\n"));
        assert!(is_match("(?i)READY", b"ready"));
        assert!(Regex::new("(").is_err());
    }

    #[test]
    fn lines_are_matched_whole_across_reads() {
        let mut stream = Stream::new(tempfile::tempfile().unwrap(), false).unwrap();
        let pattern = Regex::new("^started$").unwrap();
        assert!(!stream.matches(b"x\nstar", Some(&pattern)));
        assert!(stream.matches(b"ted\n", Some(&pattern)));
        assert!(!stream.matches(b"not started\n", Some(&pattern)));
        stream.pipe.write_all(b"started").unwrap();
        stream.pipe.seek(SeekFrom::Start(0)).unwrap();
        assert!(matches!(stream.read(Some(&pattern), None).unwrap(), LineSeen::Match));
    }
}

//! Lines for standard output, written by a thread: a reader of the output that pauses stops neither acts nor signals.

use rustix::process::{Signal, getpid, kill_process};
use std::io::{ErrorKind, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Lines that wait for the reader of the output; more are dropped and counted.
const MOST_WAITING: usize = 4096;

/// The thread that writes lines. Dropping it waits until all are written.
#[derive(Debug)]
pub(super) struct Lines {
    sender: Option<SyncSender<String>>,
    writer: Option<JoinHandle<()>>,
    dropped: u64,
}

impl Lines {
    pub(super) fn start(output: impl Write + Send + 'static) -> Lines {
        let (sender, lines) = sync_channel(MOST_WAITING);
        let writer = thread::spawn(move || write(output, &lines));
        Lines { sender: Some(sender), writer: Some(writer), dropped: 0 }
    }

    /// Writes a line soon; never waits.
    pub(super) fn put(&mut self, line: String) {
        let is_taken = self.sender.as_ref().is_some_and(|sender| sender.try_send(line).is_ok());
        self.dropped += u64::from(!is_taken);
    }

    /// Writes the last line, and waits for the reader. Returns how many lines were dropped.
    pub(super) fn end(self, line: String) -> u64 {
        if let Some(sender) = &self.sender {
            let _ = sender.send(line);
        }
        self.dropped
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Without a reader of the output the steering ends, as by a signal: `ahead steer | head`.
fn write(mut output: impl Write, lines: &Receiver<String>) {
    let mut has_reader = true;
    for line in lines {
        let written = if has_reader { writeln!(output, "{line}").and_then(|()| output.flush()) } else { Ok(()) };
        if written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            has_reader = false;
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Regression: `ahead steer | less` ended neither by SIGTERM nor with its duration while the pager waited.
    #[test]
    fn reader_that_pauses_costs_lines_and_no_time() {
        let (mut reader, output) = std::io::pipe().unwrap();
        let mut lines = Lines::start(output);
        let long = "x".repeat(1000);
        // More than fits into the pipe and the queue.
        (0..2 * MOST_WAITING).for_each(|_| lines.put(long.clone()));
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        let dropped = lines.end("the end".into()) as usize;
        let text = reading.join().unwrap().unwrap();
        assert!(dropped > 0 && text.ends_with("\nthe end\n"), "{dropped}");
        assert_eq!(text.lines().count(), 2 * MOST_WAITING - dropped + 1);
    }
}

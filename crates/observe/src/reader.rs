//! Threads that read events until the end of an observation.

use crate::objects::{bpf_error, map};
use ahead_sys::{Error, Result, daemon};
use libbpf_rs::{MapCore, MapHandle, Object, RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

/// The ring buffer of an object.
pub(crate) fn events(object: &Object, name: &str) -> Result<MapHandle> {
    MapHandle::try_from(&map(object, name)?).map_err(|e| bpf_error("open the ring buffer", e))
}

/// Gives `take` the events of a ring buffer, whenever it is consumed.
pub(crate) fn consumer<'a>(events: &dyn MapCore, mut take: impl FnMut(&[u8]) + 'a) -> Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    let callback = move |bytes: &[u8]| {
        take(bytes);
        0
    };
    builder.add(events, callback).map_err(|e| bpf_error("open the ring buffer", e))?;
    builder.build().map_err(|e| bpf_error("map the ring buffer", e))
}

/// A thread that reads events. Dropping it ends it, too: what it has opened is closed then.
#[derive(Debug)]
pub(crate) struct EventReader<T> {
    /// The thread ends when the descriptor is closed.
    running: Option<(OwnedFd, JoinHandle<Result<T>>)>,
}

impl<T: Send + 'static> EventReader<T> {
    /// Starts a thread that reads until the descriptor that it gets becomes readable.
    pub(crate) fn start(
        name: &str,
        read: impl FnOnce(&OwnedFd) -> Result<T> + Send + 'static,
    ) -> Result<EventReader<T>> {
        let (stopped, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| Error::io("pipe", e))?;
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || read(&stopped));
        Ok(EventReader { running: Some((stop, thread.map_err(|e| Error::io("start a thread", e))?)) })
    }

    /// Lets the thread read the remaining events, and returns what it has made of all.
    pub(crate) fn finish(mut self) -> Result<T> {
        self.end().unwrap_or_else(|| Err(panicked()))
    }
}

impl<T> EventReader<T> {
    fn end(&mut self) -> Option<Result<T>> {
        let (stop, thread) = self.running.take()?;
        drop(stop);
        Some(thread.join().unwrap_or_else(|_| Err(panicked())))
    }
}

impl<T> Drop for EventReader<T> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            tracing::debug!("{error}");
        }
    }
}

fn panicked() -> Error {
    Error::io("observe", std::io::Error::other("the reader thread panicked"))
}

/// Raises the priority of the calling thread, a reader. The mount table of another namespace must be opened before the last program in it
/// ends. The buffer must be read before it is full. Both must succeed on a busy machine.
///
/// The cost: each time the thread wakes, it processes the waiting events (megabytes, a sixteenth of the ring buffer or more)
/// before any ordinary thread runs. The thread that answers reads of an emulated disk has the same priority, and may wait for a
/// processor as long. Therefore `compare` times no run that is observed.
pub(crate) fn raise_priority() {
    if let Err(error) = daemon::set_fifo().or_else(|_| daemon::set_nice()) {
        tracing::debug!("observing with ordinary priority: {error}");
    }
}

/// Gives `take` all events until the other end of `stopped` is closed and the buffer is empty.
pub(crate) fn read_all(events: &MapHandle, stopped: &OwnedFd, take: impl FnMut(&[u8])) -> Result<()> {
    let ring = consumer(events, take)?;
    let mut is_over = false;
    while !is_over {
        let mut ready = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io("poll", e)),
        }
        is_over = !ready[1].revents().is_empty();
        ring.consume().map_err(|e| bpf_error("read the ring buffer", e))?;
    }
    Ok(())
}

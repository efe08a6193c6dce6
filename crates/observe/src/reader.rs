//! Threads that read events until the end of an observation.

use crate::objects::{bpf_error, map};
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{Error, Result, daemon};
use libbpf_rs::{MapCore, MapHandle, Object, RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
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

/// Events of a ring buffer, decoded when its owner asks for them.
pub(crate) struct EventStream<T> {
    // Before the map that it reads.
    ring: RingBuffer<'static>,
    map: MapHandle,
    /// Filled by the callback of `ring`.
    taken: Arc<Mutex<Taken<T>>>,
}

#[derive(Debug)]
struct Taken<T> {
    events: Vec<T>,
    undecodable: u64,
}

impl<T: Send + 'static> EventStream<T> {
    pub(crate) fn new(map: MapHandle, decode: impl Fn(&[u8]) -> Option<T> + Send + 'static) -> Result<EventStream<T>> {
        let taken = Arc::new(Mutex::new(Taken { events: Vec::new(), undecodable: 0 }));
        let filled = Arc::clone(&taken);
        let ring = consumer(&map, move |bytes| {
            let mut taken = filled.lock().ignore_poison();
            match decode(bytes) {
                Some(event) => taken.events.push(event),
                None => taken.undecodable += 1,
            }
        })?;
        Ok(EventStream { ring, map, taken })
    }

    /// Calls `each` with the events that wait, at most `most` of them: what arrives meanwhile must not keep the caller from its other
    /// work. Returns their number; never blocks. The stream stays readable while events wait.
    pub(crate) fn take(&mut self, most: usize, mut each: impl FnMut(&T)) -> Result<usize> {
        let consumed = self.ring.consume_raw_n(most);
        if consumed < 0 {
            return Err(Error::io("read the ring buffer", std::io::Error::from_raw_os_error(-consumed)));
        }
        let events = std::mem::take(&mut self.taken.lock().ignore_poison().events);
        events.iter().for_each(&mut each);
        let number = events.len();
        // The allocation is kept for the next time.
        let mut taken = self.taken.lock().ignore_poison();
        taken.events = events;
        taken.events.clear();
        Ok(number)
    }

    pub(crate) fn undecodable(&self) -> u64 {
        self.taken.lock().ignore_poison().undecodable
    }
}

impl<T> AsFd for EventStream<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl<T> fmt::Debug for EventStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("map", &self.map).finish_non_exhaustive()
    }
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

//! Direct reads in flight: in an io_uring of the reader, or in the threads of the process where io_uring is refused.

use crate::before_request;
use crate::lanes::RUNNING;
use crate::workers::Workers;
use ahead_model::DeviceNumber;
use ahead_sys::cache;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::ring::{Completion, Ring};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Reads of one reader in flight: 16 MiB, the largest distance, in the smallest chunks of a reader that waits are more; devices gain little from
/// more than 32.
const RING_DEPTH: u32 = 32;

/// Reads of one reader in flight in threads: as many as run for one device, twice.
const THREAD_DEPTH: usize = 2 * RUNNING;

#[derive(Debug)]
enum Executor {
    NotStarted,
    Ring(Box<Ring>),
    Threads(ThreadReads),
}

/// The reads of one reader.
#[derive(Debug)]
pub struct DirectReads {
    device: DeviceNumber,
    executor: Executor,
    may_use_io_uring: bool,
    /// Reads of a ring that the kernel has refused since.
    lost: Vec<u64>,
}

impl DirectReads {
    /// No reads yet, of files of this device. A ring is set up at the first read.
    pub fn new(device: DeviceNumber, may_use_io_uring: bool) -> DirectReads {
        DirectReads { device, executor: Executor::NotStarted, may_use_io_uring, lost: Vec::new() }
    }

    /// Whether another read can be started.
    pub fn has_room(&self) -> bool {
        match &self.executor {
            Executor::NotStarted => true,
            Executor::Ring(ring) => ring.has_room(),
            Executor::Threads(reads) => reads.in_flight < THREAD_DEPTH,
        }
    }

    /// The same for a read that the reader does not wait for: others go before it.
    pub fn has_room_ahead(&self) -> bool {
        self.has_room() && !before_request::is_paused(self.device)
    }

    /// Starts a read. Returns the buffer if there is no room.
    pub fn start(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        length: usize,
        buffer: AlignedBuffer,
        token: u64,
    ) -> Result<(), AlignedBuffer> {
        if matches!(self.executor, Executor::NotStarted) {
            self.executor = executor(self.device, self.may_use_io_uring);
        }
        let mut buffer = buffer;
        if let Executor::Ring(ring) = &mut self.executor {
            match ring.read(file, offset, length, buffer, token) {
                Ok(()) => return Ok(()),
                Err((given, None)) => return Err(given),
                Err((mut given, Some(error))) => {
                    self.give_up_ring(&error);
                    if given.bytes().len() < length {
                        // There was no memory for another buffer: it fails with the others.
                        return Ok(());
                    }
                    buffer = given;
                    self.lost.retain(|lost| *lost != token);
                }
            }
        }
        match &mut self.executor {
            Executor::Threads(reads) if reads.in_flight < THREAD_DEPTH => {
                reads.start(file.clone(), offset, length, buffer, token);
                Ok(())
            }
            _ => Err(buffer),
        }
    }

    /// Takes completed reads. `waits`: at least one, if any is in flight.
    pub fn completed(&mut self, waits: bool) -> Vec<Completion> {
        let mut done = Vec::new();
        match &mut self.executor {
            Executor::NotStarted => {}
            Executor::Ring(ring) if waits => match ring.wait() {
                Ok(completions) => done = completions,
                Err(error) => self.give_up_ring(&error),
            },
            Executor::Ring(ring) => done = ring.completions(),
            Executor::Threads(reads) => done = reads.completed(waits && self.lost.is_empty()),
        }
        let lost =
            |token| Completion { token, result: Err(io::ErrorKind::Other.into()), buffer: AlignedBuffer::empty() };
        done.extend(self.lost.drain(..).map(lost));
        done
    }

    /// The kernel refuses a ring that exists: the process has forbidden io_uring to itself (seccomp). Threads read from now on, and what was in
    /// flight has failed.
    fn give_up_ring(&mut self, error: &ahead_sys::Error) {
        tracing::debug!("no io_uring any more: {error}");
        if let Executor::Ring(ring) = &self.executor {
            self.lost.extend(ring.tokens());
        }
        self.executor = Executor::Threads(ThreadReads::new(self.device));
    }

    /// In a child of fork(2): the reads are the parent's.
    pub fn forget(&mut self) {
        self.lost.clear();
        if let Executor::Threads(reads) = std::mem::replace(&mut self.executor, Executor::NotStarted) {
            // Its locks may be held by threads that do not exist in this process.
            std::mem::forget(reads);
        }
    }
}

fn executor(device: DeviceNumber, may_use_io_uring: bool) -> Executor {
    let ring = may_use_io_uring.then(|| Ring::new(RING_DEPTH));
    match ring {
        Some(Ok(mut ring)) => {
            // FUSE, network; also btrfs, to which it costs microseconds.
            if device.is_anonymous() {
                ring.use_threads();
            }
            Executor::Ring(Box::new(ring))
        }
        refused => {
            if let Some(Err(error)) = refused {
                tracing::debug!("{error}");
            }
            Executor::Threads(ThreadReads::new(device))
        }
    }
}

/// Reads in threads of the pool.
#[derive(Debug)]
struct ThreadReads {
    device: DeviceNumber,
    sender: Sender<Completion>,
    receiver: Receiver<Completion>,
    in_flight: usize,
    /// The reader is gone: reads that have not begun are not made.
    is_cancelled: Arc<AtomicBool>,
}

impl ThreadReads {
    fn new(device: DeviceNumber) -> ThreadReads {
        let (sender, receiver) = channel();
        ThreadReads { device, sender, receiver, in_flight: 0, is_cancelled: Arc::default() }
    }

    fn start(&mut self, file: Arc<File>, offset: u64, length: usize, mut buffer: AlignedBuffer, token: u64) {
        let (sender, is_cancelled) = (self.sender.clone(), self.is_cancelled.clone());
        self.in_flight += 1;
        let read = move || {
            if is_cancelled.load(Ordering::Relaxed) {
                return;
            }
            let bytes = &mut buffer.bytes()[..length];
            let result = cache::read_waiting(&file, bytes, offset);
            // An error: the reader is gone.
            let _ = sender.send(Completion { token, result, buffer });
        };
        Workers::global().run_or_perform(self.device, RUNNING, Box::new(read));
    }

    fn completed(&mut self, waits: bool) -> Vec<Completion> {
        let mut done = Vec::new();
        if waits && self.in_flight > 0 {
            done.extend(self.receiver.recv());
        }
        done.extend(self.receiver.try_iter());
        self.in_flight -= done.len();
        done
    }
}

impl Drop for ThreadReads {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}

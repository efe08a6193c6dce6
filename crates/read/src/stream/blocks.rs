//! A file as a sequence of owned blocks: an iterator, and a stream for asynchronous programs.
//!
//! ```text
//!     Iterator   the caller's thread reads each block
//!     Stream     a thread reads, from the first poll on ──▶ at most 4 blocks ──▶ poll_next
//!     Block      returns its memory to the blocks that follow when it is dropped
//! ```
//!
//! A block has the bytes of the time at which it was read: by the iterator when it is asked for, for a stream up to four blocks earlier. Comparing
//! the file at each poll could block the poll.

use crate::stream::queue::Queue;
use crate::stream::reader::{Origin, Reader};
use ahead_fetch::Share;
use ahead_sys::background;
use ahead_sys::fork_count::fork_count;
use ahead_sys::reserve::zeroed;
use futures_core::Stream;
use std::io::{self, Read};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// Blocks that the thread of a stream reads ahead of the program, if the budget permits. The reader itself reads further ahead.
const BLOCKS_AHEAD: u64 = 4;

/// Free memory that is kept, in blocks: those ahead, and one that the program uses.
const KEPT_BLOCKS: usize = BLOCKS_AHEAD as usize + 1;

/// Memory of dropped blocks. A lock that is held is not waited for: in a child of fork(2) it may be held permanently.
type Free = Arc<Mutex<Vec<Vec<u8>>>>;

/// A part of a file.
#[derive(Debug)]
pub struct Block {
    memory: Vec<u8>,
    length: usize,
    offset_bytes: u64,
    free: Free,
}

impl Block {
    /// Offset of its first byte in the file, bytes.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Ok(mut free) = self.free.try_lock()
            && free.len() < KEPT_BLOCKS
        {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}

/// Reads blocks with one reader.
#[derive(Debug)]
struct Filler {
    reader: Reader,
    block_bytes: usize,
    free: Free,
}

impl Filler {
    /// The next block; `None`: the file ends. Bytes before an error are a separate block.
    fn next(&mut self) -> Option<io::Result<Block>> {
        let offset_bytes = self.reader.position();
        let kept = self.free.try_lock().ok().and_then(|mut free| free.pop());
        let mut memory = match kept.map_or_else(|| zeroed(self.block_bytes), Ok) {
            Ok(memory) => memory,
            Err(error) => return Some(Err(error)),
        };
        let mut length = 0;
        while length < memory.len() {
            match self.reader.read(&mut memory[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if length == 0 => return Some(Err(error)),
                Err(_) => break,
            }
        }
        (length > 0).then(|| Ok(Block { memory, length, offset_bytes, free: self.free.clone() }))
    }
}

/// The thread of a stream.
#[derive(Debug)]
struct Worker {
    queue: Arc<Queue<io::Result<Block>>>,
    fork: u32,
}

impl Worker {
    fn start(mut filler: Filler) -> io::Result<Worker> {
        /// Closes the queue, however the thread ends.
        struct Closing(Arc<Queue<io::Result<Block>>>);
        impl Drop for Closing {
            fn drop(&mut self) {
                self.0.close();
            }
        }
        let queue = Arc::new(Queue::new());
        let closing = Closing(queue.clone());
        let block_bytes = filler.block_bytes as u64;
        background::spawn("ahead-blocks", move || {
            let share: Share = filler.reader.origin().options.budget.register();
            while let Some(item) = filler.next() {
                let is_last = item.is_err();
                let limit = (share.limit_bytes() / block_bytes).clamp(1, BLOCKS_AHEAD) as usize;
                if closing.0.push(item, limit).is_err() || is_last {
                    break;
                }
            }
        })?;
        Ok(Worker { queue, fork: fork_count() })
    }
}

/// How the next block is found.
#[derive(Debug)]
enum Mode {
    Inline(Box<Filler>),
    Worker(Worker),
    Ended,
}

/// The blocks of a file, in order. After an error there are no more.
#[derive(Debug)]
pub struct Blocks {
    mode: Mode,
    origin: Origin,
    free: Free,
    block_bytes: usize,
    /// The offset of the next block.
    position: u64,
}

impl Reader {
    /// Reads the file from the position on as an iterator, or a stream, of blocks of this length, at least one byte. The last one is shorter.
    pub fn into_blocks(self, block_bytes: usize) -> Blocks {
        Blocks::new(self, block_bytes)
    }
}

impl Blocks {
    pub(crate) fn new(reader: Reader, block_bytes: usize) -> Blocks {
        let (block_bytes, free) = (block_bytes.max(1), Free::default());
        let (origin, position) = (reader.origin(), reader.position());
        let mode = Mode::Inline(Box::new(Filler { reader, block_bytes, free: free.clone() }));
        Blocks { mode, origin, free, block_bytes, position }
    }

    /// Reads on in this thread, from the next block on.
    fn restart(&mut self) -> io::Result<()> {
        let filler = Filler {
            reader: self.origin.clone().reader(Some(self.position))?,
            block_bytes: self.block_bytes,
            free: self.free.clone(),
        };
        self.mode = Mode::Inline(Box::new(filler));
        Ok(())
    }

    /// In a child of fork(2) the thread does not exist.
    fn after_fork(&mut self) -> io::Result<()> {
        if let Mode::Worker(worker) = &self.mode
            && worker.fork != fork_count()
        {
            std::mem::forget(std::mem::replace(&mut self.mode, Mode::Ended));
            self.free = Free::default();
            self.restart()?;
        }
        Ok(())
    }

    /// Starts the thread. If there are too many, this thread reads.
    fn start(&mut self) -> io::Result<()> {
        if matches!(self.mode, Mode::Inline(_))
            && let Mode::Inline(filler) = std::mem::replace(&mut self.mode, Mode::Ended)
        {
            match Worker::start(*filler) {
                Ok(worker) => self.mode = Mode::Worker(worker),
                Err(error) => {
                    tracing::debug!("no thread for a stream: {error}");
                    self.restart()?;
                }
            }
        }
        Ok(())
    }

    /// Notes what the program receives.
    fn deliver(&mut self, item: Option<io::Result<Block>>) -> Option<io::Result<Block>> {
        match &item {
            Some(Ok(block)) => self.position = block.offset_bytes + block.length as u64,
            Some(Err(_)) | None => self.mode = Mode::Ended,
        }
        item
    }
}

impl Iterator for Blocks {
    type Item = io::Result<Block>;

    fn next(&mut self) -> Option<io::Result<Block>> {
        let item = match self.after_fork() {
            Err(error) => Some(Err(error)),
            Ok(()) => match &mut self.mode {
                Mode::Inline(filler) => filler.next(),
                Mode::Worker(worker) => worker.queue.pop(),
                Mode::Ended => None,
            },
        };
        self.deliver(item)
    }
}

impl Stream for Blocks {
    type Item = io::Result<Block>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Block>>> {
        let blocks = &mut *self;
        if let Err(error) = blocks.after_fork().and_then(|()| blocks.start()) {
            return Poll::Ready(blocks.deliver(Some(Err(error))));
        }
        match &mut blocks.mode {
            Mode::Worker(worker) => match worker.queue.poll_pop(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(item) => Poll::Ready(blocks.deliver(item)),
            },
            _ => Poll::Ready(blocks.next()),
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.mode, Mode::Ended) {
            Mode::Worker(worker) if worker.fork == fork_count() => worker.queue.close(),
            // The parent's queue may be locked permanently.
            Mode::Worker(worker) => std::mem::forget(worker),
            Mode::Inline(_) | Mode::Ended => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::ReaderOptions;
    use crate::stream::testing::{DirectoryFile, cold_file, content, file_with};
    use ahead_sys::fork::run_in_child;
    use std::task::Wake;
    use std::thread::{self, Thread};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// The next item of a stream; this thread sleeps until it is woken.
    fn wait_for(blocks: &mut Blocks) -> Option<io::Result<Block>> {
        let waker = Arc::new(Unpark(thread::current())).into();
        loop {
            match Pin::new(&mut *blocks).poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(item) => return item,
                Poll::Pending => thread::park(),
            }
        }
    }

    fn blocks(file: &DirectoryFile, block_bytes: usize) -> Blocks {
        Reader::new(file.file.reopen().unwrap()).unwrap().into_blocks(block_bytes)
    }

    /// Checks the order and the content, and returns the number of blocks.
    fn check(content: &[u8], blocks: impl Iterator<Item = Block>) -> usize {
        let (mut at, mut count) = (0, 0);
        for block in blocks {
            assert_eq!(block.offset_bytes(), at as u64);
            assert!(block[..] == content[at..at + block.len()]);
            (at, count) = (at + block.len(), count + 1);
        }
        assert_eq!(at, content.len());
        count
    }

    #[test]
    fn iterator_and_stream_have_the_same_blocks() {
        let Some(file) = cold_file((3 << 20) + 5) else { return };
        assert_eq!(check(&file.content, blocks(&file, 1 << 20).map(Result::unwrap)), 4);
        let mut stream = blocks(&file, 70_000);
        let items = std::iter::from_fn(|| wait_for(&mut stream)).map(Result::unwrap);
        assert_eq!(check(&file.content, items), 45);
        assert!(wait_for(&mut stream).is_none() && stream.next().is_none());
    }

    #[test]
    fn stream_continues_as_an_iterator_and_in_a_child() {
        let file = file_with(content(1 << 20));
        let mut stream = blocks(&file, 10_000);
        let first = wait_for(&mut stream).unwrap().unwrap();
        let second = stream.next().unwrap().unwrap();
        assert_eq!((first.offset_bytes(), second.offset_bytes(), first.len()), (0, 10_000, 10_000));
        let mut stream = Some(stream);
        let status = run_in_child(|| {
            let mut stream = stream.take().unwrap();
            let third = stream.next().unwrap().unwrap();
            assert_eq!(third.offset_bytes(), 20_000);
            let fourth = wait_for(&mut stream).unwrap().unwrap();
            assert!(fourth[..] == file.content[30_000..40_000]);
        });
        assert_eq!(status.unwrap(), 0);
        let rest = stream.take().unwrap().map(Result::unwrap).map(|block| block.len()).sum::<usize>();
        assert_eq!(rest, (1 << 20) - 20_000);
    }

    #[test]
    fn blocks_outlive_their_sequence_and_the_thread_ends() {
        for taken in 0..8 {
            let file = file_with(content(1 << 20));
            let options = ReaderOptions { budget: crate::stream::Budget::new(100_000), ..ReaderOptions::default() };
            let reader = Reader::with_options(file.file.reopen().unwrap(), options).unwrap();
            let mut stream = reader.into_blocks(65_536);
            let kept: Vec<Block> = (0..taken).map(|_| wait_for(&mut stream).unwrap().unwrap()).collect();
            drop(stream);
            for block in kept {
                assert!(block[..] == file.content[block.offset_bytes() as usize..][..65_536]);
            }
        }
    }

    #[test]
    fn error_ends_the_blocks() {
        let directory = std::fs::File::open(".").unwrap();
        let mut blocks = Reader::new(directory).unwrap().into_blocks(0);
        assert!(blocks.next().unwrap().is_err() && blocks.next().is_none());
        let mut stream = Reader::new(std::fs::File::open(".").unwrap()).unwrap().into_blocks(5);
        assert!(wait_for(&mut stream).unwrap().is_err() && wait_for(&mut stream).is_none());
    }
}

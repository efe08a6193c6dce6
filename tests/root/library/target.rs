//! Cold files on an emulated disk, and readers of them.

use ahead::{Block, Blocks, Budget, Reader, ReaderOptions};
use ahead_disk::{Client, DiskInfo};
use ahead_sys::fork::run_in_child;
use ahead_sys::{fiemap, seccomp};
use ahead_tests::rig::emulated;
pub use ahead_tests::rig::mounted::{KIB, MIB, PAGE};
use ahead_tests::rig::prelude::*;
pub use ahead_tests::rig::silent_files::content;
use futures_core::Stream;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

/// `EIO` and `EMFILE` of errno(3).
pub const EIO: i32 = 5;
pub const EMFILE: i32 = 24;

/// Runs the work in a child made by fork(2). It has copies of all descriptors: only in a test that holds the machine alone.
pub fn in_child(what: &str, work: impl FnOnce()) {
    let status = run_in_child(|| {
        // The test harness keeps the messages of this thread, and the child ends without showing them.
        std::panic::set_hook(Box::new(|panic| {
            let _ = rustix::io::write(io::stderr(), format!("in a child: {panic}\n").as_bytes());
        }));
        work();
    });
    assert_eq!(status.unwrap(), 0, "{what}: status of the child, or its signal negated");
}

/// How a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    PageCache,
    Direct,
}

pub const WAYS: [Way; 2] = [Way::PageCache, Way::Direct];

impl Way {
    pub fn options(self, budget: &Budget) -> ReaderOptions {
        ReaderOptions::default().budget(budget.clone()).direct(self == Way::Direct)
    }

    /// A reader with the usual budget.
    pub fn open(self, path: &Path) -> Reader {
        self.open_within(path, &Budget::new(64 * MIB))
    }

    pub fn open_within(self, path: &Path, budget: &Budget) -> Reader {
        let reader = Reader::open_with(path, self.options(budget)).unwrap();
        assert_eq!(reader.counters().is_direct, self == Way::Direct, "ext4 has direct reads");
        reader
    }
}

/// Runs the work with requests by io_uring, and in a child of this process with requests by threads.
pub fn by_each_transport(work: impl Fn()) {
    work();
    in_child("without io_uring", || {
        seccomp::forbid_io_uring().unwrap();
        work();
    });
}

/// The same for each way of reading.
pub fn in_each_way(work: impl Fn(Way)) {
    by_each_transport(|| WAYS.into_iter().for_each(&work));
}

/// An emulated disk with a file system. It is unmounted and detached on drop, also after a panic.
pub struct Target {
    pub root: PathBuf,
    disk: DiskInfo,
    disks: Disks,
}

impl Target {
    /// `None`, with the reason printed, where disks cannot be emulated.
    pub fn new(what: &str) -> Option<Target> {
        Target::on(Disks::new()?, what)
    }

    /// The same for a test that forks: its children hold the descriptors of all other tests.
    pub fn alone(what: &str) -> Option<Target> {
        Target::on(Disks::alone()?, what)
    }

    fn on(mut disks: Disks, what: &str) -> Option<Target> {
        let (disk, root) = disks.mounted(what, &["--size", "128M", "--model", "nvme", "--fs", "ext4"]);
        Some(Target { root, disk, disks })
    }

    /// The mount point of another disk, with an access time of 1 ms and no faults.
    pub fn other_disk(&mut self, what: &str) -> PathBuf {
        self.disks.mounted(what, &["--size", "128M", "--model", "cloud", "--fs", "ext4"]).1
    }

    /// A file without resident pages, whose pages differ.
    pub fn cold_file(&self, name: &str, bytes: u64) -> ColdFile {
        let path = self.root.join(name);
        let content = content(bytes);
        fs::write(&path, &content).unwrap();
        let file = ColdFile { path, content };
        file.make_cold();
        // Direct reads are not made ahead of a file that was written within the last ticks of the clock, or seconds if its times have no more.
        let metadata = fs::metadata(&file.path).unwrap();
        let least = if metadata.ctime_nsec() == 0 { Duration::from_secs(3) } else { Duration::from_millis(20) };
        wait_until("the write is old enough", || {
            metadata.modified().unwrap().elapsed().is_ok_and(|age| age > 2 * least)
        });
        file
    }

    /// Lets reads of these bytes of a file fail, until [`Target::heal`].
    pub fn fail(&self, file: &ColdFile, offset_bytes: u64, length_bytes: u64) {
        let opened = File::open(&file.path).unwrap();
        let extents = fiemap::extents(&opened, offset_bytes, length_bytes).unwrap();
        let extent = extents.iter().find(|extent| extent.logical_bytes + extent.length_bytes > offset_bytes).unwrap();
        assert!(extent.is_placed() && offset_bytes + length_bytes <= extent.logical_bytes + extent.length_bytes);
        let on_disk = extent.physical_bytes + (offset_bytes - extent.logical_bytes);
        emulated::fail(&self.disk, on_disk, length_bytes);
    }

    /// Delays each answer of the disk.
    pub fn stall(&self, stall_ms: u64) {
        emulated::stall(&self.disk, stall_ms);
    }

    /// Ends the server of the disk, for good.
    pub fn vanish(&self) {
        emulated::kill_daemon(&self.disk);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        emulated::heal(&self.disk);
    }

    /// As `major:minor`.
    pub fn device_number(&self) -> String {
        self.disk.device_number.to_string()
    }

    /// Requests that the disk has failed so far.
    pub fn failed(&self) -> u64 {
        Client::new(&self.disk).stat().unwrap().failed
    }
}

/// A file and what it contains.
pub struct ColdFile {
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl ColdFile {
    /// Evicts all pages. Pages of the last writes are in lists of each processor for a moment.
    pub fn make_cold(&self) {
        make_cold(&self.path);
    }

    /// Evicts pages as far as other threads do not read them.
    pub fn cool(&self) {
        evict(&self.path);
    }

    pub fn len(&self) -> u64 {
        self.content.len() as u64
    }

    pub fn page(&self, number: u64) -> &[u8] {
        &self.content[(number * PAGE) as usize..][..PAGE as usize]
    }

    /// Reads on to the end of the file in steps of this many bytes, and checks all of them.
    pub fn read_rest(&self, reader: &mut Reader, step: u64) {
        let mut buffer = vec![0; step as usize];
        loop {
            let at = reader.position() as usize;
            let read = reader.read(&mut buffer).unwrap();
            assert!(buffer[..read] == self.content[at..at + read], "{read} bytes at {at}");
            if read == 0 {
                assert_eq!(at as u64, self.len(), "the end of the file");
                return;
            }
        }
    }
}

/// Whether this process has an open descriptor of a file.
pub fn is_open(path: &str) -> bool {
    process::open_descriptors(std::process::id()).iter().any(|open| open.to_string_lossy().starts_with(path))
}

/// Threads of this process with this name.
pub fn threads_named(name: &str) -> usize {
    let names = process::threads(std::process::id()).into_iter().map(|task| fs::read_to_string(task.join("comm")));
    names.filter(|found| found.as_ref().is_ok_and(|found| found.trim() == name)).count()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next item of the stream; this thread sleeps until it is woken.
pub fn next_of_stream(blocks: &mut Blocks) -> Option<io::Result<Block>> {
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        match Pin::new(&mut *blocks).poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(item) => return item,
            Poll::Pending => thread::park(),
        }
    }
}

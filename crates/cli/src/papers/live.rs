//! Papers against the real page cache: their workloads on an emulated disk with the scenario's model.
//!
//! ```text
//!     /dev/shm/ahead-papers-PID/       noted: after a SIGKILL `ahead restore` detaches the disk whose image lies here, and
//!     │                                removes it
//!     ├── disk.img                     behind the emulated disk
//!     └── mnt/                         a file for each stream; detached and attached again, so that nothing of it is cached
//! ```
//!
//! Each stream is a thread with an opening of its own; what it does is told by the very operations that the simulator runs.

use crate::disk;
use crate::exit::Stopped;
use ahead_disk::{Attach, Client, Create, DiskInfo, Faults, Filesystem, ModelSource};
use ahead_kernel::mapping::Mapping;
use ahead_kernel::process::Signals;
use ahead_kernel::undo::{self, Guard, ProcessId};
use ahead_kernel::{Error as KernelError, machine, usage};
use ahead_papers::{Asked, Live, LiveError, Observed};
use ahead_policy::{OpenId, PAGE_BYTES};
use ahead_sim::{Op, Scenario, Stream};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Images lie in memory: there dropping caches does not reach them.
const HOME: &str = "/dev/shm";
/// Room beside the files, bytes: the file system's own blocks and its journal.
const SPARE_BYTES: u64 = 192 << 20;
/// Smallest disk, bytes: on less than half a gigabyte mke2fs makes blocks of 1 KiB (mke2fs.conf, `small`).
const LEAST_BYTES: u64 = 1 << 30;
/// A file is written in pieces of this, bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The disk that is attached, and where its files lie.
struct Attached {
    info: DiskInfo,
    model: String,
    filesystem: &'static str,
}

/// Emulated disks, one after the other.
pub struct OnDisk {
    signals: Signals,
    directory: PathBuf,
    attached: RefCell<Option<Attached>>,
    /// After the disk: removes the directory.
    _directory: Guard,
}

impl OnDisk {
    /// Nothing is attached yet.
    ///
    /// Errors: not permitted here, with the remedy.
    pub fn new() -> anyhow::Result<OnDisk> {
        if !machine::is_root() {
            return Err(KernelError::needs_root("running papers against the real page cache").into());
        }
        let signals = Signals::take()?;
        let directory = Path::new(HOME).join(format!("ahead-papers-{}", std::process::id()));
        let guard = undo::create_tree(ProcessId::own()?, &directory)?;
        std::fs::create_dir(directory.join("mnt"))?;
        Ok(OnDisk { signals, directory, attached: RefCell::new(None), _directory: guard })
    }

    /// A signal that came while a workload ran ends everything afterwards.
    fn check_signal(&self) -> Result<(), LiveError> {
        match self.signals.poll() {
            Some(signal) if signal.asks_to_stop() => Err(Stopped(signal.number).into()),
            _ => Ok(()),
        }
    }

    /// A disk of this model, file system and size to write files to, made unless it is there already.
    fn make(&self, asked: &Asked, bytes: u64) -> Result<(), LiveError> {
        let (model, filesystem) = (asked.scenario.disk.model.to_toml(), asked.filesystem.name);
        let mut attached = self.attached.borrow_mut();
        if attached.as_ref().is_some_and(|there| {
            there.model == model && there.filesystem == filesystem && there.info.capacity_bytes >= bytes
        }) {
            return Ok(());
        }
        if let Some(there) = attached.take() {
            ahead_disk::detach(&there.info)?;
            std::fs::remove_file(&there.info.image)?;
        }
        let create =
            Create { attach: self.as_asked(asked), size_bytes: bytes, filesystem: Some(filesystem_of(filesystem)?) };
        let info = ahead_disk::create(&disk::launcher(), &create)?;
        *attached = Some(Attached { info, model, filesystem });
        Ok(())
    }

    fn as_asked(&self, asked: &Asked) -> Attach {
        let Scenario { disk, .. } = asked.scenario;
        Attach {
            image: self.directory.join("disk.img"),
            name: Some(format!("papers-{}", std::process::id())),
            model: ModelSource { name: disk.model.name().to_owned(), toml: Some(disk.model.to_toml()) },
            mount: Some(self.mount()),
            read_only: false,
            read_ahead_kb: disk.window_pages * PAGE_BYTES / 1024,
            preload: false,
            faults: Faults::default(),
        }
    }

    /// Whether the files lie in blocks of the size that was asked for.
    fn check_block_size(&self, asked: &Asked) -> Result<(), LiveError> {
        let block_bytes = rustix::fs::statvfs(self.mount())?.f_bsize;
        match block_bytes == asked.filesystem.block_bytes {
            true => Ok(()),
            false => {
                Err(format!("mkfs made blocks of {block_bytes} bytes, not {}", asked.filesystem.block_bytes).into())
            }
        }
    }

    fn mount(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// Detaches it and attaches it again: nothing of its files and of the file system's blocks is cached, and the drive has
    /// just been switched on.
    fn make_cold(&self, asked: &Asked) -> Result<(), LiveError> {
        let mut attached = self.attached.borrow_mut();
        let there = attached.as_mut().ok_or("no disk is attached")?;
        ahead_disk::detach(&there.info)?;
        match ahead_disk::attach(&disk::launcher(), &self.as_asked(asked)) {
            Ok(info) => there.info = info,
            Err(error) => {
                *attached = None;
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        if let Some(there) = self.attached.get_mut().take()
            && let Err(error) = ahead_disk::detach(&there.info)
        {
            let _ = writeln!(std::io::stderr(), "ahead: {error}; clean up with: ahead restore");
        }
    }
}

fn filesystem_of(name: &str) -> Result<Filesystem, LiveError> {
    Ok(match name {
        "ext2" => Filesystem::Ext2,
        "ext4" => Filesystem::Ext4,
        "xfs" => Filesystem::Xfs,
        other => return Err(format!("no paper's files lie on {other}").into()),
    })
}

impl Live for OnDisk {
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError> {
        self.check_signal()?;
        let streams: Vec<Stream> =
            asked.scenario.workloads.iter().flat_map(|workload| &workload.streams).copied().collect();
        let bytes: u64 = streams.iter().map(|stream| stream.file_pages * PAGE_BYTES).sum();
        let disk_bytes = (2 * bytes + SPARE_BYTES).next_multiple_of(PIECE_BYTES as u64).max(LEAST_BYTES);
        self.make(asked, disk_bytes)?;
        self.check_block_size(asked)?;
        let files: Vec<PathBuf> = (0..streams.len()).map(|number| self.mount().join(number.to_string())).collect();
        for (stream, path) in streams.iter().zip(&files) {
            write_file(path, stream.file_pages * PAGE_BYTES)?;
        }
        self.make_cold(asked)?;
        let observed = {
            let attached = self.attached.borrow();
            let there = attached.as_ref().ok_or("no disk is attached")?;
            run_streams(&there.info, &streams, &files, asked.each)
        };
        for path in &files {
            std::fs::remove_file(path)?;
        }
        self.check_signal()?;
        observed
    }
}

fn write_file(path: &Path, bytes: u64) -> Result<(), LiveError> {
    let mut file = File::create(path)?;
    let piece = vec![0xa5_u8; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..now as usize])?;
        left -= now;
    }
    Ok(file.sync_all()?)
}

/// Runs all streams at the same time, each in a thread.
fn run_streams(disk: &DiskInfo, streams: &[Stream], files: &[PathBuf], each: bool) -> Result<Observed, LiveError> {
    let client = Client::new(disk);
    client.reset()?;
    let (barrier, before) = (Barrier::new(streams.len() + 1), usage::own_cpu());
    let (elapsed, seen) = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .zip(files)
            .map(|(stream, path)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    Doer::new(path, stream, each).run(stream)
                })
            })
            .collect();
        barrier.wait();
        let began = Instant::now();
        let seen: Result<Vec<Seen>, LiveError> =
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a stream has panicked")?).collect();
        (began.elapsed(), seen)
    });
    let (seen, after, stat) = (seen?, usage::own_cpu(), client.stat()?);
    Ok(Observed {
        elapsed_ns: elapsed.as_nanos() as u64,
        user_ns: (after.user - before.user).as_nanos() as u64,
        system_ns: (after.system - before.system).as_nanos() as u64,
        read_bytes: seen.iter().map(|seen| seen.bytes).sum(),
        each_ns: seen.into_iter().flat_map(|seen| seen.each_ns).collect(),
        device_requests: stat.requests,
        device_bytes: stat.bytes,
    })
}

/// What a stream has seen.
#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    each_ns: Vec<u64>,
}

/// Does what a stream of the simulator does, on a real file.
struct Doer<'a> {
    path: &'a Path,
    opened: HashMap<OpenId, (File, Option<Mapping>)>,
    buffer: Vec<u8>,
    user_per_page_ns: f64,
    file_bytes: u64,
    each: bool,
    seen: Seen,
}

impl<'a> Doer<'a> {
    fn new(path: &'a Path, stream: &Stream, each: bool) -> Doer<'a> {
        Doer {
            path,
            opened: HashMap::new(),
            buffer: Vec::new(),
            user_per_page_ns: stream.user_per_page_ns,
            file_bytes: stream.file_pages * PAGE_BYTES,
            each,
            seen: Seen { bytes: 0, each_ns: room(if each { calls_of(stream) } else { 0 }) },
        }
    }

    fn run(mut self, stream: &Stream) -> Result<Seen, LiveError> {
        for op in stream.ops() {
            self.step(op)?;
        }
        Ok(self.seen)
    }

    fn step(&mut self, op: Op) -> Result<(), LiveError> {
        match op {
            Op::Open { open, .. } => {
                self.opened.insert(open, (File::open(self.path)?, None));
            }
            Op::Close { open } => {
                self.opened.remove(&open);
            }
            Op::Read { open, offset_bytes, length_bytes, .. } => {
                let began = Instant::now();
                self.read(open, offset_bytes, length_bytes)?;
                self.note(began, length_bytes);
            }
            Op::Touch { open, first, pages, .. } => {
                let began = Instant::now();
                self.touch(open, first, pages)?;
                self.note(began, pages * PAGE_BYTES);
            }
            Op::Compute { time_ns } => spin(time_ns),
            Op::Sleep { time_ns } => std::thread::sleep(Duration::from_nanos(time_ns)),
            other => return Err(format!("{other:?} is not run on a real disk").into()),
        }
        Ok(())
    }

    fn note(&mut self, began: Instant, bytes: u64) {
        self.seen.bytes += bytes;
        if self.each {
            self.seen.each_ns.push(began.elapsed().as_nanos() as u64);
        }
        spin((self.user_per_page_ns * bytes as f64 / PAGE_BYTES as f64) as u64);
    }

    fn opened(&mut self, open: OpenId) -> Result<&mut (File, Option<Mapping>), LiveError> {
        Ok(self.opened.get_mut(&open).ok_or("a file is used that was not opened")?)
    }

    fn read(&mut self, open: OpenId, offset_bytes: u64, length_bytes: u64) -> Result<(), LiveError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length_bytes as usize, 0);
        self.opened(open)?.0.read_exact_at(&mut buffer, offset_bytes)?;
        self.buffer = buffer;
        Ok(())
    }

    fn touch(&mut self, open: OpenId, first: u64, pages: u64) -> Result<(), LiveError> {
        let length = self.file_bytes as usize;
        let (file, mapping) = self.opened(open)?;
        let mapping = match mapping {
            Some(mapping) => mapping,
            None => mapping.insert(Mapping::new(&*file, length)?),
        };
        for page in first..first + pages {
            mapping.touch((page * PAGE_BYTES) as usize).ok_or("a page is touched that the file does not have")?;
        }
        Ok(())
    }
}

/// Most calls of a stream.
fn calls_of(stream: &Stream) -> usize {
    let calls_of_block =
        (stream.block_pages * PAGE_BYTES).div_ceil(stream.call_bytes.clamp(1, PAGE_BYTES * stream.block_pages));
    (stream.file_pages / stream.block_pages * calls_of_block * stream.passes) as usize
}

/// Room for so many times whose memory was touched already: a fault in it would look like a slow read.
fn room(count: usize) -> Vec<u64> {
    let mut room: Vec<u64> = (1..=count as u64).collect();
    room.clear();
    room
}

/// The program's own work.
fn spin(time_ns: u64) {
    let (began, time) = (Instant::now(), Duration::from_nanos(time_ns));
    while time_ns > 0 && began.elapsed() < time {
        std::hint::spin_loop();
    }
}

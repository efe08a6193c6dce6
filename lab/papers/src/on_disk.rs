//! Runs the workloads of papers against the real page cache, on an emulated disk with the scenario's model.
//!
//! ```text
//!     /dev/shm/ahead-papers-PID/       noted: after a SIGKILL `ahead restore` detaches the disk of this image, and removes the
//!     │                                directory
//!     ├── disk.img                     the image of the emulated disk
//!     └── mnt/                         a file for each stream; detached and attached again, so that no page is cached
//! ```
//!
//! Each stream is a thread that opens its file and runs the operations of the simulator.

mod calls;

use crate::{Asked, Live, LiveError, Observed, SystemCalls};
use ahead_disk::{DiskInfo, Faults, ModelSource};
use ahead_disk_server::{Attach, Create, Filesystem, Launcher};
use ahead_measure::bench::{Part, Work};
use ahead_policy::PAGE_BYTES;
use ahead_process::Signals;
use ahead_process::undo::{Guard, ProcessId};
use ahead_report::text::one_line;
use ahead_sim::{Scenario, Stream};
use ahead_sys::directory::HeldFile;
use ahead_sys::{Error as KernelError, machine};
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Images are in memory: a drop of caches does not affect them.
const HOME: &str = "/dev/shm";
/// Space besides the files, bytes: metadata and journal of the file system.
const SPARE_BYTES: u64 = 192 << 20;
/// Smallest disk, bytes: below half a gigabyte mke2fs makes blocks of 1 KiB (mke2fs.conf, `small`).
const MIN_DISK_BYTES: u64 = 1 << 30;
/// Size of a write, bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The attached disk.
struct Attached {
    info: DiskInfo,
    model: String,
    filesystem: &'static str,
}

/// Emulated disks, one at a time.
pub struct OnDisk {
    signals: Signals,
    directory: PathBuf,
    attached: RefCell<Option<Attached>>,
    launcher: Launcher,
    /// The model of the last warning about inaccurate times.
    warned: RefCell<Option<String>>,
    /// Removes the directory, after the drop of the disk.
    _directory: Guard,
}

impl OnDisk {
    /// Prepares a directory; no disk is attached yet. `launcher` starts the servers of disks.
    ///
    /// Errors: not root; the directory cannot be made.
    pub fn new(launcher: Launcher) -> Result<OnDisk, LiveError> {
        if !machine::is_root() {
            return Err(KernelError::needs_root("running papers against the real page cache").into());
        }
        let signals = Signals::take()?;
        let directory = Path::new(HOME).join(format!("ahead-papers-{}", std::process::id()));
        let guard = ahead_process::undo::create_tree(ProcessId::own()?, &directory)?;
        std::fs::create_dir(directory.join("mnt"))?;
        Ok(OnDisk {
            signals,
            directory,
            attached: RefCell::new(None),
            launcher,
            warned: RefCell::default(),
            _directory: guard,
        })
    }

    /// Returns an error after a stop signal.
    fn check_signal(&self) -> Result<(), LiveError> {
        match self.signals.poll() {
            Some(signal) if signal.asks_to_stop() => Err(ahead_disk::Error::Interrupted(signal.number).into()),
            _ => Ok(()),
        }
    }

    /// Makes a disk of this model, file system and size, unless it is attached already.
    fn make_disk(&self, asked: &Asked, bytes: u64) -> Result<(), LiveError> {
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
            Create { attach: self.attachment(asked), size_bytes: bytes, filesystem: Some(filesystem_of(filesystem)?) };
        let info = ahead_disk_server::create(&self.launcher, &create)?;
        *attached = Some(Attached { info, model, filesystem });
        Ok(())
    }

    fn attachment(&self, asked: &Asked) -> Attach {
        let Scenario { disk, .. } = asked.scenario;
        Attach {
            image: self.directory.join("disk.img"),
            name: Some(format!("papers-{}", std::process::id())),
            model: ModelSource { name: disk.model.name().to_owned(), toml: Some(disk.model.to_toml()) },
            mount: Some(self.mount()),
            read_only: false,
            read_ahead_kb: disk.window_pages * PAGE_BYTES / 1024,
            preload: false,
            write_log: None,
            faults: Faults::default(),
        }
    }

    /// Checks the block size of the file system.
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

    /// Warns that the times of a disk are not accurate: the machine is busy, or the model is too fast for it. The
    /// warning appears once for each model, because each run attaches the disk again.
    fn warn_if_inaccurate(&self, info: &DiskInfo) {
        let Some(why) = &info.beyond_rig_why else { return };
        if self.warned.replace(Some(info.model.name.clone())).as_ref() != Some(&info.model.name) {
            let warning =
                one_line(&format!("ahead: {}: {why}; live times are not those of the model", info.model.name));
            let _ = writeln!(std::io::stderr(), "{warning}");
        }
    }

    /// Detaches the disk and attaches it again. Then no page of its files and metadata is cached, and the drive has its
    /// state after power-on.
    fn make_cold(&self, asked: &Asked) -> Result<(), LiveError> {
        let mut attached = self.attached.borrow_mut();
        let there = attached.as_mut().ok_or("no disk is attached")?;
        ahead_disk::detach(&there.info)?;
        match ahead_disk_server::attach(&self.launcher, &self.attachment(asked)) {
            Ok(info) => {
                self.warn_if_inaccurate(&info);
                there.info = info;
            }
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
            let warning = one_line(&format!("ahead: {error}; clean up with: sudo ahead restore"));
            let _ = writeln!(std::io::stderr(), "{warning}");
        }
    }
}

fn filesystem_of(name: &str) -> Result<Filesystem, LiveError> {
    Ok(match name {
        "ext2" => Filesystem::Ext2,
        "ext4" => Filesystem::Ext4,
        "xfs" => Filesystem::Xfs,
        other => return Err(format!("no paper uses the file system {other}").into()),
    })
}

impl Live for OnDisk {
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError> {
        self.check_signal()?;
        let streams: Vec<Stream> =
            asked.scenario.workloads.iter().flat_map(|workload| &workload.streams).copied().collect();
        let bytes: u64 = streams.iter().map(|stream| stream.file_pages * PAGE_BYTES).sum();
        let disk_bytes = (2 * bytes + SPARE_BYTES).next_multiple_of(PIECE_BYTES as u64).max(MIN_DISK_BYTES);
        self.make_disk(asked, disk_bytes)?;
        self.check_block_size(asked)?;
        let files: Vec<PathBuf> = (0..streams.len()).map(|number| self.mount().join(number.to_string())).collect();
        for (stream, path) in streams.iter().zip(&files) {
            write_file(path, stream.file_pages * PAGE_BYTES)?;
        }
        self.make_cold(asked)?;
        let observed = {
            let held = files.iter().map(|path| HeldFile::open(path)).collect::<Result<Vec<_>, _>>()?;
            run_streams(&streams, &held, asked.each)
        };
        for path in &files {
            std::fs::remove_file(path)?;
        }
        self.check_signal()?;
        observed
    }

    fn system_calls(&self, scenario: &Scenario) -> Result<SystemCalls, LiveError> {
        calls::run(self, scenario)
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

/// Runs all streams at the same time, each one in a thread, under the kernel's read-ahead.
fn run_streams(streams: &[Stream], files: &[HeldFile], each: bool) -> Result<Observed, LiveError> {
    let part = |(file, stream): (usize, &Stream)| vec![Part { file, stream: *stream, work: Work::None }];
    let readers: Vec<Vec<Part>> = streams.iter().enumerate().map(part).collect();
    Ok(ahead_measure::bench::run_under_kernel(&readers, files, each)?)
}

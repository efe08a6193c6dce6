//! The regions that jobs read: files made for them, or, if writing is not possible, parts of the device.

use crate::bench::{Files, Method, Observed, ReadAhead, RunSettings, Variant, run};
use crate::tune::replay::{OpenRegion, ReplayResult, Task, replay};
use crate::tune::{Error, Result};
use ahead_disk::tune::backing;
use ahead_disk::tune::lower_cache::LowerCache;
use ahead_disk::tune::{System, Target};
use ahead_model::DeviceNumber;
use ahead_policy::{DeviceDescription, PAGE_BYTES};
use ahead_sys::directory::HeldFile;
use ahead_sys::{block, cache};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Alignment of the regions of a device, bytes.
const ALIGNED_BYTES: u64 = 1 << 20;
/// A mounted file system keeps blocks of its device in memory: at most one byte in this many of a region may stay cached.
const HELD_SHARE: u64 = 64;
/// Timeout and interval of attempts to evict, because the kernel reports no event.
const EVICT_TIMEOUT: Duration = Duration::from_secs(3);
const EVICT_INTERVAL: Duration = Duration::from_millis(5);

/// The place of a target's test regions.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In new files in this directory.
    Directory(PathBuf),
    /// On the device, which the measurement only reads.
    Device { path: PathBuf, size_bytes: u64 },
}

impl Source {
    /// The source of a target.
    ///
    /// Errors: the target has neither a directory nor a device.
    pub fn of(target: &Target) -> Result<Source> {
        match (&target.directory, &target.device) {
            (Some(directory), _) => Ok(Source::Directory(directory.clone())),
            (None, Some(path)) => {
                let size_bytes = block::size_bytes(block::device_number(path)?)?;
                Ok(Source::Device { path: path.clone(), size_bytes })
            }
            (None, None) => {
                let why = "it has no directory to write to and no device to read; give the window with --kb";
                Err(Error::unsupported(format!("measuring {}", target.name), why))
            }
        }
    }

    /// Free space for files, bytes.
    ///
    /// Errors: the directory is missing.
    pub fn room_bytes(&self) -> Result<u64> {
        match self {
            Source::Directory(directory) => {
                let room = rustix::fs::statvfs(directory);
                let room = room.map_err(|e| Error::io(format!("look at {}", directory.display()), e))?;
                Ok(room.f_bavail.saturating_mul(room.f_frsize))
            }
            Source::Device { size_bytes, .. } => Ok(*size_bytes),
        }
    }
}

/// Files or parts of a device, of given sizes. The files stay open: another user may own their directory, and replace them.
#[derive(Debug)]
pub(crate) struct TestRegions {
    regions: Vec<Region>,
    /// The first region, opened once: FUSE drops the cached pages of a file when the file is opened. Drop closes this file before the
    /// removal of the files, because FUSE and NFS keep files that are open.
    first: File,
    storage: Storage,
    below: LowerCache,
}

#[derive(Debug)]
enum Storage {
    Files(Box<Files>),
    Device(HeldFile),
}

/// A part of a file or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    file: usize,
    offset_bytes: u64,
    length_bytes: u64,
}

impl Storage {
    fn held(&self) -> &[HeldFile] {
        match self {
            Storage::Files(files) => files.held(),
            Storage::Device(device) => std::slice::from_ref(device),
        }
    }
}

impl TestRegions {
    /// Makes regions of these sizes.
    ///
    /// Errors: no space, no permission, a full or read-only file system; `stop` was set.
    pub fn make(source: &Source, sizes: &[u64], below: LowerCache, stop: &AtomicBool) -> Result<TestRegions> {
        let (regions, storage) = match source {
            Source::Directory(directory) => {
                let files = Files::make(directory, sizes, stop).map_err(|error| match error {
                    crate::bench::Error::NoRoom { path, free_bytes, needed_bytes } => {
                        Error::NoRoom { name: path.display().to_string(), free_bytes, needed_bytes }
                    }
                    other => other.into(),
                })?;
                let region = |(file, size): (usize, &u64)| Region { file, offset_bytes: 0, length_bytes: *size };
                (sizes.iter().enumerate().map(region).collect(), Storage::Files(Box::new(files)))
            }
            Source::Device { path, size_bytes } => {
                (device_regions(path, *size_bytes, sizes)?, Storage::Device(HeldFile::open(path)?))
            }
        };
        let empty = || Error::Workload("the workload reads nothing".into());
        let first = open_region(&storage, regions.first().ok_or_else(empty)?).open()?;
        Ok(TestRegions { regions, first, storage, below })
    }

    fn open_regions(&self) -> Vec<OpenRegion<'_>> {
        self.regions.iter().map(|region| open_region(&self.storage, region)).collect()
    }

    /// The number of the device whose window applies to the files, from the mount where they were made. `None`: the regions are parts of
    /// the device, or the mount is gone.
    pub fn device_number(&self, system: &System) -> Option<DeviceNumber> {
        match &self.storage {
            Storage::Files(files) => backing(system, files.mount()?),
            Storage::Device(_) => None,
        }
    }

    /// Runs a job once, cold.
    ///
    /// Errors: pages cannot be evicted; a read failed; `stop` was set.
    pub fn run(&self, variant: &Variant, each: bool, stop: &AtomicBool) -> Result<Observed> {
        self.make_cold()?;
        if let Storage::Files(files) = &self.storage {
            let read_ahead = ReadAhead { method: Method::Kernel, pages: None };
            let device = DeviceDescription::default();
            let settings = RunSettings {
                files,
                read_ahead: &read_ahead,
                device,
                warm: false,
                probes_cache: false,
                each,
                evicted: None,
                stop,
            };
            return run(variant, &settings).map_err(|error| match error {
                // A page of a mapping cannot be read.
                crate::bench::Error::Job(why) => {
                    let lost = std::io::Error::other(format!("{why}: the file is shorter now, or the disk failed"));
                    Error::io(format!("read in {}", files.directory().display()), lost)
                }
                other => other.into(),
            });
        }
        // Each reader has one part.
        let parts = variant.readers.iter().flatten();
        let tasks = parts.map(|part| Task { ops: part.stream.ops(), first: part.file }).collect();
        let result = replay(tasks, &self.open_regions(), each, stop)?;
        Ok(Observed {
            elapsed_ns: result.elapsed.as_nanos() as u64,
            read_bytes: result.read_bytes,
            latency_most_ns: result.latency_most.as_nanos() as u64,
            each_ns: result.each_ns,
            ..Observed::default()
        })
    }

    /// Repeats the operations of programs, cold.
    ///
    /// Errors: as [`TestRegions::run`].
    pub fn replay(&self, tasks: Vec<Task>, stop: &AtomicBool) -> Result<ReplayResult> {
        self.make_cold()?;
        replay(tasks, &self.open_regions(), false, stop)
    }

    /// Cached bytes of the first region.
    ///
    /// Errors: cachestat or mincore failed.
    pub fn cached_bytes(&self) -> Result<u64> {
        Ok(cached(&self.first, &self.regions[0])?)
    }

    /// Cached bytes of all regions.
    ///
    /// Errors: as [`TestRegions::cached_bytes`].
    pub fn cached_bytes_of_all(&self) -> Result<u64> {
        let of = |region: &Region| Ok(cached(&open_region(&self.storage, region).open()?, region)?);
        self.regions.iter().map(of).sum()
    }

    /// Measures the most bytes that are cached ahead of a stream. The stream reads `read_bytes` of the first region, cold, with calls of
    /// `call_bytes`, and ends early when nearly `max_bytes` are ahead. `None`: the read-ahead reached the end of the region.
    ///
    /// Errors: as [`TestRegions::run`].
    pub fn ahead_of_stream(
        &self,
        read_bytes: u64,
        call_bytes: u64,
        max_bytes: u64,
        stop: &AtomicBool,
    ) -> Result<Option<u64>> {
        self.make_cold()?;
        let region = open_region(&self.storage, &self.regions[0]);
        // Open the file again: for the kernel, reads through `first` would belong to the same stream.
        let (file, end) = (region.open()?, region.offset_bytes + region.length_bytes);
        let mut buffer = vec![0; call_bytes as usize];
        let (mut at, mut most) = (region.offset_bytes, 0);
        while at < (region.offset_bytes + read_bytes).min(end) && most + call_bytes < max_bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(crate::bench::Error::Stopped.into());
            }
            file.read_exact_at(&mut buffer, at)
                .map_err(|e| Error::io(format!("read {}", region.path().display()), e))?;
            at += call_bytes;
            most = most.max(cache::resident_bytes(&file, at, end.saturating_sub(at))?);
        }
        let is_at_end = cache::resident_bytes(&file, end - PAGE_BYTES, PAGE_BYTES)? > 0;
        Ok((!is_at_end).then_some(most))
    }

    /// Evicts all regions. Pages in the per-CPU list of another processor cannot be evicted for a moment, mostly soon after a write.
    fn make_cold(&self) -> Result<()> {
        let deadline = Instant::now() + EVICT_TIMEOUT;
        loop {
            let done = match &self.storage {
                Storage::Files(files) => files.make_cold(),
                Storage::Device(device) => self.evict_parts(device),
            };
            match done {
                Err(crate::bench::Error::NotCold { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(EVICT_INTERVAL)
                }
                done => break done?,
            }
        }
        Ok(self.below.evict()?)
    }

    fn evict_parts(&self, device: &HeldFile) -> crate::bench::Result<()> {
        // Files are flushed before this call; a device is never written.
        fadvise(&self.first, 0, None, Advice::DontNeed).map_err(|e| crate::bench::Error::io("evict a device", e))?;
        for region in &self.regions {
            let cached_bytes = cached(&self.first, region)?;
            if cached_bytes > region.length_bytes / HELD_SHARE {
                return Err(crate::bench::Error::NotCold { path: device.path().into(), cached_bytes });
            }
        }
        Ok(())
    }
}

fn open_region<'a>(storage: &'a Storage, region: &Region) -> OpenRegion<'a> {
    let Region { file, offset_bytes, length_bytes } = *region;
    OpenRegion { file: &storage.held()[file], offset_bytes, length_bytes }
}

fn cached(file: &File, region: &Region) -> ahead_sys::Result<u64> {
    cache::resident_bytes(file, region.offset_bytes, region.length_bytes)
}

/// Regions of a device, with the largest possible distance between them, like files.
fn device_regions(path: &Path, size_bytes: u64, sizes: &[u64]) -> Result<Vec<Region>> {
    let aligned: Vec<u64> = sizes.iter().map(|size| size.next_multiple_of(ALIGNED_BYTES)).collect();
    let needed_bytes = aligned.iter().sum();
    if size_bytes < needed_bytes {
        let why = format!(
            "it has {size_bytes} bytes, and the measurement needs {needed_bytes}; run fewer streams (--streams), or give the window \
            with --kb"
        );
        return Err(Error::unsupported(format!("measuring {}", path.display()), why));
    }
    let gap = (size_bytes - needed_bytes) / sizes.len().max(1) as u64 / ALIGNED_BYTES * ALIGNED_BYTES;
    let mut offset_bytes = 0;
    let region = |(length_bytes, taken): (&u64, &u64)| {
        let region = Region { file: 0, offset_bytes, length_bytes: *length_bytes };
        offset_bytes += taken + gap;
        region
    };
    Ok(sizes.iter().zip(&aligned).map(region).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn regions_of_a_device_lie_apart_and_within_it() {
        let regions = device_regions("/dev/x".as_ref(), 100 * MIB, &[5 * MIB, MIB / 2, 3 * MIB]).unwrap();
        let offsets: Vec<u64> = regions.iter().map(|region| region.offset_bytes / MIB).collect();
        assert_eq!(offsets, [0, 35, 66]);
        let refused = device_regions("/dev/x".as_ref(), 9 * MIB, &[5 * MIB, 5 * MIB]).unwrap_err();
        assert!(
            refused.to_string().contains("/dev/x") && refused.to_string().contains("it has 9437184 bytes"),
            "{refused}"
        );
    }
}

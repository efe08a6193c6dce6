//! What jobs run on: files that are made for them, or, where nothing may be written, parts of the device itself.

use crate::replay::{Place, Replayed, Task, replay};
use crate::{Error, Result};
use ahead_bench::{Files, How, Observed, Setting, Under, Variant, run};
use ahead_model::DeviceNumber;
use ahead_policy::{DeviceDescription, PAGE_BYTES};
use ahead_sys::directory::HeldFile;
use ahead_sys::{block, cache};
use ahead_tune::backing;
use ahead_tune::below::Below;
use ahead_tune::{System, Target};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Parts of a device begin at multiples of this, bytes.
const ALIGNED_BYTES: u64 = 1 << 20;
/// Of a part of a device that somebody else uses (a file system that is mounted keeps its own blocks), at most one in so many bytes
/// may stay in memory.
const HELD_SHARE: u64 = 64;
/// How long files may stay in memory though they are evicted, and how often that is tried; there is no event to wait for.
const COLD_TIME: Duration = Duration::from_secs(3);
const COLD_EVERY: Duration = Duration::from_millis(5);

/// Where a target is measured.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// On files in this directory.
    Directory(PathBuf),
    /// By reading the device.
    Device { path: PathBuf, size_bytes: u64 },
}

impl Source {
    /// Errors: the target has neither.
    pub fn of(target: &Target) -> Result<Source> {
        match (&target.directory, &target.device) {
            (Some(directory), _) => Ok(Source::Directory(directory.clone())),
            (None, Some(path)) => {
                let size_bytes = block::size_bytes(block::device_number(path)?)?;
                Ok(Source::Device { path: path.clone(), size_bytes })
            }
            (None, None) => {
                let why = "nothing that it has can be written to from here, and it has no device that could be read; say what to \
                           set with --kb";
                Err(Error::unsupported(format!("measuring {}", target.name), why))
            }
        }
    }

    /// Bytes that files may take.
    ///
    /// Errors: there is no such directory.
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

/// Files or parts of a device of the sizes that were asked for. They are kept open: their directory may be another user's, who may
/// put something else in their place.
#[derive(Debug)]
pub(crate) struct Ground {
    spots: Vec<Spot>,
    /// The first one, held open. FUSE drops what is cached of a file when it is opened. Closed before the files are removed: FUSE and NFS
    /// keep one that is open.
    first: File,
    on: On,
    below: Below,
}

#[derive(Debug)]
enum On {
    Files(Box<Files>),
    Device(HeldFile),
}

/// Part of a file, or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    file: usize,
    offset_bytes: u64,
    length_bytes: u64,
}

impl On {
    fn held(&self) -> &[HeldFile] {
        match self {
            On::Files(files) => files.held(),
            On::Device(device) => std::slice::from_ref(device),
        }
    }
}

impl Ground {
    /// Errors: no room, no permission, a full or read-only file system; it was asked to stop.
    pub fn make(source: &Source, sizes: &[u64], below: Below, stop: &AtomicBool) -> Result<Ground> {
        let (spots, on) = match source {
            Source::Directory(directory) => {
                let files = Files::make(directory, sizes, stop).map_err(|error| match error {
                    ahead_bench::Error::NoRoom { path, free_bytes, needed_bytes } => {
                        Error::NoRoom { name: path.display().to_string(), free_bytes, needed_bytes }
                    }
                    other => other.into(),
                })?;
                let spot = |(file, size): (usize, &u64)| Spot { file, offset_bytes: 0, length_bytes: *size };
                (sizes.iter().enumerate().map(spot).collect(), On::Files(Box::new(files)))
            }
            Source::Device { path, size_bytes } => {
                (parts(path, *size_bytes, sizes)?, On::Device(HeldFile::open(path)?))
            }
        };
        let nothing = || Error::Workload("there is nothing to read".into());
        let first = place(&on, spots.first().ok_or_else(nothing)?).open()?;
        Ok(Ground { spots, first, on, below })
    }

    fn places(&self) -> Vec<Place<'_>> {
        self.spots.iter().map(|spot| place(&self.on, spot)).collect()
    }

    /// The number of the device whose window the files are read through, by the mount that they were made on; `None`: the places are
    /// parts of the device itself, or the mount is gone.
    pub fn number(&self, system: &System) -> Option<DeviceNumber> {
        match &self.on {
            On::Files(files) => backing(system, files.mount()?),
            On::Device(_) => None,
        }
    }

    /// Runs a job once, cold.
    ///
    /// Errors: something stays in memory; reading failed; it was asked to stop.
    pub fn run(&self, variant: &Variant, each: bool, stop: &AtomicBool) -> Result<Observed> {
        self.make_cold()?;
        if let On::Files(files) = &self.on {
            let under = Under { how: How::Kernel, pages: None };
            let device = DeviceDescription::default();
            let setting =
                Setting { files, under: &under, device, warm: false, looks: false, each, evicted: None, stop };
            return run(variant, &setting).map_err(|error| match error {
                // A page of a mapping that is lost.
                ahead_bench::Error::Job(why) => {
                    let lost = std::io::Error::other(format!("{why}: it is shorter now, or its disk fails"));
                    Error::io(format!("read in {}", files.directory().display()), lost)
                }
                other => other.into(),
            });
        }
        // Readers have one part each.
        let parts = variant.readers.iter().flatten();
        let tasks = parts.map(|part| Task { ops: part.stream.ops(), first: part.file }).collect();
        let seen = replay(tasks, &self.places(), each, stop)?;
        Ok(Observed {
            elapsed_ns: seen.elapsed.as_nanos() as u64,
            read_bytes: seen.read_bytes,
            latency_most_ns: seen.latency_most.as_nanos() as u64,
            each_ns: seen.each_ns,
            ..Observed::default()
        })
    }

    /// Does what programs did, cold.
    ///
    /// Errors: as [`Ground::run`].
    pub fn replay(&self, tasks: Vec<Task>, stop: &AtomicBool) -> Result<Replayed> {
        self.make_cold()?;
        replay(tasks, &self.places(), false, stop)
    }

    /// How much of the first one is cached.
    ///
    /// Errors: it cannot be asked for.
    pub fn cached_bytes(&self) -> Result<u64> {
        Ok(cached(&self.first, &self.spots[0])?)
    }

    /// How much of all of them is cached.
    ///
    /// Errors: as [`Ground::cached_bytes`].
    pub fn cached_bytes_of_all(&self) -> Result<u64> {
        let of = |spot: &Spot| Ok(cached(&place(&self.on, spot).open()?, spot)?);
        self.spots.iter().map(of).sum()
    }

    /// The most that a stream has in memory ahead of itself, bytes: it reads `call_bytes` at a time, cold, `read_bytes` of the
    /// first place, or until it has nearly so much ahead that it can have no more (`most_bytes`); `None` where the place ends before
    /// what is read ahead does.
    ///
    /// Errors: as [`Ground::run`].
    pub fn ahead_of_stream(
        &self,
        read_bytes: u64,
        call_bytes: u64,
        most_bytes: u64,
        stop: &AtomicBool,
    ) -> Result<Option<u64>> {
        self.make_cold()?;
        let place = place(&self.on, &self.spots[0]);
        // Another opening of it: reads of the first one would be its stream's.
        let (file, end) = (place.open()?, place.offset_bytes + place.length_bytes);
        let mut buffer = vec![0; call_bytes as usize];
        let (mut at, mut most) = (place.offset_bytes, 0);
        while at < (place.offset_bytes + read_bytes).min(end) && most + call_bytes < most_bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(ahead_bench::Error::Stopped.into());
            }
            file.read_exact_at(&mut buffer, at)
                .map_err(|e| Error::io(format!("read {}", place.path().display()), e))?;
            at += call_bytes;
            most = most.max(cache::resident_bytes(&file, at, end.saturating_sub(at))?);
        }
        let is_at_end = cache::resident_bytes(&file, end - PAGE_BYTES, PAGE_BYTES)? > 0;
        Ok((!is_at_end).then_some(most))
    }

    /// Pages that are on their way into a list of some processor stay for a moment, whoever evicts them: soon after a write, mostly.
    fn make_cold(&self) -> Result<()> {
        let deadline = Instant::now() + COLD_TIME;
        loop {
            let done = match &self.on {
                On::Files(files) => files.make_cold(),
                On::Device(device) => self.evict_parts(device),
            };
            match done {
                Err(ahead_bench::Error::NotCold { .. }) if Instant::now() < deadline => std::thread::sleep(COLD_EVERY),
                done => break done?,
            }
        }
        Ok(self.below.evict()?)
    }

    fn evict_parts(&self, device: &HeldFile) -> ahead_bench::Result<()> {
        // Without a flush before, as files have it: nothing is written here.
        fadvise(&self.first, 0, None, Advice::DontNeed).map_err(|e| ahead_bench::Error::io("evict a device", e))?;
        for spot in &self.spots {
            let cached_bytes = cached(&self.first, spot)?;
            if cached_bytes > spot.length_bytes / HELD_SHARE {
                return Err(ahead_bench::Error::NotCold { path: device.path().into(), cached_bytes });
            }
        }
        Ok(())
    }
}

fn place<'a>(on: &'a On, spot: &Spot) -> Place<'a> {
    let Spot { file, offset_bytes, length_bytes } = *spot;
    Place { file: &on.held()[file], offset_bytes, length_bytes }
}

fn cached(file: &File, spot: &Spot) -> ahead_sys::Result<u64> {
    cache::resident_bytes(file, spot.offset_bytes, spot.length_bytes)
}

/// Parts of a device, as far from one another as it allows: as files would lie.
fn parts(path: &Path, size_bytes: u64, sizes: &[u64]) -> Result<Vec<Spot>> {
    let aligned: Vec<u64> = sizes.iter().map(|size| size.next_multiple_of(ALIGNED_BYTES)).collect();
    let needed_bytes = aligned.iter().sum();
    if size_bytes < needed_bytes {
        let why = format!(
            "it has {size_bytes} bytes, and what is measured with takes {needed_bytes}; run fewer streams (--streams), or say what \
             to set with --kb"
        );
        return Err(Error::unsupported(format!("measuring {}", path.display()), why));
    }
    let gap = (size_bytes - needed_bytes) / sizes.len().max(1) as u64 / ALIGNED_BYTES * ALIGNED_BYTES;
    let mut offset_bytes = 0;
    let spot = |(length_bytes, taken): (&u64, &u64)| {
        let spot = Spot { file: 0, offset_bytes, length_bytes: *length_bytes };
        offset_bytes += taken + gap;
        spot
    };
    Ok(sizes.iter().zip(&aligned).map(spot).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn parts_of_a_device_lie_apart_and_within_it() {
        let places = parts("/dev/x".as_ref(), 100 * MIB, &[5 * MIB, MIB / 2, 3 * MIB]).unwrap();
        let offsets: Vec<u64> = places.iter().map(|place| place.offset_bytes / MIB).collect();
        assert_eq!(offsets, [0, 35, 66]);
        let refused = parts("/dev/x".as_ref(), 9 * MIB, &[5 * MIB, 5 * MIB]).unwrap_err();
        assert!(
            refused.to_string().contains("/dev/x") && refused.to_string().contains("it has 9437184 bytes"),
            "{refused}"
        );
    }
}

//! A reader gives the bytes, lengths and errors of a [`File`], whatever the order, the memory and the state of the cache.

use super::*;
use crate::stream::testing::{DirectoryFile, cold_file, content, file_with};
use crate::stream::{Budget, Pattern};
use ahead_sys::fork::run_in_child;
use ahead_tests::rig::cold::becomes_cold;
use std::io::Write;
use std::sync::Barrier;

mod changes;
mod same_as_file;

const MIB: usize = 1 << 20;

/// How a test reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    PageCache,
    Direct,
    DirectByThreads,
}

const WAYS: [Way; 3] = [Way::PageCache, Way::Direct, Way::DirectByThreads];

fn options(budget_bytes: u64) -> ReaderOptions {
    ReaderOptions { budget: Budget::new(budget_bytes), ..ReaderOptions::default() }
}

/// A reader of a file. `None`, with a message: its file system has no direct reads.
fn reader(file: &File, way: Way, options: ReaderOptions) -> Option<Reader> {
    let options = ReaderOptions { direct: way != Way::PageCache, ..options };
    let file = Arc::new(file.try_clone().unwrap());
    let origin = Origin { file, options, is_shared: true, may_use_io_uring: way != Way::DirectByThreads };
    let reader = origin.reader(Some(0)).unwrap();
    if way != Way::PageCache && !reader.counters().is_direct {
        eprintln!("skipped: the file system has no direct reads");
        return None;
    }
    Some(reader)
}

fn read_to_end(reader: &mut Reader, step: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        match reader.read(&mut buffer).unwrap() {
            0 => return all,
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

#[test]
fn cold_file_is_read_ahead_sequentially() {
    for way in WAYS {
        for step in [4096, 100_000, 3 * MIB] {
            let Some(DirectoryFile { file, content }) = cold_file(8 * MIB + 17) else { return };
            let options = options(64 << 20);
            let budget = options.budget.clone();
            let Some(mut reader) = reader(file.as_file(), way, options) else { continue };
            assert!(read_to_end(&mut reader, step) == content, "{way:?} {step}");
            let counters = reader.counters();
            assert_eq!(counters.bytes, content.len() as u64);
            assert!(counters.requests > 0, "{way:?} {step} {counters:?}");
            // Other programs may evict pages meanwhile.
            assert!(counters.requested_bytes <= 16 << 20, "{way:?} {step} {counters:?}");
            assert_eq!((budget.used_bytes(), budget.readers()), (0, 0), "{way:?} {step}");
        }
    }
}

#[test]
fn cached_file_is_read_without_requests() {
    let DirectoryFile { file, content } = file_with(content(3 * MIB));
    let options = options(64 << 20);
    let budget = options.budget.clone();
    let mut reader = reader(file.as_file(), Way::PageCache, options).unwrap();
    for step in [4096, MIB] {
        reader.rewind().unwrap();
        assert!(read_to_end(&mut reader, step) == content);
    }
    let counters = reader.counters();
    if counters.waits == 0 {
        assert_eq!((counters.requests, counters.cached_requests, counters.abandoned_bytes), (0, 0, 0));
        assert_eq!(budget.readers(), 0);
    }
}

/// Only the first 256 KiB are absent.
#[test]
fn requests_stop_where_the_file_is_cached() {
    let Some(DirectoryFile { file, content }) = cold_file(16 * MIB) else { return };
    let mut rest = vec![0; 16 * MIB - (256 << 10)];
    ahead_sys::cache::exact_reads(file.as_file()).unwrap();
    file.as_file().read_exact_at(&mut rest, 256 << 10).unwrap();
    let mut reader = reader(file.as_file(), Way::PageCache, options(64 << 20)).unwrap();
    assert!(read_to_end(&mut reader, 64 << 10) == content);
    let counters = reader.counters();
    assert!(counters.requests > 0 && counters.requested_bytes <= 4 << 20, "{counters:?}");
    // Four in a row; a wait between them begins again.
    assert!((4..16).contains(&counters.cached_requests), "{counters:?}");
}

#[test]
fn backward_and_strided_reads_are_followed() {
    for way in WAYS {
        for stride in [-65_536i64, 131_072, -8192] {
            let Some(DirectoryFile { file, content }) = cold_file(8 * MIB) else { return };
            let Some(mut reader) = reader(file.as_file(), way, options(64 << 20)) else { continue };
            let length = if stride == -65_536 { 65_536 } else { 4096 };
            let first = if stride < 0 { 8 * MIB - length } else { 0 };
            let mut buffer = vec![0; length];
            let mut at = Some(first as u64);
            while let Some(offset) = at.filter(|at| *at + (length as u64) <= 8 << 20) {
                assert_eq!(reader.read_at(&mut buffer, offset).unwrap(), length);
                assert!(buffer == content[offset as usize..][..length], "{way:?} {stride} {offset}");
                at = offset.checked_add_signed(stride);
            }
            let counters = reader.counters();
            assert!(counters.requests > 5, "{way:?} {stride} {counters:?}");
        }
    }
}

#[test]
fn scattered_reads_request_nothing_ahead() {
    let Some(DirectoryFile { file, content }) = cold_file(8 * MIB) else { return };
    let mut reader = reader(file.as_file(), Way::PageCache, options(64 << 20)).unwrap();
    let mut buffer = [0; 4096];
    for step in 1..200 {
        let at = step * step * 7919 % 2000 * 4096 + 4096;
        reader.read_at(&mut buffer, at as u64).unwrap();
        assert!(buffer == content[at..at + 4096]);
    }
    assert!(reader.counters().requested_bytes < 2 << 20, "{:?}", reader.counters());
}

#[test]
fn truncation_and_growth_are_seen() {
    for way in WAYS {
        let DirectoryFile { mut file, content } = file_with(content(2 * MIB));
        becomes_cold(file.as_file());
        let Some(mut reader) = reader(file.as_file(), way, options(1 << 20)) else { continue };
        let mut buffer = vec![0; MIB];
        reader.read_exact(&mut buffer).unwrap();
        assert!(buffer == content[..MIB]);
        file.as_file().set_len(MIB as u64).unwrap();
        if way == Way::PageCache {
            assert_eq!(reader.read(&mut buffer).unwrap(), 0);
        } else {
            // What was read before the truncation may still be delivered.
            let old = read_to_end(&mut reader, 4096);
            assert!(old == content[MIB..MIB + old.len()]);
            reader.seek(SeekFrom::Start(MIB as u64)).unwrap();
        }
        file.seek(SeekFrom::Start(MIB as u64)).unwrap();
        file.write_all(&[9; 100_000]).unwrap();
        assert!(read_to_end(&mut reader, 4096) == [9; 100_000], "{way:?}");
        file.write_all(&[8; 10]).unwrap();
        assert_eq!(read_to_end(&mut reader, 4096), [8; 10], "{way:?}");
    }
}

#[test]
fn replaced_file_is_read_to_its_end() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, content(MIB)).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut buffer = [0; 4096];
    reader.read_exact(&mut buffer).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"new").unwrap();
    assert!(read_to_end(&mut reader, 4096) == content(MIB)[4096..]);
}

#[test]
fn readers_are_dropped_in_every_state() {
    for way in WAYS {
        for reads in 0..40 {
            let DirectoryFile { file, .. } = file_with(content(4 * MIB));
            becomes_cold(file.as_file());
            let options = options(64 << 20);
            let budget = options.budget.clone();
            let Some(mut reader) = reader(file.as_file(), way, options) else { break };
            let mut buffer = [0; 8192];
            for _ in 0..reads {
                reader.read_exact(&mut buffer).unwrap();
            }
            drop(reader);
            assert_eq!((budget.used_bytes(), budget.readers()), (0, 0));
        }
    }
}

#[test]
fn many_readers_in_a_small_budget_make_progress() {
    const READERS: usize = 64;
    for (way, budget_bytes) in
        [(Way::PageCache, 4096), (Way::PageCache, 16 << 20), (Way::Direct, 4096), (Way::DirectByThreads, 1 << 20)]
    {
        let Some(DirectoryFile { file, content }) = cold_file(4 * MIB) else { return };
        let options = options(budget_bytes);
        let barrier = Barrier::new(READERS);
        std::thread::scope(|scope| {
            for number in 0..READERS {
                let (content, file, barrier, options) = (&content, file.as_file(), &barrier, options.clone());
                scope.spawn(move || {
                    let reader = reader(file, way, options);
                    barrier.wait();
                    let Some(mut reader) = reader else { return };
                    let start = content.len() / READERS * number;
                    reader.seek(SeekFrom::Start(start as u64)).unwrap();
                    let mut buffer = vec![0; content.len() / READERS];
                    for part in buffer.chunks_mut(5000) {
                        reader.read_exact(part).unwrap();
                    }
                    assert!(buffer == content[start..start + buffer.len()]);
                });
            }
        });
        assert_eq!((options.budget.used_bytes(), options.budget.readers()), (0, 0));
    }
}

#[test]
fn child_of_a_fork_reads_on_and_so_does_its_parent() {
    for way in WAYS {
        let Some(DirectoryFile { file, content }) = cold_file(8 * MIB) else { return };
        let Some(mut reader) = reader(file.as_file(), way, options(8 << 20)) else { continue };
        let mut buffer = vec![0; MIB];
        reader.read_exact(&mut buffer).unwrap();
        let mut read = Some(reader);
        let status = run_in_child(|| {
            let mut reader = read.take().unwrap();
            assert!(read_to_end(&mut reader, 10_000) == content[MIB..]);
            reader.rewind().unwrap();
            assert!(read_to_end(&mut reader, MIB) == content);
        });
        assert_eq!(status.unwrap(), 0, "{way:?}");
        let mut reader = read.take().unwrap();
        let status = run_in_child(|| drop(read.take()));
        assert_eq!(status.unwrap(), 0, "{way:?}");
        assert!(read_to_end(&mut reader, 10_000) == content[MIB..], "{way:?}");
    }
}

#[test]
fn pipe_is_read_plainly() {
    let (receiver, mut sender) = std::io::pipe().unwrap();
    let mut reader = Reader::new(File::from(std::os::fd::OwnedFd::from(receiver))).unwrap();
    sender.write_all(b"one\ntwo").unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    assert!(reader.seek(SeekFrom::Start(0)).is_err());
    let mut buffer = [0; 10];
    assert_eq!((reader.read(&mut buffer).unwrap(), &buffer[..3]), (3, &b"two"[..]));
    drop(sender);
    assert_eq!(reader.read(&mut buffer).unwrap(), 0);
    assert_eq!(reader.counters().bytes, 7);
}

/// The memory of this process is a regular file of length 0 that cannot be read where nothing is mapped: `EIO`.
#[test]
fn errors_are_where_a_file_has_them() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parsed: Vec<(u64, u64, bool)> = maps.lines().filter_map(range_of).collect();
    let is_edge = |pair: &&[(u64, u64, bool)]| pair[0].2 && pair[0].1 < pair[1].0 && pair[0].1 - pair[0].0 >= 8192;
    let edge = parsed.windows(2).find(is_edge).map(|pair| pair[0].1).unwrap();
    let file = File::open("/proc/self/mem").unwrap();
    let mut reader = Reader::new(file.try_clone().unwrap()).unwrap();
    let (mut ours, mut theirs) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    for start in [edge - 8192, edge - 5, edge] {
        let expected = file.read_at(&mut theirs, start).map_err(|error| error.raw_os_error());
        assert_eq!(reader.read_at(&mut ours, start).map_err(|error| error.raw_os_error()), expected);
    }
    reader.seek(SeekFrom::Start(edge)).unwrap();
    assert!(reader.read(&mut ours).is_err() && reader.read(&mut ours).is_err());
    reader.seek(SeekFrom::Start(edge - 3)).unwrap();
    assert_eq!(reader.read(&mut ours).unwrap(), 3);
}

/// Beginning and end of a line of maps, and whether it can be read.
fn range_of(line: &str) -> Option<(u64, u64, bool)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let is_memory = rest.starts_with('r') && !rest.contains("[v");
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, is_memory))
}

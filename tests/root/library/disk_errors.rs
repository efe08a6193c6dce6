//! Read errors of the disk in the middle of what is read ahead.
//!
//! ```text
//!     ├── pages ──┤bad├── pages ──┤          the disk fails each request that touches the bad page
//!     ├── request, fails ─────────┤          read-ahead: the error is ignored
//!     reader ─────▶│EIO│────────▶            the reader gets all bytes before the page, then EIO at the page, as by read(2)
//! ```

use super::target::{ColdFile, EIO, KIB, MIB, PAGE, Target, Way, in_child, in_each_way, next_of_stream};
use ahead::{Block, Blocks, Prefetcher, PrefetcherOptions, Reader, Window};
use ahead_tests::rig::wait::wait_until;
use std::fs;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

const FILE_BYTES: u64 = 8 * MIB;

/// In the middle of a request, whatever its size.
const BAD: u64 = 5 * MIB + 3 * PAGE;

/// A read of the reader at its position.
type ReadNext = fn(&mut Reader, &mut [u8]) -> io::Result<usize>;

fn by_read(reader: &mut Reader, buffer: &mut [u8]) -> io::Result<usize> {
    reader.read(buffer)
}

fn by_read_at(reader: &mut Reader, buffer: &mut [u8]) -> io::Result<usize> {
    let read = reader.read_at(buffer, reader.position())?;
    reader.seek(SeekFrom::Current(read as i64))?;
    Ok(read)
}

fn by_fill_buf(reader: &mut Reader, buffer: &mut [u8]) -> io::Result<usize> {
    let ready = reader.fill_buf()?;
    let read = ready.len().min(buffer.len());
    buffer[..read].copy_from_slice(&ready[..read]);
    reader.consume(read);
    Ok(read)
}

/// Reads to the end and checks all bytes. Returns the offsets of the errors; `at_error` is called after each.
fn errors_while_reading(
    file: &ColdFile,
    reader: &mut Reader,
    read_next: ReadNext,
    step: u64,
    at_error: impl Fn(&mut Reader),
) -> Vec<u64> {
    let (mut errors, mut buffer) = (Vec::new(), vec![0; step as usize]);
    loop {
        let at = reader.position();
        match read_next(reader, &mut buffer) {
            Ok(0) => {
                assert_eq!(at, file.len());
                return errors;
            }
            Ok(read) => assert!(buffer[..read] == file.content[at as usize..][..read], "{read} bytes at {at}"),
            Err(error) => {
                assert_eq!((error.raw_os_error(), reader.position()), (Some(EIO), at));
                errors.push(at);
                at_error(reader);
            }
        }
    }
}

#[test]
fn error_is_at_the_bad_page_and_a_retry_reads_on() {
    let Some(target) = Target::alone("library-eio") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    in_each_way(|way| {
        for (read_next, step) in [
            (by_read as ReadNext, PAGE),
            (by_read, 60_000),
            (by_read, MIB),
            (by_read, FILE_BYTES),
            (by_read_at, 100_000),
            (by_fill_buf, 10_000),
        ] {
            target.fail(&file, BAD, PAGE);
            file.make_cold();
            let mut reader = way.open(&file.path);
            let errors = errors_while_reading(&file, &mut reader, read_next, step, |_| target.heal());
            assert_eq!(errors, [BAD], "{way:?}, steps of {step} bytes");
            assert!(reader.counters().requests > 0);
        }
    });
}

#[test]
fn bad_page_fails_each_time_and_a_seek_reads_on_behind_it() {
    let Some(target) = Target::alone("library-eio-seek") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    in_each_way(|way| {
        target.fail(&file, BAD, 2 * PAGE);
        file.make_cold();
        let mut reader = way.open(&file.path);
        let errors = errors_while_reading(&file, &mut reader, by_read, 20_000, |reader| {
            assert_eq!(reader.read(&mut [0; 10]).unwrap_err().raw_os_error(), Some(EIO), "the same page again");
            reader.seek(SeekFrom::Start(BAD + 2 * PAGE)).unwrap();
        });
        assert_eq!(errors, [BAD], "{way:?}");
        target.heal();
        reader.seek(SeekFrom::Start(BAD)).unwrap();
        file.read_rest(&mut reader, MIB);
    });
}

/// What was read ahead and failed is read again when the program needs it.
#[test]
fn fault_that_ends_before_the_reader_comes_is_not_reported() {
    let Some(target) = Target::alone("library-eio-past") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    in_each_way(|way| {
        // Within the first request ahead of the reader, which begins at 128 KiB.
        target.fail(&file, 200 * KIB, PAGE);
        file.make_cold();
        let before = target.failed();
        let mut reader = way.open(&file.path);
        let mut first = vec![0; PAGE as usize];
        reader.read_exact(&mut first).unwrap();
        assert!(first == file.page(0));
        wait_until("the request fails", || target.failed() > before);
        target.heal();
        file.read_rest(&mut reader, 10_000);
    });
}

#[test]
fn reads_beside_the_bad_page_never_fail() {
    let Some(target) = Target::alone("library-eio-beside") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    let pages = FILE_BYTES / PAGE;
    let bad = BAD / PAGE;
    let forward: Vec<u64> = (0..pages).filter(|page| *page != bad).collect();
    let backward: Vec<u64> = forward.iter().rev().copied().collect();
    let strided: Vec<u64> = (0..pages).step_by(16).collect();
    assert!(!strided.contains(&bad));
    in_each_way(|way| {
        for order in [&forward, &backward, &strided] {
            target.fail(&file, BAD, PAGE);
            file.make_cold();
            let mut reader = way.open(&file.path);
            let mut buffer = vec![0; PAGE as usize];
            for page in order {
                assert_eq!(reader.read_at(&mut buffer, page * PAGE).unwrap(), PAGE as usize, "{way:?}");
                assert!(buffer == file.page(*page), "{way:?}, page {page}");
            }
            assert_eq!(reader.read_at(&mut buffer, BAD).unwrap_err().raw_os_error(), Some(EIO), "{way:?}");
            target.heal();
            assert_eq!(reader.read_at(&mut buffer, BAD).unwrap(), PAGE as usize);
            assert!(buffer == file.page(bad));
        }
    });
}

#[test]
fn blocks_end_with_the_bytes_before_the_bad_page_and_one_error() {
    let Some(target) = Target::alone("library-eio-blocks") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    target.fail(&file, BAD, PAGE);
    in_each_way(|way| {
        for next in [Iterator::next as fn(&mut Blocks) -> Option<io::Result<Block>>, next_of_stream] {
            file.make_cold();
            let mut blocks = way.open(&file.path).into_blocks(64 << 10);
            let mut at = 0;
            let error = loop {
                match next(&mut blocks).expect("an error ends the blocks") {
                    Ok(block) => {
                        assert_eq!(block.offset_bytes(), at);
                        assert!(block[..] == file.content[at as usize..][..block.len()]);
                        at += block.len() as u64;
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!((at, error.raw_os_error()), (BAD, Some(EIO)), "{way:?}");
            assert!(next(&mut blocks).is_none() && next(&mut blocks).is_none());
        }
    });
}

#[test]
fn prefetcher_yields_files_with_bad_pages_and_the_program_gets_their_errors() {
    const FILES: usize = 24;
    let Some(target) = Target::new("library-eio-files") else { return };
    let files: Vec<ColdFile> = (0..FILES).map(|n| target.cold_file(&format!("{n:02}"), 300 * KIB)).collect();
    let is_bad = |n: usize| n % 5 == 2;
    for (_, file) in files.iter().enumerate().filter(|(n, _)| is_bad(*n)) {
        target.fail(file, 100 * KIB, PAGE);
    }
    for window in [Window::Items(1), Window::Items(FILES), Window::Bytes(MIB)] {
        files.iter().for_each(ColdFile::make_cold);
        let options = PrefetcherOptions::default().window(window).budget(ahead::Budget::new(64 * MIB));
        let paths = files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        let mut prefetcher = Prefetcher::with_options(paths, options.clone());
        for (n, file) in files.iter().enumerate() {
            let item = prefetcher.next().unwrap();
            assert_eq!(item.path, file.path);
            match fs::read(&item.path) {
                Ok(read) => assert!(read == file.content && !is_bad(n), "file {n}"),
                Err(error) => assert!(error.raw_os_error() == Some(EIO) && is_bad(n), "file {n}: {error}"),
            }
        }
        assert!(prefetcher.next().is_none());
        let counters = prefetcher.counters();
        assert_eq!((counters.items, counters.skipped), (FILES as u64, 0), "{counters:?}");
        drop(prefetcher);
        assert_eq!((options.budget.used_bytes(), options.budget.readers()), (0, 0));
    }
}

/// A disk that rotates has turns: a reader that fails must give its turn back, or the third one waits permanently.
#[test]
fn failed_reader_gives_its_turn_back() {
    let Some(target) = Target::alone("library-eio-turn") else { return };
    fs::write(format!("/sys/dev/block/{}/queue/rotational", target.device_number()), "1").unwrap();
    let file = target.cold_file("file", FILE_BYTES);
    target.fail(&file, BAD, PAGE);
    // In a child nothing is known of the device yet.
    in_child("readers on a disk that rotates", || {
        let mut readers: Vec<Reader> = (0..4).map(|_| Way::PageCache.open(&file.path)).collect();
        for reader in &mut readers {
            file.make_cold();
            let errors = errors_while_reading(&file, reader, by_read, 20_000, |reader| {
                reader.seek(SeekFrom::Start(BAD + PAGE)).unwrap();
            });
            assert_eq!(errors, [BAD]);
        }
    });
}

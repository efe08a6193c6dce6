//! Files that change while they are read, and budgets and positions at their limits.

use super::target::{ColdFile, MIB, PAGE, Target, WAYS, by_each_transport, in_each_way, is_open, next_of_stream};
use ahead::{Budget, Reader};
use ahead_tests::rig::wait::wait_until;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

const FILE_BYTES: u64 = 4 * MIB;

/// Reads this many bytes from the position on, and checks them.
fn read_some(file: &ColdFile, reader: &mut Reader, bytes: u64) {
    let at = reader.position() as usize;
    let mut buffer = vec![0; bytes as usize];
    reader.read_exact(&mut buffer).unwrap();
    assert!(buffer == file.content[at..at + buffer.len()], "{bytes} bytes at {at}");
}

#[test]
fn truncated_file_ends_without_a_wrong_byte_and_grows_again() {
    let Some(target) = Target::alone("library-truncate") else { return };
    let sizes = [MIB, MIB + 100, 2 * MIB + 4 * PAGE, 3 * MIB + 4097];
    in_each_way(|way| {
        for size in sizes {
            let file = target.cold_file("file", FILE_BYTES);
            let mut reader = way.open(&file.path);
            read_some(&file, &mut reader, MIB);
            let writer = File::options().write(true).open(&file.path).unwrap();
            writer.set_len(size).unwrap();
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            let end = MIB + rest.len() as u64;
            assert!(rest == file.content[MIB as usize..end as usize], "{way:?}, {size}");
            assert_eq!(end, size, "{way:?}");
            writer.write_all_at(&[9; 100_000], size).unwrap();
            reader.seek(SeekFrom::Start(size)).unwrap();
            let mut grown = Vec::new();
            reader.read_to_end(&mut grown).unwrap();
            assert!(grown == [9; 100_000], "{way:?}, {size}: {} bytes", grown.len());
        }
    });
}

/// The truncation comes while the disk holds the requests back.
#[test]
fn truncation_under_requests_in_flight_is_the_end() {
    let Some(target) = Target::alone("library-truncate-busy") else { return };
    in_each_way(|way| {
        let file = target.cold_file("file", FILE_BYTES);
        target.stall(30);
        let mut reader = way.open(&file.path);
        read_some(&file, &mut reader, PAGE);
        assert!(reader.counters().requests > 1, "more is requested than the first page");
        File::options().write(true).open(&file.path).unwrap().set_len(150_000).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest == file.content[PAGE as usize..][..rest.len()], "{way:?}");
        let end = PAGE + rest.len() as u64;
        assert_eq!(end, 150_000, "{way:?}");
        target.heal();
    });
}

#[test]
fn replaced_file_is_read_to_its_old_end_and_then_closed() {
    let Some(target) = Target::alone("library-replace") else { return };
    in_each_way(|way| {
        let file = target.cold_file("file", FILE_BYTES);
        let mut reader = way.open(&file.path);
        read_some(&file, &mut reader, 100_000);
        fs::write(target.root.join("new"), b"new").unwrap();
        fs::rename(target.root.join("new"), &file.path).unwrap();
        let mut other = way.open(&file.path);
        file.read_rest(&mut reader, 30_000);
        let mut new = Vec::new();
        other.read_to_end(&mut new).unwrap();
        assert_eq!(new, b"new");
        drop((reader, other));
        // A request in flight keeps its file open until the kernel has answered it.
        wait_until("all descriptors are closed", || !is_open(file.path.to_str().unwrap()));
    });
}

#[test]
fn seek_past_the_end_reads_nothing_until_the_file_has_grown() {
    let Some(target) = Target::alone("library-seek") else { return };
    in_each_way(|way| {
        let file = target.cold_file("file", FILE_BYTES);
        let mut reader = way.open(&file.path);
        read_some(&file, &mut reader, 300_000);
        let mut buffer = [0; 5000];
        for beyond in [SeekFrom::End(0), SeekFrom::End(1), SeekFrom::Start(1 << 40), SeekFrom::Start(1 << 43)] {
            let position = reader.seek(beyond).unwrap();
            assert_eq!((reader.read(&mut buffer).unwrap(), reader.position()), (0, position), "{way:?} {beyond:?}");
        }
        let mut writer = File::options().append(true).open(&file.path).unwrap();
        reader.seek(SeekFrom::End(2)).unwrap();
        writer.write_all(b"012345").unwrap();
        assert_eq!((reader.read(&mut buffer).unwrap(), &buffer[..4]), (4, &b"2345"[..]), "{way:?}");
        writer.set_len(FILE_BYTES).unwrap();
        reader.seek(SeekFrom::Start(FILE_BYTES - 300_000)).unwrap();
        file.read_rest(&mut reader, 7000);
    });
}

/// Three readers in turn, in a budget of one page: each one that holds nothing is granted one request, and that has one page.
#[test]
fn readers_within_one_page_make_progress_and_hold_no_more() {
    const READERS: usize = 3;
    let Some(target) = Target::alone("library-page") else { return };
    let file = target.cold_file("file", MIB);
    in_each_way(|way| {
        for budget_bytes in [0, PAGE] {
            file.make_cold();
            let budget = Budget::new(budget_bytes);
            let mut readers: Vec<Reader> = (0..READERS).map(|_| way.open_within(&file.path, &budget)).collect();
            for step in [1000, 4096, 10_000, 200_000].into_iter().cycle() {
                for reader in &mut readers {
                    let bytes = step.min(MIB - reader.position());
                    read_some(&file, reader, bytes);
                    assert!(budget.used_bytes() <= READERS as u64 * PAGE, "{way:?}: {}", budget.used_bytes());
                }
                if readers[0].position() == MIB {
                    break;
                }
            }
            for reader in &mut readers {
                assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
            }
            drop(readers);
            assert_eq!((budget.used_bytes(), budget.readers()), (0, 0), "{way:?}");
        }
    });
}

/// Dropped after each number of reads, with requests in flight: nothing stays open, and nothing is held of the budget.
#[test]
fn reader_or_stream_dropped_with_requests_in_flight_leaves_nothing() {
    let Some(target) = Target::alone("library-drop") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    by_each_transport(|| {
        target.stall(5);
        for way in WAYS {
            for reads in 0..12 {
                file.make_cold();
                let budget = Budget::new(64 * MIB);
                let mut reader = way.open_within(&file.path, &budget);
                for _ in 0..reads {
                    read_some(&file, &mut reader, 50_000);
                }
                drop(reader);
                assert_eq!((budget.used_bytes(), budget.readers()), (0, 0), "{way:?}, {reads}");
                file.make_cold();
                let mut blocks = way.open_within(&file.path, &budget).into_blocks(50_000);
                for number in 0..reads {
                    let block = next_of_stream(&mut blocks).unwrap().unwrap();
                    assert!(block[..] == file.content[number * 50_000..][..50_000]);
                }
                drop(blocks);
                // The thread of the stream ends by itself.
                wait_until("the budget is given back", || (budget.used_bytes(), budget.readers()) == (0, 0));
                wait_until("all descriptors are closed", || !is_open(file.path.to_str().unwrap()));
            }
        }
        target.heal();
    });
}

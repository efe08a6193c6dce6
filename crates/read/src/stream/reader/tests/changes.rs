//! A read returns what a write has written that ended before it, also where the bytes had been read ahead.

use super::*;
use crate::stream::testing::file_with;

/// Reads this many bytes from the position on, in steps, and checks that each byte is `byte`.
fn check_rest(reader: &mut Reader, byte: u8, bytes: usize, step: usize, what: &str) {
    let all = read_to_end(reader, step);
    let wrong = all.iter().position(|other| *other != byte);
    assert_eq!((wrong, all.len()), (None, bytes), "{what}");
}

#[test]
fn overwritten_bytes_are_not_returned() {
    for way in WAYS {
        for (file_bytes, step) in [(8 * MIB, 4096), (8 * MIB, 100_000), (20 * MIB, MIB)] {
            let file = file_with(vec![1; file_bytes]);
            let Some(mut reader) = reader(file.file.as_file(), way, options(64 << 20)) else { continue };
            let mut buffer = vec![0; step];
            let before = 2 * MIB / step;
            (0..before).for_each(|_| reader.read_exact(&mut buffer).unwrap());
            assert!(way == Way::PageCache || reader.counters().requested_bytes > (before * step) as u64, "{way:?}");
            file.file.as_file().write_all_at(&vec![2; file_bytes], 0).unwrap();
            file.file.as_file().sync_all().unwrap();
            check_rest(&mut reader, 2, file_bytes - before * step, step, &format!("{way:?} {step}"));
        }
    }
}

/// The version of a file that was written a moment ago says nothing: the second write has the same time.
#[test]
fn second_write_within_a_tick_is_seen() {
    for way in WAYS {
        for round in 0..40 {
            let file = file_with(vec![0; MIB]);
            let mut writer = file.file.reopen().unwrap();
            writer.write_all(&vec![1; MIB]).unwrap();
            let Some(mut reader) = reader(file.file.as_file(), way, options(64 << 20)) else { continue };
            let mut buffer = [0; 4096];
            reader.read_exact(&mut buffer).unwrap();
            assert_eq!(buffer, [1; 4096]);
            writer.write_all_at(&vec![2; MIB], 0).unwrap();
            check_rest(&mut reader, 2, MIB - 4096, 4096, &format!("{way:?}, round {round}"));
        }
    }
}

#[test]
fn truncated_file_ends_at_once() {
    for way in WAYS {
        let file = file_with(vec![1; 8 * MIB]);
        let Some(mut reader) = reader(file.file.as_file(), way, options(64 << 20)) else { continue };
        let mut buffer = vec![0; MIB];
        reader.read_exact(&mut buffer).unwrap();
        file.file.as_file().set_len(MIB as u64 + 100).unwrap();
        check_rest(&mut reader, 1, 100, MIB, &format!("{way:?}"));
    }
}

/// Read-ahead of a file that is written all the time would be read from the device again and again.
#[test]
fn file_that_changes_before_each_read_is_not_read_ahead() {
    for way in [Way::Direct, Way::DirectByThreads] {
        let file = file_with(vec![0; 4 * MIB]);
        let Some(mut reader) = reader(file.file.as_file(), way, options(64 << 20)) else { continue };
        let mut buffer = vec![0; 16_384];
        for round in 0..200 {
            file.file.as_file().write_all_at(&vec![round as u8; 16_384], round * 16_384).unwrap();
            reader.read_exact(&mut buffer).unwrap();
            assert!(buffer.iter().all(|byte| *byte == round as u8), "{way:?}, round {round}");
        }
        let counters = reader.counters();
        // The first read may have been of a file that was at rest.
        assert!(counters.requested_bytes <= counters.bytes + (1 << 20), "{way:?}: {counters:?}");
    }
}

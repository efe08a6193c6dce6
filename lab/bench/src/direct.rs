//! What the disk transfers: a variant's files read whole, past the page cache, by long reads of which some are always under way.
//!
//! Who reads ahead can come no further than that, on these very files: where they lie matters on a rotating disk, whose inner
//! tracks are half as fast.

use crate::job::{Part, Variant};
use crate::run::{Observed, refused};
use crate::{Error, Result};
use ahead_sys::block::O_DIRECT;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::directory::HeldFile;
use ahead_sys::usage;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Instant;

/// Length of a read, bytes: longer than any disk of today takes as one request, so that each is full.
const PIECE_BYTES: u64 = 1 << 20;
/// Reads under way: the disk has the next ones while the processor deals with the last.
const DEPTH: usize = 4;

/// Files one after the other, from which each thread takes the next piece.
struct Row<'a> {
    files: Vec<(&'a Path, File, u64)>,
    next: Mutex<(usize, u64)>,
}

impl<'a> Row<'a> {
    fn open(files: &[&'a HeldFile]) -> Result<Row<'a>> {
        let open = |held: &&'a HeldFile| {
            let failed = |e| Error::io(format!("open {} past the page cache", held.path().display()), e);
            let file = held.open_again(File::options().read(true).custom_flags(O_DIRECT)).map_err(failed)?;
            let bytes = held.length_bytes().map_err(failed)?;
            Ok((held.path(), file, bytes))
        };
        Ok(Row { files: files.iter().map(open).collect::<Result<_>>()?, next: Mutex::new((0, 0)) })
    }

    /// The next piece of all: its file, where it begins, and its length.
    fn take(&self) -> Option<(&(&'a Path, File, u64), u64, u64)> {
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while self.files.get(next.0).is_some_and(|(_, _, bytes)| next.1 >= *bytes) {
            *next = (next.0 + 1, 0);
        }
        let file = self.files.get(next.0)?;
        let at = next.1;
        next.1 += PIECE_BYTES;
        Some((file, at, PIECE_BYTES.min(file.2 - at)))
    }

    /// Takes pieces and reads them until there are none; gives the bytes that were read, and the longest read.
    fn read(&self, stop: &AtomicBool) -> Result<(u64, u64)> {
        let mut buffer = AlignedBuffer::new(PIECE_BYTES as usize);
        let (mut bytes, mut longest_ns) = (0, 0);
        while let Some(((path, file, _), at, length)) = self.take() {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let began = Instant::now();
            let failed = |e| Error::io(format!("read {} past the page cache", path.display()), e);
            let read = file.read_at(buffer.bytes(), at).map_err(failed)? as u64;
            if read < length {
                // Somebody has made the file shorter.
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            longest_ns = longest_ns.max(began.elapsed().as_nanos() as u64);
            bytes += read;
        }
        Ok((bytes, longest_ns))
    }
}

/// Reads the files of a variant. What it would have done with them plays no part.
///
/// Errors: a file system that has no direct reads; reading failed; it was asked to stop.
pub(crate) fn run(variant: &Variant, files: &[HeldFile], stop: &AtomicBool) -> Result<Observed> {
    let numbers: BTreeSet<usize> = variant.parts().map(|part: &Part| part.file).collect();
    let files: Vec<&HeldFile> = numbers.into_iter().filter_map(|number| files.get(number)).collect();
    let row = Row::open(&files)?;
    let (before, began) = (usage::own_cpu(), Instant::now());
    let read: Result<Vec<(u64, u64)>> = std::thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, || row.read(stop)).map_err(refused);
        let threads: Vec<_> = (0..DEPTH).map(start).collect::<Result<_>>()?;
        threads.into_iter().map(join).collect()
    });
    let (read, elapsed, after) = (read?, began.elapsed(), usage::own_cpu());
    Ok(Observed {
        elapsed_ns: elapsed.as_nanos() as u64,
        user_ns: after.user.saturating_sub(before.user).as_nanos() as u64,
        system_ns: after.system.saturating_sub(before.system).as_nanos() as u64,
        read_bytes: read.iter().map(|(bytes, _)| bytes).sum(),
        latency_most_ns: read.iter().map(|(_, longest_ns)| *longest_ns).max().unwrap_or(0),
        ..Observed::default()
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::Job("a direct reader has panicked".into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use ahead_sim::Stream;

    /// Regression: it was a rate that meant nothing.
    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().join("0");
        std::fs::write(&path, vec![1; 3 << 20]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let Ok(row) = Row::open(&[&held]) else { return eprintln!("skipped: no direct I/O on this file system") };
        File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let error = row.read(&AtomicBool::new(false)).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::UnexpectedEof),
            "{error}"
        );
    }

    #[test]
    fn the_files_of_a_variant_are_read_once_and_no_others() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let stop = AtomicBool::new(false);
        let files = Files::make(home.path(), &[5 << 20, 1 << 20, (3 << 20) + 5000], &stop).unwrap();
        let part = |file| Part { file, ..*Variant::of_one("", Stream::reader(256, 8)).parts().next().unwrap() };
        let readers = vec![vec![part(0), part(0)], vec![part(2)]];
        let variant = Variant { readers, ..Variant::of_one("", Stream::reader(256, 8)) };
        match run(&variant, files.held(), &stop) {
            Ok(observed) => {
                assert_eq!(observed.read_bytes, (8 << 20) + 5000);
                assert!(observed.elapsed_ns > 0 && observed.latency_most_ns > 0);
            }
            Err(error) => eprintln!("skipped: no direct I/O on this file system ({error})"),
        }
        assert!(matches!(run(&variant, files.held(), &AtomicBool::new(true)), Err(Error::Stopped | Error::Io { .. })));
    }
}

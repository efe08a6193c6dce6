//! Measures the throughput of the disk: reads all files of a variant, past the page cache, by long reads at a constant queue depth.
//!
//! No read-ahead can be faster on these files. Their position matters: the inner tracks of a rotating disk are half as fast.

use crate::bench::job::{Part, Variant};
use crate::bench::observed::Observed;
use crate::bench::{Error, Result};
use ahead_sys::block::O_DIRECT;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::directory::HeldFile;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::usage;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Instant;

/// Length of a read, bytes: longer than the longest request of any disk, so that each request has its full length.
const PIECE_BYTES: u64 = 1 << 20;
/// Queue depth: the disk has the next reads while the processor completes the last one.
const DEPTH: usize = 4;

/// A sequence of files from which each thread takes the next piece.
struct PieceQueue<'a> {
    files: Vec<(&'a Path, File, u64)>,
    next: Mutex<(usize, u64)>,
}

impl<'a> PieceQueue<'a> {
    fn open(files: &[&'a HeldFile]) -> Result<PieceQueue<'a>> {
        let open = |held: &&'a HeldFile| {
            let failed = |e| Error::io(format!("open {} past the page cache", held.path().display()), e);
            let file = held.open_again(File::options().read(true).custom_flags(O_DIRECT)).map_err(failed)?;
            let bytes = held.length_bytes().map_err(failed)?;
            Ok((held.path(), file, bytes))
        };
        Ok(PieceQueue { files: files.iter().map(open).collect::<Result<_>>()?, next: Mutex::new((0, 0)) })
    }

    /// The next piece: its file, offset and length, bytes.
    fn take(&self) -> Option<(&(&'a Path, File, u64), u64, u64)> {
        let mut next = self.next.lock().ignore_poison();
        while self.files.get(next.0).is_some_and(|(_, _, bytes)| next.1 >= *bytes) {
            *next = (next.0 + 1, 0);
        }
        let file = self.files.get(next.0)?;
        let at = next.1;
        next.1 += PIECE_BYTES;
        Some((file, at, PIECE_BYTES.min(file.2 - at)))
    }

    /// Reads pieces until there are none. Returns the bytes read, and the longest read, nanoseconds.
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
                // Another process has truncated the file.
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            longest_ns = longest_ns.max(began.elapsed().as_nanos() as u64);
            bytes += read;
        }
        Ok((bytes, longest_ns))
    }
}

/// Reads the files of a variant, independent of the pattern of its readers.
///
/// Errors: a file system without direct reads; a read failed; `stop` was set.
pub(crate) fn run(variant: &Variant, files: &[HeldFile], stop: &AtomicBool) -> Result<Observed> {
    let numbers: BTreeSet<usize> = variant.parts().map(|part: &Part| part.file).collect();
    let files: Vec<&HeldFile> = numbers.into_iter().filter_map(|number| files.get(number)).collect();
    let queue = PieceQueue::open(&files)?;
    let (before, began) = (usage::own_cpu(), Instant::now());
    let read: Result<Vec<(u64, u64)>> = std::thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, || queue.read(stop)).map_err(Error::refused_thread);
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
    thread.join().unwrap_or_else(|_| Err(Error::Job("a direct reader panicked".into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::files::Files;
    use ahead_sim::Stream;

    /// Regression: a truncated file gave a meaningless rate.
    #[test]
    fn truncated_file_is_an_error() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().join("0");
        std::fs::write(&path, vec![1; 3 << 20]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let Ok(queue) = PieceQueue::open(&[&held]) else {
            return eprintln!("skipped: no direct I/O on this file system");
        };
        File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let error = queue.read(&AtomicBool::new(false)).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::UnexpectedEof),
            "{error}"
        );
    }

    #[test]
    fn files_of_the_variant_are_read_once() {
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

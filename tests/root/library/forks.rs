//! A real fork(2) with everything open: the child and its parent both read every byte.

use super::target::{ColdFile, KIB, MIB, PAGE, Target, WAYS, in_child, next_of_stream};
use ahead::{Advised, Behaviour, Blocks, Item, Prefetcher, Reader, advise_raw};
use ahead_sys::mapping::Mapping;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::PathBuf;

const FILE_BYTES: u64 = 4 * MIB;
const FILES: usize = 40;

/// What a program has open when it forks.
struct Open<'a> {
    file: &'a ColdFile,
    files: &'a [ColdFile],
    readers: Vec<Reader>,
    streams: Vec<Blocks>,
    prefetcher: Prefetcher<Item>,
    mapping: Mapping,
    advised: Advised,
}

impl Open<'_> {
    /// Opens everything and reads a part, so that requests are in flight.
    fn new<'a>(file: &'a ColdFile, files: &'a [ColdFile]) -> Open<'a> {
        files.iter().chain([file]).for_each(ColdFile::make_cold);
        let mut readers: Vec<Reader> = WAYS.iter().map(|way| way.open(&file.path)).collect();
        for reader in &mut readers {
            let mut part = vec![0; 100_000];
            reader.read_exact(&mut part).unwrap();
            assert!(part == file.content[..part.len()]);
        }
        let mut streams: Vec<Blocks> = WAYS.iter().map(|way| way.open(&file.path).into_blocks(30_000)).collect();
        for blocks in &mut streams {
            let block = next_of_stream(blocks).unwrap().unwrap();
            assert!(block[..] == file.content[..30_000]);
        }
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        let mut prefetcher = Prefetcher::new(paths);
        assert_eq!(prefetcher.next().unwrap().path, files[0].path);
        let mapping = Mapping::new(File::open(&file.path).unwrap(), FILE_BYTES as usize).unwrap();
        let addresses = mapping.addresses();
        let advised = advise_raw(addresses.start, addresses.len(), Behaviour::Sequential, 16).unwrap();
        Open { file, files, readers, streams, prefetcher, mapping, advised }
    }

    /// Reads the rest of everything.
    fn read_rest(&mut self) {
        let Open { file, files, .. } = *self;
        for reader in &mut self.readers {
            file.read_rest(reader, 10_000);
            reader.rewind().unwrap();
            file.read_rest(reader, MIB);
        }
        for (blocks, by_stream) in self.streams.iter_mut().zip([true, false]) {
            let mut at = 30_000;
            while let Some(block) = if by_stream { next_of_stream(blocks) } else { blocks.next() } {
                let block = block.unwrap();
                assert_eq!(block.offset_bytes(), at as u64);
                assert!(block[..] == file.content[at..at + block.len()]);
                at += block.len();
            }
            assert_eq!(at as u64, file.len());
        }
        for expected in &files[1..] {
            let item = self.prefetcher.next().unwrap();
            assert_eq!(item.path, expected.path);
            assert!(fs::read(&item.path).unwrap() == expected.content);
        }
        assert!(self.prefetcher.next().is_none());
        for page in 0..FILE_BYTES / PAGE {
            self.advised.progress((page * PAGE) as usize);
            let mut bytes = [0; PAGE as usize];
            assert_eq!(self.mapping.copy((page * PAGE) as usize, &mut bytes), Some(PAGE as usize));
            assert!(bytes == file.page(page), "page {page}");
        }
        assert!(self.advised.counters().looks > 0 || self.advised.counters().groups == 0);
    }
}

/// Stalls are long enough that requests are in flight at the fork, and short enough for a test.
#[test]
fn child_and_parent_read_everything_that_was_open_at_the_fork() {
    let Some(target) = Target::alone("library-fork") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    let files: Vec<ColdFile> = (0..FILES).map(|n| target.cold_file(&format!("{n:02}"), 50 * KIB)).collect();
    for stall_ms in [0, 20] {
        target.stall(stall_ms);
        let mut open = Some(Open::new(&file, &files));
        in_child("a child that reads everything", || {
            target.heal();
            let mut open = open.take().unwrap();
            open.read_rest();
            drop(open);
            // A grandchild begins again.
            let mut own = Some(Open::new(&file, &files));
            in_child("a child of the child", || own.take().unwrap().read_rest());
            own.take().unwrap().read_rest();
        });
        target.stall(stall_ms);
        in_child("a child that drops everything", || drop(open.take()));
        target.heal();
        open.take().unwrap().read_rest();
    }
}

/// The child forks while other threads of its parent hold the library's locks again and again.
#[test]
fn fork_beside_busy_readers_never_hangs_the_child() {
    let Some(target) = Target::alone("library-fork-busy") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let file = &file;
        let busy = scope.spawn(move || {
            while matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
                for way in WAYS {
                    file.cool();
                    file.read_rest(&mut way.open(&file.path), 50_000);
                }
            }
        });
        let mut own = way_of_each(file);
        for _ in 0..20 {
            in_child("a child beside a busy thread", || {
                for reader in &mut own {
                    file.read_rest(reader, 50_000);
                }
                for mut reader in way_of_each(file) {
                    file.read_rest(&mut reader, 50_000);
                }
            });
        }
        drop(stop);
        busy.join().unwrap();
    });
}

/// Readers that have read a part, in each way.
fn way_of_each(file: &ColdFile) -> Vec<Reader> {
    let begun = WAYS.iter().map(|way| {
        let mut reader = way.open(&file.path);
        reader.read_exact(&mut [0; 100]).unwrap();
        reader
    });
    begun.collect()
}

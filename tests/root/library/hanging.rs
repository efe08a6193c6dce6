//! A file system that stops to answer: only those who need its bytes wait.

use super::target::{ColdFile, KIB, MIB, PAGE, Target, WAYS, Way, content, in_child, is_open};
use ahead::{Prefetcher, PrefetcherOptions, Window};
use ahead_sys::seccomp;
use ahead_tests::rig::silent_files::{ANSWERED_BYTES, Releasing, SilentFiles};
use ahead_tests::rig::wait::wait_until;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for read-ahead, on any machine.
const LONGEST: Duration = Duration::from_secs(30);

/// A reader of a file of which all that is answered was read, so that the rest is requested ahead.
fn reader_with_held_requests(silent: &SilentFiles, way: Way) -> ahead::Reader {
    let mut reader = way.open(&silent.root.join(format!("{way:?}")));
    let before = silent.held();
    let mut first = vec![0; PAGE as usize];
    reader.read_exact(&mut first).unwrap();
    assert!(first == content(PAGE));
    wait_until("a request ahead is held", || silent.held() > before);
    reader
}

/// Reads a cold file of a working disk, in each way.
fn check_other_readers(file: &ColdFile) {
    for way in WAYS {
        file.make_cold();
        let mut reader = way.open(&file.path);
        file.read_rest(&mut reader, 50_000);
        assert!(reader.counters().requests > 1, "{way:?}: {:?}", reader.counters());
    }
}

#[test]
fn hanging_readers_hold_up_no_reader_of_another_device() {
    let Some(target) = Target::alone("library-hang") else { return };
    let file = target.cold_file("file", 4 * MIB);
    let silent = SilentFiles::new();
    thread::scope(|scope| {
        // Before the scope ends, also after a panic: it waits for its threads.
        let releasing = Releasing(&silent);
        let hanging: Vec<_> = WAYS
            .iter()
            .map(|way| {
                let mut reader = reader_with_held_requests(&silent, *way);
                scope.spawn(move || {
                    let mut all = Vec::new();
                    let error = reader.read_to_end(&mut all).unwrap_err();
                    (all, error.raw_os_error())
                })
            })
            .collect();
        check_other_readers(&file);
        assert!(silent.held() >= WAYS.len() && hanging.iter().all(|thread| !thread.is_finished()));
        drop(releasing);
        for thread in hanging {
            let (all, error) = thread.join().unwrap();
            assert_eq!(error, Some(super::target::EIO));
            // Each page of the answered part was delivered, and none of the rest.
            assert!(all == content(ANSWERED_BYTES)[PAGE as usize..], "{} bytes", all.len());
        }
    });
}

/// The process has a limited number of threads for all devices, two for each: those of the hanging one are not waited for.
#[test]
fn hanging_threads_hold_up_no_reader_of_another_device() {
    let Some(target) = Target::alone("library-hang-threads") else { return };
    let file = target.cold_file("file", 4 * MIB);
    let silent = SilentFiles::new();
    in_child("readers by threads", || {
        seccomp::forbid_io_uring().unwrap();
        let _releasing = Releasing(&silent);
        let mut hanging: Vec<ahead::Reader> =
            (0..10).map(|n| Way::Direct.open(&silent.root.join(format!("direct-{n}")))).collect();
        // One page from each: what is requested ahead is held, and from the third request on it waits for the device's two threads.
        let mut page = vec![0; PAGE as usize];
        hanging[0].read_exact(&mut page).unwrap();
        assert!(page == content(PAGE));
        check_other_readers(&file);
        drop(hanging);
        check_other_readers(&file);
    });
}

#[test]
fn drop_does_not_wait_for_requests_that_hang() {
    let Some(_target) = Target::alone("library-hang-drop") else { return };
    for way in WAYS {
        let silent = SilentFiles::new();
        let reader = reader_with_held_requests(&silent, way);
        drop(reader);
        assert!(silent.held() > 0, "{way:?}: the requests still hang");
        silent.release();
        // A ring waits one second for its direct reads. After that their memory and files stay allocated.
        let path = silent.root.to_str().unwrap();
        wait_until("all descriptors are closed", || way == Way::Direct || !is_open(path));
    }
}

fn cold_files(target: &Target, count: usize) -> Vec<ColdFile> {
    (0..count).map(|n| target.cold_file(&format!("{n:02}"), 100 * KIB)).collect()
}

/// Lookups that hang hold up the items behind them until the program has taken their items.
#[test]
fn prefetcher_reads_files_of_other_devices_ahead() {
    const TAKEN: usize = 4;
    let Some(target) = Target::new("library-hang-files") else { return };
    let files = cold_files(&target, 20);
    let silent = SilentFiles::new();
    let mut paths: Vec<PathBuf> = vec![files[0].path.clone()];
    paths.extend(["silent-1", "silent-2", "held"].map(|name| silent.root.join(name)));
    paths.extend(files[1..].iter().map(|file| file.path.clone()));
    let options = PrefetcherOptions::default().window(Window::Items(64)).budget(ahead::Budget::new(64 * MIB));
    let mut prefetcher = Prefetcher::with_options(paths.clone(), options.clone());
    assert_eq!(prefetcher.next().unwrap().path, paths[0]);
    wait_until("the lookups hang", || silent.held() >= 2);
    for path in &paths[1..TAKEN] {
        assert_eq!(&prefetcher.next().unwrap().path, path);
    }
    let (began, rest) = (Instant::now(), paths.len() - TAKEN);
    while prefetcher.counters().prefetched_items < rest as u64 {
        assert!(began.elapsed() < LONGEST, "the other files are not read ahead: {:?}", prefetcher.counters());
        thread::yield_now();
    }
    assert!(silent.held() >= 2, "the lookups still hang");
    for (item, file) in prefetcher.by_ref().zip(&files[TAKEN - 3..]) {
        assert_eq!(item.path, file.path);
        assert!(fs::read(&item.path).unwrap() == file.content);
    }
    drop(prefetcher);
    assert_eq!((options.budget.used_bytes(), options.budget.readers()), (0, 0));
    assert!(silent.held() >= 2, "the lookups still hang");
}

#[test]
fn prefetcher_yields_its_items_when_all_its_workers_hang() {
    let Some(target) = Target::alone("library-hang-workers") else { return };
    let files = cold_files(&target, 5);
    let silent = SilentFiles::new();
    for threads in [1, 16] {
        // Other names each time: the kernel looks a name up once at a time.
        let hung = (0..100).map(|n| silent.root.join(format!("silent-{threads}-{n}")));
        let paths: Vec<PathBuf> = hung.chain(files.iter().map(|file| file.path.clone())).collect();
        let options = PrefetcherOptions::default().threads(threads);
        let before = silent.held();
        let mut prefetcher = Prefetcher::with_options(paths.clone(), options);
        assert_eq!(prefetcher.next().unwrap().path, paths[0]);
        wait_until("all workers hang", || silent.held() == before + threads);
        for path in &paths[1..] {
            assert_eq!(&prefetcher.next().unwrap().path, path);
        }
        assert!(prefetcher.next().is_none());
    }
    for file in &files {
        assert!(fs::read(&file.path).unwrap() == file.content);
    }
}

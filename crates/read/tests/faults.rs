//! Items that cannot be read ahead, and ends in the middle.

mod common;

use ahead_read::prefetcher::{Item, Prefetcher, PrefetcherOptions, Window};
use ahead_tests::rig::wait::wait_until;
use common::{Files, check_order, forbid_reading, make_fifo, options};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn files_that_cannot_be_read_are_skipped_and_yielded() {
    let Some(files) = Files::cold(8, 10_000) else { return };
    let home = files.home.path();
    make_fifo(&home.join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(home.join("socket")).unwrap();
    std::os::unix::fs::symlink("loop", home.join("loop")).unwrap();
    forbid_reading(&files.paths[3]);
    let mut paths = files.paths.clone();
    for bad in ["fifo", "absent", "socket", "loop", "", "0001/below"] {
        paths.insert(2, home.join(bad));
    }
    paths.insert(2, "/dev/zero".into());
    let mut prefetcher = Prefetcher::with_options(paths.clone(), options(Window::Items(paths.len())));
    assert_eq!(prefetcher.next().unwrap().path, paths[0]);
    wait_until("the last file is not resident", || files.resident(7) == 12_288);
    // root may read every file.
    let skipped = 7 + u64::from(!ahead_sys::machine::is_root());
    wait_until("not all items are counted", || prefetcher.counters().skipped == skipped);
    wait_until("not all items are read", || prefetcher.counters().prefetched_items == 14 - skipped);
    assert_eq!(common::paths_of(prefetcher), paths[1..]);
}

#[test]
fn nothing_to_do_is_no_error() {
    assert!(Prefetcher::new(Vec::<PathBuf>::new()).next().is_none());
    let mut prefetcher = Prefetcher::of_keys(0..0, |_: &i32| None, PrefetcherOptions::default());
    assert_eq!((prefetcher.next(), prefetcher.next(), prefetcher.counters().items), (None, None, 0));
    let empty = Files::new(5, 0);
    check_order(Prefetcher::new(empty.paths.clone()), &empty.paths);
    drop(Prefetcher::new(empty.paths.clone()));
}

#[test]
fn drop_in_the_middle_gives_everything_back() {
    let Some(files) = Files::cold(200, 10_000) else { return };
    for taken in [1, 2, 50, 199] {
        let options = options(Window::default());
        let mut prefetcher = Prefetcher::with_options(files.paths.clone(), options.clone());
        assert_eq!(prefetcher.by_ref().take(taken).count(), taken);
        drop(prefetcher);
        assert_eq!((options.budget.used_bytes(), options.budget.readers()), (0, 0));
    }
}

#[test]
fn million_items_are_pulled_lazily() {
    let pulled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&pulled);
    let source = (0..1_000_000u64).inspect(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut prefetcher = Prefetcher::of_keys(source, |_| Some("/absent".into()), PrefetcherOptions::default());
    assert_eq!(pulled.load(Ordering::Relaxed), 0);
    for expected in 0..1_000_000 {
        assert_eq!(prefetcher.next(), Some(expected));
        assert!(pulled.load(Ordering::Relaxed) <= expected + 1 + 4096);
    }
    assert_eq!((prefetcher.next(), prefetcher.counters().items), (None, 1_000_000));
}

#[test]
fn endless_source_ends_with_the_program() {
    let mut prefetcher = Prefetcher::new((0..).map(|n: u64| format!("/absent/{n}")));
    assert_eq!(prefetcher.nth(100_000).unwrap().path, PathBuf::from("/absent/100000"));
    assert_eq!(prefetcher.size_hint().1, None);
}

#[test]
fn size_hint_counts_the_items_that_are_pulled() {
    let mut prefetcher = Prefetcher::new(["a"; 500]);
    for taken in 1..=500 {
        assert_eq!(prefetcher.size_hint(), (501 - taken, Some(501 - taken)));
        prefetcher.next();
    }
    assert_eq!(prefetcher.size_hint(), (0, Some(0)));
}

#[test]
fn panic_of_the_resolver_reaches_the_program_at_its_key() {
    let resolve = |key: &u64| if *key == 3000 { panic!("key {key}") } else { Some(Item::from("/absent")) };
    let mut prefetcher = Prefetcher::of_keys(0..10_000, resolve, PrefetcherOptions::default());
    assert!(prefetcher.by_ref().take(3000).eq(0..3000));
    let panic = catch_unwind(AssertUnwindSafe(|| prefetcher.next())).unwrap_err();
    assert_eq!(*panic.downcast::<String>().unwrap(), "key 3000");
    assert_eq!(prefetcher.next(), None);
}

#[test]
fn prefetcher_moves_to_another_thread() {
    let files = Files::new(100, 3000);
    let mut prefetcher = Prefetcher::new(files.paths.clone());
    assert_eq!(prefetcher.next().unwrap().path, files.paths[0]);
    let rest = std::thread::spawn(move || prefetcher.count()).join().unwrap();
    assert_eq!(rest, 99);
}

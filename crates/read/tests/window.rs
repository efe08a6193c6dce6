//! Files of the window become resident without being read; others do not.

mod common;

use ahead_read::prefetcher::{Item, Prefetcher, PrefetcherOptions, Window};
use ahead_read::stream::Budget;
use ahead_tests::rig::wait::wait_until;
use common::{Files, check_order, options, outcomes};
use std::time::Duration;

const PAGE: u64 = 4096;

/// Of the items 1.. exactly `expected` become resident while item 0 is in use.
fn check_window(window: Window, bytes: usize, expected: usize) {
    let Some(files) = Files::cold(40, bytes) else { return };
    let mut prefetcher = Prefetcher::with_options(files.paths.clone(), options(window));
    assert_eq!(prefetcher.next().unwrap().path, files.paths[0]);
    let pages = (bytes as u64).next_multiple_of(PAGE);
    for index in 1..=expected {
        wait_until(&format!("{window:?}: file {index} is not resident"), || files.resident(index) == pages);
    }
    wait_until("not all items are counted", || prefetcher.counters().prefetched_items == expected as u64);
    assert!((expected + 1..40).all(|index| files.resident(index) == 0), "{window:?}");
    assert_eq!((files.resident(0), prefetcher.counters().prefetched_bytes), (0, expected as u64 * pages));
    let mut rest = prefetcher.by_ref().map(|item| item.path);
    assert!(rest.by_ref().eq(files.paths[1..].iter().cloned()));
    assert_eq!(outcomes(&prefetcher.counters()), 40);
}

#[test]
fn window_of_items() {
    check_window(Window::Items(12), 10_000, 12);
    check_window(Window::Items(0), 10_000, 1);
}

#[test]
fn window_of_bytes() {
    check_window(Window::Bytes(30 * PAGE), 10_000, 10);
    check_window(Window::Bytes(0), 100, 1);
}

#[test]
fn window_of_time_begins_with_some_items() {
    check_window(Window::Time(Duration::from_secs(1)), 100, 16);
}

#[test]
fn budget_of_one_page_reads_a_page_of_one_item() {
    let Some(files) = Files::cold(20, 10_000) else { return };
    let options = PrefetcherOptions::default().budget(Budget::new(1));
    let mut prefetcher = Prefetcher::with_options(files.paths.clone(), options.clone());
    for index in 0..19 {
        assert_eq!(prefetcher.next().unwrap().path, files.paths[index]);
        wait_until("the next file has no resident page", || files.resident(index + 1) == PAGE);
        assert_eq!(options.budget.used_bytes(), PAGE);
    }
    drop(prefetcher);
    assert_eq!((options.budget.used_bytes(), options.budget.readers()), (0, 0));
}

#[test]
fn budget_is_given_back_at_the_end() {
    let files = Files::new(20, 10_000);
    let options = PrefetcherOptions::default().budget(Budget::new(1 << 20));
    let mut prefetcher = Prefetcher::with_options(files.paths.clone(), options.clone());
    assert_eq!(options.budget.readers(), 0);
    assert_eq!(prefetcher.by_ref().count(), 20);
    assert!(prefetcher.next().is_none());
    assert_eq!((options.budget.used_bytes(), options.budget.readers()), (0, 0));
}

#[test]
fn only_the_ranges_become_resident() {
    let Some(files) = Files::cold(3, 100_000) else { return };
    let ranges = [0..1, 5 * PAGE..7 * PAGE + 1, 90_000..1 << 40];
    let items: Vec<(_, _)> = files.paths.iter().cloned().zip(ranges).collect();
    let mut prefetcher = Prefetcher::with_options(items.clone(), options(Window::Items(10)));
    assert_eq!(prefetcher.next(), Some(items[0].clone().into()));
    wait_until("the ranges are not resident", || (files.resident(1), files.resident(2)) == (3 * PAGE, 4 * PAGE));
    assert_eq!(files.resident(0), 0);
    let rest: Vec<Item> = prefetcher.collect();
    assert_eq!(rest, items[1..].iter().cloned().map(Item::from).collect::<Vec<_>>());
}

#[test]
fn keys_are_yielded_and_their_files_are_read() {
    let Some(files) = Files::cold(10, 10_000) else { return };
    let paths = files.paths.clone();
    let resolve = move |key: &usize| key.is_multiple_of(2).then(|| paths[*key].clone().into());
    let mut prefetcher = Prefetcher::of_keys(0..10, resolve, options(Window::Items(9)));
    assert_eq!(prefetcher.next(), Some(0));
    for index in [2, 4, 6, 8] {
        wait_until("a file is not resident", || files.resident(index) == 3 * PAGE);
    }
    assert!([1, 3, 5, 7, 9].iter().all(|index| files.resident(*index) == 0));
    assert!(prefetcher.by_ref().eq(1..10));
    assert_eq!((prefetcher.counters().skipped, outcomes(&prefetcher.counters())), (5, 10));
}

#[test]
fn cold_files_behind_cached_ones_are_read() {
    let Some(files) = Files::cold(600, 5000) else { return };
    let warm = Files::new(1, 5000);
    let paths: Vec<_> = std::iter::repeat_n(warm.paths[0].clone(), 2000).chain(files.paths.iter().cloned()).collect();
    let mut prefetcher = Prefetcher::with_options(paths.clone(), options(Window::Bytes(1 << 20)));
    for path in &paths[..2064] {
        assert_eq!(prefetcher.next().as_ref().map(|item| &item.path), Some(path));
    }
    // The workers look at every 64th item until they find one that is not cached. The next call hands the others over.
    wait_until("no file behind the cached ones is read", || prefetcher.counters().prefetched_items > 0);
    assert_eq!(prefetcher.next().unwrap().path, paths[2064]);
    // 1 MiB is the place of 128 files of two pages.
    wait_until("no file behind the cached ones is resident", || files.resident(100) == 2 * PAGE);
    assert_eq!(files.resident(599), 0);
    assert_eq!(common::paths_of(prefetcher), paths[2065..]);
}

#[test]
fn order_is_kept_at_full_speed() {
    let files = Files::new(300, 3000);
    let shuffled: Vec<_> = (0..3000).map(|n| files.paths[n * 7919 % 300].clone()).collect();
    for threads in [1, 3, 16] {
        let options = options(Window::default()).threads(threads);
        check_order(Prefetcher::with_options(shuffled.clone(), options), &shuffled);
    }
}

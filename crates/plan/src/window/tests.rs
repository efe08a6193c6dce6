use super::*;
use proptest::prelude::*;

const PAGE: u64 = 4096;

fn sizes(start_pages: u64, most_pages: u64) -> Sizes {
    Sizes { page: PAGE, start: start_pages * PAGE, most: most_pages * PAGE }
}

/// One page each, used every millisecond.
fn items(count: usize) -> Vec<Item> {
    let item = |index: usize| Item { bytes: PAGE, time_us: index as u64 * 1000, ..Item::default() };
    (0..count).map(item).collect()
}

fn expected(place: usize) -> Mark {
    Mark { place, is_expected: true, ..Mark::default() }
}

fn window(count: usize, places: &[usize], sizes: Sizes) -> Window {
    let mut window = Window::new(items(count), places.iter().copied().map(expected).collect(), sizes, true);
    window.source_started();
    window
}

#[test]
fn clock_moves_nothing_until_a_source_reports_or_none_comes() {
    let waiting = Window::new(items(100), vec![expected(40)], sizes(4, 8), true);
    let at = |change: fn(&mut Window), now_us: u64| {
        let mut window = waiting.clone();
        change(&mut window);
        window.due(now_us);
        window.at()
    };
    assert_eq!(at(|_| {}, 20_000), 0);
    assert_eq!([at(Window::source_started, 20_000), at(Window::stop_expecting, 20_000)], [21, 21]);
    assert_eq!(at(|window| window.seen(0, 10_000), 20_000), 61);
    assert_eq!(at(|_| {}, 100_000_000), 100);
}

#[test]
fn gap_of_an_opened_file_has_been_used() {
    let mut all = items(40);
    (0..20).for_each(|index| all[index].opened_by = Some(index / 10));
    let mut window = Window::new(all, [0, 10, 20].map(expected).to_vec(), sizes(32, 32), true);
    window.seen(0, 1);
    let mut without = window.clone();
    window.seen(1, 2);
    // Items 0 to 9 belong to a file that was opened.
    window.seen(2, 3);
    assert_eq!(window.due(3)[0], 20);
    assert_eq!([0, 19, 20, 40].map(|item| window.has_passed(item)), [true, true, false, false]);
    without.seen(2, 3);
    assert_eq!([0, 19].map(|item| without.has_passed(item)), [true, false]);
    assert_eq!(without.due(3)[..11], (10..21).collect::<Vec<_>>());
}

#[test]
fn window_is_fetched_from_the_end_of_the_last_one() {
    let mut window = window(40, &[0, 8, 16, 24], sizes(16, 16));
    assert_eq!(window.due(0), (0..16).collect::<Vec<_>>());
    assert_eq!(window.due(0), [0; 0]);
    window.seen(1, 0);
    assert_eq!((window.at(), window.due(0)), (8, (16..24).collect()));
}

#[test]
fn window_grows_beyond_the_next_expected_mark() {
    let mut window = window(100, &[0, 40], sizes(4, 80));
    // The mark, and a quarter of the way to it as a margin.
    assert_eq!(window.due(0).len(), 50);
    let figures = window.figures();
    assert_eq!(figures.largest_bytes, 50 * PAGE);
}

#[test]
fn window_of_one_page_moves_with_the_marks_and_the_clock() {
    let mut one = window(6, &[], sizes(1, 1));
    assert_eq!([one.due(0), one.due(1500), one.due(1500), one.due(10_000)], [vec![0], vec![2], vec![], vec![]]);
    assert!(one.is_over());
}

#[test]
fn late_mark_does_not_move_the_window_back_and_fetches_what_its_file_lacks() {
    let mut all = items(40);
    (4..6).for_each(|index| all[index] = Item { opened_by: Some(1), thread: Some(1), ..all[index] });
    let marks = [0, 4, 20].map(|place| Mark { thread: Some(1), ..expected(place) });
    let mut window = Window::new(all, marks.to_vec(), sizes(2, 8), true);
    assert_eq!(window.due(0), (0..5).collect::<Vec<_>>());
    let mut window_of_others = window.clone();
    window.seen(2, 0);
    assert_eq!((window.at(), window.due(0)), (20, vec![20, 21]));
    window.seen(1, 0);
    assert_eq!((window.at(), window.due(0), window.figures().marks_out_of_order), (20, vec![5], 1));
    // Threads are unknown, and the gap is larger than the window.
    window_of_others.seen(0, 0);
    assert_eq!(window_of_others.at(), 0);
}

#[test]
fn gap_before_a_mark_is_due_if_another_thread_uses_it() {
    let mut all = items(40);
    (8..12).for_each(|index| all[index].thread = Some(2));
    (12..20).for_each(|index| all[index].thread = Some(1));
    let marks = [0, 4, 20].map(|place| Mark { thread: Some(1), ..expected(place) });
    let mut window = Window::new(all, marks.to_vec(), sizes(2, 8), true);
    assert_eq!(window.due(0), (0..5).collect::<Vec<_>>());
    window.seen(2, 0);
    assert_eq!([window.due(0), window.due(0)], [vec![8, 9, 20, 21], vec![10, 11]]);
    assert_eq!([8, 12].map(|item| window.has_passed(item)), [false, true]);
    assert_eq!(window.never_fetched().take(3).collect::<Vec<_>>(), [5, 6, 7]);
}

#[test]
fn missing_marks_slow_the_clock_down_and_do_not_stop_it() {
    let mut window = window(100, &[0, 10, 20, 30], sizes(4, 4));
    window.seen(0, 1);
    window.due(10_001);
    assert_eq!(window.at(), 11);
    // Ten milliseconds more are a quarter of that beyond the first missing mark.
    window.due(20_001);
    assert_eq!(window.at(), 13);
    window.due(10_000_000);
    assert!(window.at() == 100 && window.is_over());
}

#[test]
fn clock_follows_the_speed_of_the_program() {
    let mut window = window(100, &[0, 10, 60], sizes(4, 4));
    window.seen(0, 1);
    // Ten times as slow as with everything cached.
    window.seen(1, 100_001);
    window.due(200_001);
    assert_eq!(window.at(), 20);
    // A mark corrects the clock: the program is behind it.
    window.due(1_000_001);
    window.seen(2, 1_000_002);
    assert_eq!(window.at(), 60);
}

#[test]
fn repeated_mark_fetches_its_file_again_at_most_once_per_second() {
    let mut all = items(40);
    (0..3).for_each(|index| all[index].opened_by = Some(0));
    let mut window = Window::new(all, [0, 10, 20].map(expected).to_vec(), sizes(8, 16), true);
    window.seen(0, 1);
    window.due(1);
    window.seen(1, 10_000);
    window.due(10_000);
    window.seen(0, 20_000);
    assert_eq!((window.at(), window.due(20_000).contains(&0)), (10, false));
    window.seen(0, 2_000_000);
    let due = window.due(2_000_000);
    assert_eq!((due[..3].to_vec(), window.figures().marks_repeated), (vec![0, 1, 2], 2));
}

#[test]
fn window_shrinks_when_unread_items_are_evicted_and_grows_again() {
    let mut window = window(4000, &[], sizes(64, 256));
    assert_eq!(window.due(0).len(), 64);
    let unread: Vec<usize> = window.unread().collect();
    assert_eq!(unread, (32..64).collect::<Vec<_>>());
    window.were_evicted(&unread[..2]);
    assert_eq!((window.size(), window.figures().evicted_unread_bytes), (32 * PAGE, 2 * PAGE));
    window.due(40_000);
    assert_eq!(window.figures().refetched_bytes, 0);
    (0..400).for_each(|step| drop(window.due(40_000 + step * 1000)));
    assert_eq!(window.size(), 64 * PAGE);
}

#[test]
fn eviction_of_everything_ends_after_some_refetches() {
    let mut window = window(64, &[], sizes(64, 64));
    let mut fetched = 0;
    for _ in 0..100 {
        fetched += window.due(1).len();
        let unread: Vec<usize> = window.unread().collect();
        window.were_evicted(&unread);
    }
    assert!(window.is_given_up() && window.is_over());
    assert!(window.size() <= 32 * PAGE && fetched <= 64 * (1 + usize::from(MOST_REFETCHES)), "{fetched}");
}

#[test]
fn more_is_fetched_at_once_after_a_spin_up() {
    let mut window = window(400, &[], sizes(16, 256));
    window.fetch_more_at_once();
    assert_eq!(window.due(0).len(), 64);
    assert_eq!((window.due(40_000), window.due(48_001).len()), (vec![], 49));
}

#[test]
fn resident_items_need_no_room() {
    let mut window = window(40, &[], sizes(8, 8));
    let first = window.due(0);
    window.were_resident(&first);
    assert_eq!(window.due(0), (8..16).collect::<Vec<_>>());
}

/// What a machine does with a window.
#[derive(Clone, Debug)]
enum Event {
    Seen(usize),
    Pass(u64),
    Evict(Vec<usize>),
    Resident(usize),
    Most(u64),
    SpinUp,
    SourceEnds,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..24usize).prop_map(Event::Seen),
        4 => (0..200_000u64).prop_map(Event::Pass),
        2 => prop::collection::vec(0..220usize, 0..40).prop_map(Event::Evict),
        1 => (0..220usize).prop_map(Event::Resident),
        1 => (0..200u64).prop_map(Event::Most),
        1 => Just(Event::SpinUp),
        1 => Just(Event::SourceEnds),
    ]
}

prop_compose! {
    fn profile()(
        lengths in prop::collection::vec((1..9u64, 0..3u32, prop::option::of(0..24usize), 0..50u64), 0..200),
        marks in prop::collection::vec((0..220usize, any::<bool>(), 0..3u32), 0..24),
    ) -> (Vec<Item>, Vec<Mark>) {
        let mut time_us = 0;
        let items = lengths.into_iter().map(|(pages, thread, opened_by, step)| {
            time_us += step * 100;
            Item { bytes: pages * PAGE, time_us, thread: thread.checked_sub(1), opened_by }
        });
        let mark = |(place, is_expected, thread): (usize, bool, u32)| {
            Mark { place, thread: thread.checked_sub(1), is_expected }
        };
        (items.collect(), marks.into_iter().map(mark).collect())
    }
}

proptest! {
    #[test]
    fn any_events_in_any_order_keep_the_limits_and_the_window_ends(
        (items, marks) in profile(), events in prop::collection::vec(event(), 0..80),
        start in 0..64u64, most in 0..200u64, sees_marks in any::<bool>(),
    ) {
        let mut window = Window::new(items.clone(), marks, sizes(start, most), sees_marks);
        let (mut now_us, mut times, mut confirmed) = (0, vec![0usize; items.len()], 0);
        for event in events {
            match event {
                Event::Seen(mark) => window.seen(mark, now_us),
                Event::Pass(us) => now_us += us,
                Event::Evict(items) => window.were_evicted(&items),
                Event::Resident(item) => window.were_resident(&[item]),
                Event::Most(pages) => window.set_most(pages * PAGE),
                Event::SpinUp => window.fetch_more_at_once(),
                Event::SourceEnds => window.stop_expecting(),
            }
            let (ahead, size) = (window.ahead(), window.size());
            let due = window.due(now_us);
            due.iter().for_each(|index| times[*index] += 1);
            // What is fetched fits into the window, or is a single item.
            let new: Vec<&usize> = due.iter().filter(|index| **index >= window.at()).collect();
            let new_bytes: u64 = new.iter().map(|index| items[**index].bytes).sum();
            prop_assert!(new.is_empty() || new.len() == 1 || new_bytes <= window.size().max(size), "{due:?}");
            prop_assert!(window.ahead() <= window.size().max(ahead + items.iter().map(|item| item.bytes).max().unwrap_or(0)));
            prop_assert!(window.size() >= PAGE && window.position.confirmed() >= confirmed);
            prop_assert!(window.at() >= window.position.confirmed() && window.at() <= items.len());
            confirmed = window.position.confirmed();
        }
        prop_assert!(times.iter().all(|times| *times <= 1 + 2 * usize::from(MOST_REFETCHES)));
        // Everything ends by the clock alone.
        for _ in 0..4000 {
            now_us += 10_000_000;
            window.due(now_us);
        }
        prop_assert!(window.is_over());
    }

    #[test]
    fn every_item_is_fetched_before_its_use_if_the_marks_come_in_order(
        (mut items, mut marks) in profile(), start in 0..64u64,
    ) {
        // The clock stands still: only the marks move the window.
        items.iter_mut().for_each(|item| item.opened_by = None);
        marks.sort_by_key(|mark| mark.place);
        marks.iter_mut().for_each(|mark| mark.is_expected = true);
        marks.insert(0, expected(0));
        marks.push(expected(items.len()));
        let total: u64 = items.iter().map(|item| item.bytes).sum();
        let sizes = Sizes { page: PAGE, start: start * PAGE, most: 2 * total };
        let mut window = Window::new(items.clone(), marks.clone(), sizes, true);
        let mut fetched = vec![0; items.len()];
        for use_of in 0..items.len() {
            for (index, mark) in marks.iter().enumerate().filter(|(_, mark)| mark.place == use_of) {
                prop_assert!(mark.place <= items.len());
                window.seen(index, 0);
            }
            window.due(0).into_iter().for_each(|index| fetched[index] += 1);
            prop_assert_eq!(fetched[use_of], 1, "item {} of {:?}", use_of, marks);
        }
        prop_assert!(fetched.iter().all(|times| *times == 1));
    }
}

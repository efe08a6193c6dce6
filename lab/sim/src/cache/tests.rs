//! Use, age and eviction of folios as one unit.

use super::*;

const FILE: FileId = FileId(0);

/// The pages that are evicted to make room for `pages` pages, and whether each was unused.
fn evicted(cache: &mut Cache, pages: u64) -> Vec<(Page, bool)> {
    let mut gone = Vec::new();
    cache.make_room(pages, &mut gone);
    gone.into_iter().flat_map(Evicted::each).collect()
}

fn folio_of(order: u8, first: Page) -> Folio {
    Folio { first, order }
}

fn with_folio(limit_pages: u64, folio: Folio) -> Cache {
    let mut cache = Cache::new(limit_pages);
    cache.add(FILE, folio, false);
    cache.arrive(FILE, folio.first, folio.pages());
    cache
}

#[test]
fn a_folio_is_evicted_whole_and_reported_page_by_page() {
    // Within one node, and across two nodes.
    for (order, first) in [(4, 32), (7, 128)] {
        let folio = folio_of(order, first);
        let mut cache = with_folio(200, folio);
        assert_eq!(cache.use_pages(FILE, first + 1, 5, Use::Read), 5);
        cache.add_run(FILE, 1000, 200 - folio.pages(), Fresh::Asked);
        let gone = evicted(&mut cache, 1);
        let pages: Vec<Page> = gone.iter().map(|(page, _)| *page).collect();
        assert!(pages.iter().copied().eq(folio.range()), "{pages:?}");
        let unused: Vec<Page> = gone.iter().filter(|(_, unused)| *unused).map(|(page, _)| *page).collect();
        assert_eq!(unused.len() as u64, folio.pages() - 5);
        assert_eq!(cache.pages(), 200 - folio.pages());
    }
}

#[test]
fn a_folio_that_is_used_twice_anywhere_is_active() {
    for (order, first) in [(4, 32), (7, 128)] {
        let folio = folio_of(order, first);
        let mut cache = with_folio(400, folio);
        cache.use_pages(FILE, first, 2, Use::Read);
        assert_eq!((cache.active_pages(), cache.inactive_pages()), (0, folio.pages()));
        // Uses another page of the folio, in another node if the folio spans two.
        cache.use_pages(FILE, folio.range().end - 1, 1, Use::Read);
        assert_eq!((cache.active_pages(), cache.inactive_pages()), (folio.pages(), 0));
    }
}

#[test]
fn a_use_of_the_whole_folio_is_one() {
    let folio = folio_of(8, 256);
    let mut cache = with_folio(400, folio);
    assert_eq!(cache.use_pages(FILE, 256, 256, Use::Read), 256);
    assert_eq!(cache.active_pages(), 0);
    assert_eq!(cache.use_pages(FILE, 250, 100, Use::Read), 0);
    assert_eq!(cache.active_pages(), 256);
}

#[test]
fn a_folio_with_one_page_in_use_stays() {
    let folio = folio_of(7, 128);
    let mut cache = with_folio(200, folio);
    cache.pin(FILE, 200);
    cache.add_run(FILE, 1000, 72, Fresh::Asked);
    cache.arrive(FILE, 1000, 72);
    // The cache evicts the single pages instead.
    let gone = evicted(&mut cache, 10);
    assert!(!gone.is_empty() && gone.iter().all(|(page, _)| *page >= 1000), "{gone:?}");
    cache.use_pages(FILE, 200, 1, Use::Again);
    let gone = evicted(&mut cache, 200);
    assert!(folio.range().all(|page| gone.iter().any(|(other, _)| *other == page)), "{gone:?}");
}

#[test]
fn a_mapped_folio_that_was_touched_gets_another_round() {
    let folio = folio_of(3, 64);
    let mut cache = with_folio(16, folio);
    cache.add_run(FILE, 1000, 8, Fresh::Asked);
    cache.arrive(FILE, 1000, 8);
    cache.use_pages(FILE, 66, 1, Use::Mapped);
    let gone = evicted(&mut cache, 1);
    assert!(gone.iter().all(|(page, _)| *page >= 1000) && !gone.is_empty(), "{gone:?}");
}

#[test]
fn dirty_pages_stay_until_they_are_written() {
    let mut cache = Cache::new(64);
    cache.add_run(FILE, 0, 64, Fresh::Written);
    assert_eq!(cache.make_dirty(FILE, 8, 40), 40);
    assert_eq!(cache.make_dirty(FILE, 0, 10), 8);
    assert_eq!(cache.next_dirty(FILE, 0, 100), Some((0, 48)));
    assert_eq!(evicted(&mut cache, 64).len(), 16);
    cache.begin_writeback(FILE, 0, 20);
    assert_eq!((cache.dirty_pages(), cache.writeback_pages()), (28, 20));
    // A page that is dirtied under writeback is written again, but not yet.
    assert_eq!(cache.make_dirty(FILE, 19, 1), 1);
    assert_eq!(cache.next_dirty(FILE, 0, 100), Some((20, 28)));
    assert!(evicted(&mut cache, 64).is_empty());
    assert_eq!(cache.end_writeback(FILE, 0, 20), 20);
    assert_eq!(cache.next_dirty(FILE, 0, 100), Some((19, 29)));
    assert_eq!(evicted(&mut cache, 64), (0..19).map(|page| (page, false)).collect::<Vec<_>>());
}

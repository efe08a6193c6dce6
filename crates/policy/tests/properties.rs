//! Properties of every policy, for all accesses and events: a policy never panics, and never requests a page beyond the
//! file.

use ahead_policy::testing::Cache;
use ahead_policy::{
    Access, Advice, By, CATALOGUE, Event, FileId, OpenId, PAGE_BYTES, Page, Parameters, Requests, named,
};
use proptest::prelude::*;

/// An action on a policy.
#[derive(Clone, Debug)]
enum Happens {
    Reads { open: u32, first: Page, pages: u64 },
    Faults { open: u32, page: Page, advice: Advice, huge: bool, executable: bool },
    Arrives,
    Evicts { page: Page },
    Waits { open: u32, page: Page },
    Drops { first: Page },
    Advises { open: u32, advice: Advice },
    Opens { open: u32 },
    Closes { open: u32 },
    WillNeed { open: u32, first: Page, pages: u64 },
    Maps { open: u32, first: Page, pages: u64 },
    Memory { free_pages: u64, inactive_pages: u64, added_pages: u64 },
}

fn happens(file_pages: u64) -> impl Strategy<Value = Happens> {
    let advice = prop::sample::select(vec![Advice::Normal, Advice::Sequential, Advice::Random]);
    let (open, page) = (0..3u32, 0..file_pages);
    prop_oneof![
        8 => (open.clone(), page.clone(), 1..100u64).prop_map(|(open, first, pages)| Happens::Reads { open, first, pages }),
        4 => (open.clone(), page.clone(), advice.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(open, page, advice, huge, executable)| Happens::Faults { open, page, advice, huge, executable }),
        2 => Just(Happens::Arrives),
        2 => page.clone().prop_map(|page| Happens::Evicts { page }),
        2 => (open.clone(), page.clone()).prop_map(|(open, page)| Happens::Waits { open, page }),
        1 => page.clone().prop_map(|first| Happens::Drops { first }),
        1 => (open.clone(), advice).prop_map(|(open, advice)| Happens::Advises { open, advice }),
        1 => open.clone().prop_map(|open| Happens::Opens { open }),
        1 => open.clone().prop_map(|open| Happens::Closes { open }),
        1 => (open.clone(), page.clone(), any::<u64>())
            .prop_map(|(open, first, pages)| Happens::WillNeed { open, first, pages: pages >> 1 }),
        1 => (open, page, 1..16u64).prop_map(|(open, first, pages)| Happens::Maps { open, first, pages }),
        1 => (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(free, inactive, added)| Happens::Memory {
            free_pages: free.into(),
            inactive_pages: inactive.into(),
            added_pages: added.into()
        }),
    ]
}

/// Sequences of accesses as programs make them, with other events between them.
fn story() -> impl Strategy<Value = (u64, u64, u8, Vec<Happens>)> {
    (1..3000u64, 0..300u64, 0..10u8).prop_flat_map(|(file_pages, window_pages, order)| {
        let row = (0..file_pages, 1..20u64, 1..30u64, -40..40i64).prop_map(move |(first, pages, count, step)| {
            let at = |index: u64| first.checked_add_signed(step * index as i64).filter(|page| *page < file_pages);
            let reads = (0..count).map_while(at).map(|first| Happens::Reads { open: 0, first, pages });
            reads.collect::<Vec<_>>()
        });
        let one = happens(file_pages).prop_map(|one| vec![one]);
        let rows = prop::collection::vec(prop_oneof![3 => row, 5 => one], 1..20);
        (Just(file_pages), Just(window_pages), Just(order), rows.prop_map(|rows| rows.concat()))
    })
}

fn check(name: &str, file_pages: u64, window_pages: u64, order: u8, story: &[Happens]) -> Result<(), TestCaseError> {
    let parameters =
        Parameters { future: Some([].into()), is_prefetched: true, budget_pages: Some(1000), ..Parameters::default() };
    let mut policy = named(name).unwrap().build(&parameters).unwrap();
    let mut cache = Cache::new(file_pages, window_pages);
    cache.limits.folio_order = order;
    let file = FileId(0);
    for happens in story {
        cache.now_ns += 1_000_000;
        let mut requests = Requests::default();
        let event = match *happens {
            Happens::Reads { open, first, pages } => {
                let wanted = pages;
                let access = Access::read(first, wanted, cache.found(first));
                policy.access(&Access { open: OpenId(open), ..access }, &cache, &mut requests);
                None
            }
            Happens::Faults { open, page, advice, huge, executable } => {
                let by = By::Fault { advice, huge, executable, first: page / 2, end: file_pages };
                let access = Access::fault(page, file_pages, cache.found(page));
                policy.access(&Access { by, open: OpenId(open), ..access }, &cache, &mut requests);
                None
            }
            Happens::Arrives => {
                cache.arrive();
                Some(Event::Arrived { file, first: 0, pages: file_pages })
            }
            Happens::Evicts { page } => {
                cache.evict(page);
                Some(Event::Evicted { file, page, unused: true })
            }
            Happens::Waits { open, page } => Some(Event::Waited { open: OpenId(open), file, page, wait_ns: 1 }),
            Happens::Drops { first } => {
                Some(Event::Dropped { open: OpenId(0), file, first, pages: file_pages - first })
            }
            Happens::Advises { open, advice } => Some(Event::Advised { open: OpenId(open), file, advice }),
            Happens::Opens { open } => Some(Event::Opened { open: OpenId(open), file }),
            Happens::Closes { open } => Some(Event::Closed { open: OpenId(open) }),
            Happens::WillNeed { open, first, pages } => {
                Some(Event::WillNeed { open: OpenId(open), file, first, pages })
            }
            Happens::Maps { open, first, pages } => {
                let by =
                    By::Fault { advice: Advice::Normal, huge: false, executable: false, first: 0, end: file_pages };
                Some(Event::Mapped { open: OpenId(open), by, file, first, pages, before: 0, mapped: pages })
            }
            Happens::Memory { free_pages, inactive_pages, added_pages } => {
                // The number of added pages never decreases.
                let added_pages = cache.memory.added_pages + added_pages;
                cache.memory = ahead_policy::Memory { free_pages, inactive_pages, added_pages, ..cache.memory };
                None
            }
        };
        if let Some(event) = event {
            policy.event(&event, &cache, &mut requests);
        }
        for request in requests.drain() {
            let end = request.first.checked_add(request.pages);
            prop_assert!(end.is_some_and(|end| end <= file_pages), "{name} asks for {request:?} of {file_pages}");
            prop_assert!(request.pages > 0 && request.order <= 9, "{name}: {request:?}");
            let within = request.mark.is_none_or(|mark| mark >= request.first && mark < request.first + request.pages);
            prop_assert!(within, "{name}: {request:?}");
            cache.start(&request);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_page_beyond_the_file_is_requested((file_pages, window_pages, order, story) in story()) {
        for policy in CATALOGUE {
            let name = match policy.arguments.len() {
                0 => policy.name.to_owned(),
                1 => format!("{}(7)", policy.name),
                _ => format!("{}(7, adaptive)", policy.name),
            };
            check(&name, file_pages, window_pages, order, &story)?;
        }
    }
}

/// A page is found again at the position that its folio gives.
#[test]
fn a_call_is_measured_in_bytes() {
    let access = Access::read(3, 2, ahead_policy::Found::Absent);
    assert_eq!((access.call.offset_bytes, access.call.length_bytes), (3 * PAGE_BYTES, 2 * PAGE_BYTES));
    assert_eq!(access.end(), 5);
}

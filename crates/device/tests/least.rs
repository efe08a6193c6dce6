//! The lower bounds of `least_ns` against schedules on the simulated disk: every order of a few extents, with gap reads, splits, parallel
//! requests, pauses and reads of other places.

use ahead_device::{Device, Model, Op, Request, least_ns};
use ahead_model::random::SplitMix64;
use proptest::prelude::*;
use std::ops::Range;

const PAGE_BYTES: u64 = 4096;

/// A disk and the extents that a program uses.
#[derive(Clone, Debug)]
struct Case {
    model: Model,
    capacity_bytes: u64,
    extents: Vec<Range<u64>>,
}

fn number(random: &mut SplitMix64, choices: &[f64]) -> f64 {
    choices[random.below(choices.len() as u64) as usize]
}

/// A model with figures from all of their ranges. Some hdd figures have no seek curve: then the next ones are tried.
fn custom_model(random: &mut SplitMix64) -> Model {
    loop {
        let text = match random.below(4) {
            0 | 1 => custom_hdd(random),
            2 => format!(
                "kind = \"flash\"\nchannels = {}\nread_us = {}\nsequential_read_us = {}\nread_mb_per_s = {}\nmax_request_kb = {}\n",
                number(random, &[1.0, 2.0, 3.0, 9.0, 32.0]),
                number(random, &[1.0, 20.0, 92.0, 165.0, 900.0]),
                number(random, &[1.0, 30.0, 80.0, 165.0, 1500.0]),
                number(random, &[1.0, 20.0, 250.0, 540.0, 3400.0]),
                number(random, &[4.0, 16.0, 128.0, 512.0, 1280.0]),
            ),
            _ => format!(
                "kind = \"cloud\"\nlatency_us = {}\niops = {}\nmb_per_s = {}\nio_unit_kb = {}\nburst_ios = {}\nburst_kb = {}\n\
                 outstanding = {}\nmax_request_kb = {}\n",
                number(random, &[10.0, 1000.0, 20_000.0]),
                number(random, &[10.0, 500.0, 3000.0, 100_000.0]),
                number(random, &[1.0, 20.0, 125.0, 1000.0]),
                number(random, &[4.0, 16.0, 256.0, 4096.0]),
                number(random, &[1.0, 3.0, 30.0]),
                number(random, &[4.0, 64.0, 256.0, 4096.0]),
                number(random, &[1.0, 2.0, 8.0, 128.0]),
                number(random, &[4.0, 64.0, 256.0, 1280.0]),
            ),
        };
        if let Ok(model) = Model::from_toml(&text) {
            return model;
        }
    }
}

fn custom_hdd(random: &mut SplitMix64) -> String {
    let outer = number(random, &[0.5, 4.0, 13.0, 175.0, 600.0]);
    let inner = outer * number(random, &[0.3, 0.5, 1.0]);
    let positioning = if random.below(4) == 0 {
        format!("access_ms = {}", number(random, &[0.1, 8.0, 30.0]))
    } else {
        format!(
            "seek_track_ms = {}\nseek_average_ms = {}\nseek_full_ms = {}",
            number(random, &[0.01, 0.8, 2.0]),
            number(random, &[1.0, 4.0, 8.5, 10.0]),
            number(random, &[2.0, 7.0, 14.7, 22.0])
        )
    };
    format!(
        "kind = \"hdd\"\nrpm = {}\nouter_mb_per_s = {outer}\ninner_mb_per_s = {inner}\n{positioning}\ntrack_switch_ms = {}\noverhead_us = {}\n\
         interface_mb_per_s = {}\nread_on_kb = {}\nmax_request_kb = {}\n",
        number(random, &[3600.0, 7200.0, 15_000.0, 30_000.0]),
        number(random, &[0.0, 0.1, 0.8, 3.0, 12.0]),
        number(random, &[0.0, 5.0, 40.0, 500.0]),
        outer * number(random, &[1.0, 1.2, 4.0]),
        number(random, &[0.0, 64.0, 2048.0]),
        number(random, &[8.0, 128.0, 1280.0]),
    )
}

fn any_model(random: &mut SplitMix64) -> Model {
    let names: Vec<&str> = Model::BUILTIN.into_iter().chain(Model::PAPERS).collect();
    let choice = random.below(2 * names.len() as u64) as usize;
    names.get(choice).map_or_else(|| custom_model(random), |name| Model::builtin(name).unwrap())
}

/// Clusters with small gaps, far extents, and long ones.
fn random_case(model: Model, random: &mut SplitMix64, count: usize, longest_pages: u64) -> Case {
    let capacity_bytes = [16 << 20, 256 << 20, 4 << 30, 64 << 30][random.below(4) as usize];
    let mut extents: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while extents.len() < count {
        let gap_pages = match random.below(4) {
            0 => 1 + random.below(4),
            1 | 2 => 1 + random.below(300),
            _ => {
                at = 0;
                random.below(capacity_bytes / PAGE_BYTES)
            }
        };
        let pages = match random.below(8) {
            0 => 1 + random.below(120),
            1 | 2 => 1 + random.below(64),
            _ => 1 + random.below(8),
        };
        let pages = pages.min(longest_pages);
        let start = at + gap_pages * PAGE_BYTES;
        let extent = start..start + pages * PAGE_BYTES;
        at = extent.end;
        let is_apart = |other: &Range<u64>| other.end < extent.start || extent.end < other.start;
        if extent.end <= capacity_bytes && extents.iter().all(is_apart) {
            extents.push(extent);
        } else {
            at = 0;
        }
    }
    extents.sort_unstable_by_key(|extent| extent.start);
    Case { model, capacity_bytes, extents }
}

/// A read and the pause before its submission.
#[derive(Clone, Debug)]
struct Step {
    range: Range<u64>,
    pause_ns: u64,
}

/// Every order of `0..count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    (0..count).fold(vec![Vec::new()], |orders, next| {
        let insert = |order: Vec<usize>| {
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, next);
                longer
            })
        };
        orders.into_iter().flat_map(insert).collect()
    })
}

/// The reads of the extents in this order; `bridged` has a bit for each place at which the next extent follows on the disk and the gap is read.
fn in_order(case: &Case, order: &[usize], bridged: u32) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (place, &index) in order.iter().enumerate() {
        let extent = case.extents[index].clone();
        match ranges.last_mut() {
            Some(last) if bridged >> place & 1 == 1 && order[place - 1] + 1 == index => last.end = extent.end,
            _ => ranges.push(extent),
        }
    }
    ranges
}

/// The longest gap that is read. Longer ones take longer than a seek, and thousands of requests.
const LONGEST_GAP_BYTES: u64 = 4 << 20;

/// Places in the order at which the gap may be read, as combinations of bits.
fn bridgings(case: &Case, order: &[usize]) -> Vec<u32> {
    let gap_bytes = |before: usize| case.extents[before + 1].start - case.extents[before].end;
    let is_next = |place: &usize| order[place - 1] + 1 == order[*place];
    let places = (1..order.len()).filter(is_next).filter(|place| gap_bytes(order[place - 1]) <= LONGEST_GAP_BYTES);
    places.fold(vec![0], |all, place| all.iter().flat_map(|bits| [*bits, bits | 1 << place]).collect())
}

/// Requests within the model's limit, without pauses.
fn cut(model: &Model, ranges: &[Range<u64>]) -> Vec<Step> {
    let longest = model.max_request_bytes();
    let of = |range: &Range<u64>| {
        let range = range.clone();
        (range.start..range.end)
            .step_by(longest as usize)
            .map(move |start| Step { range: start..range.end.min(start + longest), pause_ns: 0 })
    };
    ranges.iter().flat_map(of).collect()
}

/// The same reads with random splits, exchanged places, pauses and reads of other places near by.
fn disturb(case: &Case, steps: &[Step], random: &mut SplitMix64) -> Vec<Step> {
    let mut disturbed: Vec<Step> = Vec::new();
    for step in steps {
        let pages = (step.range.end - step.range.start) / PAGE_BYTES;
        let pause_ns = [0, 0, random.below(100_000), random.below(20_000_000)][random.below(4) as usize];
        if random.below(6) == 0 {
            let at = step.range.start.saturating_add_signed((random.below(4000) as i64 - 2000) * PAGE_BYTES as i64);
            let end = (at + (1 + random.below(16)) * PAGE_BYTES).min(case.capacity_bytes);
            disturbed.extend(cut(&case.model, &[at.min(end)..end]));
        }
        if pages > 1 && random.below(3) == 0 {
            let middle = step.range.start + (1 + random.below(pages - 1)) * PAGE_BYTES;
            let (first, second) = (step.range.start..middle, middle..step.range.end);
            let halves = if random.below(2) == 0 { [first, second] } else { [second, first] };
            disturbed.extend(halves.map(|range| Step { range, pause_ns: 0 }));
        } else {
            disturbed.push(Step { range: step.range.clone(), pause_ns });
        }
    }
    disturbed.retain(|step| !step.range.is_empty());
    for _ in 0..random.below(3) {
        let (one, other) = (random.below(disturbed.len() as u64), random.below(disturbed.len() as u64));
        disturbed.swap(one as usize, other as usize);
    }
    disturbed
}

/// Submits the reads to a disk, at most `depth` at the same time; returns each with the time at which it is complete.
fn run(case: &Case, steps: &[Step], depth: usize) -> Vec<(Range<u64>, u64)> {
    let mut device = Device::new(&case.model, case.capacity_bytes);
    let mut in_flight: Vec<u64> = Vec::new();
    let mut now_ns = 0;
    let serve = |step: &Step| {
        if in_flight.len() >= depth {
            in_flight.sort_unstable_by_key(|end_ns| std::cmp::Reverse(*end_ns));
            now_ns = in_flight.pop().map_or(now_ns, |end_ns| now_ns.max(end_ns));
        }
        now_ns += step.pause_ns;
        let length_bytes = step.range.end - step.range.start;
        let request = Request { op: Op::Read, offset_bytes: step.range.start, length_bytes };
        let end_ns = device.submit(&request, now_ns).end_ns;
        in_flight.push(end_ns);
        (step.range.clone(), end_ns)
    };
    steps.iter().map(serve).collect()
}

/// Ranges between the borders of requests, and the time at which each is delivered first.
fn first_deliveries(served: &[(Range<u64>, u64)]) -> Vec<(Range<u64>, u64)> {
    let mut borders: Vec<u64> = served.iter().flat_map(|(range, _)| [range.start, range.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut first_ns = vec![u64::MAX; borders.len()];
    for (range, end_ns) in served {
        let from = borders.partition_point(|border| *border < range.start);
        for (border, first_ns) in borders[from..].iter().zip(&mut first_ns[from..]) {
            if *border >= range.end {
                break;
            }
            *first_ns = (*first_ns).min(*end_ns);
        }
    }
    borders.windows(2).zip(first_ns).map(|(pair, first_ns)| (pair[0]..pair[1], first_ns)).collect()
}

/// The time at which all of these pages have been delivered.
fn delivered_ns(deliveries: &[(Range<u64>, u64)], ranges: &[Range<u64>]) -> u64 {
    let mut last_ns = 0;
    for range in ranges {
        let from = deliveries.partition_point(|(delivered, _)| delivered.end <= range.start);
        for (delivered, first_ns) in &deliveries[from..] {
            if delivered.start >= range.end {
                break;
            }
            last_ns = last_ns.max(*first_ns);
        }
    }
    last_ns
}

/// The bound of these extents on the disk of the case.
fn bound_ns(case: &Case, extents: &[Range<u64>]) -> u64 {
    least_ns(&case.model, case.capacity_bytes, extents)
}

/// Sets of which the bound is checked: all extents, and some with parts of some extents.
fn subsets(case: &Case, random: &mut SplitMix64) -> Vec<(Vec<Range<u64>>, u64)> {
    let part = |extent: &Range<u64>, random: &mut SplitMix64| {
        let pages = (extent.end - extent.start) / PAGE_BYTES;
        let (one, other) = (random.below(pages), random.below(pages));
        extent.start + one.min(other) * PAGE_BYTES..extent.start + (one.max(other) + 1) * PAGE_BYTES
    };
    let mut sets: Vec<Vec<Range<u64>>> = vec![case.extents.clone()];
    for _ in 0..6 {
        let chosen: Vec<&Range<u64>> = case.extents.iter().filter(|_| random.below(3) > 0).collect();
        let some =
            chosen.into_iter().map(|extent| if random.below(2) == 0 { extent.clone() } else { part(extent, random) });
        sets.push(some.collect());
    }
    sets.into_iter().map(|extents| (extents.clone(), bound_ns(case, &extents))).collect()
}

/// Checks the bounds against one schedule.
fn check(case: &Case, sets: &[(Vec<Range<u64>>, u64)], steps: &[Step], depth: usize) {
    let deliveries = first_deliveries(&run(case, steps, depth));
    for (ranges, least_ns) in sets {
        let took_ns = delivered_ns(&deliveries, ranges);
        assert!(
            *least_ns <= took_ns,
            "{least_ns} ns are not the least: {took_ns} ns for {ranges:?} in {case:?} by {steps:?}, depth {depth}"
        );
    }
}

/// Checks the bounds against every order of the extents with every combination of gap reads, and with random changes of each.
fn check_all_orders(case: &Case, random: &mut SplitMix64, changes: usize) {
    let sets = subsets(case, random);
    for order in orders(case.extents.len()) {
        for bridged in bridgings(case, &order) {
            let steps = cut(&case.model, &in_order(case, &order, bridged));
            check(case, &sets, &steps, 1 << random.below(7));
            for _ in 0..changes {
                let disturbed = disturb(case, &steps, random);
                check(case, &sets, &disturbed, 1 << random.below(7));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_order_of_up_to_four_extents_is_faster_than_the_bound(seed: u64, count in 1usize..=4) {
        let mut random = SplitMix64::new(seed);
        let model = any_model(&mut random);
        let case = random_case(model, &mut random, count, 120);
        check_all_orders(&case, &mut random, 1);
    }
}

fn custom_hdd_case(figures: &str, capacity_bytes: u64, extents: &[Range<u64>]) -> Case {
    let text = format!("kind = \"hdd\"\nrpm = 15000\nseek_track_ms = 0.01\n{figures}");
    Case { model: Model::from_toml(&text).unwrap(), capacity_bytes, extents: extents.to_vec() }
}

/// Regression: a change of tracks inside an extent counted twice.
#[test]
fn change_of_tracks_at_the_border_of_a_page_counts_once() {
    let figures = "outer_mb_per_s = 4\ntrack_switch_ms = 0.8\noverhead_us = 40\nseek_average_ms = 1\nseek_full_ms = 2";
    let extents = [917_504..925_696];
    check_all_orders(&custom_hdd_case(figures, 4 << 30, &extents), &mut SplitMix64::new(1), 100);
}

/// Regression: where the change of tracks takes whole turns, a command at the end of a track does not wait for it in the model.
#[test]
fn long_change_of_tracks_is_shorter_with_a_command() {
    const TRACK_BYTES: u64 = 5 * PAGE_BYTES;
    let figures = "outer_mb_per_s = 1.280001\ntrack_switch_ms = 12\nseek_average_ms = 4\nseek_full_ms = 7";
    for tracks in [2, 1000] {
        let extent = TRACK_BYTES..(tracks + 1) * TRACK_BYTES;
        let case = custom_hdd_case(figures, 4 << 30, std::slice::from_ref(&extent));
        let sets = [(case.extents.clone(), bound_ns(&case, &case.extents))];
        let by_track = extent.step_by(TRACK_BYTES as usize).map(|start| start..start + TRACK_BYTES);
        check(&case, &sets, &cut(&case.model, &by_track.collect::<Vec<_>>()), 1);
        check(&case, &sets, &cut(&case.model, &case.extents), 1);
    }
}

/// Checks the bound of all extents of random cases against every order, with no gap read and with all.
fn check_orders_of(count: usize, cases: u64) {
    for (number, name) in ["hdd", "fireball", "emmc", "cloud", "ssd", "nvme"].into_iter().enumerate() {
        for repetition in 0..cases {
            let mut random = SplitMix64::new(number as u64 + 100 * repetition);
            let case = random_case(Model::builtin(name).unwrap(), &mut random, count, 2);
            let sets = [(case.extents.clone(), bound_ns(&case, &case.extents))];
            for order in orders(count) {
                let mut bridged = vec![0, *bridgings(&case, &order).last().unwrap()];
                bridged.dedup();
                for bits in bridged {
                    check(&case, &sets, &cut(&case.model, &in_order(&case, &order, bits)), 1 << random.below(7));
                }
            }
        }
    }
}

#[test]
fn no_order_of_five_to_seven_extents_is_faster_than_the_bound() {
    for (count, cases) in [(5, 40), (6, 10), (7, 4)] {
        check_orders_of(count, cases);
    }
}

#[test]
fn no_order_of_eight_extents_is_faster_than_the_bound() {
    check_orders_of(8, 1);
}

/// Extents of a program: files of 1 to 30 extents, median length 16 KiB.
fn program_extents(count: usize, within_bytes: u64) -> Vec<Range<u64>> {
    let mut random = SplitMix64::new(count as u64);
    let pages = [1, 1, 1, 2, 2, 3, 4, 4, 4, 6, 8, 10, 16, 24, 48];
    let mut extents: Vec<Range<u64>> = Vec::new();
    while extents.len() < count {
        let mut at = random.below(within_bytes / PAGE_BYTES) * PAGE_BYTES;
        for _ in 0..(1 + random.below(30)).min((count - extents.len()) as u64) {
            let end = at + pages[random.below(pages.len() as u64) as usize] * PAGE_BYTES;
            extents.push(at..end);
            at = end + (1 + random.below(64)) * PAGE_BYTES;
        }
    }
    extents.sort_unstable_by_key(|extent| extent.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if extent.start <= last.end => last.end = last.end.max(extent.end),
            _ => merged.push(extent),
        }
    }
    merged
}

/// The bound is a share of one ascending sweep that a relaxation may miss, but no smaller one.
#[test]
fn bound_is_near_an_ascending_sweep() {
    for (name, least_share) in [("hdd", 0.5), ("ssd", 0.99), ("nvme", 0.99), ("emmc", 0.75), ("cloud", 0.9)] {
        let model = Model::builtin(name).unwrap();
        let extents = program_extents(200, 2 << 30);
        let case = Case { model, capacity_bytes: 8 << 30, extents };
        let steps = cut(&case.model, &case.extents);
        let sweep_ns =
            run(&case, &steps, case.model.channels() as usize).iter().map(|(_, end_ns)| *end_ns).max().unwrap();
        let share = bound_ns(&case, &case.extents) as f64 / sweep_ns as f64;
        assert!((least_share..=1.0).contains(&share), "{name}: {share}");
    }
}

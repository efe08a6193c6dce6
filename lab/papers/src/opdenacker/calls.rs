//! The paper's statements about system calls (sections 3 and 4.4.1) on the running kernel: what was observed, and whether it agrees.

use crate::{CallTime, Line, Lines, Loaded, SystemCalls};
use ahead_policy::PAGE_BYTES;
use std::ops::Range;

/// A call that takes at most this share of the time until its data arrives does not wait for the data. One that waits takes all of it.
const RETURNS_EARLY: f64 = 0.5;

const NO_CALL: &str = "the simulator's programs have no such call";

/// Adds the result on the real page cache to a line.
pub(super) fn live<'a>(
    line: &'a mut Line,
    seen: Option<&SystemCalls>,
    result: impl FnOnce(&SystemCalls) -> (String, bool),
) -> &'a mut Line {
    line.live_shape(seen.map(result))
}

/// Section 3.1, and what 3.4 says about it.
pub(super) fn readahead(lines: &mut Lines, seen: Option<&SystemCalls>) {
    let line = lines.not_shown("3.1: readahead reads whole pages", "offset rounded down, end rounded up", NO_CALL);
    live(line, seen, |seen| {
        let Loaded { asked, loaded } = &seen.unaligned;
        let end = asked.end.next_multiple_of(PAGE_BYTES);
        let whole = asked.start / PAGE_BYTES * PAGE_BYTES..end;
        let text = format!("bytes {}-{} load {}", asked.start, asked.end, list(loaded));
        (text, *loaded == [whole])
    });
    let line = lines.not_shown("3.1: readahead blocks until all data have been read", "blocks", NO_CALL);
    live(line, seen, |seen| {
        let cold = seen.readahead_cold_map;
        let text = format!(
            "{}; {} where the file system (ext2) has to read the place of the data first",
            times(&seen.readahead),
            one_time(cold)
        );
        (text, !returns_early(&seen.readahead))
    });
    let line = lines.not_shown("3.4: the readahead system call is binding", "binding", NO_CALL);
    live(line, seen, |seen| (of_asked(&seen.long), bytes(&seen.long.loaded) >= length(&seen.long.asked)));
}

/// Advice on the whole file: the position of its window in [`SystemCalls::longest_pages`], and whether the paper agrees.
pub(super) fn window(line: &mut Line, seen: Option<&SystemCalls>, index: usize, holds: impl FnOnce(u64, u64) -> bool) {
    live(line, seen, |seen| {
        let (longest, without) = (seen.longest_pages[index], seen.longest_pages[0]);
        (format!("longest request {longest} pages, {without} without advice"), holds(longest, without))
    });
}

/// `POSIX_FADV_WILLNEED`: exactly the region.
pub(super) fn will_need(seen: &SystemCalls) -> (String, bool) {
    let Loaded { asked, loaded } = &seen.will_need;
    (of_asked(&seen.will_need), *loaded == [asked.clone()])
}

/// The rest of section 3.2 and 3.3.
pub(super) fn advice(lines: &mut Lines, seen: Option<&SystemCalls>) {
    let why =
        "the simulator's programs have no such call; the requests of a policy never block the program that advises";
    let line = lines.not_shown("3.2: POSIX_FADV_WILLNEED does not block", "a non-blocking read", why);
    live(line, seen, |seen| (times(&seen.will_need_times), returns_early(&seen.will_need_times)));
    let why = "no policy has it: from 2.6.18 on Linux ignores it (from memory), so the paper's 2.6.20 ignores it too";
    let line = lines.not_shown("3.2: POSIX_FADV_NOREUSE", "similar, but the data will just be accessed once", why);
    live(line, seen, |seen| {
        let text = format!("the call reads nothing: {}; the kernel notes it for its reclaim", of_asked(&seen.no_reuse));
        (text, bytes(&seen.no_reuse.loaded) > 0)
    });
    let why =
        "frees pages and requests none, so policies do not receive it; the simulator's programs have no such call";
    let line = lines.not_shown("3.2: POSIX_FADV_DONTNEED", "attempts to free the cached pages of the region", why);
    live(line, seen, |seen| {
        let Loaded { asked, loaded } = &seen.dont_need;
        let rest = asked.end..seen.cached.end;
        let text = format!(
            "of {} cached, the call for {} leaves {}",
            kib(length(&seen.cached)),
            kib(length(asked)),
            kib(bytes(loaded))
        );
        (text, *loaded == [rest])
    });
    let line = lines.not_shown("3.2: fadvise is not binding", "the kernel is free to ignore the advice", NO_CALL);
    live(line, seen, |seen| {
        let kept = bytes(&seen.dont_need_mapped.loaded);
        let text = format!(
            "POSIX_FADV_DONTNEED for {} mapped pages leaves {}",
            asked_pages(&seen.dont_need_mapped),
            kept / PAGE_BYTES
        );
        (text, kept > 0)
    });
    let line = lines.not_shown(
        "3.3: madvise reads pages of a mapped file, or discards them",
        "can be used by the kernel to readahead or to discard page cache pages",
        NO_CALL,
    );
    live(line, seen, |seen| {
        let [read, left] = [&seen.map_will_need, &seen.map_page_out].map(|part| bytes(&part.loaded) / PAGE_BYTES);
        let asked = asked_pages(&seen.map_will_need);
        let text = format!("MADV_WILLNEED loads {read} of {asked} pages, MADV_PAGEOUT (2019) leaves {left} of them");
        (text, read >= asked && left < asked)
    });
}

/// Section 4.4.1, on demand paging.
pub(super) fn demand_paging(lines: &mut Lines, seen: Option<&SystemCalls>) {
    let line = lines.not_shown(
        "4.4.1: demand paging loads each page only when it is needed",
        "loads the corresponding page",
        "the pages that the simulated boot touches are an input",
    );
    live(line, seen, |seen| {
        let ([window, single], touched) = (seen.faulted_pages, seen.touched_pages);
        let text = format!(
            "{touched} touched pages load {window}, with MADV_RANDOM {single}: a fault reads a window around its page"
        );
        (text, window == touched)
    });
}

/// Preloading a whole file: what the start of this program needs of its executable.
pub(super) fn whole_file(seen: &SystemCalls) -> (String, bool) {
    let (all, used) = (seen.program_pages, seen.started_pages);
    let text = format!(
        "the start of this program loads {} of the {} of its executable, {:.0} % of it, windows around faults included",
        kib(used * PAGE_BYTES),
        kib(all * PAGE_BYTES),
        100.0 * used as f64 / all.max(1) as f64
    );
    (text, 2 * used < all + all / 10)
}

fn returns_early(calls: &[CallTime]) -> bool {
    let mut shares: Vec<f64> =
        calls.iter().map(|call| call.returned_ns as f64 / call.arrived_ns.max(1) as f64).collect();
    shares.sort_unstable_by(f64::total_cmp);
    shares.get(shares.len() / 2).is_some_and(|median| *median <= RETURNS_EARLY)
}

/// The median call.
fn times(calls: &[CallTime]) -> String {
    let mut calls = calls.to_vec();
    calls.sort_unstable_by_key(|call| call.returned_ns);
    one_time(calls.get(calls.len() / 2).copied().unwrap_or_default())
}

fn one_time(call: CallTime) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    format!("returns after {:.2} ms, the data arrives after {:.2} ms", ms(call.returned_ns), ms(call.arrived_ns))
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(length).sum()
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes / 1024)
}

fn of_asked(call: &Loaded) -> String {
    format!("{} of {} are loaded", kib(bytes(&call.loaded)), kib(length(&call.asked)))
}

fn asked_pages(call: &Loaded) -> u64 {
    length(&call.asked).div_ceil(PAGE_BYTES)
}

fn list(ranges: &[Range<u64>]) -> String {
    let ranges: Vec<String> = ranges.iter().map(|range| format!("{}-{}", range.start, range.end)).collect();
    if ranges.is_empty() { "nothing".into() } else { ranges.join(", ") }
}

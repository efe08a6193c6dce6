//! What the kernel does with an open file, why, what was seen, and what would be better: in sentences.

use crate::{Advice, Counted, OpenFile, Pattern, Window};
use ahead_report::number::{grouped, share, size, time};
use ahead_sys::machine::page_size;
use std::time::Duration;

/// Sentences about an open file, without full stops at their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What the kernel does with it now.
    pub now: String,
    /// Why it does that.
    pub why: String,
    /// What was seen in the interval.
    pub seen: String,
    /// What would be better.
    pub better: String,
}

/// A larger share of the interval spent waiting is worth a larger window.
const WAITS_SHARE: f64 = 0.05;
/// More pages read for each used one are worth a smaller window.
const HIGH_AMPLIFICATION: f64 = 2.0;
/// Windows by which a waiting stream is served better: four times the present one, up to 16 MiB (the default of `ahead steer`).
const GROWTH: u64 = 4;
const MAX_WINDOW_BYTES: u64 = 16 << 20;
/// Linux counts 100 faults that miss before it reads single pages (MMAP_LOTSAMISS in mm/filemap.c).
const MANY_MAPPED_MISSES: u16 = 100;

/// Explains an open file. `interval`: that of its counts. `request_bytes`: the largest request of its disk, if known. `major_faults`: those of all
/// mappings of its process in the interval, if known.
pub fn explain(
    file: &OpenFile,
    interval: Option<Duration>,
    request_bytes: Option<u64>,
    major_faults: Option<u64>,
) -> Explanation {
    let counted = file.counted.as_ref().zip(interval);
    Explanation {
        now: now(file, request_bytes),
        why: why(file),
        seen: counted.map_or_else(|| "nothing was counted".into(), |(counted, interval)| seen(counted, interval))
            + &unseen(file, major_faults),
        better: better(file, counted, major_faults),
    }
}

/// Why faults of its mappings cause no decision, so that they are not seen: the kernel reads single pages without read-ahead
/// (do_sync_mmap_readahead in mm/filemap.c). `None`: they are seen.
fn blindness(file: &OpenFile) -> Option<&'static str> {
    match (file.mapping_advice, file.window) {
        (Some(Advice::Random), _) => Some("faults of a mapping with MADV_RANDOM cause no decision"),
        (_, Some(window)) if window.limit_pages == 0 => {
            Some("faults of a mapping cause no decision where the window is 0")
        }
        _ => None,
    }
}

/// What the counts do not have.
fn unseen(file: &OpenFile, major_faults: Option<u64>) -> String {
    let Some(why) = blindness(file) else { return String::new() };
    let faults = match major_faults {
        Some(0) => "its process waited for no page of any mapping (0 major faults)".into(),
        Some(faults) => format!("its process had {} major faults, each of which waited for a page", grouped(faults)),
        None => "the major faults of its process are not known".into(),
    };
    format!("; not seen: {why}; {faults}")
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(page_size())
}

fn pages(pages: u64) -> String {
    size(bytes(pages))
}

fn now(file: &OpenFile, request_bytes: Option<u64>) -> String {
    let Some(window) = file.window else { return "the open file is gone".into() };
    let disk = pages(window.disk_limit_pages);
    let own = pages(window.limit_pages);
    let limit = match window.advice() {
        Some(Advice::Random) => format!("no read-ahead; the window of the disk is {disk}"),
        None => format!("window of at most {own}, that of the disk"),
        Some(Advice::Sequential) => format!("window of at most {own}, twice that of the disk"),
        Some(Advice::Window) => format!("window of at most {own}; that of the disk is {disk}"),
    };
    let request =
        request_bytes.map_or_else(String::new, |most| format!("; a request of the disk has at most {}", size(most)));
    let last = match (window.pages, window.marker()) {
        _ if window.is_unused() && blindness(file).is_some() => {
            "no read-ahead; what faults of its mapping have read leaves no trace here".to_owned()
        }
        _ if window.is_unused() => "no read-ahead, and no read through the page cache, so far".to_owned(),
        (0, _) => "no read-ahead so far".to_owned(),
        (count, marker) => {
            let range = format!("{} to {}", grouped(window.start), grouped(window.end() - 1));
            let next = match marker {
                Some(marker) => format!(
                    "the next one starts at page {} when page {} is read (async size {})",
                    grouped(window.end()),
                    grouped(marker),
                    pages(window.async_pages)
                ),
                None => "it has no marker, so that the next one starts at a miss".to_owned(),
            };
            format!("last read-ahead: pages {range} ({}); {next}", pages(count))
        }
    };
    format!("{limit}{request}. {last}")
}

fn why(file: &OpenFile) -> String {
    let Some(window) = &file.window else { return "it was closed, or only its mapping remains".into() };
    let mapped = match window.mapped_misses {
        0 => String::new(),
        many if many > MANY_MAPPED_MISSES => {
            format!("; {many} faults of a mapping missed, so that faults read single pages")
        }
        few => format!("; {few} faults of a mapping missed; above {MANY_MAPPED_MISSES} they would read single pages"),
    };
    reason(file, window) + &mapped
}

fn reason(file: &OpenFile, window: &Window) -> String {
    let around = pages(window.limit_pages);
    match file.mapping_advice {
        Some(Advice::Random) => return "the program has set MADV_RANDOM: a fault reads a single page".into(),
        Some(_) => return "the program has set MADV_SEQUENTIAL: a fault is taken for a part of a stream".into(),
        None => {}
    }
    match (file.pattern, window.advice()) {
        (_, Some(Advice::Random)) => "the program has set POSIX_FADV_RANDOM: each call reads what it asks for".into(),
        (_, Some(Advice::Sequential)) => "the program has set POSIX_FADV_SEQUENTIAL".into(),
        (Pattern::Sequential | Pattern::OnceOnly, _) => {
            "reads are sequential: the window doubles up to its limit, whether or not a reader waits".into()
        }
        (Pattern::RandomMapped, _) => {
            format!(
                "faults at pages in no order: the kernel reads {around} around each, for it does not expect an order"
            )
        }
        (Pattern::RandomRead, _) => "reads in no order: the kernel reads what each call asks for".into(),
        (Pattern::Backward, _) => {
            "reads go backward: the kernel knows only forward streams, so that each call waits".into()
        }
        (Pattern::Stride, _) => "reads at equal steps with gaps: for the kernel these are reads in no order".into(),
        (Pattern::Interleaved, _) => {
            "several streams through one open file: it has one state, which each stream takes from the others".into()
        }
        (Pattern::Unknown | Pattern::Advised, _) if window.is_unused() => {
            "a read-ahead starts at the first read of an absent page".into()
        }
        (Pattern::Unknown | Pattern::Advised, _) => "too few decisions to name a pattern".into(),
    }
}

fn seen(counted: &Counted, interval: Duration) -> String {
    let in_interval = format!("in {}", time(interval.as_micros() as u64));
    if counted.is_idle() {
        return format!("{in_interval}: no access to an absent page was seen");
    }
    let hits = counted.hits.map_or_else(String::new, |hits| format!("{} hits, ", grouped(hits)));
    let faults = match counted.faults {
        0 => String::new(),
        faults => format!(" ({} of them faults)", grouped(faults)),
    };
    let used = counted.used_pages.map_or_else(String::new, |used| format!(", {} used", pages(used)));
    let amplification =
        counted.amplification().map_or_else(String::new, |factor| format!(", amplification {factor:.1}"));
    let thrashed = match counted.thrashed_pages {
        0 => String::new(),
        thrashed => format!(", {} read a second time", pages(thrashed)),
    };
    format!(
        "{in_interval}: {hits}{} locked, {} misses{faults}; waited {} ({}); read {}{used}, {} evicted unused{thrashed}{amplification}",
        grouped(counted.locked),
        grouped(counted.misses),
        time(counted.wait().as_micros() as u64),
        share(counted.wait().as_micros() as u64, interval.as_micros() as u64),
        pages(counted.issued_pages),
        pages(counted.wasted_pages),
    )
}

fn better(file: &OpenFile, counted: Option<(&Counted, Duration)>, major_faults: Option<u64>) -> String {
    let Some((counted, interval)) = counted else { return "count an interval (--interval) to see that".into() };
    let window = file.window.unwrap_or_default();
    let limit = window.limit_pages;
    let waits = counted.wait().as_secs_f64() / interval.as_secs_f64().max(f64::MIN_POSITIVE) > WAITS_SHARE;
    let wasteful = counted.amplification().is_some_and(|factor| factor >= HIGH_AMPLIFICATION)
        || 4 * counted.wasted_pages > counted.issued_pages && counted.wasted_pages > 0;
    let waited = share(counted.wait().as_micros() as u64, interval.as_micros() as u64);
    let can_steer = file.descriptor.is_some();
    match file.pattern {
        _ if file.mapping_advice == Some(Advice::Random) && major_faults != Some(0) => {
            "if its accesses have an order: no MADV_RANDOM in the program, or MADV_WILLNEED some accesses early; each fault waits for one page".into()
        }
        _ if counted.is_idle() && blindness(file).is_none() => "nothing: no access to an absent page was seen".into(),
        _ if file.pattern == Pattern::Advised || file.mapping_advice.is_some() => {
            "leave alone: the program has chosen".into()
        }
        _ if counted.is_idle() => "not known: see what was not seen".into(),
        Pattern::RandomMapped if wasteful => random_mapped(counted, can_steer),
        Pattern::RandomRead if wasteful => {
            "POSIX_FADV_RANDOM in the program, or a small window by ahead steer: most of what is read is not used"
                .into()
        }
        Pattern::Backward | Pattern::Stride | Pattern::Interleaved if waits => {
            format!(
                "waits {waited} of its time: ahead steer can fetch ahead; or POSIX_FADV_WILLNEED in the program, some reads early"
            )
        }
        Pattern::Sequential | Pattern::OnceOnly | Pattern::Unknown if counted.thrashed_pages > 0 && limit > 1 => {
            format!(
                "pages are evicted before they are read: a window of {} (ahead steer), or more memory",
                pages(limit / 2)
            )
        }
        Pattern::Sequential | Pattern::OnceOnly if waits && bytes(limit) < MAX_WINDOW_BYTES => {
            let larger = size((bytes(limit) * GROWTH).min(MAX_WINDOW_BYTES));
            format!("waits {waited} of its time: a window of {larger} (ahead steer; for the whole disk: ahead tune)")
        }
        Pattern::Sequential | Pattern::OnceOnly if waits => {
            format!("waits {waited} of its time, and its window is large: the disk is the limit")
        }
        Pattern::Unknown if wasteful => "a smaller window: most of what is read is not used".into(),
        _ => "leave alone".into(),
    }
}

fn random_mapped(counted: &Counted, can_steer: bool) -> String {
    // To the nearest page.
    let by_fault = |pages: u64| (pages.saturating_add(counted.faults / 2) / counted.faults.max(1)).max(1);
    let (per_fault, used) = (by_fault(counted.issued_pages), by_fault(counted.used_pages.unwrap_or(counted.faults)));
    let steer = match can_steer {
        true => format!("let ahead steer set a window of {}", pages(used)),
        false => "its descriptor was closed, so that ahead steer cannot set its window".into(),
    };
    let figures = format!("each reads {}, uses {}", pages(per_fault), pages(used));
    format!("faults at random pages: {figures}; set MADV_RANDOM in the program, or {steer}")
        .replace(", or its", "; its")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Window = Window {
        limit_pages: 32,
        disk_limit_pages: 32,
        start: 64,
        pages: 32,
        async_pages: 8,
        previous_page: Some(80),
        mapped_misses: 0,
        is_random: false,
    };

    fn explained(pattern: Pattern, window: Window, counted: Counted) -> Explanation {
        let window = Some(window);
        let file = OpenFile { descriptor: Some(3), pattern, window, counted: Some(counted), ..OpenFile::default() };
        explain(&file, Some(Duration::from_secs(1)), Some(1280 << 10), None)
    }

    fn counted(issued_pages: u64, used: u64, wait_ms: u64) -> Counted {
        let wait_ns = wait_ms * 1_000_000;
        Counted { hits: Some(5), misses: 1, issued_pages, used_pages: Some(used), wait_ns, ..Counted::default() }
    }

    #[test]
    fn waiting_stream_needs_a_larger_window() {
        let said = explained(Pattern::Sequential, STREAM, counted(320, 320, 400));
        assert_eq!(
            said.now,
            "window of at most 128.0 KiB, that of the disk; a request of the disk has at most 1.2 MiB. last read-ahead: pages 64 to 95 \
             (128.0 KiB); the next one starts at page 96 when page 88 is read (async size 32.0 KiB)"
        );
        assert_eq!(
            said.seen,
            "in 1.00 s: 5 hits, 0 locked, 1 misses; waited 400.0 ms (40 %); read 1.2 MiB, 1.2 MiB used, 0 B evicted unused, amplification 1.0"
        );
        assert!(said.better.starts_with("waits 40 % of its time: a window of 512.0 KiB"), "{}", said.better);
        let large = Window { limit_pages: 4096, disk_limit_pages: 4096, ..STREAM };
        assert!(explained(Pattern::Sequential, large, counted(320, 320, 400)).better.contains("the disk is the limit"));
        assert_eq!(explained(Pattern::Sequential, STREAM, counted(320, 320, 10)).better, "leave alone");
    }

    #[test]
    fn random_faults_need_a_small_window() {
        let faults = Counted { faults: 10, misses: 10, ..counted(320, 10, 100) };
        let said = explained(Pattern::RandomMapped, STREAM, faults);
        let expected = "faults at random pages: each reads 128.0 KiB, uses 4.0 KiB; set MADV_RANDOM in the program, or let ahead steer set \
                        a window of 4.0 KiB";
        assert_eq!(said.better, expected);
        assert!(said.why.contains("reads 128.0 KiB around each"), "{}", said.why);
        let mapping = OpenFile { pattern: Pattern::RandomMapped, counted: Some(faults), ..OpenFile::default() };
        let said = explain(&mapping, Some(Duration::from_secs(1)), None, None);
        assert!(said.better.contains("its descriptor was closed") && said.now.contains("gone"), "{said:?}");
    }

    #[test]
    fn advice_of_the_program_is_left_alone() {
        let random = Window { is_random: true, ..STREAM };
        let said = explained(Pattern::Advised, random, counted(8, 8, 900));
        assert!(said.now.starts_with("no read-ahead") && said.why.contains("POSIX_FADV_RANDOM"), "{said:?}");
        assert_eq!(said.better, "leave alone: the program has chosen");
        let mapped = OpenFile { window: Some(STREAM), mapping_advice: Some(Advice::Random), ..OpenFile::default() };
        assert!(explain(&mapped, None, None, None).why.contains("MADV_RANDOM"));
    }

    /// Regression: "it was not read", during 974 major faults.
    #[test]
    fn faults_that_cause_no_decision_are_not_denied() {
        let unused = Window { limit_pages: 32, disk_limit_pages: 32, ..Window::default() };
        let counted = Some(Counted::default());
        let file =
            OpenFile { window: Some(unused), mapping_advice: Some(Advice::Random), counted, ..OpenFile::default() };
        let said = |file: &OpenFile, faults| explain(file, Some(Duration::from_secs(1)), None, faults);
        let some = said(&file, Some(974));
        assert!(some.now.ends_with("leaves no trace here"), "{}", some.now);
        let seen = "in 1.00 s: no access to an absent page was seen; not seen: faults of a mapping with MADV_RANDOM cause no decision; its \
                    process had 974 major faults, each of which waited for a page";
        assert_eq!(some.seen, seen);
        assert!(some.better.contains("no MADV_RANDOM"), "{}", some.better);
        let none = said(&file, Some(0));
        assert!(
            none.seen.ends_with("(0 major faults)") && none.better == "leave alone: the program has chosen",
            "{none:?}"
        );
        let off = OpenFile { window: Some(Window::default()), mapping_advice: None, ..file.clone() };
        let said = said(&off, None);
        assert!(said.seen.contains("where the window is 0; the major faults of its process are not known"), "{said:?}");
        for text in [said.now, said.better, some.now] {
            assert!(!text.contains("not read") && !text.contains("nothing"), "{text}");
        }
    }

    #[test]
    fn every_pattern_and_state_has_sentences() {
        for pattern in Pattern::ALL {
            for window in [STREAM, Window::default(), Window { mapped_misses: 101, ..STREAM }] {
                for counted in
                    [counted(0, 0, 0), counted(1000, 10, 900), Counted { thrashed_pages: 7, ..Counted::default() }]
                {
                    let said = explained(pattern, window, counted);
                    for text in [&said.now, &said.why, &said.seen, &said.better] {
                        assert!(!text.is_empty() && !text.ends_with('.') && !text.contains("  "), "{pattern}: {text}");
                    }
                }
            }
        }
        let said = explain(&OpenFile::default(), None, None, None);
        assert!(said.seen.contains("nothing was counted") && said.better.contains("--interval"), "{said:?}");
    }
}

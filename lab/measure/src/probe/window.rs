//! Read-ahead of a sequential reader: the size of the first window, its growth, its maximum, and the page that triggers the next window.
//! Also the maximum number of bytes that one explicit request reads.
//!
//! A reader reads the file page by page. The cached range grows in steps:
//!
//! ```text
//!     page read    0        1           4              12
//!     cached       4 ───────12 ─────────28 ────────────60 ──▶       a step: the page that was read, the end before and after
//!                  first    trigger: the distance in pages from the page that made it grow to the end
//! ```
//!
//! Repeated steps give the window. This holds also on kernels that read each window when the reader has used up the last one.

use crate::probe::Run;
use crate::probe::answer::{Answer, How, Value, agreement};
use crate::probe::error::Result;
use crate::probe::eyes::{Eyes, Ran, count};
use crate::probe::statistics::most_frequent;
use crate::probe::subject::PAGE_BYTES;
use ahead_sys::cache;
use serde::Serialize;

/// Number of compared runs.
const RUNS: usize = 3;
/// Number of equal steps in a row that make a window: growing windows are never equal.
const STEADY: usize = 3;
/// Pages of a read that exceeds a window of one page, and so shows whether there is a window.
const LARGE_READ: u64 = 8;

/// The reason why there is no answer about windows.
pub(crate) const BRINGS_BLOCKS: &str = "its file system brings whole blocks of its own around a page that is read alone (squashfs, compressed \
                                        files, blocks larger than a page): that is not what the kernel reads ahead";

/// A growth of the cached range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The page whose read caused the growth.
    pub page: u64,
    /// End of the cached range before (the first absent page).
    pub from: u64,
    /// End of the cached range after.
    pub to: u64,
}

impl Step {
    fn pages(self) -> u64 {
        self.to - self.from
    }

    /// Distance from the read page to the previous end, pages.
    fn before_end(self) -> u64 {
        self.from.saturating_sub(self.page)
    }
}

/// The answers about a sequential reader.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Windows {
    /// The largest window, bytes.
    pub window: Answer,
    /// The first window of a file that is read from its beginning page by page, bytes.
    pub initial_window: Answer,
    /// All windows up to the largest, bytes.
    pub growth: Vec<u64>,
    /// Confidence and method of these windows.
    pub growth_by: How,
    /// Distance from the page that triggers the next window to the end of the range that was read ahead, bytes.
    pub trigger: Answer,
    /// The largest request that the page cache sends, bytes.
    pub max_request: Answer,
    /// Maximum number of bytes that one call of WILLNEED reads.
    pub willneed_cap: Answer,
}

impl Windows {
    /// Results without values, with the reason.
    pub(crate) fn unknown(why: &str) -> Windows {
        let none = || Answer::none("bytes", why);
        Windows {
            window: none(),
            initial_window: none(),
            growth: Vec::new(),
            growth_by: How::none(why),
            trigger: none(),
            max_request: none(),
            willneed_cap: none(),
        }
    }

    /// Removes the answers that timing alone gives if two experiments disagree. On every kernel since 2.6.30 the read-ahead around a
    /// fault is as large as the window. If the two differ, another cause made reads slow, and no answer is certain. `is_served`: a FUSE
    /// server answers. The kernel cuts the request by the optional quarter there while many requests are in flight (`fuse_readahead`).
    pub(crate) fn doubt(&mut self, read_around: &Answer, is_served: bool) {
        let (window, around) = (self.window.whole(), read_around.whole());
        let agree = |window: u64, around: u64| {
            let window = window.max(PAGE_BYTES);
            let least = if is_served { window - window / 4 } else { window };
            (least..=window).contains(&around)
        };
        if window.zip(around).is_some_and(|(window, around)| agree(window, around)) {
            return;
        }
        let [by_steps, by_fault] =
            [window, around].map(|bytes| bytes.map_or("unknown".to_owned(), |bytes| format!("{bytes} bytes")));
        let why = format!(
            "timing: by steps the window is {by_steps}, by a fault {by_fault}: something else disturbs the times"
        );
        let answers = [
            &mut self.window,
            &mut self.trigger,
            &mut self.initial_window,
            &mut self.max_request,
            &mut self.willneed_cap,
        ];
        for answer in answers {
            *answer = Answer::none("bytes", why.clone());
        }
        self.growth.clear();
        self.growth_by = How::none(why);
    }
}

/// Finds all answers.
pub fn find(run: &Run, eyes: Eyes) -> Result<Windows> {
    let seen = see(run, eyes)?;
    let (mut window, mut trigger) = steady_answers(run, eyes, &seen)?;
    let willneed_cap = willneed_cap(run, eyes, false)?;
    let doubled = willneed_cap_doubled(run, eyes, &willneed_cap)?;
    if let Some(by_cap) = doubled.filter(|by_cap| by_cap.whole() > window.whole()) {
        trigger = trigger_of_growth(eyes, &seen, &by_cap);
        window = by_cap;
    }
    let initial_window = first_answer(eyes, &seen, &window);
    let (growth, growth_by) = growth(eyes, &seen, &window);
    let max_request = max_request(run, &window, &willneed_cap)?;
    Ok(Windows { window, initial_window, growth, growth_by, trigger, max_request, willneed_cap })
}

/// Whether a page arrives together with its neighbour without read-ahead. If so, every window ends at the end of a block of the file
/// system. Then neither its length nor its beginning is that of the kernel's window.
pub(crate) fn brings_blocks(run: &Run, eyes: Eyes) -> Result<bool> {
    // Neither the first page of a block of any length, nor the last.
    let page = (run.subject.pages() / 2) | 1;
    let read_one = || {
        run.subject.make_cold(run.watcher)?;
        let (reader, look) = (run.subject.open_exact()?, run.subject.open_exact()?);
        run.subject.read_page(&reader, page)?;
        Ok(Ran { look, _reader: reader, _mapping: None })
    };
    Ok(eyes.is_there(run.subject, page - 1, &read_one)? && eyes.is_there(run.subject, page - 1, &read_one)?)
}

/// Window and trigger from the steps that repeat.
fn steady_answers(run: &Run, eyes: Eyes, seen: &WindowSeen) -> Result<(Answer, Answer)> {
    let sizes: Vec<u64> = seen.lasts.iter().map(|step| step.pages()).collect();
    let distances: Vec<u64> = seen.lasts.iter().map(|step| step.before_end()).collect();
    let (Some((pages, mut votes)), Some((distance, mut distance_votes))) =
        (most_frequent(&sizes), most_frequent(&distances))
    else {
        let why = format!("no {STEADY} equal steps within the test file: the window is larger than a quarter of it");
        return Ok((Answer::none("bytes", why.clone()), Answer::none("bytes", why)));
    };
    // A run without equal steps counts as the same number of observations that disagree.
    let others = STEADY as u64 * seen.unsteady;
    (votes.1, distance_votes.1) = (votes.1 + others, distance_votes.1 + others);
    let method = |what: &str| format!("{}: {what} while a reader goes from page to page, {RUNS} runs", eyes.name());
    if pages <= 1 {
        return without_window(run, eyes);
    }
    Ok((
        Answer::counted(pages * PAGE_BYTES, "bytes", votes, method("what is cached grows by this")),
        Answer::counted(distance * PAGE_BYTES, "bytes", distance_votes, method("it grows this far before its end")),
    ))
}

/// Answers for steps of one page: there is no read-ahead, or a window of a page. Only with a window does a read of several pages bring
/// more.
fn without_window(run: &Run, eyes: Eyes) -> Result<(Answer, Answer)> {
    let mut more = Vec::new();
    for _ in 0..RUNS {
        more.push(u64::from(eyes.is_there(run.subject, LARGE_READ, &|| {
            run.subject.make_cold(run.watcher)?;
            let (_reader, look) = (run.subject.open()?, run.subject.open_exact()?);
            run.subject.read(&_reader, 0, (LARGE_READ * PAGE_BYTES) as usize)?;
            Ok(Ran { look, _reader, _mapping: None })
        })?));
    }
    let (pages, votes) = most_frequent(&more).expect("there were runs");
    let method = format!(
        "{}: each page comes alone; a read of {LARGE_READ} pages brings {}",
        eyes.name(),
        match pages {
            0 => "no more",
            _ => "more",
        }
    );
    let trigger = Answer::none("bytes", "nothing is read ahead");
    Ok((Answer::counted(pages * PAGE_BYTES, "bytes", votes, method), trigger))
}

fn first_answer(eyes: Eyes, seen: &WindowSeen, window: &Answer) -> Answer {
    match most_frequent(&seen.firsts) {
        _ if window.whole() == Some(0) => Answer::none("bytes", "nothing is read ahead"),
        Some((pages, (agree, all))) => {
            let method = format!("{}: bytes read by the read of the first page, {RUNS} runs", eyes.name());
            Answer::counted(pages * PAGE_BYTES, "bytes", (agree, all + seen.blind_runs()), method)
        }
        None => Answer::none("bytes", "the test file is too small"),
    }
}

/// All windows up to the largest, from the first run, and the number of followed runs that show the same windows.
fn growth(eyes: Eyes, seen: &WindowSeen, window: &Answer) -> (Vec<u64>, How) {
    let largest = window.whole().map_or(u64::MAX, |bytes| bytes / PAGE_BYTES);
    let up_to_largest = |steps: &Vec<Step>| -> Vec<u64> {
        let grows = steps.iter().position(|step| step.pages() >= largest).map_or(steps.len(), |at| at + 1);
        steps[..grows].iter().map(|step| step.pages() * PAGE_BYTES).collect()
    };
    let all: Vec<Vec<u64>> = seen.runs.iter().map(up_to_largest).collect();
    let growth = all.first().cloned().unwrap_or_default();
    if growth.is_empty() {
        return (growth, How::none("the test file is too small"));
    }
    // A window that shrinks during growth, or exceeds the largest, is a time that was long for another reason.
    let grows = growth.is_sorted() && growth.last().is_none_or(|last| *last <= largest.saturating_mul(PAGE_BYTES));
    if eyes != Eyes::Asking && !grows {
        let why = "timing: windows shrink while they grow: something else disturbs the times";
        return (Vec::new(), How::none(why));
    }
    let agree = all.iter().filter(|other| **other == growth).count() as u64;
    let method = format!("{}: the steps of a reader that goes from page to page, {} runs", eyes.name(), all.len());
    (growth, How { confidence: Some(agreement(agree, all.len() as u64)), method })
}

/// The last steps, if they are equal.
fn steady(steps: &[Step]) -> Option<&[Step]> {
    let last = &steps[steps.len().checked_sub(STEADY)?..];
    let alike = |step: &Step| (step.pages(), step.before_end()) == (last[0].pages(), last[0].before_end());
    last.iter().all(alike).then_some(last)
}

/// The observations of several runs.
#[derive(Default)]
struct WindowSeen {
    /// Runs whose steps were followed from the first one on.
    runs: Vec<Vec<Step>>,
    /// Pages of the first step of each run.
    firsts: Vec<u64>,
    /// Repeated steps of all runs.
    lasts: Vec<Step>,
    /// Number of runs without repeated steps.
    unsteady: u64,
}

impl WindowSeen {
    fn add(&mut self, steps: Vec<Step>) {
        self.firsts.extend(steps.first().map(|step| step.pages()));
        let last = steady(&steps);
        self.unsteady += u64::from(last.is_none());
        self.lasts.extend(last.into_iter().flatten());
        self.runs.push(steps);
    }

    /// Number of runs without a step.
    fn blind_runs(&self) -> u64 {
        self.runs.iter().filter(|steps| steps.is_empty()).count() as u64
    }

    /// Records a run in which timing found the first and the last step again.
    fn again(&mut self, first: Step, last: Step) {
        self.firsts.push(first.pages());
        self.lasts.push(last);
    }
}

/// Makes several runs. Timing finds all steps only once. After that it checks the first and the last step, which takes a tenth of the
/// time. If the check fails, timing finds all steps again.
fn see(run: &Run, eyes: Eyes) -> Result<WindowSeen> {
    let mut seen = WindowSeen::default();
    for _ in 0..RUNS {
        run.watcher.go_on("read-ahead of a sequential reader")?;
        if eyes == Eyes::Asking {
            seen.add(asked_steps(run)?);
            continue;
        }
        let found = seen.runs.last().and_then(|steps| Some((steps[0], *steady(steps)?.last()?)));
        match found {
            Some((first, last)) if is_seen_again(run, eyes, first, last)? => seen.again(first, last),
            _ => seen.add(timed_steps(run, eyes)?),
        }
    }
    Ok(seen)
}

/// Whether the first page still triggers the first step, and whether the last step is triggered by its page and not by the page before.
fn is_seen_again(run: &Run, eyes: Eyes, first: Step, last: Step) -> Result<bool> {
    let brings = |reads: u64, step: Step| eyes.ends_at(run.subject, step.to, step.pages(), &|| read_pages(run, reads));
    Ok(brings(1, first)?
        && brings(last.page + 1, last)?
        && !eyes.is_there(run.subject, last.from, &|| read_pages(run, last.page))?)
}

/// Makes one run, with a query after each page.
fn asked_steps(run: &Run) -> Result<Vec<Step>> {
    let subject = run.subject;
    subject.make_cold(run.watcher)?;
    let (reader, look) = (subject.open()?, subject.open_exact()?);
    let (mut steps, mut end) = (Vec::new(), 0);
    for page in 0..subject.pages() {
        subject.read_page(&reader, page)?;
        let now = end + count(&look, end, subject.pages())?;
        if now == subject.pages() {
            break;
        }
        if now > end {
            steps.push(Step { page, from: end, to: now });
            end = now;
            if steady(&steps).is_some() {
                break;
            }
        }
    }
    Ok(steps)
}

/// Makes a new run for each test, because a test changes the cache.
fn timed_steps(run: &Run, eyes: Eyes) -> Result<Vec<Step>> {
    /// Steps up to the largest window, and some that repeat: doubling from a page to a gigabyte takes fewer steps.
    const MOST_STEPS: usize = 24;
    let pages = run.subject.pages();
    let to = end_after(run, eyes, 1, 1)?;
    let mut steps = vec![Step { page: 0, from: 0, to }];
    while steady(&steps).is_none() && steps.len() < MOST_STEPS {
        let last = steps[steps.len() - 1];
        if last.to + 1 >= pages {
            break;
        }
        let step = next_step(run, eyes, last)?;
        if step.to >= pages {
            break;
        }
        steps.push(step);
    }
    Ok(steps)
}

/// The step after the last one: the first page whose read makes the cached range grow, and its new end.
fn next_step(run: &Run, eyes: Eyes, last: Step) -> Result<Step> {
    let grows = |reads: u64| eyes.is_there(run.subject, last.to, &|| read_pages(run, reads));
    // Reads of `low` pages cause no growth, reads of `high` pages do: the first absent page has to be read.
    let (mut low, mut high) = (last.page + 1, last.to + 1);
    // The first page of the newest window is the trigger of most kernels.
    let page = last.from.max(low);
    let mut to = end_after(run, eyes, last.to.max(page + 1), page + 1)?;
    if to > last.to {
        high = page + 1;
        if page > low && !grows(page)? {
            low = page;
        }
    } else {
        low = page + 1;
    }
    while low + 1 < high {
        let middle = (low + high) / 2;
        if grows(middle)? { high = middle } else { low = middle }
    }
    if high != page + 1 {
        to = end_after(run, eyes, last.to.max(high), high)?;
    }
    Ok(Step { page: high - 1, from: last.to, to })
}

/// The end of the cached pages after `reads` reads of one page each; all pages up to `known` are cached.
fn end_after(run: &Run, eyes: Eyes, known: u64, reads: u64) -> Result<u64> {
    eyes.end_of_cached(run.subject, known, run.subject.pages(), &|| read_pages(run, reads))
}

/// Reads the first `reads` pages of the cold file one by one.
fn read_pages(run: &Run, reads: u64) -> Result<Ran> {
    let subject = run.subject;
    run.watcher.go_on("read-ahead of a sequential reader, by timing")?;
    subject.make_cold(run.watcher)?;
    let (_reader, look) = (subject.open()?, subject.open_exact()?);
    for page in 0..reads.min(subject.pages()) {
        subject.read_page(&_reader, page)?;
    }
    Ok(Ran { look, _reader, _mapping: None })
}

/// The window by two explicit requests: the kernel cuts each at the window or the largest request. Advice of sequential reading doubles
/// the window, not the request. `None`: both requests read the same, because the window is no more than half of the request.
///
/// A file system may cut windows while many requests are in flight (FUSE does above `congestion_threshold`). Such a file system does not
/// cut explicit requests.
fn willneed_cap_doubled(run: &Run, eyes: Eyes, cap: &Answer) -> Result<Option<Answer>> {
    let doubled = willneed_cap(run, eyes, true)?;
    let (Some(cap_bytes), Some(bytes)) = (cap.whole(), doubled.whole()) else { return Ok(None) };
    let method = format!(
        "{}: half of the bytes read by one WILLNEED after advice of sequential reading, {RUNS} runs",
        eyes.name()
    );
    Ok((bytes > cap_bytes).then_some(Answer { method, value: Some(Value::Whole(bytes / 2)), ..doubled }))
}

/// The trigger if the largest windows arrive in pieces: whether it was the first page of the newest window during growth.
fn trigger_of_growth(eyes: Eyes, seen: &WindowSeen, window: &Answer) -> Answer {
    /// Steps of growth after which windows are still small on every kernel.
    const SMALL: usize = 3;
    let pairs = seen.runs.iter().flat_map(|steps| steps.windows(2).skip(1).take(SMALL));
    let firsts: Vec<bool> = pairs.map(|pair| pair[1].page == pair[0].from).collect();
    let all = firsts.len() as u64;
    match window.whole().filter(|_| all > 0 && firsts.iter().all(|is_first| *is_first)) {
        Some(bytes) => {
            let method =
                format!("{}: the first page of the newest window, as in those that grew ({all} seen)", eyes.name());
            Answer::counted(bytes, "bytes", (all, all), method)
        }
        None => {
            Answer::none("bytes", "the largest windows come in pieces, and the page that triggers them is not the same")
        }
    }
}

/// One call for the whole file, with a doubled window if `is_doubled`.
fn willneed_cap(run: &Run, eyes: Eyes, is_doubled: bool) -> Result<Answer> {
    let subject = run.subject;
    let mut ends = Vec::new();
    for _ in 0..RUNS {
        run.watcher.go_on("what an explicit request brings")?;
        ends.push(eyes.end_of_cached(subject, 0, subject.pages(), &|| {
            subject.make_cold(run.watcher)?;
            let (_reader, look) = (subject.open()?, subject.open_exact()?);
            if is_doubled {
                cache::sequential_reads(&_reader)?;
            }
            cache::read_ahead(&_reader, 0, subject.pages() * PAGE_BYTES)?;
            Ok(Ran { look, _reader, _mapping: None })
        })?);
    }
    let (pages, votes) = most_frequent(&ends).expect("there were runs");
    if pages >= subject.pages() {
        let why = format!(
            "the whole test file ({} bytes) was read: the value is at least that",
            subject.pages() * PAGE_BYTES
        );
        return Ok(Answer::none("bytes", why));
    }
    let method = format!("{}: bytes read by one call for the whole file, {RUNS} runs", eyes.name());
    Ok(Answer::counted(pages * PAGE_BYTES, "bytes", votes, method))
}

/// The kernel cuts an explicit request at the window or the largest request, whichever is larger: the smaller one is invisible.
fn max_request(run: &Run, window: &Answer, cap: &Answer) -> Result<Answer> {
    let none = |why: &str| Ok(Answer::none("bytes", why));
    let (Some(window_bytes), Some(cap_bytes)) = (window.whole(), cap.whole()) else {
        return none("neither the window nor what one WILLNEED brings is known");
    };
    if run.subject.device_number()?.is_anonymous() {
        return none("there is no block device behind this file system that requests go to");
    }
    if cap_bytes <= window_bytes {
        return none("the window is at least as large, and hides it");
    }
    let confidence = cap.confidence;
    let method = "bytes read by one WILLNEED, which is more than the window".to_owned();
    Ok(Answer { confidence, method, ..cap.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(page: u64, from: u64, to: u64) -> Step {
        Step { page, from, to }
    }

    /// Regression: on a mount whose server has a cache one WILLNEED seemed to read nothing.
    #[test]
    fn timing_gives_no_answer_unless_two_experiments_agree() {
        let counted = |bytes| Answer::counted(bytes, "bytes", (3, 3), "");
        let windows = |window: Answer| Windows { window, willneed_cap: counted(0), ..Windows::unknown("") };
        for (window, around, is_served, is_certain) in [
            (counted(8192), counted(8192), false, true),
            (counted(0), counted(4096), false, true),
            (counted(8192), counted(4096), false, false),
            (Answer::none("bytes", ""), counted(4096), false, false),
            (counted(8192), Answer::none("bytes", ""), false, false),
            (counted(65536), counted(49152), false, false),
            (counted(65536), counted(49152), true, true),
            (counted(65536), counted(45056), true, false),
        ] {
            let mut windows = windows(window);
            windows.doubt(&around, is_served);
            assert_eq!(windows.window.value.is_some(), is_certain);
            assert_eq!(windows.willneed_cap.value.is_some(), is_certain);
        }
    }

    #[test]
    fn growing_steps_are_no_window() {
        let grows = [step(0, 0, 4), step(1, 4, 12), step(4, 12, 28), step(12, 28, 60)];
        assert_eq!(steady(&grows), None);
        let ends = [step(12, 28, 60), step(28, 60, 92), step(60, 92, 124), step(92, 124, 156)];
        assert_eq!(steady(&ends), Some(&ends[1..]));
        assert_eq!(steady(&ends[..2]), None);
    }

    fn steps_of(pages: [u64; 4]) -> Vec<Step> {
        let (mut from, mut steps) = (0, Vec::new());
        for pages in pages {
            steps.push(step(from, from, from + pages));
            from += pages;
        }
        steps
    }

    /// Regression: a window of one of three runs had the same confidence as a window of all runs.
    #[test]
    fn runs_without_a_window_reduce_the_confidence() {
        let (mut all, mut one) = (WindowSeen::default(), WindowSeen::default());
        for run in 0..RUNS {
            all.add(steps_of([4, 32, 32, 32]));
            one.add(steps_of(if run == 0 { [4, 32, 32, 32] } else { [4, 8, 16, 24] }));
        }
        assert_eq!((all.unsteady, one.unsteady), (0, 2));
        let window = Answer::counted(32 * PAGE_BYTES, "bytes", (3, 3), "");
        let (growth_of_all, by) = growth(Eyes::Asking, &all, &window);
        assert_eq!(growth_of_all, [4 * PAGE_BYTES, 32 * PAGE_BYTES]);
        assert!(by.confidence > growth(Eyes::Asking, &one, &window).1.confidence);
    }
}

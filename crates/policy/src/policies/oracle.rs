//! `oracle`: a policy that knows every future access. Its gain is a heuristic bound for other policies.
//!
//! ```text
//!     future ──▶ the next accesses of all files, as many pages as memory keeps  ──▶ by position, short gaps bridged
//!                number of pages: the smallest batch at the disk's best rate    ──▶ requests that keep the disk busy
//! ```
//!
//! The next batch is requested when the disk is about to become idle. With several readers, a reader may reach a page
//! that is in no batch. The disk then stays in that file for the reader's share of the memory. To seek for each of many
//! readers in turn, a page at a time, takes longer than to read the whole share. A seek also reads the pages on its
//! path.
//!
//! Pages that were searched and are cached are not searched again, until a page is evicted, a request is dropped, or a
//! reader misses. So the time of all searches is proportional to the number of accesses.
//!
//! The policy is not exactly optimal. It knows only the description of the disk; it knows the order of the accesses and
//! not their times; and the machine decides evictions.

use crate::{
    Access, DeviceDescription, Event, FileId, Found, Page, Parameters, Policy, Request, Requests, View, Wants, WhenFull,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};

/// A page stays cached during the rest of its batch and during the next batch, and memory also holds used pages. A
/// batch and the unread pages before it take this part of the memory: a half.
const MEMORY_SHARE: u64 = 2;
/// Smallest batch for each reader, pages: a first access waits for this number.
const LEAST_BATCH: usize = 32;
/// Minimum length of a request, pages, however fast the disk is.
const LEAST_REQUEST_PAGES: u64 = 64;
/// An idle disk first gets at most this multiple of the pages that it transfers in the time of an access.
const BEGINNING: u64 = 4;
/// A larger batch must be better by this factor: a smaller gain does not justify the wait.
const WORTH: f64 = 0.97;
/// Accesses to search, as a multiple of the pages that may be requested: cached pages need no request.
const HORIZON: u64 = 4;
/// After this number of doublings without a gain the search for larger batches ends.
const PATIENCE: u32 = 3;
/// Requests for each one that the disk serves at a time: one is served and one waits, so that the disk is never idle.
/// `SENT_AT_ONCE`: further requests that are sent together, so that neighbours can be merged.
const DEPTH: u32 = 2;
const SENT_AT_ONCE: u32 = 8;
/// Maximum time of a first batch, in random accesses. Later batches may also take as long as the run has taken so far:
/// a program that waits for a whole batch then loses at most a part of the time.
const FIRST_BATCH: f64 = 8.0;
/// A batch that takes longer must be better by this factor.
const WORTH_WAITING: f64 = 0.85;
/// A file that is read at most this number of accesses later (or within half of the remaining accesses) already counts
/// as having a reader. At the beginning no file has a reader.
const SOON: u64 = 1024;
/// If no page was missing, the oracle searches again after a quarter of the searched accesses.
const LOOK_AGAIN: u64 = 4;
/// Number of accesses for which only missed pages are requested, if memory does not keep pages until their use. The
/// next time it is twice this number, so that a run ends with any memory.
const CAREFUL_FOR: u64 = 64;
/// Minimum cost of a request on a disk with an arm, as a share of a random access: a short seek and part of a
/// revolution.
const SHORT_SEEK: f64 = 0.35;
/// Distance from which a seek takes as long as a random access, pages: a third of the 64 GiB for which `access_ns` is
/// given. Up to this distance the time grows with the square root of the distance (Ruemmler and Wilkes, An introduction
/// to disk drive modeling, 1994).
const FAR_PAGES: f64 = 5_592_405.0;

/// Accesses that may be skipped at a time, because a fault has mapped their pages (`fault_around_bytes`, and blocks
/// that were mapped before).
const MOST_SKIPPED: usize = 4096;
/// An access outside these is a stray. After it, the oracle searches the full distance for only one in 64 of the next
/// accesses, and a 64th of it for the others. A reader that differs from the forecast usually continues to differ.
const STRAYS: usize = 64;

/// The future accesses to a file.
#[derive(Clone, Debug, Default)]
struct Future {
    /// Each access: its position among the accesses to all files, and its page.
    accesses: Vec<(u64, Page)>,
    /// The next access.
    now: usize,
    /// The first access that is not planned yet: the pages before it are requested, or were cached.
    planned: usize,
    /// Some page is accessed more than once.
    repeats: bool,
    /// Number of consecutive accesses that the forecast does not contain.
    strays: usize,
}

impl Future {
    /// The first access that is still to be planned.
    fn next(&self) -> usize {
        self.planned.max(self.now)
    }

    /// Whether the accesses to the file have begun and not ended at this position among all accesses.
    fn spans(&self, place: u64) -> bool {
        let ends = self.accesses.first().zip(self.accesses.last());
        ends.is_some_and(|(first, last)| (first.0..last.0).contains(&place))
    }

    fn has_repeats(&self) -> bool {
        let mut pages: Vec<Page> = self.accesses.iter().map(|(_, page)| *page).collect();
        pages.sort_unstable();
        pages.windows(2).any(|two| two[0] == two[1])
    }
}

/// The clairvoyant policy.
#[derive(Clone, Debug)]
pub struct Oracle {
    files: BTreeMap<FileId, Future>,
    /// Number of all accesses.
    total: u64,
    /// Position of the most advanced program among all accesses.
    front: u64,
    device: DeviceDescription,
    budget_pages: Option<u64>,
    /// Requested pages that are unused.
    unread: HashSet<(FileId, Page)>,
    /// Planned requests that are not sent yet.
    unsent: VecDeque<OracleRun>,
    /// Pages of the last batch, including gaps, for each used page.
    blowup: f64,
    /// Number of past accesses, and the number at which the next search for missing pages is due.
    progress: u64,
    rests_until: u64,
    /// Pages that were evicted before their use since a page was last found.
    lost: u64,
    /// While `progress` is less, only missed pages are requested. The second number is the length of the next such
    /// period, accesses.
    careful_until: u64,
    careful_for: u64,
    /// Number of plans, and whether the last search to the limit of memory gained.
    plans: u64,
    far_gains: bool,
}

/// The next pages in the order of their use, and for each searched file the first access that was not searched.
#[derive(Clone, Debug, Default)]
struct OracleNext {
    pages: Vec<(FileId, Page)>,
    looked_to: Vec<(FileId, usize)>,
}

/// Pages that are requested together.
#[derive(Clone, Debug, Default)]
struct Batch {
    runs: Vec<OracleRun>,
    pages: u64,
    cost_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct OracleRun {
    file: FileId,
    first: Page,
    end: Page,
    /// The first use of any page of the run, as an index in the batch.
    first_use: usize,
}

impl OracleRun {
    fn request(self) -> Request {
        let OracleRun { file, first, end, .. } = self;
        Request { first, pages: end - first, when_full: WhenFull::Drop, ..Request::of(file) }
    }
}

impl Oracle {
    /// A policy with this future; without a future it requests only missed pages, like `none`.
    pub fn new(parameters: &Parameters) -> Oracle {
        let mut files: BTreeMap<FileId, Future> = BTreeMap::new();
        for (at, (file, page)) in (0..).zip(parameters.future.iter().flat_map(|future| future.iter())) {
            files.entry(*file).or_default().accesses.push((at, *page));
        }
        files.values_mut().for_each(|future| future.repeats = future.has_repeats());
        Oracle {
            total: files.values().map(|future| future.accesses.len() as u64).sum(),
            files,
            front: 0,
            device: parameters.device,
            budget_pages: parameters.budget_pages,
            unread: HashSet::new(),
            unsent: VecDeque::new(),
            blowup: 1.0,
            progress: 0,
            rests_until: 0,
            lost: 0,
            careful_until: 0,
            careful_for: CAREFUL_FOR,
            plans: 0,
            far_gains: false,
        }
    }

    /// Number of simultaneous readers.
    fn readers(&self) -> u64 {
        let at = |place: u64| self.files.values().filter(|future| future.spans(place)).count() as u64;
        let soon = SOON.min(self.total.saturating_sub(self.front) / 2);
        at(self.front).max(at(self.front + soon)).max(1)
    }

    /// Cost of skipping this number of pages and continuing with a separate request, nanoseconds.
    fn gap_ns(&self, pages: u64) -> f64 {
        if !self.device.has_arm() {
            return self.device.request_ns.saturating_sub(self.device.page_ns()) as f64;
        }
        let far = (pages as f64 / FAR_PAGES).sqrt().min(1.0);
        self.device.access_ns as f64 * (SHORT_SEEK + (1.0 - SHORT_SEEK) * far)
    }

    /// Number of accesses until an access to a file, from the position of the file's reader or from the front,
    /// whichever is less advanced.
    fn distance(&self, future: &Future, at: usize) -> u64 {
        future.accesses[at].0 - self.front.min(future.accesses[future.now].0)
    }

    /// The next absent pages of one file or of all, in the order of their use, at most `most`. The search ends
    /// `farthest` accesses ahead.
    fn next_pages(&self, of: Option<FileId>, most: usize, farthest: u64, view: &dyn View) -> OracleNext {
        let mut heads: BinaryHeap<Reverse<(u64, FileId, usize)>> = BinaryHeap::new();
        let head = |file: FileId, future: &Future, at: usize| {
            (at < future.accesses.len()).then(|| Reverse((self.distance(future, at), file, at)))
        };
        let files = self.files.iter().filter(|(file, _)| of.is_none_or(|of| of == **file));
        heads.extend(files.filter_map(|(file, future)| head(*file, future, future.next())));
        let (mut next, mut taken) = (OracleNext::default(), HashSet::new());
        while next.pages.len() < most
            && let Some(Reverse((distance, file, at))) = heads.peek().copied()
            && distance <= farthest
        {
            heads.pop();
            let future = &self.files[&file];
            let page = future.accesses[at].1;
            if page < view.file_pages(file) && !view.is_present(file, page) && taken.insert((file, page)) {
                next.pages.push((file, page));
            }
            match head(file, future, at + 1) {
                Some(head) => heads.push(head),
                None => next.looked_to.push((file, at + 1)),
            }
        }
        next.looked_to.extend(heads.into_iter().map(|Reverse((_, file, at))| (file, at)));
        next
    }

    /// These pages sorted by position, in runs of at most one request. A gap is included if reading it is cheaper than
    /// a separate request, and if all pages together do not exceed `most`.
    fn batch(&self, pages: &[(FileId, Page)], request_pages: u64, most: u64) -> Batch {
        let mut sorted: Vec<(FileId, Page, usize)> =
            pages.iter().enumerate().map(|(at, (file, page))| (*file, *page, at)).collect();
        sorted.sort_unstable();
        let mut batch = Batch::default();
        let mut spare = most.saturating_sub(pages.len() as u64);
        for (file, page, at) in sorted {
            let before = batch.runs.last_mut().filter(|run| run.file == file);
            let gap = before.as_ref().map_or(0, |run| page - run.end);
            let goes_on = before.is_some() && gap <= spare && (gap * self.device.page_ns()) as f64 <= self.gap_ns(gap);
            let read_pages = 1 + if goes_on { gap } else { 0 };
            batch.pages += read_pages;
            spare -= read_pages - 1;
            batch.cost_ns += (read_pages * self.device.page_ns()) as f64 + if goes_on { 0.0 } else { self.gap_ns(gap) };
            match before {
                Some(run) if goes_on && page - run.first < request_pages => {
                    (run.end, run.first_use) = (page + 1, run.first_use.min(at));
                }
                _ => batch.runs.push(OracleRun { file, first: page + 1 - read_pages, end: page + 1, first_use: at }),
            }
        }
        batch
    }

    fn request_pages(&self, file: FileId, view: &dyn View) -> u64 {
        let longest_pages = view.limits(file).request_pages.max(1);
        let short_pages = self.device.pages_per_access().max(LEAST_REQUEST_PAGES);
        if self.device.has_arm() { longest_pages } else { longest_pages.min(short_pages) }
    }

    /// The smallest batch of next pages at nearly the best rate per page, among those that fit into memory.
    fn best(&mut self, most: u64, view: &dyn View, file: FileId) -> Option<(OracleNext, Batch)> {
        let request_pages = self.request_pages(file, view);
        let longest_ns = FIRST_BATCH * self.device.access_ns as f64 + view.now_ns() as f64;
        let rate = |length: usize, batch: &Batch| batch.cost_ns / length as f64;
        self.plans += 1;
        let patience = if self.far_gains || self.plans.is_power_of_two() { u32::MAX } else { PATIENCE };
        let least = LEAST_BATCH * self.readers() as usize;
        let (mut best, mut length, mut losses) = (None, least.min(most as usize).max(1), 0);
        while losses < patience {
            let next = self.next_pages(None, length.min(most as usize), HORIZON * most, view);
            let count = next.pages.len();
            if count == 0 {
                self.rest(next.looked_to, HORIZON * most);
                return None;
            }
            let batch = self.batch(&next.pages, request_pages, most);
            let is_all = count < length || length as u64 >= most;
            let fits = batch.pages <= most;
            let worth = if batch.cost_ns <= longest_ns { WORTH } else { WORTH_WAITING };
            let gains = best.as_ref().is_none_or(|(before, other): &(OracleNext, Batch)| {
                fits && rate(count, &batch) < rate(before.pages.len(), other) * worth
            });
            losses += 1;
            if gains {
                self.far_gains = losses > PATIENCE;
                (best, losses) = (Some((next, batch)), 0);
            }
            if is_all {
                break;
            }
            length *= 2;
        }
        best
    }

    /// No page is missing among `farthest` accesses. These are not searched again, and later ones only after many of
    /// these accesses were made.
    fn rest(&mut self, looked_to: Vec<(FileId, usize)>, farthest: u64) {
        self.note_looked(looked_to);
        self.rests_until = self.progress + (farthest / LOOK_AGAIN / self.readers()).max(1);
    }

    fn note_looked(&mut self, looked_to: Vec<(FileId, usize)>) {
        for (file, at) in looked_to {
            if let Some(future) = self.files.get_mut(&file) {
                future.planned = future.planned.max(at);
            }
        }
    }

    /// A page of the file that was planned or cached is missing again.
    fn look_again(&mut self, file: FileId) {
        if let Some(future) = self.files.get_mut(&file) {
            future.planned = future.planned.min(future.now);
            self.rests_until = 0;
        }
    }

    /// Maximum number of unread pages, and how many more may be requested.
    fn budget(&self, view: &dyn View) -> (u64, u64) {
        let (memory, unread) = (view.memory(), (self.unread.len() as f64 * self.blowup) as u64);
        let share = (memory.free_pages + memory.inactive_pages) / MEMORY_SHARE;
        // If all remaining pages fit into free memory, no page needs to be evicted for them.
        let left = self.total.saturating_sub(self.progress);
        let own = if left <= memory.free_pages { share.max(left + unread) } else { share };
        let budget = self.budget_pages.unwrap_or(own).max(1);
        (budget, budget.saturating_sub(unread))
    }

    /// Plans the next batch if the previous one has been sent.
    fn plan(&mut self, file: FileId, view: &dyn View) {
        if !self.unsent.is_empty() || self.progress < self.rests_until {
            return;
        }
        let (budget, most) = self.budget(view);
        if most < budget.div_ceil(2) {
            return;
        }
        let Some((next, mut batch)) = self.best(most, view, file) else { return };
        self.blowup = batch.pages as f64 / next.pages.len() as f64;
        self.unread.extend(next.pages);
        self.note_looked(next.looked_to);
        if !self.device.has_arm() {
            batch.runs.sort_unstable_by_key(|run| run.first_use);
        }
        self.unsent.extend(batch.runs);
    }

    /// Plans a reader's share of the memory for this file alone, to be sent before all other requests.
    fn plan_part(&mut self, file: FileId, view: &dyn View) {
        let (budget, most) = self.budget(view);
        let part = (budget / self.readers()).min(most).max(LEAST_BATCH as u64);
        self.unsent.retain(|run| run.file != file);
        let next = self.next_pages(Some(file), part as usize, HORIZON * budget, view);
        let batch = self.batch(&next.pages, self.request_pages(file, view), part);
        self.unread.extend(next.pages);
        self.note_looked(next.looked_to);
        batch.runs.into_iter().rev().for_each(|run| self.unsent.push_front(run));
    }

    /// Whether memory does not keep pages until their use: more pages were lost than the budget contains, and no access
    /// was a hit meanwhile. Then a page that a reader waits for is evicted for other readers' pages, and requested
    /// again.
    fn is_careful(&mut self, view: &dyn View) -> bool {
        if self.lost > self.budget(view).0 {
            self.lost = 0;
            self.careful_until = self.progress.saturating_add(self.careful_for);
            self.careful_for = self.careful_for.saturating_mul(2);
            self.unsent.clear();
        }
        self.progress < self.careful_until
    }

    /// Sends requests that keep the disk busy, up to the budget.
    fn send(&mut self, file: FileId, view: &dyn View, requests: &mut Requests) {
        if self.is_careful(view) {
            return;
        }
        let (queue, depth) = (view.queue(file), self.device.parallelism.saturating_mul(DEPTH));
        if queue.requests >= depth {
            return;
        }
        let room = queue.limit.min(depth + SENT_AT_ONCE).saturating_sub(queue.requests);
        let most = if queue.requests == 0 { BEGINNING * self.device.pages_per_access() } else { u64::MAX };
        let mut pages = 0;
        for _ in 0..room {
            if self.unsent.is_empty() {
                self.plan(file, view);
            }
            let Some(run) = self.unsent.pop_front() else { break };
            pages += run.end - run.first;
            requests.add(run.request());
            if pages >= most {
                break;
            }
        }
    }

    /// A program needs an absent page: the runs from that page on are sent at once. If the page was evicted, or did not
    /// fit, all missing pages are planned again. The page may still be in no batch, because other readers' batches fill
    /// the memory or have not been sent. Then the pages that this reader needs next are planned.
    fn send_first(&mut self, file: FileId, page: Page, view: &dyn View, requests: &mut Requests) {
        if self.is_careful(view) {
            self.look_again(file);
            requests.add(Request { first: page, pages: 1, when_full: WhenFull::Wait, ..Request::of(file) });
            return;
        }
        let holds = |run: &OracleRun| run.file == file && (run.first..run.end).contains(&page);
        if !self.unsent.iter().any(holds) {
            self.look_again(file);
            let others = self.readers() > 1;
            // The arm stays for the next pages of this reader; the best batch for all readers would move it to the
            // other files.
            if !(others && self.device.has_arm()) {
                self.plan(file, view);
            }
            if others && !self.unsent.iter().any(holds) {
                self.plan_part(file, view);
            }
        }
        let Some(at) = self.unsent.iter().position(holds) else { return };
        // If an arm has to seek to the page, it stays for the pages after it.
        let most = if self.device.has_arm() { usize::MAX } else { 1 };
        let length = self.unsent.range(at..).take(most).take_while(|run| run.file == file).count();
        // With other readers, the seek also reads the pages on its path: otherwise the disk would have to seek back for
        // them.
        let queue = view.queue(file);
        let room = queue.limit.saturating_sub(queue.requests) as usize;
        let from = if self.device.has_arm() && self.readers() > 1 && at + length <= room { 0 } else { at };
        let when_full = if self.device.has_arm() { WhenFull::WaitForAll } else { WhenFull::Wait };
        for run in self.unsent.drain(from..at + length) {
            requests.add(Request { when_full, ..run.request() });
        }
    }

    /// The program accessed this page. No event reports the further pages that a fault maps. An access outside the
    /// forecast changes nothing else.
    fn went(&mut self, file: FileId, page: Page) {
        let Some(future) = self.files.get_mut(&file) else { return };
        self.unread.remove(&(file, page));
        let rest = &future.accesses[future.now..];
        let most = if future.strays.is_multiple_of(STRAYS) { MOST_SKIPPED } else { MOST_SKIPPED / STRAYS };
        let Some(skipped) = rest.iter().take(most).position(|(_, next)| *next == page) else {
            future.strays += 1;
            return;
        };
        for (_, page) in &rest[..skipped] {
            self.unread.remove(&(file, *page));
        }
        self.front = self.front.max(rest[skipped].0 + 1);
        self.progress += skipped as u64 + 1;
        future.now += skipped + 1;
        future.strays = 0;
    }
}

impl Policy for Oracle {
    fn wants(&self) -> Wants {
        Wants { pages: true, faults: true, arrivals: true, evictions: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        if access.found == Found::Absent {
            self.send_first(access.file, access.page, view, requests);
        } else {
            self.lost = 0;
        }
        self.went(access.file, access.page);
        self.send(access.file, view, requests);
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        match event {
            Event::Arrived { file, .. } => self.send(*file, view, requests),
            Event::Dropped { file, first, pages, .. } => {
                for page in *first..first + pages {
                    self.unread.remove(&(*file, page));
                }
                self.look_again(*file);
            }
            Event::Evicted { file, page, unused } => {
                let was_planned = self.unread.remove(&(*file, *page));
                self.lost += u64::from(*unused);
                if (*unused && was_planned) || self.files.get(file).is_some_and(|future| future.repeats) {
                    self.look_again(*file);
                }
            }
            _ => {}
        }
    }
}

//! `ahead`: the policy of this project. It predicts by access patterns, not by file positions. The read-ahead distance grows
//! when a reader had to wait, and shrinks when pages were evicted before their use.
//!
//! Each file has several streams, shared by all its readers and open files. A stream is a pattern that has repeated:
//!
//! ```text
//!     forwards    ■■■■▶■■■■▶■■■■▶         step = length
//!     backwards   ◀■■■■◀■■■■◀■■■■         step = − length
//!     stride      ■──▶■──▶■──▶            any other step, three times the same
//!     skipping    ■─▶■▶■───▶■─▶           upwards with different gaps, all of them short
//!     of runs     ◀■■▶■■▶ ◀■■▶■■▶         any of these with several accesses in each step, as page faults make them
//!     interleaved                         several streams; an access belongs to the stream whose next step it is
//!     none        ■      ■■    ■          pages around the access, or the whole file in parts if it fits: `whole`
//! ```
//!
//! The decisions:
//!
//! - **Start threshold.** Read-ahead starts when a pattern is confirmed: by an access to the first page of the file, by two
//!   consecutive accesses forwards, or by three accesses of any other pattern. After patterns of the file were abandoned,
//!   more accesses are needed. Without a pattern, the size of the file decides:
//!   - The disk transfers it in the time of one access: it is read whole, from the first page or the first miss on.
//!   - It fits into the budget: the pages around the first faults are read, and after some misses groups of pages.
//!   - It does not fit: only the requested pages are read.
//! - **First distance.** The first read-ahead, which is requested together with a miss, may take as long as the miss. If its
//!   pages are not used, at most half of the time is wasted (Li and others, 2007). If the recent files were closed after
//!   their first access, the first distance is that of Linux.
//! - **Request size and distance are separate.** The size of a request follows from latency × bandwidth: the disk's
//!   latency is then a small part of the request's time. The *distance* is the number of pages in flight or unread. The next
//!   request is sent when one request's length of the distance is used up; for a short distance, when half of it is. If
//!   several files compete for a disk with a head, requests are longer and are queued whole. In pieces, they would
//!   alternate with requests for other files, and each piece would cost a seek.
//! - **Only waits increase the distance.** The first wait sets it to what the disk transfers during an access. Further waits
//!   increase it up to what keeps the disk busy. It shrinks by an eighth after a long time without a wait. After a miss, the
//!   pages that were expected to be cached ahead count as absent.
//! - **A jump starts a new stream.** It may come from another reader. The new stream stores the stream that it may have come
//!   from. The old stream stays and waits for its own next access.
//! - **Gaps are read if that is cheaper.** The pages between two steps are read, too, if a request costs the disk more than
//!   these pages. In a mapping, a step has at least the length that a fault maps.
//! - **The cached history limits the distance.** If memory is short, the distance is at most the number of pages that are still
//!   cached behind the reader: pages live about as long before the reader as behind it (Wu's lower bound of the thrashing
//!   threshold). An eviction of an unused page halves the distance.
//! - **One budget for all streams.** All streams together stay below a share of the memory. Each file may use its part of it,
//!   even if other files have used more than theirs. A stream without an access for a long time does not count.
//!
//! The policy sets no marks, because it receives every call. A page cache that reports only misses can use it, too; then it
//! reacts later.

mod file;
mod stream;
mod whole;

use crate::{
    Access, Advice, By, DeviceDescription, Event, FileId, Found, OpenId, Page, Parameters, Policy, Request, Requests,
    View, Wants,
};
use file::{File, MOST_FAILURES, Pending, RUNS};
use std::collections::HashMap;
use stream::{Stream, Way};

/// On a disk that serves one request at a time, a request has this multiple of the pages that the disk transfers during an
/// access: the transfer is then four fifths of its time. On a disk that serves several requests at a time, one is enough.
const SIZE_IN_ACCESSES: u64 = 4;
/// Shortest request of a sequential stream: 128 KiB, the classic window.
const LEAST_SIZE_PAGES: u64 = 32;
/// Longest request: 8 MiB.
const MOST_SIZE_PAGES: u64 = 2048;
/// If files compete for a disk with a head, each change from one file to another costs an access. With requests as long as this
/// number of accesses, the disk loses one or two parts in 41: a seek between files is longer than the measured one in a file.
const SIZE_AMONG_FILES: u64 = 40;
/// Longest request in that case: 64 MiB.
const MOST_SIZE_AMONG_FILES_PAGES: u64 = 16384;
/// Requests of a sequential stream that are in flight or unread: one is being read, one is cached, one is in flight.
const REQUESTS_AHEAD: u64 = 3;
/// The same if files compete: one is being read while the others are served, one is in flight. Pages that arrive too early are
/// evicted again.
const REQUESTS_AMONG_FILES: u64 = 2;
/// The first distance, in lengths of the access: that of Linux (`get_init_ra_size`).
const FIRST_LENGTHS: u64 = 4;
/// Cached pages that a fault maps at once (`fault_around_bytes` in mm/memory.c, 64 KiB).
const FAULT_AROUND_PAGES: u64 = 16;
/// Most pages around a fault: what the disk transfers in this part of an access, a quarter.
const AROUND_SHARE: u64 = 4;
/// Reclaim gives pages that were accessed through a mapping a second round on the inactive list. It evicts unread pages
/// in the first round (`folio_check_references` in mm/vmscan.c). With `h` pages behind the reader and `d` unread ones,
/// a round of the list takes `(h + d) / 2` pages. As without a mapping, a quarter of it may be unread: a third of `h`.
const MAPPED_ROUNDS: u64 = 3;
/// After this multiple of the distance without a wait, the distance falls.
const HOLD_OFF: u64 = 16;
/// Share of the memory for unread pages, unless a budget is given: a quarter.
const MEMORY_SHARE: u64 = 4;

/// Number of first faults of a file whose neighbouring pages are read, as the kernel does for up to a hundred
/// (`do_sync_mmap_readahead`). After these, each block length and each step between blocks has occurred twice.
const MOST_AROUNDS: u32 = 2 * RUNS as u32;

/// The policy `ahead`.
#[derive(Clone, Debug)]
pub struct Ahead {
    device: DeviceDescription,
    budget_pages: Option<u64>,
    files: HashMap<FileId, File>,
    opened: HashMap<OpenId, FileId>,
    /// How often each file is open.
    openings: HashMap<FileId, u32>,
    /// The sum over all files.
    pending: Pending,
    /// Consecutive files that were closed after their first access, although more of them had been read ahead.
    left_early: u32,
    /// The disk's idle time before this moment is assigned to a stream already, nanoseconds.
    idle_until_ns: u64,
}

impl Ahead {
    /// A policy for this disk and budget.
    pub fn new(parameters: &Parameters) -> Ahead {
        Ahead {
            device: parameters.device,
            budget_pages: parameters.budget_pages,
            files: HashMap::new(),
            opened: HashMap::new(),
            openings: HashMap::new(),
            pending: Pending::default(),
            left_early: 0,
            idle_until_ns: 0,
        }
    }

    /// Length of a request of a sequential stream.
    fn size(&self) -> u64 {
        let (accesses, most) = if self.is_contended() {
            (SIZE_AMONG_FILES, MOST_SIZE_AMONG_FILES_PAGES)
        } else if self.device.parallelism > 1 {
            (1, MOST_SIZE_PAGES)
        } else {
            (SIZE_IN_ACCESSES, MOST_SIZE_PAGES)
        };
        (accesses * self.device.pages_per_access()).clamp(LEAST_SIZE_PAGES, most)
    }

    /// Whether other files compete with this one for a disk that serves one request at a time.
    fn is_contended(&self) -> bool {
        self.device.parallelism == 1 && self.pending.files > 0
    }

    /// The largest useful distance, which keeps the disk busy: some requests of a sequential stream; of any other, twice the
    /// number of requests that the disk serves at once.
    fn most(&self, stream: &Stream) -> u64 {
        match stream.way(&self.device) {
            Way::Up | Way::Down if self.is_contended() => REQUESTS_AMONG_FILES * self.size(),
            Way::Up | Way::Down => REQUESTS_AHEAD * self.size(),
            Way::Steps => 2 * u64::from(self.device.parallelism).max(4) * stream.at.length,
        }
    }

    /// Pages that a stream may have unread: the rest of the budget, but at least the part of its file, so that the first stream
    /// does not starve the others. `beside`: unread pages of the file's other streams.
    fn room(&self, beside: u64, view: &dyn View) -> u64 {
        let memory = view.memory();
        let all = memory.free_pages + memory.inactive_pages + memory.active_pages;
        let budget = self.budget_pages.unwrap_or(all / MEMORY_SHARE);
        let part = budget / (self.pending.files + 1);
        budget.saturating_sub(self.pending.ahead).max(part).saturating_sub(beside)
    }

    /// Pages that a whole file may have unread. It may fill free memory, because that evicts no used page.
    fn room_for_whole(&self, own: Pending, view: &dyn View) -> u64 {
        let memory = view.memory();
        let all = memory.free_pages + memory.inactive_pages + memory.active_pages;
        let share = (all / MEMORY_SHARE).max(memory.free_pages / 4 * 3);
        let unread = self.pending.ahead + self.pending.guessed + own.ahead + own.guessed;
        self.budget_pages.unwrap_or(share).saturating_sub(unread)
    }

    /// Requests the next pages of a pattern, if enough of the distance is used up. `beside`: unread pages of the file's other
    /// streams.
    fn extend(&self, stream: &mut Stream, beside: u64, access: &Access, view: &dyn View, requests: &mut Requests) {
        if stream.distance == 0 {
            stream.distance = self.first_distance(stream, access, view);
        } else if access.found.is_locked() {
            // The reader is about to wait: the distance must grow before this request, not after the wait.
            stream.grow(self.size(), self.is_contended(), &self.device);
            stream.has_grown = true;
        }
        if stream.since_wait > HOLD_OFF.saturating_mul(stream.distance) {
            (stream.distance, stream.since_wait) = (stream.distance - stream.distance / 8, 0);
        }
        stream.distance = stream.distance.clamp(stream.at.length, self.most(stream).max(stream.at.length));
        let room = self.room(beside, view).max(stream.at.length);
        let mut distance = stream.distance.min(room);
        // If files compete, each request waits for its turn: the longer the request, the fewer the turns.
        let part = if self.is_contended() { distance / 4 * 3 } else { distance / 2 };
        if distance.saturating_sub(stream.ahead) < self.size().min(part).max(1) {
            return;
        }
        let hurries = stream.has_used_look(&self.device) && stream.since_wait <= stream.distance;
        if self.is_contended() && self.device.has_arm() && distance < self.size() && hurries {
            // The reader has waited for the last pages, and the next request would hardly be longer.
            stream.grow(self.size(), true, &self.device);
            distance = stream.distance.min(self.most(stream)).min(room);
        }
        let way = stream.way(&self.device);
        if way == Way::Up {
            // If memory is short, the pages that are still cached behind the reader (without this access) show how long pages
            // live.
            let memory = view.memory();
            if memory.free_pages < 2 * (self.pending.ahead + beside + stream.ahead).max(distance) {
                let (length, rounds) = match access.by {
                    By::Read => (stream.at.length, 1),
                    // The length includes the mapped pages, which were read ahead.
                    By::Fault { .. } => (1, MAPPED_ROUNDS),
                };
                let history = view.present_before(access.file, access.page, distance.saturating_mul(rounds)) / rounds;
                distance = distance.min(history.max(FIRST_LENGTHS * length));
            } else if self.is_contended() {
                // A short rest of the file is not worth a separate request.
                let rest = view.file_pages(access.file).saturating_sub(stream.at.end().saturating_add(distance));
                let asked = distance.saturating_sub(stream.ahead);
                distance += if rest <= (asked / 2).min(room - distance) { rest } else { 0 };
            }
        }
        if stream.ahead < distance {
            ask(stream, way, distance, access, self.device.pages_per_access() / AROUND_SHARE, view, requests);
        }
    }

    /// The distance before any wait has been seen. On a miss it is requested together with the missing pages, which makes the
    /// access at most twice as long. If recent files were opened for their first pages only, it is that of Linux.
    fn first_distance(&self, stream: &Stream, access: &Access, view: &dyn View) -> u64 {
        let worth = self.device.pages_per_access();
        let first = FIRST_LENGTHS * stream.at.length;
        let first = if access.by == By::Read { first.min(worth.max(stream.at.length)) } else { first };
        if self.left_early >= MOST_FAILURES {
            first
        } else if self.is_small(access.file, view) {
            view.file_pages(access.file)
        } else if access.found == Found::Absent {
            first.max(worth)
        } else {
            first
        }
    }

    /// Whether the disk transfers the file in the time of one access: reading it for nothing wastes at most half of the time.
    fn is_small(&self, file: FileId, view: &dyn View) -> bool {
        view.file_pages(file) <= self.device.pages_per_access()
    }

    /// Requests all of a small file, if the budget permits.
    fn read_small(&self, known: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (file, pages) = (access.file, view.file_pages(access.file));
        if self.room_for_whole(known.count(), view) >= pages {
            known.whole.ask((0..pages).filter(|page| *page != access.page && !view.is_present(file, *page)));
            requests.pages(file, 0, pages);
        }
    }

    /// Requests the pages around one of the first faults, as the kernel does, if the file fits into the budget.
    fn read_around(&self, file: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let pages = view.limits(access.file).window_pages.min(self.device.pages_per_access());
        let file_pages = view.file_pages(access.file);
        if file.arounds >= MOST_AROUNDS || self.room_for_whole(file.count(), view) < file_pages {
            return;
        }
        file.arounds += 1;
        let first = access.page.saturating_sub(pages / 2);
        let end = first.saturating_add(pages).min(file_pages);
        let whole = &mut file.whole;
        whole.ask((first..end).filter(|page| *page != access.page && !view.is_present(access.file, *page)));
        requests.pages(access.file, first, end.saturating_sub(first));
    }

    /// Requests a part of the whole file, in addition to the missing pages, if that pays.
    fn read_whole(&self, known: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (file, device) = (access.file, &self.device);
        // Other random readers leave no spare bandwidth. If they leave no free channel, this part delays the access.
        let others = u64::from(view.queue(file).requests);
        let channels = 2 * others >= u64::from(device.parallelism);
        let bandwidth = others > 0 && 2 * others * access.wanted >= device.pages_per_access();
        if device.parallelism > 1 && bandwidth {
            return;
        }
        let beside = device.parallelism > 1 && !channels;
        if device.pages_per_access() <= access.wanted {
            return;
        }
        let (file_pages, room) = (view.file_pages(file), self.room_for_whole(known.count(), view));
        let part = known.whole.part(access.page, file_pages, room, beside, MOST_SIZE_PAGES, device);
        if let Some((first, pages)) = part {
            known.whole.ask((first..first + pages).filter(|page| !view.is_present(file, *page)));
            requests.pages(file, first, pages);
        }
    }

    /// Updates the file's streams by an access, and requests the pages that are read ahead.
    fn look_ahead(&self, file: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let file_pages = view.file_pages(access.file);
        let met = file.whole.take(access.page, access.wanted);
        let (index, moved, foretold) = file.follow(access, &self.device);
        let mut stream = file.streams[index];
        let missed = access.found == Found::Absent;
        if missed && stream.of_runs {
            // Requests the rest of the run.
            let (from, to) = (access.end(), stream.at.end().min(file_pages));
            requests.pages(access.file, from, to.saturating_sub(from));
        }
        if missed && access.by != By::Read && self.is_small(access.file, view) {
            self.read_small(file, access, view, requests);
        }
        if moved > 0 {
            stream.missed = missed;
            // An access to the file's first page starts a stream at once.
            if access.page == 0 && !foretold && stream.at.repeated < 2 {
                (stream.at.step, stream.at.repeated) = (stream.at.length as i64, 1);
            }
            if stream.is_confirmed(file.failures) {
                file.whole.explained(stream.unforeseen, stream.idle_ns);
                (stream.unforeseen, stream.idle_ns) = (0, 0);
                stream.go_on(moved, missed);
                self.extend(&mut stream, file.ahead_beside(index), access, view, requests);
            } else if stream.is_climbing() {
                // A reader that goes upwards does not return to the pages behind it.
                file.whole.explained(1, self.device.access_ns);
            } else if !foretold {
                stream.unforeseen += 1;
                file.whole.unforeseen(met > 0, file_pages, &self.device);
                if stream.missed {
                    if access.by != By::Read {
                        self.read_around(file, access, view, requests);
                    }
                    self.read_whole(file, access, view, requests);
                }
            }
            file.streams[index] = stream;
        }
    }

    /// Forgets a file after its last close. Its requested pages stay cached, but no open reader will use them.
    fn close(&mut self, open: OpenId) {
        let Some(file) = self.opened.remove(&open) else { return };
        let left = self.openings.get_mut(&file).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            self.openings.remove(&file);
            let gone = self.files.remove(&file).unwrap_or_default();
            self.pending.subtract(gone.counted);
            if gone.streams.iter().any(|stream| stream.used > stream.at.length) {
                self.left_early = 0;
            } else if gone.counted.ahead > 0 {
                self.left_early = (self.left_early + 1).min(MOST_FAILURES);
            }
        }
    }

    /// Changes the state of a file, and updates the sum of unread pages.
    fn change<T: Default>(&mut self, file: FileId, change: impl FnOnce(&mut File) -> T) -> T {
        let Some(file) = self.files.get_mut(&file) else { return T::default() };
        self.pending.subtract(file.counted);
        let result = change(file);
        file.counted = file.count();
        self.pending.add(file.counted);
        result
    }

    /// A page was evicted unused: the later pages of its stream will be evicted, too.
    fn evicted(&mut self, file: FileId, page: Page) {
        let device = self.device;
        self.change(file, |file| {
            file.whole.take(page, 1);
            for stream in &mut file.streams {
                if let Some(left) = stream.ahead_of(page, &device) {
                    (stream.distance, stream.since_wait) = ((stream.distance / 2).max(1), 0);
                    stream.ahead = left;
                }
            }
        });
    }

    /// A reader of this file has waited for this page for `wait_ns`, until now.
    fn waited(&mut self, file: FileId, page: Page, wait_ns: u64, now_ns: u64) {
        let (size, turns, device) = (self.size(), self.is_contended(), self.device);
        // Several readers may have waited at the same time: the disk's idle time is assigned only once.
        let waited_ns = now_ns.saturating_sub(self.idle_until_ns).min(wait_ns);
        // If the disk served other files meanwhile, the time beyond one access was theirs.
        let waited_ns = if self.pending.files > 1 { waited_ns.min(device.access_ns) } else { waited_ns };
        let given = self.change(file, |file| {
            let mut given = false;
            let failures = file.failures;
            for stream in file.streams.iter_mut().filter(|stream| stream.at.run().contains(&page)) {
                stream.waited(wait_ns, &device);
                if stream.distance > 0 {
                    if !std::mem::take(&mut stream.has_grown) {
                        stream.grow(size, turns, &device);
                    }
                } else if stream.missed && !given && !stream.is_confirmed(failures) {
                    let idle_ns = device.idle_ns(waited_ns, stream.at.length);
                    stream.idle_ns += idle_ns;
                    file.whole.idle(idle_ns);
                    given = true;
                }
            }
            given
        });
        if given {
            self.idle_until_ns = now_ns;
        }
    }
}

/// Requests the pages of the pattern up to the distance, except those already requested.
fn ask(
    stream: &mut Stream,
    way: Way,
    distance: u64,
    access: &Access,
    around: u64,
    view: &dyn View,
    requests: &mut Requests,
) {
    let file = access.file;
    let file_pages = view.file_pages(file);
    let least =
        if access.by == By::Read { 1 } else { FAULT_AROUND_PAGES.min(stream.at.step.unsigned_abs()).min(around) };
    let mut request = |first: Page, pages: u64| {
        requests.add(Request { first, pages, ..Request::of(file) });
    };
    match way {
        Way::Up => {
            let end = stream.at.end();
            let (from, to) = (end.saturating_add(stream.ahead), end.saturating_add(distance).min(file_pages));
            request(from, to.saturating_sub(from));
            stream.ahead = to.saturating_sub(end).max(stream.ahead);
        }
        Way::Down => {
            let (from, to) = (stream.at.first.saturating_sub(distance), stream.at.first.saturating_sub(stream.ahead));
            request(from, to.saturating_sub(from));
            stream.ahead = stream.ahead.max(stream.at.first - from);
        }
        Way::Steps => {
            let mut index = stream.ahead / stream.at.length + 1;
            while stream.ahead < distance {
                let Some(at) = stream.at.nth(index).filter(|at| *at < file_pages) else { break };
                request(at, stream.at.length.max(least).min(file_pages - at));
                stream.ahead += stream.at.length;
                index += 1;
            }
        }
    }
}

impl Policy for Ahead {
    fn wants(&self) -> Wants {
        Wants { calls: true, faults: true, waits: true, evictions: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let file_pages = view.file_pages(access.file);
        if access.found == Found::Absent {
            requests.pages(access.file, access.page, access.wanted.min(file_pages.saturating_sub(access.page)));
        }
        let random = matches!(access.by, By::Fault { advice: Advice::Random, .. });
        if (access.by == By::Read && !access.begins) || access.wanted == 0 || random {
            return;
        }
        // The file is put back at the end.
        let mut file = std::mem::take(self.files.entry(access.file).or_default());
        self.pending.subtract(file.counted);
        self.look_ahead(&mut file, access, view, requests);
        file.counted = file.count();
        self.pending.add(file.counted);
        self.files.insert(access.file, file);
        if self.device.parallelism == 1 {
            requests.wait_for_all();
        }
    }

    fn event(&mut self, event: &Event, view: &dyn View, _requests: &mut Requests) {
        match *event {
            Event::Opened { open, file } => {
                // A reused number means that the earlier open file is closed, even if no event reported it.
                self.close(open);
                self.opened.insert(open, file);
                *self.openings.entry(file).or_default() += 1;
            }
            Event::Closed { open } => self.close(open),
            Event::Waited { file, page, wait_ns, .. } => self.waited(file, page, wait_ns, view.now_ns()),
            Event::Evicted { file, page, unused: true } => self.evicted(file, page),
            // The program uses pages that a fault mapped around its own page, and no event reports these uses.
            Event::Mapped { file, first, pages, before, .. } => {
                let device = self.device;
                self.change(file, |file| {
                    let from = first.saturating_sub(before);
                    file.whole.take(from, first - from + pages);
                    file.streams.iter_mut().for_each(|stream| stream.mapped(first, pages, before, &device));
                });
            }
            _ => {}
        }
    }
}

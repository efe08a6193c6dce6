//! `ahead`: our own. It follows patterns instead of positions, and looks as far ahead as waiting has shown to be needed
//! and memory has shown to be safe.
//!
//! Each file has some streams, shared by all its readers and openings. A stream is a pattern that has repeated:
//!
//! ```text
//!     forwards    ■■■■▶■■■■▶■■■■▶         step = length
//!     backwards   ◀■■■■◀■■■■◀■■■■         step = − length
//!     stride      ■──▶■──▶■──▶            any other step, three times the same
//!     skipping    ■─▶■▶■───▶■─▶           upwards with gaps that differ, none long
//!     of runs     ◀■■▶■■▶ ◀■■▶■■▶         any of these with several accesses to a step, as faults make them
//!     interleaved streams are simply several; an access belongs to the one whose next step it is
//!     none        ■      ■■    ■          what lies around it, or the rest of the file meanwhile, if it fits: `whole`
//! ```
//!
//! How it decides, in the words of the design:
//!
//! - **Start threshold.** Nothing is read ahead before a pattern has shown: the file's first page or two accesses in a
//!   row forwards, three otherwise; more after patterns in the file were abandoned. A random reader gets what it asks
//!   for and nothing else from a file that does not fit; of one that fits, groups of pages, after some misses. A file
//!   that is transferred in the time of one access is read whole from its first page or miss on. Of a larger one that
//!   fits, what lies around the first faults is read, until patterns show.
//! - **First look.** What goes along with a miss may take as long as the miss: at most half of the time is in vain (Li
//!   and others, 2007). Where files turn out to be left after their first access, it is Linux's instead.
//! - **Size apart from depth.** A request is as long as the disk needs for its latency to matter little (*size*, from
//!   latency × bandwidth). How many pages are under way or unread is the *distance*. More is asked for when a request's
//!   length of it is used up, or half of it while it is short. Where several files take turns at a disk with a head,
//!   requests are longer, and go into the queue as a whole: in pieces they would be read between others' pieces, each
//!   at the price of an access.
//! - **Grown by waits alone.** The distance grows when the reader really has to wait, at once to what the disk
//!   transfers in the time of an access, then up to what keeps the disk busy; and falls by an eighth when for long
//!   no reader waited. After a miss the pages that were thought to be ahead count as absent.
//! - **A jump leaves its stream where it is.** What jumps may be another reader: a new stream begins, which remembers
//!   where it may have come from, and the old one waits for its own next access.
//! - **Bridged by cost.** What lies between two steps is read along if a request costs the disk more than the gap.
//!   Through a mapping a step is at least what a fault maps.
//! - **Safe by its own history.** Where memory is short no more is read ahead than is still cached behind the reader:
//!   what lives so long behind it will live so long before it (Wu's lower bound of the thrashing threshold). What is
//!   evicted unused halves the distance.
//! - **One budget.** All streams together stay below a share of the memory; those of a file may have their part of it,
//!   whatever others took before. A stream that no reader has followed for long is not counted.
//!
//! It needs no marks: it receives every call. A page cache that can report only misses serves it as well, but later.

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
/// access: four fifths of its time are then transfer. On a disk that serves others meanwhile, once is enough.
const SIZE_IN_ACCESSES: u64 = 4;
/// Requests are no shorter, where the pattern is sequential: 128 KiB, the classic window.
const LEAST_SIZE_PAGES: u64 = 32;
/// Nor longer: 8 MiB.
const MOST_SIZE_PAGES: u64 = 2048;
/// If files compete for a head, each turn from one file to another costs an access. With requests of this many accesses
/// the disk loses one part in 41, or two: the way from file to file is longer than the measured one within a file.
const SIZE_AMONG_FILES: u64 = 40;
/// Longest request there: 64 MiB.
const MOST_SIZE_AMONG_FILES_PAGES: u64 = 16384;
/// Requests of a sequential stream that are under way or unread: one is used, one is there, one is on its way.
const REQUESTS_AHEAD: u64 = 3;
/// Among files: one is used while the others have their turns, one is on its way. What is brought too early is evicted
/// again.
const REQUESTS_AMONG_FILES: u64 = 2;
/// The first look ahead, in lengths of the access: that of Linux (`get_init_ra_size`).
const FIRST_LENGTHS: u64 = 4;
/// Pages that a fault maps at once, if they are there (`fault_around_bytes` in mm/memory.c, 64 KiB).
const FAULT_AROUND_PAGES: u64 = 16;
/// But no more pages than the disk transfers in this part of an access: a quarter.
const AROUND_SHARE: u64 = 4;
/// What was touched through a mapping is given another round on the inactive list, what is unread goes in the first
/// (`folio_check_references` in mm/vmscan.c). With `h` pages behind and `d` unread the list is gone through in `(h + d)
/// / 2`, and a quarter of that much may be unread, as without a mapping: a third of `h`.
const MAPPED_ROUNDS: u64 = 3;
/// After this multiple of the distance without a wait, the distance falls.
const HOLD_OFF: u64 = 16;
/// Part of the memory that may be unread, unless a budget is given: a quarter.
const MEMORY_SHARE: u64 = 4;

/// First faults of a file that are read around, as the kernel does (`do_sync_mmap_readahead`, up to a hundred): by then
/// the lengths of blocks and the steps between them have shown twice.
const MOST_AROUNDS: u32 = 2 * RUNS as u32;

/// Our own policy.
#[derive(Clone, Debug)]
pub struct Ahead {
    device: DeviceDescription,
    budget_pages: Option<u64>,
    files: HashMap<FileId, File>,
    opened: HashMap<OpenId, FileId>,
    /// How often each file is open.
    openings: HashMap<FileId, u32>,
    /// Over all files.
    pending: Pending,
    /// Files in a row that were closed after their first access, with more of them read ahead.
    left_early: u32,
    /// Until then the disk's idle time is given away, nanoseconds.
    idle_until_ns: u64,
}

impl Ahead {
    /// For a disk like this, within the budget.
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

    /// Whether files take turns at a disk that serves one request at a time: others, besides the one that is looked at.
    fn is_contended(&self) -> bool {
        self.device.parallelism == 1 && self.pending.files > 0
    }

    /// The most that keeps the disk busy with accesses of this length: some requests of a sequential stream, twice as
    /// many as it serves at once of any other.
    fn most(&self, stream: &Stream) -> u64 {
        match stream.way(&self.device) {
            Way::Up | Way::Down if self.is_contended() => REQUESTS_AMONG_FILES * self.size(),
            Way::Up | Way::Down => REQUESTS_AHEAD * self.size(),
            Way::Steps => 2 * u64::from(self.device.parallelism).max(4) * stream.length,
        }
    }

    /// Pages that a stream may have unread: what the others leave of the budget, but at least its file's part of it, so
    /// that the first stream does not starve the others. `beside`: unread pages of the file's other streams.
    fn room(&self, beside: u64, view: &dyn View) -> u64 {
        let memory = view.memory();
        let all = memory.free_pages + memory.inactive_pages + memory.active_pages;
        let budget = self.budget_pages.unwrap_or(all / MEMORY_SHARE);
        let part = budget / (self.pending.files + 1);
        budget.saturating_sub(self.pending.ahead).max(part).saturating_sub(beside)
    }

    /// What a whole file may have unread: free memory may be filled, for that evicts no used page.
    fn room_for_whole(&self, own: Pending, view: &dyn View) -> u64 {
        let memory = view.memory();
        let all = memory.free_pages + memory.inactive_pages + memory.active_pages;
        let share = (all / MEMORY_SHARE).max(memory.free_pages / 4 * 3);
        let unread = self.pending.ahead + self.pending.guessed + own.ahead + own.guessed;
        self.budget_pages.unwrap_or(share).saturating_sub(unread)
    }

    /// Asks for more of a pattern, if enough of what should be ahead is used up. `beside`: what others of the file have
    /// ahead.
    fn extend(&self, stream: &mut Stream, beside: u64, access: &Access, view: &dyn View, requests: &mut Requests) {
        if stream.distance == 0 {
            stream.distance = self.first_distance(stream, access, view);
        } else if access.found.is_locked() {
            // It will wait: what that teaches is of use before the wait, not after.
            stream.grow(self.size(), self.is_contended(), &self.device);
            stream.has_grown = true;
        }
        if stream.since_wait > HOLD_OFF.saturating_mul(stream.distance) {
            (stream.distance, stream.since_wait) = (stream.distance - stream.distance / 8, 0);
        }
        stream.distance = stream.distance.clamp(stream.length, self.most(stream).max(stream.length));
        let room = self.room(beside, view).max(stream.length);
        let mut distance = stream.distance.min(room);
        // Among files it has to wait for its turn whenever it asks: the longer the part, the fewer the turns.
        let part = if self.is_contended() { distance / 4 * 3 } else { distance / 2 };
        if distance.saturating_sub(stream.ahead) < self.size().min(part).max(1) {
            return;
        }
        let hurries = stream.has_used_look(&self.device) && stream.since_wait <= stream.distance;
        if self.is_contended() && self.device.has_arm() && distance < self.size() && hurries {
            // It has waited for what it has just used, and would have a turn for little more than that.
            stream.grow(self.size(), true, &self.device);
            distance = stream.distance.min(self.most(stream)).min(room);
        }
        let way = stream.way(&self.device);
        if way == Way::Up {
            // Where memory is short, what is still cached behind the reader, this access not included, tells how long
            // pages live.
            let memory = view.memory();
            if memory.free_pages < 2 * (self.pending.ahead + beside + stream.ahead).max(distance) {
                let (length, rounds) = match access.by {
                    By::Read => (stream.length, 1),
                    // The length is what was mapped, and that is what was read ahead.
                    By::Fault { .. } => (1, MAPPED_ROUNDS),
                };
                let history = view.present_before(access.file, access.page, distance.saturating_mul(rounds)) / rounds;
                distance = distance.min(history.max(FIRST_LENGTHS * length));
            } else if self.is_contended() {
                // A short rest of the file is not worth a separate turn.
                let rest = view.file_pages(access.file).saturating_sub(stream.end().saturating_add(distance));
                let asked = distance.saturating_sub(stream.ahead);
                distance += if rest <= (asked / 2).min(room - distance) { rest } else { 0 };
            }
        }
        if stream.ahead < distance {
            ask(stream, way, distance, access, self.device.pages_per_access() / AROUND_SHARE, view, requests);
        }
    }

    /// How far to look ahead before it has shown how far is needed. It is fetched with the access itself, if that is a
    /// miss, which takes longer for it: at most twice as long, and no longer than that of Linux where files turned out
    /// to be opened for their first pages alone.
    fn first_distance(&self, stream: &Stream, access: &Access, view: &dyn View) -> u64 {
        let worth = self.device.pages_per_access();
        let first = FIRST_LENGTHS * stream.length;
        let first = if access.by == By::Read { first.min(worth.max(stream.length)) } else { first };
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

    /// Whether the disk transfers the file in the time of one access: to read it in vain is at most half of the time.
    fn is_small(&self, file: FileId, view: &dyn View) -> bool {
        view.file_pages(file) <= self.device.pages_per_access()
    }

    /// Reads all of a small file, if there is room.
    fn read_small(&self, known: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (file, pages) = (access.file, view.file_pages(access.file));
        if self.room_for_whole(known.count(), view) >= pages {
            known.whole.ask((0..pages).filter(|page| *page != access.page && !view.is_present(file, *page)));
            requests.pages(file, 0, pages);
        }
    }

    /// Reads what lies around one of the first faults, as the kernel does, if the file fits.
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

    /// Asks for a part of the whole file, if that pays, beside what is read now.
    fn read_whole(&self, known: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (file, device) = (access.file, &self.device);
        // Others that read here and there leave no bandwidth to spare. If they leave no channel, it is paid for first.
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

    /// What an access tells of its file, and what is asked for besides what it wants.
    fn look_ahead(&self, file: &mut File, access: &Access, view: &dyn View, requests: &mut Requests) {
        let file_pages = view.file_pages(access.file);
        let met = file.whole.take(access.page, access.wanted);
        let (index, moved, foretold) = file.follow(access, &self.device);
        let mut stream = file.streams[index];
        let missed = access.found == Found::Absent;
        if missed && stream.of_runs {
            // The rest of a run.
            let (from, to) = (access.end(), stream.end().min(file_pages));
            requests.pages(access.file, from, to.saturating_sub(from));
        }
        if missed && access.by != By::Read && self.is_small(access.file, view) {
            self.read_small(file, access, view, requests);
        }
        if moved > 0 {
            stream.missed = missed;
            // The file's first page begins a stream at once.
            if access.page == 0 && !foretold && stream.repeated < 2 {
                (stream.step, stream.repeated) = (stream.length as i64, 1);
            }
            if stream.is_confirmed(file.failures) {
                file.whole.explained(stream.unforeseen, stream.idle_ns);
                (stream.unforeseen, stream.idle_ns) = (0, 0);
                stream.go_on(moved, missed);
                self.extend(&mut stream, file.ahead_beside(index), access, view, requests);
            } else if stream.is_climbing() {
                // A reader that goes upwards does not come back to the pages behind it.
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

    /// After the last close of a file no reader will use the pages that were asked for; they stay cached.
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
            if gone.streams.iter().any(|stream| stream.used > stream.length) {
                self.left_early = 0;
            } else if gone.counted.ahead > 0 {
                self.left_early = (self.left_early + 1).min(MOST_FAILURES);
            }
        }
    }

    /// Changes what is known of a file, and keeps count of what it has ahead.
    fn change<T: Default>(&mut self, file: FileId, change: impl FnOnce(&mut File) -> T) -> T {
        let Some(file) = self.files.get_mut(&file) else { return T::default() };
        self.pending.subtract(file.counted);
        let result = change(file);
        file.counted = file.count();
        self.pending.add(file.counted);
        result
    }

    /// A page was evicted unused: what lies behind it in its stream will go, too.
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

    /// A reader of this file had to wait so long for this page, until now.
    fn waited(&mut self, file: FileId, page: Page, wait_ns: u64, now_ns: u64) {
        let (size, turns, device) = (self.size(), self.is_contended(), self.device);
        // Several readers may have waited for the disk at the same time: its idle time is given away once.
        let waited_ns = now_ns.saturating_sub(self.idle_until_ns).min(wait_ns);
        // Where others are served meanwhile, what is longer than an access was their time.
        let waited_ns = if self.pending.files > 1 { waited_ns.min(device.access_ns) } else { waited_ns };
        let given = self.change(file, |file| {
            let mut given = false;
            let failures = file.failures;
            for stream in file.streams.iter_mut().filter(|stream| (stream.first..stream.end()).contains(&page)) {
                stream.waited(wait_ns, &device);
                if stream.distance > 0 {
                    if !std::mem::take(&mut stream.has_grown) {
                        stream.grow(size, turns, &device);
                    }
                } else if stream.missed && !given && !stream.is_confirmed(failures) {
                    let idle_ns = device.idle_ns(waited_ns, stream.length);
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

/// Asks for the pages of the pattern that are not asked for yet, up to the distance.
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
    let least = if access.by == By::Read { 1 } else { FAULT_AROUND_PAGES.min(stream.step.unsigned_abs()).min(around) };
    let mut request = |first: Page, pages: u64| {
        requests.add(Request { first, pages, ..Request::of(file) });
    };
    match way {
        Way::Up => {
            let end = stream.end();
            let (from, to) = (end.saturating_add(stream.ahead), end.saturating_add(distance).min(file_pages));
            request(from, to.saturating_sub(from));
            stream.ahead = to.saturating_sub(end).max(stream.ahead);
        }
        Way::Down => {
            let (from, to) = (stream.first.saturating_sub(distance), stream.first.saturating_sub(stream.ahead));
            request(from, to.saturating_sub(from));
            stream.ahead = stream.ahead.max(stream.first - from);
        }
        Way::Steps => {
            let mut index = stream.ahead / stream.length + 1;
            while stream.ahead < distance {
                let step = i64::try_from(index).ok().and_then(|index| stream.step.checked_mul(index));
                let at = step.and_then(|step| stream.first.checked_add_signed(step)).filter(|at| *at < file_pages);
                let Some(at) = at else { break };
                request(at, stream.length.max(least).min(file_pages - at));
                stream.ahead += stream.length;
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
        // It is put back at the end.
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
                // A number that is given out again is closed, even if no event reported it.
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

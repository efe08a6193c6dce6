//! `ahead`: our own. It follows patterns instead of positions, and looks as far ahead as waiting has shown to be needed and
//! memory has shown to be safe.
//!
//! Each file has some streams, whoever reads them and through whichever opening. A stream is a pattern that has repeated:
//!
//! ```text
//!     forwards    ■■■■▶■■■■▶■■■■▶         step = length
//!     backwards   ◀■■■■◀■■■■◀■■■■         step = − length
//!     stride      ■──▶■──▶■──▶            any other step, three times the same
//!     interleaved streams are simply several; an access belongs to the one whose next step it is
//! ```
//!
//! How it decides, in the words of the design:
//!
//! - **Start threshold.** Nothing is read ahead before a pattern has shown: the file's first page or two accesses in a row
//!   forwards, three otherwise. A random reader gets what it asks for and nothing else.
//! - **Size apart from depth.** A request is as long as the disk needs for its latency to matter little (*size*, from latency ×
//!   bandwidth). How many pages are under way or unread is the *distance*. More is asked for when a request's length of it is
//!   used up, or half of it while it is short.
//! - **Grown by waits alone.** The distance grows when the reader really had to wait, up to what keeps the disk busy; and falls
//!   by an eighth when for long nobody waited.
//! - **Safe by its own history.** Where memory is short no more is read ahead than is still cached behind the reader: what lives so long behind it
//!   will live so long before it (Wu's lower bound of the thrashing threshold). What is evicted unused halves the distance.
//! - **One budget.** All streams together stay below a share of the memory.
//!
//! It needs no marks: it is told of every call, and a page cache that can only tell of misses serves it as well, later.

use crate::{
    Access, Advice, By, DeviceTraits, Event, FileId, Found, OpenId, Page, Parameters, Policy, Request, Requests, View,
    Wants,
};
use std::collections::HashMap;

/// Patterns that are followed in one file: more interleaved readers than this are seldom.
const MOST_STREAMS: usize = 32;
/// Two accesses that are no farther apart may be the beginning of a pattern, 4 MiB; those of different readers are mostly
/// farther apart.
const NEAR_PAGES: u64 = 1024;
/// A request takes so many times what the disk transfers during one access: four fifths of its time are then transfer.
const SIZE_IN_ACCESSES: u64 = 4;
/// Requests are no shorter, where the pattern is sequential: 128 KiB, the classic window.
const LEAST_SIZE_PAGES: u64 = 32;
/// Nor longer: 8 MiB.
const MOST_SIZE_PAGES: u64 = 2048;
/// A sequential stream has so many requests under way or unread: one is used, one is there, one is on its way.
const REQUESTS_AHEAD: u64 = 3;
/// The first look ahead, in lengths of the access: that of Linux (`get_init_ra_size`).
const FIRST_LENGTHS: u64 = 4;
/// A wait makes the distance so many times as long while it is shorter than a request should be, and twice as long after.
const FIRST_GROWTH: u64 = 8;
/// Without a wait over so many distances the distance falls.
const HOLD_OFF: u64 = 16;
/// Share of the memory that may be unread, unless a budget is given: one part in so many.
const MEMORY_SHARE: u64 = 4;

/// A pattern in a file.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The last access: first page and pages.
    first: Page,
    length: u64,
    /// From one access's first page to the next one's.
    step: i64,
    /// How often that has been so in a row.
    repeated: u32,
    /// Pages of the pattern that were asked for and lie before the reader.
    ahead: u64,
    /// How many there should be; 0: not yet known.
    distance: u64,
    /// Pages that were used since the last wait.
    since_wait: u64,
    /// For replacing the one that was not used for longest.
    used_at: u64,
}

/// How an access follows a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// Within the last access: nothing new.
    Within,
    /// Where the last access ended.
    Adjacent,
    /// By the known step.
    Step,
    /// It may be the second access of a pattern.
    Near,
}

impl Stream {
    fn end(&self) -> Page {
        self.first + self.length
    }

    fn is_forwards(&self) -> bool {
        self.step == self.length as i64
    }

    fn is_backwards(&self) -> bool {
        self.step == -(self.length as i64)
    }

    fn is_confirmed(&self) -> bool {
        if self.is_forwards() { self.repeated >= 1 } else { self.repeated >= 2 && self.step != 0 }
    }

    fn follows(&self, page: Page, length: u64) -> Option<Follows> {
        if page >= self.first && page + length <= self.end() {
            Some(Follows::Within)
        } else if page == self.end() || page + 1 == self.end() {
            // A call may begin in the page in which the last one ended. What follows at once is adjacent, whatever the step:
            // accesses may have become shorter.
            Some(Follows::Adjacent)
        } else if self.repeated > 0
            && (self.first.checked_add_signed(self.step) == Some(page)
                || (self.is_backwards() && page + length == self.first))
        {
            Some(Follows::Step)
        } else if self.repeated < 2 && self.ahead == 0 && self.first.abs_diff(page) <= NEAR_PAGES {
            Some(Follows::Near)
        } else {
            None
        }
    }

    /// Takes an access for its next one; gives how many pages of the pattern that uses up.
    fn advance(&mut self, page: Page, length: u64, how: Follows) -> u64 {
        if how == Follows::Within {
            return 0;
        }
        let old_end = self.end();
        let goes_back = self.is_backwards() && page + length == self.first;
        let step = match how {
            Follows::Adjacent => length as i64,
            _ if goes_back => -(length as i64),
            _ => page.wrapping_sub(self.first) as i64,
        };
        let same = match how {
            Follows::Adjacent => self.repeated == 0 || self.is_forwards(),
            _ => goes_back || step == self.step,
        };
        self.repeated = if same { self.repeated.saturating_add(1) } else { 1 };
        if !same {
            self.ahead = 0;
        }
        (self.first, self.length, self.step) = (page, length, step);
        if self.is_forwards() { self.end().saturating_sub(old_end) } else { length }
    }
}

/// Our own policy.
#[derive(Clone, Debug)]
pub struct Ahead {
    device: DeviceTraits,
    budget_pages: Option<u64>,
    files: HashMap<FileId, Vec<Stream>>,
    opened: HashMap<OpenId, FileId>,
    /// How often each file is open.
    openings: HashMap<FileId, u32>,
    /// Pages that all streams have ahead.
    ahead: u64,
    clock: u64,
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
            ahead: 0,
            clock: 0,
        }
    }

    /// Length of a request of a sequential stream.
    fn size(&self) -> u64 {
        (SIZE_IN_ACCESSES * self.device.pages_per_access()).clamp(LEAST_SIZE_PAGES, MOST_SIZE_PAGES)
    }

    /// The most that keeps the disk busy with accesses of this length: some requests of a sequential stream, twice as many
    /// as it serves at once of any other.
    fn most(&self, stream: &Stream) -> u64 {
        let sequential = stream.is_forwards() || stream.is_backwards();
        if sequential {
            REQUESTS_AHEAD * self.size()
        } else {
            2 * u64::from(self.device.parallelism).max(4) * stream.length
        }
    }

    /// What this stream may have unread: what the others leave of the budget.
    fn room(&self, stream: &Stream, view: &dyn View) -> u64 {
        let memory = view.memory();
        let all = memory.free_pages + memory.inactive_pages + memory.active_pages;
        let others = self.ahead.saturating_sub(stream.ahead);
        self.budget_pages.unwrap_or(all / MEMORY_SHARE).saturating_sub(others)
    }

    /// The stream that an access belongs to as it was before, and how it follows; `None`: a new one is begun.
    fn find(&self, access: &Access) -> Option<(usize, Follows)> {
        let (page, length) = (access.page, access.wanted);
        let streams = self.files.get(&access.file)?;
        let following = streams.iter().enumerate().filter_map(|(index, stream)| {
            let how = stream.follows(page, length)?;
            Some((how as u8, stream.first.abs_diff(page), index, how))
        });
        if let Some((_, _, index, how)) = following.min_by_key(|(how, distance, _, _)| (*how, *distance)) {
            return Some((index, how));
        }
        // A single reader may take wide steps.
        let lone = streams.len() == 1 && streams[0].repeated < 2 && streams[0].ahead == 0;
        lone.then_some((0, Follows::Near))
    }

    /// Begins a stream; the one that was not used for longest makes room.
    fn begin(&mut self, access: &Access) -> usize {
        let fresh = Stream { first: access.page, length: access.wanted, used_at: self.clock, ..Stream::default() };
        let streams = self.files.entry(access.file).or_default();
        if streams.len() < MOST_STREAMS {
            streams.push(fresh);
            return streams.len() - 1;
        }
        let oldest = (0..streams.len()).min_by_key(|index| streams[*index].used_at).unwrap_or(0);
        self.ahead -= streams[oldest].ahead;
        streams[oldest] = fresh;
        oldest
    }

    /// Asks for more of a pattern, if half of what should be ahead is used up. `moved`: pages used since the last time.
    fn extend(&self, stream: &mut Stream, moved: u64, access: &Access, view: &dyn View, requests: &mut Requests) {
        stream.ahead = stream.ahead.saturating_sub(moved);
        stream.since_wait += moved;
        if stream.distance == 0 {
            stream.distance = FIRST_LENGTHS * stream.length;
        }
        if stream.since_wait > HOLD_OFF.saturating_mul(stream.distance) {
            (stream.distance, stream.since_wait) = (stream.distance - stream.distance / 8, 0);
        }
        stream.distance = stream.distance.clamp(stream.length, self.most(stream).max(stream.length));
        let mut distance = stream.distance.min(self.room(stream, view).max(stream.length));
        if distance.saturating_sub(stream.ahead) < self.size().min(distance / 2).max(1) {
            return;
        }
        if stream.is_forwards() {
            // Where memory is short, what is still cached behind the reader, this access not included, tells how long
            // pages live.
            let memory = view.memory();
            if memory.free_pages < 2 * self.ahead.max(distance) {
                let history = view.present_before(access.file, access.page, distance);
                distance = distance.min(history.max(FIRST_LENGTHS * stream.length));
            }
        }
        if stream.ahead < distance {
            ask(stream, distance, access.file, view, requests);
        }
    }

    /// After the last close of a file nobody is on the way to what was asked for; it stays cached.
    fn close(&mut self, open: OpenId) {
        let Some(file) = self.opened.remove(&open) else { return };
        let left = self.openings.get_mut(&file).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            self.openings.remove(&file);
            self.change(file, |stream| stream.ahead = 0);
            self.files.remove(&file);
        }
    }

    /// Changes every stream of a file, and keeps count of those that have something ahead.
    fn change(&mut self, file: FileId, mut change: impl FnMut(&mut Stream)) {
        for stream in self.files.get_mut(&file).into_iter().flatten() {
            self.ahead -= stream.ahead;
            change(stream);
            self.ahead += stream.ahead;
        }
    }
}

/// Asks for the pages of the pattern that are not asked for yet, up to the distance.
fn ask(stream: &mut Stream, distance: u64, file: FileId, view: &dyn View, requests: &mut Requests) {
    let file_pages = view.file_pages(file);
    let mut request = |first: Page, pages: u64| {
        requests.add(Request { first, pages, ..Request::of(file) });
    };
    if stream.is_forwards() {
        let (from, to) = (stream.end() + stream.ahead, (stream.end() + distance).min(file_pages));
        request(from, to.saturating_sub(from));
        stream.ahead = to.saturating_sub(stream.end()).max(stream.ahead);
    } else if stream.is_backwards() {
        let (from, to) = (stream.first.saturating_sub(distance), stream.first.saturating_sub(stream.ahead));
        request(from, to.saturating_sub(from));
        stream.ahead = stream.ahead.max(stream.first - from);
    } else {
        let mut index = stream.ahead / stream.length + 1;
        while stream.ahead < distance {
            let step = i64::try_from(index).ok().and_then(|index| stream.step.checked_mul(index));
            let at = step.and_then(|step| stream.first.checked_add_signed(step)).filter(|at| *at < file_pages);
            let Some(at) = at else { break };
            request(at, stream.length.min(file_pages - at));
            stream.ahead += stream.length;
            index += 1;
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
        self.clock += 1;
        let (index, moved) = match self.find(access) {
            Some((index, how)) => {
                let Some(stream) = self.files.get_mut(&access.file).map(|streams| &mut streams[index]) else { return };
                self.ahead -= stream.ahead;
                let moved = stream.advance(access.page, access.wanted, how);
                stream.used_at = self.clock;
                self.ahead += stream.ahead;
                (index, moved)
            }
            None => (self.begin(access), access.wanted),
        };
        let Some(mut stream) = self.files.get(&access.file).map(|streams| streams[index]) else { return };
        if moved == 0 {
            return;
        }
        // The file's first page begins a stream at once.
        if access.page == 0 && stream.repeated == 0 {
            (stream.step, stream.repeated) = (stream.length as i64, 1);
        }
        if stream.is_confirmed() {
            let before = stream.ahead;
            self.extend(&mut stream, moved, access, view, requests);
            self.ahead = self.ahead - before + stream.ahead;
        }
        if let Some(streams) = self.files.get_mut(&access.file) {
            streams[index] = stream;
        }
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        match *event {
            Event::Opened { open, file } => {
                // A number that is given out again is closed, whether that was told or not.
                self.close(open);
                self.opened.insert(open, file);
                *self.openings.entry(file).or_default() += 1;
            }
            Event::Closed { open } => self.close(open),
            Event::Waited { file, page, .. } => {
                let size = self.size();
                self.change(file, |stream| {
                    if (stream.first..stream.end()).contains(&page) && stream.distance > 0 {
                        let growth = if stream.distance < size { FIRST_GROWTH } else { 2 };
                        (stream.distance, stream.since_wait) = (stream.distance.saturating_mul(growth), 0);
                    }
                });
            }
            Event::Evicted { file, page, unused: true } => self.change(file, |stream| {
                if stream.is_forwards() && (stream.end()..stream.end() + stream.ahead).contains(&page) {
                    (stream.distance, stream.since_wait) = ((stream.distance / 2).max(1), 0);
                    stream.ahead = page - stream.end();
                }
            }),
            // What a fault mapped beside its own page is used without our being told.
            Event::Mapped { file, first, pages, before, .. } => self.change(file, |stream| {
                if stream.first != first || stream.length != 1 {
                    return;
                }
                if stream.is_backwards() || (stream.step < 0 && before > 0) {
                    (stream.first, stream.length) = (first - before.min(first), before + 1);
                    stream.step = -(stream.length as i64);
                    stream.ahead = stream.ahead.saturating_sub(before);
                } else {
                    let forwards = stream.is_forwards();
                    stream.length = pages;
                    if forwards {
                        stream.step = pages as i64;
                        stream.ahead = stream.ahead.saturating_sub(pages - 1);
                    }
                }
            }),
            _ => {}
        }
    }
}

//! Sends a policy's requests to the disk, and records their arrival.
//!
//! ```text
//!     requests ──▶ a turn, if they are sent together ──▶ pieces, as many as there is room for ──▶ the disk
//!                                                                    ╰── waited for by reapers, or by the reader that misses
//! ```

use crate::bench::live::state::{LiveState, Locked, REAPERS, Sent, Shared};
use ahead_fetch::calls;
use ahead_policy::{Access, Event, FileId, OpenId, PAGE_BYTES, Page, Request, View, WhenFull};
use ahead_sys::cache;
use ahead_sys::locks::IgnorePoison;
use std::collections::VecDeque;
use std::ops::Range;

/// Length of the parts of a request whose arrival is checked, pages: extents of a file are rarely shorter than 128 KiB.
const PART_PAGES: usize = 32;

/// The thread on whose behalf a request is sent.
#[derive(Debug, Default)]
pub(crate) struct Asker {
    open: OpenId,
    /// The page for which it will wait.
    awaits: Option<(FileId, Page)>,
    /// The request with this page, if it is short. The thread itself reports its arrival ([`Shared::ended`]). Waking a reaper for each
    /// miss would cost a tenth of an access on a disk of 0.1 ms.
    request: Option<Range<Page>>,
}

impl Asker {
    /// A reader with an access to an absent page.
    pub fn of_absent(access: &Access) -> Asker {
        Asker { open: access.open, awaits: Some((access.file, access.page)), request: None }
    }

    /// The request for which this thread waits itself.
    pub fn into_request(self) -> Option<Range<Page>> {
        self.request
    }

    /// Whether this thread waits for the request itself.
    fn takes(&mut self, file: FileId, pages: &Range<Page>) -> bool {
        let brings = self.awaits.is_some_and(|(of, page)| of == file && pages.contains(&page));
        let takes = brings && pages.end - pages.start <= PART_PAGES as u64;
        if takes {
            self.request = Some(pages.clone());
        }
        takes
    }
}

/// Waits until a request has arrived; false: it could not be read. The block layer may have divided it at gaps on the disk, so this waits
/// for a page of each part.
fn wait_for(sent: &Sent) -> bool {
    let mut parts = sent.pages.clone().step_by(PART_PAGES).chain([sent.pages.end - 1]);
    parts.all(|page| cache::wait_for(&*sent.fd, page * PAGE_BYTES).is_ok())
}

/// Merges contiguous requests, as the block layer's plug does.
fn joined(requests: Vec<Request>) -> VecDeque<Request> {
    let mut joined: VecDeque<Request> = VecDeque::new();
    for request in requests {
        match joined.back_mut() {
            Some(last)
                if (last.file, last.when_full, last.order) == (request.file, request.when_full, 0)
                    && request.order == 0
                    && last.parts.max(request.parts) == 1
                    && last.first + last.pages == request.first
                    && (last.mark.is_none() || request.mark.is_none()) =>
            {
                last.pages += request.pages;
                last.mark = last.mark.or(request.mark);
            }
            _ => joined.push_back(request),
        }
    }
    joined
}

impl Shared {
    /// Reports an event to the policy, and sends its requests as far as there is room.
    pub fn tell<'a>(&'a self, mut state: Locked<'a>, event: &Event) -> Locked<'a> {
        let requests = state.tell(event);
        if requests.is_empty() { state } else { self.submit(state, requests, &mut Asker::default()) }
    }

    /// Closes an open file.
    pub fn close(&self, open: OpenId, file: FileId) {
        let mut state = self.tell(self.lock(), &Event::Closed { open });
        state.close(open, file);
    }

    /// Sends requests to the disk on behalf of `asker`. Releases the lock meanwhile.
    pub fn submit<'a>(&'a self, mut state: Locked<'a>, requests: Vec<Request>, asker: &mut Asker) -> Locked<'a> {
        let mut requests = joined(requests);
        let needed = state.needs(&requests);
        let turn = needed > 0;
        if turn {
            state = self.hand_over(state, asker);
            state = self.take_turn(state, needed);
        }
        while let Some(request) = requests.pop_front() {
            let mut rows: VecDeque<Range<Page>> =
                state.world.book_mut(request.file).map_or_else(VecDeque::new, |book| book.lay_out(&request).into());
            let longest = request.pages.div_ceil(u64::from(request.parts.max(1)));
            while let Some(row) = rows.front_mut() {
                let pieces = state.take_pieces(request.file, row, longest);
                if !pieces.is_empty() {
                    state = self.send(state, request.file, pieces, turn, asker);
                } else if state.next_piece(request.file, row, longest).is_none() {
                    rows.pop_front();
                } else if request.when_full == WhenFull::Drop {
                    requests.extend(state.drop_rest(request.file, &rows, asker.open));
                    break;
                } else {
                    state = self.hand_over(state, asker);
                    state = self.wait_for_room(state, turn);
                }
            }
        }
        if turn {
            state.line.pop_front();
            self.room.notify_all();
        }
        state
    }

    /// Waits until there is room for this number of requests, and the threads before this one in the line have had their turn. The thread
    /// that has the turn stays first until all its requests are sent: otherwise the head of a disk would go to and fro.
    fn take_turn<'a>(&'a self, mut state: Locked<'a>, requests: u32) -> Locked<'a> {
        let number = state.next_in_line;
        state.next_in_line += 1;
        state.line.push_back(number);
        let has_turn = |state: &LiveState| state.line.front() == Some(&number) && state.has_room_for(requests);
        state.counters.queue_waits += u64::from(!has_turn(&state));
        let waited = self.room.wait_while(state, |state| !has_turn(state));
        waited.ignore_poison()
    }

    /// Leaves the thread's own request to the reapers, because the thread has to wait for room in the queue first.
    fn hand_over<'a>(&'a self, state: Locked<'a>, asker: &mut Asker) -> Locked<'a> {
        match (asker.awaits, asker.request.take()) {
            (Some((file, _)), Some(pages)) => self.leave(state, file, pages),
            _ => state,
        }
    }

    /// Lets the reapers wait for a sent request.
    fn leave<'a>(&'a self, state: Locked<'a>, file: FileId, pages: Range<Page>) -> Locked<'a> {
        let Some(fd) = state.world.book(file).map(|book| book.file.clone()) else { return state };
        drop(state);
        self.reapers.run_or_perform((), REAPERS, Sent { fd, file, pages });
        self.lock()
    }

    /// The reader has waited for its page of the request that was left to it. `is_whole`: all of the request has arrived.
    pub fn ended(&self, file: FileId, pages: Range<Page>, is_whole: bool) {
        let state = self.lock();
        drop(if is_whole { self.came(state, file, pages, true) } else { self.leave(state, file, pages) });
    }

    /// Waits for room for a request, in turn, except for the thread that has the turn.
    fn wait_for_room<'a>(&'a self, mut state: Locked<'a>, has_turn: bool) -> Locked<'a> {
        if has_turn {
            state.counters.queue_waits += 1;
            let waited = self.room.wait_while(state, |state| !state.has_room());
            return waited.ignore_poison();
        }
        let mut state = self.take_turn(state, 1);
        state.line.pop_front();
        // There may be room for the next thread, too.
        self.room.notify_all();
        state
    }

    /// Sends requests. `in_a_row`: no request of another reader is sent in between, so that a disk with a head reads all of them without
    /// seeks.
    fn send<'a>(
        &'a self,
        state: Locked<'a>,
        file: FileId,
        pieces: Vec<Range<Page>>,
        in_a_row: bool,
        asker: &mut Asker,
    ) -> Locked<'a> {
        let Some(book) = state.world.book(file) else { return state };
        let (fd, device) = (book.file.clone(), book.device);
        drop(state);
        let row = in_a_row.then(|| self.row.lock().ignore_poison());
        for pages in &pieces {
            let bytes = pages.start * PAGE_BYTES..pages.end * PAGE_BYTES;
            if let Err(error) = calls::read_ahead(device, &*fd, &bytes) {
                // A reader that waits for the pages reads them, and gets the disk's error.
                tracing::debug!("{error}");
            }
        }
        drop(row);
        for pages in pieces.into_iter().filter(|pages| !asker.takes(file, pages)) {
            self.reapers.run_or_perform((), REAPERS, Sent { fd: fd.clone(), file, pages });
        }
        self.lock()
    }

    /// Waits for a sent request.
    pub fn reap(&self, sent: &Sent) {
        let arrived = wait_for(sent);
        drop(self.came(self.lock(), sent.file, sent.pages.clone(), arrived));
    }

    /// Records the end of a request: its pages have arrived, or could not be read.
    fn came<'a>(&'a self, mut state: Locked<'a>, file: FileId, pages: Range<Page>, are_there: bool) -> Locked<'a> {
        state.world.queue.requests -= 1;
        self.room.notify_all();
        let Some(book) = state.world.book_mut(file) else { return state };
        if !are_there {
            book.fail(pages);
            return state;
        }
        book.arrive(pages.clone());
        if !state.wants.arrivals {
            return state;
        }
        self.tell(state, &Event::Arrived { file, first: pages.start, pages: pages.end - pages.start })
    }
}

impl LiveState {
    fn has_room(&self) -> bool {
        self.has_room_for(1)
    }

    fn has_room_for(&self, requests: u32) -> bool {
        self.world.queue.requests + requests <= self.world.queue.limit
    }

    /// The room that requests sent together must wait for: all that they need, but at most half of the queue.
    fn needs(&self, requests: &VecDeque<Request>) -> u32 {
        let together = requests.iter().take_while(|request| request.when_full == WhenFull::WaitForAll);
        let each = together.map(|request| {
            let longest = self.world.limits(request.file).request_pages.max(1);
            self.world.absent(request.file, request.first, request.pages).div_ceil(longest)
        });
        each.sum::<u64>().min(u64::from(self.world.queue.limit / 2)) as u32
    }

    /// The next absent pages of a run, at most `longest` and the length of a request.
    fn next_piece(&self, file: FileId, row: &Range<Page>, longest: u64) -> Option<Range<Page>> {
        let book = self.world.book(file)?;
        let end = row.end.min(book.file_pages());
        let first = book.next_absent(row.start, end)?;
        Some(first..book.absent_end(first, end.min(first + book.limits.request_pages.min(longest))))
    }

    /// Takes as many pages of a run as there is room for. They count as requested from now on.
    fn take_pieces(&mut self, file: FileId, row: &mut Range<Page>, longest: u64) -> Vec<Range<Page>> {
        let mut pieces = Vec::new();
        while self.has_room()
            && let Some(piece) = self.next_piece(file, row, longest)
            && let Some(book) = self.world.book_mut(file)
        {
            book.ask(piece.clone());
            let count = piece.end - piece.start;
            self.world.queue.requests += 1;
            self.world.added_pages += count;
            self.counters.requests += 1;
            self.counters.issued_pages += count;
            row.start = piece.end;
            pieces.push(piece);
        }
        pieces
    }

    /// Drops the rest of a request, and returns the policy's next requests.
    fn drop_rest(&mut self, file: FileId, rows: &VecDeque<Range<Page>>, open: OpenId) -> Vec<Request> {
        let Some(book) = self.world.book_mut(file) else { return Vec::new() };
        rows.iter().for_each(|row| book.leave_out(row.clone()));
        let pages: u64 = rows.iter().map(|row| row.end - row.start).sum();
        self.counters.dropped_pages += pages;
        let first = rows.front().map_or(0, |row| row.start);
        self.tell(&Event::Dropped { open, file, first, pages })
    }
}

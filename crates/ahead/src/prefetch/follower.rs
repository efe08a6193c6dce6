//! The window of a prefetch, shared by the threads of its devices and the thread that watches the program.
//!
//! ```text
//!     progress ──▶ Follower: Window (pure) ──due──▶ a queue for each device ──▶ its thread: plan, read ahead
//!                      ▲                                                             │
//!                      └──────── resident before; evicted before their use ◀─────────┘
//! ```

use crate::prefetch::account::{Following, Reason};
use crate::prefetch::progress::{self, Progress, ProgressSource, Seen, StartSource};
use crate::prefetch::shared::{Shared, as_us};
use crate::prefetch::{Options, WindowSize};
use ahead_plan::window::{Flow, Sizes, Window};
use ahead_plan::{Piece, Source};
use ahead_sys::locks::IgnorePoison;
use ahead_sys::machine;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Whether windows are compiled in: `ahead-replay` has no room for them, and no program to follow.
pub const FOLLOWS: bool = cfg!(feature = "observe");

/// Share of the available memory that a window may have. Half of a small group's file pages are on the inactive list, from which pages are
/// evicted in order of their arrival (`inactive_is_low` in mm/vmscan.c).
const MOST_SHARE: f64 = 0.5;

/// Share of the available memory for a window without a given size: half of the inactive list, so that as many other pages may arrive
/// before an unread page is evicted.
const START_SHARE: f64 = 0.25;

/// Longest item, bytes: as the longest span in the order of first use.
const ITEM_BYTES: u64 = 256 << 10;

/// Longest wait of a thread before it looks for work again.
const INTERVAL: Duration = Duration::from_millis(50);

/// Interval between two checks for evicted pages.
pub const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// A first request that takes longer had to wait for a disk to spin up: that takes 5 to 15 s, and a read in a full queue 0.3 s.
const SPUN_DOWN: Duration = Duration::from_secs(1);

/// Items of a device that are checked at a time.
const CHECKED: usize = 512;

/// Progress of a file by its position counts only near the next mark: a program may read the end of a file first.
const STEP_BYTES: u64 = 16 << 20;

/// A window that follows the program.
#[derive(Debug)]
pub struct Follower {
    flow: Flow,
    /// The device of each item.
    device_of: Vec<usize>,
    /// The items of each source, in order of their place in it.
    by_place: HashMap<Source, Vec<usize>>,
    asked: FollowerRequest,
    state: Mutex<FollowerState>,
    moved: Condvar,
}

#[derive(Debug)]
struct FollowerState {
    window: Window,
    /// Items to fetch, by device.
    queues: Vec<VecDeque<(usize, Turn)>>,
    /// Items that were fetched before, and those that were resident at the last check.
    was_fetched: Vec<bool>,
    was_resident: Vec<bool>,
    /// The next mark of each file.
    next_mark: HashMap<usize, usize>,
    following: Following,
    last_available: u64,
}

/// Why an item is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Turn {
    /// The window has reached it. If the program passes it first, it is not read any more.
    Ahead,
    /// The program has passed it, and may need it nevertheless.
    Behind,
    /// It was fetched, and evicted.
    Again,
}

/// Items of one device to fetch now.
pub type Batch = BTreeMap<Turn, Vec<usize>>;

impl Follower {
    /// The sizes of the window for these pieces. `None`: the whole profile is fetched at once, because that was requested, or it fits into
    /// the requested window or the available memory.
    pub fn sizes(shared: &Shared, pieces: &[Piece]) -> Option<Sizes> {
        let Options { threads, budget_bytes, .. } = &shared.options;
        let asked = FollowerRequest::of(&shared.options);
        if !FOLLOWS || asked.size == WindowSize::Whole || threads.is_some() {
            return None;
        }
        let total = pieces.iter().map(Piece::bytes).fold(0, u64::saturating_add);
        let (available, page) = (available_bytes(shared), machine::page_size());
        let is_held = total.min(budget_bytes.unwrap_or(u64::MAX)) <= asked.at_once(available, page);
        (!is_held).then_some(asked.sizes(available, page))
    }

    /// The follower for these pieces, which are in order of first use. `None`: they have no order, and are fetched at once.
    pub fn new(
        shared: &Shared,
        sizes: Sizes,
        pieces: &[Piece],
        devices_of: impl Fn(Source) -> usize,
    ) -> Option<Follower> {
        let (asked, available, page) =
            (FollowerRequest::of(&shared.options), available_bytes(shared), machine::page_size());
        let flow = Flow::new(&shared.profile, pieces, (sizes.start / 4).min(ITEM_BYTES), page);
        if !flow.has_times() {
            return None;
        }
        let sees_marks = shared.options.program.is_some();
        let window = Window::new(flow.items.clone(), flow.marks.clone(), sizes, sees_marks);
        let device_of: Vec<usize> = flow.pieces.iter().map(|piece| devices_of(piece.source)).collect();
        let mut by_place: HashMap<Source, Vec<usize>> = HashMap::new();
        for (index, piece) in flow.pieces.iter().enumerate() {
            by_place.entry(piece.source).or_default().push(index);
        }
        by_place.values_mut().for_each(|items| items.sort_by_key(|index| flow.pieces[*index].range.start));
        let count = flow.items.len();
        let state = FollowerState {
            following: Following { start_bytes: window.size(), ..Following::default() },
            queues: Vec::new(),
            was_fetched: vec![false; count],
            was_resident: vec![false; count],
            next_mark: HashMap::new(),
            last_available: available,
            window,
        };
        let (state, moved) = (Mutex::new(state), Condvar::new());
        Some(Follower { flow, device_of, by_place, asked, state, moved })
    }

    /// The state is consistent after a panic of a thread that held the lock.
    fn lock(&self) -> MutexGuard<'_, FollowerState> {
        self.state.lock().ignore_poison()
    }

    /// What an item fetches.
    pub fn piece(&self, item: usize) -> &Piece {
        &self.flow.pieces[item]
    }

    /// Moves the window to the present, and hands what is due to the devices.
    pub fn tick(&self, shared: &Shared) {
        let mut state = self.lock();
        if let Some(available) = shared.brake.available_bytes().filter(|available| *available != state.last_available) {
            state.last_available = available;
            let most = self.asked.sizes(available, machine::page_size()).most;
            state.window.set_most(most);
        }
        self.pump(&mut state, since_start_us(shared));
    }

    fn pump(&self, state: &mut FollowerState, now_us: u64) {
        let due = state.window.due(now_us);
        if due.is_empty() {
            return;
        }
        for item in due {
            let device = self.device_of[item];
            if state.queues.len() <= device {
                state.queues.resize_with(device + 1, VecDeque::new);
            }
            let turn = match std::mem::replace(&mut state.was_fetched[item], true) {
                true => Turn::Again,
                false if item < state.window.at() => Turn::Behind,
                false => Turn::Ahead,
            };
            state.queues[device].push_back((item, turn));
        }
        self.moved.notify_all();
    }

    /// Takes what is due on a device, and waits for it, at most for a moment: then the batch is empty. `None`: nothing is left to do.
    pub fn next(&self, device: usize, shared: &Shared) -> Option<Batch> {
        self.tick(shared);
        let mut state = self.lock();
        if state.queues.get(device).is_none_or(VecDeque::is_empty) {
            if state.window.is_over() || shared.brake.stopped().is_some() {
                self.moved.notify_all();
                return None;
            }
            state = self.moved.wait_timeout(state, INTERVAL).ignore_poison().0;
        }
        let mut batch = Batch::default();
        for (item, turn) in state.queues.get_mut(device).into_iter().flat_map(|queue| queue.drain(..)) {
            batch.entry(turn).or_default().push(item);
        }
        Some(batch)
    }

    /// The items of a source within a range.
    fn within<'a>(&'a self, source: Source, range: &'a Range<u64>) -> impl Iterator<Item = usize> + 'a {
        let of_source = self.by_place.get(&source).map_or(&[][..], Vec::as_slice);
        let from = of_source.partition_point(|item| self.flow.pieces[*item].range.start < range.start);
        of_source[from..].iter().copied().take_while(|item| self.flow.pieces[*item].range.end <= range.end)
    }

    /// Whether the program has used all of this range, and needs none of it any more.
    pub fn has_passed(&self, source: Source, range: &Range<u64>) -> bool {
        let state = self.lock();
        let mut items = self.within(source, range).peekable();
        items.peek().is_some() && items.all(|item| state.window.has_passed(item))
    }

    /// These ranges were resident before they were fetched.
    pub fn were_resident(&self, ranges: &[(Source, Range<u64>)]) {
        let items: Vec<usize> = ranges.iter().flat_map(|(source, range)| self.within(*source, range)).collect();
        if !items.is_empty() {
            self.lock().window.were_resident(&items);
        }
    }

    /// Fetched items of a device that were certainly not used yet, the next ones first.
    pub fn unread(&self, device: usize) -> Vec<usize> {
        let state = self.lock();
        state.window.unread().filter(|item| self.device_of[*item] == device).take(CHECKED).collect()
    }

    /// The result of a check: whether each item is resident. An item that was, and is not any more, was evicted.
    pub fn checked(&self, items: impl IntoIterator<Item = (usize, bool)>) {
        let mut state = self.lock();
        let mut evicted = Vec::new();
        for (item, is_resident) in items {
            if std::mem::replace(&mut state.was_resident[item], is_resident) && !is_resident {
                evicted.push(item);
            }
        }
        state.window.were_evicted(&evicted);
    }

    /// The first request of a disk took this long. If the disk had to spin up, more is fetched at once from now on.
    pub fn answered_after(&self, after: Duration) {
        if after < SPUN_DOWN {
            return;
        }
        let mut state = self.lock();
        state.following.spun_up_us.get_or_insert(as_us(after));
        state.window.fetch_more_at_once();
    }

    /// Watches the program until the prefetch ends. Runs in a thread.
    pub fn watch(&self, shared: &Shared, started: Vec<StartSource>) {
        for start in started {
            match start() {
                Ok(mut source) => {
                    {
                        let mut state = self.lock();
                        state.following.progress.push(source.source());
                        state.window.source_started();
                    }
                    self.publish(shared);
                    match self.watch_by(shared, &mut *source) {
                        Ok(()) => return,
                        Err(why) => self.lost(source.source(), &why),
                    }
                }
                Err(why) => tracing::debug!("progress: {why}"),
            }
        }
        self.lock().window.stop_expecting();
        self.lock().following.progress.push(ProgressSource::Clock);
        self.publish(shared);
        self.moved.notify_all();
    }

    fn lost(&self, source: ProgressSource, why: &str) {
        tracing::info!("the progress of the program is not seen by {} any more: {why}", source.name());
        self.lock().following.lost.get_or_insert_with(|| format!("{}: {why}", source.name()));
    }

    fn watch_by(&self, shared: &Shared, source: &mut dyn Progress) -> Result<(), String> {
        let mut published = Instant::now();
        while shared.brake.stopped().is_none() {
            let events = source.events(INTERVAL)?;
            let mut state = self.lock();
            let now_us = since_start_us(shared);
            events.iter().for_each(|seen| self.see(&mut state, *seen, now_us));
            if state.window.is_over() {
                drop(state);
                self.publish(shared);
                return Ok(());
            }
            if !events.is_empty() {
                self.pump(&mut state, now_us);
            }
            drop(state);
            // The program may end after the last batch: then these are the figures of the account.
            if published.elapsed() >= INTERVAL {
                self.publish(shared);
                published = Instant::now();
            }
        }
        Ok(())
    }

    fn see(&self, state: &mut FollowerState, seen: Seen, now_us: u64) {
        let Some(marks) = self.flow.of_file.get(&seen.file) else { return };
        if seen.offset_bytes == 0 {
            return state.window.seen(marks[0], now_us);
        }
        let mut next = *state.next_mark.get(&seen.file).unwrap_or(&1);
        while let Some(mark) = marks.get(next)
            && (0..STEP_BYTES).contains(&seen.offset_bytes.wrapping_sub(self.flow.events[*mark].offset_bytes))
        {
            state.window.seen(*mark, now_us);
            next += 1;
        }
        state.next_mark.insert(seen.file, next);
    }

    /// Puts the present figures of the window into the account. A prefetch that does not end in time is accounted for by the last ones.
    pub fn publish(&self, shared: &Shared) {
        let following = self.account();
        let mut account = shared.ledger.open();
        let refetched_bytes = account.window.as_ref().map_or(0, |window| window.refetched_bytes);
        account.window = Some(Following { refetched_bytes, ..following });
    }

    /// What the account says of the window, without the bytes that were fetched again.
    fn account(&self) -> Following {
        let state = self.lock();
        let figures = state.window.figures();
        let mut progress = state.following.progress.clone();
        if progress.is_empty() {
            progress.push(ProgressSource::Clock);
        }
        Following {
            end_bytes: state.window.size(),
            smallest_bytes: figures.smallest_bytes,
            largest_bytes: figures.largest_bytes,
            milestones_expected: state.window.expected_marks() as u64,
            milestones_seen: figures.marks_seen,
            milestones_out_of_order: figures.marks_out_of_order,
            milestones_repeated: figures.marks_repeated,
            evicted_unread_bytes: figures.evicted_unread_bytes,
            progress,
            ..state.following.clone()
        }
    }

    /// Bytes of a device that were never fetched: those that the program has passed, and those that it has not reached.
    pub fn never_fetched(&self, device: usize) -> [(Reason, u64); 2] {
        let state = self.lock();
        let mut bytes = [(Reason::Passed, 0), (Reason::Cancelled, 0)];
        for item in (0..self.device_of.len()).filter(|item| !state.was_fetched[*item]) {
            if self.device_of[item] == device {
                bytes[usize::from(item >= state.window.at())].1 += self.flow.items[item].bytes;
            }
        }
        bytes
    }

    /// Whether the window stays closed ([`Window::is_given_up`]).
    pub fn is_given_up(&self) -> bool {
        self.lock().window.is_given_up()
    }

    /// The flow of the profile.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }
}

/// What the user asks for.
#[derive(Clone, Copy, Debug)]
struct FollowerRequest {
    size: WindowSize,
    low_memory: bool,
}

impl FollowerRequest {
    fn of(options: &Options) -> FollowerRequest {
        FollowerRequest { size: options.window, low_memory: options.low_memory }
    }

    /// The largest profile that is fetched at once in this much available memory, bytes. Without a window the budget is the same share of it: a
    /// larger profile would not be fetched whole.
    fn at_once(self, available: u64, page: u64) -> u64 {
        let budget = FollowerRequest { size: WindowSize::Auto, ..self }.sizes(available, page).most;
        match self.size {
            WindowSize::Bytes(start) => start.min(budget),
            WindowSize::Auto | WindowSize::Whole => budget,
        }
    }

    /// The sizes of a window in this much available memory.
    fn sizes(self, available: u64, page: u64) -> Sizes {
        let share = |share: f64| (available as f64 * share) as u64;
        let most = share(if self.low_memory { START_SHARE } else { MOST_SHARE });
        match self.size {
            WindowSize::Bytes(start) => Sizes { page, start, most: start.max(share(START_SHARE)) },
            WindowSize::Auto | WindowSize::Whole => Sizes { page, start: share(START_SHARE), most },
        }
    }
}

/// Available memory; all that can be counted if the kernel does not report it.
fn available_bytes(shared: &Shared) -> u64 {
    shared.brake.available_bytes().unwrap_or(u64::MAX)
}

/// Time since the program was allowed to start, microseconds; 0 before.
fn since_start_us(shared: &Shared) -> u64 {
    match shared.gate.is_closed() {
        true => 0,
        false => as_us(Instant::now().saturating_duration_since(shared.began + shared.gate.opened_after())),
    }
}

/// Starts the thread that watches the program. Without it, the clock moves the window.
pub fn start_watching(follower: &Arc<Follower>, shared: &Arc<Shared>) {
    let Some(program) = &shared.options.program else { return };
    let started = progress::sources(program, &shared.profile, follower.flow(), &shared.root.outer(b""));
    let (own, shared) = (follower.clone(), shared.clone());
    let thread = std::thread::Builder::new().name("ahead-progress".into());
    if let Err(error) = thread.spawn(move || own.watch(&shared, started)) {
        tracing::debug!("no thread watches the program: {error}");
        follower.lock().window.stop_expecting();
    }
}

#[cfg(all(test, feature = "observe"))]
mod tests {
    use super::*;
    use ahead_profile::{Extent, File, Profile};

    /// Reports one file, and fails at its second call.
    struct Dying(ProgressSource, Vec<Seen>);

    impl Progress for Dying {
        fn source(&self) -> ProgressSource {
            self.0
        }

        fn events(&mut self, _timeout: Duration) -> Result<Vec<Seen>, String> {
            match self.1.is_empty() {
                true => Err("detached".into()),
                false => Ok(std::mem::take(&mut self.1)),
            }
        }
    }

    fn shared(window: WindowSize) -> Shared {
        let extent = |index: u64| Extent {
            offset_bytes: index << 20,
            length_bytes: 1 << 20,
            first_use_us: index,
            runs: 1,
            ..Extent::default()
        };
        let file = |index: u64| File {
            path: format!("/none{index}").into_bytes(),
            size_bytes: 4 << 20,
            extents: (0..4).map(|part| Extent { first_use_us: index * 1000 + part, ..extent(part) }).collect(),
            ..File::default()
        };
        let profile = Profile { files: (0..4).map(file).collect(), ..Profile::default() };
        let options = Options { window, program: Some(progress::Program::default()), ..Options::default() };
        Shared::new(crate::Replay::new(profile).options(options))
    }

    fn follower(shared: &Shared) -> Option<Follower> {
        let pieces = ahead_plan::pieces(&shared.profile, machine::page_size());
        Follower::new(shared, Follower::sizes(shared, &pieces)?, &pieces, |_| 0)
    }

    #[test]
    fn next_source_continues_when_one_dies_and_the_clock_when_all_have() {
        let shared = shared(WindowSize::Bytes(1 << 20));
        let follower = follower(&shared).unwrap();
        let dying = |source, file| -> StartSource {
            Box::new(move || Ok(Box::new(Dying(source, vec![Seen { file, offset_bytes: 0 }])) as Box<dyn Progress>))
        };
        let refused: StartSource = Box::new(|| Err("not permitted".into()));
        follower.watch(&shared, vec![dying(ProgressSource::Observer, 1), refused, dying(ProgressSource::Proc, 2)]);
        let account = follower.account();
        assert_eq!(account.progress, [ProgressSource::Observer, ProgressSource::Proc, ProgressSource::Clock]);
        assert_eq!((account.lost.as_deref(), account.milestones_seen), (Some("BPF: detached"), 2));
        assert_eq!(account.milestones_expected, 4);
    }

    #[test]
    fn profile_that_memory_holds_needs_no_window_unless_one_is_requested() {
        assert!(follower(&shared(WindowSize::Auto)).is_none() && follower(&shared(WindowSize::Whole)).is_none());
        assert!(follower(&shared(WindowSize::Bytes(4096))).is_some());
        // 16 MiB: all of it fits into the requested window, so that all of it is fetched at once.
        assert!(follower(&shared(WindowSize::Bytes(16 << 20))).is_none());
    }

    /// Regression: a profile that fitted into the given window, but not into the budget of available memory, was not fetched whole.
    #[test]
    fn given_window_holds_no_more_than_the_budget_without_a_window() {
        let at_once = |size, low_memory| FollowerRequest { size, low_memory }.at_once(60 << 20, 4096) >> 20;
        assert_eq!(at_once(WindowSize::Bytes(64 << 20), false), 30);
        assert_eq!(at_once(WindowSize::Bytes(64 << 20), true), 15);
        assert_eq!((at_once(WindowSize::Bytes(8 << 20), false), at_once(WindowSize::Auto, false)), (8, 30));
    }

    #[test]
    fn position_far_from_the_next_mark_moves_nothing() {
        let shared = shared(WindowSize::Bytes(1 << 20));
        let follower = follower(&shared).unwrap();
        let see = |offset_bytes| {
            let mut state = follower.lock();
            follower.see(&mut state, Seen { file: 0, offset_bytes }, 1);
            state.window.at()
        };
        assert_eq!([see(100 << 20), see(1 << 20), see(3 << 20)], [0, 4, 12]);
    }
}

//! The logic with a world that only remembers what it was asked. Where the policy would need many decisions for an act, the test gives it.

mod admission;

use super::Steerer;
use crate::log::{LogEntry, LoggedAct, Outcome};
use crate::refusal::Refusal;
use crate::rules::Rules;
use crate::world::{Process, World};
use ahead_model::DeviceNumber;
use ahead_observe::OpenState;
use ahead_policy::steering::{Act, Decision, Kind, Machine, Mapped, Readahead, Reason, Target};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;

/// The open file, the process and the inode of most tests.
const OPEN: u64 = 0xa000;
const INODE: u64 = 0xb000;
const PID: u32 = 70;

/// What the logic has done to the world.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Window { pid: u32, descriptor: Option<u32>, expected: u64, pages: u64 },
    Fetch(Vec<Range<u64>>),
    StopFetching,
    Quiet(bool),
}

/// A world without a kernel.
struct Fake {
    now_ns: u64,
    calls: Vec<Call>,
    /// The results of the next windows; then success.
    windows: VecDeque<Result<(), Refusal>>,
    fetches: VecDeque<Result<(), Refusal>>,
    failures: Vec<(u64, Refusal)>,
    process: Option<Process>,
    prev_pos: Option<i64>,
    window_pages: u64,
    path: Option<PathBuf>,
    holders: HashMap<u64, (u32, u32)>,
}

impl Fake {
    fn new() -> Fake {
        let process = Process { start_ticks: 1, comm: b"reader".as_slice().into(), is_kernel_thread: false };
        Fake {
            now_ns: 1000,
            calls: Vec::new(),
            windows: VecDeque::new(),
            fetches: VecDeque::new(),
            failures: Vec::new(),
            process: Some(process),
            prev_pos: Some(0),
            window_pages: 0,
            path: Some("/srv/file".into()),
            holders: HashMap::new(),
        }
    }

    fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }
}

impl World for Fake {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wall_ms(&self) -> u64 {
        7
    }

    fn process(&mut self, _: u32) -> Option<Process> {
        self.process.clone()
    }

    fn cgroups(&mut self, _: u32) -> Vec<Vec<u8>> {
        vec![b"/x".to_vec()]
    }

    fn path(&mut self, _: &Target) -> Option<PathBuf> {
        self.path.clone()
    }

    fn mount(&mut self, _: &Target) -> Option<Vec<u8>> {
        Some(b"/srv".to_vec())
    }

    fn machine(&mut self, _: &Target) -> Machine {
        Machine::default()
    }

    fn machine_overall(&mut self) -> Machine {
        Machine::default()
    }

    fn waited(&mut self, _: DeviceNumber, _: u64, _: u64, _: u64) {}

    fn set_window(&mut self, target: &Target, expected: u64, pages: u64) -> Result<(), Refusal> {
        self.calls.push(Call::Window { pid: target.pid, descriptor: target.descriptor, expected, pages });
        self.windows.pop_front().unwrap_or(Ok(()))
    }

    fn fetch(&mut self, _: &Target, ranges: &[Range<u64>], _: u64) -> Result<(), Refusal> {
        self.calls.push(Call::Fetch(ranges.to_vec()));
        self.fetches.pop_front().unwrap_or(Ok(()))
    }

    fn stop_fetching(&mut self, _: u64) {
        self.calls.push(Call::StopFetching);
    }

    fn failed_fetches(&mut self) -> Vec<(u64, Refusal)> {
        std::mem::take(&mut self.failures)
    }

    fn state(&mut self, open: u64, inode: u64) -> Option<OpenState> {
        let window_pages = self.window_pages;
        let state = |prev_pos| OpenState {
            open,
            inode,
            readahead: Readahead { prev_pos, window_pages, ..Readahead::default() },
            ..OpenState::default()
        };
        self.prev_pos.map(state)
    }

    fn waits(&mut self, _: u64) -> Option<(u64, u64)> {
        Some((3, 30))
    }

    fn holders(&mut self) -> HashMap<u64, (u32, u32)> {
        self.holders.clone()
    }

    fn set_quiet(&mut self, _: u64, quiet: bool) {
        self.calls.push(Call::Quiet(quiet));
    }

    fn forget(&mut self, _: u64) {}
}

/// A decision about the usual open file, with a window of 32 pages.
fn event(at_ns: u64) -> Decision {
    Decision {
        at_ns,
        target: Target {
            pid: PID,
            tid: PID,
            descriptor: Some(3),
            open: OPEN,
            inode: INODE,
            inode_number: 5,
            device: DeviceNumber::new(8, 0),
            ..Target::default()
        },
        page: 100,
        wanted: 4,
        before: Readahead { start: 96, size: 4, window_pages: 32, prev_pos: 4096 * 100, ..Readahead::default() },
        file_pages: 1 << 20,
        disk_window_pages: 32,
        misses: 1,
        comm: *b"reader\0\0\0\0\0\0\0\0\0\0",
        ..Decision::default()
    }
}

/// The same with another target.
fn of(change: impl FnOnce(&mut Target), mut decision: Decision) -> Decision {
    change(&mut decision.target);
    decision
}

/// A fault in no order, of a mapping of a file larger than memory.
fn fault(number: u64) -> Decision {
    let mapping = Some(Mapped { end_page: 1 << 20, address: 1 << 30, ..Mapped::default() });
    let page = number * number * 104_729 % (1 << 20);
    of(|target| target.mapping = mapping, Decision { kind: Kind::Fault, page, wanted: 1, ..event(900 + number) })
}

/// A decision of a sequential reader at the begin of its next window.
fn marker(number: u64, page: u64, window: u64, waited_ns: u64) -> Decision {
    let before = Readahead { start: page, size: window, async_size: window, window_pages: window, ..event(0).before };
    let at_ns = number * 1_000_000;
    Decision { kind: Kind::Marker, page, before, waits: number, wait_ns: waited_ns, ..event(at_ns) }
}

fn set(pages: u64) -> Vec<Act> {
    vec![Act::SetWindow { open: OPEN, pages, reason: Reason::Consecutive { pages: 1 } }]
}

fn fetch(ranges: Vec<Range<u64>>) -> Vec<Act> {
    vec![Act::Fetch { open: OPEN, file: INODE, ranges, reason: Reason::Consecutive { pages: 1 } }]
}

fn restore() -> Vec<Act> {
    vec![Act::Restore { open: OPEN, reason: Reason::Consecutive { pages: 1 } }]
}

fn window(expected: u64, pages: u64) -> Call {
    Call::Window { pid: PID, descriptor: Some(3), expected, pages }
}

fn steerer(rules: &str) -> (Steerer, Fake) {
    (Steerer::new(Rules::parse(rules).unwrap(), false), Fake::new())
}

/// A decision, and acts that follow from it.
fn act(steerer: &mut Steerer, fake: &mut Fake, decision: &Decision, acts: Vec<Act>) {
    steerer.decide(fake, decision);
    steerer.perform(fake, acts, Some(decision.at_ns));
}

fn outcomes(log: &[LogEntry]) -> Vec<(LoggedAct, Outcome)> {
    log.iter().map(|entry| (entry.act, entry.outcome)).collect()
}

#[test]
fn window_is_set_logged_and_put_back() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    let mut later = event(2000);
    later.before.window_pages = 128;
    act(&mut steerer, &mut fake, &later, set(256));
    assert_eq!(fake.take_calls(), [window(32, 128), window(128, 256)]);
    assert_eq!(steerer.steered(), (1, 0));
    let log = steerer.take_log();
    assert_eq!(outcomes(&log), [(LoggedAct::Window, Outcome::Done); 2]);
    assert_eq!((log[0].before_pages, log[0].pages, log[0].latency_us), (Some(32), Some(128), Some(0.1)));
    assert_eq!((log[0].path.as_deref(), log[0].comm.as_str(), log[0].time_ms), (Some("/srv/file"), "reader", 7));
    steerer.put_back(&mut fake, "the end");
    assert_eq!(fake.take_calls(), [window(256, 32)]);
    assert_eq!(outcomes(&steerer.take_log()), [(LoggedAct::Restore, Outcome::Done)]);
    steerer.put_back(&mut fake, "again");
    assert!(fake.take_calls().is_empty() && steerer.tracked() == 0);
}

#[test]
fn random_faults_without_descriptor_are_reported_once() {
    let (mut steerer, mut fake) = steerer("");
    (0..20).for_each(|number| steerer.decide(&mut fake, &of(|target| target.descriptor = None, fault(number))));
    let log = steerer.take_log();
    assert_eq!(
        (outcomes(&log), log[0].reason.as_str()),
        (vec![(LoggedAct::None, Outcome::Refused)], Refusal::NoDescriptor.label().unwrap())
    );
    assert!(fake.take_calls().is_empty());
}

#[test]
fn late_marker_of_a_reader_without_waits_is_no_latency() {
    let (mut steerer, mut fake) = steerer("");
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &Decision { kind: Kind::Marker, wasted_pages: 20, page: 104, ..event(950) });
    let log = steerer.take_log();
    assert_eq!((outcomes(&log), log[0].latency_us), (vec![(LoggedAct::Window, Outcome::Done)], None));
}

#[test]
fn dry_run_logs_and_changes_nothing() {
    let mut steerer = Steerer::new(Rules::default(), true);
    let mut fake = Fake::new();
    for (at, acts) in [set(128), fetch(vec![0..8]), restore()].into_iter().enumerate() {
        act(&mut steerer, &mut fake, &event(900 + at as u64), acts);
    }
    assert!(fake.take_calls().is_empty());
    let log = steerer.take_log();
    assert_eq!(
        outcomes(&log),
        [LoggedAct::Window, LoggedAct::Fetch, LoggedAct::Restore].map(|act| (act, Outcome::Planned))
    );
    assert!(log.iter().all(|entry| entry.dry_run && entry.latency_us.is_none()));
    assert_eq!((steerer.steered(), steerer.files[&OPEN].steering.window()), ((0, 0), None));
}

#[test]
fn programs_own_advice_ends_all_acts() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    // A decision from before the act still has the window before.
    act(&mut steerer, &mut fake, &event(950), set(256));
    assert_eq!(fake.take_calls(), [window(32, 128), window(128, 256)]);
    // POSIX_FADV_SEQUENTIAL.
    let mut advised = event(2000);
    advised.before.window_pages = 64;
    steerer.decide(&mut fake, &advised);
    assert_eq!(fake.take_calls(), [Call::Quiet(true)]);
    act(&mut steerer, &mut fake, &Decision { at_ns: 3000, ..advised }, set(512));
    assert!(fake.take_calls().is_empty());
    // Another open file at the same address.
    act(&mut steerer, &mut fake, &event(4000), set(512));
    steerer.put_back(&mut fake, "the end");
    assert_eq!(fake.take_calls(), [window(32, 512), window(512, 32)]);
    assert_eq!(steerer.counts().refusals[Refusal::Advised.label().unwrap()], 1);
    let log = steerer.take_log();
    assert_eq!((log[2].act, log[2].outcome), (LoggedAct::None, Outcome::Refused));
}

#[test]
fn every_failure_reaches_the_policy_once() {
    for why in [
        Refusal::Gone,
        Refusal::Advised,
        Refusal::Forbidden("x".into()),
        Refusal::NoSetting,
        Refusal::Queue,
        Refusal::Failed("x".into()),
    ] {
        let (mut steerer, mut fake) = steerer("");
        fake.windows.push_back(Err(why.clone()));
        let acts = (0..200).position(|number| {
            steerer.decide(&mut fake, &fault(number));
            !fake.calls.is_empty()
        });
        assert_eq!(fake.take_calls()[0], window(32, 1), "{why:?}");
        assert_eq!(steerer.counts().refusals, [(why.label().unwrap(), 1)].into(), "{why:?}");
        let window = steerer.files.get(&OPEN).and_then(|file| file.steering.window());
        assert_eq!((window, steerer.tracked()), (None, usize::from(why != Refusal::Gone)), "{why:?}");
        // Not asked for again at once, unless the open file is met again: it may be another one at this address.
        (0..200).for_each(|number| steerer.decide(&mut fake, &fault(number + acts.unwrap() as u64)));
        let asks = fake.take_calls().contains(&self::window(32, 1));
        assert_eq!(asks, matches!(why, Refusal::Gone | Refusal::Advised), "{why:?}");
    }
}

#[test]
fn process_that_may_not_be_touched_is_left_alone_once() {
    let (mut steerer, mut fake) = steerer("");
    fake.windows.push_back(Err(Refusal::Forbidden("EPERM".into())));
    act(&mut steerer, &mut fake, &event(900), set(128));
    steerer.decide(&mut fake, &of(|target| target.open += 1, event(901)));
    assert_eq!((steerer.tracked(), steerer.take_log().len()), (1, 1));
}

#[test]
fn reused_address_is_another_open_file() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    let mut first_read = event(2000);
    first_read.before = Readahead { window_pages: 32, prev_pos: -1, ..Readahead::default() };
    steerer.decide(&mut fake, &first_read);
    assert_eq!((steerer.counts().files, steerer.steered().0), (2, 0));
    steerer.decide(&mut fake, &of(|target| target.inode += 1, event(3000)));
    assert_eq!(steerer.counts().files, 3);
    fake.take_calls();
    // A mapping has no position: the window is that of the disk again.
    let fault = of(|target| target.inode += 1, Decision { kind: Kind::Fault, ..event(4000) });
    act(&mut steerer, &mut fake, &fault, set(128));
    act(&mut steerer, &mut fake, &of(|target| target.pid += 1, Decision { at_ns: 5000, ..fault }), set(256));
    let next = Call::Window { pid: PID + 1, descriptor: Some(3), expected: 32, pages: 256 };
    assert_eq!(fake.take_calls(), [window(32, 128), next]);
    fake.windows.push_back(Err(Refusal::Gone));
    steerer.put_back(&mut fake, "the end");
    assert_eq!(fake.take_calls().len(), 1, "only the last open file has a changed window");
}

/// Regression: it was dropped from the table, and its window stayed.
#[test]
fn window_of_a_file_that_is_left_alone_is_put_back_after_another_process_has_read_it() {
    let (mut steerer, mut fake) = steerer("");
    let with_window = |at_ns, pid| {
        let before = Readahead { window_pages: 128, ..event(0).before };
        of(|target| target.pid = pid, Decision { before, ..event(at_ns) })
    };
    act(&mut steerer, &mut fake, &event(900), set(128));
    fake.fetches.push_back(Err(Refusal::NotOpened));
    act(&mut steerer, &mut fake, &with_window(2000, PID), fetch(vec![0..8]));
    steerer.decide(&mut fake, &with_window(9_000_000_000, PID + 1));
    fake.take_calls();
    steerer.put_back(&mut fake, "the end");
    let back = Call::Window { pid: PID + 1, descriptor: Some(3), expected: 128, pages: 32 };
    assert_eq!(fake.take_calls(), [back]);
}

/// Regression: it was not reported.
#[test]
fn window_of_a_mapping_whose_descriptor_was_closed_since_is_reported_at_the_end() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    steerer.take_log();
    fake.windows.push_back(Err(Refusal::Gone));
    fake.window_pages = 128;
    steerer.put_back(&mut fake, "the end");
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].outcome), (LoggedAct::Restore, Outcome::Failed));
    assert_eq!(log[0].reason, "the end; no descriptor, only a mapping");
}

/// Regression: pages of another process would have been requested.
#[test]
fn mapping_of_one_process_is_not_used_for_another() {
    let (mut steerer, mut fake) = steerer("");
    steerer.decide(&mut fake, &fault(1));
    steerer.decide(&mut fake, &event(901));
    assert!(steerer.files[&OPEN].target.mapping.is_some());
    steerer.decide(&mut fake, &of(|target| target.pid += 1, event(902)));
    assert_eq!(steerer.files[&OPEN].target.mapping, None);
}

#[test]
fn disk_without_read_ahead_is_left_alone() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &Decision { disk_window_pages: 0, ..event(900) }, set(128));
    assert_eq!(steerer.counts().refusals, [(Refusal::Off.label().unwrap(), 1)].into());
    assert_eq!(fake.take_calls(), [Call::Quiet(true)]);
}

#[test]
fn closed_descriptor_is_looked_for_in_other_processes_at_the_end() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    fake.take_calls();
    fake.windows.push_back(Err(Refusal::Gone));
    fake.holders.insert(OPEN, (71, 9));
    steerer.put_back(&mut fake, "the end");
    let elsewhere = Call::Window { pid: 71, descriptor: Some(9), expected: 128, pages: 32 };
    assert_eq!(fake.take_calls(), [window(128, 32), elsewhere]);
    assert_eq!(steerer.counts().windows_restored, 1);
}

/// The decisions of a backward reader that lead to a fetch.
fn read_backward(steerer: &mut Steerer, fake: &mut Fake) {
    (1..=3).for_each(|number| steerer.decide(fake, &Decision { page: 50_000 - 4 * number, ..event(900 + number) }));
}

#[test]
fn fetches_are_polled_logged_once_per_second_and_stopped() {
    let (mut steerer, mut fake) = steerer("");
    read_backward(&mut steerer, &mut fake);
    let mut position = 49_988;
    while fake.calls.len() < 3 {
        fake.now_ns = steerer.next_poll_ns().unwrap();
        position -= 4;
        fake.prev_pos = Some(4096 * position);
        steerer.poll_readers(&mut fake);
    }
    let pages = |call: &Call| match call {
        Call::Fetch(ranges) => ranges.iter().map(|range| range.end - range.start).sum::<u64>(),
        other => panic!("{other:?}"),
    };
    let fetched: Vec<u64> = fake.take_calls().iter().map(pages).collect();
    assert_eq!((steerer.take_log().len(), steerer.counts().fetched_pages), (1, fetched.iter().sum()));
    fake.now_ns += 3_000_000_000;
    steerer.tick(&mut fake);
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].pages), (LoggedAct::Fetch, Some(fetched[1] + fetched[2])));
    // Closed.
    fake.prev_pos = None;
    fake.now_ns += 1_000_000_000;
    steerer.poll_readers(&mut fake);
    assert_eq!((fake.take_calls(), steerer.tracked()), (vec![Call::StopFetching], 0));
}

#[test]
fn full_queue_and_failed_worker_are_counted() {
    let (mut steerer, mut fake) = steerer("");
    fake.fetches.push_back(Err(Refusal::Queue));
    act(&mut steerer, &mut fake, &event(900), fetch(vec![10..20]));
    act(&mut steerer, &mut fake, &event(901), fetch(vec![10..20]));
    fake.failures.push((OPEN, Refusal::NotOpened));
    fake.take_calls();
    steerer.poll_readers(&mut fake);
    assert_eq!(fake.take_calls(), [Call::StopFetching, Call::Quiet(true)]);
    assert_eq!(
        steerer.counts().refusals,
        [(Refusal::Queue.label().unwrap(), 1), (Refusal::NotOpened.label().unwrap(), 1)].into()
    );
}

#[test]
fn rules_may_forbid_fetching_and_limit_acts() {
    for (rules, fetches) in [("", 1), ("[limits]\nfetch = false\n", 0)] {
        let (mut steerer, mut fake) = steerer(rules);
        read_backward(&mut steerer, &mut fake);
        assert_eq!(fake.take_calls().len(), fetches, "{rules}");
    }
    let (mut steerer, mut fake) = steerer("[limits]\nmax_acts_per_second = 1\n");
    act(&mut steerer, &mut fake, &event(900), set(64));
    act(&mut steerer, &mut fake, &event(901), set(128));
    assert_eq!(fake.take_calls(), [window(32, 64)]);
    assert_eq!(steerer.counts().refusals, [(Refusal::ActLimit.label().unwrap(), 1)].into());
}

#[test]
fn effect_is_logged_after_a_second_and_with_a_restore() {
    let (mut steerer, mut fake) = steerer("");
    let (mut page, mut waited_ns) = (0, 0);
    // One decision after the act: its effect is known then.
    for number in 1.. {
        let (is_set, window) =
            (steerer.steered().0 == 1, steerer.files.get(&OPEN).map_or(32, super::File::expected_pages));
        // The larger window helps.
        waited_ns += if is_set { 1_000 } else { 640_000 };
        fake.now_ns = 1_000_000 * number;
        steerer.decide(&mut fake, &marker(number, page, window, waited_ns));
        page += window;
        if is_set {
            break;
        }
    }
    let log = steerer.take_log();
    assert_eq!((outcomes(&log), log[0].pages), (vec![(LoggedAct::Window, Outcome::Done)], Some(128)));
    fake.now_ns = 2_000_000_000;
    steerer.tick(&mut fake);
    let log = steerer.take_log();
    let effect = log[0].effect.unwrap();
    assert_eq!(log[0].act, LoggedAct::Effect);
    assert!(effect.after.wait_share() < effect.before.wait_share(), "{effect:?}");
    steerer.perform(&mut fake, restore(), None);
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].before_pages, log[0].pages), (LoggedAct::Restore, Some(128), Some(32)));
    assert_eq!((log[0].effect, steerer.counts().undone), (Some(effect), 1));
}

#[test]
fn table_is_bounded_and_keeps_what_was_changed() {
    let (mut steerer, mut fake) = steerer("[limits]\nmax_files = 4\n");
    act(&mut steerer, &mut fake, &event(900), set(128));
    for other in 1..100 {
        steerer.decide(&mut fake, &of(|target| target.open += other, event(1000 + other)));
    }
    assert!(steerer.tracked() <= 4);
    assert_eq!(steerer.steered().0, 1);
    assert_eq!((steerer.counts().events, steerer.counts().files), (100, 100));
}

#[test]
fn reload_puts_back_and_uses_the_new_limits() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    fake.take_calls();
    steerer.reload(&mut fake, Rules::parse("[limits]\nmax_window = '1M'\n").unwrap());
    assert_eq!(fake.take_calls(), [window(128, 32)]);
    assert_eq!(super::policy_limits(&steerer.rules.limits).max_window_pages, 256);
    assert_eq!((steerer.tracked(), steerer.counts().events), (0, 1));
    steerer.log_rules(&mut fake, Outcome::Done, "read".into());
    assert_eq!(outcomes(&steerer.take_log()).last(), Some(&(LoggedAct::Rules, Outcome::Done)));
}

#[test]
fn idle_files_are_dropped_and_steered_ones_checked() {
    let (mut steerer, mut fake) = steerer("");
    act(&mut steerer, &mut fake, &event(900), set(128));
    steerer.decide(&mut fake, &of(|target| target.open += 1, event(901)));
    fake.now_ns = 40_000_000_000;
    steerer.tick(&mut fake);
    assert_eq!((steerer.tracked(), steerer.steered().0), (1, 1));
    fake.prev_pos = None;
    fake.now_ns = 50_000_000_000;
    steerer.tick(&mut fake);
    assert!(!steerer.needs_ticks());
}

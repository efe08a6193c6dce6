//! The logic with a policy of scripted acts and a world that only remembers what it was asked.

mod admission;

use super::{Policy, Steerer};
use crate::counts::reason;
use crate::log::{LogEntry, LoggedAct, Outcome};
use crate::rules::Rules;
use crate::world::{NotDone, Process, Target, World};
use ahead_model::DeviceNumber;
use ahead_observe::{DecisionEvent, DecisionKind, FaultMapping, MappingAdvice, OpenState, Readahead};
use ahead_policy::steering::{Act, Class, Effect, Failure, Limits, Machine, Progress, Rate, Reason, Seen};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;

/// The open file, the process and the inode of most tests.
const OPEN: u64 = 0xa000;
const INODE: u64 = 0xb000;
const PID: u32 = 70;

/// Gives the acts of a script, one list for each call.
#[derive(Default)]
struct Script {
    acts: VecDeque<Vec<Act>>,
    seen: Vec<Seen>,
    progress: Vec<Progress>,
    undone: Vec<(u64, Failure)>,
    forgotten: Vec<u64>,
    poll_after_ns: Option<u64>,
    effect: Option<Effect>,
    class: Class,
    max_window_pages: u64,
}

impl Policy for Script {
    fn fresh(&self, limits: &Limits) -> Script {
        Script { max_window_pages: limits.max_window_pages, ..Script::default() }
    }

    fn seen(&mut self, seen: &Seen, _: &Machine) -> Vec<Act> {
        self.seen.push(*seen);
        self.acts.pop_front().unwrap_or_default()
    }

    fn progress(&mut self, progress: &Progress, _: &Machine) -> Vec<Act> {
        self.progress.push(*progress);
        self.acts.pop_front().unwrap_or_default()
    }

    fn poll_after_ns(&self, _: u64) -> Option<u64> {
        self.poll_after_ns
    }

    fn tick(&mut self, _: u64, _: &Machine) -> Vec<Act> {
        self.acts.pop_front().unwrap_or_default()
    }

    fn class(&self, _: u64) -> Class {
        self.class
    }

    fn effect(&self, _: u64) -> Option<Effect> {
        self.effect
    }

    fn forget(&mut self, open: u64) {
        self.forgotten.push(open);
    }

    fn undone(&mut self, open: u64, failure: Failure) {
        self.undone.push((open, failure));
    }
}

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
    windows: VecDeque<Result<(), NotDone>>,
    fetches: VecDeque<Result<(), NotDone>>,
    failures: Vec<(u64, NotDone)>,
    process: Option<Process>,
    prev_pos: Option<i64>,
    window_pages: u32,
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

    fn set_window(&mut self, target: &Target, expected: u64, pages: u64) -> Result<(), NotDone> {
        self.calls.push(Call::Window { pid: target.pid, descriptor: target.descriptor, expected, pages });
        self.windows.pop_front().unwrap_or(Ok(()))
    }

    fn fetch(&mut self, _: &Target, ranges: &[Range<u64>], _: u64) -> Result<(), NotDone> {
        self.calls.push(Call::Fetch(ranges.to_vec()));
        self.fetches.pop_front().unwrap_or(Ok(()))
    }

    fn stop_fetching(&mut self, _: u64) {
        self.calls.push(Call::StopFetching);
    }

    fn failed_fetches(&mut self) -> Vec<(u64, NotDone)> {
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
fn event(time_ns: u64) -> DecisionEvent {
    DecisionEvent {
        time_ns,
        pid: PID,
        tid: PID,
        open: OPEN,
        inode: INODE,
        device: DeviceNumber::new(8, 0),
        inode_number: 5,
        is_block_device: false,
        descriptor: Some(3),
        kind: DecisionKind::Miss,
        page: 100,
        wanted: 4,
        before: Readahead { start: 96, size: 4, window_pages: 32, prev_pos: 4096 * 100, ..Readahead::default() },
        file_pages: 1000,
        cached_pages: 0,
        disk_window_pages: 32,
        mapping: None,
        is_thrashed: false,
        misses: 1,
        waits: 0,
        wait_ns: 0,
        issued_pages: 0,
        wasted_pages: 0,
        comm: *b"reader\0\0\0\0\0\0\0\0\0\0",
    }
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

fn steerer(rules: &str, acts: Vec<Vec<Act>>) -> (Steerer<Script>, Fake) {
    let mut steerer = Steerer::new(&Script::default(), Rules::parse(rules).unwrap(), false);
    steerer.policy.acts = acts.into();
    (steerer, Fake::new())
}

fn outcomes(log: &[LogEntry]) -> Vec<(LoggedAct, Outcome)> {
    log.iter().map(|entry| (entry.act, entry.outcome)).collect()
}

#[test]
fn window_is_set_logged_and_put_back() {
    let (mut steerer, mut fake) = steerer("", vec![set(128), set(256)]);
    steerer.decide(&mut fake, &event(900));
    let mut later = event(2000);
    later.before.window_pages = 128;
    steerer.decide(&mut fake, &later);
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
fn policy_sees_the_state_before_the_decision() {
    let (mut steerer, mut fake) = steerer("", Vec::new());
    let mut seen = event(900);
    let mapping = FaultMapping { first_page: 0, end_page: 1000, address: 1 << 20, advice: MappingAdvice::Random };
    (seen.kind, seen.mapping, seen.descriptor, seen.waits) = (DecisionKind::Fault, Some(mapping), None, 3);
    steerer.decide(&mut fake, &seen);
    let policy = &steerer.policy.seen[0];
    assert_eq!((policy.baseline_window_pages, policy.prev_page, policy.has_descriptor), (32, Some(99), false));
    assert_eq!((policy.mapping, policy.advice), (Some((0, 1000)), ahead_policy::Advice::Random));
}

#[test]
fn random_faults_without_descriptor_are_reported_once() {
    let (mut steerer, mut fake) = steerer("", Vec::new());
    steerer.policy.class = Class::RandomMapped;
    let fault = DecisionEvent { kind: DecisionKind::Fault, descriptor: None, ..event(900) };
    (0..3).for_each(|_| steerer.decide(&mut fake, &fault));
    let log = steerer.take_log();
    assert_eq!(
        (outcomes(&log), log[0].reason.as_str()),
        (vec![(LoggedAct::None, Outcome::Refused)], reason::NO_DESCRIPTOR)
    );
    assert_eq!(steerer.policy.seen.len(), 3);
}

#[test]
fn late_marker_of_a_reader_without_waits_is_no_latency() {
    let (mut steerer, mut fake) = steerer("", vec![set(128)]);
    steerer.decide(&mut fake, &DecisionEvent { kind: DecisionKind::Marker, ..event(900) });
    assert_eq!(steerer.take_log()[0].latency_us, None);
}

#[test]
fn dry_run_logs_and_changes_nothing() {
    let mut steerer = Steerer::new(&Script::default(), Rules::default(), true);
    steerer.policy.acts = vec![set(128), fetch(vec![0..8]), restore()].into();
    let mut fake = Fake::new();
    (0..3).for_each(|at| steerer.decide(&mut fake, &event(900 + at)));
    assert!(fake.take_calls().is_empty());
    let log = steerer.take_log();
    assert_eq!(
        outcomes(&log),
        [LoggedAct::Window, LoggedAct::Fetch, LoggedAct::Restore].map(|act| (act, Outcome::Planned))
    );
    assert!(log.iter().all(|entry| entry.dry_run && entry.latency_us.is_none()));
    assert_eq!(steerer.policy.undone, [(OPEN, Failure::DryRun); 2]);
    assert_eq!(steerer.steered(), (0, 0));
}

#[test]
fn programs_own_advice_ends_all_acts() {
    let (mut steerer, mut fake) = steerer("", vec![set(128), set(256), set(512)]);
    steerer.decide(&mut fake, &event(900));
    // A decision from before the act still has the window before.
    steerer.decide(&mut fake, &event(950));
    assert_eq!(fake.take_calls(), [window(32, 128), window(128, 256)]);
    // POSIX_FADV_SEQUENTIAL.
    let mut advised = event(2000);
    advised.before.window_pages = 64;
    steerer.decide(&mut fake, &advised);
    assert_eq!(fake.take_calls(), [Call::Quiet(true)]);
    steerer.decide(&mut fake, &DecisionEvent { time_ns: 3000, ..advised });
    assert!(fake.take_calls().is_empty());
    // Another open file at the same address.
    steerer.decide(&mut fake, &event(4000));
    steerer.put_back(&mut fake, "the end");
    assert_eq!(fake.take_calls(), [window(32, 512), window(512, 32)]);
    assert_eq!(steerer.counts().refusals[reason::ADVISED], 1);
    let log = steerer.take_log();
    assert_eq!((log[2].act, log[2].outcome), (LoggedAct::None, Outcome::Refused));
}

#[test]
fn every_failure_reaches_the_policy_once() {
    for (why, failure, counted) in [
        (NotDone::Gone, Failure::Gone, reason::GONE),
        (NotDone::Advised, Failure::Refused, reason::ADVISED),
        (NotDone::Forbidden("x".into()), Failure::Refused, reason::FORBIDDEN),
        (NotDone::Impossible(reason::NO_SETTING), Failure::Refused, reason::NO_SETTING),
        (NotDone::Busy, Failure::Busy, reason::QUEUE),
        (NotDone::Failed("x".into()), Failure::Refused, reason::FAILED),
    ] {
        let (mut steerer, mut fake) = steerer("", vec![set(128)]);
        fake.windows.push_back(Err(why.clone()));
        steerer.decide(&mut fake, &event(900));
        assert_eq!(steerer.policy.undone, [(OPEN, failure)], "{why:?}");
        assert_eq!(steerer.counts().refusals, [(counted, 1)].into(), "{why:?}");
        fake.take_calls();
        steerer.put_back(&mut fake, "the end");
        assert!(fake.take_calls().is_empty(), "{why:?}");
    }
}

#[test]
fn process_that_may_not_be_touched_is_left_alone_once() {
    let (mut steerer, mut fake) = steerer("", vec![set(128)]);
    fake.windows.push_back(Err(NotDone::Forbidden("EPERM".into())));
    steerer.decide(&mut fake, &event(900));
    let other = DecisionEvent { open: OPEN + 1, ..event(901) };
    steerer.decide(&mut fake, &other);
    assert_eq!((steerer.tracked(), steerer.take_log().len()), (1, 1));
}

#[test]
fn reused_address_is_another_open_file() {
    let (mut steerer, mut fake) = steerer("", vec![set(128), Vec::new()]);
    steerer.decide(&mut fake, &event(900));
    let mut first_read = event(2000);
    first_read.before = Readahead { window_pages: 32, prev_pos: -1, ..Readahead::default() };
    steerer.decide(&mut fake, &first_read);
    assert_eq!((steerer.policy.forgotten.as_slice(), steerer.steered().0), (&[OPEN][..], 0));
    steerer.decide(&mut fake, &DecisionEvent { inode: INODE + 1, ..event(3000) });
    assert_eq!(steerer.policy.forgotten, [OPEN, OPEN]);
    fake.take_calls();
    // A mapping has no position: the window is that of the disk again.
    steerer.policy.acts = vec![set(128), set(256)].into();
    let fault = DecisionEvent { kind: DecisionKind::Fault, inode: INODE + 1, ..event(4000) };
    steerer.decide(&mut fake, &fault);
    steerer.decide(&mut fake, &DecisionEvent { pid: PID + 1, time_ns: 5000, ..fault });
    let next = Call::Window { pid: PID + 1, descriptor: Some(3), expected: 32, pages: 256 };
    assert_eq!(fake.take_calls(), [window(32, 128), next]);
    fake.windows.push_back(Err(NotDone::Gone));
    steerer.put_back(&mut fake, "the end");
    assert_eq!(fake.take_calls().len(), 1, "only the last open file has a changed window");
}

/// Regression: it was dropped from the table, and its window stayed.
#[test]
fn window_of_a_file_that_is_left_alone_is_put_back_after_another_process_has_read_it() {
    let (mut steerer, mut fake) = steerer("[limits]\nfetch = false\n", vec![set(128), fetch(vec![0..8])]);
    let with_window = |time_ns, pid| {
        let before = Readahead { window_pages: 128, ..event(0).before };
        DecisionEvent { pid, before, ..event(time_ns) }
    };
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &with_window(2000, PID));
    steerer.decide(&mut fake, &with_window(9_000_000_000, PID + 1));
    fake.take_calls();
    steerer.put_back(&mut fake, "the end");
    let back = Call::Window { pid: PID + 1, descriptor: Some(3), expected: 128, pages: 32 };
    assert_eq!(fake.take_calls(), [back]);
}

/// Regression: it was not reported.
#[test]
fn window_of_a_mapping_whose_descriptor_was_closed_since_is_reported_at_the_end() {
    let (mut steerer, mut fake) = steerer("", vec![set(128)]);
    steerer.decide(&mut fake, &event(900));
    steerer.take_log();
    fake.windows.push_back(Err(NotDone::Gone));
    fake.window_pages = 128;
    steerer.put_back(&mut fake, "the end");
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].outcome), (LoggedAct::Restore, Outcome::Failed));
    assert_eq!(log[0].reason, "the end; no descriptor, only a mapping");
}

/// Regression: pages of another process would have been requested.
#[test]
fn mapping_of_one_process_is_not_used_for_another() {
    let (mut steerer, mut fake) = steerer("", Vec::new());
    let mapping = FaultMapping { first_page: 0, end_page: 1000, address: 1 << 20, advice: MappingAdvice::Normal };
    steerer.decide(&mut fake, &DecisionEvent { mapping: Some(mapping), ..event(900) });
    steerer.decide(&mut fake, &event(901));
    assert!(steerer.files[&OPEN].target.mapping.is_some());
    steerer.decide(&mut fake, &DecisionEvent { pid: PID + 1, ..event(902) });
    assert_eq!(steerer.files[&OPEN].target.mapping, None);
}

#[test]
fn disk_without_read_ahead_is_left_alone() {
    let (mut steerer, mut fake) = steerer("", vec![set(128)]);
    steerer.decide(&mut fake, &DecisionEvent { disk_window_pages: 0, ..event(900) });
    assert_eq!((steerer.counts().refusals[reason::OFF], steerer.policy.seen.len()), (1, 0));
}

#[test]
fn closed_descriptor_is_looked_for_in_other_processes_at_the_end() {
    let (mut steerer, mut fake) = steerer("", vec![set(128)]);
    steerer.decide(&mut fake, &event(900));
    fake.take_calls();
    fake.windows.push_back(Err(NotDone::Gone));
    fake.holders.insert(OPEN, (71, 9));
    steerer.put_back(&mut fake, "the end");
    let elsewhere = Call::Window { pid: 71, descriptor: Some(9), expected: 128, pages: 32 };
    assert_eq!(fake.take_calls(), [window(128, 32), elsewhere]);
    assert_eq!(steerer.counts().windows_restored, 1);
}

#[test]
fn fetches_are_polled_logged_once_per_second_and_stopped() {
    let (mut steerer, mut fake) = steerer("", vec![fetch(vec![10..20]), fetch(vec![20..25])]);
    steerer.policy.poll_after_ns = Some(100);
    steerer.decide(&mut fake, &event(900));
    assert_eq!(steerer.next_poll_ns(), Some(1000));
    fake.prev_pos = Some(4096 * 12);
    steerer.poll_readers(&mut fake);
    assert_eq!(fake.take_calls(), [Call::Fetch(vec![10..20]), Call::Fetch(vec![20..25])]);
    let progress = Progress { open: OPEN, at_ns: 1000, page: 11, waits: Some((3, 30)) };
    assert_eq!(steerer.policy.progress, [progress]);
    assert_eq!((steerer.take_log().len(), steerer.counts().fetched_pages), (1, 15));
    fake.now_ns = 3_000_000_000;
    steerer.tick(&mut fake);
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].pages), (LoggedAct::Fetch, Some(5)));
    // Closed.
    fake.prev_pos = None;
    fake.now_ns = 4_000_000_000;
    steerer.poll_readers(&mut fake);
    assert_eq!((fake.take_calls(), steerer.tracked()), (vec![Call::StopFetching], 0));
}

#[test]
fn full_queue_and_failed_worker_are_counted() {
    let (mut steerer, mut fake) = steerer("", vec![fetch(vec![10..20]), fetch(vec![10..20])]);
    fake.fetches.push_back(Err(NotDone::Busy));
    steerer.decide(&mut fake, &event(900));
    assert_eq!(steerer.policy.undone, [(OPEN, Failure::Busy)]);
    steerer.decide(&mut fake, &event(901));
    fake.failures.push((OPEN, NotDone::Impossible(reason::NOT_OPENED)));
    fake.take_calls();
    steerer.poll_readers(&mut fake);
    assert_eq!(fake.take_calls(), [Call::StopFetching, Call::Quiet(true)]);
    assert_eq!(steerer.counts().refusals, [(reason::QUEUE, 1), (reason::NOT_OPENED, 1)].into());
}

#[test]
fn rules_may_forbid_fetching_and_limit_acts() {
    let (mut steerer, mut fake) = steerer("[limits]\nfetch = false\n", vec![fetch(vec![10..20])]);
    steerer.decide(&mut fake, &event(900));
    assert_eq!(fake.take_calls(), [Call::Quiet(true)]);
    let (mut steerer, mut fake) = self::steerer("[limits]\nmax_acts_per_second = 1\n", vec![set(64), set(128)]);
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &event(901));
    assert_eq!((fake.take_calls(), steerer.policy.undone), (vec![window(32, 64)], vec![(OPEN, Failure::Busy)]));
}

#[test]
fn effect_is_logged_after_a_second_and_with_a_restore() {
    let (mut steerer, mut fake) = steerer("", vec![set(128), Vec::new(), restore()]);
    steerer.decide(&mut fake, &event(900));
    let rate = |waits| Rate { advanced_pages: 256, waits, wait_ns: 100, elapsed_ns: 1000 };
    steerer.policy.effect = Some(Effect { before: rate(10), after: rate(1) });
    steerer.take_log();
    fake.now_ns = 2_000_000_000;
    steerer.tick(&mut fake);
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].effect.unwrap().after_waits_per_mb), (LoggedAct::Effect, 1.0));
    let mut later = event(2_000_000_001);
    later.before.window_pages = 128;
    steerer.decide(&mut fake, &later);
    let log = steerer.take_log();
    assert_eq!((log[0].act, log[0].before_pages, log[0].pages), (LoggedAct::Restore, Some(128), Some(32)));
    assert!(log[0].effect.is_some() && steerer.counts().undone == 1);
}

#[test]
fn table_is_bounded_and_keeps_what_was_changed() {
    let (mut steerer, mut fake) = steerer("[limits]\nmax_files = 4\n", vec![set(128)]);
    steerer.decide(&mut fake, &event(900));
    for other in 1..100 {
        steerer.decide(&mut fake, &DecisionEvent { open: OPEN + other, ..event(1000 + other) });
    }
    assert!(steerer.tracked() <= 4);
    assert_eq!(steerer.steered().0, 1);
    assert_eq!((steerer.counts().events, steerer.counts().files), (100, 100));
}

#[test]
fn reload_puts_back_and_uses_the_new_limits() {
    let (mut steerer, mut fake) = steerer("", vec![set(128)]);
    steerer.decide(&mut fake, &event(900));
    fake.take_calls();
    steerer.reload(&mut fake, Rules::parse("[limits]\nmax_window = '1M'\n").unwrap());
    assert_eq!(fake.take_calls(), [window(128, 32)]);
    assert_eq!((steerer.policy.max_window_pages, steerer.tracked(), steerer.counts().events), (256, 0, 1));
    steerer.log_rules(&mut fake, Outcome::Done, "read".into());
    assert_eq!(outcomes(&steerer.take_log()).last(), Some(&(LoggedAct::Rules, Outcome::Done)));
}

#[test]
fn idle_files_are_dropped_and_steered_ones_checked() {
    let (mut steerer, mut fake) = steerer("", vec![set(128), Vec::new()]);
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &DecisionEvent { open: OPEN + 1, ..event(901) });
    fake.now_ns = 40_000_000_000;
    steerer.tick(&mut fake);
    assert_eq!((steerer.tracked(), steerer.steered().0), (1, 1));
    fake.prev_pos = None;
    fake.now_ns = 50_000_000_000;
    steerer.tick(&mut fake);
    assert!(!steerer.needs_ticks());
}

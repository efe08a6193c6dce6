//! The engine of a disk: computes the due times of reads, and counts reads.
//!
//! The engine serves reads in the order in which the kernel sent them. The kernel numbers its requests. A reader thread may be preempted
//! between receiving a read and calling the engine; then the other thread waits for this call. One lock protects the model.

use super::lateness::Lateness;
use crate::Result;
use ahead_device::{Device, Model, Op, Request};
use ahead_disk::protocol::{ByteRange, FaultChange, Faults, Lead, READS_KEPT, Read, Setup, Stat};
use ahead_sys::daemon::now_ns;
use ahead_sys::locks::IgnorePoison;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// An answer counts as late if its delay exceeds this and [`LATE_SHARE`] of its time. Nanoseconds. About twice the duration of a wake-up
/// on a busy virtual machine.
const LATE_NS: u64 = 60_000;
/// See [`LATE_NS`].
const LATE_SHARE: f64 = 0.05;

/// Step of the numbers of FUSE requests (`FUSE_REQ_ID_STEP` in fs/fuse/fuse_i.h; interrupts have odd numbers).
const NUMBER_STEP: u64 = 2;
/// Timeout of the wait for a missing number: a preempted thread continues within a time slice (some milliseconds at most). Requests that
/// only the library sees, such as FORGET, are rare, and each costs this timeout once.
const ORDER_TIMEOUT: Duration = Duration::from_millis(3);

/// Limit of logged failures of the image. The log is in memory (`/run`), and on a full disk every write fails.
const MAX_LOGGED_FAILURES: u64 = 100;

/// The due time and the result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The range of the read.
    pub range: ByteRange,
    /// Arrival, on the monotonic clock.
    pub arrived_ns: u64,
    /// Due time of the answer, on the monotonic clock.
    pub due_ns: u64,
    /// Time of the read from its arrival, nanoseconds.
    pub takes_ns: u64,
    /// Whether the read fails.
    pub fails: bool,
    /// Whether the model was active when the read arrived.
    pub timed: bool,
}

#[derive(Debug)]
struct EngineState {
    /// The lowest number that has not arrived; `None`: no request has arrived.
    next_number: Option<u64>,
    model: Model,
    capacity_bytes: u64,
    device: Option<Device>,
    lead: Lead,
    faults: Faults,
    counted: Stat,
    busy_ns: u64,
    busy_until_ns: u64,
    image_ns: u64,
    image_error: Option<String>,
    image_failures: u64,
    outstanding: u64,
    since_ns: u64,
    lateness: Lateness,
    reads: VecDeque<Read>,
}

/// The model of one disk with its counters and faults.
#[derive(Debug)]
pub struct Engine {
    state: Mutex<EngineState>,
    /// Notified when a number arrives.
    arrived: Condvar,
    order_timeout: Duration,
}

impl Engine {
    /// A disk whose model is not active yet.
    pub fn new(setup: &Setup, model: Model) -> Engine {
        Engine {
            arrived: Condvar::new(),
            order_timeout: ORDER_TIMEOUT,
            state: Mutex::new(EngineState {
                next_number: None,
                model,
                capacity_bytes: setup.capacity_bytes,
                device: None,
                lead: Lead::default(),
                faults: Faults::default(),
                image_error: None,
                image_failures: 0,
                counted: Stat::default(),
                busy_ns: 0,
                busy_until_ns: 0,
                image_ns: 0,
                outstanding: 0,
                since_ns: now_ns(),
                lateness: Lateness::default(),
                reads: VecDeque::with_capacity(READS_KEPT),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, EngineState> {
        // The state holds only counters: a panic leaves no dangerous state.
        self.state.lock().ignore_poison()
    }

    /// Activates the model, with a disk at rest and counters at zero.
    pub fn engage(&self, lead: Lead) {
        let mut state = self.state();
        state.device = Some(Device::new(&state.model, state.capacity_bytes));
        state.lead = lead;
        state.reset();
    }

    /// Puts the model into its state after power-on, after the outstanding reads. Counters and faults stay.
    pub fn restart(&self) {
        let mut state = self.state();
        let ready_ns = state.busy_until_ns;
        if let Some(device) = &mut state.device {
            device.restart(ready_ns);
        }
    }

    /// Changes the injected faults, if all of them lie on the disk.
    pub fn fault(&self, change: FaultChange) -> Result<Faults> {
        let mut state = self.state();
        let mut faults = state.faults.clone();
        faults.change(change);
        faults.check(state.capacity_bytes)?;
        state.faults = faults.clone();
        Ok(faults)
    }

    /// Schedules a read. `number`: the number of the kernel's request.
    pub fn arrive(&self, number: u64, range: ByteRange) -> Schedule {
        let now = now_ns();
        self.state_in_order(number).arrive(range, now)
    }

    /// Counts the number of another request.
    pub fn skip_number(&self, number: u64) {
        drop(self.state_in_order(number));
    }

    /// The state, after all earlier requests have arrived.
    fn state_in_order(&self, number: u64) -> MutexGuard<'_, EngineState> {
        let mut state = self.state();
        let until = Instant::now() + self.order_timeout;
        while state.next_number.is_some_and(|next| next < number) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.arrived.wait_timeout(state, left).ignore_poison().0;
        }
        state.next_number = state.next_number.max(Some(number + NUMBER_STEP));
        self.arrived.notify_one();
        state
    }

    /// Counts an answer whose data was ready at `ready_ns`, and that was sent at `sent_ns`.
    pub fn answered(&self, schedule: Schedule, ready_ns: u64, sent_ns: u64, image_ns: u64, failed: bool) {
        let mut state = self.state();
        state.outstanding = state.outstanding.saturating_sub(1);
        state.image_ns += image_ns;
        state.counted.failed += u64::from(failed);
        if !schedule.timed {
            return;
        }
        let late_ns = sent_ns.saturating_sub(schedule.due_ns);
        state.lateness.add(late_ns);
        if state.reads.len() == READS_KEPT {
            state.reads.pop_front();
        }
        let Schedule { range: ByteRange { offset_bytes, length_bytes }, arrived_ns, takes_ns, .. } = schedule;
        state.reads.push_back(Read { offset_bytes, length_bytes, arrived_ns, takes_ns, late_ns });
        if late_ns > LATE_NS && late_ns as f64 > schedule.takes_ns as f64 * LATE_SHARE {
            state.counted.late_requests += 1;
            state.counted.late_image_requests += u64::from(ready_ns > schedule.due_ns + LATE_NS);
        }
    }

    /// Counts a write.
    pub fn wrote(&self, bytes: u64) {
        let mut state = self.state();
        state.counted.writes += 1;
        state.counted.write_bytes += bytes;
    }

    /// The last reads since the last reset of the counters, in the order of their answers.
    pub fn reads(&self) -> Vec<Read> {
        self.state().reads.iter().copied().collect()
    }

    /// Counts and logs a failure of the image.
    pub fn image_failed(&self, what: &str, offset: u64, error: &std::io::Error) {
        let text = format!("{what} the image at byte {offset}: {error}");
        let mut state = self.state();
        state.image_failures += 1;
        if state.image_failures <= MAX_LOGGED_FAILURES {
            tracing::error!("{text}");
        }
        state.image_error = Some(text);
    }

    /// Returns the counters; with `reset` it also sets them to zero.
    pub fn stat(&self, reset: bool) -> Stat {
        let mut state = self.state();
        let now = now_ns();
        let stat = Stat {
            busy_us: state.busy_so_far_ns(now) / 1000,
            image_us: state.image_ns / 1000,
            lateness_p50_us: state.lateness.quantile_us(0.5),
            lateness_p99_us: state.lateness.quantile_us(0.99),
            lateness_max_us: state.lateness.max_us(),
            seconds: now.saturating_sub(state.since_ns) as f64 / 1e9,
            image_error: state.image_error.clone(),
            faults: state.faults.clone(),
            engaged: state.device.is_some(),
            ..state.counted.clone()
        };
        if reset {
            state.reset();
        }
        stat
    }
}

impl EngineState {
    fn arrive(&mut self, range: ByteRange, now: u64) -> Schedule {
        self.counted.requests += 1;
        self.counted.bytes += range.length_bytes;
        self.outstanding += 1;
        self.counted.depth_max = self.counted.depth_max.max(self.outstanding);
        let fails = self.faults.fails(range);
        let stall_ns = self.faults.stall_ms.saturating_mul(1_000_000);
        let Some(device) = &mut self.device else {
            return Schedule {
                range,
                arrived_ns: now,
                due_ns: now.saturating_add(stall_ns),
                takes_ns: stall_ns,
                fails,
                timed: false,
            };
        };
        let request = Request { op: Op::Read, offset_bytes: range.offset_bytes, length_bytes: range.length_bytes };
        let served = device.submit(&request, now);
        self.counted.seeks += u64::from(served.seeked);
        // Requests start in the order of arrival, so one number describes the union of their times.
        self.busy_ns += served.end_ns.saturating_sub(served.start_ns.max(self.busy_until_ns));
        self.busy_until_ns = self.busy_until_ns.max(served.end_ns);
        let end_ns = served.end_ns.saturating_add(stall_ns);
        let due_ns = end_ns.saturating_sub(self.lead.ns(range.length_bytes, self.outstanding - 1)).max(now);
        Schedule { range, arrived_ns: now, due_ns, takes_ns: end_ns - now, fails, timed: true }
    }

    /// The busy time until now, without the part in the future.
    fn busy_so_far_ns(&self, now: u64) -> u64 {
        self.busy_ns.saturating_sub(self.busy_until_ns.saturating_sub(now))
    }

    fn reset(&mut self) {
        let now = now_ns();
        // Outstanding reads were counted before, but their busy time lies partly in the future.
        self.busy_ns = self.busy_until_ns.saturating_sub(now);
        self.counted = Stat { depth_max: self.outstanding, ..Stat::default() };
        self.image_ns = 0;
        self.since_ns = now;
        self.lateness = Lateness::default();
        self.reads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_disk::ModelSource;
    use ahead_disk::protocol::FAULTS_MOST;

    fn engine(model: &str) -> Engine {
        let source = ModelSource { name: model.into(), toml: None };
        let setup = Setup {
            name: "test".into(),
            image: "/x".into(),
            model: source.clone(),
            capacity_bytes: 4 << 30,
            preload: false,
            write_log: None,
            read_only: false,
        };
        Engine::new(&setup, source.model().unwrap())
    }

    fn range(offset_bytes: u64, length_bytes: u64) -> ByteRange {
        ByteRange { offset_bytes, length_bytes }
    }

    #[test]
    fn read_without_a_model_is_due_at_once() {
        let engine = engine("hdd");
        let schedule = engine.arrive(2, range(0, 4096));
        assert_eq!((schedule.takes_ns, schedule.timed), (0, false));
    }

    #[test]
    fn due_time_is_that_of_the_model_minus_the_lead() {
        let (engine, lead) = (engine("hdd"), Lead { base_ns: 1000, per_kib_ns: 10, ..Lead::default() });
        engine.engage(lead);
        let mut device = Device::new(&Model::builtin("hdd").unwrap(), 4 << 30);
        let mut state = engine.state();
        for (at, now) in [(1 << 30, 5_000_000), (3 << 30, 6_000_000), (0, 90_000_000)] {
            let schedule = state.arrive(range(at, 8192), now);
            let request = Request { op: Op::Read, offset_bytes: at, length_bytes: 8192 };
            assert_eq!(schedule.due_ns, device.submit(&request, now).end_ns - 1080);
        }
        assert_eq!((state.counted.requests, state.counted.bytes, state.counted.depth_max), (3, 3 * 8192, 3));
    }

    #[test]
    fn disk_without_idle_time_is_always_busy() {
        let engine = engine("hdd");
        engine.engage(Lead::default());
        let mut state = engine.state();
        let start = now_ns();
        let ends: Vec<u64> = (0..20).map(|i| state.arrive(range(i << 27, 4096), start).due_ns).collect();
        let end = *ends.last().unwrap();
        assert_eq!(state.busy_so_far_ns(end), end - start);
        assert_eq!(state.busy_so_far_ns(start), 0);
        assert!(state.counted.seeks >= 19);
    }

    /// Regression: the first of two sequential reads arrived 50 to 260 µs after the second because its thread was preempted, and the model
    /// counted seeks.
    #[test]
    fn read_waits_for_the_read_sent_before() {
        let engine = Engine { order_timeout: Duration::from_secs(60), ..engine("hdd") };
        engine.engage(Lead::default());
        engine.arrive(2, range(1 << 30, 1 << 20));
        std::thread::scope(|scope| {
            let late = scope.spawn(|| engine.arrive(6, range((1 << 30) + (2 << 20), 1 << 20)));
            engine.arrive(4, range((1 << 30) + (1 << 20), 1 << 20));
            late.join().unwrap();
        });
        assert_eq!(engine.stat(false).seeks, 1);
    }

    #[test]
    fn wait_for_a_missing_number_has_a_timeout() {
        let engine = engine("hdd");
        engine.skip_number(2);
        let began = Instant::now();
        engine.arrive(10, range(0, 4096));
        assert!(began.elapsed() >= ORDER_TIMEOUT);
        engine.arrive(8, range(0, 4096));
        engine.arrive(12, range(0, 4096));
        assert_eq!(engine.stat(false).requests, 3);
    }

    /// Regression: after an eviction, a file was read from the buffer of the emulated drive.
    #[test]
    fn restarted_disk_has_an_empty_buffer() {
        let engine = engine("hdd");
        engine.engage(Lead::default());
        let again = |at_ns: u64| engine.state().arrive(range(1 << 30, 4096), at_ns).takes_ns;
        let first = again(1_000_000_000);
        let buffered = again(2_000_000_000);
        assert!(buffered < first / 4, "{buffered} of {first}");
        engine.restart();
        let restarted = again(3_000_000_000);
        assert!(restarted > buffered * 4, "{restarted}, from the buffer {buffered}");
        // Outstanding reads are served first.
        let busy_until_ns = engine.state().arrive(range(2 << 30, 1 << 20), 4_000_000_000).due_ns;
        engine.restart();
        assert!(4_000_000_000 + again(4_000_000_000) > busy_until_ns);
    }

    #[test]
    fn injected_faults_fail_and_stall_reads() {
        let engine = engine("ssd");
        engine.engage(Lead::default());
        engine.fault(FaultChange { fail: vec![range(8192, 4096)], stall_ms: Some(50), clear: false }).unwrap();
        assert!(engine.arrive(2, range(4096, 8192)).fails);
        let schedule = engine.arrive(4, range(0, 4096));
        assert!(!schedule.fails && schedule.takes_ns > 50_000_000);
    }

    /// Regression: a stall for longer than the clock can count was an overflow.
    #[test]
    fn stall_may_be_as_long_as_the_clock_can_count() {
        let forever = || FaultChange { stall_ms: Some(u64::MAX), ..FaultChange::default() };
        let (unengaged, engaged) = (engine("ssd"), engine("ssd"));
        engaged.engage(Lead::default());
        for engine in [unengaged, engaged] {
            engine.fault(forever()).unwrap();
            assert_eq!(engine.arrive(2, range(0, 4096)).due_ns, u64::MAX);
        }
    }

    /// Regression: only the faults of `create` were checked.
    #[test]
    fn faults_must_lie_on_the_disk() {
        let engine = engine("ssd");
        let fail = |offset, length| {
            let fail = vec![range(offset, length)];
            engine.fault(FaultChange { fail, stall_ms: None, clear: false })
        };
        let faults = fail((4 << 30) - 4096, 4096).unwrap();
        for (offset, length) in [((4 << 30) - 4096, 4097), (8 << 30, 4096), (u64::MAX, 1)] {
            let error = fail(offset, length).unwrap_err();
            assert!(error.to_string().contains("do not lie on the disk"), "{error}");
        }
        assert_eq!(engine.fault(FaultChange::default()).unwrap(), faults);
        // Regression: the number of faults had no limit.
        let too_many = FaultChange { fail: vec![range(0, 1); FAULTS_MOST], ..FaultChange::default() };
        assert!(engine.fault(too_many).unwrap_err().to_string().contains("at most"));
        assert_eq!(engine.fault(FaultChange::default()).unwrap(), faults);
    }

    #[test]
    fn answer_is_late_beyond_both_limits_only() {
        let engine = engine("ssd");
        engine.engage(Lead::default());
        let schedule = |takes_ns| Schedule {
            range: range(0, 4096),
            arrived_ns: 0,
            due_ns: 1_000_000,
            takes_ns,
            fails: false,
            timed: true,
        };
        engine.answered(schedule(100_000), 0, 1_050_000, 0, false);
        engine.answered(schedule(10_000_000), 0, 1_400_000, 0, false);
        assert_eq!(engine.stat(false).late_requests, 0);
        engine.answered(schedule(100_000), 1_099_000, 1_100_000, 0, false);
        let stat = engine.stat(true);
        assert_eq!((stat.late_requests, stat.late_image_requests, stat.lateness_max_us), (1, 1, 400.0));
        assert_eq!(engine.stat(false).late_requests, 0);
    }
}

//! Rates as Pelouin derived them (section 3), and the positions of their drops.

use crate::claims::runs::Setup;
use crate::claims::value::{Number, Value};
use crate::{Asked, Filesystem, Live, PaperError};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Mapped, Op, Pattern, Program, Scenario, Stream};

/// "Each test was run 16 times."
const RUNS: u64 = 16;
/// Number of runs against the real page cache, where each run takes a disk's time.
const LIVE_RUNS: u64 = 5;
/// One turn of the platter at 7200 rpm, nanoseconds. Pelouin's runs began anywhere within a turn.
const TURN_NS: u64 = 8_333_333;

/// One program that reads a file in steps.
#[derive(Clone, Copy, Debug)]
struct Steps {
    /// Bytes of a read.
    step_bytes: u64,
    /// The end of the reads, bytes.
    end_bytes: u64,
    /// Whether the program stores its times, 8 bytes each, in memory that it has not touched before.
    keeps_times: bool,
}

/// The rates of a program in the simulator, averaged over the paper's number of runs.
pub(super) fn simulated(setup: &Setup) -> Result<Value, PaperError> {
    let steps = Steps::of(setup)?;
    let times = |run| steps.times(setup, run * TURN_NS / RUNS);
    steps.combined(RUNS, times, mean)?.shown(setup)
}

/// The rates on a real ext2, read by the running kernel: the second lowest rate at each position. A delay in a single run makes no drop, and a
/// drop that a single run does not show remains. If a reader loses its processor, read-ahead completes meanwhile and the wait disappears. So the
/// highest rate and the median of a busy machine hide drops.
pub(super) fn real(setup: &Setup, live: &dyn Live) -> Result<Value, PaperError> {
    let steps = Steps::of(setup)?;
    steps.combined(LIVE_RUNS, |_| steps.live_times(&setup.scenario, live), second_lowest)?.shown(setup)
}

/// Times in a page of memory.
const TIMES_PER_PAGE: u64 = PAGE_BYTES / 8;

/// The rate at each position, averaged over the runs: bytes per nanosecond at every multiple of the step.
#[derive(Clone, Debug, PartialEq)]
struct Rates {
    step_bytes: u64,
    values: Vec<f64>,
}

impl Steps {
    fn of(setup: &Setup) -> Result<Steps, PaperError> {
        let keeps_times = setup.argument("keeps_times").is_ok_and(|keeps| *keeps == Value::Truth(true));
        Ok(Steps { step_bytes: setup.whole("step_bytes")?, end_bytes: setup.whole("end_bytes")?, keeps_times })
    }

    /// The time at which each position was reached, nanoseconds, in a run that begins `phase_ns` into a turn.
    fn times(&self, setup: &Setup, phase_ns: u64) -> Result<Vec<f64>, PaperError> {
        let (open, file, Steps { step_bytes, end_bytes, keeps_times }) = (OpenId(0), FileId(0), *self);
        let wait = (phase_ns > 0).then_some(Op::Sleep { time_ns: phase_ns });
        let count = end_bytes / step_bytes;
        // The model of the memory is a cached file, whose first touch is a fault, too. The first time is that of the
        // beginning.
        let (times, times_pages) = ((OpenId(1), FileId(1)), count.div_ceil(TIMES_PER_PAGE) + 1);
        let cached = Op::Read { open: times.0, file: times.1, offset_bytes: 0, length_bytes: times_pages * PAGE_BYTES };
        let touch = move |index: u64| Op::Touch {
            open: times.0,
            file: times.1,
            first: index / TIMES_PER_PAGE,
            pages: 1,
            mapped: Mapped::default(),
        };
        let step = move |index: u64| {
            let read = Op::Read { open, file, offset_bytes: index * step_bytes, length_bytes: step_bytes };
            keeps_times.then(|| touch(index)).into_iter().chain([read])
        };
        let begin = keeps_times.then_some(cached).into_iter().chain([Op::Open { open, file }]);
        let ops = begin.chain(wait).chain((0..count).flat_map(step));
        let program = Program { ops: Box::new(ops), user_per_page_ns: 0.0 };
        // The file is longer than the part that is read.
        let file_pages = [2 * end_bytes.div_ceil(PAGE_BYTES), times_pages];
        let machine = setup.scenario.machine_for(&ahead_policy::named(&setup.policy)?, &file_pages, vec![program])?;
        let (_, mut calls) = machine.run_with_calls();
        calls.retain(|call| call.length_bytes == step_bytes);
        let begin_ns = calls.first().map_or(0, |call| call.began_ns);
        Ok(std::iter::once(begin_ns).chain(calls.iter().map(|call| call.ended_ns)).map(|at_ns| at_ns as f64).collect())
    }

    /// The same on the running kernel.
    fn live_times(&self, machine: &Scenario, live: &dyn Live) -> Result<Vec<f64>, PaperError> {
        let mut machine = machine.clone();
        let stream = Stream {
            pattern: Pattern::Sequential,
            file_pages: self.end_bytes.div_ceil(PAGE_BYTES),
            block_pages: 1,
            call_bytes: self.step_bytes,
            ..machine.workloads[0].streams[0]
        };
        machine.workloads[0].streams = vec![stream];
        let filesystem = Filesystem { name: "ext2", block_bytes: PAGE_BYTES };
        let each_ns = live.run(&Asked { scenario: &machine, filesystem, each: true })?.each_ns;
        let reached = each_ns.iter().scan(0.0, |at, ns| {
            *at += *ns as f64;
            Some(*at)
        });
        Ok(std::iter::once(0.0).chain(reached).collect())
    }

    /// Combines the rates of several runs at each position.
    fn combined(
        &self,
        runs: u64,
        times: impl Fn(u64) -> Result<Vec<f64>, PaperError>,
        combine: impl Fn(Vec<f64>) -> f64,
    ) -> Result<Rates, PaperError> {
        let runs: Vec<Vec<f64>> = (0..runs)
            .map(|run| Ok(derived(&times(run)?, self.step_bytes as f64)))
            .collect::<Result<_, PaperError>>()?;
        let positions = runs.iter().map(Vec::len).max().unwrap_or(0);
        let at = |position: usize| combine(runs.iter().filter_map(|rates| rates.get(position).copied()).collect());
        Ok(Rates { step_bytes: self.step_bytes, values: (0..positions).map(at).collect() })
    }
}

fn mean(rates: Vec<f64>) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

fn second_lowest(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(1).or(rates.first()).copied().unwrap_or(0.0)
}

/// Bytes per nanosecond at each position: the inverse of the centred difference, one-sided at the beginning.
fn derived(times: &[f64], step: f64) -> Vec<f64> {
    let [first, second, third, ..] = times else { return Vec::new() };
    let one_sided = -3.0 * first + 4.0 * second - third;
    let centred = times.windows(3).map(|window| window[2] - window[0]);
    std::iter::once(one_sided).chain(centred).map(|difference| 2.0 * step / difference).collect()
}

impl Rates {
    fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// Positions (bytes) where the rate falls below this share of the median; of consecutive positions, the first. A
    /// slow read affects two centred differences, that of its beginning and that of its end. So the first read of the
    /// file affects the first two positions, which are left out.
    fn drops(&self, share: f64) -> Vec<u64> {
        let low = share * self.median();
        let is_low = |index: usize| self.values[index] < low;
        let begins = |index: &usize| is_low(*index) && !is_low(index - 1);
        (2..self.values.len()).filter(begins).map(|index| index as u64 * self.step_bytes).collect()
    }

    /// Positions (bytes), rates (bytes per nanosecond), and the positions of large drops and of dips.
    fn shown(&self, setup: &Setup) -> Result<Value, PaperError> {
        let drops = |share: &str| -> Result<Value, PaperError> {
            let share = setup.argument(share)?.number()?;
            Ok(Value::numbers(self.drops(share).into_iter().map(|position| position as f64)))
        };
        let positions = (0..self.values.len() as u64).map(|index| (index * self.step_bytes) as f64);
        Ok(Value::record([
            ("step_bytes", Number(self.step_bytes as f64)),
            ("position", Value::numbers(positions)),
            ("rate", Value::numbers(self.values.iter().copied())),
            ("large", drops("large_drop")?),
            ("dips", drops("dip")?),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_read_in_two_differences_is_one_drop() {
        // Ten reads of 100 bytes that take 1 ns each, except the one from 400 on, which takes 91 ns.
        let mut times = vec![0.0];
        for index in 0..10 {
            times.push(times[index] + if index == 4 { 91.0 } else { 1.0 });
        }
        let values = derived(&times, 100.0);
        assert_eq!(values.len(), 10);
        assert!((values[1] - 100.0).abs() < 1e-9 && (values[4] - 200.0 / 92.0).abs() < 1e-9);
        assert_eq!(values[4], values[5]);
        let rates = Rates { step_bytes: 100, values };
        assert_eq!(rates.drops(0.5), [400]);
        assert!((rates.values[4] / rates.median() - 2.0 / 92.0).abs() < 1e-9);
    }

    /// Regression: on a busy machine the wait for one window was missing in one of four runs, and the highest rate had
    /// no drop there.
    #[test]
    fn drop_in_two_runs_counts() {
        assert_eq!(second_lowest(vec![9.0, 1.0, 9.0, 1.0, 9.0]), 1.0);
        assert_eq!(second_lowest(vec![9.0, 9.0, 9.0, 1.0, 9.0]), 9.0);
        assert_eq!((second_lowest(vec![3.0]), second_lowest(Vec::new())), (3.0, 0.0));
    }

    #[test]
    fn one_sided_difference_is_exact_for_a_constant_rate() {
        let times: Vec<f64> = (0..5).map(|index| 7.0 * f64::from(index)).collect();
        assert!(derived(&times, 14.0).iter().all(|rate| (rate - 2.0).abs() < 1e-12));
        assert!(derived(&times[..2], 14.0).is_empty());
    }
}

//! The search for the best window: few runs, and most of them near the best.
//!
//! ```text
//!     16 … 32 … 64 … 128 … 256 … 512 … 1024 … 2048 … 4096 … 8192 … 16384 KiB, and one between each two: 21 candidates
//!           C              C           C             C              C             coarse: every fourth
//!                                   f     B    f                                  fine: two steps to each side of the best,
//!                                             f f                                 then one
//!                                          1     2                                again, there and back: the best and the
//!                                          1     2                                smallest that may be as good
//! ```
//!
//! The score rises to its best and falls again, or is flat. Streams gain from a window until the disk's bandwidth is reached. Faults lose
//! from a window once the transfer takes longer than the access. On such a curve the coarse and fine steps find the best candidate if
//! there is no noise. The runs that follow reduce noise: only the best candidates run again, in turn, and medians are compared. This
//! takes 13 or 14 runs; three runs of every candidate take 63.

use crate::tune::verdict::{Candidate, Score, score};

/// The candidates, KiB: powers of two from 16 KiB to 16 MiB, and the middle of each two.
pub const CANDIDATES_KB: [u64; 21] =
    [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384];
/// Distance between coarse candidates, and the index of the first one: their neighbours at half that distance reach both ends.
const COARSE_STEP: usize = 4;
const COARSE_FIRST: usize = 2;
/// Number of candidates that run again, for each round.
const AGAIN: [usize; 2] = [2, 2];
/// Runs of each candidate in an exhaustive measurement.
const ALL_RUNS: usize = 3;

/// Determines the number of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// As many windows as the search for the best one needs.
    #[default]
    Search,
    /// Every candidate and the current window, three times, in turn: a check of the search.
    Exhaustive,
}

impl Depth {
    /// Upper limit of the number of runs.
    pub(crate) fn max_runs(self) -> usize {
        match self {
            // Coarse candidates, two pairs around the best, the current window, and the repeated ones.
            Depth::Search => CANDIDATES_KB.len().div_ceil(COARSE_STEP) + 2 * 2 + 1 + AGAIN.iter().sum::<usize>(),
            // All candidates and the current window.
            Depth::Exhaustive => (CANDIDATES_KB.len() + 1) * ALL_RUNS,
        }
    }
}

/// Runs a candidate. Tests replace the disk by a formula.
pub(crate) trait WindowTrial {
    /// Why a run fails.
    type Error;

    /// Runs every job once under a window of `kb` KiB. Returns the rate of each job, in any unit; larger is better.
    fn run(&mut self, kb: u64) -> Result<Vec<f64>, Self::Error>;
}

/// Tries windows until the best one is known. `current_kb` is one of them.
pub(crate) fn search<T: WindowTrial>(trial: &mut T, current_kb: u64, depth: Depth) -> Result<Vec<Candidate>, T::Error> {
    let mut trials = Trials { candidates: Vec::new(), trial };
    if depth == Depth::Exhaustive {
        let current = Some(current_kb).filter(|kb| !CANDIDATES_KB.contains(kb));
        for round in 0..ALL_RUNS {
            trials.run_all(CANDIDATES_KB.into_iter().chain(current), round % 2 == 1)?;
        }
        return Ok(trials.candidates);
    }
    trials.run_all(CANDIDATES_KB.into_iter().skip(COARSE_FIRST).step_by(COARSE_STEP), false)?;
    for step in [COARSE_STEP / 2, COARSE_STEP / 4] {
        let best = trials.best_index();
        let around = [best.checked_sub(step), Some(best + step)].into_iter().flatten();
        let around: Vec<u64> = around.filter_map(|index| CANDIDATES_KB.get(index).copied()).collect();
        trials.run_all(around.into_iter(), false)?;
    }
    if !trials.candidates.iter().any(|candidate| candidate.kb == current_kb) {
        trials.run_all([current_kb].into_iter(), false)?;
    }
    for (round, count) in AGAIN.into_iter().enumerate() {
        let contenders = trials.contenders(count);
        trials.run_all(contenders.into_iter(), round % 2 == 1)?;
    }
    Ok(trials.candidates)
}

struct Trials<'a, T> {
    candidates: Vec<Candidate>,
    trial: &'a mut T,
}

impl<T: WindowTrial> Trials<'_, T> {
    /// Runs each window once, in ascending or descending order.
    fn run_all(&mut self, windows: impl Iterator<Item = u64>, backward: bool) -> Result<(), T::Error> {
        let mut windows: Vec<u64> = windows.collect();
        windows.sort_unstable();
        if backward {
            windows.reverse();
        }
        for kb in windows {
            let rates = self.trial.run(kb)?;
            match self.candidates.binary_search_by_key(&kb, |candidate| candidate.kb) {
                Ok(at) => self.candidates[at].runs.push(rates),
                Err(at) => self.candidates.insert(at, Candidate { kb, runs: vec![rates] }),
            }
        }
        Ok(())
    }

    /// The index of the best candidate so far. The current window may lie between candidates: the search does not refine around it.
    fn best_index(&self) -> usize {
        let scores = score(&self.candidates);
        let best = scores.into_iter().max_by(|a, b| a.value.total_cmp(&b.value));
        best.and_then(|best| CANDIDATES_KB.iter().position(|kb| *kb == best.kb)).unwrap_or(CANDIDATES_KB.len() / 2)
    }

    /// The best candidates, and the smallest one whose distance from the best may be noise.
    fn contenders(&self, count: usize) -> Vec<u64> {
        let mut scores = score(&self.candidates);
        scores.sort_by(|a, b| b.value.total_cmp(&a.value));
        let Some(best) = scores.first().copied() else { return Vec::new() };
        let near = scores.iter().filter(|score| score.value >= best.value * NEAR).min_by_key(|score| score.kb).copied();
        let mut chosen: Vec<Score> = [Some(best), near].into_iter().flatten().collect();
        chosen.extend(scores);
        let mut windows: Vec<u64> = Vec::new();
        for Score { kb, .. } in chosen {
            if windows.len() < count && !windows.contains(&kb) {
                windows.push(kb);
            }
        }
        windows
    }
}

/// Candidates with this share of the best score may be the best: this is the variation of single runs of some tenths of a second.
const NEAR: f64 = 0.96;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::verdict::recommended;
    use proptest::prelude::*;

    /// A simulated disk: a formula for the rates of two jobs, one that gains from a window and one that loses, with noise.
    struct FormulaDisk<F> {
        rates: F,
        noise: f64,
        chance: ahead_sim::Chance,
        runs: usize,
    }

    impl<F: Fn(f64) -> Vec<f64>> WindowTrial for FormulaDisk<F> {
        type Error = std::convert::Infallible;

        fn run(&mut self, kb: u64) -> Result<Vec<f64>, Self::Error> {
            self.runs += 1;
            let rates = (self.rates)(kb as f64);
            Ok(rates.into_iter().map(|rate| rate * (1.0 + self.noise * self.draw())).collect())
        }
    }

    impl<F> FormulaDisk<F> {
        fn new(rates: F, noise: f64, seed: u64) -> FormulaDisk<F> {
            FormulaDisk { rates, noise, chance: ahead_sim::Chance::new(seed), runs: 0 }
        }

        /// A random number from -1 to 1.
        fn draw(&mut self) -> f64 {
            self.chance.below(2001) as f64 / 1000.0 - 1.0
        }
    }

    /// The true score of the recommended window, divided by that of the best candidate; and the number of runs.
    fn quality(rates: impl Fn(f64) -> Vec<f64>, noise: f64, seed: u64) -> (f64, usize) {
        let of = |kb: u64| rates(kb as f64).into_iter().map(f64::ln).sum::<f64>() / rates(1.0).len() as f64;
        let best = CANDIDATES_KB.into_iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        let mut disk = FormulaDisk::new(&rates, noise, seed);
        let candidates = search(&mut disk, 128, Depth::Search).unwrap();
        ((of(recommended(&candidates)) - best).exp(), disk.runs)
    }

    /// The rates of a stream and of faults, from access time and transfer, as in Wu's table.
    fn disk(access_s: f64, kb_per_s: f64) -> impl Fn(f64) -> Vec<f64> {
        move |kb| vec![kb / (access_s + kb / kb_per_s), 1.0 / (access_s + kb / kb_per_s)]
    }

    #[test]
    fn candidates_are_whole_pages_in_ascending_order() {
        assert!(CANDIDATES_KB.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(CANDIDATES_KB.iter().all(|kb| kb % 4 == 0));
    }

    #[test]
    fn search_needs_a_quarter_of_all_runs() {
        let mut all = FormulaDisk::new(disk(8e-3, 1e5), 0.0, 1);
        search(&mut all, 128, Depth::Exhaustive).unwrap();
        for current in [128, 100] {
            let mut few = FormulaDisk::new(disk(8e-3, 1e5), 0.0, 1);
            search(&mut few, current, Depth::Search).unwrap();
            assert!(4 * few.runs <= all.runs, "{} of {}", few.runs, all.runs);
            assert!(few.runs <= Depth::Search.max_runs() && all.runs <= Depth::Exhaustive.max_runs());
        }
    }

    #[test]
    fn current_window_is_always_measured() {
        for (current, depth) in
            [100, 4, 2560, 32768].into_iter().flat_map(|kb| [(kb, Depth::Search), (kb, Depth::Exhaustive)])
        {
            let candidates = search(&mut FormulaDisk::new(disk(1e-3, 1e5), 0.0, 1), current, depth).unwrap();
            assert!(candidates.iter().any(|candidate| candidate.kb == current), "{current} {depth:?}");
        }
    }

    #[test]
    fn smallest_window_wins_on_a_flat_curve() {
        let mut disk = FormulaDisk::new(|_| vec![1.0, 1.0], 0.0, 1);
        let candidates = search(&mut disk, 8192, Depth::Search).unwrap();
        assert_eq!(recommended(&candidates), candidates[0].kb);
    }

    proptest! {
        #[test]
        fn disks_get_a_window_within_5_percent_of_their_best(
            access_us in 10.0..20_000f64, mb_per_s in 10.0..4000f64, seed in any::<u64>(),
        ) {
            let (part, _) = quality(disk(access_us / 1e6, mb_per_s * 1e3), 0.0, seed);
            prop_assert!(part >= 0.95, "{part}");
            let (part, _) = quality(disk(access_us / 1e6, mb_per_s * 1e3), 0.01, seed);
            prop_assert!(part >= 0.95, "with noise: {part}");
        }

        #[test]
        fn curve_with_one_peak_gets_a_window_within_5_percent_of_its_best(
            peak in 4.0..15.0f64, rise in 0.02..2.0f64, fall in 0.02..2.0f64, seed in any::<u64>(),
        ) {
            let curve = |kb: f64| {
                let octaves = kb.log2() - peak;
                vec![if octaves < 0.0 { (rise * octaves).exp() } else { (-fall * octaves).exp() }]
            };
            let (part, _) = quality(curve, 0.0, seed);
            prop_assert!(part >= 0.95, "{part}");
            let (part, _) = quality(curve, 0.01, seed);
            prop_assert!(part >= 0.95, "with noise: {part}");
        }

        #[test]
        fn noisy_flat_curve_gets_a_window_within_5_percent_of_its_best(noise in 0.0..0.3f64, seed in any::<u64>()) {
            prop_assert!(quality(|_| vec![1.0, 1.0, 1.0], noise, seed).0 >= 0.95);
        }

        /// Streams gain up to a point and stay there; faults lose from a point on.
        #[test]
        fn plateaus_get_a_near_best_window(gain_kb in 8.0..20_000f64, lose_kb in 8.0..20_000f64, seed in any::<u64>()) {
            let rates = |kb: f64| vec![(kb / gain_kb).min(1.0), (lose_kb / kb).min(1.0)];
            let (part, _) = quality(rates, 0.0, seed);
            prop_assert!(part >= 0.95, "{part}");
        }
    }
}

//! The search for the best window: few runs, and none of them wasted on what is far from it.
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
//! The score rises to its best and falls again, or is flat: streams gain from a window until the disk's bandwidth is reached, and
//! faults lose from it once the transfer weighs more than the access. Of such a curve the coarse and fine steps find the best of
//! all candidates if there is no noise. Noise is met by the runs that follow: only who is among the best is run again, each in
//! turn with the others, and medians are compared. That takes 13 or 14 of the 63 runs that three of every candidate take.

use crate::verdict::{Candidate, Score, score};

/// What is tried, KiB: powers of two from 16 KiB to 16 MiB, and what lies half way between them.
pub const CANDIDATES_KB: [u64; 21] =
    [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384];
/// From one of the coarse ones to the next, and the first: their neighbours at half of that reach both ends.
const COARSE_STEP: usize = 4;
const COARSE_FIRST: usize = 2;
/// Who is run again: how many, in how many rounds.
const AGAIN: [usize; 2] = [2, 2];
/// Runs of each candidate where all are tried.
const ALL_RUNS: usize = 3;

/// How much is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// What it takes to find the best.
    #[default]
    Search,
    /// Every candidate, and the window that is set, three times, in turn: to check the search.
    Exhaustive,
}

impl Depth {
    /// Windows that are run, each as often as it is, at most.
    pub(crate) fn most_runs(self) -> usize {
        match self {
            // The coarse ones, two pairs around the best, the one that is set, and those that are run again.
            Depth::Search => CANDIDATES_KB.len().div_ceil(COARSE_STEP) + 2 * 2 + 1 + AGAIN.iter().sum::<usize>(),
            // All, and the one that is set.
            Depth::Exhaustive => (CANDIDATES_KB.len() + 1) * ALL_RUNS,
        }
    }
}

/// Runs a candidate once: the rate of each job, in any unit, larger is better.
pub(crate) trait Try {
    /// What can go wrong.
    type Error;

    /// Runs a window of so many KiB.
    fn run(&mut self, kb: u64) -> Result<Vec<f64>, Self::Error>;
}

/// Tries windows until the best one is known. `current_kb` is among them.
pub(crate) fn search<T: Try>(trial: &mut T, current_kb: u64, depth: Depth) -> Result<Vec<Candidate>, T::Error> {
    let mut tried = Tried { candidates: Vec::new(), trial };
    if depth == Depth::Exhaustive {
        let current = Some(current_kb).filter(|kb| !CANDIDATES_KB.contains(kb));
        for round in 0..ALL_RUNS {
            tried.run_all(CANDIDATES_KB.into_iter().chain(current), round % 2 == 1)?;
        }
        return Ok(tried.candidates);
    }
    tried.run_all(CANDIDATES_KB.into_iter().skip(COARSE_FIRST).step_by(COARSE_STEP), false)?;
    for step in [COARSE_STEP / 2, COARSE_STEP / 4] {
        let best = tried.best_index();
        let around = [best.checked_sub(step), Some(best + step)].into_iter().flatten();
        let around: Vec<u64> = around.filter_map(|index| CANDIDATES_KB.get(index).copied()).collect();
        tried.run_all(around.into_iter(), false)?;
    }
    if !tried.candidates.iter().any(|candidate| candidate.kb == current_kb) {
        tried.run_all([current_kb].into_iter(), false)?;
    }
    for (round, count) in AGAIN.into_iter().enumerate() {
        let contenders = tried.contenders(count);
        tried.run_all(contenders.into_iter(), round % 2 == 1)?;
    }
    Ok(tried.candidates)
}

struct Tried<'a, T> {
    candidates: Vec<Candidate>,
    trial: &'a mut T,
}

impl<T: Try> Tried<'_, T> {
    /// Runs each once, from the smallest to the largest or back.
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

    /// The best candidate so far, as an index into all: what is set now may lie anywhere, and is not looked around.
    fn best_index(&self) -> usize {
        let scores = score(&self.candidates);
        let best = scores.into_iter().max_by(|a, b| a.value.total_cmp(&b.value));
        best.and_then(|best| CANDIDATES_KB.iter().position(|kb| *kb == best.kb)).unwrap_or(CANDIDATES_KB.len() / 2)
    }

    /// The best ones; among them the smallest that could be as good as the best but for noise.
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

/// A single run of a candidate that is so much of the best may be the best: what single runs of some tenths of a second vary.
const NEAR: f64 = 0.96;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::recommended;
    use proptest::prelude::*;

    /// A disk on paper: rates of two jobs, one that gains from a window and one that loses, with noise.
    struct Paper<F> {
        rates: F,
        noise: f64,
        chance: ahead_sim::Chance,
        runs: usize,
    }

    impl<F: Fn(f64) -> Vec<f64>> Try for Paper<F> {
        type Error = std::convert::Infallible;

        fn run(&mut self, kb: u64) -> Result<Vec<f64>, Self::Error> {
            self.runs += 1;
            let rates = (self.rates)(kb as f64);
            Ok(rates.into_iter().map(|rate| rate * (1.0 + self.noise * self.draw())).collect())
        }
    }

    impl<F> Paper<F> {
        fn new(rates: F, noise: f64, seed: u64) -> Paper<F> {
            Paper { rates, noise, chance: ahead_sim::Chance::new(seed), runs: 0 }
        }

        /// From -1 to 1.
        fn draw(&mut self) -> f64 {
            self.chance.below(2001) as f64 / 1000.0 - 1.0
        }
    }

    /// The true score of what is recommended, by that of the best candidate; and how many runs it took.
    fn quality(rates: impl Fn(f64) -> Vec<f64>, noise: f64, seed: u64) -> (f64, usize) {
        let of = |kb: u64| rates(kb as f64).into_iter().map(f64::ln).sum::<f64>() / rates(1.0).len() as f64;
        let best = CANDIDATES_KB.into_iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        let mut paper = Paper::new(&rates, noise, seed);
        let candidates = search(&mut paper, 128, Depth::Search).unwrap();
        ((of(recommended(&candidates)) - best).exp(), paper.runs)
    }

    /// A stream's rate and a fault's: access and transfer, as in Wu's table.
    fn disk(access_s: f64, kb_per_s: f64) -> impl Fn(f64) -> Vec<f64> {
        move |kb| vec![kb / (access_s + kb / kb_per_s), 1.0 / (access_s + kb / kb_per_s)]
    }

    #[test]
    fn candidates_are_pages_and_grow() {
        assert!(CANDIDATES_KB.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(CANDIDATES_KB.iter().all(|kb| kb % 4 == 0));
    }

    #[test]
    fn a_quarter_of_all_runs_is_enough() {
        let mut all = Paper::new(disk(8e-3, 1e5), 0.0, 1);
        search(&mut all, 128, Depth::Exhaustive).unwrap();
        for current in [128, 100] {
            let mut few = Paper::new(disk(8e-3, 1e5), 0.0, 1);
            search(&mut few, current, Depth::Search).unwrap();
            assert!(4 * few.runs <= all.runs, "{} of {}", few.runs, all.runs);
            assert!(few.runs <= Depth::Search.most_runs() && all.runs <= Depth::Exhaustive.most_runs());
        }
    }

    #[test]
    fn what_is_set_now_is_measured_wherever_it_lies() {
        for (current, depth) in
            [100, 4, 2560, 32768].into_iter().flat_map(|kb| [(kb, Depth::Search), (kb, Depth::Exhaustive)])
        {
            let candidates = search(&mut Paper::new(disk(1e-3, 1e5), 0.0, 1), current, depth).unwrap();
            assert!(candidates.iter().any(|candidate| candidate.kb == current), "{current} {depth:?}");
        }
    }

    #[test]
    fn on_a_flat_curve_the_window_is_small() {
        let mut paper = Paper::new(|_| vec![1.0, 1.0], 0.0, 1);
        let candidates = search(&mut paper, 8192, Depth::Search).unwrap();
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
        fn every_curve_with_one_peak_does(
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
        fn flat_curves_do_whatever_the_noise(noise in 0.0..0.3f64, seed in any::<u64>()) {
            prop_assert!(quality(|_| vec![1.0, 1.0, 1.0], noise, seed).0 >= 0.95);
        }

        /// Streams gain up to a point and stay there; faults lose from a point on.
        #[test]
        fn plateaus_do(gain_kb in 8.0..20_000f64, lose_kb in 8.0..20_000f64, seed in any::<u64>()) {
            let rates = |kb: f64| vec![(kb / gain_kb).min(1.0), (lose_kb / kb).min(1.0)];
            let (part, _) = quality(rates, 0.0, seed);
            prop_assert!(part >= 0.95, "{part}");
        }
    }
}

//! Judges the tried windows: the best one and the reason, and the jobs that the current window slows down.
//!
//! The score of a window is the geometric mean, over the jobs, of the job's rate divided by the best rate of that job. So each job has
//! the same weight with any unit, and half the rate of one job equals twice the rate of another. Rates are medians of a window's runs. Of
//! the windows whose scores are within 2 % of the best, the smallest is recommended. It costs less memory and latency, and reads fewer
//! unused bytes.

use serde::Serialize;

/// Scores with this share of the best count as equal to the best. No disk repeats a run of some tenths of a second more exactly.
const TIE: f64 = 0.98;
/// The current window harms a job that runs at less than this share of its rate under the recommended window.
const HARM: f64 = 0.8;
/// The spread of a window's runs that makes a recommendation doubtful: the error of a median may be half of this spread. That is more
/// than the 5 % that a window may cost.
const DOUBT: f64 = 0.1;

/// A tried window.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The window, KiB.
    pub kb: u64,
    /// The rates of all jobs, for each run.
    pub runs: Vec<Vec<f64>>,
}

impl Candidate {
    /// The median rate of each job.
    pub fn rates(&self) -> Vec<f64> {
        let jobs = self.runs.first().map_or(0, Vec::len);
        let of = |job: usize| ahead_model::Spread::of(self.runs.iter().map(|run| run[job])).median;
        (0..jobs).map(of).collect()
    }
}

/// The range of the scores of a window's single runs, divided by their median; `None` for one run. `best`: the best rate of each job.
pub(crate) fn spread(candidate: &Candidate, best: &[f64]) -> Option<f64> {
    let scores = candidate.runs.iter().map(|rates| mean_ratio(rates, best));
    let spread = ahead_model::Spread::of(scores);
    (candidate.runs.len() > 1 && spread.median > 0.0).then(|| (spread.max - spread.min) / spread.median)
}

/// The median spread of the windows that ran more than once.
fn noise(candidates: &[Candidate]) -> Option<f64> {
    let best = best_rates(candidates);
    let spreads: Vec<f64> = candidates.iter().filter_map(|candidate| spread(candidate, &best)).collect();
    (!spreads.is_empty()).then(|| ahead_model::Spread::of(spreads).median)
}

/// The score of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score {
    /// The window, KiB.
    pub kb: u64,
    /// From 0 to 1; 1 means that the window is the best for every job.
    pub value: f64,
}

/// The scores of all candidates, in their order.
pub(crate) fn score(candidates: &[Candidate]) -> Vec<Score> {
    let best = best_rates(candidates);
    candidates
        .iter()
        .map(|candidate| Score { kb: candidate.kb, value: mean_ratio(&candidate.rates(), &best) })
        .collect()
}

/// The best rate of each job under any window.
pub(crate) fn best_rates(candidates: &[Candidate]) -> Vec<f64> {
    let rates: Vec<Vec<f64>> = candidates.iter().map(Candidate::rates).collect();
    let best = |job: usize| rates.iter().map(|rates| rates[job]).fold(f64::MIN_POSITIVE, f64::max);
    (0..rates.first().map_or(0, Vec::len)).map(best).collect()
}

/// The geometric mean of rates divided by the best rates.
fn mean_ratio(rates: &[f64], best: &[f64]) -> f64 {
    let logarithms = rates.iter().zip(best).map(|(rate, best)| (rate / best).max(f64::MIN_POSITIVE).ln());
    (logarithms.sum::<f64>() / best.len().max(1) as f64).exp()
}

/// The smallest window whose score counts as equal to the best, KiB; 0 without candidates.
pub(crate) fn recommended(candidates: &[Candidate]) -> u64 {
    let scores = score(candidates);
    let best = scores.iter().map(|score| score.value).fold(0.0, f64::max);
    scores.iter().filter(|score| score.value >= best * TIE).map(|score| score.kb).min().unwrap_or(0)
}

/// A job that the current window slows down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Harm {
    pub job: String,
    /// The job's rate under the current window, divided by the rate under the recommended window.
    pub ratio: f64,
    /// The reason, for people.
    pub why: String,
}

/// One job under one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    pub name: String,
    /// Median rate, in `unit`.
    pub rate: f64,
    /// `bytes_per_s`, `faults_per_s` or `rounds_per_s`.
    pub unit: &'static str,
    /// The rate divided by the best rate of this job under any window.
    pub ratio: f64,
}

/// The recommended window, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The window, KiB.
    pub recommended_kb: u64,
    /// The reason, for people.
    pub reason: String,
    /// The jobs that the current window slows down.
    pub harms: Vec<Harm>,
    /// Median spread of the windows that ran more than once; null: every window ran once.
    pub noise: Option<f64>,
    /// Why the recommendation is doubtful, for people; null: the recommendation is certain.
    pub doubt: Option<String>,
}

/// Judges the tried windows. `jobs`: names and units of rates, in their order.
pub(crate) fn judge(candidates: &[Candidate], jobs: &[(String, &'static str)], current_kb: u64) -> Verdict {
    let recommended_kb = recommended(candidates);
    let scores = score(candidates);
    let of = |kb: u64| scores.iter().find(|score| score.kb == kb).map_or(0.0, |score| score.value);
    let rates =
        |kb: u64| candidates.iter().find(|candidate| candidate.kb == kb).map(Candidate::rates).unwrap_or_default();
    let (best, chosen, current) =
        (scores.iter().map(|s| s.value).fold(0.0, f64::max), of(recommended_kb), of(current_kb));
    let part = |((name, _), (rate, top)): (&(String, _), (f64, f64))| format!("{name} {:.0} %", 100.0 * rate / top);
    let pairs = jobs.iter().zip(rates(recommended_kb).into_iter().zip(best_rates(candidates)));
    let parts: Vec<String> = pairs.map(part).collect();
    let mut reason = format!("best balance: {} of the rate under the best window for that job alone", parts.join(", "));
    if chosen < best {
        reason += "; larger windows gain less than 2 %";
    }
    if recommended_kb == current_kb {
        reason += "; it is the current window";
    } else if current > 0.0 {
        reason += &format!(
            "; its score is {} that of the current window, {current_kb} KiB",
            compare_scores(chosen / current)
        );
    }
    let pairs = jobs.iter().zip(rates(current_kb).into_iter().zip(rates(recommended_kb)));
    let harms = pairs.filter(|(_, (now, then))| *now < HARM * then);
    let harms = harms.map(|(job, (now, then))| harm(job, now / then, current_kb, recommended_kb)).collect();
    let noise = noise(candidates);
    let doubt = noise.filter(|noise| *noise >= DOUBT).map(|noise| doubt(noise, &scores, best));
    Verdict { recommended_kb, reason, harms, noise, doubt }
}

/// The quotient of two scores, in words.
fn compare_scores(ratio: f64) -> String {
    match (100.0 * (ratio - 1.0)).round() {
        0.0 => "equal to".into(),
        gain if gain > 0.0 => format!("{gain:.0} % above"),
        loss => format!("{:.0} % below", -loss),
    }
}

fn harm((name, unit): &(String, &'static str), ratio: f64, current_kb: u64, recommended_kb: u64) -> Harm {
    let has_faults = *unit != "bytes_per_s";
    let why = match () {
        () if current_kb < recommended_kb => {
            format!("requests of {current_kb} KiB are too small for this device; {recommended_kb} KiB keep it busy")
        }
        () if has_faults => format!("each fault reads up to {current_kb} KiB, and most of it is never used"),
        () => {
            format!("requests of {current_kb} KiB are too large for this device; {recommended_kb} KiB are enough")
        }
    };
    Harm { job: name.clone(), ratio, why }
}

fn doubt(noise: f64, scores: &[Score], best: f64) -> String {
    let near = || scores.iter().filter(|score| score.value >= best * (1.0 - noise)).map(|score| score.kb);
    let (least, most) = (near().min().unwrap_or(0), near().max().unwrap_or(0));
    let consequence = if least < most {
        format!("windows from {least} to {most} KiB cannot be distinguished")
    } else {
        "no other window is near the best, but the gain is not exact".to_owned()
    };
    format!(
        "runs of the same window differ by {:.0} %: another process used the disk or the processors; {consequence}; measure again \
        when the machine is idle",
        100.0 * noise
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(rates: &[(u64, &[f64])]) -> Vec<Candidate> {
        rates.iter().map(|(kb, rates)| Candidate { kb: *kb, runs: vec![rates.to_vec()] }).collect()
    }

    #[test]
    fn score_is_the_geometric_mean_of_shares_of_the_best() {
        let scores = score(&candidates(&[(16, &[25.0, 4.0]), (64, &[100.0, 1.0])]));
        assert!(scores.iter().all(|score| (score.value - 0.5).abs() < 1e-9), "{scores:?}");
        assert_eq!(score(&[]), []);
        assert_eq!(recommended(&[]), 0);
    }

    #[test]
    fn score_is_independent_of_units() {
        let one = score(&candidates(&[(16, &[25.0, 4.0]), (64, &[80.0, 2.0])]));
        let other = score(&candidates(&[(16, &[25e6, 4.0]), (64, &[80e6, 2.0])]));
        assert!(one.iter().zip(other).all(|(one, other)| (one.value - other.value).abs() < 1e-9));
    }

    #[test]
    fn smaller_window_wins_a_tie() {
        assert_eq!(recommended(&candidates(&[(16, &[90.0]), (64, &[99.0]), (128, &[100.0])])), 64);
        assert_eq!(recommended(&candidates(&[(16, &[90.0]), (64, &[97.0]), (128, &[100.0])])), 128);
    }

    /// Regression: equal scores were reported as -0 % above.
    #[test]
    fn equal_scores_are_reported_as_equal() {
        assert_eq!([0.999, 1.0, 1.004].map(compare_scores), ["equal to"; 3]);
        assert_eq!([0.98, 1.25].map(compare_scores), ["2 % below", "25 % above"]);
    }

    #[test]
    fn median_rate_ignores_outliers() {
        let one = Candidate { kb: 16, runs: vec![vec![1.0], vec![100.0], vec![99.0]] };
        assert_eq!(one.rates(), [99.0]);
    }

    #[test]
    fn too_large_window_harms_faults_and_too_small_window_harms_streams() {
        let names = [("one stream".to_owned(), "bytes_per_s"), ("faults".to_owned(), "faults_per_s")];
        let tried = candidates(&[(128, &[50.0, 1000.0]), (512, &[100.0, 900.0]), (8192, &[100.0, 20.0])]);
        let verdict = judge(&tried, &names, 8192);
        assert_eq!((verdict.recommended_kb, verdict.harms.len(), verdict.harms[0].job.as_str()), (512, 1, "faults"));
        assert!(verdict.harms[0].why.contains("never used") && verdict.reason.contains("8192 KiB"), "{verdict:?}");
        let verdict = judge(&tried, &names, 128);
        assert_eq!((verdict.harms.len(), verdict.harms[0].job.as_str()), (1, "one stream"));
        assert!(verdict.harms[0].why.contains("too small"), "{verdict:?}");
        assert_eq!(judge(&tried, &names, 512).harms, []);
        assert!(judge(&tried, &names, 512).reason.contains("is the current window"));
    }

    /// Regression: the reason for a stream was that most of the bytes were never used.
    #[test]
    fn reason_for_a_stream_names_no_unused_bytes() {
        let tried = candidates(&[(128, &[100.0]), (8192, &[50.0])]);
        let verdict = judge(&tried, &[("one stream".to_owned(), "bytes_per_s")], 8192);
        assert!(verdict.harms[0].why.contains("too large for this device"), "{verdict:?}");
    }

    #[test]
    fn different_runs_make_the_verdict_doubtful() {
        let jobs = [("one stream".to_owned(), "bytes_per_s")];
        let with = |runs: &[f64]| {
            let mut tried = candidates(&[(64, &[97.0]), (512, &[50.0])]);
            tried.insert(1, Candidate { kb: 128, runs: runs.iter().map(|rate| vec![*rate]).collect() });
            judge(&tried, &jobs, 128)
        };
        assert_eq!((with(&[100.0]).noise, with(&[100.0]).doubt), (None, None));
        let quiet = with(&[99.0, 101.0]);
        assert!(quiet.noise.is_some_and(|noise| (noise - 0.02).abs() < 1e-9) && quiet.doubt.is_none(), "{quiet:?}");
        let noisy = with(&[70.0, 100.0, 130.0]).doubt.unwrap();
        assert!(noisy.contains("differ by 60 %") && noisy.contains("from 64 to 512 KiB"), "{noisy}");
    }
}

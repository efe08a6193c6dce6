//! Scenarios of a paper, run on all processors.

use crate::PaperError;
use ahead_policy::Choice;
use ahead_sim::{Counters, Scenario};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A scenario that is part of the paper's module.
///
/// Errors: its text is wrong. A test of each paper loads its scenarios.
pub fn scenario(name: &'static str, text: &str) -> Result<Scenario, PaperError> {
    Scenario::from_toml(text, Path::new(".")).map_err(|source| PaperError::Scenario { name, source })
}

/// The policy with this name.
///
/// Errors: no policy has this name.
pub fn policy(name: &str) -> Result<Choice, PaperError> {
    Ok(ahead_policy::named(name)?)
}

/// One run of the simulator.
#[derive(Clone, Debug)]
pub struct Job {
    /// The machine, its disk and its workloads.
    pub scenario: Scenario,
    /// The read-ahead policy.
    pub choice: Choice,
}

impl Job {
    /// A run of this scenario with the named policy.
    ///
    /// Errors: no policy has this name.
    pub fn new(scenario: &Scenario, name: &str) -> Result<Job, PaperError> {
        Ok(Job { scenario: scenario.clone(), choice: policy(name)? })
    }
}

/// Runs all jobs, one at a time on each processor. The results are in the order of the jobs.
///
/// Errors: a policy cannot be built.
pub fn run_all(jobs: &[Job]) -> Result<Vec<Counters>, PaperError> {
    in_parallel(jobs, |job| Ok(job.scenario.run(&job.choice)?)).into_iter().collect()
}

/// Calls `work` for each item, one at a time on each processor. The results are in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let Some((index, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
        {
            done.push((index, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        // A panic of a thread becomes a panic of the caller.
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_their_items() {
        let items: Vec<u64> = (0..1000).collect();
        let squares = in_parallel(&items, |item| item * item);
        assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        assert_eq!(squares.len(), items.len());
        assert!(in_parallel(&[], |item: &u64| *item).is_empty());
    }

    #[test]
    fn unknown_policy_and_bad_scenario_are_named() {
        let error = scenario("a.toml", "policies = []").unwrap_err().to_string();
        assert!(error.starts_with("a.toml: line 1"), "{error}");
        assert!(policy("linux-9").is_err());
    }
}

//! Sweeps: every workload of a scenario separately, with every policy, window and disk, on all processors.

use crate::report::{elapsed, json};
use crate::{Counters, Disk, Scenario};
use ahead_device::Model;
use ahead_policy::{Choice, PAGE_BYTES, UnknownPolicy};
use ahead_report::number::size;
use ahead_report::table::{Kind, Table};
use ahead_report::text::printable;
use ahead_sys::locks::IgnorePoison;
use serde_json::Value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of its workload.
    pub workload: String,
    /// The scenario with this workload only, on its disk.
    pub scenario: Scenario,
    /// The policy.
    pub choice: Choice,
}

impl Job {
    /// The names of workload and disk, printable.
    pub fn names(&self) -> [String; 2] {
        [self.workload.as_str(), self.scenario.disk.model.name()].map(|name| printable(name.as_bytes()))
    }

    /// The figures of this run as JSON.
    pub fn row(&self, counters: &Counters) -> Value {
        let mut row = json(&self.choice.to_string(), counters);
        if let Some(row) = row.as_object_mut() {
            row.insert("workload".into(), self.workload.clone().into());
            row.insert("disk".into(), self.scenario.disk.model.name().into());
            row.insert("window_bytes".into(), (self.scenario.disk.window_pages * PAGE_BYTES).into());
        }
        row
    }
}

/// The variations of a sweep. An empty list means the value of the scenario.
#[derive(Clone, Debug, Default)]
pub struct Variations {
    /// Policies.
    pub policies: Vec<Choice>,
    /// Largest windows, pages.
    pub windows: Vec<u64>,
    /// Disks.
    pub models: Vec<Model>,
}

impl Variations {
    /// The runs of a scenario: each workload separately, with each variation.
    pub fn jobs(&self, scenario: &Scenario) -> Vec<Job> {
        fn or<T: Clone>(given: &[T], own: Vec<T>) -> Vec<T> {
            if given.is_empty() { own } else { given.to_vec() }
        }
        let models = or(&self.models, vec![scenario.disk.model.clone()]);
        let windows = or(&self.windows, vec![scenario.disk.window_pages]);
        let policies = or(&self.policies, scenario.policies.clone());
        let mut jobs = Vec::new();
        for workload in &scenario.workloads {
            for model in &models {
                for window_pages in &windows {
                    let disk = Disk { model: model.clone(), window_pages: *window_pages, ..scenario.disk.clone() };
                    let policies = policies.clone();
                    let alone = Scenario { workloads: vec![workload.clone()], policies, disk, ..scenario.clone() };
                    let job = |choice: &Choice| Job {
                        workload: workload.name.clone(),
                        scenario: alone.clone(),
                        choice: choice.clone(),
                    };
                    jobs.extend(alone.policies.iter().map(job));
                }
            }
        }
        jobs
    }
}

/// The progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A run starts.
    Started(&'a Job),
    /// A run has ended.
    Ended,
}

/// Runs all jobs with this many threads. A result is `None` if its simulation panicked.
pub fn run_all(
    jobs: &[Job],
    threads: usize,
    report: impl Fn(Progress<'_>) + Sync,
) -> Vec<Option<Result<Counters, UnknownPolicy>>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Counters, _>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((index, job)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, jobs.get(i)?)))
                {
                    report(Progress::Started(job));
                    let result = job.scenario.run(&job.choice);
                    report(Progress::Ended);
                    results.lock().ignore_poison()[index] = Some(result);
                }
            });
        }
    });
    results.into_inner().ignore_poison()
}

/// The figures of all runs as a table.
pub fn table(jobs: &[Job], results: &[Counters]) -> Table {
    let text = ["workload", "disk", "policy"].map(|name| (name, Kind::Text));
    let numbers = ["window", "elapsed", "MB/s", "misses", "waits", "issued", "unused", "requests"];
    let mut table = Table::new(text.into_iter().chain(numbers.map(|name| (name, Kind::Number))));
    for (job, counters) in jobs.iter().zip(results) {
        let [workload, disk] = job.names();
        table.row([
            workload,
            disk,
            job.choice.to_string(),
            size(job.scenario.disk.window_pages * PAGE_BYTES),
            elapsed(counters),
            format!("{:.2}", counters.throughput_bytes_per_s() / 1e6),
            counters.misses.to_string(),
            counters.locked.to_string(),
            size(counters.issued_pages * PAGE_BYTES),
            size((counters.wasted_pages + counters.unread_pages) * PAGE_BYTES),
            counters.device.requests.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"
        policies = ["none"]
        [[workload]]
        name = "a"
        pattern = "sequential"
        file_mb = 1
        [[workload]]
        name = "b"
        pattern = "sequential"
        file_mb = 1
    "#;

    #[test]
    fn every_workload_runs_with_every_variation() {
        let scenario = Scenario::from_toml(SCENARIO, ".".as_ref()).unwrap();
        let alone = Variations::default().jobs(&scenario);
        assert_eq!(alone.len(), 2);
        assert!(alone.iter().all(|job| job.scenario.workloads.len() == 1 && job.choice.to_string() == "none"));
        let policies = ["none", "linux-6.18", "ahead"].map(|name| ahead_policy::named(name).unwrap()).into();
        let models = ["hdd", "ssd"].map(|name| Model::builtin(name).unwrap()).into();
        let jobs = Variations { policies, models, windows: vec![32, 1024] }.jobs(&scenario);
        assert_eq!(jobs.len(), 2 * 3 * 2 * 2);
        assert!(jobs.iter().any(|job| job.row(&Counters::default())["window_bytes"] == 4 << 20));
    }

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs = Variations::default().jobs(&Scenario::from_toml(SCENARIO, ".".as_ref()).unwrap());
        let started = AtomicUsize::new(0);
        let results = run_all(&jobs, 8, |progress| {
            started.fetch_add(usize::from(matches!(progress, Progress::Started(_))), Ordering::Relaxed);
        });
        assert_eq!((results.len(), started.into_inner()), (2, 2));
        assert!(results.iter().all(|result| matches!(result, Some(Ok(counters)) if counters.read_bytes == 1 << 20)));
    }
}

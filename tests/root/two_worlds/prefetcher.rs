//! `Prefetcher`, and the policy `prefetcher`. What the library has requested is what is cached when its worker has nothing to do.

use super::{Requested, simulated};
use crate::library::target::{ColdFile, Target};
use ahead::{Budget, Prefetcher, PrefetcherOptions};
use ahead_model::{DeviceDescription, RangeSet};
use ahead_policy::policies::prefetcher::ListedFiles;
use ahead_policy::{FileId, OpenId, PAGE_BYTES, Parameters};
use ahead_sim::Op;
use ahead_sys::cache;
use ahead_tests::rig::prelude::*;

const FILES: u64 = 96;

/// A few files of the middle size: the window is full again and again.
const BUDGET_BYTES: u64 = 2 * MIB;

/// The position in the order of the disk of each item: 37 and 96 have no common divisor.
fn order() -> impl Iterator<Item = usize> {
    (0..FILES).map(|item| (item * 37 % FILES) as usize)
}

/// From 4 to 316 KiB.
fn file_bytes() -> Vec<u64> {
    (0..FILES).map(|file| (1 + file * 29 % 79) * PAGE_BYTES).collect()
}

/// Whether the worker waits for work, and not for the disk.
fn is_worker_idle() -> bool {
    let threads = process::threads(std::process::id());
    let is_worker =
        |task: &&PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "ahead-prefetch");
    let sleeps = |task: &PathBuf| fs::read_to_string(task.join("stat")).is_ok_and(|stat| stat.contains(") S "));
    threads.iter().filter(is_worker).all(sleeps)
}

/// What is cached after each item, when that is at least as much as in the simulator.
fn in_the_kernel(target: &Target, simulated: &[Requested]) -> Vec<Requested> {
    let cold: Vec<ColdFile> =
        (0..).zip(file_bytes()).map(|(file, bytes)| target.cold_file(&format!("file{file:02}"), bytes)).collect();
    let files: Vec<File> = cold.iter().map(|file| File::open(&file.path).unwrap()).collect();
    let requested = || -> Requested {
        let bytes = file_bytes();
        let cached = files.iter().zip(&bytes).map(|(file, bytes)| cache::resident(file, 0, *bytes).unwrap());
        cached.map(RangeSet::from_iter).collect()
    };
    let options = PrefetcherOptions::default().budget(Budget::new(BUDGET_BYTES)).threads(1);
    let paths: Vec<PathBuf> = order().map(|file| cold[file].path.clone()).collect();
    let mut prefetcher = Prefetcher::with_options(paths, options);
    let mut step = |expected: &Requested| {
        prefetcher.next().unwrap();
        let has_all =
            |now: &Requested| expected.iter().zip(now).all(|(wanted, now)| wanted.count_common(now) == wanted.count());
        wait_until("the requests of the simulator", || has_all(&requested()));
        wait_until("an idle worker", is_worker_idle);
        requested()
    };
    simulated.iter().map(&mut step).collect()
}

/// What was requested after each opening.
fn in_the_simulator() -> Vec<Requested> {
    let future = Some(order().map(|file| (FileId(file as u32), 0)).collect());
    let device = DeviceDescription::FLASH;
    let parameters =
        Parameters { device, budget_pages: Some(BUDGET_BYTES / PAGE_BYTES), future, ..Parameters::default() };
    let open = |file| Op::Open { open: OpenId(0), file };
    let steps: Vec<Op> = order().map(|file| open(FileId(file as u32))).collect();
    simulated(Box::new(ListedFiles::new(&parameters)), &file_bytes(), None, &steps)
}

#[test]
fn listed_files_are_requested_alike_in_both_worlds() {
    unless_reclaimed(compare_listed_files);
}

fn compare_listed_files() {
    let Some(target) = Target::alone("two-worlds") else { return };
    let simulated = in_the_simulator();
    let real = in_the_kernel(&target, &simulated);
    for (item, (simulated, real)) in simulated.iter().zip(&real).enumerate() {
        let [simulated, real] = [simulated, real].map(|files| {
            let requested = files.iter().enumerate().filter(|(_, ranges)| ranges.count() > 0);
            requested.map(|(file, ranges)| (file, ranges.count())).collect::<Vec<_>>()
        });
        assert_eq!(simulated, real, "after item {item}");
    }
}

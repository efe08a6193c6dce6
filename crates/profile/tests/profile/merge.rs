//! Properties of merging.

use crate::strategies;
use ahead_profile::{Extent, File, Milestone, MilestoneKind, Precision, Profile, Recording, check, merge};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// All pages of all files, by path.
fn pages<'a>(files: impl IntoIterator<Item = &'a File>) -> BTreeMap<(&'a [u8], bool), BTreeSet<u64>> {
    let mut pages: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for file in files {
        let of_file = pages.entry((file.path.as_slice(), file.deleted)).or_default();
        for extent in &file.extents {
            of_file.extend(extent.range().step_by(4096));
        }
    }
    pages
}

proptest! {
    #[test]
    fn merging_keeps_every_rule(profiles in strategies::runs_of_one_command()) {
        check(&merge(profiles)).unwrap();
    }

    #[test]
    fn merging_again_changes_nothing(profiles in strategies::runs_of_one_command()) {
        let once = merge(profiles);
        prop_assert_eq!(merge(vec![once.clone()]), once);
    }

    #[test]
    fn runs_and_losses_add_up(profiles in strategies::runs_of_one_command()) {
        let merged = merge(profiles.clone()).recording;
        let all = || profiles.iter().map(|profile| &profile.recording);
        prop_assert_eq!(merged.runs, all().map(|r| r.runs).sum::<u32>());
        prop_assert_eq!(merged.lost_events, all().map(|r| r.lost_events).sum::<u64>());
        prop_assert_eq!(merged.precision == Precision::Precise, all().all(|r| r.precision == Precision::Precise));
        prop_assert_eq!(merged.cold, all().all(|r| r.cold));
        prop_assert_eq!(merged.created_unix_s, all().map(|r| r.created_unix_s).max().unwrap());
    }

    /// If no file changed, the merged pages are the union of the pages, each with the number of runs that used it.
    #[test]
    fn pages_are_conserved(mut profiles in strategies::runs_of_one_command()) {
        for file in profiles.iter_mut().flat_map(|profile| &mut profile.files) {
            (file.size_bytes, file.mtime_ns) = (1 << 20, 0);
        }
        for profile in &mut profiles {
            let mut seen = BTreeSet::new();
            profile.files.retain(|file| seen.insert((file.path.clone(), file.deleted)));
        }
        let merged = merge(profiles.clone());
        prop_assert_eq!(pages(&merged.files), pages(profiles.iter().flat_map(|profile| &profile.files)));
        let uses = |files: &[File]| -> u64 {
            files.iter().flat_map(|file| &file.extents).map(|e| e.length_bytes / 4096 * u64::from(e.runs)).sum()
        };
        prop_assert_eq!(uses(&merged.files), profiles.iter().map(|profile| uses(&profile.files)).sum::<u64>());
        prop_assert_eq!(merged.metadata_bytes() > 0, profiles.iter().any(|profile| profile.metadata_bytes() > 0));
    }

    #[test]
    fn latest_version_of_a_changed_file_is_kept(profiles in strategies::runs_of_one_command()) {
        let merged = merge(profiles.clone());
        for file in &merged.files {
            let same = |other: &&File| {
                (&other.path, other.deleted, other.size_bytes, other.mtime_ns)
                    == (&file.path, file.deleted, file.size_bytes, file.mtime_ns)
            };
            let of_version = profiles.iter().flat_map(|profile| &profile.files).filter(same);
            prop_assert_eq!(pages([file]), pages(of_version));
        }
    }

    #[test]
    fn order_contains_every_extent_once(profiles in strategies::runs_of_one_command()) {
        let merged = merge(profiles);
        let order = merged.in_order();
        let distinct: BTreeSet<_> = order.iter().map(|at| (at.file, at.extent)).collect();
        prop_assert_eq!(distinct.len(), order.len());
        prop_assert_eq!(order.len(), merged.files.iter().map(|file| file.extents.len()).sum::<usize>());
    }
}

fn run(created_unix_s: u64, extents: &[(&str, u64, u64)]) -> Profile {
    let mut profile =
        Profile { recording: Recording { created_unix_s, runs: 1, ..Recording::default() }, ..Profile::default() };
    for (path, offset_bytes, first_use_us) in extents {
        let extent = Extent {
            offset_bytes: *offset_bytes,
            length_bytes: 4096,
            first_use_us: *first_use_us,
            runs: 1,
            physical_bytes: None,
            warm_use: None,
        };
        profile.files.push(File { path: path.as_bytes().to_vec(), extents: vec![extent], ..File::default() });
    }
    profile
}

#[test]
fn page_used_by_few_runs_comes_late() {
    let usual = |second| run(second, &[("/bin/usual", 0, 50_000)]);
    let odd = run(9, &[("/bin/odd", 0, 10), ("/bin/usual", 0, 60_000)]);
    let merged = merge(vec![usual(1), usual(2), usual(3), odd]);
    let paths: Vec<_> = merged.files.iter().map(|file| file.path.as_slice()).collect();
    assert_eq!(paths, [b"/bin/usual".as_slice(), b"/bin/odd"]);
    let order: Vec<_> = merged.in_order().iter().map(|at| at.file).collect();
    assert_eq!(order, [0, 1]);
    assert_eq!(merged.files[0].extents[0].first_use_us, 50_000);
    assert_eq!((merged.files[0].extents[0].runs, merged.files[1].extents[0].runs), (4, 1));
}

#[test]
fn milestones_of_a_minority_are_dropped_and_repeated_ones_kept_apart() {
    let exec = |time_us, path: &str| Milestone { time_us, kind: MilestoneKind::Exec, path: path.into(), warm_us: None };
    let with = |created, milestones: Vec<Milestone>| Profile { milestones, ..run(created, &[]) };
    let merged = merge(vec![
        with(1, vec![exec(0, "/bin/cc"), exec(10, "/bin/as"), exec(30, "/bin/as"), exec(5, "/tmp/a1")]),
        with(2, vec![exec(0, "/bin/cc"), exec(12, "/bin/as"), exec(32, "/bin/as"), exec(5, "/tmp/b2")]),
        with(3, vec![exec(0, "/bin/cc"), exec(14, "/bin/as"), exec(34, "/bin/as"), exec(5, "/tmp/c3")]),
    ]);
    assert_eq!(merged.milestones, [exec(0, "/bin/cc"), exec(12, "/bin/as"), exec(32, "/bin/as")]);
}

#[test]
fn merging_no_profiles_is_empty() {
    assert_eq!(merge(Vec::new()), Profile::default());
}

/// Regression: a journal and the files of a database, written by each boot, were stale at every replay.
#[test]
fn file_that_is_written_in_place_keeps_the_extents_of_all_runs() {
    let version = |second: u64, inode, mtime_ns, size_bytes, offset| {
        let mut profile = run(second, &[("/var/log/journal", offset, 5)]);
        let file = &mut profile.files[0];
        (file.inode, file.mtime_ns, file.size_bytes) = (inode, mtime_ns, size_bytes);
        profile
    };
    let runs = |profiles| {
        let merged = merge(profiles);
        let file = &merged.files[0];
        let rows: Vec<_> = file.extents.iter().map(|extent| (extent.offset_bytes, extent.runs)).collect();
        let fits = [(7, 3), (7, 9), (8, 9)].map(|(inode, mtime_ns)| file.is_recorded(1 << 20, mtime_ns, inode));
        (file.in_place, rows, fits)
    };
    let written = || vec![version(1, 7, 1, 1 << 20, 0), version(2, 7, 2, 1 << 20, 0), version(3, 7, 3, 1 << 20, 8192)];
    assert_eq!(runs(written()), (true, vec![(0, 2), (8192, 1)], [true, true, false]));
    // Merged profiles are merged again.
    assert!(runs(vec![merge(written()), version(4, 7, 3, 1 << 20, 0)]).0);
    // Replaced: another inode, as a package manager does. Grown: another size. An unknown inode says nothing.
    let replaced = vec![version(1, 6, 1, 1 << 20, 0), version(2, 7, 3, 1 << 20, 0)];
    assert_eq!(runs(replaced), (false, vec![(0, 1)], [true, false, false]));
    let grown = vec![version(1, 7, 1, 1 << 19, 0), version(2, 7, 3, 1 << 20, 0)];
    assert_eq!(runs(grown), (false, vec![(0, 1)], [true, false, false]));
    let unknown = vec![version(1, 0, 1, 1 << 20, 0), version(2, 0, 3, 1 << 20, 0)];
    assert!(!runs(unknown).0);
}

//! The plan of a profile: the requests of `ahead replay`, and those of `ahead sim replay`.

use crate::library::target::Target;
use ahead::device_store::Descriptions;
use ahead::prefetch::{HeadStart, Options, Replay};
use ahead_model::DeviceDescription;
use ahead_plan::Source;
use ahead_profile::Profile;
use ahead_sim::replay::{ReplaySettings, replay_observed};
use ahead_sys::fiemap;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{of_files, used};
use std::ops::Range;

const FILES: u64 = 24;
const FILE_BYTES: u64 = 512 * KIB;

/// Longer than the reads with which a description is checked: a busy machine would contradict it.
const USED: [Range<u64>; 2] = [0..200 * KIB, 300 * KIB..FILE_BYTES];

type Requests = Vec<(Source, Range<u64>)>;

/// Files of which two ranges are used, in another order than they lie on the disk.
fn profile(target: &Target) -> Profile {
    let file = |index: u64| {
        let cold = target.cold_file(&format!("file{index:02}"), FILE_BYTES);
        let places = fiemap::extents(File::open(&cold.path).unwrap(), 0, FILE_BYTES).unwrap();
        assert!(places.len() == 1 && places[0].is_placed(), "{places:?}");
        let mut file = used(&cold.path, &USED);
        for (extent, half) in file.extents.iter_mut().zip(0..) {
            extent.first_use_us = (7 * index + 12 * half) % FILES * 1000 + index;
            extent.physical_bytes = Some(places[0].physical_bytes + extent.offset_bytes);
        }
        file
    };
    of_files((0..FILES).map(file).collect())
}

/// Joins neighbours: the longest call and the parts of the account differ between the worlds.
fn joined(requests: Requests) -> Requests {
    let mut joined: Requests = Vec::new();
    for (source, range) in requests {
        match joined.last_mut() {
            Some((last, before)) if *last == source && before.end == range.start => before.end = range.end,
            _ => joined.push((source, range)),
        }
    }
    joined
}

fn in_the_kernel(profile: &Profile, description: DeviceDescription) -> Requests {
    let descriptions = Descriptions::of_all(description, "given.toml".as_ref());
    let head_start = HeadStart::None;
    // One thread reads.
    let options = Options::default().head_start(head_start).keep_ranges(true).threads(Some(2));
    let account = Replay::new(profile.clone()).options(options).descriptions(descriptions).start().unwrap().finish();
    assert!(account.devices.iter().all(|device| device.discarded.is_none()), "{account:?}");
    account.ranges.into_iter().map(|issued| (issued.source, issued.range)).collect()
}

fn in_the_simulator(profile: &Profile, description: DeviceDescription) -> Requests {
    let model = ahead_device::Model::builtin("hdd").unwrap();
    let settings =
        ReplaySettings { description: Some(description), is_background: false, ..ReplaySettings::new(model) };
    let mut requests = Vec::new();
    replay_observed(profile, &settings, &mut |source, range| requests.push((source, range.clone())));
    requests
}

#[test]
fn plans_make_the_same_requests_in_both_worlds() {
    unless_reclaimed(compare_plans);
}

fn compare_plans() {
    let Some(target) = Target::alone("two-worlds") else { return };
    let profile = profile(&target);
    for description in [DeviceDescription::ROTATING, DeviceDescription::FLASH] {
        profile.files.iter().for_each(|file| make_cold(Path::new(std::ffi::OsStr::from_bytes(&file.path))));
        let (mut simulated, mut real) =
            (joined(in_the_simulator(&profile, description)), joined(in_the_kernel(&profile, description)));
        if !description.seeks() {
            // Several workers take the steps in the simulator.
            for requests in [&mut simulated, &mut real] {
                requests.sort_by_key(|(source, range)| (*source, range.start));
            }
        }
        assert!(real.len() >= FILES as usize, "{real:?}");
        assert_eq!(simulated, real, "{description:?}");
    }
}

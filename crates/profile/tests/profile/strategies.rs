//! Random valid profiles.

use ahead_profile::{
    ContentCheck, DeviceTimes, Extent, File, Lookup, Metadata, Milestone, MilestoneKind, Precision, Profile, Recording,
    Thread, Timeline, TimelineSource, Wakeup, WarmUse,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const PAGE: u64 = 4096;

/// A path of any bytes, but never `..`.
pub fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = vec(any::<u8>().prop_filter("a byte of a name", |byte| !b"/\0.".contains(byte)), 1..12);
    vec(name, 1..5).prop_map(|names| names.into_iter().fold(Vec::new(), |path, name| [path, vec![b'/'], name].concat()))
}

/// One of a few paths, so that the runs of a command have paths in common.
fn common_path() -> impl Strategy<Value = Vec<u8>> {
    (0..6u8).prop_map(|number| format!("/usr/lib/{number}").into_bytes())
}

/// Disjoint extents with random times.
fn extents(runs: u32) -> impl Strategy<Value = Vec<Extent>> {
    let piece = (0..8u64, 1..9u64, 0..20_000u64, 1..=runs, option::of(0..1u64 << 40));
    vec(piece, 0..10).prop_map(|pieces| {
        let mut offset_bytes = 0;
        let extents = pieces.into_iter().map(|(gap, pages, first_use_us, runs, physical_bytes)| {
            offset_bytes += gap * PAGE;
            let length_bytes = pages * PAGE;
            let extent = Extent { offset_bytes, length_bytes, first_use_us, runs, physical_bytes, warm_use: None };
            offset_bytes += extent.length_bytes;
            extent
        });
        let mut extents: Vec<Extent> = extents.collect();
        extents.sort_by_key(|extent| extent.first_use_us);
        extents
    })
}

fn file(path: impl Strategy<Value = Vec<u8>>, runs: u32) -> impl Strategy<Value = File> {
    let names = (path, option::of(self::path()), self::path(), "[a-z0-9]{0,6}");
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let numbers = (any::<u64>(), any::<u64>(), 0..3u64, -1..2i64, flags);
    let content = option::of((any::<u32>(), vec(any::<u32>(), 0..4)))
        .prop_map(|content| content.map(|(layout, pieces)| Box::new(ContentCheck { layout, pieces })));
    (names, numbers, extents(runs), content).prop_map(|(names, numbers, extents, content)| File {
        path: names.0,
        seen_path: names.1,
        fs_path: names.2,
        fs_type: names.3,
        device: numbers.0,
        inode: numbers.1,
        size_bytes: numbers.2 << 20,
        mtime_ns: numbers.3,
        deleted: numbers.4.0,
        in_place: numbers.4.1,
        extents,
        content,
    })
}

fn metadata(runs: u32) -> impl Strategy<Value = Metadata> {
    (0..3u8, extents(runs)).prop_map(|(number, extents)| Metadata {
        device_path: format!("/dev/loop{number}").into_bytes(),
        mount_point: format!("/mnt/{number}").into_bytes(),
        fs_type: "ext4".into(),
        device: u64::from(number),
        extents,
    })
}

fn recording(runs: u32) -> impl Strategy<Value = Recording> {
    let paths = (option::of(path()), option::of(path()));
    let texts = (vec(vec(1u8.., 0..6), 0..4), paths, ".{0,8}", ".{0,8}", ".{0,8}");
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let times = (any::<u64>(), 0..1u64 << 40, 0..1u64 << 40, 0..1u64 << 40, 0..1u64 << 40);
    let times = times.prop_map(|(device, far_ns, near_ns, request_ns, bandwidth_bytes_per_s)| DeviceTimes {
        device,
        far_ns,
        near_ns,
        request_ns,
        bandwidth_bytes_per_s,
    });
    let numbers = (0..=i64::MAX as u64, 0..1000u64, 0..1u64 << 40, 0..8192u64, 0..1u64 << 40, vec(times, 0..3));
    (texts, flags, numbers).prop_map(move |(texts, flags, numbers)| Recording {
        command: texts.0,
        directory: texts.1.0.unwrap_or_default(),
        root: texts.1.1.unwrap_or_default(),
        kernel: texts.2,
        machine: texts.3,
        source: texts.4,
        precision: if flags.0 { Precision::Precise } else { Precision::UpperBound },
        cold: flags.1,
        metadata_seen: flags.2,
        created_unix_s: numbers.0,
        lost_events: numbers.1,
        runs,
        duration_us: numbers.2,
        read_ahead_kb: numbers.3,
        cpu_us: numbers.4,
        devices: numbers.5,
    })
}

fn lookup() -> impl Strategy<Value = Lookup> {
    let times = (0..1u64 << 40, option::of(0..1u64 << 40));
    (path(), any::<u64>(), any::<u64>(), any::<bool>(), times).prop_map(
        |(path, inode, device, listed, (first_use_us, warm_use_us))| Lookup {
            path: path.into(),
            inode,
            device,
            listed,
            first_use_us,
            warm_use_us,
        },
    )
}

fn milestone() -> impl Strategy<Value = Milestone> {
    let kind = prop_oneof![Just(MilestoneKind::Exec), Just(MilestoneKind::FirstOpen), Just(MilestoneKind::Ready)];
    (0..1u64 << 40, kind, common_path(), option::of(0..1u64 << 40))
        .prop_map(|(time_us, kind, path, warm_us)| Milestone { time_us, kind, path, warm_us })
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let threads = vec((option::of(0..9u32), 0..20_000u64, 0..20_000u64), 1..5);
    let wakeups = vec((0..9u32, 0..20_000u64, 0..9u32, 0..20_000u64), 0..6);
    (any::<bool>(), 0..1u64 << 40, threads, wakeups).prop_map(|(is_warm, warm_us, threads, wakeups)| {
        let count = threads.len() as u32;
        let thread = |(at, (parent, parent_cpu_us, cpu_us)): (usize, (Option<u32>, u64, u64))| Thread {
            parent: parent.filter(|parent| (*parent as usize) < at),
            parent_cpu_us,
            cpu_us,
        };
        let wakeup = |(by, by_cpu_us, woken, woken_cpu_us)| Wakeup {
            by: by % count,
            by_cpu_us,
            woken: woken % count,
            woken_cpu_us,
        };
        Timeline {
            source: if is_warm { TimelineSource::WarmRun } else { TimelineSource::ProcessorClocks },
            warm_us,
            reading_ns: warm_us / 3,
            threads: threads.into_iter().enumerate().map(thread).collect(),
            wakeups: wakeups.into_iter().map(wakeup).collect(),
        }
    })
}

/// Two of three extents are on the timeline.
fn put_on_timeline(extents: &mut [Extent], timeline: &Timeline) {
    for extent in extents.iter_mut().filter(|extent| extent.first_use_us % 3 > 0) {
        let time_us = extent.first_use_us / 2;
        let thread = (extent.first_use_us % timeline.threads.len() as u64) as u32;
        extent.warm_use = Some(WarmUse { time_us, thread, cpu_us: time_us / 2 });
    }
}

fn of_runs(runs: u32, path: BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Profile> {
    (
        recording(runs),
        vec(file(path, runs), 0..6),
        vec(metadata(runs), 0..3),
        vec(lookup(), 0..6),
        vec(milestone(), 0..6),
        option::of(timeline()),
    )
        .prop_map(|(recording, mut files, mut metadata, lookups, milestones, timeline)| {
            if let Some(timeline) = &timeline {
                files.iter_mut().for_each(|file| put_on_timeline(&mut file.extents, timeline));
                metadata.iter_mut().for_each(|device| put_on_timeline(&mut device.extents, timeline));
            }
            Profile { recording, files, metadata, lookups, milestones, timeline: timeline.map(Box::new) }
        })
}

/// Any profile.
pub fn profile() -> impl Strategy<Value = Profile> {
    (1..4u32).prop_flat_map(|runs| of_runs(runs, path().boxed()))
}

/// Several runs of one command, with common files, sizes and times.
pub fn runs_of_one_command() -> impl Strategy<Value = Vec<Profile>> {
    vec((1..3u32).prop_flat_map(|runs| of_runs(runs, common_path().boxed())), 1..5)
}

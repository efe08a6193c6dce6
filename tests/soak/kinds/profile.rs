//! Profiles: decoded, encoded again, merged, planned, shown.

#[path = "../../../crates/profile/tests/profile/exercise.rs"]
mod exercise;

use super::{Kind, files_of};
use crate::mutate::{self, Chance};
use ahead_model::DeviceDescription;
use ahead_plan::{LookUp, Path as Planned, inodes};
use ahead_profile::{Extent, File, Lookup, Metadata, Milestone, MilestoneKind, Precision, Profile, Recording};
use ahead_report::profile::{FileState, Shown};
use ahead_report::table::Screen;
use std::path::Path;

/// Bytes of the header.
const HEADER: usize = 28;
/// Random seeds, in addition to the fuzzer's corpus.
const SEEDS_MADE: u64 = 60;
const PAGE_BYTES: u64 = 4096;

pub fn kind() -> Kind {
    let made = (0..SEEDS_MADE).map(|case| {
        let profile = profile(&mut Chance::of_case(1, case));
        ahead_profile::encode(&profile).expect("a profile that keeps the rules")
    });
    let seeds: Vec<Vec<u8>> = files_of("fuzz/corpus/profile_decode").into_iter().chain(made).collect();
    Kind::new("profiles", 10, move |chance| make(chance, &seeds), run)
}

fn make(chance: &mut Chance, seeds: &[Vec<u8>]) -> Vec<u8> {
    let (seed, other) = (chance.pick(seeds).clone(), chance.pick(seeds));
    if chance.one_in(5) {
        let mut bytes = seed;
        mutate::bytes(chance, &mut bytes, other);
        return bytes;
    }
    let mut body = seed.get(HEADER..).unwrap_or_default().to_vec();
    for _ in 0..chance.few() {
        change_number(chance, &mut body);
    }
    if chance.one_in(2) {
        mutate::bytes(chance, &mut body, other.get(HEADER..).unwrap_or_default());
    }
    exercise::with_header(&body)
}

/// Replaces a CBOR number by another one of the same length: the rest is unchanged.
fn change_number(chance: &mut Chance, body: &mut [u8]) {
    if body.len() < 10 {
        return;
    }
    let start = chance.below(body.len() - 9);
    let is_head = |byte: &u8| byte >> 5 == 0 && (0x18..=0x1b).contains(byte);
    let Some(at) = body[start..body.len() - 9].iter().position(is_head).map(|at| start + at) else { return };
    let width = 1 << (body[at] - 0x18);
    let number = chance.number().to_be_bytes();
    body[at + 1..at + 1 + width].copy_from_slice(&number[8 - width..]);
}

fn run(bytes: &[u8]) -> bool {
    exercise::bytes(bytes);
    let Ok(profile) = ahead_profile::decode(bytes) else { return false };
    let lookups: Vec<LookUp> = profile
        .lookups
        .iter()
        .enumerate()
        .map(|(index, lookup)| LookUp {
            path: Planned::Lookup(index),
            inode: lookup.inode,
            first_use_us: lookup.first_use_us,
        })
        .collect();
    let (_, gathered) = inodes::gather(&profile, lookups.clone());
    let pieces = ahead_plan::pieces(&profile, PAGE_BYTES);
    let used: u64 = pieces.iter().map(ahead_plan::Piece::bytes).sum();
    for (traits, lookups, budget) in
        [(DeviceDescription::ROTATING, lookups, u64::MAX), (DeviceDescription::FLASH, gathered, used / 2)]
    {
        let plan = ahead_plan::plan(pieces.clone(), lookups, &traits, Some(1e4), budget);
        assert!(plan.planned_bytes <= budget && plan.planned_bytes + plan.over_budget_bytes == used, "{plan:?}");
    }
    let _ = ahead_plan::bytes_beyond_ends(&profile);
    show(&profile);
    true
}

fn show(profile: &Profile) {
    let states = [FileState::Current, FileState::Changed, FileState::Missing, FileState::Unknown, FileState::Deleted];
    let states: Vec<FileState> = states.into_iter().cycle().take(profile.files.len()).collect();
    let shown = Shown { profile, states: &states };
    let order: Vec<usize> = (0..profile.files.len()).collect();
    let screen = Screen { width: Some(80), colour: false };
    let tables =
        [shown.file_table(&order), shown.extent_table(), shown.metadata_table(), shown.milestone_table(100, true).0];
    let mut text: String = tables.iter().map(|table| table.render(screen)).collect();
    text.extend(shown.facts().into_iter().chain(shown.figures()).map(|(name, value)| format!("{name} {value}\n")));
    text.extend(shown.warnings());
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "control characters reach the terminal");
    let page = shown.page(Path::new("p.ahead"));
    assert!(page.ends_with("</html>\n") && !page.contains("<script"), "the page is incomplete or has a script");
}

fn profile(chance: &mut Chance) -> Profile {
    let runs = 1 + chance.below(4) as u32;
    let recording = Recording {
        command: vec![b"prog".to_vec(), b"<script>\x1b[2J".to_vec()],
        directory: b"/home".to_vec(),
        kernel: "6.18.0".into(),
        machine: "x86_64".into(),
        source: "tracepoints".into(),
        precision: if chance.one_in(2) { Precision::Precise } else { Precision::UpperBound },
        cold: chance.one_in(2),
        metadata_seen: chance.one_in(2),
        runs,
        duration_us: 1_000_000,
        cpu_us: chance.below(1_000_000) as u64,
        root: Vec::new(),
        ..Recording::default()
    };
    let path = |chance: &mut Chance| format!("/usr/lib/d{}/f{}", chance.below(5), chance.below(1000)).into_bytes();
    let fs_type = |chance: &mut Chance| (*chance.pick(&["ext4", "xfs", "btrfs", "nfs4"])).to_owned();
    let files = (0..chance.below(30)).map(|_| File {
        path: path(chance),
        fs_path: path(chance),
        fs_type: fs_type(chance),
        device: chance.below(3) as u64,
        inode: chance.below(100_000) as u64,
        size_bytes: chance.below(1 << 24) as u64,
        deleted: chance.one_in(10),
        extents: extents(chance, runs),
        ..File::default()
    });
    let files = files.collect();
    let metadata = (0..chance.below(3)).map(|_| Metadata {
        device_path: b"/dev/vda1".to_vec(),
        mount_point: b"/".to_vec(),
        fs_type: fs_type(chance),
        device: chance.below(3) as u64,
        extents: extents(chance, runs),
    });
    let metadata = metadata.collect();
    let lookups = (0..chance.below(60)).map(|_| Lookup {
        path: path(chance).into(),
        inode: chance.below(500) as u64,
        device: chance.below(3) as u64,
        listed: chance.one_in(4),
        first_use_us: chance.below(1_000_000) as u64,
        warm_use_us: None,
    });
    let lookups = lookups.collect();
    let kinds = [MilestoneKind::Exec, MilestoneKind::FirstOpen, MilestoneKind::Ready];
    let milestones = (0..chance.below(10)).map(|_| Milestone {
        time_us: chance.below(1_000_000) as u64,
        kind: *chance.pick(&kinds),
        path: path(chance),
        warm_us: None,
    });
    let milestones = milestones.collect();
    Profile { recording, files, metadata, lookups, milestones, timeline: None }
}

fn extents(chance: &mut Chance, runs: u32) -> Vec<Extent> {
    let mut offset_bytes = 0;
    let extents = (0..chance.below(12)).map(|_| {
        offset_bytes += chance.below(1 << 20) as u64;
        let length_bytes = 1 + chance.below(1 << 18) as u64;
        let extent = Extent {
            offset_bytes,
            length_bytes,
            first_use_us: chance.below(1_000_000) as u64,
            runs: 1 + chance.below(runs as usize) as u32,
            physical_bytes: chance.one_in(2).then(|| chance.next() >> 24),
            warm_use: None,
        };
        offset_bytes += length_bytes;
        extent
    });
    extents.collect()
}

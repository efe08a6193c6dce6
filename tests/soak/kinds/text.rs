//! Device models and scenarios of the simulator: read, and run for a bounded number of steps.

use super::{Kind, files_of, repository};
use crate::mutate::{self, Chance};
use ahead_device::{Device, MAX_CAPACITY_BYTES, Model, Op, Request};
use ahead_sim::Scenario;

/// Requests that a model serves.
const REQUESTS: usize = 100;
/// Limit of the steps that are run: more steps take minutes, see `docs/reference/scenario.md`.
const STEPS_MOST: u64 = 3_000;
const STREAMS_MOST: usize = 40;
const PAGES_MOST: u64 = 512;

pub fn models() -> Kind {
    let seeds: Vec<String> =
        files_of("crates/device/models").into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect();
    let words = ["hdd", "flash", "cloud", "none", "mq-deadline", "x"];
    let make = move |chance: &mut Chance| {
        let (seed, other) = (chance.pick(&seeds), chance.pick(&seeds));
        // Comments are most of the text.
        let plain: Vec<&str> = seed.lines().filter(|line| !line.starts_with('#')).collect();
        mutate::text(chance, &plain.join("\n"), other, &words)
    };
    Kind::new("models", 8, make, run_model)
}

fn run_model(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(model) = Model::from_toml(text) else { return false };
    assert_eq!(Model::from_toml(&model.to_toml()).as_ref(), Ok(&model), "written and read again");
    // The same places and times for the same input.
    let mut chance = Chance::of_case(2, crc32fast::hash(bytes).into());
    let capacity_bytes = [4096, 1 << 30, MAX_CAPACITY_BYTES][chance.below(3)];
    let (mut device, mut now_ns) = (Device::new(&model, capacity_bytes), 0);
    for number in 0..REQUESTS {
        let length_bytes = (1 + chance.next() % 512) * 4096;
        let offset_bytes = (chance.next() % capacity_bytes.saturating_sub(length_bytes).max(1)) & !4095;
        let op = if number % 5 == 4 { Op::Write } else { Op::Read };
        let served =
            device.submit(&Request { op, offset_bytes, length_bytes: length_bytes.min(capacity_bytes) }, now_ns);
        assert!(served.start_ns >= now_ns && served.end_ns >= served.start_ns, "{served:?} at {now_ns}");
        now_ns = if chance.one_in(3) { served.end_ns } else { now_ns + chance.next() % 1_000_000 };
    }
    device.restart(now_ns);
    assert!(model.fastest_ns(4096) <= model.fastest_ns(1 << 20));
    true
}

pub fn scenarios() -> Kind {
    let mut seeds: Vec<String> = ["lab/papers/wu", "lab/papers/roudier", "lab/papers/oconnor_tracy", "bench/sim"]
        .into_iter()
        .flat_map(files_of)
        .filter_map(|bytes| String::from_utf8(bytes).ok())
        .filter(|text| text.contains("[[workload]]"))
        .map(|text| text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n"))
        .collect();
    seeds.extend((0..100).map(|case| scenario(&mut Chance::of_case(3, case))));
    let words = [
        "none",
        "fixed(8)",
        "linux-6.18",
        "linux-2.4",
        "linux-2.6",
        "zfetch",
        "ahead",
        "oracle",
        "hdd",
        "ssd",
        "nvme",
        "emmc",
        "cloud",
        "ext2",
        "ext2-1k",
        "extents",
        "cfq",
        "none",
        "mq-deadline",
        "c-scan",
        "sequential",
        "backward",
        "stride",
        "interleaved",
        "interleaved-backward",
        "random",
        "sparse",
        "mixed",
        "write",
        "rewrite",
        "read",
        "mmap",
        "normal",
        "true",
        "../../../dev/zero",
        "/dev/tty",
        "true-readahead(64)",
        "wu",
        "fixed(18446744073709551615)",
    ];
    let make = move |chance: &mut Chance| {
        let (own, seed, other): (String, &String, &String) =
            (scenario(chance), chance.pick(&seeds), chance.pick(&seeds));
        let seed = if chance.one_in(2) { &own } else { seed };
        mutate::text(chance, seed, other, &words)
    };
    Kind::new("scenarios", 6, make, run_scenario)
}

/// A small scenario.
fn scenario(chance: &mut Chance) -> String {
    let policies =
        ["none", "fixed(8)", "linux-2.4", "linux-2.6", "linux-6.18", "linux-7.2", "zfetch", "ahead", "oracle"];
    let patterns = [
        "sequential",
        "backward",
        "stride",
        "interleaved",
        "interleaved-backward",
        "random",
        "sparse",
        "mixed",
        "write",
        "rewrite",
    ];
    let (policy, second) = (chance.below(4), 4 + chance.below(5));
    let mut text = format!(
        "policies = [\"{}\", \"{}\"]\nseed = {}\n[machine]\nmemory_mb = {}\ndirty_background_ratio = {}\ndirty_ratio = {}\n\
         dirty_writeback_ms = 400\nend_s = 1000\n[disk]\nmodel = \"{}\"\nread_ahead_kb = {}\nscheduler = \"{}\"\nlayout = \"{}\"\n",
        policies[policy],
        policies[second],
        chance.below(1000),
        2 + chance.below(6),
        chance.below(30),
        30 + chance.below(30),
        chance.pick(&["hdd", "ssd", "nvme", "emmc", "cloud"]),
        chance.below(64) * 4,
        chance.pick(&["none", "mq-deadline", "c-scan", "cfq"]),
        chance.pick(&["extents", "ext2", "ext2-1k"]),
    );
    for _ in 0..1 + chance.below(2) {
        let pattern = *chance.pick(&patterns);
        let via = if pattern.contains("write") || chance.one_in(2) { "read" } else { "mmap" };
        text += &format!(
            "[[workload]]\npattern = \"{pattern}\"\nfile_mb = {}\nblock_kb = {}\nvia = \"{via}\"\nstreams = {}\npasses = {}\n\
             blocks = {}\nuser_us_per_page = {}\nreopens = {}\n",
            1 + chance.below(3),
            4 * (1 + chance.below(16)),
            1 + chance.below(4),
            1 + chance.below(2),
            1 + chance.below(30),
            chance.below(5),
            chance.one_in(2),
        );
    }
    text
}

fn run_scenario(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let directory = repository().join("lab/papers/wu");
    let mut scenario = match Scenario::from_toml(text, &directory) {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an empty error message");
            return false;
        }
    };
    let streams: usize = scenario.workloads.iter().map(|workload| workload.streams.len()).sum();
    if scenario.steps() > STEPS_MOST || streams > STREAMS_MOST {
        return true;
    }
    // A thousand seconds of a disk are enough.
    scenario.settings.end_ns = scenario.settings.end_ns.min(1_000_000_000_000);
    for choice in scenario.policies.iter().filter(|choice| choice.pages().unwrap_or(0) <= PAGES_MOST).take(2) {
        let counters = scenario.run(choice).expect("the scenario was checked");
        assert_eq!(
            counters.issued_pages,
            counters.used_pages + counters.wasted_pages + counters.unread_pages,
            "{choice}: {counters:?}"
        );
    }
    true
}

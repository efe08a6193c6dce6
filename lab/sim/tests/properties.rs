//! Invariants of every policy and workload.

use ahead_policy::{CATALOGUE, Description};
use ahead_sim::Scenario;
use proptest::prelude::*;

/// Every policy: with an argument if it accepts one, and without if the argument is optional.
fn policies() -> Vec<String> {
    let written = |policy: &'static Description| {
        let plain = policy.arguments.iter().all(|argument| argument.default.is_some());
        let given = match policy.arguments.len() {
            0 => None,
            1 => Some(format!("{}(48)", policy.name)),
            _ => Some(format!("{}(48, adaptive)", policy.name)),
        };
        plain.then(|| policy.name.to_owned()).into_iter().chain(given)
    };
    CATALOGUE.iter().filter(|policy| !policy.needs_profile()).flat_map(written).collect()
}

/// Time that CFQ idles the disk after a read (`slice_idle`).
const CFQ_IDLE_NS: u64 = 8_000_000;

fn scenario() -> impl Strategy<Value = String> {
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
    let requests = prop_oneof![1..4u32, 1..64u32];
    let disk = (prop::sample::select(vec!["hdd", "ssd", "cloud", "emmc"]), 0..600u64, 0..10u8, requests);
    let streams = prop_oneof![3 => 1..4u32, 1 => 1..41u32];
    let turns = (1..3u32, any::<bool>(), prop::option::of(1..9u32));
    let workload = (prop::sample::select(patterns.to_vec()), 1..5u64, 1..40u64, any::<bool>(), streams, turns);
    let limits = (0..30u64, 0..30u64, 0..3000u64, prop::sample::select(vec!["none", "mq-deadline", "c-scan", "cfq"]));
    let call = (limits, any::<bool>(), prop::option::of(1..9000u64));
    (disk, prop::collection::vec(workload, 1..3), 2..6u64, any::<u32>(), call).prop_map(
        |((model, window_kb, order, requests), workloads, memory_mb, seed, (limits, ext2, call_bytes))| {
            let (background, more, expire_ms, scheduler) = limits;
            let (layout, order) = if ext2 { ("ext2", 0) } else { ("extents", order) };
            let mut text = format!(
                "policies = [\"{}\"]\nseed = {seed}\n[machine]\nmemory_mb = {memory_mb}\npio_us_per_page = 1.5\n\
                 dirty_background_ratio = {background}\ndirty_ratio = {}\ndirty_expire_ms = {expire_ms}\ndirty_writeback_ms = 400\n\
                 [disk]\nmodel = \"{model}\"\nread_ahead_kb = {}\nfolio_order = {order}\nnr_requests = {requests}\n\
                 layout = \"{layout}\"\nscheduler = \"{scheduler}\"\n",
                policies().join("\", \""),
                background + more,
                window_kb / 4 * 4
            );
            for (pattern, file_mb, block, mapped, streams, (passes, reopens, blocks)) in workloads {
                let writes = pattern.contains("write");
                let mapped = mapped && !writes;
                let via = if mapped { "mmap" } else { "read" };
                text += &format!(
                    "[[workload]]\npattern = \"{pattern}\"\nfile_mb = {file_mb}\nblock_kb = {}\nvia = \"{via}\"\n\
                     streams = {streams}\npasses = {passes}\nuser_us_per_page = 2\nreopens = {reopens}\nfsync = {}\n",
                    block * 4,
                    writes && streams > 1,
                );
                if let Some(blocks) = blocks {
                    text += &format!("blocks = {blocks}\n");
                }
                if let Some(bytes) = call_bytes.filter(|bytes| !mapped && *bytes <= block * 4096) {
                    text += &format!("call_bytes = {bytes}\n");
                }
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every requested page is used, wasted or still cached. Every access is a hit, a wait or a miss. The times add up,
    /// and the same scenario gives the same figures.
    #[test]
    fn counters_add_up_and_runs_are_deterministic(text in scenario()) {
        let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
        let mut accesses = None;
        for choice in &scenario.policies {
            let counters = scenario.run(choice).unwrap();
            prop_assert_eq!(
                counters.issued_pages,
                counters.used_pages + counters.wasted_pages + counters.unread_pages,
                "{}: {:?}", choice, counters
            );
            // When the queue has drained, the disk has read and written all requests, and its busy time is at most the
            // run's time.
            let asked_pages = counters.issued_pages + counters.metadata_pages;
            let read_bytes = counters.device.bytes - counters.device.write_bytes;
            prop_assert_eq!(read_bytes, asked_pages * 4096, "{}: {:?}", choice, counters);
            prop_assert_eq!(counters.device.write_bytes, counters.written_pages * 4096, "{}: {:?}", choice, counters);
            prop_assert!(counters.device.busy_ns <= counters.drained_ns, "{}: {:?}", choice, counters);
            prop_assert!(counters.elapsed_ns <= counters.drained_ns, "{}: {:?}", choice, counters);
            prop_assert_eq!(
                counters.dirtied_pages,
                counters.written_pages + counters.unwritten_pages,
                "{}: {:?}", choice, counters
            );
            // The disk or the processor always works, except where CFQ idles the disk for a reader.
            let idle_ns = if text.contains("\"cfq\"") { counters.device.requests * CFQ_IDLE_NS } else { 0 };
            let works_ns = counters.user_ns + counters.system_ns + counters.device.busy_ns + idle_ns;
            prop_assert!(counters.ended && counters.elapsed_ns <= works_ns, "{}: {:?}", choice, counters);
            prop_assert!(counters.user_ns + counters.system_ns <= counters.elapsed_ns, "{}: {:?}", choice, counters);
            // The pages that programs access do not depend on the policy.
            let same = *accesses.get_or_insert((counters.accesses(), counters.read_bytes, counters.write_bytes));
            prop_assert_eq!((counters.accesses(), counters.read_bytes, counters.write_bytes), same, "{}", choice);
            prop_assert_eq!(&scenario.run(choice).unwrap(), &counters, "{}", choice);
        }
    }
}

//! Wu Fengguang, "Use 512kb max readahead size, and 32kb min readahead size" (2010). Its claims: `wu/claims.toml`.
//!
//! In Rust: the starts of programs, the search for the most streams and the least memory, and the windows of a policy by itself.

use crate::boot::Boot;
use crate::claims::Claims;
use crate::claims::runs::{Experiment, Setup, counters};
use crate::claims::value::{Number, Text, Value};
use crate::{Paper, PaperError};
use ahead_policy::testing::Cache;
use ahead_policy::{Access, FileId, PAGE_BYTES, Request, Requests};

/// The source.
pub const PAPER: Paper = Paper {
    name: "wu",
    title: "Use 512kb max readahead size, and 32kb min readahead size",
    authors: "Wu Fengguang",
    year: 2010,
    story: "A patch that makes the largest window of Linux four times as long, with its reasons: what a disk of 8 ms and 100 MB/s \
            gives for each size of request, what a solid-state disk gives for each window, 1 to 16 readers on two arrays, \
            what a desktop wastes, and how many streams fit into memory.",
    run: |measured| CLAIMS.run(measured),
};

const CLAIMS: Claims = Claims {
    paper: PAPER.name,
    text: include_str!("../wu/claims.toml"),
    files: &[
        ("table.toml", include_str!("../wu/table.toml")),
        ("ssd.toml", include_str!("../wu/ssd.toml")),
        ("x25-m.toml", include_str!("../wu/x25-m.toml")),
        ("readers.toml", include_str!("../wu/readers.toml")),
        ("eva.toml", include_str!("../wu/eva.toml")),
        ("sata.toml", include_str!("../wu/sata.toml")),
        ("desktop.toml", include_str!("../wu/desktop.toml")),
        ("streams.toml", include_str!("../wu/streams.toml")),
    ],
    experiments: &[
        ("starts", Experiment::Simulated(starts)),
        ("most without thrashing", Experiment::Simulated(most_without_thrashing)),
        ("shortest window after a miss", Experiment::Simulated(shortest_after_a_miss)),
    ],
};

/// Page of the miss; the cached history ends right before it.
const MISS_AT: u64 = 1024;

/// Programs that start one after the other.
fn starts(setup: &Setup) -> Result<Value, PaperError> {
    let boot = Boot::new(setup.texts("programs")?);
    let machine =
        setup.scenario.machine_for(&ahead_policy::named(&setup.policy)?, &boot.file_pages(), vec![boot.program()])?;
    Ok(counters(&machine.run()))
}

/// The largest number of streams, or of pages less memory, up to `most`, with which no stream thrashes. Every larger number thrashes.
fn most_without_thrashing(setup: &Setup) -> Result<Value, PaperError> {
    let (choice, is_memory) = (ahead_policy::named(&setup.policy)?, *setup.argument("vary")? == Text("memory".into()));
    let thrashes = |number: u64| -> Result<bool, PaperError> {
        let mut machine = setup.scenario.clone();
        if is_memory {
            machine.memory_pages -= number;
        } else {
            let stream = machine.workloads[0].streams[0];
            machine.workloads[0].streams = vec![stream; number as usize];
        }
        Ok(machine.run(&choice)?.thrashings > 0)
    };
    let (mut good, mut bad) = (0, setup.whole("most")? + 1);
    while bad - good > 1 {
        let middle = u64::midpoint(good, bad);
        if thrashes(middle)? { bad = middle } else { good = middle }
    }
    Ok(Value::record([("most", Number(good as f64))]))
}

/// The shortest window, pages, that a policy requests at a miss, over all lengths of the cached history before it.
fn shortest_after_a_miss(setup: &Setup) -> Result<Value, PaperError> {
    let (file, choice) = (FileId(0), ahead_policy::named(&setup.policy)?);
    let shortest = |history: u64| -> Result<Option<u64>, PaperError> {
        let mut cache = Cache::new(2 * MISS_AT, 128 * 1024 / PAGE_BYTES);
        cache.fill(&Request { first: MISS_AT - history, pages: history, ..Request::of(file) });
        let (mut policy, mut requests) = (choice.build(&Default::default())?, Requests::default());
        policy.access(&Access::read(MISS_AT, 1, cache.found(MISS_AT)), &cache, &mut requests);
        Ok(requests.take().iter().map(|request| request.pages).min())
    };
    let windows = (1..=MISS_AT).map(shortest).collect::<Result<Vec<_>, PaperError>>()?;
    let pages = windows.into_iter().flatten().min().unwrap_or(0);
    Ok(Value::record([("pages", Number(pages as f64))]))
}

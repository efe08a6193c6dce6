//! Markus Pelouin, "Investigating ext2 optimizations in Linux" (2009). Its claims: `pelouin/claims.toml`.
//!
//! In Rust: the rates of timed reads and their drops, the passes over the blocks of a file, and the processor's cache. None of them is a
//! workload of the simulator.

mod processor;
mod rates;

use crate::claims::Claims;
use crate::claims::runs::{Experiment, Setup, counters};
use crate::claims::value::Value;
use crate::{Paper, PaperError};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Op, Program};

/// The source.
pub const PAPER: Paper = Paper {
    name: "pelouin",
    title: "Investigating ext2 optimizations in Linux",
    authors: "Markus Pelouin",
    year: 2009,
    story: "A file is read in small steps, each timed: block size, read-ahead and the layout of ext2 show as drops of the \
            rate. The paper leaves some drops unexplained; this simulation looks for their causes.",
    run: |measured| CLAIMS.run(measured),
};

const CLAIMS: Claims = Claims {
    paper: PAPER.name,
    text: include_str!("../pelouin/claims.toml"),
    files: &[
        ("machine.toml", include_str!("../pelouin/machine.toml")),
        ("disk.toml", include_str!("../pelouin/disk.toml")),
    ],
    experiments: &[
        ("steps", Experiment::Simulated(rates::simulated)),
        ("real steps", Experiment::Real(rates::real)),
        ("first block", Experiment::Simulated(first_block)),
        ("processor cache", Experiment::Simulated(processor::run)),
    ],
};

/// Reads of block 0, of blocks 0 and 1, of 0 to 2 … The times of the first block, nanoseconds, without its very first read.
fn first_block(setup: &Setup) -> Result<Value, PaperError> {
    let (open, file, blocks) = (OpenId(0), FileId(0), setup.whole("blocks")?);
    let passes = (1..=blocks).flat_map(move |pass| {
        (0..pass).map(move |block| Op::Read { open, file, offset_bytes: block * PAGE_BYTES, length_bytes: PAGE_BYTES })
    });
    let ops = Box::new(std::iter::once(Op::Open { open, file }).chain(passes));
    let program = Program { ops, user_per_page_ns: 0.0 };
    let machine = setup.scenario.machine_for(&ahead_policy::named(&setup.policy)?, &[blocks], vec![program])?;
    let (seen, calls) = machine.run_with_calls();
    let first = calls.iter().filter(|call| call.offset_bytes == 0).map(|call| (call.ended_ns - call.began_ns) as f64);
    Ok(counters(&seen).with("first_ns", Value::numbers(first.skip(1))))
}

//! `advise`, and the policy `mapped-reader`. What the library has requested is what is cached when its helper thread has looked.

use super::simulated;
use crate::library::target::Target;
use ahead::{Behaviour, advise_raw};
use ahead_model::RangeSet;
use ahead_policy::policies::mapped_reader::MappedReaders;
use ahead_policy::{FileId, OpenId, PAGE_BYTES, Page, Parameters};
use ahead_sim::{Mapped, Op};
use ahead_sys::{cache, mapping::Mapping};
use ahead_tests::rig::prelude::*;

const FILE_BYTES: u64 = 12 * MIB;
const PAGES: u64 = FILE_BYTES / PAGE_BYTES;

/// What is cached after each access. Everything arrives before the next one.
fn in_the_kernel(target: &Target, behaviour: Behaviour, accesses: &[Page]) -> Vec<RangeSet> {
    let cold = target.cold_file(&format!("{behaviour:?}"), FILE_BYTES);
    let file = File::open(&cold.path).unwrap();
    let mapping = Mapping::new(&file, FILE_BYTES as usize).unwrap();
    let addresses = mapping.addresses();
    let advised = advise_raw(addresses.start, addresses.len(), behaviour, 0).unwrap();
    let settled = || {
        // One look may have begun before the access.
        let looks = advised.counters().looks + 2;
        wait_until("two looks", || advised.counters().looks >= looks);
        let requested = || cache::resident(&file, 0, FILE_BYTES).unwrap();
        wait_until("arrival", || cache::present(&file, 0, FILE_BYTES).unwrap() == requested());
        RangeSet::from_iter(requested())
    };
    settled();
    let access = |page: &Page| {
        mapping.touch((page * PAGE_BYTES) as usize).unwrap();
        settled()
    };
    accesses.iter().map(access).collect()
}

/// What was requested after each access. `known`: the pages of the reader, from which the program knows its pattern.
fn in_the_simulator(known: &[Page], accesses: &[Page]) -> Vec<RangeSet> {
    let (open, file) = (OpenId(0), FileId(0));
    let future = known.iter().map(|page| (file, *page)).collect();
    let policy = MappedReaders::new(&Parameters { future: Some(future), ..Parameters::default() });
    let touch = |page: &Page| Op::Touch { open, file, first: *page, pages: 1, mapped: Mapped::default() };
    let steps: Vec<Op> = accesses.iter().map(touch).collect();
    let requested = simulated(Box::new(policy), &[FILE_BYTES], Some(Op::Open { open, file }), &steps);
    requested.into_iter().map(|mut files| files.remove(0)).collect()
}

#[test]
fn advised_mappings_are_requested_alike_in_both_worlds() {
    unless_reclaimed(compare_advised_mappings);
}

fn compare_advised_mappings() {
    let Some(target) = Target::alone("two-worlds") else { return };
    let (upwards, downwards): (Vec<Page>, Vec<Page>) = ((0..PAGES).collect(), (0..PAGES).rev().collect());
    // The kernel maps 16 cached pages around each access.
    for (behaviour, pages) in [(Behaviour::Sequential, upwards), (Behaviour::Backward, downwards)] {
        let accesses: Vec<Page> = pages.iter().copied().step_by(16).collect();
        let (simulated, real) = (in_the_simulator(&pages, &accesses), in_the_kernel(&target, behaviour, &accesses));
        for ((page, simulated), real) in accesses.iter().zip(&simulated).zip(&real) {
            let missing: Vec<_> = simulated.difference(real).collect();
            let more: Vec<_> = real.difference(simulated).collect();
            assert!(missing.is_empty() && more.is_empty(), "{behaviour:?}, page {page}: {missing:?} and {more:?}");
        }
    }
}

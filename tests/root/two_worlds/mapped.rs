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

/// Compared accesses of a case. A case that takes longer than the kernel's interval of reclaim (5 s) is disturbed each time.
const ACCESSES: usize = 64;

/// What was cached after each access, or before: the kernel may evict pages meanwhile. Everything arrives before the next access.
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
        requested()
    };
    let mut seen = RangeSet::from_iter(settled());
    let access = |page: &Page| {
        mapping.touch((page * PAGE_BYTES) as usize).unwrap();
        // A reader elsewhere is searched for when it has stood still for some looks.
        wait_until("the first request", || advised.counters().requested_bytes > 0);
        settled().into_iter().for_each(|range| seen.insert(range));
        seen.clone()
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
    let Some(target) = Target::alone("two-worlds") else { return };
    let stride = |pages: usize| Behaviour::Stride { bytes: pages as i64 * PAGE_BYTES as i64 };
    // The kernel maps 16 cached pages around each access. Strides: the first access is where a record is assumed, or elsewhere.
    let cases: [(Behaviour, Vec<Page>, usize); 4] = [
        (Behaviour::Sequential, (0..PAGES).collect(), 16),
        (Behaviour::Backward, (0..PAGES).rev().collect(), 16),
        (stride(40), (0..PAGES).step_by(40).collect(), 1),
        (stride(60), (7..PAGES).step_by(60).collect(), 1),
    ];
    for (behaviour, pages, apart) in cases {
        unless_reclaimed(|| compare(&target, behaviour, &pages, apart));
    }
}

/// `pages`: those of the reader. Each `apart`th is an access.
fn compare(target: &Target, behaviour: Behaviour, pages: &[Page], apart: usize) {
    let accesses: Vec<Page> = pages.iter().copied().step_by(apart).take(ACCESSES).collect();
    let (simulated, real) = (in_the_simulator(pages, &accesses), in_the_kernel(target, behaviour, &accesses));
    for ((page, simulated), real) in accesses.iter().zip(&simulated).zip(&real) {
        let missing: Vec<_> = simulated.difference(real).collect();
        let more: Vec<_> = real.difference(simulated).collect();
        assert!(missing.is_empty() && more.is_empty(), "{behaviour:?}, page {page}: {missing:?} and {more:?}");
    }
}

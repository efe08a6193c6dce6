//! Read-ahead of mappings: the pages that the kernel reads around a fault, and the number of cached pages that it maps with one fault.

use crate::probe::Run;
use crate::probe::answer::Answer;
use crate::probe::error::Result;
use crate::probe::eyes::{Eyes, Ran, count};
use crate::probe::statistics::{most_frequent, quantile};
use crate::probe::subject::PAGE_BYTES;
use ahead_sys::mapping::Mapping;
use std::time::Instant;

/// Number of compared runs.
const RUNS: u64 = 3;
/// Accesses to each page of the cached file, each in a new mapping. The fastest counts: interrupts and other programs only delay an
/// access.
const PASSES: usize = 25;
/// Number of accessed pages: two of the largest ranges that can be distinguished.
const TOUCHED_PAGES: u64 = 256;
/// An access that takes this multiple of the usual one is a fault. An access through an entry of the page table takes nanoseconds, the
/// fastest fault hundreds of them.
const FAULT: f64 = 4.0;

/// Bytes that the kernel reads around a fault of an absent page in the middle of the file; the result may equal the window.
pub fn read_around(run: &Run, eyes: Eyes) -> Result<Answer> {
    let subject = run.subject;
    if subject.is_device() {
        return Ok(Answer::none("bytes", "devices are not mapped here"));
    }
    let pages = subject.pages();
    // A multiple of every power of two that a window may be, so that the ends do not depend on the alignment.
    let page = (pages / 2) & !((1_u64 << (pages / 4).max(1).ilog2()) - 1);
    let fault = || -> Result<Ran> {
        run.watcher.go_on("what is read around a fault")?;
        subject.make_cold(run.watcher)?;
        let (_reader, look) = (subject.open()?, subject.open_exact()?);
        let mapping = Mapping::new(&_reader, (pages * PAGE_BYTES) as usize)?;
        mapping.fault((page * PAGE_BYTES) as usize)?;
        Ok(Ran { look, _reader, _mapping: Some(mapping) })
    };
    let mut found = Vec::new();
    for _ in 0..RUNS {
        found.push(match eyes {
            Eyes::Asking => count(&fault()?.look, 0, pages)?,
            Eyes::Timing(_) => {
                let after = eyes.end_of_cached(subject, page + 1, pages, &fault)? - page;
                after + eyes.cached_before(subject, page, &fault)?
            }
        });
    }
    let (around, votes) = most_frequent(&found).expect("there were runs");
    if around >= pages {
        return Ok(Answer::none(
            "bytes",
            format!("the whole test file ({} bytes) was read: the value is at least that", pages * PAGE_BYTES),
        ));
    }
    let method = format!("{}: bytes read by the fault of a page in the middle of a mapping, {RUNS} runs", eyes.name());
    Ok(Answer::counted(around * PAGE_BYTES, "bytes", votes, method))
}

/// Bytes of cached pages that one fault maps, by the times of accesses in a mapping of cached pages.
pub fn fault_around(run: &Run) -> Result<Answer> {
    let subject = run.subject;
    if subject.is_device() {
        return Ok(Answer::none("bytes", "devices are not mapped here"));
    }
    run.watcher.go_on("what a fault maps")?;
    let pages = TOUCHED_PAGES.min(subject.pages());
    let file = subject.open()?;
    subject.read(&file, 0, (pages * PAGE_BYTES) as usize)?;
    let mut quickest = vec![f64::INFINITY; pages as usize];
    for _ in 0..PASSES {
        let mapping = Mapping::new(&file, (pages * PAGE_BYTES) as usize)?;
        for (page, quickest) in quickest.iter_mut().enumerate() {
            let began = Instant::now();
            mapping.touch(page * PAGE_BYTES as usize);
            *quickest = quickest.min(began.elapsed().as_nanos() as f64);
        }
    }
    let usual = quantile(&quickest, 0.1).max(1.0);
    let faults: Vec<u64> = (0..pages).filter(|page| quickest[*page as usize] > FAULT * usual).collect();
    Ok(period(&faults, pages))
}

/// The distance between faults: the most frequent one. If every page faults, all accesses take as long as the fastest.
fn period(faults: &[u64], pages: u64) -> Answer {
    let distances: Vec<u64> = faults.windows(2).map(|pair| pair[1] - pair[0]).collect();
    match most_frequent(&distances) {
        Some((distance, votes)) if votes.0 * 4 >= votes.1 * 3 => {
            let method = format!("timing: distance between slow touches in {pages} cached pages, {PASSES} mappings");
            Answer::counted(distance * PAGE_BYTES, "bytes", votes, method)
        }
        Some((_, (agree, all))) => {
            Answer::none("bytes", format!("timing: slow touches in no order ({agree} of {all} distances are equal)"))
        }
        None => Answer::none(
            "bytes",
            format!(
                "timing: among {pages} cached pages {} touches stand out: each page faults, or one fault maps all",
                faults.len()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_at_equal_distances_give_an_answer() {
        let regular: Vec<u64> = (0..256).step_by(16).collect();
        assert_eq!(period(&regular, 256).whole(), Some(16 * PAGE_BYTES));
        assert_eq!(period(&[0, 3, 9, 11, 30], 256).whole(), None);
        assert_eq!(period(&[], 256).whole(), None);
    }
}

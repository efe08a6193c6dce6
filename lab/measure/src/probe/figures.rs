//! Data of Pelouin's figures 1 to 5, measured as in his paper: sequential reads in small steps, each timed. Centred differences, averaged
//! over 16 runs, give the rate at each place.

use crate::probe::Run;
use crate::probe::disk::Reads;
use crate::probe::error::Result;
use crate::probe::subject::PAGE_BYTES;
use std::fs::File;

/// Number of averaged runs, as in his paper.
const RUNS: usize = 16;
/// For the drive's buffer: the maximum number of pages between two reads of the first page, and the step.
const AGAIN_PAGES: u64 = 1024;
const AGAIN_STEP: u64 = 16;

/// A figure: its title and its points.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its number in the paper.
    pub number: u32,
    pub title: &'static str,
    /// Title of the horizontal axis.
    pub x: &'static str,
    /// Title of the vertical axis.
    pub y: &'static str,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
}

/// Reads a file in steps of `step` bytes up to `end`. Returns bytes per microsecond at each place but the first: the mean over the runs.
/// Empty for a file without a disk.
fn rates(run: &Run, step: u64, end: u64, with_read_ahead: bool, cold_metadata: bool) -> Result<Vec<(f64, f64)>> {
    let subject = run.subject;
    if subject.missing().is_some() {
        return Ok(Vec::new());
    }
    let count = (end.min(subject.pages() * PAGE_BYTES) / step) as usize;
    let mut sums = vec![0.0; count.saturating_sub(1)];
    for _ in 0..RUNS {
        run.watcher.go_on("figures")?;
        if !cold_metadata || !subject.make_metadata_cold(run.watcher)? {
            subject.make_cold(run.watcher)?;
        }
        let file = if with_read_ahead { subject.open()? } else { subject.open_exact()? };
        let passed = passed(run, &file, step, count)?;
        for (sum, rate) in sums.iter_mut().zip(centred(&passed, step)) {
            *sum += rate / RUNS as f64;
        }
    }
    Ok((1_u64..).zip(sums).map(|(index, rate)| ((index * step) as f64, rate)).collect())
}

/// Time at the end of each step, nanoseconds.
fn passed(run: &Run, file: &File, step: u64, count: usize) -> Result<Vec<f64>> {
    let mut now = 0.0;
    let mut passed = Vec::with_capacity(count);
    for index in 0..count as u64 {
        now += run.subject.read(file, index * step, step as usize)? as f64;
        passed.push(now);
    }
    Ok(passed)
}

/// Bytes per microsecond by Pelouin's differences: centred within, one-sided at the end. His formula has a one-sided difference at the
/// beginning, too, from the first three times. The first read waits for the arm. So that difference is almost zero, and the huge rate
/// would hide all others.
fn centred(passed_ns: &[f64], step: u64) -> Vec<f64> {
    let last = passed_ns.len().saturating_sub(1);
    let time_ns = |index: usize| match index {
        _ if index == last => passed_ns[last] - passed_ns[last - 1],
        _ => (passed_ns[index + 1] - passed_ns[index - 1]) / 2.0,
    };
    (1..passed_ns.len()).map(|index| step as f64 * 1e3 / time_ns(index).max(1.0)).collect()
}

/// Time of a direct read of the first page after reads of a number of other bytes: microseconds by bytes. Empty where reads cannot bypass
/// the page cache.
fn again(run: &Run) -> Result<Vec<(f64, f64)>> {
    let Ok(mut reads) = Reads::open(run)? else { return Ok(Vec::new()) };
    let mut points = Vec::new();
    let place = reads.within(
        0,
        reads.capacity_bytes - AGAIN_PAGES.min(reads.capacity_bytes / PAGE_BYTES / 2) * PAGE_BYTES,
        PAGE_BYTES,
    );
    for pages in (0..AGAIN_PAGES.min(reads.capacity_bytes / PAGE_BYTES / 2)).step_by(AGAIN_STEP as usize) {
        run.watcher.go_on("the drive's buffer")?;
        for page in (0..pages).step_by(AGAIN_STEP as usize) {
            reads.one(place + page * PAGE_BYTES, AGAIN_STEP * PAGE_BYTES)?;
        }
        points.push(((pages * PAGE_BYTES) as f64, reads.one(place, PAGE_BYTES)? / 1e3));
    }
    Ok(points)
}

/// The five figures of Pelouin's paper. The data of figures 3 and 4 are those of the drive's buffer (`again`). Reads through the page
/// cache would find their pages there.
pub fn pelouin(run: &Run) -> Result<Vec<Figure>> {
    let again = again(run)?;
    let rate = "bytes per us";
    let figure = |number, title, points| Figure { number, title, x: "place in the file, bytes", y: rate, points };
    let first: Vec<(f64, f64)> = again.iter().copied().filter(|(bytes, _)| *bytes <= (1 << 20) as f64).collect();
    let buffered = |number, title, points| Figure { number, title, x: "read since, bytes", y: "us", points };
    Ok(vec![
        figure(1, "Reads of 16 bytes without read-ahead", rates(run, 16, 24 << 10, false, false)?),
        figure(2, "Reads of 512 bytes with read-ahead", rates(run, 512, 768 << 10, true, false)?),
        buffered(3, "The first block read again, past the page cache, up to a megabyte", first),
        buffered(4, "The first block read again, past the page cache", again),
        figure(
            5,
            "Reads of 2048 bytes without read-ahead and with cold metadata",
            rates(run, 2048, 96 << 10, false, true)?,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_step_time_gives_a_constant_rate() {
        let passed: Vec<f64> = (1..=10).map(|index| 1000.0 * f64::from(index)).collect();
        assert!(centred(&passed, 512).iter().all(|rate| (rate - 512.0).abs() < 1e-9));
    }

    /// Regression: figure 5 began with 2 TB/s, and all other points were invisible on its axis.
    #[test]
    fn first_wait_for_the_arm_gives_no_rate() {
        let passed: Vec<f64> = (0..48).map(|index| 9e6 + 1000.0 * f64::from(index)).collect();
        let rates = centred(&passed, 2048);
        assert_eq!(rates.len(), 47);
        assert!(rates.iter().all(|rate| (rate - 2048.0).abs() < 1e-6), "{rates:?}");
        assert!(centred(&[9e6], 2048).is_empty() && centred(&[], 2048).is_empty());
    }
}

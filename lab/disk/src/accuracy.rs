//! Measures the accuracy of a disk's times as programs see them. This process times scattered reads past the page cache, and compares
//! these times with those of the model in the daemon.
//!
//! The measurement takes place when a disk is attached, at each queue depth that its model has. The extra cost with many outstanding reads is
//! then added to the lead ([`Lead::per_other_ns`]). A disk that is not accurate enough reports this in every result.

use crate::Result;
use crate::floor::{quantile, random_requests_per_s, scattered_offset};
use ahead_device::Model;
use ahead_disk::accuracy::PROMISED_SHARE;
use ahead_disk::{Client, Lead, Punctuality};
use ahead_sys::daemon::{Awake, set_nice};
use ahead_sys::direct::DirectReads;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// See [`PROMISED_SHARE`]. About twice the time that a wake-up takes on a busy virtual machine. Nanoseconds.
const TOLERANCE_NS: f64 = 60_000.0;
/// See [`PROMISED_SHARE`].
const TOLERANCE_SHARE: f64 = 0.05;
/// Length of a read: a page.
const READ_BYTES: u64 = 4096;
/// The second best of this many rounds counts. Other programs can only make times worse, and at the limit of a machine the best round may
/// not be repeatable.
const ROUNDS: u64 = 3;
/// Approximate time of a round: attaching a disk should take a second.
const ROUND_TIME: Duration = Duration::from_millis(100);
/// Fewest and most reads of a round.
const READS: (f64, f64) = (16.0, 1000.0);
/// Largest measured depth: at greater depths a read waits for other reads, not for the emulation.
const MAX_DEPTH: usize = 64;
/// Limit of the extra lead for outstanding reads, as a multiple of their median cost.
const MAX_OF_MEDIAN: f64 = 1.5;

/// Reads `reads` scattered pages at queue depth `depth`, and compares their times with the model. Resets the counters of the disk, whose model
/// must be active. Each `round` has other offsets.
///
/// Errors: a read failed, or the daemon does not answer.
pub fn measure(
    device: &Path,
    client: &Client,
    capacity_bytes: u64,
    depth: usize,
    reads: u64,
    round: u64,
) -> Result<Punctuality> {
    let mut queue = DirectReads::open(device, READ_BYTES as usize, depth)?;
    client.reset()?;
    let mut places =
        (round * reads..(round + 1) * reads).map(|step| scattered_offset(step, capacity_bytes, READ_BYTES));
    let (mut taken_ns, mut started) = (Vec::new(), vec![None; depth]);
    let begin = Instant::now();
    while (taken_ns.len() as u64) < reads {
        while queue.has_room()
            && let Some(offset) = places.next()
        {
            let now = Instant::now();
            started[queue.start(offset)?] = Some((offset, now));
        }
        let done = queue.wait()?;
        let now = Instant::now();
        let timed = done.iter().filter_map(|slot| started[*slot]);
        taken_ns.extend(timed.map(|(offset, start)| (offset, (now - start).as_nanos() as f64)));
    }
    let reads_per_s = reads as f64 / begin.elapsed().as_secs_f64();
    let model_ns: HashMap<u64, u64> = client.reads()?.iter().map(|r| (r.offset_bytes, r.takes_ns)).collect();
    // The first reads do not count: they start and are due at the same time, and the daemon can only answer one by one.
    let compared = taken_ns.iter().skip(depth).filter_map(|(offset, ns)| Some((*ns, *model_ns.get(offset)? as f64)));
    Ok(punctuality_of(depth, reads_per_s, compared))
}

/// Compares the times of reads with those of the model, nanoseconds.
fn punctuality_of(depth: usize, reads_per_s: f64, reads: impl Iterator<Item = (f64, f64)>) -> Punctuality {
    let (mut off_us, mut punctual) = (Vec::new(), 0u32);
    for (took_ns, model_ns) in reads {
        let off_ns = took_ns - model_ns;
        punctual += u32::from(off_ns.abs() <= TOLERANCE_NS.max(model_ns * TOLERANCE_SHARE));
        off_us.push(off_ns / 1e3);
    }
    off_us.sort_by(f64::total_cmp);
    let share = f64::from(punctual) / off_us.len().max(1) as f64;
    Punctuality { depth, share, reads_per_s, off_us: [0.01, 0.5, 0.99].map(|share| quantile(&off_us, share)) }
}

/// Whether the accuracy is sufficient with a margin, because a measurement is a sample.
pub(crate) fn holds_with_margin(punctuality: &Punctuality) -> bool {
    punctuality.share >= (1.0 + PROMISED_SHARE) / 2.0
}

/// The queue depths for a model: 1, the number of reads that it serves at a time, and twice this number. At the last depth reads wait for
/// each other.
pub fn depths(model: &Model) -> Vec<usize> {
    let channels = (model.channels() as usize).clamp(1, MAX_DEPTH);
    let mut depths = vec![1, channels, 2 * channels];
    depths.dedup();
    depths
}

/// Activates the model with a lead for every depth. Returns the lead and the accuracy with this lead.
pub(crate) fn engage(
    device: &Path,
    client: &Client,
    model: &Model,
    capacity_bytes: u64,
    lead: Lead,
) -> Result<(Lead, Vec<Punctuality>)> {
    // As in the measurement of the floor: other programs must not disturb the times.
    let measure = || {
        let _awake = Awake::keep().inspect_err(|e| tracing::debug!("{e}"));
        if let Err(error) = set_nice() {
            tracing::info!("the accuracy may be measured too low: {error}");
        }
        engage_in_thread(device, client, model, capacity_bytes, lead)
    };
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("measuring does not panic")
}

fn engage_in_thread(
    device: &Path,
    client: &Client,
    model: &Model,
    capacity_bytes: u64,
    mut lead: Lead,
) -> Result<(Lead, Vec<Punctuality>)> {
    let rate_of_one = random_requests_per_s(model) / f64::from(model.channels().max(1));
    let second_best = |depth: usize| -> Result<Punctuality> {
        let reads = (ROUND_TIME.as_secs_f64() * rate_of_one * depth as f64).clamp(READS.0, READS.1) as u64;
        let none = Punctuality { share: -1.0, ..Punctuality::default() };
        let (mut best, mut second) = (none, none);
        for round in 0..ROUNDS {
            let this = measure(device, client, capacity_bytes, depth, reads + depth as u64, round)?;
            if this.share > best.share {
                (best, second) = (this, best);
            } else if this.share > second.share {
                second = this;
            }
            if holds_with_margin(&second) {
                break;
            }
        }
        Ok(second)
    };
    client.engage(lead)?;
    let depths = depths(model);
    let channels = depths[depths.len() - 2];
    if channels > 1 {
        let [first, middle, last] = second_best(channels)?.off_us;
        // The median without outliers, which must not change the times of the other reads.
        let more_us = ((first + last) / 2.0).clamp(0.0, MAX_OF_MEDIAN * middle.max(0.0));
        lead.others_most = channels as u64 - 1;
        lead.per_other_ns = (more_us * 1e3 / lead.others_most as f64) as u64;
        client.engage(lead)?;
    }
    let measured = depths.into_iter().map(second_best).collect::<Result<Vec<_>>>()?;
    // Activate the model again: the disk starts at rest, its head at the start, its counters at zero.
    client.engage(lead)?;
    Ok((lead, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_is_punctual_within_either_tolerance() {
        let reads = [(100_000.0, 50_000.0), (111_000.0, 50_000.0), (10_400_000.0, 10_000_000.0), (0.0, 61_000.0)];
        let punctuality = punctuality_of(1, 0.0, reads.into_iter());
        assert_eq!((punctuality.share, punctuality.off_us), (0.5, [-61.0, 61.0, 400.0]));
        assert!(!punctuality.holds() && !Punctuality::default().holds());
    }

    #[test]
    fn rotating_disk_serves_one_read_at_a_time() {
        assert_eq!(depths(&Model::builtin("hdd").unwrap()), [1, 2]);
        assert_eq!(depths(&Model::builtin("emmc").unwrap()), [1, 2, 4]);
    }
}

//! How true a disk's times are, seen from where programs see them: scattered reads past the page cache, timed outside and
//! compared with what the model said inside.
//!
//! Measured when a disk is attached, at each depth that its model has. What the way there and back takes more when many
//! reads are under way is then taken off, too ([`Lead::per_other_ns`]); and a disk whose times are not true nevertheless
//! says so in every result.

use crate::Result;
use crate::floor::{place, quantile, random_requests_per_s};
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
/// Of these reads, each a page.
const READ_BYTES: u64 = 4096;
/// Rounds of which the second best counts: other programs can only make times worse, and what held once at the limit of a
/// machine need not hold again.
const ROUNDS: u64 = 3;
/// How long a round takes about: a disk should be there in a second.
const ROUND_TIME: Duration = Duration::from_millis(100);
/// Reads of a round, at least and at most.
const READS: (f64, f64) = (16.0, 1000.0);
/// Depths beyond this are not measured: with so many outstanding a read waits for others, not for the rig.
const DEEPEST: usize = 64;
/// The lead for other reads under way is at most this much of the middle of what they cost.
const MOST_OF_MIDDLE: f64 = 1.5;

/// Reads `reads` scattered pages, `depth` at a time, and compares. Changes the counters of the disk, whose model must
/// be in force. `round` gives other places and another order.
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
    let mut places = (round * reads..(round + 1) * reads).map(|step| place(step, capacity_bytes, READ_BYTES));
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
    // Not the first ones: they all start together, are all due together, and can only be answered one by one.
    let compared = taken_ns.iter().skip(depth).filter_map(|(offset, ns)| Some((*ns, *model_ns.get(offset)? as f64)));
    Ok(punctuality_of(depth, reads_per_s, compared))
}

/// From what reads took and what they were to take, nanoseconds.
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

/// Whether the promise is kept with a margin: a measurement is a sample.
pub(crate) fn holds_surely(punctuality: &Punctuality) -> bool {
    punctuality.share >= (1.0 + PROMISED_SHARE) / 2.0
}

/// The depths at which a model is measured: one read at a time, as many as it serves at a time, and twice as many, so that
/// reads wait for each other.
pub fn depths(model: &Model) -> Vec<usize> {
    let channels = (model.channels() as usize).clamp(1, DEEPEST);
    let mut depths = vec![1, channels, 2 * channels];
    depths.dedup();
    depths
}

/// Puts the model in force with a lead that is right at every depth, and tells how true its times then are.
pub(crate) fn engage(
    device: &Path,
    client: &Client,
    model: &Model,
    capacity_bytes: u64,
    lead: Lead,
) -> Result<(Lead, Vec<Punctuality>)> {
    // As for the floor: what other programs take of the processors is not the rig's.
    let measure = || {
        let _awake = Awake::keep().inspect_err(|e| tracing::debug!("{e}"));
        if let Err(error) = set_nice() {
            tracing::info!("the rig may look less exact than it is: {error}");
        }
        engage_here(device, client, model, capacity_bytes, lead)
    };
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("measuring does not panic")
}

fn engage_here(
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
            if holds_surely(&second) {
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
        // The middle of all but the outliers; these must not draw the others with them.
        let more_us = ((first + last) / 2.0).clamp(0.0, MOST_OF_MIDDLE * middle.max(0.0));
        lead.others_most = channels as u64 - 1;
        lead.per_other_ns = (more_us * 1e3 / lead.others_most as f64) as u64;
        client.engage(lead)?;
    }
    let measured = depths.into_iter().map(second_best).collect::<Result<Vec<_>>>()?;
    // Again: a disk at rest, its head where it starts, its counters at zero.
    client.engage(lead)?;
    Ok((lead, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_punctual_within_either_bound() {
        let reads = [(100_000.0, 50_000.0), (111_000.0, 50_000.0), (10_400_000.0, 10_000_000.0), (0.0, 61_000.0)];
        let punctuality = punctuality_of(1, 0.0, reads.into_iter());
        assert_eq!((punctuality.share, punctuality.off_us), (0.5, [-61.0, 61.0, 400.0]));
        assert!(!punctuality.holds() && !Punctuality::default().holds());
    }

    #[test]
    fn a_rotating_disk_serves_one_at_a_time() {
        assert_eq!(depths(&Model::builtin("hdd").unwrap()), [1, 2]);
        assert_eq!(depths(&Model::builtin("emmc").unwrap()), [1, 2, 4]);
    }
}

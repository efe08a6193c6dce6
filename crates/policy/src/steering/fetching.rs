//! Which pages of a pattern are fetched, and how far ahead.
//!
//! The distance is the number of fetched pages before the reader. It begins with a few accesses and grows when the reader waits, up to
//! what keeps the disk busy. It is limited by the pages that the stream has used so far: a reader that stops wastes a part of what it
//! used. The next pages are fetched when half of the distance is used up.

use super::seen::Machine;
use super::streams::Stream;
use crate::{DeviceDescription, Page};
use std::ops::Range;

/// The first distance, in accesses.
const FIRST_ACCESSES: u64 = 2;
/// Limit of the distance as a share of the pages that the stream has used: a half.
const USED_SHARE: u64 = 2;
/// On a disk that seeks each fetch costs an access: there the limit is this multiple of the used pages, up to what the disk transfers
/// during an access. A fetch then takes at most twice the time of the miss that it replaces (Li and others, 2007).
const USED_MULTIPLE_SEEKING: u64 = 4;
/// Contiguous pages that keep a disk busy, in requests: one is read, one is cached, one is in flight.
const REQUESTS_AHEAD: u64 = 3;
/// On a disk that serves one request at a time, a request has this multiple of the pages of an access.
const SIZE_IN_ACCESSES: u64 = 4;
/// Shortest and longest request of contiguous pages: 128 KiB and 8 MiB.
const SIZE_PAGES: Range<u64> = 32..2048;
/// Steps in flight per request that the disk serves at a time.
const STEPS_PER_CHANNEL: u64 = 2;
/// Least number of steps in flight.
const LEAST_STEPS: u64 = 8;
/// Largest number of ranges in an act.
const MOST_RANGES: u64 = 1024;

/// The largest useful distance of a stream on this disk.
fn most(stream: &Stream, device: &DeviceDescription) -> u64 {
    if stream.is_backward() {
        let accesses = if device.parallelism > 1 { 1 } else { SIZE_IN_ACCESSES };
        let size = device.pages_per_access().saturating_mul(accesses).clamp(SIZE_PAGES.start, SIZE_PAGES.end);
        return size * REQUESTS_AHEAD;
    }
    let steps = STEPS_PER_CHANNEL.saturating_mul(u64::from(device.parallelism)).max(LEAST_STEPS);
    steps.saturating_mul(stream.length.max(1))
}

/// The limit by the pages that the stream has used.
fn by_use(stream: &Stream, device: &DeviceDescription) -> u64 {
    let least = FIRST_ACCESSES.saturating_mul(stream.length.max(1));
    let share = stream.advanced / USED_SHARE;
    let seeking = stream.advanced.saturating_mul(USED_MULTIPLE_SEEKING).min(device.pages_per_access());
    if device.parallelism == 1 { share.max(seeking).max(least) } else { share.max(least) }
}

/// The distance after a wait of the reader.
pub(super) fn grown(stream: &Stream, machine: &Machine) -> u64 {
    let device = &machine.device;
    let factor = if stream.distance < device.pages_per_access() { 4 } else { 2 };
    stream.distance.max(1).saturating_mul(factor).min(most(stream, device))
}

/// The distance within its limits. `room`: pages that memory permits.
pub(super) fn limited(stream: &Stream, room: u64, machine: &Machine) -> u64 {
    let first = FIRST_ACCESSES.saturating_mul(stream.length.max(1));
    stream.distance.max(first).min(by_use(stream, &machine.device)).min(room)
}

/// Whether it is time to fetch the next pages.
pub(super) fn is_due(stream: &Stream, distance: u64) -> bool {
    stream.ahead <= distance / 2
}

/// The next pages of the pattern up to the distance, in the order of use; empty at an end of the file. Counts them as fetched.
pub(super) fn next(stream: &mut Stream, distance: u64, file_pages: u64, machine: &Machine) -> Vec<Range<Page>> {
    if stream.is_backward() {
        let from = stream.first.saturating_sub(distance);
        let to = stream.first.saturating_sub(stream.ahead).min(file_pages);
        if from >= to {
            return Vec::new();
        }
        stream.ahead = stream.first - from;
        return vec![from..to];
    }
    let length = stream.length.max(1);
    let gap = stream.step.unsigned_abs().saturating_sub(length);
    let joins = gap <= machine.device.pages_per_request();
    let mut ranges: Vec<Range<Page>> = Vec::new();
    let mut index = (stream.ahead / length).saturating_add(1);
    while stream.ahead < distance && (ranges.len() as u64) < MOST_RANGES {
        let moved = i64::try_from(index).ok().and_then(|index| stream.step.checked_mul(index));
        let first = moved.and_then(|moved| stream.first.checked_add_signed(moved));
        let Some(first) = first.filter(|first| *first < file_pages) else { break };
        let range = first..first.saturating_add(length).min(file_pages);
        match ranges.last_mut() {
            Some(last) if joins && stream.step > 0 => last.end = range.end,
            Some(last) if joins => last.start = range.start,
            _ => ranges.push(range),
        }
        stream.ahead = stream.ahead.saturating_add(length);
        index += 1;
    }
    ranges
}

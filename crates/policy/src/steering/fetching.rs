//! Which pages of a pattern are fetched, and how far ahead.
//!
//! The distance is the number of fetched pages before the reader. It begins with a few accesses and grows when the reader waits, up to
//! what keeps the disk busy. It is limited by the pages that the stream has used so far: a reader that stops wastes a part of what it
//! used. The next pages are fetched when half of the distance is used up.

use super::decision::Machine;
use super::streams::Stream;
use crate::{DeviceDescription, PAGE_BYTES, Page};
use std::ops::Range;

/// The first distance, in accesses.
const FIRST_ACCESSES: u64 = 2;
/// Limit of the distance as a share of the pages that the stream has used: a half.
const USED_SHARE: u64 = 2;
/// The same on a disk that seeks, as a multiple: each fetch costs an access there. The first fetch may have the pages that the disk
/// transfers during an access: with the miss that it follows it takes twice the time of the miss (Li and others, 2007).
const USED_MULTIPLE_SEEKING: u64 = 3;
/// Distance in accesses of the disk, so that it is busy while the reader uses the pages fetched before.
const ACCESSES_AHEAD: u64 = 3;
/// On a disk that seeks, a request has this multiple of the pages of an access: the transfer is four fifths of its time.
const SIZE_IN_ACCESSES: u64 = 4;
/// Time for which the distance lasts at the speed of the disk, in addition: polls are late by up to this time. 2 ms.
const SLACK_NS: u64 = 2_000_000;
/// Shortest largest distance: 512 KiB.
const LEAST_MOST_PAGES: u64 = 128;
/// Largest distance: 32 MiB.
const MOST_PAGES: u64 = 8192;
/// Least number of steps of a stride in flight.
const LEAST_STEPS: u64 = 16;
/// Largest number of ranges in an act.
const MOST_RANGES: u64 = 1024;

/// Whether a request to another place costs much more than its pages.
pub(super) fn seeks(device: &DeviceDescription) -> bool {
    device.seeks() || device.has_arm()
}

/// Pages of a contiguous distance that keep the disk busy.
fn busy_pages(device: &DeviceDescription) -> u64 {
    let size = if seeks(device) { SIZE_IN_ACCESSES } else { 1 };
    let accesses = device.pages_per_access().saturating_mul(size * ACCESSES_AHEAD);
    let slack = (device.bandwidth_bytes_per_s / PAGE_BYTES as f64 * SLACK_NS as f64 * 1e-9) as u64;
    accesses.saturating_add(slack).clamp(LEAST_MOST_PAGES, MOST_PAGES)
}

/// The largest useful distance of a stream on this disk.
fn most(stream: &Stream, device: &DeviceDescription) -> u64 {
    if stream.is_contiguous() {
        return busy_pages(device);
    }
    // The disk serves this number of requests during the accesses ahead.
    let each_ns = (device.access_ns / u64::from(device.parallelism.max(1))).max(device.request_ns).max(1);
    let steps = device.access_ns.saturating_mul(ACCESSES_AHEAD).saturating_add(SLACK_NS) / each_ns;
    let length = stream.at.length.max(1);
    steps.max(LEAST_STEPS).saturating_mul(length).min(MOST_PAGES.max(length))
}

/// The limit by the pages that the stream has used.
fn by_use(stream: &Stream, device: &DeviceDescription) -> u64 {
    let least = first(stream);
    if seeks(device) {
        stream.advanced.saturating_mul(USED_MULTIPLE_SEEKING).max(device.pages_per_access()).max(least)
    } else {
        (stream.advanced / USED_SHARE).max(least)
    }
}

/// The least distance.
fn first(stream: &Stream) -> u64 {
    FIRST_ACCESSES.saturating_mul(stream.at.length.max(1))
}

/// The first distance.
pub(super) fn first_distance(stream: &Stream, machine: &Machine) -> u64 {
    let device = &machine.device;
    let first = first(stream);
    if seeks(device) && stream.is_contiguous() { first.max(device.pages_per_access()) } else { first }
}

/// The distance after a wait of the reader.
pub(super) fn grown(stream: &Stream, machine: &Machine) -> u64 {
    let device = &machine.device;
    let size = if seeks(device) { SIZE_IN_ACCESSES } else { 1 };
    let factor = if stream.distance < device.pages_per_access().saturating_mul(size) { 4 } else { 2 };
    let distance = stream.distance.max(1).saturating_mul(factor);
    distance.min(most(stream, device)).max(stream.distance)
}

/// The distance within its limits. `room`: pages that memory permits.
pub(super) fn limited(stream: &Stream, room: u64, machine: &Machine) -> u64 {
    stream.distance.max(first(stream)).min(by_use(stream, &machine.device)).min(room)
}

/// Whether it is time to fetch the next pages.
pub(super) fn is_due(stream: &Stream, distance: u64) -> bool {
    stream.ahead <= distance / 2
}

/// The next pages of the pattern up to the distance, in the order of use; empty at an end of the file. Counts them as fetched.
pub(super) fn next(stream: &mut Stream, distance: u64, file_pages: u64, machine: &Machine) -> Vec<Range<Page>> {
    // The pages of a request arrive together: the first half is used while the second one is in flight. Where each request costs a seek,
    // there is one.
    let part = if seeks(&machine.device) { distance } else { distance / 2 };
    let part = part.max(stream.at.length).max(1);
    if stream.is_backward() {
        // Accesses are not cut in two.
        let part = part - part % stream.at.length.max(1);
        let to = stream.at.first.saturating_sub(stream.ahead).min(file_pages);
        let from = to.saturating_sub(part).max(stream.at.first.saturating_sub(distance));
        stream.ahead = stream.ahead.max(stream.at.first.saturating_sub(from));
        return some(from..to);
    }
    if stream.is_contiguous() {
        let from = stream.end.saturating_add(stream.ahead).max(stream.issued_end);
        let to = from.saturating_add(part).min(stream.end.saturating_add(distance)).min(file_pages);
        stream.ahead = stream.ahead.max(to.saturating_sub(stream.end));
        return some(from..to);
    }
    steps(stream, distance, file_pages, machine)
}

fn some(range: Range<Page>) -> Vec<Range<Page>> {
    if range.is_empty() { Vec::new() } else { vec![range] }
}

/// The next steps of a stride. Gaps that cost less than another request are read, too.
fn steps(stream: &mut Stream, distance: u64, file_pages: u64, machine: &Machine) -> Vec<Range<Page>> {
    let length = stream.at.length.max(1);
    let gap = stream.at.step.unsigned_abs().saturating_sub(length);
    let joins = gap <= machine.device.pages_per_request();
    let mut ranges: Vec<Range<Page>> = Vec::new();
    let mut index = (stream.ahead / length).saturating_add(1);
    while stream.ahead < distance && (ranges.len() as u64) < MOST_RANGES {
        let Some(first) = stream.at.nth(index).filter(|first| *first < file_pages) else { break };
        let range = first..first.saturating_add(length).min(file_pages);
        match ranges.last_mut() {
            Some(last) if joins && stream.at.step > 0 => last.end = range.end,
            Some(last) if joins => last.start = range.start,
            _ => ranges.push(range),
        }
        stream.ahead = stream.ahead.saturating_add(length);
        index += 1;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Steps;

    fn machine(device: DeviceDescription) -> Machine {
        Machine { device, ..Machine::default() }
    }

    fn stream(first: Page, length: u64, step: i64) -> Stream {
        let end = first + length;
        let at = Steps { first, length, step, repeated: 2 };
        Stream { at, end, issued_first: end, issued_end: end, advanced: 3 * length, ..Stream::default() }
    }

    #[test]
    fn fetches_end_at_both_ends_of_the_file() {
        let flash = machine(DeviceDescription::FLASH);
        let mut down = stream(10, 4, -4);
        assert_eq!(next(&mut down, 16, 1000, &flash), [2..10]);
        assert_eq!(next(&mut down, 16, 1000, &flash), [0..2]);
        assert!(next(&mut down, 16, 1000, &flash).is_empty());
        let mut up = stream(980, 4, 8);
        assert_eq!(next(&mut up, 16, 1000, &flash), [988..992, 996..1000]);
        assert!(next(&mut up, 16, 1000, &flash).is_empty());
        assert!(next(&mut stream(u64::MAX - 8, 4, i64::MAX), 16, u64::MAX, &flash).is_empty());
    }

    #[test]
    fn gaps_that_cost_less_than_a_request_are_read() {
        let limited =
            DeviceDescription { request_ns: 333_000, bandwidth_bytes_per_s: 125e6, ..DeviceDescription::FLASH };
        assert_eq!(next(&mut stream(0, 1, 8), 3, 1000, &machine(limited)), [8..25]);
        assert_eq!(next(&mut stream(800, 1, -8), 3, 1000, &machine(limited)), [776..793]);
        assert_eq!(next(&mut stream(0, 4, 16), 8, 1000, &machine(limited)), [16..20, 32..36]);
    }

    #[test]
    fn distance_is_at_most_half_of_the_used_pages_unless_the_disk_seeks() {
        let grows = |device| {
            let machine = machine(device);
            let mut stream = Stream { advanced: 1000, distance: 260, ..stream(100_000, 4, -4) };
            stream.distance = grown(&stream, &machine);
            limited(&stream, 1 << 20, &machine)
        };
        assert_eq!(grows(DeviceDescription::FLASH), 280);
        assert_eq!(grows(DeviceDescription { bandwidth_bytes_per_s: 5e9, ..DeviceDescription::FLASH }), 500);
        assert_eq!(grows(DeviceDescription::ROTATING), 1040);
    }
}

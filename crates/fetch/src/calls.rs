//! The calls that ask the kernel for pages, in pieces that it does not cut.
//!
//! A call returns when its reads are submitted, and blocks while the queue of the device is full. Resident pages are skipped. Each call waits first
//! while others go before it ([`crate::BeforeRequest`]).

use crate::before_request;
use ahead_model::DeviceNumber;
use ahead_sys::other_process::OtherProcess;
use ahead_sys::{Result, advice, cache, large_folio};
use std::ops::Range;
use std::os::fd::AsFd;

/// The longest range that the kernel reads ahead in one call on this device, bytes. It silently cuts a longer one.
pub fn cap_bytes(device: DeviceNumber) -> u64 {
    cache::read_ahead_cap_bytes(device)
}

/// A range in pieces of at most this length; none of an empty range.
pub fn pieces(range: &Range<u64>, longest: u64) -> impl DoubleEndedIterator<Item = Range<u64>> + use<> {
    let (Range { start, end }, step) = (range.clone(), longest.max(1));
    (0..end.saturating_sub(start).div_ceil(step)).map(move |piece| {
        let at = start + piece * step;
        at..at.saturating_add(step).min(end)
    })
}

/// Requests a range of a file on this device, or of the device, bytes, in one call: at most [`cap_bytes`] of it.
pub fn read_ahead(device: DeviceNumber, file: impl AsFd, range: &Range<u64>) -> Result<()> {
    before_request::wait(device);
    read_now(file, range)
}

/// As [`read_ahead`], for pages that a reader waits for: no other one goes first.
pub(crate) fn read_now(file: impl AsFd, range: &Range<u64>) -> Result<()> {
    cache::read_ahead(file, range.start, range.end - range.start)
}

/// Reads a block as one large folio, and waits for it.
///
/// Returns and errors: those of [`large_folio::read_block`].
pub fn read_block(device: DeviceNumber, file: impl AsFd, block: &Range<u64>) -> Result<bool> {
    before_request::wait(device);
    large_folio::read_block(file, block.start, block.end - block.start)
}

/// Requests the pages of a range of memory that maps a file on this device, in one call: at most [`cap_bytes`] of it.
///
/// Errors: a part of the range is not mapped (`ENOMEM`) or maps no file (`EBADF`).
pub fn read_ahead_mapped(device: DeviceNumber, addresses: &Range<usize>) -> Result<()> {
    before_request::wait(device);
    advice::will_need(addresses)
}

/// As [`read_ahead_mapped`], of the memory of another process, by a helper process: the one that sends it asks before.
///
/// Errors: those of [`OtherProcess::will_need`].
pub fn read_ahead_mapped_by(process: &OtherProcess, addresses: &Range<u64>) -> Result<()> {
    process.will_need(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_cut_into_pieces() {
        let cut = |range: Range<u64>, step| pieces(&range, step).collect::<Vec<_>>();
        assert_eq!(cut(3..10, 4), [3..7, 7..10]);
        assert_eq!(cut(3..5, 0), [3..4, 4..5]);
        assert!(cut(Range { start: 5, end: 5 }, 4).is_empty() && cut(Range { start: 6, end: 5 }, 4).is_empty());
        assert_eq!(cut(u64::MAX - 1..u64::MAX, 4), [u64::MAX - 1..u64::MAX]);
        assert_eq!(pieces(&(3..10), 4).rev().collect::<Vec<_>>(), [7..10, 3..7]);
    }
}

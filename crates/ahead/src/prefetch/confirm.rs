//! Waits until issued ranges have arrived.

use crate::prefetch::account::{Issued, Ledger};
use crate::prefetch::sources::{Readable, Sources};
use ahead_sys::{cache, machine};
use std::sync::Arc;

/// Waits for every page of these ranges of one device. Returns whether all of them were seen to arrive. A page that was evicted
/// meanwhile is read again. A page that the device could not read is counted: the kernel reports this error to a reader only, not
/// to read-ahead.
///
/// It does not pause for memory, because its pages are in flight already. When it is stopped, it ends after the pages that it waits
/// for: at most [`AT_ONCE_BYTES`].
pub fn wait(ranges: &[Issued], sources: &Sources, ledger: &Ledger, goes_on: impl Fn() -> bool) -> bool {
    let mut last: Option<(&Issued, Arc<Readable>)> = None;
    let mut all = true;
    let mut scratch = vec![0; AT_ONCE_BYTES];
    for issued in ranges {
        let readable = match last.take().filter(|(before, _)| before.source == issued.source) {
            Some((_, readable)) => readable,
            None => match sources.get(issued.source) {
                Ok(readable) => readable,
                // The file was replaced meanwhile: whether its pages arrived is unknown.
                Err(_) => {
                    all = false;
                    continue;
                }
            },
        };
        // If a page is absent, only this page is read.
        drop(cache::exact_reads(&*readable));
        for at in issued.range.clone().step_by(AT_ONCE_BYTES) {
            if !goes_on() {
                return false;
            }
            let whole = &mut scratch[..AT_ONCE_BYTES.min((issued.range.end - at) as usize)];
            if cache::wait_for_range(&*readable, at, whole).is_ok_and(|read| read == whole.len()) {
                continue;
            }
            // The end of the file, or a page that cannot be read: which one?
            for at in (at..at + whole.len() as u64).step_by(machine::page_size() as usize) {
                if !goes_on() {
                    return false;
                }
                wait_for_page(&readable, at, issued, ledger);
            }
        }
        last = Some((issued, readable));
    }
    all && goes_on()
}

/// Length of one read, bytes: 16 pages of 4 KiB in one call. A stop waits for no more.
const AT_ONCE_BYTES: usize = 64 << 10;

fn wait_for_page(readable: &Readable, at: u64, issued: &Issued, ledger: &Ledger) {
    let Err(error) = cache::wait_for(readable, at) else { return };
    let mut account = ledger.open();
    account.first_failure.get_or_insert_with(|| error.to_string());
    if !issued.bridged {
        account.unreadable_bytes += machine::page_size().min(issued.range.end - at);
    }
}

//! Waiting until what was issued has arrived.

use crate::account::{Account, Issued};
use crate::brake::Brake;
use crate::sources::{Readable, Sources};
use ahead_kernel::{cache, machine};

/// Waits for every page of the account's ranges. A page that was evicted meanwhile is read again; one that the device
/// could not read is counted as failed: only a reader is told of that, read-ahead is not.
pub fn wait(sources: &Sources, brake: &Brake, account: &mut Account) {
    let ranges = std::mem::take(&mut account.ranges);
    let mut last: Option<(&Issued, std::sync::Arc<Readable>)> = None;
    for issued in &ranges {
        if brake.check().is_err() {
            break;
        }
        let readable = match last.take().filter(|(before, _)| before.source == issued.source) {
            Some((_, readable)) => readable,
            None => match sources.get(issued.source) {
                Ok(readable) => readable,
                Err(_) => continue,
            },
        };
        wait_for_range(&readable, issued, account);
        last = Some((issued, readable));
    }
    account.ranges = ranges;
}

fn wait_for_range(readable: &Readable, issued: &Issued, account: &mut Account) {
    let page = machine::page_size();
    // Should a page be absent, it and no other is read.
    drop(cache::exact_reads(readable));
    for at in (issued.range.start..issued.range.end).step_by(page as usize) {
        if let Err(error) = cache::wait_for(readable, at) {
            account.fail(page.min(issued.range.end - at), error);
        }
    }
}

//! Reads a block as one large folio.

use super::Worker;
use crate::prefetch::account::Issued;
use crate::prefetch::sources::Readable;
use ahead_fetch::calls;
use ahead_model::RangeSet;
use ahead_plan::Span;

impl Worker<'_> {
    /// Reads a span that is an absent block, and waits for it. Returns whether it is resident as one large folio. Otherwise the caller reads
    /// the span as any other: the kernel skips what is resident by then.
    pub(super) fn fetch_block(&self, span: &Span, from: &Readable, resident: &RangeSet) -> bool {
        let Some(folios) = &self.job.large_folios else { return false };
        let (Some(block), Some(experience)) = (folios.block(&span.used), &from.large_folios) else { return false };
        if resident.count_within(&block) > 0 || block.end > from.size_bytes || !experience.permits() {
            return false;
        }
        let slot = folios.slot();
        let length = block.end - block.start;
        // The caller counts what is not read.
        if self.check().is_err() || !self.brake.take(length) {
            return false;
        }
        let read = calls::read_block(from.device, from, &block);
        drop(slot);
        let is_large = match read {
            Ok(is_large) => is_large,
            Err(error) => {
                tracing::debug!("{error}");
                false
            }
        };
        experience.note(is_large);
        if !is_large {
            self.brake.give_back(length);
            return false;
        }
        self.note(|account| {
            account.requests += 1;
            account.issued_bytes += length;
            account.large_folio_bytes += length;
            if self.keep_ranges {
                account.ranges.push(Issued { source: span.source, range: block, bridged: false });
            }
        });
        true
    }
}

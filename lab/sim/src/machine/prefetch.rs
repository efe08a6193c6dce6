//! The workers of a prefetch: calls that request pages, waits for their arrival, and the program's wait for the head start.

use super::{Doing, Machine, Step};
use crate::workload::PrefetchOp;
use ahead_policy::{FileId, Page, Request, View};
use std::ops::Range;

impl Machine {
    pub(super) fn begin_prefetch(&mut self, process: usize, op: PrefetchOp) -> Step {
        match op {
            PrefetchOp::Request { file, first, pages } => {
                self.system(self.settings.costs.call_ns);
                self.processes[process].requests.push_back(Request { first, pages, ..Request::of(file) });
            }
            PrefetchOp::Await { file, first, pages } => {
                self.processes[process].doing = Some(Doing::Await { file, page: first, end: first + pages });
            }
            PrefetchOp::Release { gate } => {
                self.released.insert(gate);
                self.ready.extend(self.held.remove(&gate).unwrap_or_default());
            }
            PrefetchOp::AwaitRelease { gate } if self.released.contains(&gate) => {}
            PrefetchOp::AwaitRelease { gate } => {
                self.held.entry(gate).or_default().push(process);
                return Step::Blocked;
            }
        }
        Step::Went
    }

    /// Waits for the first of these pages that is in flight.
    pub(super) fn step_await(&mut self, process: usize, file: FileId, pages: Range<Page>) -> Step {
        let end = pages.end;
        match pages.into_iter().find(|page| self.world.is_locked(file, *page)) {
            Some(page) => {
                self.processes[process].doing = Some(Doing::Await { file, page, end });
                self.waiting.entry((file, page)).or_default().push(process);
                Step::Blocked
            }
            None => {
                self.processes[process].doing = None;
                Step::Went
            }
        }
    }
}

//! `oracle`: knows every access that will come. No policy can do better for long; what it does not gain cannot be gained.
//!
//! It keeps as many of the next pages under way or unread as memory lets live, and asks for them in the order of their use,
//! neighbours as one request. It is no claim to be optimal to the last microsecond: which of two requests is served first on
//! a rotating disk, and what to evict, are left to the machine.

use crate::{Access, DeviceTraits, FileId, Page, Parameters, Policy, Request, Requests, View, Wants, WhenFull};
use std::collections::HashMap;
use std::sync::Arc;

/// Look-ahead in device times: so much that neither a long seek nor a burst of computing lets the disk rest.
const ACCESSES_AHEAD: u64 = 64;

/// Knows the future.
#[derive(Clone, Debug)]
pub struct Oracle {
    future: Arc<[(FileId, Page)]>,
    /// The next access.
    now: usize,
    /// The first access that was not looked at yet.
    looked: usize,
    /// Most accesses between the two.
    ahead: usize,
    /// The next access may begin only behind this one: what is asked for is asked for in pieces.
    piece: usize,
    /// How often each page was asked for and not yet used.
    pending: HashMap<(FileId, Page), u32>,
}

impl Oracle {
    /// With this future; without one it is as blind as `none`.
    pub fn new(parameters: &Parameters) -> Oracle {
        let device: &DeviceTraits = &parameters.device;
        let ahead = (ACCESSES_AHEAD * device.pages_per_access()).max(u64::from(device.parallelism) * 2);
        let ahead = parameters.budget_pages.map_or(ahead, |budget| ahead.min(budget)).max(1) as usize;
        let future = parameters.future.clone().unwrap_or_else(|| Arc::from([]));
        Oracle { future, now: 0, looked: 0, ahead, piece: (ahead / 8).max(1), pending: HashMap::new() }
    }

    fn ask(&mut self, view: &dyn View, requests: &mut Requests) {
        let end = (self.now + self.ahead).min(self.future.len());
        let mut run: Option<Request> = None;
        for (file, page) in self.future[self.looked.min(end)..end].iter().copied() {
            if page >= view.file_pages(file) || view.is_present(file, page) || self.pending.contains_key(&(file, page))
            {
                continue;
            }
            *self.pending.entry((file, page)).or_default() += 1;
            match &mut run {
                Some(run) if run.file == file && run.first + run.pages == page => run.pages += 1,
                _ => {
                    let request =
                        Request { file, first: page, pages: 1, order: 0, mark: None, when_full: WhenFull::Wait };
                    run.replace(request).into_iter().for_each(|before| requests.add(before));
                }
            }
        }
        run.into_iter().for_each(|last| requests.add(last));
        self.looked = self.looked.max(end);
    }
}

impl Policy for Oracle {
    fn wants(&self) -> Wants {
        Wants { pages: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        self.pending.remove(&(access.file, access.page));
        // Other accesses than those foretold are left to themselves.
        if self.future.get(self.now) == Some(&(access.file, access.page)) {
            self.now += 1;
        }
        if self.looked.saturating_sub(self.now) + self.piece <= self.ahead || self.looked <= self.now {
            self.ask(view, requests);
        }
    }
}

//! `oracle`: knows every access that will come. No policy can do better for long; what it does not gain cannot be gained.
//!
//! It keeps as many of the next pages under way or unread as memory lets live, and asks for them in the order of their use,
//! neighbours as one request. It is no claim to be optimal to the last microsecond: which of two requests is served first on
//! a rotating disk, and what to evict, are left to the machine.

use crate::{Access, DeviceTraits, FileId, Page, Parameters, Policy, Request, Requests, View, Wants};
use std::collections::HashMap;

/// Look-ahead in device times: so much that neither a long seek nor a burst of computing lets the disk rest.
const ACCESSES_AHEAD: u64 = 64;
/// More is asked for when this part of the look-ahead is used up.
const PIECES: usize = 8;
/// Share of the memory that may be unread, unless a budget is given: one part in so many.
const MEMORY_SHARE: u64 = 4;

/// What will be read of a file.
#[derive(Clone, Debug, Default)]
struct Future {
    pages: Vec<Page>,
    /// The next access.
    now: usize,
    /// The first access that was not looked at yet.
    looked: usize,
    /// What was asked for and not yet used.
    pending: std::collections::HashSet<Page>,
}

/// Knows the future.
#[derive(Clone, Debug)]
pub struct Oracle {
    files: HashMap<FileId, Future>,
    /// Most accesses to a file between the next one and the last one that was looked at, where memory allows.
    ahead: u64,
    budget_pages: Option<u64>,
}

impl Oracle {
    /// With this future; without one it is as blind as `none`.
    pub fn new(parameters: &Parameters) -> Oracle {
        let device: &DeviceTraits = &parameters.device;
        let mut files: HashMap<FileId, Future> = HashMap::new();
        for (file, page) in parameters.future.iter().flat_map(|future| future.iter()) {
            files.entry(*file).or_default().pages.push(*page);
        }
        let ahead = (ACCESSES_AHEAD * device.pages_per_access()).max(u64::from(device.parallelism) * 2);
        Oracle { files, ahead, budget_pages: parameters.budget_pages }
    }

    /// How far a file is looked ahead in: its share of the budget.
    fn ahead(&self, view: &dyn View) -> usize {
        let memory = view.memory();
        let all = memory.free_pages + memory.inactive_pages + memory.active_pages;
        let budget = self.budget_pages.unwrap_or(all / MEMORY_SHARE);
        self.ahead.min(budget / self.files.len().max(1) as u64).max(1) as usize
    }
}

impl Future {
    fn ask(&mut self, file: FileId, ahead: usize, view: &dyn View, requests: &mut Requests) {
        let end = (self.now + ahead).min(self.pages.len());
        let mut run: Option<Request> = None;
        for page in self.pages[self.looked.max(self.now).min(end)..end].iter().copied() {
            if page >= view.file_pages(file) || view.is_present(file, page) || !self.pending.insert(page) {
                continue;
            }
            match &mut run {
                Some(run) if run.first + run.pages == page => run.pages += 1,
                _ => {
                    let request = Request { first: page, pages: 1, ..Request::of(file) };
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
        Wants { pages: true, faults: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let ahead = self.ahead(view);
        let Some(future) = self.files.get_mut(&access.file) else { return };
        future.pending.remove(&access.page);
        // Pages that a fault mapped besides are not told; other accesses than those foretold are left to themselves.
        let next = &future.pages[future.now..];
        if let Some(skipped) = next.iter().take(ahead).position(|page| *page == access.page) {
            for page in &future.pages[future.now..future.now + skipped] {
                future.pending.remove(page);
            }
            future.now += skipped + 1;
        }
        if future.looked.saturating_sub(future.now) + ahead.div_ceil(PIECES) <= ahead || future.looked <= future.now {
            future.ask(access.file, ahead, view, requests);
        }
    }
}

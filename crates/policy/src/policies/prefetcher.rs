//! `prefetcher`: a program that knows the order of its files and gives them to `Prefetcher` of the library (`ahead_read::prefetcher`).
//!
//! The decisions are those of [`Schedule`], the same object as in the library. The items are the files in the order of their first accesses, each
//! whole; a file that is opened is taken. So the policy needs the future, as the program knows it.
//!
//! The workers need no time: lookups end at once, and requests wait for room in the queue in the place of the program. A file has no position here;
//! files are sorted by their numbers, in which order they lie on the disk. The kernel, here Linux 6.18, reads ahead, too.

use super::linux_6_18;
use super::on_demand::OnDemand;
use crate::reading::{Account, BUDGET_BYTES, UNIT_BYTES};
use crate::schedule::{Found, LARGEST_LOOK_AHEAD, Limits, LookAhead, Place, Reserve, Schedule, WINDOW_BYTES, Work};
use crate::{Access, Event, FileId, PAGE_BYTES, Parameters, Policy, Requests, View, Wants};
use std::collections::HashMap;

/// The program with its files.
#[derive(Debug)]
pub struct ListedFiles {
    kernel: OnDemand,
    is_rotating: bool,
    /// The files in their order, and the place of each in it.
    files: Vec<FileId>,
    places: HashMap<FileId, u64>,
    schedule: Schedule<FileId>,
    look_ahead: LookAhead,
    taken: u64,
    share: Share,
}

/// The budget, which only this program uses.
#[derive(Debug, Default)]
struct Share {
    account: Account,
    held_units: u64,
}

impl Reserve for Share {
    fn take(&mut self, bytes: u64) -> bool {
        let units = bytes.div_ceil(UNIT_BYTES);
        let is_granted = self.account.take(units, self.held_units, PAGE_BYTES);
        self.held_units += if is_granted { units } else { 0 };
        is_granted
    }

    fn give_back(&mut self, bytes: u64) {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.held_units);
        self.held_units -= units;
        self.account.give_back(units);
    }
}

impl ListedFiles {
    /// A program that accesses files in the order of the known accesses.
    pub fn new(parameters: &Parameters) -> ListedFiles {
        let (mut files, mut places) = (Vec::new(), HashMap::new());
        for (file, _) in parameters.future.iter().flat_map(|future| future.iter()) {
            places.entry(*file).or_insert_with(|| {
                files.push(*file);
                files.len() as u64 - 1
            });
        }
        let bytes = parameters.budget_pages.map_or(BUDGET_BYTES, |pages| pages.saturating_mul(PAGE_BYTES));
        ListedFiles {
            kernel: linux_6_18::policy(),
            is_rotating: parameters.device.seeks(),
            files,
            places,
            schedule: Schedule::new(0, PAGE_BYTES),
            look_ahead: LookAhead::default(),
            taken: 0,
            share: Share { account: Account { bytes, consumers: 1, ..Account::default() }, held_units: 0 },
        }
    }

    /// The program takes a file, and all files before it.
    fn take(&mut self, file: FileId, view: &dyn View, requests: &mut Requests) {
        let Some(place) = self.places.get(&file).filter(|place| **place >= self.taken) else { return };
        self.taken = place + 1;
        if self.taken >= self.schedule.next_hand_over() {
            self.hand_over();
            self.work(view, requests);
        }
    }

    fn hand_over(&mut self) {
        let share_bytes = self.share.account.share_bytes(PAGE_BYTES);
        let limits = Limits { items: LARGEST_LOOK_AHEAD, bytes: WINDOW_BYTES.min(share_bytes) };
        self.look_ahead.begin(limits);
        self.schedule.take(self.taken, &mut self.share);
        self.schedule.set_limits(limits);
        let end = (self.taken + self.look_ahead.items()).min(self.files.len() as u64);
        self.schedule.hand_over(end, |index| self.files.get(index as usize).copied());
        self.look_ahead.end(self.schedule.look_ahead());
    }

    /// What the workers do.
    fn work(&mut self, view: &dyn View, requests: &mut Requests) {
        while let Some(start) = self.schedule.next(&mut self.share) {
            let (file, pages) = (start.path, view.file_pages(start.path));
            match start.work {
                Work::LookUp => {
                    let place = Place { device: 0, is_rotating: self.is_rotating, position: u64::from(file.0) };
                    let is_cached = view.next_absent(file, 0, pages).is_none();
                    let bytes = pages.saturating_mul(PAGE_BYTES);
                    let found = if is_cached { Found::Cached } else { Found::Absent { bytes, place } };
                    self.schedule.looked_up(start.index, found);
                }
                Work::ReadAhead { bytes } => {
                    requests.pages(file, 0, pages.min(bytes.div_ceil(PAGE_BYTES)));
                    self.schedule.requested(start.index, Some(bytes));
                }
            }
        }
    }
}

impl Policy for ListedFiles {
    fn wants(&self) -> Wants {
        self.kernel.wants()
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        self.kernel.access(access, view, requests);
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        self.kernel.event(event, view, requests);
        if let Event::Opened { file, .. } = *event {
            self.take(file, view, requests);
        }
    }
}

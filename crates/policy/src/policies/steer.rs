//! `steer`: Linux 6.18, steered by `ahead steer`.
//!
//! The kernel decides as `linux-6.18`. Each of its decisions goes to [`Steering`], as the live engine reports it: the state before the
//! decision, and the waits of the open file. The acts of the steering set the window of the open file, or request pages. Cached reads
//! are no decisions; the position of a reader whose pages are fetched is polled, here at the first call after the time of the poll.
//!
//! An act takes effect at once. The live engine needs up to 200 µs.

use super::linux_6_18;
use super::on_demand::OnDemand;
use crate::steering::{Act, Decision, Kind, Limits, Machine, Mapped, OpenFile, Progress, Readahead, Steering, Target};
use crate::streams::States;
use crate::{Access, By, DeviceDescription, Event, FileId, Found, OpenId, Parameters, Policy, Requests, View, Wants};
use std::collections::HashMap;

/// Time between two calls of [`Steering::tick`]: 1 s.
const TICK_NS: u64 = 1_000_000_000;

/// What the observer counts for an open file.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Number of the open file, in the order of opening: the numbers of policies are reused.
    number: u64,
    file: OpenFile,
    waits: u64,
    wait_ns: u64,
    issued_pages: u64,
    wasted_pages: u64,
    polled_ns: u64,
}

/// Receives each act and its time, nanoseconds.
pub type Observer = Box<dyn FnMut(u64, &Act) + Send>;

/// The kernel and its steering.
pub struct Steer {
    kernel: OnDemand,
    steering: Steering,
    device: DeviceDescription,
    counted: States<Counted>,
    /// The last open file of each file, and the open file of each number.
    opened: HashMap<FileId, OpenId>,
    numbers: HashMap<u64, OpenId>,
    next_number: u64,
    ticked_ns: u64,
    observer: Option<Observer>,
}

impl Steer {
    /// A steered kernel on this disk.
    pub fn new(parameters: &Parameters) -> Steer {
        Steer {
            kernel: linux_6_18::policy(),
            steering: Steering::new(&Limits::default()),
            device: parameters.device,
            counted: States::default(),
            opened: HashMap::new(),
            numbers: HashMap::new(),
            next_number: 1,
            ticked_ns: 0,
            observer: None,
        }
    }

    /// The same with an observer of its acts.
    pub fn observed(self, observer: Observer) -> Steer {
        Steer { observer: Some(observer), ..self }
    }

    fn machine(&self, file: FileId, view: &dyn View) -> Machine {
        let memory = view.memory();
        Machine {
            available_pages: memory
                .free_pages
                .saturating_add(memory.inactive_pages)
                .saturating_add(memory.active_pages),
            pressure: false,
            device: self.device,
            request_pages: view.limits(file).request_pages,
            can_fetch: true,
        }
    }

    /// The number of an open file; a new one if it was never seen.
    fn number(&mut self, open: OpenId, file: FileId, view: &dyn View) -> u64 {
        let counted = self.counted.of(open);
        if counted.number == 0 {
            let window = self.kernel.state(open).window_pages;
            counted.file = OpenFile::new(window.unwrap_or(view.limits(file).window_pages));
            counted.number = self.next_number;
            self.next_number += 1;
            self.numbers.insert(counted.number, open);
            self.opened.insert(file, open);
        }
        counted.number
    }

    /// The state of the kernel for an open file.
    fn readahead(&mut self, open: OpenId, file: FileId, view: &dyn View) -> Readahead {
        let state = self.kernel.state(open);
        Readahead {
            start: state.start,
            size: state.size,
            async_size: state.async_size,
            window_pages: state.window_pages.unwrap_or(view.limits(file).window_pages),
            prev_pos: state.prev_pos,
            is_random: state.random,
            ..Readahead::default()
        }
    }

    /// The decision that the kernel is about to make for an access.
    fn decision(&mut self, access: &Access, view: &dyn View) -> Decision {
        let open = self.number(access.open, access.file, view);
        let before = self.readahead(access.open, access.file, view);
        let mapping = match access.by {
            By::Read => None,
            By::Fault { advice, first, end, .. } => {
                Some(Mapped { first_page: first, end_page: end, address: 0, advice })
            }
        };
        let (kind, page) = match (access.found, access.by) {
            (Found::Absent, By::Read) => (Kind::Miss, access.page),
            (Found::Absent, By::Fault { .. }) => (Kind::Fault, access.page),
            (Found::Locked { folio, .. } | Found::Present { folio, .. }, By::Read) => (Kind::Marker, folio.first),
            (_, By::Fault { .. }) => (Kind::Marker, access.page),
        };
        let inode = u64::from(access.file.0);
        let counted = self.counted.of(access.open);
        Decision {
            at_ns: view.now_ns(),
            target: Target { open, inode, descriptor: Some(0), mapping, ..Target::default() },
            kind,
            page,
            wanted: access.end().saturating_sub(page),
            before,
            file_pages: view.file_pages(access.file),
            disk_window_pages: view.limits(access.file).window_pages,
            waits: counted.waits,
            wait_ns: counted.wait_ns,
            issued_pages: counted.issued_pages,
            wasted_pages: counted.wasted_pages,
            ..Decision::default()
        }
    }

    /// Polls the reader, if it is time, or if it `waits` now: then the time comes during the wait.
    fn poll(&mut self, open: OpenId, file: FileId, waits: bool, view: &dyn View) -> Option<Act> {
        let now_ns = view.now_ns();
        let counted = self.counted.of(open);
        let due_ns = counted.polled_ns.saturating_add(counted.file.poll_after_ns()?);
        if !waits && now_ns < due_ns {
            return None;
        }
        let page = self.readahead(open, file, view).prev_page()?;
        let machine = self.machine(file, view);
        let counted = self.counted.of(open);
        counted.polled_ns = now_ns;
        let progress = Progress { at_ns: now_ns, page, waits: Some((counted.waits, counted.wait_ns)) };
        self.steering.progress(&mut counted.file, &progress, &machine)
    }

    fn tick(&mut self, file: FileId, view: &dyn View) -> Vec<Act> {
        let now_ns = view.now_ns();
        if now_ns.saturating_sub(self.ticked_ns) < TICK_NS {
            return Vec::new();
        }
        self.ticked_ns = now_ns;
        let machine = self.machine(file, view);
        let mut all: Vec<&mut Counted> = self.counted.all().filter(|counted| counted.number > 0).collect();
        all.sort_unstable_by_key(|counted| counted.number);
        self.steering.tick(all.into_iter().map(|counted| &mut counted.file), now_ns, &machine)
    }

    fn carry_out(&mut self, acts: Vec<Act>, view: &dyn View, requests: &mut Requests) {
        for act in acts {
            if let Some(observer) = &mut self.observer {
                observer(view.now_ns(), &act);
            }
            match act {
                Act::SetWindow { open, pages, .. } => {
                    if let Some(open) = self.numbers.get(&open) {
                        self.kernel.state(*open).window_pages = Some(pages);
                    }
                }
                Act::Restore { open, .. } => {
                    if let Some(open) = self.numbers.get(&open) {
                        let baseline = self.counted.of(*open).file.baseline_window_pages();
                        self.kernel.state(*open).window_pages = Some(baseline);
                    }
                }
                Act::Fetch { open, file, ranges, .. } => {
                    let file = FileId(u32::try_from(file).unwrap_or(u32::MAX));
                    for range in ranges {
                        self.count_issued(open, view.absent(file, range.start, range.end - range.start));
                        requests.pages(file, range.start, range.end - range.start);
                    }
                }
                Act::Quiet { .. } => {}
            }
        }
    }

    fn count_issued(&mut self, number: u64, pages: u64) {
        if let Some(open) = self.numbers.get(&number) {
            let counted = self.counted.of(*open);
            counted.issued_pages = counted.issued_pages.saturating_add(pages);
        }
    }

    fn forget(&mut self, open: OpenId) {
        let counted = self.counted.of(open);
        self.steering.forget(&mut counted.file);
        self.numbers.remove(&counted.number);
        self.opened.retain(|_, other| *other != open);
        self.counted.forget(open);
    }
}

impl Policy for Steer {
    fn wants(&self) -> Wants {
        Wants { waits: true, evictions: true, ..self.kernel.wants() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let mut acts = self.tick(access.file, view);
        let is_decision = access.found == Found::Absent || access.found.is_marked();
        // The kernel updates the position of the last call first.
        let begins_call = access.by == By::Read && access.begins;
        let mut own = Requests::default();
        let before = is_decision.then(|| self.decision(access, view));
        self.kernel.access(access, view, &mut own);
        let is_seen = !own.is_empty() || access.by == By::Read;
        if let Some(decision) = before.filter(|_| is_seen) {
            for request in own.drain() {
                self.count_issued(decision.target.open, view.absent(request.file, request.first, request.pages));
                requests.add(request);
            }
            let machine = self.machine(access.file, view);
            let counted = self.counted.of(access.open);
            counted.polled_ns = view.now_ns();
            acts.extend(self.steering.decide(&mut counted.file, &decision, &machine));
        } else if begins_call {
            acts.extend(self.poll(access.open, access.file, access.found.is_locked(), view));
        }
        self.carry_out(acts, view, requests);
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        self.kernel.event(event, view, requests);
        match *event {
            Event::Opened { open, file } => {
                self.forget(open);
                self.number(open, file, view);
            }
            Event::Closed { open } => self.forget(open),
            Event::Waited { open, wait_ns, .. } => {
                let counted = self.counted.of(open);
                counted.waits = counted.waits.saturating_add(1);
                counted.wait_ns = counted.wait_ns.saturating_add(wait_ns);
            }
            Event::Evicted { file, unused: true, .. } => {
                if let Some(open) = self.opened.get(&file) {
                    let counted = self.counted.of(*open);
                    counted.wasted_pages = counted.wasted_pages.saturating_add(1);
                }
            }
            _ => {}
        }
    }
}

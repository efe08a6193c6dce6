//! A boot: programs that start one after the other, and read-ahead for them.
//!
//! ```text
//!     boot        start 1 │ start 2 │ start 3 …   touches the measured pages, computes and sleeps in between
//!     read-ahead  a list, beside it, from the beginning on          or windows: at each event, the next pages
//! ```

use crate::starts::{Run, Start, Starts};
use ahead_model::DeviceDescription;
use ahead_plan::{Piece, Source, Span, Step};
use ahead_policy::{
    Access, Event, FileId, OpenId, PAGE_BYTES, Page, Policy, Request, Requests, View, Wants,
    policies::linux_2_6::Linux26,
};
use ahead_sim::{Mapped, Op, Program};
use std::collections::{HashMap, HashSet};

/// The length of a step in which a list is read, pages (1 MiB).
const STEP_PAGES: u64 = 256;

/// Pages of a file on the simulated disk. The files are on the disk in the order of their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Section {
    pub file: FileId,
    pub first: Page,
    pub pages: u64,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By place on the disk.
    Place,
    /// By first use.
    Time,
}

/// The content of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Whole files.
    Files,
    /// The used parts of files.
    Sections,
}

/// A boot of some programs.
#[derive(Clone, Debug)]
pub(crate) struct Boot {
    starts: Starts,
    names: Vec<String>,
    /// Computing time after each run of pages, nanoseconds.
    pub compute_ns: u64,
    /// Sleeping time before each start (devices, timers), nanoseconds.
    pub sleep_ns: u64,
}

impl Boot {
    /// A boot of these programs, one after the other, without computing and sleeping times.
    pub fn new(names: Vec<String>) -> Boot {
        Boot { starts: Starts::measured(), names, compute_ns: 0, sleep_ns: 0 }
    }

    fn all(&self) -> impl Iterator<Item = &Start> {
        self.starts.named(&self.names)
    }

    /// Number of runs of pages in all starts.
    pub fn runs(&self) -> u64 {
        self.all().map(|start| start.runs.len() as u64).sum()
    }

    /// Lengths of the files in the order of their places, pages.
    pub fn file_pages(&self) -> Vec<u64> {
        let mut by_rank = vec![0; self.starts.files.len()];
        self.starts.files.iter().for_each(|file| by_rank[file.rank] = file.pages);
        by_rank
    }

    fn section(&self, run: &Run) -> Section {
        Section { file: FileId(self.starts.files[run.file].rank as u32), first: run.first, pages: run.pages }
    }

    /// The program of the boot itself.
    pub fn program(&self) -> Program {
        let mut ops = Vec::new();
        for (start, number) in self.all().zip(0..) {
            ops.extend((self.sleep_ns > 0).then_some(Op::Sleep { time_ns: self.sleep_ns }));
            let mut opened = HashSet::new();
            for run in &start.runs {
                let Section { file, first, pages } = self.section(run);
                let open = OpenId(number * self.starts.files.len() as u32 + file.0);
                ops.extend(opened.insert(file).then_some(Op::Open { open, file }));
                ops.push(match self.starts.files[run.file].is_mapped {
                    true => Op::Touch { open, file, first, pages, mapped: Mapped::default() },
                    false => read(open, Section { file, first, pages }),
                });
                ops.extend((self.compute_ns > 0).then_some(Op::Compute { time_ns: self.compute_ns }));
            }
        }
        Program { ops: Box::new(ops.into_iter()), user_per_page_ns: 0.0 }
    }

    /// The list of these programs' files: each page once, in the order of first use.
    pub fn list(&self, names: &[String], parts: Parts) -> Vec<Section> {
        let mut seen: HashMap<FileId, Vec<bool>> = HashMap::new();
        let mut list = Vec::new();
        for run in self.starts.named(names).flat_map(|start| &start.runs) {
            let section = self.section(run);
            let file_pages = self.starts.files[run.file].pages;
            let seen = seen.entry(section.file).or_insert_with(|| vec![false; file_pages as usize]);
            let (first, end) = match parts {
                Parts::Files => (0, file_pages),
                Parts::Sections => (section.first, section.first + section.pages),
            };
            for page in first..end {
                if std::mem::replace(&mut seen[page as usize], true) {
                    continue;
                }
                match list.last_mut() {
                    Some(Section { file, first, pages }) if *file == section.file && *first + *pages == page => {
                        *pages += 1
                    }
                    _ => list.push(Section { file: section.file, first: page, pages: 1 }),
                }
            }
        }
        list
    }

    /// The number of remaining reads if duplicates and neighbours are merged within windows of `window_pages` pages.
    pub fn merged_within(&self, window_pages: u64) -> usize {
        let (mut windows, mut pages) = (vec![Vec::new()], 0);
        for run in self.all().flat_map(|start| &start.runs) {
            if pages >= window_pages {
                windows.push(Vec::new());
                pages = 0;
            }
            pages += run.pages;
            windows.last_mut().expect("there is one").push(self.section(run));
        }
        windows.into_iter().map(|window| merged(window).len()).sum()
    }

    /// A program that reads a list beside the boot (`readahead-list`), in the order of the planner.
    pub fn reader(&self, list: Vec<Section>, order: Order) -> Program {
        let steps = self.planned(&list, order).into_iter().flat_map(|section| {
            (0..section.pages.div_ceil(STEP_PAGES)).map(move |step| Section {
                first: section.first + step * STEP_PAGES,
                pages: STEP_PAGES.min(section.pages - step * STEP_PAGES),
                ..section
            })
        });
        // Numbers of openings that the boot does not use.
        let first_open = (self.names.len() * self.starts.files.len()) as u32;
        let ops = steps.map(move |section| read(OpenId(first_open + section.file.0), section));
        Program { ops: Box::new(ops), user_per_page_ns: 0.0 }
    }

    /// The list in the planner's order, with joined sections: for a device that seeks, or for one that does not.
    fn planned(&self, list: &[Section], order: Order) -> Vec<Section> {
        let device = match order {
            Order::Place => DeviceDescription::ROTATING,
            Order::Time => DeviceDescription::FLASH,
        };
        let places = self.places();
        let piece = |(section, first_use_us): (&Section, u64)| {
            let start = section.first * PAGE_BYTES;
            Piece {
                source: Source::File(section.file.0 as usize),
                range: start..start + section.pages * PAGE_BYTES,
                late: false,
                first_use_us,
                physical_bytes: Some(places[section.file.0 as usize] + start),
            }
        };
        let pieces = list.iter().zip(0..).map(piece).collect();
        let plan = ahead_plan::plan(pieces, Vec::new(), &device, None, u64::MAX);
        let section = |span: &Span| {
            let whole = span.whole();
            let Source::File(file) = span.source else { unreachable!("only files are planned") };
            let (first, end) = (whole.start / PAGE_BYTES, whole.end / PAGE_BYTES);
            Section { file: FileId(file as u32), first, pages: end - first }
        };
        plan.steps.iter().filter_map(Step::span).map(section).collect()
    }

    /// The start of each file on the disk, bytes. The files are contiguous.
    fn places(&self) -> Vec<u64> {
        let mut next_bytes = 0;
        let begin = |pages: u64| {
            let place = next_bytes;
            next_bytes += pages * PAGE_BYTES;
            place
        };
        self.file_pages().into_iter().map(begin).collect()
    }

    /// Reads of a file of this size that no process needs. The file is behind all others.
    pub fn surplus(&self, megabytes: u64) -> impl Iterator<Item = Op> + Send + use<> {
        let files = self.starts.files.len();
        let (open, file) = (OpenId(((self.names.len() + 1) * files) as u32), FileId(files as u32));
        (0..megabytes).map(move |step| read(open, Section { file, first: step * STEP_PAGES, pages: STEP_PAGES }))
    }

    /// The windows of section 5.3.4: at each event the next `pages` pages of the list. Events are the starts, or every
    /// first use of a file.
    pub fn windows(&self, pages: u64, events: Events) -> Windows {
        let mut list = Vec::new();
        let mut event_at = HashMap::new();
        for (start, number) in self.all().zip(0..) {
            for (index, run) in start.runs.iter().enumerate() {
                let section = self.section(run);
                let open = OpenId(number * self.starts.files.len() as u32 + section.file.0);
                if events == Events::Files || index == 0 {
                    event_at.entry((open, section.file)).or_insert(list.len());
                }
                list.push(section);
            }
        }
        Windows { kernel: Linux26::default(), list, event_at, window_pages: pages, asked: 0 }
    }
}

fn read(open: OpenId, Section { file, first, pages }: Section) -> Op {
    Op::Read { open, file, offset_bytes: first * PAGE_BYTES, length_bytes: pages * PAGE_BYTES }
}

/// The sections by place, without duplicates. Neighbours are joined.
fn merged(mut list: Vec<Section>) -> Vec<Section> {
    list.sort_unstable();
    let mut merged: Vec<Section> = Vec::new();
    for section in list {
        match merged.last_mut() {
            Some(last) if last.file == section.file && section.first <= last.first + last.pages => {
                last.pages = last.pages.max(section.first + section.pages - last.first);
            }
            _ => merged.push(section),
        }
    }
    merged
}

/// The events that show the progress of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Events {
    /// Starts of programs (`exec`).
    Starts,
    /// First uses of files by a program.
    Files,
}

/// Windows over a recording, in addition to the kernel's own read-ahead.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    kernel: Linux26,
    /// All sections that the boot will touch, in order.
    list: Vec<Section>,
    /// The position of each event in the list.
    event_at: HashMap<(OpenId, FileId), usize>,
    window_pages: u64,
    /// The length of the requested part of the list, from its beginning.
    asked: usize,
}

impl Windows {
    /// Requests the sections from the end of the last window to the end of the new one, merged and without cached ones.
    fn window(&mut self, at: usize, view: &dyn View, requests: &mut Requests) {
        let (mut end, mut pages) = (at, 0);
        while end < self.list.len() && pages < self.window_pages {
            pages += self.list[end].pages;
            end += 1;
        }
        let new = self.list[self.asked.max(at).min(end)..end].to_vec();
        self.asked = self.asked.max(end);
        for Section { file, first, pages } in merged(new) {
            if view.absent(file, first, pages) > 0 {
                requests.add(Request { first, pages, ..Request::of(file) });
            }
        }
    }
}

impl Policy for Windows {
    fn wants(&self) -> Wants {
        self.kernel.wants()
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        self.kernel.access(access, view, requests);
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        if let Event::Opened { open, file } = *event
            && let Some(at) = self.event_at.remove(&(open, file))
        {
            self.window(at, view, requests);
        }
        self.kernel.event(event, view, requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(file: u32, first: Page, pages: u64) -> Section {
        Section { file: FileId(file), first, pages }
    }

    #[test]
    fn duplicates_are_removed_and_neighbours_joined() {
        let list = vec![section(1, 4, 2), section(0, 9, 1), section(1, 6, 1), section(1, 4, 2), section(1, 8, 1)];
        assert_eq!(merged(list), [section(0, 9, 1), section(1, 4, 3), section(1, 8, 1)]);
    }

    #[test]
    fn list_has_each_page_once() {
        let names = ["bash", "git"].map(str::to_owned);
        let boot = Boot::new(names.to_vec());
        for parts in [Parts::Files, Parts::Sections] {
            let list = boot.list(&names, parts);
            let pages: u64 = list.iter().map(|section| section.pages).sum();
            let merged: u64 = merged(list).iter().map(|section| section.pages).sum();
            assert_eq!(pages, merged);
        }
        assert!(boot.merged_within(1) as u64 == boot.runs() && boot.merged_within(1 << 20) < boot.merged_within(256));
    }
}

//! Samples of all open files: their states, and what was counted since the sample before.
//!
//! One open file can belong to several descriptors and processes (fork). It has one row in each process, at its lowest descriptor; its
//! counts are in the row of the process that read last, so that sums over rows are right.

use crate::{Counted, Filter, OpenFile, Totals, Window, pattern, proc};
use ahead_observe::{
    CounterOptions, Counters, DecisionSource, Detail, MachineCounters, OpenCounters, OpenState, Sources, StateQuery,
    Tables,
};
use ahead_sys::Result;
use ahead_sys::machine::{meminfo_bytes, page_size};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Open files at a time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The interval of the counts; `None`: nothing was counted.
    pub interval: Option<Duration>,
    /// Totals of the machine, whatever the filter.
    pub totals: Totals,
    /// The files that the filter accepts. Their paths are looked up by [`OpenFile::look_up_path`].
    pub files: Vec<OpenFile>,
}

/// Takes samples.
#[derive(Debug)]
pub struct Sampler {
    query: StateQuery,
    source: Source,
    before: Before,
}

/// Where counts come from.
#[derive(Debug)]
enum Source {
    Nothing,
    Own(Box<Counters>),
    /// The observer of a running `ahead steer`.
    Other(Tables),
}

impl Source {
    /// The counts now; `None`: nothing is counted.
    fn counts(&self) -> Result<Option<(MachineCounters, Vec<OpenCounters>)>> {
        Ok(match self {
            Source::Nothing => None,
            Source::Own(counters) => Some((counters.machine()?, counters.per_open()?)),
            Source::Other(tables) => Some((tables.machine()?, tables.per_open()?)),
        })
    }

    fn sources(&self) -> Option<&Sources> {
        match self {
            Source::Own(counters) => Some(counters.sources()),
            _ => None,
        }
    }
}

/// The counts of the sample before.
#[derive(Debug)]
struct Before {
    taken: Instant,
    machine: MachineCounters,
    files: HashMap<u64, OpenCounters>,
}

impl Before {
    fn nothing(taken: Instant) -> Before {
        Before { taken, machine: MachineCounters::default(), files: HashMap::new() }
    }
}

/// Open files without a descriptor that are asked for their state in one sample: each costs a system call of some microseconds. The others
/// count as closed.
const MAX_ASKED: usize = 512;

impl Sampler {
    /// For states alone, or also for counts of every access. Accesses to cached pages are counted, too, which costs each of them some
    /// hundred nanoseconds until this is dropped. With a source, decisions are observed by that source or not at all, which is an error.
    pub fn new(counts: bool, source: Option<DecisionSource>) -> Result<Sampler> {
        let options = CounterOptions { detail: Detail::Hits, sends: false, own_pid: std::process::id(), source };
        let query = StateQuery::new()?;
        let source = match counts {
            true => Source::Own(Box::new(Counters::start(&options)?)),
            false => Source::Nothing,
        };
        Ok(Sampler { query, source, before: Before::nothing(Instant::now()) })
    }

    /// For states, and the counts that a running `ahead steer` has taken since it began.
    pub fn beside(tables: Tables, since: Duration) -> Result<Sampler> {
        let began = Instant::now().checked_sub(since).unwrap_or_else(Instant::now);
        Ok(Sampler { query: StateQuery::new()?, source: Source::Other(tables), before: Before::nothing(began) })
    }

    /// What this kernel does not show and others do. What no kernel shows is in docs/limitations.md.
    pub fn missing(&self) -> &[String] {
        let sources = self.source.sources();
        let is_older = |sources: &&Sources| sources.decisions != DecisionSource::Tracepoints || !sources.hits;
        sources.filter(is_older).map_or(&[], |sources| &sources.missing)
    }

    /// The open files now, with what was counted since the sample before.
    pub fn sample(&mut self, filter: &Filter) -> Result<Sample> {
        let states = self.query.all()?;
        let mut sample = Sample::default();
        let own = std::process::id();
        sample.totals.open_files = states.iter().filter(|state| state.pid != own).count() as u64;
        sample.totals.processes = states.iter().map(|state| state.pid).collect::<HashSet<_>>().len() as u64;
        sample.totals.cached_bytes = meminfo_bytes("Cached")?;
        sample.files = rows(states.into_iter().filter(|state| state.pid != own));
        if let Some((machine, counted)) = self.source.counts()? {
            let files = counted.into_iter().map(|counted| (counted.open, counted)).collect();
            let now = Before { taken: Instant::now(), machine, files };
            sample.interval = Some(now.taken - self.before.taken);
            sample.totals.counted = Some(now.machine.counts.since(&self.before.machine.counts));
            sample.totals.unread_pages = now.machine.unread_pages;
            sample.totals.lost_events = now.machine.lost_events.saturating_sub(self.before.machine.lost_events);
            self.add_counts(&mut sample.files, &now);
            self.before = now;
        } else {
            for file in &mut sample.files {
                file.pattern = pattern(file.window.as_ref(), None, file_pages(file));
            }
        }
        filter.apply(&mut sample.files);
        Ok(sample)
    }

    /// Adds counts to the rows, and rows for counted open files that have no descriptor.
    fn add_counts(&self, files: &mut Vec<OpenFile>, now: &Before) {
        let has_hits = now.machine.counts.hits.is_some();
        let nothing = Counted { hits: has_hits.then_some(0), used_pages: has_hits.then_some(0), ..Counted::default() };
        let mut rows: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, file) in files.iter_mut().enumerate() {
            file.counted = Some(nothing);
            file.pattern = pattern(file.window.as_ref(), now.files.get(&file.open), file_pages(file));
            rows.entry(file.open).or_default().push(index);
        }
        let mut closed: BTreeMap<u32, OpenFile> = BTreeMap::new();
        let mut asked = 0;
        for counted in now.files.values() {
            let delta = since(counted, self.before.files.get(&counted.open));
            let of_open = rows.get(&counted.open);
            let row = of_open
                .and_then(|rows| rows.iter().find(|row| files[**row].pid == counted.pid).or(rows.first()).copied());
            match row {
                Some(row) => files[row].counted = Some(delta),
                None if delta.is_idle() => {}
                None => {
                    asked += 1;
                    let state = (asked <= MAX_ASKED)
                        .then(|| self.query.at(counted.open, counted.inode).ok())
                        .flatten()
                        .flatten();
                    match state {
                        Some(state) => files.push(without_descriptor(&state, counted, delta)),
                        None => add_closed(&mut closed, counted.pid, delta),
                    }
                }
            }
        }
        files.extend(closed.into_values());
    }
}

fn file_pages(file: &OpenFile) -> u64 {
    file.file_bytes.div_ceil(page_size())
}

/// One row for each open file of each process.
fn rows(states: impl Iterator<Item = OpenState>) -> Vec<OpenFile> {
    let mut rows: Vec<OpenFile> = Vec::new();
    let mut known: HashMap<(u32, u64), usize> = HashMap::new();
    for state in states.filter(|state| state.is_readable) {
        match known.get(&(state.pid, state.open)) {
            Some(row) => {
                let lowest = &mut rows[*row].descriptor;
                *lowest = (*lowest).min(Some(state.descriptor));
            }
            None => {
                known.insert((state.pid, state.open), rows.len());
                rows.push(row(&state));
            }
        }
    }
    rows
}

fn row(state: &OpenState) -> OpenFile {
    let readahead = &state.readahead;
    let last_byte = u64::try_from(readahead.prev_pos).ok().and_then(|end| end.checked_sub(1));
    OpenFile {
        pid: state.pid,
        comm: until_nul(&state.comm),
        descriptor: Some(state.descriptor),
        open: state.open,
        inode_number: state.inode_number,
        device: state.device,
        file_bytes: state.file_bytes,
        cached_pages: state.cached_pages,
        position_bytes: state.position_bytes,
        window: Some(Window {
            limit_pages: readahead.window_pages,
            disk_limit_pages: state.disk_window_pages,
            start: readahead.start,
            pages: readahead.size,
            async_pages: readahead.async_size,
            previous_page: last_byte.map(|byte| byte / page_size()),
            mapped_misses: readahead.mmap_miss,
            is_random: readahead.is_random,
        }),
        ..OpenFile::default()
    }
}

fn until_nul(name: &[u8]) -> Vec<u8> {
    name.iter().copied().take_while(|byte| *byte != 0).collect()
}

/// A counted open file without a descriptor: its mapping remains.
fn without_descriptor(state: &OpenState, counted: &OpenCounters, delta: Counted) -> OpenFile {
    let mut file = OpenFile { pid: counted.pid, comm: proc::comm(counted.pid), descriptor: None, ..row(state) };
    file.pattern = pattern(file.window.as_ref(), Some(counted), file_pages(&file));
    file.counted = Some(delta);
    file
}

/// Adds an open file that was closed in the interval to the row of its process.
fn add_closed(closed: &mut BTreeMap<u32, OpenFile>, pid: u32, delta: Counted) {
    let row = closed.entry(pid).or_insert_with(|| OpenFile { pid, comm: proc::comm(pid), ..OpenFile::default() });
    row.closed_files += 1;
    row.counted = Some(row.counted.map_or(delta, |sum| sum.plus(&delta)));
}

/// The counts since the sample before.
fn since(now: &OpenCounters, before: Option<&OpenCounters>) -> Counted {
    // The address of an open file is given to another one after it was closed: then the counts begin again.
    let before = before.filter(|before| before.inode == now.inode);
    now.counts.since(&before.map(|before| before.counts).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pid: u32, descriptor: u32, open: u64) -> OpenState {
        OpenState { pid, descriptor, open, is_readable: true, ..OpenState::default() }
    }

    #[test]
    fn open_file_has_one_row_in_each_process() {
        let found = rows([state(1, 5, 100), state(1, 3, 100), state(1, 4, 200), state(2, 3, 100)].into_iter());
        let found: Vec<_> = found.iter().map(|file| (file.pid, file.descriptor, file.open)).collect();
        assert_eq!(found, [(1, Some(3), 100), (1, Some(4), 200), (2, Some(3), 100)]);
    }

    #[test]
    fn position_of_the_last_read_is_its_last_page() {
        for (prev_pos, expected) in [(-1, None), (0, None), (1, Some(0)), (4096, Some(0)), (4097, Some(1))] {
            let mut seen = state(1, 3, 100);
            seen.readahead.prev_pos = prev_pos;
            seen.comm[..2].copy_from_slice(b"dd");
            let file = row(&seen);
            assert_eq!((file.window.unwrap().previous_page, file.comm), (expected, b"dd".to_vec()), "{prev_pos}");
        }
    }

    #[test]
    fn counts_are_those_since_the_sample_before() {
        let counters = |inode, misses| {
            let counts = Counted { misses, hits: Some(misses), ..Counted::default() };
            OpenCounters { inode, counts, ..OpenCounters::default() }
        };
        assert_eq!(since(&counters(1, 7), None).misses, 7);
        assert_eq!(since(&counters(1, 7), Some(&counters(1, 5))).hits, Some(2));
        // Another file has the address.
        assert_eq!(since(&counters(2, 3), Some(&counters(1, 5))).misses, 3);
    }

    #[test]
    fn closed_files_of_a_process_are_one_row() {
        let mut closed = BTreeMap::new();
        for misses in [1, 2] {
            add_closed(&mut closed, u32::MAX, Counted { misses, hits: Some(1), ..Counted::default() });
        }
        let row = &closed[&u32::MAX];
        let counted = row.counted.as_ref().unwrap();
        assert_eq!((row.closed_files, counted.misses, counted.hits, row.descriptor), (2, 3, Some(2), None));
    }
}

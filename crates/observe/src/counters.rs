//! Counts read-ahead decisions, waits and waste of every open file, and sends the decisions (`bpf/counters.bpf.c`).

mod calls;
mod decode;
mod sources;
mod stream;
mod tables;
mod types;

pub use stream::DecisionEvents;
pub use tables::{TableIds, Tables};
pub use types::*;

use crate::objects::{self, Compiled, bpf_error, map};
use crate::reader::events;
use crate::tracer::check_host;
use ahead_sys::{Result, machine};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, OpenObject};
use sources::Plan;

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/counters.bpf.deflate")));

/// One entry of the table of issued pages for this many bytes of memory: it has 64 pages.
const BYTES_PER_BLOCK: u64 = 256 << 10;
const BLOCKS_LEAST: u64 = 1 << 14;
/// 32 GiB of cached files; the table takes 13 MB (about 100 bytes for each entry).
const BLOCKS_MOST: u64 = 1 << 17;

/// A running observer. Dropping it detaches every program.
#[derive(Debug)]
pub struct Counters {
    object: Object,
    _links: Vec<Link>,
    sources: Sources,
    /// Number of missed program runs at the start.
    passed_over: u64,
}

impl Counters {
    /// Loads and attaches the programs. Needs root, or CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// [`ahead_sys::Error::NotPermitted`] and [`ahead_sys::Error::Unsupported`], with what is missing. Then no program stays attached.
    pub fn start(options: &CounterOptions) -> Result<Counters> {
        check_host()?;
        sources::start(options, |plan| attach(options, plan))
    }

    /// What this kernel shows.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The counts of every open file that was seen.
    pub fn per_open(&self) -> Result<Vec<OpenCounters>> {
        tables::per_open(&map(&self.object, "opens")?, self.sources.hits)
    }

    /// The counts of one open file.
    pub fn of_open(&self, open: u64) -> Result<Option<OpenCounters>> {
        let record = map(&self.object, "opens")?.lookup(&open.to_ne_bytes(), MapFlags::ANY);
        let record = record.map_err(|e| bpf_error("read counters", e))?;
        Ok(record.and_then(|record| decode::open_counters(open, &record, self.sources.hits)))
    }

    pub fn machine(&self) -> Result<MachineCounters> {
        let counts = tables::machine_counts(&map(&self.object, "machine")?)?;
        let mut counters = decode::machine_counters(&counts, self.sources.hits);
        counters.lost_events += objects::passed_over(&self.object)?.saturating_sub(self.passed_over);
        Ok(counters)
    }

    /// The numbers of the tables, for [`Tables::open`] in another process.
    pub fn table_ids(&self) -> Result<TableIds> {
        let id = |name: &str| {
            let handle = MapHandle::try_from(&map(&self.object, name)?);
            handle
                .and_then(|handle| handle.info())
                .map(|info| info.info.id)
                .map_err(|e| bpf_error("read a table's number", e))
        };
        Ok(TableIds { opens: id("opens")?, machine: id("machine")?, hits: self.sources.hits })
    }

    /// The decisions from now on. One reader at a time.
    pub fn events(&self) -> Result<DecisionEvents> {
        DecisionEvents::new(events(&self.object, "events")?, events(&self.object, "machine")?)
    }

    /// Sends no more decisions of this open file, except those that thrash, and those of another pattern than its last one: a jump after
    /// sequential pages, or sequential pages after jumps. Counts continue.
    pub fn set_quiet(&self, open: u64, quiet: bool) -> Result<()> {
        let (table, key) = (map(&self.object, "quiet")?, open.to_ne_bytes());
        let done = if quiet { table.update(&key, &[1, 0, 0, 0], MapFlags::ANY) } else { delete(&table, &key) };
        done.map_err(|e| bpf_error("silence an open file", e))
    }

    /// Removes the counts of an open file.
    pub fn forget(&self, open: u64) {
        for name in ["opens", "quiet"] {
            let removed = map(&self.object, name).map(|table| delete(&table, &open.to_ne_bytes()));
            if let Ok(Err(error)) = removed {
                tracing::debug!("forget an open file: {error}");
            }
        }
    }
}

/// Deletes an entry that may be missing.
fn delete(table: &impl MapCore, key: &[u8]) -> libbpf_rs::Result<()> {
    match table.delete(key) {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Loads the programs of a plan, and attaches them.
fn attach(options: &CounterOptions, plan: &Plan) -> Result<Counters> {
    let mut open = objects::open("counters", &OBJECT)?;
    for mut program in open.progs_mut() {
        let wanted = plan.has(&program.name().to_string_lossy());
        program.set_autoload(wanted);
    }
    set_up_maps(&mut open, options, plan.sources.hits)?;
    let (object, links) = objects::attach_all(open)?;
    let calls = calls::read_calls().into_iter().map(|(number, argument)| (number, argument.to_ne_bytes()));
    objects::fill_calls(&object, "read_calls", calls)?;
    let passed_over = objects::passed_over(&object)?;
    Ok(Counters { object, _links: links, sources: plan.sources.clone(), passed_over })
}

fn set_up_maps(open: &mut OpenObject, options: &CounterOptions, is_exact: bool) -> Result<()> {
    let memory = machine::meminfo_bytes("MemTotal")?;
    let blocks = (memory / BYTES_PER_BLOCK).clamp(BLOCKS_LEAST, BLOCKS_MOST);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let outcome = match name.as_str() {
            "blocks" => map.set_max_entries(blocks as u32),
            _ if name.contains(".rodata") => map.set_initial_value(&settings(options, is_exact)),
            _ => Ok(()),
        };
        outcome.map_err(|e| bpf_error(&format!("set up the BPF map {name}"), e))?;
    }
    Ok(())
}

/// `struct counter_settings` of `bpf/counter_maps.h`.
fn settings(options: &CounterOptions, is_exact: bool) -> Vec<u8> {
    let sample_every = match options.detail {
        Detail::SampledHits(number) if is_exact => number.max(1),
        _ => 1,
    };
    let numbers =
        [options.own_pid, machine::page_size().ilog2(), options.sends.into(), is_exact.into(), sample_every, 0];
    numbers.map(u32::to_ne_bytes).concat()
}

#[cfg(test)]
mod tests;

//! The tables of counts: those of an own observer, or those of an observer in another process.

use super::decode::{self, COUNTERS};
use super::types::{MachineCounters, OpenCounters};
use crate::objects::bpf_error;
use ahead_sys::Result;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

/// The numbers by which another process with CAP_SYS_ADMIN opens the tables of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableIds {
    /// Of the table of open files.
    pub opens: u32,
    pub machine: u32,
    /// Whether accesses are observed ([`super::Sources::hits`]).
    pub hits: bool,
}

/// The tables of a running observer, for reading. Its programs may end at any time; then the counts stay as they are.
#[derive(Debug)]
pub struct Tables {
    opens: MapHandle,
    machine: MapHandle,
    hits: bool,
}

impl Tables {
    /// Opens the tables of an observer in another process.
    ///
    /// # Errors
    /// Not permitted, or the observer has ended.
    pub fn open(ids: &TableIds) -> Result<Tables> {
        let handle = |id: u32| MapHandle::from_map_id(id).map_err(|e| bpf_error("open the counters of ahead steer", e));
        Ok(Tables { opens: handle(ids.opens)?, machine: handle(ids.machine)?, hits: ids.hits })
    }

    /// The counts of every open file that was seen.
    pub fn per_open(&self) -> Result<Vec<OpenCounters>> {
        per_open(&self.opens, self.hits)
    }

    /// The counts of the machine, without program runs that the kernel has skipped.
    pub fn machine(&self) -> Result<MachineCounters> {
        Ok(decode::machine_counters(&machine_counts(&self.machine)?, self.hits))
    }
}

/// As [`Tables::per_open`].
pub(super) fn per_open(opens: &impl MapCore, hits: bool) -> Result<Vec<OpenCounters>> {
    // The kernel returns whole buckets, so that a batch may be shorter than asked for. libbpf-rs takes such a batch for the last one.
    // So all must fit into one.
    let records = opens.lookup_batch(opens.max_entries(), MapFlags::ANY, MapFlags::ANY);
    let records = records.map_err(|e| bpf_error("read counters", e))?;
    let decode = |(open, record): (Vec<u8>, Vec<u8>)| {
        decode::open_counters(u64::from_ne_bytes(open.try_into().ok()?), &record, hits)
    };
    Ok(records.filter_map(decode).collect())
}

/// The sums over all processors.
pub(super) fn machine_counts(table: &impl MapCore) -> Result<[u64; COUNTERS]> {
    let values = table.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let values = values.map_err(|e| bpf_error("read counters", e))?.unwrap_or_default();
    let count = |which: usize| {
        let of = |bytes: &Vec<u8>| Some(u64::from_ne_bytes(bytes.get(8 * which..8 * which + 8)?.try_into().ok()?));
        values.iter().filter_map(of).sum()
    };
    Ok(std::array::from_fn(count))
}

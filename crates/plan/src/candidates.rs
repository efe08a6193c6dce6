//! The candidates of the search: shapes of plans, and a plan as the simulator's list of requests.

use crate::bridging::{Bridging, cost_us};
use crate::orders::{Sorted, by_first_use, by_position};
use crate::simulator::{Item, Request};
use crate::{LookUp, Path, Piece, Plan, Source, Step};
use ahead_model::{DeviceDescription, PAGE_BYTES};

/// The order and the joins of a candidate. Together with a head start it is a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Swept in windows that end after these shares of the data.
    Sweeps(Vec<f64>),
    /// In the order of use, in windows of this device time (microseconds), with these gaps.
    ByUse(f64, Gaps),
}

/// Which gaps between used ranges are read, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// As the rule for the device says.
    Rule,
    /// None.
    None,
    /// Larger ones.
    Wide,
}

/// Largest gap of [`Gaps::Wide`], bytes: the kernel's own window, which a reader of single pages would have got.
const WIDE_GAP_BYTES: u64 = 128 << 10;

/// Maximum share of gaps in all bytes: as on disks where gaps cost nothing.
const WIDE_SHARE: f64 = 0.20;

/// What is planned: the pieces and lookups of one device in the order of their use.
pub(crate) struct Planned<'a> {
    /// With the times of the program's own timeline where they are known.
    pub pieces: Sorted,
    /// By use.
    pub lookups: Vec<LookUp>,
    /// By inode.
    pub lookups_by_inode: Vec<LookUp>,
    pub device: &'a DeviceDescription,
}

impl Planned<'_> {
    /// The plan of a shape. The program does not wait for it.
    pub fn plan(&self, shape: &Shape) -> Plan {
        let device = self.device;
        let plan = match shape {
            Shape::Sweeps(borders) => by_position(&self.pieces, &self.lookups_by_inode, device, borders),
            Shape::ByUse(window_us, gaps) => {
                let cost_us = cost_us(device, &self.pieces.pieces);
                let bridging = |device: &DeviceDescription, pieces: &[Piece]| match gaps {
                    Gaps::Rule => Bridging::of(device, pieces),
                    Gaps::None => Bridging::NONE,
                    Gaps::Wide => Bridging::limited(WIDE_GAP_BYTES, WIDE_SHARE),
                };
                by_first_use(&self.pieces, &self.lookups, device, &bridging, *window_us, cost_us)
            }
        };
        Plan { head_start_steps: 0, ..plan }
    }
}

/// The items of the simulator: all pieces in the order of source and place, then the lookups in the order of their paths.
pub(crate) struct Items {
    pub all: Vec<Item>,
    /// Source and beginning of each piece, and where the lookups begin.
    keys: Vec<(Source, u64)>,
    paths: Vec<(Path, u64)>,
}

/// Pages up to this distance are read together by a program that needs one: half of the kernel's default window, bytes.
pub(crate) const NEAR_BYTES: u64 = 64 << 10;

impl Items {
    /// `pieces`: sorted by source and place; `lookups`: sorted by path.
    pub fn new(pieces: &[Piece], lookups: &[LookUp]) -> Items {
        let keys: Vec<(Source, u64)> = pieces.iter().map(|piece| (piece.source, piece.range.start)).collect();
        let (mut first, mut end) = (0, 0);
        let mut all: Vec<Item> = Vec::with_capacity(pieces.len() + lookups.len());
        for (index, piece) in pieces.iter().enumerate() {
            let (source, start) = keys[index];
            while keys[first].0 != source || keys[first].1.saturating_add(NEAR_BYTES) < start {
                first += 1;
            }
            end = end.max(index + 1);
            while end < keys.len() && keys[end].0 == source && pieces[end].range.end <= start.saturating_add(NEAR_BYTES)
            {
                end += 1;
            }
            let place = piece.physical_bytes.unwrap_or(u64::MAX);
            all.push(Item { place, bytes: piece.bytes(), brings: (first as u32, end as u32) });
        }
        for index in all.len()..all.len() + lookups.len() {
            all.push(Item { place: u64::MAX, bytes: PAGE_BYTES, brings: (index as u32, index as u32 + 1) });
        }
        Items { all, keys, paths: lookups.iter().map(|lookup| (lookup.path, lookup.inode)).collect() }
    }

    /// The requests of a plan's usual steps, one for each step.
    pub fn requests(&self, plan: &Plan, requests: &mut Vec<Request>) {
        requests.clear();
        let mut chunk = None;
        for step in &plan.steps[..plan.usual_steps] {
            requests.push(match step {
                Step::Fetch(span) => {
                    let whole = span.whole();
                    let first = self.keys.partition_point(|key| *key < (span.source, whole.start));
                    let count = self.keys[first..].partition_point(|key| *key < (span.source, whole.end));
                    let place = span.physical_bytes.unwrap_or(u64::MAX);
                    let items = (first as u32, (first + count) as u32);
                    Request { place, bytes: whole.end - whole.start, items }
                }
                Step::LookUp(index) => self.look_up(Path::Lookup(*index), &mut chunk),
                Step::Open(index) => self.look_up(Path::File(*index), &mut chunk),
                Step::ReadInodes(index) => self.look_up(Path::Inodes(*index), &mut chunk),
            });
        }
    }

    /// Inodes with adjacent numbers lie in the same blocks: only the first of them is read from the disk.
    fn look_up(&self, path: Path, chunk: &mut Option<u64>) -> Request {
        let known = self.paths.binary_search_by_key(&path, |(path, _)| *path);
        let id = (self.keys.len() + known.unwrap_or(0)) as u32;
        let own = known.ok().map(|index| self.paths[index].1 / CHUNK_INODES);
        let bytes = if own.is_some() && own == *chunk { 0 } else { PAGE_BYTES };
        *chunk = own;
        Request { place: u64::MAX, bytes, items: if known.is_ok() { (id, id + 1) } else { (0, 0) } }
    }
}

/// Inodes that are read with one request: 16 KiB of inodes of 256 bytes, as btrfs nodes and XFS clusters.
const CHUNK_INODES: u64 = 64;

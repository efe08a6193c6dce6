//! The time of a replay with the old and the new places, on a model or a description of the disk.

use super::runs::{Run, parts};
use crate::{LookUp, Piece, Source, Step, plan};
use ahead_device::{Model, Op, Request, time_for};
use ahead_model::DeviceDescription;
use std::collections::HashMap;

/// What computes times.
#[derive(Clone, Debug)]
pub enum Timing {
    /// An emulated disk: its model, and its size in bytes.
    Model(Box<Model>, u64),
    /// Any other disk.
    Description(DeviceDescription),
}

impl Timing {
    /// The description that the planner uses.
    pub fn description(&self) -> DeviceDescription {
        match self {
            Timing::Model(model, _) => model.device_description(),
            Timing::Description(description) => *description,
        }
    }

    /// Seconds for reads at these places of the disk (offset and length, bytes) in this order.
    pub fn seconds(&self, reads: impl Iterator<Item = (u64, u64)>) -> f64 {
        match self {
            Timing::Model(model, capacity_bytes) => {
                let largest = model.max_request_bytes().max(4096);
                let cut = reads.flat_map(|(start, length)| {
                    (0..length).step_by(largest as usize).map(move |at| Request {
                        op: Op::Read,
                        offset_bytes: start.saturating_add(at),
                        length_bytes: largest.min(length - at),
                    })
                });
                time_for(model, *capacity_bytes, cut) as f64 / 1e9
            }
            Timing::Description(description) => described_us(description, reads) / 1e6,
        }
    }
}

fn described_us(device: &DeviceDescription, reads: impl Iterator<Item = (u64, u64)>) -> f64 {
    let mut head = 0;
    reads.fold(0.0, |total_us, (start, length)| {
        let seek_us = match start.checked_sub(head) {
            Some(gap) => device.pass_us(gap).unwrap_or(device.hop_us()),
            None => device.access_us(),
        };
        head = start.saturating_add(length);
        total_us + seek_us + device.transfer_us(length)
    })
}

/// Where the used ranges lie.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// The runs of each file (an index in the profile). A file without runs is left out.
    pub files: &'a HashMap<usize, Vec<Run>>,
}

impl Where<'_> {
    fn of(&self, source: Source, range: &std::ops::Range<u64>) -> Vec<Run> {
        match source {
            // Offsets in a block device are places on it.
            Source::Metadata(_) => {
                let length_bytes = range.end - range.start;
                vec![Run { offset_bytes: range.start, physical_bytes: range.start, length_bytes }]
            }
            Source::File(index) => self.files.get(&index).map_or(Vec::new(), |runs| parts(runs, range)),
        }
    }
}

/// Seconds of the disk for a replay of these pieces, as it is planned for these places.
pub fn replay_seconds(pieces: &[Piece], places: Where<'_>, timing: &Timing) -> f64 {
    let mut placed = Vec::with_capacity(pieces.len());
    for piece in pieces {
        // A piece that has been split by the move is planned as its parts.
        placed.extend(places.of(piece.source, &piece.range).into_iter().map(|part| Piece {
            range: part.offset_bytes..part.end().min(piece.range.end),
            physical_bytes: Some(part.physical_bytes),
            ..piece.clone()
        }));
    }
    let plan = plan(placed, Vec::<LookUp>::new(), &timing.description(), None, u64::MAX);
    let spans = plan.steps.iter().filter_map(Step::span);
    timing.seconds(spans.flat_map(|span| {
        places.of(span.source, &span.whole()).into_iter().map(|run| (run.physical_bytes, run.length_bytes))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(file: usize, bytes: u64, first_use_us: u64) -> Piece {
        Piece { source: Source::File(file), range: 0..bytes, late: false, first_use_us, physical_bytes: None }
    }

    #[test]
    fn contiguous_files_are_faster_than_scattered_ones() {
        let pieces: Vec<Piece> = (0..100).map(|file| piece(file, 65_536, file as u64)).collect();
        let at = |distance: u64| -> HashMap<usize, Vec<Run>> {
            let run = |file| Run { offset_bytes: 0, physical_bytes: file as u64 * distance, length_bytes: 65_536 };
            (0..100).map(|file| (file, vec![run(file)])).collect()
        };
        let model = Timing::Model(Box::new(Model::builtin("hdd").unwrap()), 8 << 30);
        for timing in [model, Timing::Description(DeviceDescription::ROTATING)] {
            let seconds = |distance| replay_seconds(&pieces, Where { files: &at(distance) }, &timing);
            let (scattered, packed) = (seconds(50 << 20), seconds(65_536));
            assert!(scattered > 5.0 * packed, "{scattered} {packed}");
            assert!(packed > 0.0);
        }
    }

    #[test]
    fn files_elsewhere_take_no_time() {
        let timing = Timing::Description(DeviceDescription::ROTATING);
        assert_eq!(replay_seconds(&[piece(0, 4096, 0)], Where { files: &HashMap::new() }, &timing), 0.0);
    }
}

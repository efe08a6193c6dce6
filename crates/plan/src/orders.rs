//! The orders of a plan: by position in windows, and by first use.

use crate::bridging::{Bridging, BridgingRule};
use crate::{LookUp, Piece, Plan, Span, Step, importance, spans};
use ahead_model::DeviceDescription;

/// The lead of metadata over data that was used at the same time, microseconds of device time. A file can be read ahead only
/// when it is open, and opening it waits for its metadata. The requests queued in between keep the device busy. About one access
/// of a network volume, five of a solid-state disk.
const LEAD_US: f64 = 500.0;

/// The pieces of a device in both orders that plans need, so that plans with different windows are made without sorting them again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    /// In the order of source and place.
    pub pieces: Vec<Piece>,
    /// By importance ([`importance`]): their indices.
    by_use: Vec<u32>,
}

impl Sorted {
    pub fn new(mut pieces: Vec<Piece>) -> Sorted {
        pieces.sort_unstable_by_key(|piece| (piece.source, piece.range.start));
        let mut by_use: Vec<u32> = (0..pieces.len() as u32).collect();
        by_use.sort_by_cached_key(|index| importance(&pieces[*index as usize]));
        Sorted { pieces, by_use }
    }

    /// Assigns the pieces of this kind to windows from `first` on, in the order of use. `divide`: whether a new window begins with this piece.
    /// Returns the first window that is free, and the first use in each window.
    fn assign(
        &self,
        window_of: &mut [u32],
        first: u32,
        is: impl Fn(&Piece) -> bool,
        mut divide: impl FnMut(&Piece) -> bool,
    ) -> (u32, Vec<u64>) {
        let mut begins = Vec::new();
        for index in &self.by_use {
            let piece = &self.pieces[*index as usize];
            if is(piece) {
                if divide(piece) || begins.is_empty() {
                    begins.push(piece.first_use_us);
                }
                window_of[*index as usize] = first + begins.len() as u32 - 1;
            }
        }
        (first + begins.len() as u32, begins)
    }
}

/// Metadata, lookups, and the data in windows, each ascending; then the late pieces, metadata and data. `borders`: the windows end after
/// these shares of the data, ascending, by the time of the transfer.
pub(crate) fn by_position(sorted: &Sorted, lookups: &[LookUp], device: &DeviceDescription, borders: &[f64]) -> Plan {
    // Window 0 is the metadata.
    let mut window_of = vec![0; sorted.pieces.len()];
    let is_data = |piece: &Piece| !piece.late && !piece.source.is_metadata();
    // In a sweep each piece costs its transfer; the seeks between pieces are not divided among them.
    let all_bytes: f64 = sorted.pieces.iter().filter(|piece| is_data(piece)).map(|piece| piece.bytes() as f64).sum();
    let (mut bytes, mut passed) = (0.0, 0);
    let is_new = |piece: &Piece| {
        let before = passed;
        while passed < borders.len() && bytes >= borders[passed] * all_bytes {
            passed += 1;
        }
        bytes += piece.bytes() as f64;
        passed > before
    };
    let (usual_windows, _) = sorted.assign(&mut window_of, 1, is_data, is_new);
    for (index, piece) in sorted.pieces.iter().enumerate().filter(|(_, piece)| piece.late) {
        window_of[index] = usual_windows + u32::from(!piece.source.is_metadata());
    }
    let mut plan = Plan::default();
    let formed = spans::form(&sorted.pieces, &window_of, usual_windows + 2, device, &Bridging::of);
    for (index, mut spans) in formed.into_iter().enumerate() {
        spans.sort_by_key(Span::place);
        plan.steps.extend(spans.into_iter().map(Step::Fetch));
        if index == 0 {
            plan.steps.extend(lookups.iter().map(Step::from));
            plan.metadata_steps = plan.steps.len();
        }
        if index == 1 {
            plan.first_window_steps = plan.steps.len();
        }
        if index + 1 == usual_windows as usize {
            plan.usual_steps = plan.steps.len();
        }
    }
    plan
}

/// The borders of this number of windows of the same length.
pub(crate) fn equal_borders(windows: usize) -> Vec<f64> {
    (1..windows).map(|window| window as f64 / windows as f64).collect()
}

/// In the order of first use, in windows of this cost.
pub(crate) fn by_first_use(
    sorted: &Sorted,
    lookups: &[LookUp],
    device: &DeviceDescription,
    bridging: BridgingRule,
    window_cost: f64,
    cost: impl Fn(&Piece) -> f64,
) -> Plan {
    let mut window_of = vec![0; sorted.pieces.len()];
    let mut left = 0.0;
    let mut is_new = |piece: &Piece| {
        let is_new = left <= 0.0;
        if is_new {
            left = window_cost;
        }
        left -= cost(piece);
        is_new
    };
    let (usual_windows, begins) = sorted.assign(&mut window_of, 0, |piece| !piece.late, &mut is_new);
    let (windows, _) = sorted.assign(&mut window_of, usual_windows, |piece| piece.late, is_new);
    let mut spans = spans::form(&sorted.pieces, &window_of, windows, device, bridging).into_iter();
    let mut lookups = lookups.iter().peekable();
    let mut ordered: Vec<Step> = Vec::new();
    for (index, window) in spans.by_ref().take(usual_windows as usize).enumerate() {
        let mut steps = timed(window);
        let end_us = begins.get(index + 1).copied().unwrap_or(u64::MAX);
        while let Some(lookup) = lookups.next_if(|lookup| lookup.first_use_us < end_us) {
            steps.push((lookup.first_use_us, lookup.into()));
        }
        ordered.extend(in_time(steps));
    }
    ordered.extend(lookups.map(Step::from));
    let mut steps = with_lead(ordered, device);
    let usual_steps = steps.len();
    steps.extend(with_lead(spans.flat_map(|window| in_time(timed(window))).collect(), device));
    Plan { steps, usual_steps, ..Plan::default() }
}

fn timed(window: Vec<Span>) -> Vec<(u64, Step)> {
    window.into_iter().map(|span| (span.first_use_us, Step::Fetch(span))).collect()
}

fn in_time(mut steps: Vec<(u64, Step)>) -> impl Iterator<Item = Step> {
    steps.sort_by_key(|(first_use_us, step)| (*first_use_us, step.brings_data(), step.place()));
    steps.into_iter().map(|(_, step)| step)
}

/// Moves metadata forward by [`LEAD_US`] of the device's time.
fn with_lead(ordered: Vec<Step>, device: &DeviceDescription) -> Vec<Step> {
    let mut at_us = 0.0;
    let mut due: Vec<(f64, Step)> = Vec::with_capacity(ordered.len());
    for step in ordered {
        let due_us = if step.brings_data() { at_us } else { at_us - LEAD_US };
        at_us += step_us(&step, device);
        due.push((due_us.max(0.0), step));
    }
    due.sort_by(|(a_us, a), (b_us, b)| a_us.total_cmp(b_us).then(a.brings_data().cmp(&b.brings_data())));
    due.into_iter().map(|(_, step)| step).collect()
}

/// Device time of a step in a full queue, microseconds.
fn step_us(step: &Step, device: &DeviceDescription) -> f64 {
    match step {
        Step::Fetch(span) => device.step_us(span.whole().end - span.whole().start),
        Step::LookUp(_) | Step::Open(_) | Step::ReadInodes(_) => device.request_us(),
    }
}

/// Length of a window in the order of first use, device time, microseconds: ranges within a window may be joined. A longer window
/// has fewer requests: with two windows instead of one, Chromium on a network volume made 4,470 instead of 3,410, and took 2.0 s instead of
/// 1.74. But if a program reads a large file for minutes, a window must not have all of that file.
pub(crate) const WINDOW_US: f64 = 8e6;

//! The least time of the head of a rotating disk between two extents.
//!
//! The head passes byte `b` at the times `tau(b) + k · turn` only (`hdd/geometry.rs`). So a move of the head from platter time
//! `x` to platter time `y` takes a time that equals `y - x` modulo one turn, whatever the head does in between. A move
//! either reads on from `x` to `y`, or commands the arm at least once, so it takes at least the command and the
//! way of the arm:
//!
//! ```text
//!   from      x0..x1   positions at which the head may leave an extent     |####|
//!   to        y0..y1   positions at which it may arrive in another one            ... gap ...   |####|
//!   move_ns = the smaller of y0 - x1 (reading on) and the smallest t >= arm with t = y - x modulo one turn
//! ```
//!
//! The arm need not move by the whole distance, because the head may read on across the end of a track, before it leaves
//! and after it arrives. `Platter::arm_ns` takes the least of these.

use crate::hdd::geometry::{Geometry, SeekCurve};
use crate::hdd::{Hdd, HddState, Positioning};
use ahead_model::PAGE_BYTES;
use std::ops::Range;

/// A range of bytes on the platter. Platter times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Its first byte begins to pass.
    pub start_ns: i64,
    /// Its last byte has passed.
    pub end_ns: i64,
    /// From the start of the first page to the start of the last one: a request begins with a page.
    starts_ns: i64,
    first_track: i64,
    last_track: i64,
    /// From the end of the previous track to the start.
    lead_in_ns: i64,
    /// From the end to the end of its track.
    lead_out_ns: i64,
}

/// The times of the arm and the platter of a disk.
#[derive(Clone, Debug)]
pub(super) struct Platter {
    geometry: Geometry,
    turn_ns: i64,
    /// Time that a command may save at a change of tracks: it waits for the change modulo a turn only, or for a fixed access.
    spare_change_ns: i64,
    overhead_ns: i64,
    /// Fixed cost of every access, if the position of the platter does not matter.
    access_ns: Option<i64>,
    /// Least time of the way over 0, 1, 2, ... tracks; farther ways take at least the last one.
    tracks_ns: Vec<i64>,
}

/// Length of the table of ways in tracks: far more than the distance of moves that are among the cheapest.
const TABLE_TRACKS: i64 = 8192;

/// The model rounds the platter times of bytes to nanoseconds, and the position of the head to bytes: by less than this in a move.
const ROUNDING_NS: i64 = 3;

impl Platter {
    pub(super) fn new(hdd: &Hdd, capacity_bytes: u64) -> Platter {
        let HddState { geometry, positioning, overhead_ns, .. } = HddState::new(hdd, capacity_bytes);
        let (access_ns, tracks_ns) = match positioning {
            Positioning::Fixed(access_ns) => (Some(access_ns as i64), vec![0]),
            Positioning::Arm(curve) => (None, ways_ns(&geometry, &curve, overhead_ns as i64)),
        };
        let (turn_ns, change_ns) = (geometry.turn_ns() as i64, geometry.change_ns() as i64);
        let spare_change_ns = match access_ns {
            Some(access_ns) => (change_ns - overhead_ns as i64 - access_ns).max(0),
            None => change_ns - change_ns % turn_ns,
        };
        Platter { geometry, turn_ns, spare_change_ns, overhead_ns: overhead_ns as i64, access_ns, tracks_ns }
    }

    /// The range on the platter; it must not be empty.
    pub(super) fn span(&self, range: &Range<u64>) -> Span {
        let geometry = &self.geometry;
        let last_byte = range.end - 1;
        let last_page = range.start.max(range.end.saturating_sub(PAGE_BYTES));
        let (start_ns, end_ns) = (geometry.tau_ns(range.start) as i64, geometry.tau_end_ns(range.end) as i64);
        let first_track_ns = geometry.track_span_ns(range.start).0 as i64;
        Span {
            start_ns,
            end_ns,
            starts_ns: geometry.tau_ns(last_page) as i64 - start_ns,
            first_track: geometry.track(range.start) as i64,
            last_track: geometry.track(last_byte) as i64,
            lead_in_ns: start_ns - first_track_ns + geometry.change_ns() as i64 - self.spare_change_ns,
            lead_out_ns: (geometry.track_span_ns(last_byte).1 as i64 - end_ns).max(0),
        }
    }

    /// Least time in which a range passes the head, with the changes of tracks in it.
    pub(super) fn pass_ns(&self, span: &Span) -> i64 {
        let changes_ns = (span.last_track - span.first_track) * self.spare_change_ns;
        (span.end_ns - span.start_ns - changes_ns - ROUNDING_NS).max(0)
    }

    /// Tracks between two extents, 0 if they share one.
    pub(super) fn distance(from: &Span, to: &Span) -> i64 {
        (to.first_track - from.last_track).max(from.first_track - to.last_track).max(0)
    }

    /// Least time of every move over this distance or a longer one.
    pub(super) fn floor_ns(&self, distance: i64) -> i64 {
        if distance < 2 {
            return 0;
        }
        let jump_ns = self.overhead_ns + self.access_ns.unwrap_or_else(|| self.way_ns(distance - 2));
        jump_ns.min((distance - 1) * self.turn_ns) - ROUNDING_NS
    }

    /// Least time from the last moment at which the head is in `from` to the first moment in `to`, from and to any positions in them.
    pub(super) fn move_ns(&self, from: &Span, to: &Span) -> i64 {
        let on_ns = to.start_ns - from.end_ns;
        let jump_ns = match self.access_ns {
            Some(access_ns) => self.overhead_ns + access_ns,
            None => {
                let arm_ns = self.arm_ns(from, to);
                // The platter times between the positions are on_ns ..= on_ns + more_ns, modulo a turn.
                let more_ns = from.end_ns - from.start_ns + to.starts_ns;
                let wait_ns = (on_ns - arm_ns).rem_euclid(self.turn_ns);
                if self.turn_ns - wait_ns <= more_ns { arm_ns } else { arm_ns + wait_ns }
            }
        };
        let least_ns = if on_ns >= -ROUNDING_NS { on_ns.min(jump_ns) } else { jump_ns };
        (least_ns - ROUNDING_NS).max(0)
    }

    /// Least time of the command and the arm, before the platter turns to the position.
    ///
    /// One move of the arm over all tracks is best, or over one or two tracks less: towards the inside the head may read on across the end
    /// of the track of `from` before it leaves, and it may arrive before the track of `to` begins.
    fn arm_ns(&self, from: &Span, to: &Span) -> i64 {
        let distance = Self::distance(from, to);
        let mut way_ns = self.way_ns(distance);
        if from.last_track < to.first_track {
            let nearer_ns = self.way_ns(distance - 1);
            way_ns = way_ns.min(from.lead_out_ns + nearer_ns).min(to.lead_in_ns + nearer_ns);
            if distance >= 2 {
                way_ns = way_ns.min(from.lead_out_ns + to.lead_in_ns + self.way_ns(distance - 2));
            }
        }
        self.overhead_ns + way_ns
    }

    fn way_ns(&self, tracks: i64) -> i64 {
        self.tracks_ns[(tracks as usize).min(self.tracks_ns.len() - 1)]
    }
}

/// Least times of the way over 0, 1, 2, ... tracks: by the arm, or from the end of each track to the end of the next one.
///
/// The second way exists because the model regards the head as on the next track as soon as a track has passed. A command in this moment
/// waits for the platter only, and a page at the end of the next track comes after the change of tracks, modulo a turn.
///
/// Two moves of the arm, and the end of a track passed in between, must not take less than one move over all of it. On a concave curve this is so
/// if three tracks take no longer than twice one track. With another curve every way of the arm counts as one track.
fn ways_ns(geometry: &Geometry, curve: &SeekCurve, overhead_ns: i64) -> Vec<i64> {
    let last_track = geometry.tracks() as i64 - 1;
    let arm_ns = |tracks: i64| curve.time_ns(tracks as f64 / last_track.max(1) as f64) as i64;
    let cross_ns = match geometry.change_ns() as i64 % geometry.turn_ns() as i64 {
        0 => geometry.turn_ns() as i64,
        change_ns => change_ns,
    };
    let one_move_is_best = curve.is_concave() && (last_track < 3 || arm_ns(3) <= 2 * arm_ns(1) + overhead_ns);
    let way_ns = |tracks: i64| {
        let rest_ns = (tracks - 1) * cross_ns;
        let by_arm_ns = if one_move_is_best { arm_ns(tracks).min(arm_ns(1) + rest_ns) } else { arm_ns(1) };
        by_arm_ns.min(cross_ns + rest_ns)
    };
    std::iter::once(0).chain((1..=last_track.clamp(1, TABLE_TRACKS)).map(way_ns)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Device, Model, Op, Request};

    fn read(range: Range<u64>) -> Request {
        Request { op: Op::Read, offset_bytes: range.start, length_bytes: range.end - range.start }
    }

    /// Disks with few or many tracks, with and without zones, change of tracks and cost of commands, with usual and unusual seek curves.
    fn disks() -> impl Strategy<Value = (Hdd, u64)> {
        let figures = (
            prop::sample::select(vec![3600.0, 5400.0, 7200.0, 15_000.0, 30_000.0]),
            prop::sample::select(vec![1.0, 4.0, 13.0, 175.0, 600.0]),
            prop::sample::select(vec![1.0, 0.5]),
            prop::sample::select(vec![0.0, 0.1, 0.8, 3.0, 9.0, 16.0]),
            prop::sample::select(vec![0.0, 5.0, 40.0, 380.0, 900.0]),
            prop::sample::select(vec![
                (0.8, 8.5, 14.7),
                (0.1, 1.0, 2.0),
                (0.01, 3.0, 5.4),
                (2.0, 10.0, 22.0),
                (1.0, 8.0, 23.0),
            ]),
            prop::sample::select(vec![1u64 << 21, 8 << 20, 64 << 20, 512 << 20, 4 << 30]),
        );
        figures.prop_filter_map("no such curve", |(rpm, outer, zones, switch_ms, overhead_us, seek, capacity_bytes)| {
            let text = format!(
                "kind = \"hdd\"\nrpm = {rpm}\nouter_mb_per_s = {outer}\ninner_mb_per_s = {}\ntrack_switch_ms = {switch_ms}\n\
                 overhead_us = {overhead_us}\ninterface_mb_per_s = 10000\nseek_track_ms = {}\nseek_average_ms = {}\nseek_full_ms = {}\n",
                outer * zones, seek.0, seek.1, seek.2
            );
            match Model::from_toml(&text).ok()? {
                Model::Hdd(hdd) => Some((hdd, capacity_bytes)),
                _ => None,
            }
        })
    }

    /// A position that is near a place of interest: an end of a range, or the end of a track close to it.
    fn near(platter: &Platter, byte: u64, pages: i64, snap: bool, capacity_bytes: u64) -> u64 {
        let moved = byte.saturating_add_signed(pages * PAGE_BYTES as i64).min(capacity_bytes - PAGE_BYTES);
        let track_end = |mut at: u64| {
            let track = platter.geometry.track(at);
            while at + PAGE_BYTES < capacity_bytes && platter.geometry.track(at + PAGE_BYTES) == track {
                at += PAGE_BYTES;
            }
            at
        };
        let at = if snap { track_end(moved / PAGE_BYTES * PAGE_BYTES) } else { moved };
        (at / PAGE_BYTES * PAGE_BYTES).min((capacity_bytes - PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The head leaves `from` at any page, reads other places or waits, and arrives at any page of `to`.
        #[test]
        fn no_way_of_the_head_takes_less_than_the_move(
            (hdd, capacity_bytes) in disks(),
            places in (0u64..1 << 40, -3000i64..3000, 1u64..40, 1u64..40),
            parts in (0u64..40, 0u64..40),
            between in prop::collection::vec((any::<bool>(), -600i64..600, any::<bool>(), 1u64..400, 0u64..2_000_000), 0..4),
            snap in any::<bool>(),
        ) {
            let platter = Platter::new(&hdd, capacity_bytes);
            let page = |at: u64| at / PAGE_BYTES * PAGE_BYTES;
            let from_start = near(&platter, page(places.0 % capacity_bytes), 0, snap, capacity_bytes);
            let from = from_start..(from_start + places.2 * PAGE_BYTES).min(page(capacity_bytes));
            let to_start = near(&platter, from_start, places.1, false, capacity_bytes);
            let to = to_start..(to_start + places.3 * PAGE_BYTES).min(page(capacity_bytes));
            // The disk reads its first byte without a command.
            let is_apart = from.end <= to.start || to.end <= from.start;
            if from.start == 0 || from.is_empty() || to.is_empty() || !is_apart {
                return Ok(());
            }
            let least_ns = platter.move_ns(&platter.span(&from), &platter.span(&to));

            let mut device = Device::new(&Model::Hdd(hdd), capacity_bytes);
            let leave = from.start + (parts.0 * PAGE_BYTES) % (from.end - from.start) + PAGE_BYTES;
            let left_ns = device.submit(&read(from.start..leave), 0).end_ns;
            let mut now_ns = left_ns;
            for (near_to, pages, snap, length, pause_ns) in between {
                let at = near(&platter, if near_to { to.start } else { leave }, pages, snap, capacity_bytes);
                // Between the moves the head is in neither of them.
                let limits = [from.start, from.end, to.start, to.end, page(capacity_bytes)];
                let next = limits.into_iter().filter(|limit| *limit > at).min().unwrap_or(at);
                let range = at..(at + length * PAGE_BYTES).min(next);
                if range.is_empty() || from.contains(&at) || to.contains(&at) {
                    continue;
                }
                now_ns = device.submit(&read(range), now_ns).end_ns + pause_ns;
            }
            let arrive = to.start + (parts.1 * PAGE_BYTES) % (to.end - to.start);
            let end = arrive + PAGE_BYTES;
            let end_ns = device.submit(&read(arrive..end), now_ns).end_ns;
            // The head passed the page at its end or before it: the drive may have read on.
            let pass_ns = platter.geometry.tau_end_ns(end) - platter.geometry.tau_ns(arrive);
            prop_assert!(
                end_ns + 1 >= left_ns + pass_ns + least_ns as u64,
                "{} ns from {from:?} (left at {leave}) to {to:?} (at {arrive}) but {least_ns}", end_ns - left_ns - pass_ns.min(end_ns - left_ns)
            );
        }
    }
}

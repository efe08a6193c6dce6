//! The position of a byte on the platter, as time.
//!
//! A disk that is read from the first byte to the last without a pause passes byte `b` at the platter time `tau(b)`.
//! This time includes one turn per track, and the change to the next track after each. The tracks are skewed by exactly
//! this change: during it the platter turns to the beginning of the next track. The whole model follows from two facts:
//!
//! - reading from `a` to `b` takes `tau(b) - tau(a)`;
//! - `b` is under a head on its track whenever the time is `tau(b)` modulo one turn.
//!
//! ```text
//!   tau:   |---- turn ----|change|---- turn ----|change|--- ...
//!   bytes: |   track 0    |      |   track 1    |      |
//! ```
//!
//! Outer tracks are longer than inner ones. The stroke is divided into zones with equal numbers of tracks. The bytes of
//! a track decrease linearly from the first zone (offset 0, outside) to the last.

/// Zones of a disk with slower inner tracks; real disks have 15 to 30.
const ZONES: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    first_byte: u64,
    first_track: u64,
    first_tau_ns: u64,
    track_bytes: u64,
}

/// The tracks of a disk.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    zones: [Zone; ZONES],
    zone_count: usize,
    tracks: u64,
    turn_ns: u64,
    /// One turn and the change to the next track.
    pitch_ns: u64,
}

impl Geometry {
    /// Tracks for `capacity_bytes` at the given sustained rates in bytes per second; the rates include the change of
    /// tracks.
    pub(crate) fn new(capacity_bytes: u64, outer: f64, inner: f64, turn_ns: u64, change_ns: u64) -> Geometry {
        let pitch_ns = turn_ns + change_ns;
        let zone_count = if inner < outer { ZONES } else { 1 };
        let track_bytes = |zone: usize| {
            let inward = if zone_count == 1 { 0.0 } else { zone as f64 / (zone_count - 1) as f64 };
            let rate = outer + (inner - outer) * inward;
            ((rate * pitch_ns as f64 / 1e9) as u64).max(1)
        };
        let bytes_of_one_track_each: u64 = (0..zone_count).map(track_bytes).sum();
        let tracks_per_zone = capacity_bytes.div_ceil(bytes_of_one_track_each).max(1);
        let mut zones = [Zone::default(); ZONES];
        let mut next = Zone::default();
        for (index, zone) in zones.iter_mut().enumerate().take(zone_count) {
            next.track_bytes = track_bytes(index);
            *zone = next;
            next.first_byte += tracks_per_zone * next.track_bytes;
            next.first_track += tracks_per_zone;
            next.first_tau_ns += tracks_per_zone * pitch_ns;
        }
        Geometry { zones, zone_count, tracks: tracks_per_zone * zone_count as u64, turn_ns, pitch_ns }
    }

    fn zone_of_byte(&self, byte: u64) -> &Zone {
        let after = self.zones[..self.zone_count].partition_point(|zone| zone.first_byte <= byte);
        &self.zones[after - 1]
    }

    pub(crate) fn tracks(&self) -> u64 {
        self.tracks
    }

    /// One turn of the platter.
    pub(crate) fn turn_ns(&self) -> u64 {
        self.turn_ns
    }

    /// Platter time at which `byte` begins to pass under the head.
    pub(crate) fn tau_ns(&self, byte: u64) -> u64 {
        let zone = self.zone_of_byte(byte);
        let in_zone = byte - zone.first_byte;
        let (track, in_track) = (in_zone / zone.track_bytes, in_zone % zone.track_bytes);
        zone.first_tau_ns + track * self.pitch_ns + in_track * self.turn_ns / zone.track_bytes
    }

    /// Platter time at which all bytes below `end` have passed, without the change of tracks after them.
    pub(crate) fn tau_end_ns(&self, end: u64) -> u64 {
        if end == 0 {
            return 0;
        }
        let zone = self.zone_of_byte(end - 1);
        let in_zone = end - 1 - zone.first_byte;
        let (track, in_track) = (in_zone / zone.track_bytes, in_zone % zone.track_bytes + 1);
        zone.first_tau_ns + track * self.pitch_ns + (in_track * self.turn_ns).div_ceil(zone.track_bytes)
    }

    /// The track of `byte`.
    pub(crate) fn track(&self, byte: u64) -> u64 {
        let zone = self.zone_of_byte(byte);
        zone.first_track + (byte - zone.first_byte) / zone.track_bytes
    }

    /// Platter times between which the track of `byte` passes, without the change to the next one.
    pub(crate) fn track_span_ns(&self, byte: u64) -> (u64, u64) {
        let zone = self.zone_of_byte(byte);
        let start_ns = zone.first_tau_ns + (byte - zone.first_byte) / zone.track_bytes * self.pitch_ns;
        (start_ns, start_ns + self.turn_ns)
    }
    /// The change to the next track.
    pub(crate) fn change_ns(&self) -> u64 {
        self.pitch_ns - self.turn_ns
    }

    /// Number of bytes that have passed completely by platter time `tau_ns`.
    pub(crate) fn bytes_passed(&self, tau_ns: u64) -> u64 {
        let after = self.zones[..self.zone_count].partition_point(|zone| zone.first_tau_ns <= tau_ns);
        let zone = &self.zones[after - 1];
        let in_zone_ns = tau_ns - zone.first_tau_ns;
        let (track, in_track_ns) = (in_zone_ns / self.pitch_ns, (in_zone_ns % self.pitch_ns).min(self.turn_ns));
        zone.first_byte + track * zone.track_bytes + in_track_ns * zone.track_bytes / self.turn_ns
    }

    /// The first time from `from_ns` on at which `byte` is under a head on its track.
    pub(crate) fn comes_round_ns(&self, byte: u64, from_ns: u64) -> u64 {
        let angle_ns = self.tau_ns(byte) % self.turn_ns;
        from_ns + (angle_ns + self.turn_ns - from_ns % self.turn_ns) % self.turn_ns
    }
}

/// The time of the arm for a part of the stroke, through the three figures of a data sheet. It is `a + b·√f` up to a
/// third of the stroke (accelerate, brake), and linear beyond (coast).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeekCurve {
    track_ns: f64,
    root_ns: f64,
    knee_ns: f64,
    coast_ns: f64,
}

/// Where the arm stops accelerating, as a share of the stroke. Disk models usually choose a third, the mean distance
/// between two random positions.
const KNEE: f64 = 1.0 / 3.0;

impl SeekCurve {
    /// The curve with these times for a single track, the mean over all pairs of positions, and the full stroke.
    /// `None`: no curve through them rises everywhere.
    pub(crate) fn fit(track_ns: f64, average_ns: f64, full_ns: f64) -> Option<SeekCurve> {
        // A distance f between two random positions has the density 2(1-f). The mean has two parts: a + b·√f up to the
        // knee k, and the line from s = a + b·√k to the full stroke beyond it. The mean is linear in b:
        //   average = a(1-v) + b(q + √k(w-v)) + full·v
        let beyond = 1.0 - KNEE;
        let q = 2.0 * KNEE * KNEE.sqrt() * (2.0 / 3.0 - KNEE * 2.0 / 5.0);
        let w = beyond * beyond;
        let v = beyond * beyond / 3.0;
        let root_ns = (average_ns - track_ns * (1.0 - v) - full_ns * v) / (q + KNEE.sqrt() * (w - v));
        let knee_ns = track_ns + root_ns * KNEE.sqrt();
        let rises = root_ns >= 0.0 && full_ns >= knee_ns;
        rises.then_some(SeekCurve { track_ns, root_ns, knee_ns, coast_ns: full_ns - knee_ns })
    }

    /// Time for `share` (0 to 1) of the stroke; 0 takes no time.
    pub(crate) fn time_ns(&self, share: f64) -> u64 {
        let time_ns = if share <= 0.0 {
            0.0
        } else if share <= KNEE {
            self.track_ns + self.root_ns * share.sqrt()
        } else {
            self.knee_ns + self.coast_ns * (share - KNEE) / (1.0 - KNEE)
        };
        time_ns as u64
    }

    /// Whether each further part of the stroke takes no longer than the part before it.
    pub(crate) fn is_concave(&self) -> bool {
        self.root_ns / (2.0 * KNEE.sqrt()) >= self.coast_ns / (1.0 - KNEE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(4 << 30, 175e6, 83e6, 8_333_333, 800_000)
    }

    #[test]
    fn zones_cover_the_disk_and_fall_inwards() {
        let geometry = geometry();
        let (first, last) = (geometry.zones[0], geometry.zones[ZONES - 1]);
        assert!(first.track_bytes > 2 * last.track_bytes);
        assert!(last.first_byte < 4 << 30);
        assert!(geometry.track((4 << 30) - 1) < geometry.tracks());
        assert_eq!(first.track_bytes, 1_598_333, "175 MB/s for a turn and a change of tracks");
    }

    #[test]
    fn seek_curve_passes_through_its_three_figures() {
        let curve = SeekCurve::fit(0.8e6, 8.5e6, 14.7e6).unwrap();
        let steps = 100_000;
        let mean_ns: f64 = (1..=steps)
            .map(|step| f64::from(step) / f64::from(steps))
            .map(|share| curve.time_ns(share) as f64 * 2.0 * (1.0 - share) / f64::from(steps))
            .sum();
        assert!((mean_ns - 8.5e6).abs() < 10_000.0, "{mean_ns}");
        assert_eq!(curve.time_ns(1.0), 14_700_000);
        assert_eq!(curve.time_ns(0.0), 0);
        assert!((800_000..900_000).contains(&curve.time_ns(1e-5)));
    }

    #[test]
    fn impossible_seek_figures_have_no_curve() {
        assert!(SeekCurve::fit(9e6, 5e6, 10e6).is_none());
        assert!(SeekCurve::fit(1e6, 9e6, 9.1e6).is_none());
    }

    proptest! {
        #[test]
        fn later_bytes_pass_later_and_their_time_gives_the_byte(byte in 0u64..4 << 30, more in 1u64..100 << 20) {
            let geometry = geometry();
            let end = (byte + more).min(4 << 30);
            prop_assert!(geometry.tau_ns(byte) < geometry.tau_end_ns(end));
            prop_assert!(geometry.tau_end_ns(byte) <= geometry.tau_end_ns(end));
            let passed = geometry.bytes_passed(geometry.tau_end_ns(end));
            prop_assert!((end..=end + 1).contains(&passed), "{passed} for {end}");
        }

        #[test]
        fn every_byte_passes_within_a_turn(byte in 0u64..4 << 30, from_ns in 0u64..1 << 60) {
            let geometry = geometry();
            let at_ns = geometry.comes_round_ns(byte, from_ns);
            prop_assert!(at_ns >= from_ns && at_ns < from_ns + geometry.turn_ns);
            prop_assert_eq!(at_ns % geometry.turn_ns, geometry.tau_ns(byte) % geometry.turn_ns);
        }

        #[test]
        fn longer_seek_never_takes_less_time(near in 0.0f64..1.0, far in 0.0f64..1.0) {
            let curve = SeekCurve::fit(0.8e6, 8.5e6, 14.7e6).unwrap();
            prop_assert!(curve.time_ns(near.min(far)) <= curve.time_ns(near.max(far)));
        }
    }
}

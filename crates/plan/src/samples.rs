//! Sample reads that show the device's access time. They are moved to the front of a plan and timed before the other steps.
//!
//! ```text
//!     steps    a b c d e f g h …                far apart, and short
//!                  ▲     ▲   ▲
//!     after    c f h a b d e g …                the counts of leading steps still end behind the same steps
//! ```

use crate::{Plan, Span, Step};

/// Minimum distance: closer reads may hit the buffer of a drive that reads ahead. Two tracks of a large disk, bytes.
const APART_BYTES: u64 = 8 << 20;

/// Maximum length: the time of a longer read is mostly transfer, bytes.
const LONGEST_BYTES: u64 = 128 << 10;

impl Plan {
    /// Moves `count` short reads that are far apart to the front, and returns true. If there are fewer, changes nothing and returns
    /// false. `places`: takes only reads with known places on the disk, because the disk seeks.
    pub fn bring_samples_forward(&mut self, count: usize, places: bool) -> bool {
        let chosen = self.samples(count, places);
        if chosen.len() < count {
            return false;
        }
        for (to, from) in chosen.into_iter().enumerate() {
            self.steps[to..=from].rotate_right(1);
            let counts = [&mut self.metadata_steps, &mut self.first_window_steps, &mut self.head_start_steps];
            // A count of 0 has no last step and stays 0. `usual_steps` includes all samples already.
            counts.into_iter().filter(|count| (1..=from).contains(*count)).for_each(|count| *count += 1);
        }
        true
    }

    fn samples(&self, count: usize, places: bool) -> Vec<usize> {
        let mut before: Option<&Span> = None;
        let mut chosen = Vec::new();
        for (index, step) in self.steps[..self.usual_steps].iter().enumerate() {
            let Step::Fetch(span) = step else { continue };
            let whole = span.whole();
            let is_placed = !places || span.physical_bytes.is_some();
            if is_placed
                && whole.end - whole.start <= LONGEST_BYTES
                && before.is_none_or(|before| are_apart(before, span))
            {
                chosen.push(index);
                before = Some(span);
            }
            if chosen.len() == count {
                break;
            }
        }
        chosen
    }
}

fn are_apart(one: &Span, other: &Span) -> bool {
    match (one.physical_bytes, other.physical_bytes) {
        (Some(one), Some(other)) => one.abs_diff(other) >= APART_BYTES,
        _ => one.source != other.source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Piece, Source::File};
    use crate::{Source, plan};
    use ahead_model::DeviceDescription;

    fn planned(device: &DeviceDescription, apart: u64) -> Plan {
        let piece = |index: u64| {
            let source = if index < 4 { Source::Metadata(index as usize) } else { File(index as usize) };
            let physical_bytes = Some((index + 1) * apart);
            Piece { source, range: 0..8192, late: false, first_use_us: 40 - index, physical_bytes }
        };
        plan((0..40).map(piece).collect(), Vec::new(), device, None, u64::MAX)
    }

    #[test]
    fn samples_come_first_and_nothing_is_lost() {
        for device in [DeviceDescription::ROTATING, DeviceDescription::FLASH] {
            let before = planned(&device, 3 << 20);
            let mut after = before.clone();
            assert!(after.bring_samples_forward(7, true));
            assert_ne!(before.steps, after.steps);
            let count = |plan: &Plan, step| plan.steps.iter().filter(|other| *other == step).count();
            assert!(
                before.steps.iter().all(|step| count(&after, step) == 1) && after.steps.len() == before.steps.len()
            );
            // Each count of leading steps still includes the same steps.
            for (was, is) in
                [(before.metadata_steps, after.metadata_steps), (before.head_start_steps, after.head_start_steps)]
            {
                assert!(before.steps[..was].iter().all(|step| after.steps[..is].contains(step)));
                assert!((was == 0) == (is == 0) && is <= after.steps.len());
            }
        }
    }

    #[test]
    fn plan_without_enough_of_them_stays_as_it_is() {
        let before = planned(&DeviceDescription::ROTATING, 1 << 20);
        let mut after = before.clone();
        assert!(!after.bring_samples_forward(7, true));
        assert_eq!(before, after);
    }
}

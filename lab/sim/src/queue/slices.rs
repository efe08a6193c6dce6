//! Time slices: whose requests go to the disk, as CFQ shares it out between processes.
//!
//! ```text
//!     reader A   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓░ idle: its next read comes soon ░▓▓▓▓│ end of slice
//!     reader B                                                       │▓▓▓▓▓▓▓▓▓▓ …
//! ```
//!
//! A process whose slice it is has the disk to itself, by place, until the slice ends or it asks for nothing for as
//! long as the disk is kept idle for it. The slice begins with its first read that is done, so the way of the arm is
//! not in it. When many share the disk, slices are so short that each has a turn within the target latency, but not
//! below two idle times.
//!
//! While other processes wait, the queue is not plugged, and a process that waits for a page does not unplug it:
//! what its reader has requested ahead goes to the disk only when the request before it is done, and arrives there
//! some time later (`Queue::with_turnaround`). A single reader unplugs the queue when it waits: its next window is
//! at the disk already (`__make_request`, `__generic_unplug_device` of 2.6.33, block/blk-core.c).
//!
//! The file that a process reads identifies the process. Writes go when no process reads. Not modelled: priorities,
//! groups, seeky processes that get no idle time, requests of several processes that lie close together.
//!
//! Source: block/cfq-iosched.c of 2.6.33 to 5.0 (`cfq_select_queue`, `cfq_arm_slice_timer`, `cfq_scaled_cfqq_slice`).

use ahead_policy::FileId;
use std::collections::VecDeque;

/// A slice where few share the disk (`slice_sync`, HZ / 10), nanoseconds.
const SLICE_NS: u64 = 100_000_000;
/// The disk is kept idle so long for the next read (`slice_idle`, HZ / 125), nanoseconds.
const IDLE_NS: u64 = 8_000_000;
/// Within this everybody is to have had a turn (`target_latency`, HZ * 3 / 10), nanoseconds.
const TARGET_NS: u64 = 300_000_000;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Slices {
    active: Option<FileId>,
    /// `None`: none of its reads is done yet.
    ends_ns: Option<u64>,
    /// Kept idle for the active one until then.
    idle_until_ns: Option<u64>,
    /// Who waits for a turn, the longest first.
    order: VecDeque<FileId>,
}

/// Length of a slice when `busy` processes share the disk.
fn slice_ns(busy: usize) -> u64 {
    let all_ns = SLICE_NS * busy.max(1) as u64;
    if all_ns > TARGET_NS { (SLICE_NS * TARGET_NS / all_ns).max(2 * IDLE_NS) } else { SLICE_NS }
}

impl Slices {
    /// The process that goes next, of those that wait, oldest first; `None`: no process waits, or the disk is kept
    /// idle.
    pub(super) fn next(&mut self, waiting: &[FileId], now_ns: u64) -> Option<FileId> {
        self.order.retain(|who| waiting.contains(who));
        let newcomers = waiting.iter().filter(|who| self.active != Some(**who) && !self.order.contains(who));
        let newcomers: Vec<FileId> = newcomers.copied().collect();
        self.order.extend(newcomers);
        if let Some(active) = self.active {
            let lasts = self.ends_ns.is_none_or(|ends_ns| now_ns < ends_ns);
            if lasts && waiting.contains(&active) {
                self.idle_until_ns = None;
                return Some(active);
            }
            if lasts && now_ns < *self.idle_until_ns.get_or_insert(now_ns + IDLE_NS) {
                return None;
            }
            if waiting.contains(&active) {
                self.order.push_back(active);
            }
            (self.active, self.idle_until_ns) = (None, None);
        }
        let next = self.order.pop_front()?;
        (self.active, self.ends_ns) = (Some(next), None);
        Some(next)
    }

    /// A read is done; `waiting`: who waits then.
    pub(super) fn done(&mut self, file: FileId, waiting: &[FileId], at_ns: u64) {
        if self.active == Some(file) && self.ends_ns.is_none() {
            let busy = waiting.len() + usize::from(!waiting.contains(&file));
            self.ends_ns = Some(at_ns + slice_ns(busy));
        }
    }

    /// Until when the disk is kept idle.
    pub(super) fn idle_until_ns(&self) -> Option<u64> {
        self.idle_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    #[test]
    fn a_slice_ends_and_the_next_one_begins_with_a_read_that_is_done() {
        let mut slices = Slices::default();
        assert_eq!(slices.next(&[A, B], 0), Some(A));
        // The arm took a second; the slice begins only then.
        slices.done(A, &[A, B], 1_000_000_000);
        assert_eq!(slices.next(&[B, A], 1_099_999_999), Some(A));
        assert_eq!(slices.next(&[B, A], 1_100_000_000), Some(B));
        slices.done(B, &[A, B], 1_200_000_000);
        assert_eq!(slices.next(&[A, B], 1_300_000_000), Some(A));
    }

    #[test]
    fn the_disk_is_kept_idle_for_the_next_read_up_to_a_limit() {
        let mut slices = Slices::default();
        assert_eq!(slices.next(&[A], 0), Some(A));
        slices.done(A, &[B], 10);
        assert_eq!(slices.next(&[B], 10), None);
        assert_eq!(slices.idle_until_ns(), Some(10 + IDLE_NS));
        assert_eq!(slices.next(&[B, A], 20), Some(A));
        assert_eq!(slices.idle_until_ns(), None);
        assert_eq!(slices.next(&[B], 30), None);
        assert_eq!(slices.next(&[B], 30 + IDLE_NS), Some(B));
    }

    #[test]
    fn many_get_shorter_slices_down_to_two_idle_times() {
        let ms = |busy| slice_ns(busy) / 1_000_000;
        assert_eq!([1, 3, 4, 16, 100].map(ms), [100, 100, 75, 18, 16]);
    }
}

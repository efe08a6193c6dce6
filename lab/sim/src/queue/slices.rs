//! Time slices: how CFQ divides the disk between processes.
//!
//! ```text
//!     reader A   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓░ idle: its next read comes soon ░▓▓▓▓│ end of slice
//!     reader B                                                       │▓▓▓▓▓▓▓▓▓▓ …
//! ```
//!
//! The process that has the slice uses the disk alone, by place. The slice ends after its time, or when the process
//! requests nothing during the idle time. The slice begins when the first read of the process completes, so it excludes
//! the seek. With many processes the slices are shorter, so that each has a turn within the target latency, but not
//! below two idle times.
//!
//! While other processes wait, the queue is not plugged, and a process that waits for a page does not unplug it. Its
//! read-ahead requests go to the disk only when the previous request has completed. They reach the disk some time later
//! (`Queue::with_turnaround`). A single reader unplugs the queue when it waits: its next window is already at the disk
//! (`__make_request`, `__generic_unplug_device` of 2.6.33, block/blk-core.c).
//!
//! The file that a process reads identifies the process. Writes are served when no process reads. Not modelled:
//! priorities, groups, seeky processes that get no idle time, close requests of several processes.
//!
//! Source: block/cfq-iosched.c of 2.6.33 to 5.0 (`cfq_select_queue`, `cfq_arm_slice_timer`, `cfq_scaled_cfqq_slice`).

use ahead_policy::FileId;
use std::collections::VecDeque;

/// Length of a slice when few processes share the disk (`slice_sync`, HZ / 10), nanoseconds.
const SLICE_NS: u64 = 100_000_000;
/// Time that the disk idles for the next read (`slice_idle`, HZ / 125), nanoseconds.
const IDLE_NS: u64 = 8_000_000;
/// Time within which every process gets a turn (`target_latency`, HZ * 3 / 10), nanoseconds.
const TARGET_NS: u64 = 300_000_000;

/// The state of the turns.
#[derive(Debug, Default)]
pub(super) struct Slices {
    active: Option<FileId>,
    /// `None`: no read of the active process has completed.
    ends_ns: Option<u64>,
    /// End of the idle time for the active process.
    idle_until_ns: Option<u64>,
    /// Processes that wait for a turn, the longest wait first.
    order: VecDeque<FileId>,
}

/// Length of a slice when `busy` processes share the disk.
fn slice_ns(busy: usize) -> u64 {
    let all_ns = SLICE_NS * busy.max(1) as u64;
    if all_ns > TARGET_NS { (SLICE_NS * TARGET_NS / all_ns).max(2 * IDLE_NS) } else { SLICE_NS }
}

impl Slices {
    /// The process to serve next, out of `waiting` (oldest first). `None`: no process waits, or the disk idles.
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

    /// Records that a read has completed; `waiting`: the processes that wait then.
    pub(super) fn done(&mut self, file: FileId, waiting: &[FileId], at_ns: u64) {
        if self.active == Some(file) && self.ends_ns.is_none() {
            let busy = waiting.len() + usize::from(!waiting.contains(&file));
            self.ends_ns = Some(at_ns + slice_ns(busy));
        }
    }

    /// The end of the current idle time.
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
    fn slice_begins_with_a_completed_read_and_ends_in_time() {
        let mut slices = Slices::default();
        assert_eq!(slices.next(&[A, B], 0), Some(A));
        // The seek took a second; the slice begins only then.
        slices.done(A, &[A, B], 1_000_000_000);
        assert_eq!(slices.next(&[B, A], 1_099_999_999), Some(A));
        assert_eq!(slices.next(&[B, A], 1_100_000_000), Some(B));
        slices.done(B, &[A, B], 1_200_000_000);
        assert_eq!(slices.next(&[A, B], 1_300_000_000), Some(A));
    }

    #[test]
    fn disk_idles_for_the_next_read_up_to_a_limit() {
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
    fn many_processes_get_shorter_slices_down_to_two_idle_times() {
        let ms = |busy| slice_ns(busy) / 1_000_000;
        assert_eq!([1, 3, 4, 16, 100].map(ms), [100, 100, 75, 18, 16]);
    }
}

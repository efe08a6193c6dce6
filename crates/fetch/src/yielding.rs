//! Lets other programs read a disk first: a request is made while none of them reads there.
//!
//! ```text
//!     own        ███       ███    · · · paused · · ·     ███
//!     others           (none)  ▒▒▒ ▒▒▒▒ ▒▒                     ▒▒▒
//!     in flight  1 1 1 0   1 1 1 1 1 0 1 1 0 0 0 0 0     1 1 1 …
//!                      ╰ go    ╰ longer than an own request takes, or reads that are not ours: paused
//!                                          ╰───── quiet for PAUSE × an own request: go
//! ```
//!
//! The kernel counts what each disk and each process reads. What a disk has delivered beyond what this process asked for, others have read. While own
//! requests are in flight that is not known, so they go in bursts, and the next burst begins when nothing is in flight. What is in flight for longer
//! than a burst takes is read by others, too. They wait for one burst at most. As a pause is [`PAUSE`] times as long as a burst, that delays a reader
//! that begins again after each pause by less than a tenth. A disk that never becomes quiet gets a burst each [`LONGEST_PAUSE`].

use crate::before_request::BeforeRequest;
use ahead_model::DeviceNumber;
use ahead_sys::locks::IgnorePoison;
use ahead_sys::{diskstats, usage};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A pause in bursts. On a disk that seeks, a burst costs another reader up to two positionings: its own, and the way back.
const PAUSE: u32 = 20;

/// The shortest pause: programs compute for some milliseconds between reads.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// After this time there is a burst on a disk that others read without a gap. Otherwise a backup would hold up a prefetch for hours. One burst a
/// second takes one to two percent of a disk that seeks.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is in flight for this many times as long as a burst usually takes is read by others.
const PATIENCE: u32 = 3;

/// The same before the first burst has ended: a request of a rotating disk with a full queue.
const FIRST_PATIENCE: Duration = Duration::from_millis(100);

/// The most requests of a burst. A disk that serves requests in parallel answers as many in the time of one.
const MOST_OF_BURST: u32 = 16;

/// A burst may take this much longer than the shortest one, in percent, and the next one is larger.
const PARALLEL_PERCENT: u32 = 150;

/// After a burst that was too large, this many do not grow.
const BETWEEN_TRIALS: u32 = 16;

/// Bounds of the time between two looks at a disk, which read two small files of sysfs each.
const LOOKS: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// Looks in a pause: it becomes longer by one interval at most. A look costs 20 µs, and a paused prefetch should cost no processor time.
const LOOKS_OF_PAUSE: u32 = 8;

/// Disks that are looked at. On further ones, others do not go first.
const MOST_DISKS: usize = 64;

/// What the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    /// Reads of the disk, anyone's.
    in_flight: u64,
    /// Bytes that the disk has delivered.
    disk_bytes: u64,
    /// Bytes that this process has asked any disk for.
    own_bytes: u64,
}

impl Counts {
    /// Bytes that others have read, up to a constant, if nothing is in flight: what this process read of other disks makes it too small.
    fn others_bytes(self) -> i64 {
        self.disk_bytes.wrapping_sub(self.own_bytes) as i64
    }
}

/// Whether a request may be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    Go,
    /// Look again after this time.
    Wait(Duration),
}

/// When requests are made on one disk: counts and times come in, turns go out.
#[derive(Debug, Default)]
struct BurstPace {
    /// Begin of the burst of which the end was not seen yet, and its requests.
    burst: Option<(Instant, u32)>,
    /// The most requests of a burst now; 0: as one.
    most: u32,
    /// Bursts until a larger one is tried.
    until_larger: u32,
    /// How long bursts took: the longest of late, and the shortest of all.
    longest: Option<Duration>,
    shortest: Option<Duration>,
    /// The counts when nothing was in flight.
    quiet: Option<Counts>,
    /// Since when there is a pause, and when others were last seen.
    paused: Option<(Instant, Instant)>,
}

impl BurstPace {
    /// Decides on a request. [`Permission::Go`]: it is made now.
    fn ask(&mut self, now: Instant, counts: Counts) -> Permission {
        let turn = self.look(now, counts);
        if turn == Permission::Go {
            self.paused = None;
            self.burst = Some(self.burst.map_or((now, 1), |(began, requests)| (began, requests + 1)));
        }
        turn
    }

    /// The same, without a request.
    fn look(&mut self, now: Instant, counts: Counts) -> Permission {
        if self.paused.is_none()
            && let Some((began, requests)) = self.burst
            && requests < self.most
            && now.saturating_duration_since(began) < self.longest.unwrap_or_default()
        {
            return Permission::Go;
        }
        if counts.in_flight > 0 {
            match self.burst {
                Some((began, _)) if now.saturating_duration_since(began) < self.patience() => {
                    return Permission::Wait(self.until_next_look());
                }
                _ => self.see_others(now),
            }
        } else {
            self.take_quiet(now, counts);
        }
        let Some((since, seen)) = self.paused else { return Permission::Go };
        let left = self.pause().saturating_sub(now.saturating_duration_since(seen));
        let longest = LONGEST_PAUSE.saturating_sub(now.saturating_duration_since(since));
        match left.min(longest) {
            Duration::ZERO => Permission::Go,
            left => Permission::Wait(left.min(self.pause() / LOOKS_OF_PAUSE)),
        }
    }

    /// Nothing is in flight.
    fn take_quiet(&mut self, now: Instant, counts: Counts) {
        let before = self.quiet.replace(counts).unwrap_or(counts);
        let burst = self.burst.take();
        if counts.others_bytes() > before.others_bytes() {
            return self.see_others(now);
        }
        // If nothing was read, all of its pages were resident.
        if let Some((began, requests)) = burst.filter(|_| counts.disk_bytes != before.disk_bytes) {
            self.end_burst(now.saturating_duration_since(began), requests);
        }
    }

    fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    fn see_others(&mut self, now: Instant) {
        self.burst = None;
        self.most = 1;
        self.paused = Some((self.paused.map_or(now, |(since, _)| since), now));
    }

    fn end_burst(&mut self, took: Duration, requests: u32) {
        // Lengths and distances differ: one short request must not make the next one look like that of others.
        self.longest = Some(self.longest.map_or(took, |longest| took.max(longest * 7 / 8)));
        let shortest = self.shortest.map_or(took, |shortest| shortest.min(took));
        self.shortest = Some(shortest);
        self.until_larger = self.until_larger.saturating_sub(1);
        if took > shortest * PARALLEL_PERCENT / 100 {
            (self.most, self.until_larger) = ((requests / 2).max(1), BETWEEN_TRIALS);
        } else if self.until_larger == 0 {
            self.most = (requests * 2).clamp(1, MOST_OF_BURST);
        }
    }

    fn patience(&self) -> Duration {
        self.longest.map_or(FIRST_PATIENCE, |longest| (longest * PATIENCE).max(LOOKS.1))
    }

    fn pause(&self) -> Duration {
        (self.longest.unwrap_or_default() * PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    fn until_next_look(&self) -> Duration {
        (self.longest.unwrap_or_default() / 4).clamp(LOOKS.0, LOOKS.1)
    }
}

/// The disk of a device, and its turns.
#[derive(Debug)]
struct YieldedDisk {
    number: DeviceNumber,
    pace: Mutex<SharedPace>,
}

/// The pace of all threads that ask for the same disk.
#[derive(Debug, Default)]
struct SharedPace {
    pace: BurstPace,
    /// Until then the last answer holds: one thread looks for all.
    next_look: Option<Instant>,
}

impl YieldedDisk {
    /// `None`: the kernel counts no reads of it (a network or FUSE file system).
    fn of(device: DeviceNumber) -> Option<YieldedDisk> {
        let (number, _) = diskstats::place_on_disk(device).ok()?;
        diskstats::reads_in_flight(number).ok()?;
        Some(YieldedDisk { number, pace: Mutex::default() })
    }

    /// Whether a request may be made now, which is made then if `asks`. `None`: the disk has vanished.
    fn permission(&self, asks: bool) -> Option<(Permission, bool)> {
        let mut shared = self.pace.lock().ignore_poison();
        let now = Instant::now();
        let left = shared.next_look.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let permission = if left.is_zero() {
            let counts = self.counts()?;
            if asks { shared.pace.ask(now, counts) } else { shared.pace.look(now, counts) }
        } else {
            Permission::Wait(left)
        };
        shared.next_look = match permission {
            Permission::Go => None,
            Permission::Wait(time) => Some(now + time),
        };
        Some((permission, shared.pace.is_paused()))
    }

    /// `None`: the disk has vanished.
    fn counts(&self) -> Option<Counts> {
        // What ends or is asked for between these calls makes others' share smaller, not larger.
        let disk_bytes = diskstats::reads(self.number).ok()?.bytes;
        let in_flight = diskstats::reads_in_flight(self.number).ok()?;
        Some(Counts { in_flight, disk_bytes, own_bytes: usage::own_read_bytes() })
    }
}

/// Has requests wait while others read the same disk: `set_before_request(YieldToReaders::default())`.
///
/// Devices without counts (network and FUSE file systems, file systems on several disks) get their requests at once.
#[derive(Debug, Default)]
pub struct YieldToReaders {
    /// `None`: without counts.
    disks: Mutex<BTreeMap<DeviceNumber, Option<Arc<YieldedDisk>>>>,
}

impl YieldToReaders {
    fn disk_of(&self, device: DeviceNumber) -> Option<Arc<YieldedDisk>> {
        let mut disks = self.disks.lock().ignore_poison();
        if disks.len() >= MOST_DISKS && !disks.contains_key(&device) {
            return None;
        }
        disks.entry(device).or_insert_with(|| YieldedDisk::of(device).map(Arc::new)).clone()
    }
}

impl BeforeRequest for YieldToReaders {
    fn wait(&self, device: DeviceNumber) {
        let Some(disk) = self.disk_of(device) else { return };
        // The kernel does not tell when a disk becomes quiet.
        while let Some((Permission::Wait(time), _)) = disk.permission(true) {
            std::thread::sleep(time);
        }
    }

    fn is_paused(&self, device: DeviceNumber) -> bool {
        let permission = self.disk_of(device).and_then(|disk| disk.permission(false));
        matches!(permission, Some((Permission::Wait(_), true)))
    }
}

#[cfg(test)]
mod tests;

//! Requests a whole region, group after group, in the background (`WillNeed`). Belongs to the helper thread.
//!
//! ```text
//!     ├ arrived ┤├── requested, at most 8 MiB ──┤├ not yet ...
//! ```
//!
//! More requests at a time would fill the queue of the device, and reads of programs would wait behind them.

use crate::advise::region::Region;
use ahead_sys::Result;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requested and not arrived, bytes: 8 ms at 1 GB/s, more than the latency of network disks.
const IN_FLIGHT_BYTES: u64 = 8 << 20;

/// Size of a group if none is given, bytes: the usual limit of one request to a disk.
const GROUP_BYTES: u64 = 1 << 20;

/// Pages that have not arrived after this time were dropped or evicted: they are requested again, once.
const ARRIVES_WITHIN: Duration = Duration::from_secs(1);

/// Shortest and longest time until the next look.
const INTERVALS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

#[derive(Debug)]
struct Group {
    pages: Range<u64>,
    since: Instant,
    is_repeated: bool,
}

/// Requests one region.
#[derive(Debug)]
pub struct Fetcher {
    region: Arc<Region>,
    group_pages: u64,
    next: u64,
    end: u64,
    in_flight: VecDeque<Group>,
    interval: Duration,
}

impl Fetcher {
    /// `group_pages`: 0 chooses; larger than [`IN_FLIGHT_BYTES`] is as large. `limit_bytes`: no more is requested.
    pub fn new(region: Arc<Region>, group_pages: u64, limit_bytes: u64) -> Fetcher {
        let page = region.page as u64;
        Fetcher {
            group_pages: if group_pages == 0 { GROUP_BYTES / page } else { group_pages.min(IN_FLIGHT_BYTES / page) }
                .max(1),
            next: 0,
            end: region.pages().min(limit_bytes / page),
            region,
            in_flight: VecDeque::new(),
            interval: INTERVALS.0,
        }
    }

    /// The region that it belongs to.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Requests the next groups. Returns the time until the next look; `None`: all is requested.
    ///
    /// Errors: the region is not mapped any more.
    pub fn look(&mut self) -> Result<Option<Duration>> {
        let has_arrived = self.retire(Instant::now())?;
        while !self.region.is_stopped() && self.next < self.end && self.has_room() {
            let pages = self.next..self.next.saturating_add(self.group_pages).min(self.end);
            self.region.count_group(false);
            self.region.request(&pages, false)?;
            self.next = pages.end;
            self.in_flight.push_back(Group { pages, since: Instant::now(), is_repeated: false });
        }
        self.region.count_look(self.in_flight_bytes());
        if self.next == self.end && self.in_flight.is_empty() {
            return Ok(None);
        }
        self.interval = if has_arrived { INTERVALS.0 } else { (2 * self.interval).min(INTERVALS.1) };
        Ok(Some(self.interval))
    }

    fn in_flight_bytes(&self) -> u64 {
        self.in_flight.iter().map(|group| (group.pages.end - group.pages.start) * self.region.page as u64).sum()
    }

    fn has_room(&self) -> bool {
        self.in_flight.is_empty() || self.in_flight_bytes() < IN_FLIGHT_BYTES
    }

    /// Removes the groups that have arrived. Whether there were any.
    fn retire(&mut self, now: Instant) -> Result<bool> {
        let mut has_arrived = false;
        while let Some(group) = self.in_flight.front_mut() {
            if now - group.since < ARRIVES_WITHIN {
                // Usually the last page arrives last.
                if self.region.is_absent(group.pages.end - 1)? || !self.region.absent(&group.pages)?.is_empty() {
                    break;
                }
            } else if !group.is_repeated {
                let absent = self.region.absent(&group.pages)?;
                if !absent.is_empty() {
                    (group.since, group.is_repeated) = (now, true);
                    self.region.count_retry();
                    absent.iter().try_for_each(|pages| self.region.request(pages, false))?;
                    break;
                }
            }
            self.in_flight.pop_front();
            has_arrived = true;
        }
        Ok(has_arrived)
    }
}

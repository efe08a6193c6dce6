//! The account of a prefetch: what became of each byte.
//!
//! ```text
//!     used bytes of the profile
//!       = issued - bridged  +  already resident  +  holes  +  stale  +  failed  +  skipped, by reason
//! ```
//!
//! Whether a byte was used, late or wasted is seen from the program's side: `compare` adds that, where it can be observed. Its judgement
//! ([`crate::compare::judge`]) counts issued and bridged bytes again, in whole pages: those that were bridged and used count as used.
//!
//! ```text
//!     issued = used + bridged + wasted
//! ```

use crate::prefetch::progress::ProgressSource;
use ahead_fetch::Stop;
use ahead_model::DeviceDescription;
use ahead_plan::Source;
use ahead_sys::locks::IgnorePoison;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// The reason why bytes were not prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// No file exists at the path, the path leads through a symbolic link now, or the bytes are beyond the file's end.
    Missing,
    /// The file had no name at the end of the recording.
    Deleted,
    /// This process may not open the file, or may not read its block device.
    NotPermitted,
    /// Not a regular file, or on a file system without a page cache. In a profile that `ahead record` made, this means that
    /// another process has replaced the file.
    Refused,
    /// The file system's device is not the recorded one, or not of a kind whose metadata can be prefetched.
    NoDevice,
    /// The limit of open files, of this process or of the machine, was reached, even after closing kept descriptors.
    TooManyOpen,
    /// The budget was used up.
    OverBudget,
    /// Its file system or device did not answer in time.
    NotAnswering,
    /// The deadline had passed.
    Deadline,
    /// The program had ended, or the caller stopped the prefetch.
    Cancelled,
    /// The recorded program waits for its disks for less than a prefetch costs.
    NoWaits,
    /// The window follows the program, which was past them.
    Passed,
    /// The pages of the window were evicted before their use, again and again: memory does not hold what the program uses.
    Evicted,
    /// Another process of the user prefetches this profile of a shared file system on this machine.
    ByOthers,
}

impl From<Stop> for Reason {
    fn from(why: Stop) -> Reason {
        match why {
            Stop::Cancelled => Reason::Cancelled,
            Stop::Deadline => Reason::Deadline,
            Stop::NotAnswering => Reason::NotAnswering,
        }
    }
}

impl Reason {
    /// The name in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Deleted => "deleted",
            Reason::NotPermitted => "not permitted",
            Reason::Refused => "not a plain file",
            Reason::NoDevice => "no such device",
            Reason::TooManyOpen => "too many open files",
            Reason::OverBudget => "over budget",
            Reason::NotAnswering => "not answering",
            Reason::Deadline => "deadline",
            Reason::Cancelled => "cancelled",
            Reason::NoWaits => "costs more than its waits",
            Reason::Passed => "passed",
            Reason::Evicted => "evicted before use",
            Reason::ByOthers => "another process prefetches them",
        }
    }

    /// The name in JSON and in other output for programs.
    pub fn key(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Deleted => "deleted",
            Reason::NotPermitted => "not_permitted",
            Reason::Refused => "refused",
            Reason::NoDevice => "no_device",
            Reason::TooManyOpen => "too_many_open",
            Reason::OverBudget => "over_budget",
            Reason::NotAnswering => "not_answering",
            Reason::Deadline => "deadline",
            Reason::Cancelled => "cancelled",
            Reason::NoWaits => "no_waits",
            Reason::Passed => "passed",
            Reason::Evicted => "evicted",
            Reason::ByOthers => "by_others",
        }
    }
}

/// What a window did that followed the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Following {
    /// The size of the window at the start, bytes.
    pub start_bytes: u64,
    /// The size at the end, bytes.
    pub end_bytes: u64,
    /// The smallest size, bytes.
    pub smallest_bytes: u64,
    /// The largest size, bytes.
    pub largest_bytes: u64,
    /// First uses of files that show progress.
    pub milestones_expected: u64,
    /// Milestones that were seen.
    pub milestones_seen: u64,
    /// Milestones that came after a later one.
    pub milestones_out_of_order: u64,
    /// Milestones that were seen again, as by another process.
    pub milestones_repeated: u64,
    /// Bytes that were found evicted before their use.
    pub evicted_unread_bytes: u64,
    /// Issued used bytes that had been fetched before. They count as issued again.
    pub refetched_bytes: u64,
    /// Where the progress was seen, in this order.
    pub progress: Vec<ProgressSource>,
    /// The source that failed first, and why.
    pub lost: Option<String>,
    /// How long the first read of a disk took that had to spin up.
    pub spun_up_us: Option<u64>,
}

/// Bytes that were not prefetched for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Skipped {
    /// Number of spans.
    pub spans: u64,
    /// Used bytes in them.
    pub bytes: u64,
}

/// A range that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Issued {
    /// The source, as an index into the profile.
    pub source: Source,
    /// The bytes.
    pub range: Range<u64>,
    /// Whether it was read only to join two used ranges.
    pub bridged: bool,
}

/// The order in which a device is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Ascending on the disk, for a device that seeks.
    ByPosition,
    /// In the order of first use, for a device that does not seek.
    ByFirstUse,
}

/// The properties of a device that the plan used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsedDevice {
    /// The order of reads.
    pub order: Order,
    /// Time of one small read anywhere on it, microseconds.
    pub access_us: f64,
    /// Sequential bandwidth, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Requests that it serves at the same time.
    pub parallelism: u32,
    /// Cost of each request, microseconds; 0: unknown, or none.
    pub request_us: f64,
    /// Its device number, `8:1`; `None`: unknown.
    pub device: Option<String>,
    /// The source of these values.
    pub source: DescriptionSource,
    /// The file of the given or saved description, used or discarded.
    pub description_file: Option<String>,
    /// Why the description was discarded; `None`: it was used.
    pub discarded: Option<String>,
}

/// The source of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DescriptionSource {
    /// The user named a file.
    Given,
    /// `ahead probe --save` wrote it.
    Saved,
    /// It was derived from times in the recording.
    Recording,
    /// Default values, by whether the kernel reports a rotating disk.
    Assumed,
}

impl DescriptionSource {
    /// The name in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            DescriptionSource::Given => "given",
            DescriptionSource::Saved => "saved",
            DescriptionSource::Recording => "from the recording",
            DescriptionSource::Assumed => "assumed",
        }
    }
}

impl UsedDevice {
    /// The properties of a description from this source.
    pub fn new(description: &DeviceDescription, source: DescriptionSource) -> UsedDevice {
        UsedDevice {
            order: if description.seeks() { Order::ByPosition } else { Order::ByFirstUse },
            access_us: description.access_us(),
            bandwidth_bytes_per_s: description.bandwidth_bytes_per_s,
            parallelism: description.parallelism,
            request_us: description.request_ns as f64 / 1e3,
            device: None,
            source,
            description_file: None,
            discarded: None,
        }
    }
}

/// The result of a prefetch. Sizes in bytes, times in microseconds since its start. What the JSON of an older version lacks has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Account {
    /// Read-ahead calls.
    pub requests: u64,
    /// Bytes requested from the kernel, including bridged bytes and metadata.
    pub issued_bytes: u64,
    /// Metadata blocks among the issued bytes.
    pub metadata_bytes: u64,
    /// Issued bytes that were read only to join two used ranges.
    pub bridged_bytes: u64,
    /// Issued bytes that are resident as large folios.
    pub large_folio_bytes: u64,
    /// Used bytes that were in the page cache already.
    pub already_resident_bytes: u64,
    /// Used bytes in holes of their files: nothing is read for them.
    pub holes_bytes: u64,
    /// Used bytes whose residency this process may not query. They are issued; the kernel skips resident pages.
    pub residency_unknown_bytes: u64,
    /// Paths looked up for their metadata.
    pub lookups: u64,
    /// Files whose size or modification time differs from the recording.
    pub stale_files: u64,
    /// Used bytes of these files.
    pub stale_bytes: u64,
    /// Used bytes that the kernel refused to read.
    pub failed_bytes: u64,
    /// Issued used bytes that the device could not read. Known only if the prefetch waits for arrival.
    pub unreadable_bytes: u64,
    /// The first error.
    pub first_failure: Option<String>,
    /// Bytes that were not prefetched, by reason.
    pub skipped: BTreeMap<Reason, Skipped>,
    /// A sample of the profile was resident: the program started at once, and the other pages were checked beside it.
    pub looked_warm: bool,
    /// The devices of the profile, with the properties that the plan used.
    pub devices: Vec<UsedDevice>,
    /// When the program was allowed to start.
    pub head_start_us: u64,
    /// When all requests were submitted or given up.
    pub submitted_us: u64,
    /// When all pages had arrived; `None`: the prefetch did not wait for that, or not to the end.
    pub arrived_us: Option<u64>,
    /// When the program had ended, since the start of `ahead run`. `None`: no program was started, or the account was written before its end.
    pub program_us: Option<u64>,
    /// The window that followed the program; `None`: everything was fetched at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Following>,
    /// Of the issued: what the program used. `None`: not judged by [`crate::compare::judge`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Of the issued: neither used nor bridged. `None`: not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wasted_bytes: Option<u64>,
    /// Of the used: asked for before they had arrived. `None`: not observed, or events were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_bytes: Option<u64>,
    /// Events that the observer of late bytes lost. `None`: it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_events: Option<u64>,
    /// Every issued range, in order of issue. Kept with [`crate::prefetch::Options::keep_ranges`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Issued>,
}

/// The account of a prefetch in progress: several threads write it, and a thread that gives up waiting for them reads it.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Account>);

impl Ledger {
    /// Locks the account for reading and writing. A thread that panicked has left no partial entry.
    pub fn open(&self) -> MutexGuard<'_, Account> {
        self.0.lock().ignore_poison()
    }
}

impl Account {
    /// Counts a span that was not prefetched.
    pub fn skip(&mut self, reason: Reason, bytes: u64) {
        let skipped = self.skipped.entry(reason).or_default();
        skipped.spans += 1;
        skipped.bytes = skipped.bytes.saturating_add(bytes);
    }

    /// Counts what of a list is not in its profile.
    pub fn add_left_out(&mut self, left_out: BTreeMap<Reason, Skipped>, holes_bytes: u64) {
        self.holes_bytes += holes_bytes;
        for (reason, left_out) in left_out {
            let skipped = self.skipped.entry(reason).or_default();
            skipped.spans += left_out.spans;
            skipped.bytes = skipped.bytes.saturating_add(left_out.bytes);
        }
    }

    /// Counts used bytes that the kernel refused to read.
    pub fn fail(&mut self, bytes: u64, why: impl ToString) {
        self.failed_bytes += bytes;
        self.first_failure.get_or_insert_with(|| why.to_string());
    }

    /// Issued used bytes. An account from a file may contradict itself.
    pub fn prefetched_bytes(&self) -> u64 {
        self.issued_bytes.saturating_sub(self.bridged_bytes)
    }

    /// Used bytes in this account. After the prefetch these are all used bytes of the profile.
    pub fn accounted_bytes(&self) -> u64 {
        let skipped = self.skipped.values().fold(0u64, |sum, skipped| sum.saturating_add(skipped.bytes));
        let refetched = self.window.as_ref().map_or(0, |window| window.refetched_bytes);
        let fetched = self.prefetched_bytes().saturating_sub(refetched);
        [self.already_resident_bytes, self.holes_bytes, self.stale_bytes, self.failed_bytes, skipped]
            .into_iter()
            .fold(fetched, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_each_reason_is_its_name_in_json() {
        let all = [
            Reason::Missing,
            Reason::Deleted,
            Reason::NotPermitted,
            Reason::Refused,
            Reason::NoDevice,
            Reason::TooManyOpen,
            Reason::OverBudget,
            Reason::NotAnswering,
            Reason::Deadline,
            Reason::Cancelled,
            Reason::NoWaits,
            Reason::Passed,
            Reason::Evicted,
            Reason::ByOthers,
        ];
        for reason in all {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.key());
        }
    }
}

//! What a fetch did, byte by byte.
//!
//! ```text
//!     used bytes of the profile
//!       = issued - bridged  +  already resident  +  stale  +  failed  +  skipped, by reason
//! ```
//!
//! Whether a byte was used, late or wasted is seen from the program's side: `compare` adds that, where it can be observed. Its judgement
//! ([`crate::compare::judge`]) counts issued and bridged bytes again, in whole pages: those that were bridged and used count as used.
//!
//! ```text
//!     issued = used + bridged + wasted
//! ```

use ahead_model::DeviceDescription;
use ahead_plan::Source;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// Why something was not fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No file is at its path any more, or the path leads through a link now; or the bytes lie beyond the file's end.
    Missing,
    /// The file had no name any more when it was recorded.
    Deleted,
    /// This process may not open the file, or not read its block device.
    NotPermitted,
    /// Not a regular file, or on a file system without a page cache. In a profile that `ahead record` made, this means that
    /// another process has replaced the file.
    Refused,
    /// The file system's device is not the one that was recorded, or not of a kind whose metadata can be fetched.
    NoDevice,
    /// The limit of open files, of this process or of the machine, was reached, even after closing kept descriptors.
    TooManyOpen,
    /// The budget was smaller.
    OverBudget,
    /// Its file system or device has not answered for too long.
    NotAnswering,
    /// The deadline had passed.
    Deadline,
    /// The program had ended, or the caller stopped the fetch.
    Cancelled,
}

impl Reason {
    /// For people.
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
        }
    }
}

/// An amount that was not fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// In how many spans.
    pub spans: u64,
    /// Used bytes of them.
    pub bytes: u64,
}

/// A range that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Of what, as an index into the profile.
    pub source: Source,
    /// Which bytes.
    pub range: Range<u64>,
    /// Read only to join two others.
    pub bridged: bool,
}

/// In which order a device is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Ascending on the disk: it seeks.
    ByPosition,
    /// As the program will ask: it does not.
    ByFirstUse,
}

/// What a device was taken for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsedDevice {
    /// In which order it is read.
    pub order: Order,
    /// Time of one small read anywhere on it, microseconds.
    pub access_us: f64,
    /// Sequential bandwidth, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Requests that it works on at a time.
    pub parallelism: u32,
    /// What each request costs it, microseconds; 0: not known, or nothing.
    #[serde(default)]
    pub request_us: f64,
    /// Its number, `8:1`; `None`: not known.
    #[serde(default)]
    pub device: Option<String>,
    /// Where these figures come from.
    #[serde(default)]
    pub source: DescriptionSource,
    /// The file of the description that was given or saved, whether it was used or discarded.
    #[serde(default)]
    pub description_file: Option<String>,
    /// Why that was discarded, if it was.
    #[serde(default)]
    pub discarded: Option<String>,
}

/// Where a description comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DescriptionSource {
    /// The user named a file.
    Given,
    /// `ahead probe --save` wrote it.
    Saved,
    /// The times in the recording.
    Recording,
    /// Nothing is known but whether the kernel says that the disk rotates.
    #[default]
    Assumed,
}

impl DescriptionSource {
    /// For people.
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
    /// Of a description from this source.
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

/// What a fetch did. Sizes in bytes, times in microseconds since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Read-ahead calls made.
    pub requests: u64,
    /// Asked of the kernel, bridged bytes and metadata included.
    pub issued_bytes: u64,
    /// Of these: metadata blocks.
    pub metadata_bytes: u64,
    /// Of these: read only to join two used ranges.
    pub bridged_bytes: u64,
    /// Used bytes that were there already.
    pub already_resident_bytes: u64,
    /// Used bytes of which we may not ask whether they were there: they are issued, and the kernel passes over what is.
    pub residency_unknown_bytes: u64,
    /// Paths looked up for their metadata.
    pub lookups: u64,
    /// Files whose size or time of change differ from the recording.
    pub stale_files: u64,
    /// Used bytes of them.
    pub stale_bytes: u64,
    /// Used bytes that the kernel refused to read.
    pub failed_bytes: u64,
    /// Of the issued: used bytes that the device could not read. Seen only while arrival is waited for.
    pub unreadable_bytes: u64,
    /// The first such refusal or failure.
    pub first_failure: Option<String>,
    /// Not fetched, by reason.
    pub skipped: BTreeMap<Reason, Skipped>,
    /// A sample of the profile was resident: the program was started at once and the rest checked beside it.
    pub looked_warm: bool,
    /// What the devices were taken for, one entry per device that had something to fetch.
    pub devices: Vec<UsedDevice>,
    /// When the program could start.
    pub head_start_us: u64,
    /// When everything was submitted, or given up.
    pub submitted_us: u64,
    /// When everything had arrived; `None`: that was not waited for, or not to the end.
    pub arrived_us: Option<u64>,
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
    /// Every range issued, in order of issue. Kept if [`crate::prefetch::Options::keep_ranges`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Issued>,
}

/// The account of a fetch under way: several threads write it, and the thread that gives up waiting for them reads it.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Account>);

impl Ledger {
    /// To look at it and to write in it. A thread that panicked has left no entry half written.
    pub fn open(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Account {
    /// Counts something that was not fetched.
    pub fn skip(&mut self, reason: Reason, bytes: u64) {
        let skipped = self.skipped.entry(reason).or_default();
        skipped.spans += 1;
        skipped.bytes = skipped.bytes.saturating_add(bytes);
    }

    /// Counts used bytes that the kernel refused to read.
    pub fn fail(&mut self, bytes: u64, why: impl ToString) {
        self.failed_bytes += bytes;
        self.first_failure.get_or_insert_with(|| why.to_string());
    }

    /// Used bytes of which it is known what became of them: those of the profile, once the fetch is over.
    pub fn accounted_bytes(&self) -> u64 {
        let skipped = self.skipped.values().fold(0u64, |sum, skipped| sum.saturating_add(skipped.bytes));
        let fetched = self.issued_bytes - self.bridged_bytes + self.already_resident_bytes;
        skipped.saturating_add(fetched + self.stale_bytes + self.failed_bytes)
    }
}

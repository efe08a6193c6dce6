//! The protocol of a disk's control socket: one JSON line as request, one JSON line as answer.

use crate::{Error, Result};
use ahead_model::quantity::parse_size;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Maximum length of a line: [`READS_KEPT`] reads fit, and thousands of failing ranges. Unit: bytes.
pub const LINE_MAX_BYTES: u64 = 1 << 20;

/// Maximum number of failing ranges of a disk. Each read is compared with all of them, which takes some microseconds.
pub const FAULTS_MOST: usize = 4096;

/// Number of last reads that a disk remembers.
pub const READS_KEPT: usize = 4096;

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Query the counters.
    Stat {
        /// Reset them afterwards.
        reset: bool,
    },
    /// Query the last reads.
    Reads,
    /// Change the injected faults.
    Fault(FaultChange),
    /// Enable the model. Until then every read is answered at once.
    Engage {
        /// How much earlier than due answers are sent, so that they arrive when due.
        lead: Lead,
    },
    /// Put the model into its state after power-on: its buffer is empty.
    Restart,
    /// End: the disk has been detached. Other mount namespaces may still have the FUSE file system mounted.
    End,
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Ask::Stat`].
    Stat(Box<Stat>),
    /// To [`Ask::Reads`], in the order they were answered.
    Reads(Vec<Read>),
    /// To [`Ask::Fault`]: the present faults.
    Faults(Faults),
    /// To [`Ask::Engage`], [`Ask::Restart`] and [`Ask::End`].
    Done,
    /// The request failed, with the reason.
    Error(String),
}

/// The time that a request takes to the daemon and back. It is subtracted from the model's time, so that a program sees the
/// model's time and not the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lead {
    /// For a request of length zero, nanoseconds.
    pub base_ns: u64,
    /// In addition for each KiB (the copy to the kernel), nanoseconds.
    pub per_kib_ns: u64,
    /// In addition for each other outstanding read (they share the processors), nanoseconds.
    pub per_other_ns: u64,
    /// Maximum number of others that count: beyond it, reads wait for the model and not for the processors.
    pub others_most: u64,
}

impl Lead {
    /// The lead of a request of this length (bytes) with this number of other outstanding reads, nanoseconds.
    pub fn ns(self, length_bytes: u64, others: u64) -> u64 {
        let copying_ns = self.per_kib_ns.saturating_mul(length_bytes >> 10);
        let sharing_ns = self.per_other_ns.saturating_mul(others.min(self.others_most));
        self.base_ns.saturating_add(copying_ns).saturating_add(sharing_ns)
    }
}

/// A range of bytes on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// Its first byte.
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

impl ByteRange {
    /// Whether the ranges have a byte in common.
    pub fn overlaps(self, other: ByteRange) -> bool {
        let end = |range: ByteRange| range.offset_bytes.saturating_add(range.length_bytes);
        self.length_bytes > 0
            && other.length_bytes > 0
            && self.offset_bytes < end(other)
            && other.offset_bytes < end(self)
    }
}

impl FromStr for ByteRange {
    type Err = String;

    /// `START+LENGTH` or `START-END`, in bytes or with K, M, G, T.
    fn from_str(text: &str) -> std::result::Result<ByteRange, String> {
        let error = || format!("{text:?} is not a range; write START+LENGTH or START-END, as in 1M+64K");
        let range = if let Some((start, length)) = text.split_once('+') {
            ByteRange { offset_bytes: parse_size(start)?, length_bytes: parse_size(length)? }
        } else {
            let (start, end) = text.split_once('-').ok_or_else(error)?;
            let offset_bytes = parse_size(start)?;
            ByteRange { offset_bytes, length_bytes: parse_size(end)?.checked_sub(offset_bytes).ok_or_else(error)? }
        };
        if range.length_bytes == 0 || range.offset_bytes.checked_add(range.length_bytes).is_none() {
            return Err(error());
        }
        Ok(range)
    }
}

/// The faults that a disk injects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// A read that overlaps one of these fails with an I/O error, when it is due.
    pub fail: Vec<ByteRange>,
    /// Additional delay of every answer, milliseconds.
    pub stall_ms: u64,
}

impl Faults {
    /// Whether a read of this range fails.
    pub fn fails(&self, range: ByteRange) -> bool {
        self.fail.iter().any(|bad| bad.overlaps(range))
    }

    /// Errors: more than [`FAULTS_MOST`] ranges, or a range beyond the end of the disk.
    pub fn check(&self, capacity_bytes: u64) -> Result<()> {
        if self.fail.len() > FAULTS_MOST {
            return Err(Error::Invalid(format!(
                "a disk can have at most {FAULTS_MOST} failing ranges: clear some first"
            )));
        }
        let end = |range: &ByteRange| range.offset_bytes.saturating_add(range.length_bytes);
        match self.fail.iter().find(|range| end(range) > capacity_bytes) {
            None => Ok(()),
            Some(range) => Err(Error::Invalid(format!(
                "the failing bytes from {} to {} do not lie on the disk, which has {capacity_bytes}",
                range.offset_bytes,
                end(range)
            ))),
        }
    }

    /// Applies a change.
    pub fn change(&mut self, change: FaultChange) {
        if change.clear {
            *self = Faults::default();
        }
        self.fail.extend(change.fail);
        self.stall_ms = change.stall_ms.unwrap_or(self.stall_ms);
    }
}

/// A change of the injected faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultChange {
    /// Remove all earlier faults first.
    pub clear: bool,
    /// Further ranges that fail.
    pub fail: Vec<ByteRange>,
    /// The new stall, milliseconds.
    pub stall_ms: Option<u64>,
}

/// A read that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Its offset on the disk, bytes.
    pub offset_bytes: u64,
    pub length_bytes: u64,
    /// Its arrival at the daemon, on the monotonic clock, nanoseconds.
    pub arrived_ns: u64,
    /// Its due latency by the model and the stall, nanoseconds.
    pub takes_ns: u64,
    /// How much later than due its answer was sent, nanoseconds.
    pub late_ns: u64,
}

/// The counters of a disk since their last reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Reads.
    pub requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Reads for which the model moved its head (rotating disk).
    pub seeks: u64,
    /// Time in which the model's device served at least one read, microseconds.
    pub busy_us: u64,
    /// Maximum queue depth.
    pub depth_max: u64,
    /// Writes (at full speed, without the model).
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Failed reads: injected, or the image could not be read.
    pub failed: u64,
    /// Reads answered later than due by more than 60 µs and by more than 5 % of their time.
    pub late_requests: u64,
    /// Late reads: their data came from the image after they were due.
    pub late_image_requests: u64,
    /// Median lateness of an answer, microseconds.
    pub lateness_p50_us: f64,
    /// 99th percentile, microseconds.
    pub lateness_p99_us: f64,
    /// Maximum, microseconds.
    pub lateness_max_us: f64,
    /// Time spent reading the image, microseconds.
    pub image_us: u64,
    /// The last error of the image, if any (not reset).
    pub image_error: Option<String>,
    /// Time since the last reset, seconds.
    pub seconds: f64,
    /// The injected faults.
    pub faults: Faults,
    /// Whether the model is enabled.
    pub engaged: bool,
}

/// The first line that the daemon receives from its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The disk's name.
    pub name: String,
    /// The path of the image when it was opened: to be shown, never to be opened.
    pub image: std::path::PathBuf,
    pub model: crate::ModelSource,
    /// Size of the image, bytes.
    pub capacity_bytes: u64,
    /// Whether reads are served from a copy in memory.
    pub preload: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Where writes and flushes are logged, as an absolute path of a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_log: Option<std::path::PathBuf>,
}

/// The line that the daemon writes to standard output when it serves, or fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// It serves.
    Ready,
    /// It failed, with the reason.
    Failed {
        /// One line.
        message: String,
        /// Whether the exit status is 77.
        unavailable: bool,
    },
}

/// Parses a line of the protocol.
pub fn decode<T: serde::de::DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line.trim_end()).map_err(|e| Error::Daemon(format!("invalid message {line:?}: {e}")))
}

/// Encodes a line of the protocol, with its line feed.
pub fn encode(value: &impl Serialize) -> Result<String> {
    let mut line = serde_json::to_string(value).map_err(|e| Error::io("encode a message", std::io::Error::other(e)))?;
    line.push('\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(offset_bytes: u64, length_bytes: u64) -> ByteRange {
        ByteRange { offset_bytes, length_bytes }
    }

    #[test]
    fn ranges_overlap_only_if_they_share_a_byte() {
        assert!(range(0, 10).overlaps(range(9, 1)));
        assert!(!range(0, 10).overlaps(range(10, 1)));
        assert!(!range(5, 0).overlaps(range(0, 10)));
        assert!(range(u64::MAX - 1, u64::MAX).overlaps(range(u64::MAX - 1, 1)));
    }

    #[test]
    fn ranges_are_lengths_or_ends() {
        assert_eq!("1M+64K".parse(), Ok(range(1 << 20, 64 << 10)));
        assert_eq!("4096-8192".parse(), Ok(range(4096, 4096)));
        for bad in ["", "5", "8-4", "0+0", "+5", "16777215T+16777215T", "a-b"] {
            assert!(bad.parse::<ByteRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn faults_accumulate_until_they_are_cleared() {
        let mut faults = Faults::default();
        faults.change(FaultChange { fail: vec![range(0, 1)], stall_ms: Some(5), ..FaultChange::default() });
        faults.change(FaultChange { fail: vec![range(4, 1)], ..FaultChange::default() });
        assert_eq!((faults.fail.len(), faults.stall_ms), (2, 5));
        faults.change(FaultChange { clear: true, ..FaultChange::default() });
        assert_eq!(faults, Faults::default());
    }

    #[test]
    fn encoded_message_is_one_line() {
        let line = encode(&Answer::Error("two\nlines".into())).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(decode::<Answer>(&line).unwrap(), Answer::Error("two\nlines".into()));
    }

    proptest! {
        #[test]
        fn hostile_lines_are_errors(line in "\\PC{0,200}") {
            let _ = decode::<Ask>(&line);
            let _ = decode::<Setup>(&line);
        }

        #[test]
        fn overlap_is_symmetric(a in any::<(u64, u64)>(), b in any::<(u64, u64)>()) {
            prop_assert_eq!(range(a.0, a.1).overlaps(range(b.0, b.1)), range(b.0, b.1).overlaps(range(a.0, a.1)));
        }
    }
}

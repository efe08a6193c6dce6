//! What is said on a disk's control socket: one JSON line asks, one JSON line answers.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The longest line either side accepts, bytes. [`READS_KEPT`] reads fit, and thousands of ranges to fail.
pub const LINE_MAX_BYTES: u64 = 1 << 20;

/// How many ranges of a disk may fail. Each read is compared with all of them: some microseconds for so many.
pub const FAULTS_MOST: usize = 4096;

/// How many of its last reads a disk remembers.
pub const READS_KEPT: usize = 4096;

/// A question to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// The counters.
    Stat {
        /// Set them to zero afterwards.
        reset: bool,
    },
    /// The last reads.
    Reads,
    /// Change what is injected.
    Fault(FaultChange),
    /// Put the model in force from now on; until then every read is answered as soon as it can be.
    Engage {
        /// How much earlier than due an answer must be sent, to arrive when it is due.
        lead: Lead,
    },
    /// Put the model into its state after power-on: nothing in its buffer.
    Restart,
    /// End: the disk has been taken down. Other mount namespaces may still hold the file system, empty-handed.
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
    /// To [`Ask::Fault`]: what is injected now.
    Faults(Faults),
    /// To [`Ask::Engage`], [`Ask::Restart`] and [`Ask::End`].
    Done,
    /// It could not be done, and why.
    Error(String),
}

/// What the way from the program to the daemon and back takes: it is taken off the model's time, so that the program
/// sees the model's time and not the model's plus ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lead {
    /// For a request of no length, nanoseconds.
    pub base_ns: u64,
    /// More for each KiB of it (the copy to the kernel), nanoseconds.
    pub per_kib_ns: u64,
    /// More for each other read under way (they share the processors), nanoseconds.
    pub per_other_ns: u64,
    /// So many others count at most: beyond, reads wait for the model and not for the processors.
    pub others_most: u64,
}

impl Lead {
    /// For a request of this length (bytes) with so many others under way, nanoseconds.
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
    /// Its length, bytes.
    pub length_bytes: u64,
}

impl ByteRange {
    /// Whether they have a byte in common.
    pub fn overlaps(self, other: ByteRange) -> bool {
        let end = |range: ByteRange| range.offset_bytes.saturating_add(range.length_bytes);
        self.length_bytes > 0
            && other.length_bytes > 0
            && self.offset_bytes < end(other)
            && other.offset_bytes < end(self)
    }
}

/// The faults that a disk injects into its reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// A read that touches one of these fails with an I/O error, when it is due.
    pub fail: Vec<ByteRange>,
    /// Every read is answered that much later than the model says, milliseconds.
    pub stall_ms: u64,
}

impl Faults {
    /// Whether a read of this range fails.
    pub fn fails(&self, range: ByteRange) -> bool {
        self.fail.iter().any(|bad| bad.overlaps(range))
    }

    /// A range that no read can meet is a mistake, and so are more than are looked at for each read.
    pub fn check(&self, capacity_bytes: u64) -> Result<()> {
        if self.fail.len() > FAULTS_MOST {
            return Err(Error::Invalid(format!(
                "a disk can have at most {FAULTS_MOST} ranges to fail: clear some first"
            )));
        }
        let end = |range: &ByteRange| range.offset_bytes.saturating_add(range.length_bytes);
        match self.fail.iter().find(|range| end(range) > capacity_bytes) {
            None => Ok(()),
            Some(range) => Err(Error::Invalid(format!(
                "the bytes from {} to {} that shall fail do not lie on the disk: it has {capacity_bytes}",
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

/// A change of what is injected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultChange {
    /// Forget all earlier faults first.
    pub clear: bool,
    /// Ranges that fail from now on, too.
    pub fail: Vec<ByteRange>,
    /// The new stall, milliseconds.
    pub stall_ms: Option<u64>,
}

/// A read that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Where it started on the disk, bytes.
    pub offset_bytes: u64,
    /// How long it was, bytes.
    pub length_bytes: u64,
    /// When it arrived at the daemon, on the monotonic clock, nanoseconds.
    pub arrived_ns: u64,
    /// What it was to take from its arrival by the model and the stall, nanoseconds.
    pub takes_ns: u64,
    /// How much later than due its answer was sent, nanoseconds.
    pub late_ns: u64,
}

/// What a disk has done since its counters were last reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Reads.
    pub requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Reads for which the model had to move its head (a rotating disk's).
    pub seeks: u64,
    /// How long the model's device was serving at least one read, microseconds.
    pub busy_us: u64,
    /// Most reads outstanding at once.
    pub depth_max: u64,
    /// Writes (at full speed, without the model).
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads that failed: injected, or the image could not be read.
    pub failed: u64,
    /// Reads answered later than due by more than 60 µs and by more than 5 % of their time.
    pub late_requests: u64,
    /// Of these: reads whose data came from the image only after they were due.
    pub late_image_requests: u64,
    /// How much later than due the middle read was answered, microseconds.
    pub lateness_p50_us: f64,
    /// The same for the worst but one in a hundred.
    pub lateness_p99_us: f64,
    /// The same for the worst.
    pub lateness_max_us: f64,
    /// Time spent reading the image, microseconds.
    pub image_us: u64,
    /// The last error that the image gave, if any (not reset).
    pub image_error: Option<String>,
    /// Time since the last reset, seconds.
    pub seconds: f64,
    /// What is injected.
    pub faults: Faults,
    /// Whether the model is in force.
    pub engaged: bool,
}

/// What the daemon gets from its starter as its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The disk's name.
    pub name: String,
    /// Where the image lay when it was opened: to be shown, never to be opened.
    pub image: std::path::PathBuf,
    /// The model.
    pub model: crate::ModelSource,
    /// Size of the image, bytes.
    pub capacity_bytes: u64,
    /// Serve reads from a copy in memory.
    pub preload: bool,
    /// No writes.
    pub read_only: bool,
}

/// What the daemon says on its standard output when it serves, or why it does not.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// It serves.
    Ready,
    /// It does not, and why.
    Failed {
        /// One line.
        message: String,
        /// Exit status 77 is due.
        unavailable: bool,
    },
}

/// Parses a line of the protocol.
pub fn decode<T: serde::de::DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line.trim_end()).map_err(|e| Error::Daemon(format!("cannot understand {line:?}: {e}")))
}

/// A line of the protocol, with its end.
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
    fn ranges_overlap_only_where_they_share_a_byte() {
        assert!(range(0, 10).overlaps(range(9, 1)));
        assert!(!range(0, 10).overlaps(range(10, 1)));
        assert!(!range(5, 0).overlaps(range(0, 10)));
        assert!(range(u64::MAX - 1, u64::MAX).overlaps(range(u64::MAX - 1, 1)));
    }

    #[test]
    fn faults_add_up_until_they_are_cleared() {
        let mut faults = Faults::default();
        faults.change(FaultChange { fail: vec![range(0, 1)], stall_ms: Some(5), ..FaultChange::default() });
        faults.change(FaultChange { fail: vec![range(4, 1)], ..FaultChange::default() });
        assert_eq!((faults.fail.len(), faults.stall_ms), (2, 5));
        faults.change(FaultChange { clear: true, ..FaultChange::default() });
        assert_eq!(faults, Faults::default());
    }

    #[test]
    fn a_line_is_one_line() {
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

//! The reason of an act, in words with numbers for the log.

use super::effect::Rate;
use crate::PAGE_BYTES;
use crate::pattern::Class;
use std::fmt;

/// The reason of an act. `from` and `to` are windows or distances, pages.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The reader of a sequential stream waited although its window had its full size.
    Waited {
        /// The waits since the last change.
        rate: Rate,
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// A larger window did not shorten the waits.
    NoGain {
        /// The waits with the smaller window.
        before: Rate,
        /// The waits with the larger window.
        after: Rate,
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// Pages of the window were evicted before their use.
    Evicted {
        /// Number of these pages since the last change.
        pages: u64,
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// Processes wait for memory.
    Pressure {
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// All open files share a part of the memory.
    Share {
        /// Number of open files with a window.
        files: u64,
        /// The pages that they share.
        pages: u64,
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// Faults in no order.
    RandomFaults {
        /// Number of these faults.
        faults: u64,
        /// Pages read for each of them.
        pages: u64,
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// Calls in no order, for which the kernel read more than requested.
    RandomReads {
        /// Number of these calls.
        calls: u64,
        /// Pages that the kernel read for them.
        issued: u64,
        /// Pages that they used.
        wanted: u64,
        /// The window before.
        from: u64,
        /// The window after.
        to: u64,
    },
    /// The accesses are consecutive now.
    Consecutive {
        /// Number of consecutive pages.
        pages: u64,
    },
    /// Single pages were read for faults in no order, and the rest of the file may be in use.
    Dense {
        /// Number of these faults.
        faults: u64,
        /// Their time, as a share of the time to read the rest of the file around its faults.
        share: f64,
        /// Pages of the file that were not read before.
        rest: u64,
    },
    /// A pattern that the kernel does not know.
    Pattern {
        /// The pattern.
        class: Class,
        /// From one access to the next, pages.
        step: i64,
        /// Number of accesses that confirm it.
        accesses: u64,
        /// Fetched pages before the reader.
        distance: u64,
    },
    /// The reader of a pattern waited.
    PatternWaited {
        /// The pattern.
        class: Class,
        /// Its waits since the last change.
        waits: u64,
        /// The distance before.
        from: u64,
        /// The distance after.
        to: u64,
    },
    /// Fetched pages were not used.
    Useless {
        /// Fetched pages.
        fetched: u64,
        /// Unused ones of these.
        unused: u64,
        /// Time without fetches, seconds.
        pause_s: u64,
    },
}

/// A length in pages as text: `128 KiB`, `2 MiB`, `1.5 MiB`.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = u128::from(self.0) * u128::from(PAGE_BYTES >> 10);
        match kib {
            0..1024 => write!(f, "{kib} KiB"),
            1024..1_048_576 if kib % 1024 == 0 => write!(f, "{} MiB", kib >> 10),
            1024..1_048_576 => write!(f, "{:.1} MiB", kib as f64 / 1024.0),
            _ => write!(f, "{:.1} GiB", kib as f64 / 1_048_576.0),
        }
    }
}

/// A number with its noun: `1 time`, `3 times`.
fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change =
            |f: &mut fmt::Formatter<'_>, from: u64, to: u64| write!(f, "; window {} → {}", Size(from), Size(to));
        let ms = |ns: f64| ns / 1e6;
        match *self {
            Reason::Waited { rate, from, to } => {
                let (times, share) = (count(rate.waits, "time"), 100.0 * rate.wait_share());
                write!(f, "reader waited {times} in {} ({share:.0} % of its time)", Size(rate.advanced_pages))?;
                change(f, from, to)
            }
            Reason::NoGain { before, after, from, to } => {
                let [before, after] = [before, after].map(|rate| ms(rate.wait_ns_per_mib()));
                write!(f, "waits did not become shorter: {before:.2} ms per MiB before, {after:.2} ms after")?;
                change(f, from, to)
            }
            Reason::Evicted { pages, from, to } => {
                write!(f, "{} evicted before use", count(pages, "page"))?;
                change(f, from, to)
            }
            Reason::Pressure { from, to } => {
                write!(f, "processes wait for memory")?;
                change(f, from, to)
            }
            Reason::Share { files, pages, from, to } => {
                write!(f, "{} share {}", count(files, "open file"), Size(pages))?;
                change(f, from, to)
            }
            Reason::RandomFaults { faults, pages, from, to } => {
                write!(f, "{} in no order, each reads up to {}", count(faults, "fault"), Size(pages))?;
                change(f, from, to)
            }
            Reason::RandomReads { calls, issued, wanted, from, to } => {
                let calls = count(calls, "call");
                write!(f, "{calls} in no order used {}, the kernel read {}", Size(wanted), Size(issued))?;
                change(f, from, to)
            }
            Reason::Consecutive { pages } => {
                write!(f, "{} in sequence; window set back", count(pages, "page"))
            }
            Reason::Dense { faults, share, rest } => {
                let (faults, share, rest) = (count(faults, "single page"), 100.0 * share, Size(rest));
                write!(
                    f,
                    "{faults} cost {share:.0} % of reading the other {rest} of the file around faults; window set back"
                )
            }
            Reason::Pattern { class, step, accesses, distance } => {
                let step =
                    if step < 0 { format!("-{}", Size(step.unsigned_abs())) } else { Size(step as u64).to_string() };
                let accesses = count(accesses, "access").replace("accesss", "accesses");
                write!(f, "{class}, step {step}, confirmed by {accesses}; distance {}", Size(distance))
            }
            Reason::PatternWaited { class, waits, from, to } => {
                let times = count(waits, "time");
                write!(f, "{class}: reader waited {times}; distance {} → {}", Size(from), Size(to))
            }
            Reason::Useless { fetched, unused, pause_s } => {
                let (unused, fetched) = (Size(unused), Size(fetched));
                write!(f, "{unused} of {fetched} fetched were not used; no fetches for {}", count(pause_s, "second"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words_with_numbers() {
        let rate = Rate { advanced_pages: 1024, waits: 3, wait_ns: 12_300_000, elapsed_ns: 24_600_000 };
        for (reason, text) in [
            (
                Reason::Waited { rate, from: 32, to: 128 },
                "reader waited 3 times in 4 MiB (50 % of its time); window 128 KiB → 512 KiB",
            ),
            (
                Reason::Dense { faults: 77, share: 0.01, rest: 1 << 18 },
                "77 single pages cost 1 % of reading the other 1.0 GiB of the file around faults; window set back",
            ),
            (Reason::Evicted { pages: 1, from: 384, to: 192 }, "1 page evicted before use; window 1.5 MiB → 768 KiB"),
            (
                Reason::Pattern { class: Class::Backward, step: -4, accesses: 3, distance: 64 },
                "backward, step -16 KiB, confirmed by 3 accesses; distance 256 KiB",
            ),
            (
                Reason::Useless { fetched: u64::MAX, unused: 0, pause_s: 1 },
                "0 KiB of 70368744177664.0 GiB fetched were not used; no fetches for 1 second",
            ),
        ] {
            assert_eq!(reason.to_string(), text);
        }
    }
}

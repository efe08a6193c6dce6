//! The retention of cached data: the number of bytes that can be read from a file until its first pages are evicted.
//!
//! ```text
//!     read so far    ├──────────────────────────────▶│
//!     looked at      0   1   2   3 …                    after each piece the next page of the beginning: still there?
//! ```
//!
//! Each check accesses another page, because a check by timing is a use, and a page that was used twice stays longer. The result is far
//! less than the machine's memory if a control group or another program limits it. Without such a limit the result exceeds a test file.

use crate::probe::Run;
use crate::probe::answer::Answer;
use crate::probe::error::Result;
use crate::probe::eyes::Eyes;
use crate::probe::statistics::quantile;
use crate::probe::subject::PAGE_BYTES;
use std::time::{Duration, Instant};

/// A check follows each piece of this length, bytes: the precision of the answer.
const PIECE_BYTES: u64 = 1 << 20;
/// Number of compared runs.
const RUNS: usize = 3;
/// Runs agree if the largest result is at most this multiple of the smallest: the kernel reclaims some MiB at a time.
const AGREE: f64 = 1.25;

/// The number of bytes after whose reading the first ones are evicted. The reading ends at the limit, with or without a result.
pub fn find(run: &Run, eyes: Eyes, limit: Option<Duration>) -> Result<Answer> {
    let began = Instant::now();
    let mut found = Vec::new();
    while found.len() < RUNS {
        // The limit holds only for a first run that finds no eviction: the other runs take as long as the first.
        let limit = limit.filter(|_| found.is_empty()).map(|limit| began + limit);
        match gone_after(run, eyes, limit)? {
            RetentionEnded::Gone(bytes) => found.push(bytes as f64),
            RetentionEnded::Kept(bytes) => {
                return Ok(Answer::none("bytes", format!("{bytes} bytes stayed cached, all that there are")));
            }
            RetentionEnded::Late(bytes) => {
                let why = format!("{bytes} bytes stayed cached; no more was read, as it takes long");
                return Ok(Answer::none("bytes", why));
            }
        }
    }
    Ok(concluded(&found, eyes))
}

/// Combines the results of the runs.
fn concluded(found: &[f64], eyes: Eyes) -> Answer {
    let [least, most] = [0.0, 1.0].map(|share| quantile(found, share));
    if most > AGREE * least {
        let [least, most] = [least, most].map(|bytes| bytes as u64 >> 20);
        let why = format!(
            "{}: the first bytes are gone after {least} MiB in one of {RUNS} runs and after {most} MiB in another: what else is \
             read or asks for memory decides",
            eyes.name()
        );
        return Answer::none("bytes", why);
    }
    let method = format!(
        "{}: bytes read until the first ones were evicted, to {} MiB, {RUNS} runs",
        eyes.name(),
        PIECE_BYTES >> 20
    );
    Answer::middle_of(found, "bytes", method)
}

/// The end of a run, and the number of bytes that it read.
enum RetentionEnded {
    /// The checked page is not cached any more.
    Gone(u64),
    /// The whole file was read, and all of it is cached.
    Kept(u64),
    /// The time limit was reached.
    Late(u64),
}

fn gone_after(run: &Run, eyes: Eyes, limit: Option<Instant>) -> Result<RetentionEnded> {
    let subject = run.subject;
    subject.make_cold(run.watcher)?;
    let (reader, look) = (subject.open()?, subject.open_exact()?);
    let all_bytes = subject.pages() * PAGE_BYTES;
    let (mut read_bytes, mut gone_since) = (0, None);
    for page in 0..subject.pages() {
        run.watcher.go_on("where cached data stops being cached")?;
        if read_bytes >= all_bytes {
            break;
        }
        if limit.is_some_and(|limit| Instant::now() > limit) {
            return Ok(RetentionEnded::Late(read_bytes));
        }
        let piece = PIECE_BYTES.min(all_bytes - read_bytes);
        subject.read(&reader, read_bytes, piece as usize)?;
        read_bytes += piece;
        match (eyes.sees(subject, &look, page, read_bytes / PAGE_BYTES - 1)?, gone_since) {
            (true, _) => gone_since = None,
            // An access may be slow for other reasons, but rarely twice in a row.
            (false, None) if eyes != Eyes::Asking => gone_since = Some(read_bytes),
            (false, since) => return Ok(RetentionEnded::Gone(since.unwrap_or(read_bytes))),
        }
    }
    Ok(RetentionEnded::Kept(read_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the median of 40, 90 and 160 MiB was reported.
    #[test]
    fn contradicting_runs_give_no_answer() {
        let found = |mib: [u64; RUNS]| concluded(&mib.map(|mib| (mib << 20) as f64), Eyes::Asking);
        assert_eq!(found([61, 61, 63]).value.unwrap().number(), (61_u64 << 20) as f64);
        let contradicts = found([40, 90, 160]);
        assert!(contradicts.value.is_none() && contradicts.method.contains("40 MiB"), "{contradicts:?}");
    }
}

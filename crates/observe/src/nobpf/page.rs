//! Pages of ftrace's ring buffer, as `trace_pipe_raw` returns them (include/linux/ring_buffer.h, kernel/trace/ring_buffer.c).
//!
//! ```text
//!     timestamp │ commit: bytes of events, and flags │ event │ event │ … │ unused
//!                                                       └─ 5 bits type, 27 bits time since the event before
//!     type  0     data, its length in the next word          29   padding: a discarded event, or the end of the page
//!           1…28  data of that many words                    30   more time: the next word has the higher bits
//!                                                            31   absolute time: the same
//! ```
//!
//! The text of `trace_pipe` is not used: it holds the names of processes, which a program may choose to look like events.

use crate::nobpf::format::{Field, PageLayout};

/// Why bytes are not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page ends before its header does.
    #[error("page of {0} bytes is shorter than its header")]
    Short(usize),
    /// An event ends behind the page's data.
    #[error("event at byte {0} of a page ends behind the page's data")]
    Overlong(usize),
}

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

const TYPE_BITS: u32 = 5;
const DELTA_BITS: u32 = 27;

/// The lower bits of `commit` are the length; the higher ones are flags (`RB_MISSED_EVENTS`, `RB_MISSED_STORED`).
const LENGTH_MASK: u64 = (1 << 27) - 1;

/// An absolute time has this many bits; the higher ones are those of the page's time (`rb_fix_abs_ts`).
const STAMP_BITS: u32 = 59;

/// A number of 1, 2, 4 or 8 bytes in the byte order of this machine. `None`: the bytes end before.
pub(crate) fn number(bytes: &[u8], field: Field) -> Option<u64> {
    let bytes = bytes.get(field.offset..field.offset.checked_add(field.size)?)?;
    Some(match *bytes {
        [byte] => byte.into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => u64::from_ne_bytes(bytes.try_into().ok()?),
    })
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    number(data, Field { offset: at, size: 4 }).map(|word| word as u32)
}

/// Type and time of an event's first word: bit fields in the order of the machine.
fn split(head: u32) -> (u32, u64) {
    if cfg!(target_endian = "big") {
        (head >> DELTA_BITS, u64::from(head & ((1 << DELTA_BITS) - 1)))
    } else {
        (head & ((1 << TYPE_BITS) - 1), u64::from(head >> TYPE_BITS))
    }
}

/// Calls `take` with the time (nanoseconds of the trace clock) and the bytes of each event of a page.
///
/// # Errors
/// The bytes are not a page. Events before the error were taken.
pub fn read_page(page: &[u8], layout: &PageLayout, mut take: impl FnMut(u64, &[u8])) -> Result<(), PageError> {
    let short = || PageError::Short(page.len());
    let mut time = number(page, layout.timestamp).ok_or_else(short)?;
    let length = (number(page, layout.commit).ok_or_else(short)? & LENGTH_MASK) as usize;
    let data = page.get(layout.data..).ok_or_else(short)?;
    let data = data.get(..length).ok_or(PageError::Overlong(0))?;
    let mut at = 0;
    while at < data.len() {
        let overlong = PageError::Overlong(at);
        let (kind, delta) = split(word(data, at).ok_or(overlong)?);
        match kind {
            PADDING if delta == 0 => return Ok(()),
            // The time of a discarded event does not count (`rb_update_read_stamp`).
            PADDING => at += 4 + word(data, at + 4).ok_or(overlong)? as usize,
            TIME_EXTEND | TIME_STAMP => {
                let high = word(data, at + 4).ok_or(overlong)?;
                let ticks = (u64::from(high) << DELTA_BITS) + delta;
                time = match kind {
                    TIME_EXTEND => time.wrapping_add(ticks),
                    _ => time >> STAMP_BITS << STAMP_BITS | ticks & ((1 << STAMP_BITS) - 1),
                };
                at += 8;
            }
            words => {
                time = time.wrapping_add(delta);
                let (start, bytes) = match words {
                    // The length counts its own word.
                    0 => (at + 8, (word(data, at + 4).ok_or(overlong)? as usize).checked_sub(4).ok_or(overlong)?),
                    words => (at + 4, words as usize * 4),
                };
                take(time, data.get(start..start + bytes).ok_or(overlong)?);
                at = start + bytes;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nobpf::format::tests::HEADER_PAGE;
    use proptest::prelude::*;

    fn layout() -> PageLayout {
        PageLayout::parse(HEADER_PAGE).unwrap()
    }

    /// A page with this time and these events.
    fn page(time: u64, flags: u64, data: &[u8]) -> Vec<u8> {
        let mut page = [time.to_ne_bytes(), (data.len() as u64 | flags).to_ne_bytes()].concat();
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    fn head(kind: u32, delta: u32) -> Vec<u8> {
        let word = if cfg!(target_endian = "big") { kind << 27 | delta } else { delta << 5 | kind };
        word.to_ne_bytes().to_vec()
    }

    /// Times and bytes.
    type Events = Vec<(u64, Vec<u8>)>;

    fn read(page: &[u8]) -> (Events, Result<(), PageError>) {
        let mut found = Vec::new();
        let outcome = read_page(page, &layout(), |time, bytes| found.push((time, bytes.to_vec())));
        (found, outcome)
    }

    #[test]
    fn events_have_the_sum_of_the_times_before_them() {
        let data = [
            head(1, 5),
            vec![1, 2, 3, 4],
            // 2^27 and 3 more.
            head(30, 3),
            1u32.to_ne_bytes().to_vec(),
            // Its length counts its own word.
            head(0, 1),
            8u32.to_ne_bytes().to_vec(),
            vec![5, 6, 7, 8],
            // Discarded.
            head(29, 9),
            8u32.to_ne_bytes().to_vec(),
            vec![0; 4],
            head(2, 1),
            vec![9; 8],
            // The rest of the page is unused.
            head(29, 0),
            vec![0xff; 12],
        ];
        let (found, outcome) = read(&page(1000, 0, &data.concat()));
        assert_eq!(outcome, Ok(()));
        let late = 1009 + (1 << 27);
        assert_eq!(found, [(1005, vec![1, 2, 3, 4]), (late, vec![5, 6, 7, 8]), (late + 1, vec![9; 8])]);
    }

    #[test]
    fn absolute_time_keeps_the_highest_bits_of_the_page() {
        let data = [head(31, 7), 2u32.to_ne_bytes().to_vec(), head(1, 1), vec![0; 4]].concat();
        let (found, _) = read(&page(1 << 60 | 5, 0, &data));
        assert_eq!(found[0].0, (1 << 60) + (2 << 27) + 8);
    }

    #[test]
    fn flags_of_lost_events_are_not_a_length() {
        let data = [head(1, 0), vec![0; 4]].concat();
        assert_eq!(read(&page(0, 3 << 30, &data)), (vec![(0, vec![0; 4])], Ok(())));
    }

    #[test]
    fn event_behind_the_data_is_an_error() {
        assert_eq!(read(&page(0, 0, &head(3, 0))).1, Err(PageError::Overlong(0)));
        assert_eq!(read(&[0; 12]).1, Err(PageError::Short(12)));
        let no_length = [head(0, 0), 0u32.to_ne_bytes().to_vec()].concat();
        assert_eq!(read(&page(0, 0, &no_length)).1, Err(PageError::Overlong(0)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_events_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let _ = read(&bytes);
            let mut data = bytes;
            data.truncate(4080);
            let _ = read(&page(u64::MAX, 0, &data));
        }

        #[test]
        fn written_events_are_read(events in prop::collection::vec((0u32..1000, 1usize..20), 0..40)) {
            let (mut data, mut time, mut expected) = (Vec::new(), 7, Vec::new());
            for (delta, words) in events {
                data.extend(head(words as u32, delta));
                data.extend(vec![words as u8; words * 4]);
                time += u64::from(delta);
                expected.push((time, vec![words as u8; words * 4]));
            }
            prop_assert_eq!(read(&page(7, 0, &data)), (expected, Ok(())));
        }
    }
}

//! Gérard Roudier, "Asynchronous read-ahead" (linux-kernel mailing list, 6 April 1996): the estimate and the Bonnie
//! rows.
//!
//! ```text
//!     synchronous    disk  ▓▓▓         ▓▓▓         ▓▓▓          read from the cache: 8 MB/s
//!                    cpu      ████████    ████████    ████████  4 MB/s      ⇒ 2.67 MB/s at 67 %
//!     asynchronous   disk  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓         while the program computes
//!                    cpu      █████████████████████████████     ⇒ 4 MB/s at 100 %
//! ```
//!
//! Inputs of the estimate: the stated rates of disk and program. Inputs of Bonnie:
//!
//! - the disk's rate, from the row of block input,
//! - the kernel's time for a page, from the load of the same row,
//! - the program's time for a page, from the *ratio* of load and speed in the synchronous row,
//! - the time to write a page, from block output.
//!
//! Results: speeds and loads of the other rows, and the gains.

mod bonnie;
mod estimate;

use crate::{Input, Lines, Measured, Outcome, Paper, PaperError};

/// The name for `ahead papers`.
const NAME: &str = "roudier";

/// The message.
pub(crate) const PAPER: Paper = Paper {
    name: NAME,
    title: "Asynchronous read-ahead",
    authors: "Gérard Roudier",
    year: 1996,
    story: "Linux 1.3 reads ahead only while a program waits anyway: disk and processor take turns. Roudier estimates the \
            cost, writes the first patch that reads ahead while the program computes, and measures it with Bonnie. Both \
            kernels run here as policies (linux-1.3, roudier), on the machine of the estimate and on the measured one.",
    run,
};

fn run(measured: &Measured) -> Result<Outcome, PaperError> {
    let live = measured.live;
    let mut lines = Lines::new(NAME);
    let figures = estimate::add(&mut lines, live)?;
    bonnie::add(&mut lines)?;
    Ok(Outcome { inputs: inputs(), lines: lines.finish(), figures })
}

fn inputs() -> Vec<Input> {
    vec![
        Input::new("estimate: the disk's platter", "4 MB/s", "stated"),
        Input::new("estimate: the disk's cache", "8 MB/s", "stated"),
        Input::new("estimate: the program", "4 MB/s at 100 %", "stated"),
        Input::new("estimate: commands, calls, copying", "no time", "as in the estimate"),
        Input::new("Bonnie: the disk's platter", "4.13 MB/s", "the synchronous row, block input: 3952 KB/s"),
        Input::new(
            "Bonnie: the file system",
            "ext2 with blocks of 1 KiB",
            "assumed: the default of mke2fs at that time",
        ),
        Input::new("Bonnie: the disk's cache", "8 MB/s", "stated"),
        Input::new(
            "Bonnie: a command",
            "500 us",
            "assumed: drives of that year; 1 ms more makes the slow row 7 % slower",
        ),
        Input::new("Bonnie: the kernel, a page", "283 us", "the synchronous row, block input: 28 % at 3952 KB/s"),
        Input::new(
            "Bonnie: getc, a page",
            "920 us",
            "the synchronous row, input per character: 65 % at 2162 KB/s are 1203 us, less the kernel's time",
        ),
        Input::new("Bonnie: writing a page", "440 us", "the synchronous row, block output: 37.5 % at 3492 KB/s"),
        Input::new(
            "Bonnie: a request in rewrite",
            "one page",
            "inferred: a SCSI disk's queue is not plugged while write-back keeps it busy (ll_rw_blk.c)",
        ),
    ]
}

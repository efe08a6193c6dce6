//! Wu Fengguang 2010, *Use 512kb max readahead size, and 32kb min readahead size*: a patch and its reasons.
//!
//! Five machines, each with one set of parameters for all of its numbers:
//!
//! ```text
//!     table     8 ms and 100 MB/s, nothing else costs anything           11 rows, exactly
//!     ssd       an Intel X25-M                                           its rate over the window
//!     readers   two arrays behind a scheduler with time slices           1 to 16 readers, 128 against 512 KiB
//!     streams   800 slow clients in 64 MB (Wu's mail of 2005)            thrashings
//!     desktop   programs that start through mappings                     hit ratio and footprint
//! ```

mod desktop;
mod readers;
mod ssd;
mod streams;
mod table;

use crate::{Input, Lines, Measured, Outcome, Paper, PaperError};

/// The name for `ahead papers`.
const NAME: &str = "wu";

/// The source.
pub const PAPER: Paper = Paper {
    name: NAME,
    title: "Use 512kb max readahead size, and 32kb min readahead size",
    authors: "Wu Fengguang",
    year: 2010,
    story: "A patch that makes the largest window of Linux four times as long, with its reasons: what a disk of 8 ms and 100 MB/s \
            gives for each size of request, what a solid-state disk gives for each window, 1 to 16 readers on two arrays, \
            what a desktop wastes, and how many streams fit into memory.",
    run,
};

fn run(measured: &Measured) -> Result<Outcome, PaperError> {
    let live = measured.live;
    let mut outcome = Outcome::default();
    let mut lines = Lines::new(NAME);
    table::run(&mut outcome, &mut lines, live)?;
    ssd::run(&mut outcome, &mut lines)?;
    readers::run(&mut outcome, &mut lines, live)?;
    desktop::run(&mut outcome, &mut lines)?;
    streams::run(&mut outcome, &mut lines)?;
    outcome.lines = lines.finish();
    Ok(outcome)
}

impl Outcome {
    fn input(&mut self, what: &'static str, value: impl Into<String>, source: &'static str) {
        self.inputs.push(Input::new(what, value, source));
    }
}

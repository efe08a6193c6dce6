//! Messages for people, on standard error.

use ahead_report::text::one_line;
use std::io::Write;

/// Prints one line. Standard error may be closed: then there is no reader, and the work goes on.
pub fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "ahead: {}", one_line(line));
}

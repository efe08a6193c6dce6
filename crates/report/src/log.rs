//! The log: each event of `tracing` as lines on standard error, `LEVEL message`. Our events are a message each, without fields or spans, for
//! which `tracing-subscriber` would add 50 KB to the program.

use crate::text::one_line;
use std::fmt::{Debug, Write as _};
use std::io::{IsTerminal, Write as _};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Starts the log. Messages go to standard error, up to the level in `AHEAD_LOG` (error, warn, info, debug or trace; warn).
pub fn start() {
    let level = std::env::var("AHEAD_LOG").ok().and_then(|level| level.parse().ok());
    let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = Log { level: level.unwrap_or(LevelFilter::WARN), is_coloured };
    tracing::subscriber::set_global_default(log).expect("a process starts its log once");
}

struct Log {
    level: LevelFilter,
    is_coloured: bool,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let lines = lines(*event.metadata().level(), self.is_coloured, &message.0);
        // Standard error may be closed: then there is no reader, and the work goes on.
        let _ = std::io::stderr().write_all(lines.as_bytes());
    }

    /// Spans are not logged, so they need no numbers.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// A line for each line of the message: the kernel's verifier writes many. Other control characters are escaped.
fn lines(level: Level, is_coloured: bool, message: &str) -> String {
    let colour = match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    };
    let head = match is_coloured {
        true => format!("\x1b[{colour}m{level:>5}\x1b[0m"),
        false => format!("{level:>5}"),
    };
    message.lines().map(|line| format!("{head} {}\n", one_line(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_level_and_no_control_characters() {
        assert_eq!(lines(Level::WARN, false, "one\ntwo \x1b[2J"), " WARN one\n WARN two \\u{1b}[2J\n");
        assert_eq!(lines(Level::ERROR, true, "one"), "\x1b[31mERROR\x1b[0m one\n");
    }

    #[test]
    fn levels_are_limited() {
        let log = Log { level: LevelFilter::WARN, is_coloured: false };
        tracing::subscriber::with_default(log, || {
            assert!(tracing::enabled!(Level::ERROR) && tracing::enabled!(Level::WARN));
            assert!(!tracing::enabled!(Level::INFO) && !tracing::enabled!(Level::TRACE));
        });
    }
}

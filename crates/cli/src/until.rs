//! The flags for the end of a run.

use ahead::until::Until;
use clap::Args;
use regex::bytes::{Regex, RegexBuilder};
use std::ffi::OsString;
use std::path::PathBuf;

/// The end of a run that does not end by itself
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "End of the run")]
pub struct UntilArguments {
    /// Ends when a line of the program's output or errors matches; both become pipes for that
    #[arg(long, value_name = "REGEX", value_parser = parse_pattern)]
    until_output: Option<Regex>,
    /// Ends when something listens on this TCP port, as the kernel's table says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    until_port: Option<u16>,
    /// Ends when this file appears, or is replaced or written
    #[arg(long, value_name = "F")]
    until_file: Option<PathBuf>,
}

/// Output need not be UTF-8: `.` and classes mean bytes.
fn parse_pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).unicode(false).build()
}

impl UntilArguments {
    /// The condition itself.
    pub fn until(&self) -> Until {
        Until { output: self.until_output.clone(), port: self.until_port, file: self.until_file.clone() }
    }

    /// The flags that say the same to another `ahead`.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let output = self.until_output.as_ref().map(|regex| ["--until-output".into(), regex.as_str().into()]);
        let port = self.until_port.map(|port| ["--until-port".into(), port.to_string().into()]);
        let file = self.until_file.as_ref().map(|file| ["--until-file".into(), file.into()]);
        [output, port, file].into_iter().flatten().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_classes_and_match_any_bytes() {
        assert!(parse_pattern(r"^ready in \d+\s?ms$").unwrap().is_match(b"ready in 12 ms"));
        assert!(parse_pattern("caf\u{e9}.").unwrap().is_match(b"caf\xc3\xa9\xff"));
        assert!(parse_pattern("(?i)READY").unwrap().is_match(b"ready"));
        assert!(parse_pattern("(").is_err());
    }
}

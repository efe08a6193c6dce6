//! The flags for the end of a run.

use ahead::until::Until;
use clap::Args;
use regex::bytes::Regex;
use std::ffi::OsString;
use std::path::PathBuf;

/// The end of a run that does not end by itself
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "End of the run")]
pub struct UntilArguments {
    /// Ends when a line of the program's output or errors matches; both become pipes for that
    #[arg(long, value_name = "REGEX")]
    until_output: Option<Regex>,
    /// Ends when something listens on this TCP port, as the kernel's table says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    until_port: Option<u16>,
    /// Ends when this file appears, or is replaced or written
    #[arg(long, value_name = "F")]
    until_file: Option<PathBuf>,
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

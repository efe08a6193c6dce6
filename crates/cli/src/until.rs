//! The flags that end a run: `--until-output`, `--until-port`, `--until-file`.

use ahead::Until;
use clap::Args;
use regex_lite::Regex;
use std::ffi::OsString;
use std::path::PathBuf;

/// The heading of these flags in help. Each names it: a heading of the whole group would also be that of the flags that follow the group.
const HEADING: &str = "End of the run";

/// The end of a run of a program that does not exit
#[derive(Args, Clone, Debug, Default)]
pub struct UntilArguments {
    /// End when a line of the program's output or errors matches; both become pipes
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    until_output: Option<Regex>,
    /// End when a process listens on this TCP port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = HEADING)]
    until_port: Option<u16>,
    /// End when this file appears, is replaced or is written
    #[arg(long, value_name = "F", help_heading = HEADING)]
    until_file: Option<PathBuf>,
}

impl UntilArguments {
    /// The condition that the flags describe.
    pub fn until(&self) -> Until {
        Until::default().output(self.until_output.clone()).port(self.until_port).file(self.until_file.clone())
    }

    /// The same flags, as arguments for another `ahead`.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let output = self.until_output.as_ref().map(|regex| ["--until-output".into(), regex.as_str().into()]);
        let port = self.until_port.map(|port| ["--until-port".into(), port.to_string().into()]);
        let file = self.until_file.as_ref().map(|file| ["--until-file".into(), file.into()]);
        [output, port, file].into_iter().flatten().flatten().collect()
    }
}

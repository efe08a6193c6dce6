//! The message for a missing profile: the same for each command, with the command line that makes one.

use crate::until::UntilArguments;
use ahead_report::text::{command_line, printable};
use ahead_sys::machine;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What is missing.
#[derive(Clone, Copy, Debug)]
pub struct MissingProfile<'a> {
    /// The command that the profile is for.
    pub command: &'a [OsString],
    /// The file that the user named. `None`: the profile of the store.
    pub file: Option<&'a Path>,
    /// The end of the recording.
    pub until: Option<&'a UntilArguments>,
}

impl MissingProfile<'_> {
    /// `there is no profile for: git status (in /srv); make one with: sudo ahead record --cold -- git status`.
    pub fn message(&self) -> String {
        let missing = match self.file {
            Some(file) => printable(file.as_os_str().as_bytes()),
            None => {
                let directory = std::env::current_dir().unwrap_or_default();
                format!("for: {} (in {})", as_line(self.command), printable(directory.as_os_str().as_bytes()))
            }
        };
        format!("there is no profile {missing}; make one with: {}", self.recording())
    }

    /// The command line that records the command.
    pub fn recording(&self) -> String {
        let sudo = (!machine::is_root()).then_some("sudo");
        let mut words: Vec<OsString> =
            sudo.into_iter().chain(["ahead", "record", "--cold"]).map(OsString::from).collect();
        if let Some(file) = self.file {
            words.extend([OsStr::new("-o").into(), file.into()]);
        }
        words.extend(self.until.map(UntilArguments::to_arguments).unwrap_or_default());
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        as_line(&words)
    }
}

fn as_line(words: &[OsString]) -> String {
    command_line(&words.iter().cloned().map(OsStringExt::into_vec).collect::<Vec<_>>())
}

//! The program `aheadd`; see the library of this package.

use ahead_service::{ServiceCli, SettingsError, run};
use clap::Parser;
use std::process::ExitCode;

/// Wrong settings, as wrong usage of all programs of this project.
const USAGE: u8 = 2;
/// Not permitted or not supported here, as for all programs of this project.
const UNAVAILABLE: u8 = 77;

fn main() -> ExitCode {
    let options = ServiceCli::parse().options();
    ahead_report::log::start();
    let Err(error) = run(&options) else { return ExitCode::SUCCESS };
    eprintln!("aheadd: {}", ahead_report::text::one_line(&format!("{error:#}")));
    let is_unavailable =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref().is_some_and(ahead_sys::Error::is_unavailable);
    match error.chain().any(is_unavailable) {
        true => ExitCode::from(UNAVAILABLE),
        false if error.is::<SettingsError>() => ExitCode::from(USAGE),
        false => ExitCode::FAILURE,
    }
}

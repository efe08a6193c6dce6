//! The command line of `aheadd`.

use crate::ServiceOptions;
use clap::Parser;
use std::path::PathBuf;

/// Prefetches what programs read when they are started, and learns that by itself
///
/// The launch service; a service manager starts it, as root. `ahead apps` shows what it knows.
#[derive(Debug, Parser)]
#[command(name = "aheadd", version, max_term_width = 100)]
pub struct ServiceCli {
    /// Settings
    #[arg(long, value_name = "FILE", default_value = "/etc/ahead/aheadd.toml")]
    config: PathBuf,
    /// What is known of programs
    #[arg(long, value_name = "DIR", default_value = ahead_apps::HOME, hide = true)]
    store: PathBuf,
}

impl ServiceCli {
    /// The options of the service.
    pub fn options(self) -> ServiceOptions {
        ServiceOptions { config: self.config, store: self.store }
    }
}

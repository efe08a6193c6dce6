//! The flags of just-in-time windows: `--window`, `--low-memory`.

use ahead::prefetch::WindowSize;
use clap::Args;

/// How much is fetched ahead of the program
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct WindowArguments {
    /// Keep this much ahead of the program as it goes on, as in 64M, also of a profile that is larger than memory; auto: everything at
    /// once if memory holds it, otherwise a window
    #[arg(long, value_name = "SIZE|auto")]
    pub window: Option<WindowSize>,
    /// Read in the order of first use, in small steps and without gaps, and keep at most a quarter of the available memory ahead
    #[arg(long)]
    pub low_memory: bool,
}

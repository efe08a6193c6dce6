//! The flag `--root`: where the paths of a profile or a list start.

use ahead_sys::root::Root;
use clap::Args;
use std::path::{Path, PathBuf};

/// Where paths start.
#[derive(Args, Clone, Debug, Default)]
pub struct RootArgument {
    /// Look for the files below this directory: of an image or a container. Symbolic links are followed in it as in a chroot, never
    /// outside
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl RootArgument {
    /// The directory as the user named it.
    pub fn path(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Opens it.
    pub fn open(&self) -> ahead_sys::Result<Root> {
        self.root.as_deref().map_or_else(|| Ok(Root::default()), Root::at)
    }
}

//! What nearly every test uses.

pub use super::cold::{drop_caches, evict, make_cold, resident, resident_bytes};
pub use super::emulated::Disks;
pub use super::machine::{self, alone, in_memory, needs_emulated_disks, needs_root, on_disk, shared, skip};
pub use super::mounted::{KIB, MIB, Mounted, PAGE, copy_ahead};
pub use super::process::{self, notes_of};
pub use super::program::{Done, Program, Running, STRANGER, ahead, built, compiled, program};
pub use super::reclaim::unless_reclaimed;
pub use super::setting::Setting;
pub use super::tree::{files_below, make_directories, make_fifo, names_with, set_mode, write_script};
pub use super::wait::wait_until;
pub use serde_json::Value;
pub use std::fs::{self, File};
pub use std::os::unix::ffi::{OsStrExt, OsStringExt};
pub use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
pub use std::path::{Path, PathBuf};
pub use std::time::{Duration, Instant};

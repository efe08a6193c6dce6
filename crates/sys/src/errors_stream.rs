//! The standard error of this process.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::{AsFd, AsRawFd};

/// Redirects the standard error of this process to `file`, and returns the previous standard error.
pub fn send_to(file: &File) -> Result<File> {
    let before = stderr().as_fd().try_clone_to_owned().map_err(|e| Error::io("duplicate standard error", e))?;
    // SAFETY: numbers only. Standard error stays open, and no object owns its descriptor.
    if unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) } < 0 {
        return Err(Error::io("redirect standard error", io::Error::last_os_error()));
    }
    Ok(before.into())
}

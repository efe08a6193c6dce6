//! Our own standard error.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::{AsFd, AsRawFd};

/// From now on sends to `file` what this process writes to standard error, and gives what standard error was.
pub fn send_to(file: &File) -> Result<File> {
    let before = stderr().as_fd().try_clone_to_owned().map_err(|e| Error::io("keep standard error", e))?;
    // SAFETY: numbers only. Standard error's stays open, and nobody owns what it names.
    if unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) } < 0 {
        return Err(Error::io("send standard error elsewhere", io::Error::last_os_error()));
    }
    Ok(before.into())
}

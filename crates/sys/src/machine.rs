//! Machine and kernel, for reports and profiles.

use crate::{Error, Result};
use std::fs;

/// `uname -r`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// `uname -m`.
pub fn architecture() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

/// `x86_64, 2 CPUs, 24 GiB`.
pub fn describe() -> String {
    let architecture = architecture();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let gib = meminfo_bytes("MemTotal").map_or(0, |b| b.div_ceil(1 << 30));
    format!("{architecture}, {cpus} CPUs, {gib} GiB")
}

/// The value of a line of `/proc/meminfo` (such as `MemAvailable`). Unit: bytes.
pub fn meminfo_bytes(key: &str) -> Result<u64> {
    let path = "/proc/meminfo";
    let text = fs::read_to_string(path).map_err(|e| Error::io(format!("read {path}"), e))?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| Error::Parse { path: path.into(), text: key.into() })
}

/// Whether the caller is root (effective user id 0).
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The page size. Unit: bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

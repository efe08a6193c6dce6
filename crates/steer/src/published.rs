//! The counters of a running `ahead steer`, which `ahead top --once` shows if it has no interval.
//!
//! ```text
//!     steer ─▶ /run/ahead/steer.counters: its process, when it began, the numbers of its tables ─▶ top: opens the tables
//! ```
//!
//! Only root reads and writes the file. One that a killed process has left names a process that has ended, and counts for nothing.

use ahead_observe::{Counters, TableIds, Tables};
use ahead_process::undo::home;
use ahead_sys::process_id::ProcessId;
use ahead_sys::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Where a running `ahead steer` names its tables.
const PATH: &str = "/run/ahead/steer.counters";
/// The same while it is written.
const NEW_PATH: &str = "/run/ahead/steer.counters.new";
/// Only root: the numbers mean nothing to others.
const MODE: u32 = 0o600;
/// The longest file that is read, bytes. It has about 120.
const MAX_BYTES: u64 = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Announcement {
    process: ProcessId,
    /// CLOCK_MONOTONIC.
    began_ns: u64,
    tables: TableIds,
}

/// The file of this process. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Published(());

impl Published {
    /// Writes the file. The caller holds the lock of steering, so no other process does.
    pub(crate) fn new(counters: &Counters) -> Result<Published> {
        home::make_directory("steering read-ahead", Path::new(home::HOME))?;
        let failed = |e| Error::io(format!("write {PATH}"), e);
        let announcement = Announcement {
            process: ProcessId::own()?,
            began_ns: ahead_observe::now_ns(),
            tables: counters.table_ids()?,
        };
        let text = serde_json::to_string(&announcement).map_err(|e| failed(e.into()))?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(NEW_PATH).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| fs::rename(NEW_PATH, PATH)).map_err(failed)?;
        Ok(Published(()))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(PATH) {
            tracing::info!("remove {PATH}: {error}");
        }
    }
}

/// The tables of a running `ahead steer`, and the time since it began. `None`: none runs, or this process may not open them.
pub fn running_counters() -> Option<(Tables, Duration)> {
    let mut text = String::new();
    fs::File::open(PATH).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let announcement: Announcement = serde_json::from_str(&text).ok()?;
    if !announcement.process.is_alive() {
        return None;
    }
    let tables = Tables::open(&announcement.tables).inspect_err(|error| tracing::info!("{error}")).ok()?;
    let since = ahead_observe::now_ns().saturating_sub(announcement.began_ns);
    Some((tables, Duration::from_nanos(since)))
}

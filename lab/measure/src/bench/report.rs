//! The report of a job: a table, a page, JSON.

mod page;
mod table;

pub use page::page;
pub use table::text;

use crate::bench::Row;
use ahead_policy::DeviceDescription;
use ahead_sys::machine;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The results of a job, with device and window.
#[derive(Clone, Debug)]
pub struct Results {
    /// The directory of the files.
    pub directory: PathBuf,
    /// The device below the files, for people.
    pub device: String,
    /// The kernel's window for the files, KiB; `None` without a device.
    pub window_kb: Option<u64>,
    /// The description of the disk for policies; `None` if no policy ran.
    pub traits: Option<DeviceDescription>,
    pub rows: Vec<Row>,
}

/// The results as JSON; docs/reference/json.md describes the keys.
pub fn json(results: &Results) -> Value {
    let traits = results.traits.map(|traits| {
        json!({
            "access_s": traits.access_ns as f64 / 1e9,
            "bandwidth_bytes_per_s": traits.bandwidth_bytes_per_s,
            "parallelism": traits.parallelism,
            "request_s": traits.request_ns as f64 / 1e9,
        })
    });
    json!({
        "machine": machine::describe(),
        "kernel": machine::kernel_release(),
        "directory": results.directory.to_string_lossy(),
        "device": results.device,
        "read_ahead_kb": results.window_kb,
        "traits": traits,
        "rows": results.rows,
    })
}

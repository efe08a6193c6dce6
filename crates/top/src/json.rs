//! Open files and totals as JSON (docs/reference/json.md).

use crate::{Advice, Counted, OpenFile, Totals, Window};
use ahead_report::json::add_path;
use ahead_sys::machine::page_size;
use serde_json::{Value, json};
use std::time::Duration;

/// An open file. Counts are null unless an interval was counted.
pub fn file_json(file: &OpenFile, interval: Option<Duration>) -> Value {
    let window = file.window.as_ref();
    // A row for closed files has none of these.
    let open = (file.closed_files == 0).then_some(file);
    let mut value = json!({
        "pid": file.pid,
        "comm": Value::Null,
        "descriptor": file.descriptor,
        "path": Value::Null,
        "pattern": file.pattern.name(),
        "advice": window.and_then(Window::advice).map(Advice::name),
        "window_pages": window.map(|window| window.limit_pages),
        "disk_window_pages": window.map(|window| window.disk_limit_pages),
        "last_start_page": window.map(|window| window.start),
        "last_pages": window.map(|window| window.pages),
        "async_pages": window.map(|window| window.async_pages),
        "marker_page": window.and_then(Window::marker),
        "file_bytes": open.map(|file| file.file_bytes),
        "cached_pages": open.map(|file| file.cached_pages),
        "position_bytes": open.map(|file| file.position_bytes),
        "device": open.map(|file| file.device.to_string()),
        "inode": open.map(|file| file.inode_number),
        "closed_files": file.closed_files,
    });
    add_path(&mut value, "comm", &file.comm);
    if let Some(path) = &file.path {
        add_path(&mut value, "path", path);
    }
    add_counts(&mut value, file.counted.as_ref(), interval);
    value
}

/// Totals of the machine.
pub fn totals_json(totals: &Totals, interval: Option<Duration>) -> Value {
    let mut value = json!({
        "open_files": totals.open_files,
        "processes": totals.processes,
        "cached_bytes": totals.cached_bytes,
        "readahead_hit_ratio": readahead_hit_ratio(totals),
        "readahead_memory_bytes": totals.unread_pages.map(|pages| pages.saturating_mul(page_size())),
        "lost_events": totals.counted.as_ref().map(|_| totals.lost_events),
    });
    add_counts(&mut value, totals.counted.as_ref(), interval);
    value
}

/// Share of the pages read in the interval that were used (Wu: read-ahead hit ratio).
pub fn readahead_hit_ratio(totals: &Totals) -> Option<f64> {
    let counted = totals.counted.as_ref().filter(|counted| counted.issued_pages > 0)?;
    Some((counted.used_pages? as f64 / counted.issued_pages as f64).min(1.0))
}

fn add_counts(value: &mut Value, counted: Option<&Counted>, interval: Option<Duration>) {
    let bytes = |pages: u64| pages.saturating_mul(page_size());
    let seconds = interval.map(|interval| interval.as_secs_f64()).filter(|seconds| *seconds > 0.0);
    value["accesses_per_s"] = json!(
        counted
            .zip(seconds)
            .and_then(|(counted, seconds)| { counted.hits.map(|_| counted.accesses() as f64 / seconds) })
    );
    value["hits"] = json!(counted.and_then(|counted| counted.hits));
    value["locked"] = json!(counted.map(|counted| counted.locked));
    value["misses"] = json!(counted.map(|counted| counted.misses));
    value["markers"] = json!(counted.map(|counted| counted.markers));
    value["faults"] = json!(counted.map(|counted| counted.faults));
    value["waits"] = json!(counted.map(|counted| counted.waits));
    value["wait_us"] = json!(counted.map(|counted| counted.wait().as_micros() as u64));
    value["issued_bytes"] = json!(counted.map(|counted| bytes(counted.issued_pages)));
    value["used_bytes"] = json!(counted.and_then(|counted| counted.used_pages).map(bytes));
    value["wasted_bytes"] = json!(counted.map(|counted| bytes(counted.wasted_pages)));
    value["thrashed_pages"] = json!(counted.map(|counted| counted.thrashed_pages));
    value["amplification"] = json!(counted.and_then(Counted::amplification));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that the issue of this command has promised.
    const PROMISED: [&str; 14] = [
        "pid",
        "comm",
        "path",
        "pattern",
        "window_pages",
        "async_pages",
        "hits",
        "locked",
        "misses",
        "wait_us",
        "issued_bytes",
        "used_bytes",
        "wasted_bytes",
        "amplification",
    ];

    #[test]
    fn counts_are_null_without_an_interval() {
        let file = OpenFile { pid: 7, window: Some(Window::default()), ..OpenFile::default() };
        let value = file_json(&file, None);
        for key in PROMISED {
            assert!(value.get(key).is_some(), "{key}");
        }
        for key in &PROMISED[6..] {
            assert!(value[key].is_null(), "{key}: {value}");
        }
        assert_eq!((&value["window_pages"], &value["path"]), (&json!(0), &Value::Null));
    }

    #[test]
    fn counts_of_an_interval_are_bytes_and_microseconds() {
        let counted = Counted {
            hits: Some(6),
            misses: 2,
            wait_ns: 3_000_000,
            issued_pages: 10,
            used_pages: Some(4),
            ..Counted::default()
        };
        let file = OpenFile { path: Some(b"/\xff".into()), counted: Some(counted), ..OpenFile::default() };
        let value = file_json(&file, Some(Duration::from_secs(2)));
        assert_eq!((&value["issued_bytes"], &value["wait_us"]), (&json!(10 * page_size()), &json!(3000)));
        assert_eq!((&value["amplification"], &value["accesses_per_s"]), (&json!(2.5), &json!(4.0)));
        assert_eq!(value["path_percent"], "/%FF");
        let totals = Totals { counted: Some(counted), unread_pages: Some(3), ..Totals::default() };
        let value = totals_json(&totals, None);
        assert_eq!(
            (&value["readahead_hit_ratio"], &value["readahead_memory_bytes"]),
            (&json!(0.4), &json!(3 * page_size()))
        );
    }
}

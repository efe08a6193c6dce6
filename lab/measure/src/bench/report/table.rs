//! The results as a table.

use super::Results;
use crate::bench::Row;
use ahead_report::number::{grouped, size};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::one_line;
use ahead_sys::machine;

/// Directory, device, window and machine, in one line.
pub(super) fn about(results: &Results) -> String {
    let window = results.window_kb.map_or(String::new(), |kb| format!(", read_ahead_kb {kb}"));
    let traits = results.traits.map_or(String::new(), |traits| {
        let (access_ms, mb) = (traits.access_ns as f64 / 1e6, traits.bandwidth_bytes_per_s / 1e6);
        format!("; policies assume {access_ms:.2} ms, {mb:.0} MB/s, {} at once", traits.parallelism)
    });
    let (machine, kernel) = (machine::describe(), machine::kernel_release());
    let directory = results.directory.display();
    one_line(&format!("{directory} on {}{window}; {machine}, Linux {kernel}{traits}", results.device))
}

/// The results as text.
pub fn text(results: &Results, screen: Screen) -> String {
    let notes: String = disturbances(&results.rows).iter().map(|note| format!("\ndisturbed: {note}\n")).collect();
    format!("{}\n\n{}{notes}", about(results), table(&results.rows).render(screen))
}

/// Disturbances that make the figures doubtful, one line each.
pub(super) fn disturbances(rows: &[Row]) -> Vec<String> {
    [evictions(rows), foreign_reads(rows)].into_iter().flatten().collect()
}

/// Evicted bytes are reported from this share of the used bytes: fewer do not change a printed figure.
const MIN_EVICTED_SHARE: f64 = 0.01;

/// Evictions during a run, mostly by the kernel.
fn evictions(rows: &[Row]) -> Option<String> {
    let share = |row: &Row| row.evicted_bytes.unwrap_or(0) as f64 / row.used_bytes.max(1) as f64;
    let of: Vec<&Row> = rows.iter().filter(|row| share(row) >= MIN_EVICTED_SHARE).collect();
    let most = of.iter().filter_map(|row| row.evicted_bytes).max()?;
    Some(format!(
        "up to {} of the files were evicted during a run (in {} of {} rows): the kernel reclaimed memory, or another process dropped \
        caches; unused pages among them were read again",
        size(most),
        of.len(),
        rows.len()
    ))
}

/// Reads of another process: the device reads this many bytes, and this share, more than the policy requested. Metadata reads are fewer.
const FOREIGN_BYTES: u64 = 4 << 20;
const FOREIGN_SHARE: f64 = 0.1;

/// Reads of the device that no policy requested.
fn foreign_reads(rows: &[Row]) -> Option<String> {
    let beyond = |row: &Row| {
        let asked = row.issued_bytes? + row.evicted_bytes.unwrap_or(0);
        let beyond = row.device_bytes?.checked_sub(asked)?;
        (row.write_bytes == 0 && beyond > FOREIGN_BYTES && beyond as f64 > FOREIGN_SHARE * asked as f64)
            .then_some(beyond)
    };
    let most = rows.iter().filter_map(beyond).max()?;
    Some(format!(
        "another process reads the same device: up to {} more than was requested in a run, which falsifies times and amplification, and \
        perhaps the description of the disk",
        size(most)
    ))
}

fn count(count: Option<u64>) -> String {
    count.map_or("–".into(), grouped)
}

pub(super) fn table(rows: &[Row]) -> Table {
    let columns = ["elapsed", "MB/s", "lowest", "highest", "ratio", "user", "system", "idle", "CPU", "worst call"];
    let columns = columns.into_iter().chain(["hits", "locked", "misses", "queue waits", "requests", "read", "×"]);
    let columns = columns.map(|name| (name, Kind::Number));
    let names = [("job", Kind::Text), ("policy", Kind::Text), ("pages", Kind::Number)];
    let mut table = Table::new(names.into_iter().chain(columns));
    for row in rows {
        let time = |time_s: f64| format!("{time_s:.3} s");
        let mb = |bytes: f64| format!("{:.1}", bytes / 1e6);
        table.row([
            row.variant.clone(),
            row.policy.clone(),
            row.pages.map_or(String::new(), grouped),
            time(row.elapsed_s.median),
            mb(row.throughput_bytes_per_s.median),
            mb(row.throughput_bytes_per_s.min),
            mb(row.throughput_bytes_per_s.max),
            format!("{:.2}", row.ratio.median),
            time(row.user_s),
            time(row.system_s),
            time(row.idle_s),
            format!("{:.0} %", row.cpu_percent),
            format!("{:.1} ms", row.latency_most_s * 1e3),
            count(row.hits),
            count(row.locked),
            count(row.misses),
            count(row.queue_waits),
            count(row.device_requests),
            row.device_bytes.map_or("–".into(), size),
            row.amplification.map_or("–".into(), |times| format!("{times:.2}")),
        ]);
    }
    table
}

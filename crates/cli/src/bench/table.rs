//! Rows as a table.

use super::Measured;
use ahead_bench::Row;
use ahead_kernel::machine;
use ahead_report::number::{grouped, size};
use ahead_report::table::{Kind, Screen, Table};

/// What was measured, and where, in a line.
pub fn about(measured: &Measured) -> String {
    let window = measured.window_kb.map_or(String::new(), |kb| format!(", read_ahead_kb {kb}"));
    let traits = measured.traits.map_or(String::new(), |traits| {
        let (access_ms, mb) = (traits.access_ns as f64 / 1e6, traits.bandwidth_bytes_per_s / 1e6);
        format!("; policies are told of {access_ms:.2} ms, {mb:.0} MB/s, {} at once", traits.parallelism)
    });
    let (machine, kernel) = (machine::describe(), machine::kernel_release());
    format!("{} on {}{window}; {machine}, Linux {kernel}{traits}", measured.directory.display(), measured.device)
}

pub fn text(measured: &Measured, screen: Screen) -> String {
    let disturbed = disturbed(&measured.rows).map_or(String::new(), |note| format!("\n{note}\n"));
    format!("{}\n\n{}{disturbed}", about(measured), table(&measured.rows).render(screen))
}

/// What others took out of the cache meanwhile, if they did.
pub fn disturbed(rows: &[Row]) -> Option<String> {
    let most = rows.iter().filter_map(|row| row.evicted_bytes).max().filter(|bytes| *bytes > 0)?;
    let of = rows.iter().filter(|row| row.evicted_bytes.is_some_and(|bytes| bytes > 0)).count();
    Some(format!(
        "disturbed: the kernel evicted up to {} of this file system during a run ({of} of {} rows); such runs read it again",
        size(most),
        rows.len()
    ))
}

fn count(count: Option<u64>) -> String {
    count.map_or("–".into(), grouped)
}

pub fn table(rows: &[Row]) -> Table {
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

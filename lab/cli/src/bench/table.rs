//! Rows as a table.

use super::Measured;
use ahead_bench::Row;
use ahead_report::number::{grouped, size};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::one_line;
use ahead_sys::machine;

/// What was measured, and where, in a line.
pub fn about(measured: &Measured) -> String {
    let window = measured.window_kb.map_or(String::new(), |kb| format!(", read_ahead_kb {kb}"));
    let traits = measured.traits.map_or(String::new(), |traits| {
        let (access_ms, mb) = (traits.access_ns as f64 / 1e6, traits.bandwidth_bytes_per_s / 1e6);
        format!("; policies are told of {access_ms:.2} ms, {mb:.0} MB/s, {} at once", traits.parallelism)
    });
    let (machine, kernel) = (machine::describe(), machine::kernel_release());
    let directory = measured.directory.display();
    one_line(&format!("{directory} on {}{window}; {machine}, Linux {kernel}{traits}", measured.device))
}

pub fn text(measured: &Measured, screen: Screen) -> String {
    let notes: String = disturbed(&measured.rows).iter().map(|note| format!("\ndisturbed: {note}\n")).collect();
    format!("{}\n\n{}{notes}", about(measured), table(&measured.rows).render(screen))
}

/// What makes the figures doubtful, a line each.
pub fn disturbed(rows: &[Row]) -> Vec<String> {
    [evicted(rows), read_by_others(rows)].into_iter().flatten().collect()
}

/// Of what a row used: less that others evicted changes no figure that is printed.
const LEAST_EVICTED: f64 = 0.01;

/// What somebody, most often the kernel itself, took out of the cache meanwhile.
fn evicted(rows: &[Row]) -> Option<String> {
    let share = |row: &Row| row.evicted_bytes.unwrap_or(0) as f64 / row.used_bytes.max(1) as f64;
    let of: Vec<&Row> = rows.iter().filter(|row| share(row) >= LEAST_EVICTED).collect();
    let most = of.iter().filter_map(|row| row.evicted_bytes).max()?;
    Some(format!(
        "up to {} of the files left the cache during a run (in {} of {} rows): the kernel reclaims memory, or somebody drops caches; what \
         had not been used yet was read again",
        size(most),
        of.len(),
        rows.len()
    ))
}

/// Beyond what a policy asked for, by so many bytes and such a part, the device reads for somebody else: metadata are less.
const OTHERS_BYTES: u64 = 4 << 20;
const OTHERS_PART: f64 = 0.1;

/// What the device read though no policy's run asked for it.
fn read_by_others(rows: &[Row]) -> Option<String> {
    let beyond = |row: &Row| {
        let asked = row.issued_bytes? + row.evicted_bytes.unwrap_or(0);
        let beyond = row.device_bytes?.checked_sub(asked)?;
        (row.write_bytes == 0 && beyond > OTHERS_BYTES && beyond as f64 > OTHERS_PART * asked as f64).then_some(beyond)
    };
    let most = rows.iter().filter_map(beyond).max()?;
    Some(format!(
        "something else reads the same device: up to {} more than was asked for in a run, of which times and amplification know nothing; \
         what policies were told of the disk may be wrong, too",
        size(most)
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

//! The columns of `ahead top`, and its table as text.

use ahead_report::number::{count, grouped, share, size, time};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use ahead_sys::machine::page_size;
use ahead_top::{Counted, OpenFile, Sample, SortKey, Totals, readahead_hit_ratio};
use std::time::Duration;

/// A column.
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// The key that sorts by it.
    pub key: Option<SortKey>,
    /// Where a terminal is narrow, columns of a higher rank are left out first.
    pub rank: u8,
    pub cell: fn(&OpenFile, Option<Duration>) -> String,
}

const fn column(name: &'static str, key: SortKey, rank: u8, cell: fn(&OpenFile, Option<Duration>) -> String) -> Column {
    Column { name, kind: Kind::Number, key: Some(key), rank, cell }
}

const PID: Column = column("pid", SortKey::Pid, 0, |file, _| file.pid.to_string());
const COMMAND: Column =
    Column { kind: Kind::Text, ..column("command", SortKey::Comm, 0, |file, _| printable(&file.comm)) };
const FD: Column = Column {
    key: None,
    ..column("fd", SortKey::Pid, 5, |file, _| file.descriptor.map_or_else(|| "–".into(), |fd| fd.to_string()))
};
const PATTERN: Column =
    Column { kind: Kind::Text, ..column("pattern", SortKey::Pattern, 1, |file, _| file.pattern.name().to_owned()) };
const WINDOW: Column = column("window", SortKey::Window, 2, |file, _| of_window(file, |window| window.limit_pages));
const ASYNC: Column =
    Column { key: None, ..column("async", SortKey::Window, 6, |file, _| of_window(file, |window| window.async_pages)) };
const LAST: Column =
    Column { key: None, ..column("last", SortKey::Window, 6, |file, _| of_window(file, |window| window.pages)) };
const CACHED: Column = column("cached", SortKey::Cached, 3, |file, _| compact(pages(file.cached_pages)));
const SIZE: Column = column("size", SortKey::Size, 4, |file, _| compact(file.file_bytes));
const PATH: Column = Column { name: "path", kind: Kind::Path, key: None, rank: 0, cell: |file, _| path(file) };

const RATE: Column = column("access/s", SortKey::Rate, 4, |file, interval| {
    let counted = file.counted.as_ref().filter(|counted| counted.hits.is_some()).zip(interval);
    counted.map_or_else(String::new, |(counted, interval)| {
        grouped((counted.accesses() as f64 / interval.as_secs_f64()).round() as u64)
    })
});
const HITS: Column = column("hits", SortKey::Hits, 7, |file, _| optional(file, |counted| counted.hits.map(grouped)));
const LOCKED: Column = column("locked", SortKey::Locked, 5, |file, _| number(file, |counted| counted.locked));
const MISSES: Column = column("misses", SortKey::Misses, 3, |file, _| number(file, |counted| counted.misses));
const WAIT: Column =
    column("wait", SortKey::Wait, 1, |file, _| optional(file, |counted| Some(time(counted.wait().as_micros() as u64))));
const ISSUED: Column =
    column("issued", SortKey::Issued, 2, |file, _| bytes(file, |counted| Some(counted.issued_pages)));
const USED: Column =
    Column { key: None, ..column("used", SortKey::Issued, 8, |file, _| bytes(file, |counted| counted.used_pages)) };
const WASTED: Column =
    column("wasted", SortKey::Wasted, 4, |file, _| bytes(file, |counted| Some(counted.wasted_pages)));
const AMPLIFICATION: Column = column("ampl", SortKey::Amplification, 3, |file, _| {
    optional(file, |counted| counted.amplification().map(|factor| format!("{factor:.1}")))
});
const THRASHED: Column = Column {
    key: None,
    ..column("thrash", SortKey::Wasted, 9, |file, _| number(file, |counted| counted.thrashed_pages))
};

/// The columns of states alone.
pub const OF_STATES: [Column; 10] = [PID, COMMAND, FD, PATTERN, WINDOW, LAST, ASYNC, CACHED, SIZE, PATH];
/// The columns with counts.
pub const WITH_COUNTS: [Column; 17] = [
    PID,
    COMMAND,
    FD,
    PATTERN,
    WINDOW,
    ASYNC,
    RATE,
    HITS,
    LOCKED,
    MISSES,
    WAIT,
    ISSUED,
    USED,
    WASTED,
    AMPLIFICATION,
    THRASHED,
    PATH,
];

/// The columns for a sample.
pub fn columns(has_counts: bool) -> &'static [Column] {
    if has_counts { &WITH_COUNTS } else { &OF_STATES }
}

fn pages(pages: u64) -> u64 {
    pages.saturating_mul(page_size())
}

fn of_window(file: &OpenFile, value: fn(&ahead_top::Window) -> u64) -> String {
    file.window.as_ref().map_or_else(|| "–".into(), |window| compact(pages(value(window))))
}

fn optional(file: &OpenFile, value: impl Fn(&Counted) -> Option<String>) -> String {
    file.counted.as_ref().and_then(value).unwrap_or_default()
}

fn number(file: &OpenFile, value: fn(&Counted) -> u64) -> String {
    optional(file, |counted| Some(grouped(value(counted))))
}

fn bytes(file: &OpenFile, value: fn(&Counted) -> Option<u64>) -> String {
    optional(file, |counted| value(counted).map(|count| compact(pages(count))))
}

/// The path, or what the row stands for.
pub fn path(file: &OpenFile) -> String {
    match &file.path {
        Some(path) => printable(path),
        None if file.closed_files > 0 => format!("({} closed meanwhile)", count(file.closed_files, "file", "files")),
        None => format!("(inode {} of {})", file.inode_number, file.device),
    }
}

/// `512`, `128K`, `1.5M`: short, for columns.
pub fn compact(bytes: u64) -> String {
    let unit = (0..7).rev().find(|unit| bytes >> (10 * unit) > 0).unwrap_or(0);
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    let name = ["", "K", "M", "G", "T", "P", "E"][unit];
    if unit == 0 || value >= 10.0 || value.fract() < 0.05 {
        format!("{value:.0}{name}")
    } else {
        format!("{value:.1}{name}")
    }
}

/// The totals, one sentence a line.
pub fn totals(totals: &Totals, interval: Option<Duration>) -> Vec<String> {
    let files = count(totals.open_files, "open file", "open files");
    let mut lines = vec![format!(
        "{files} of {}; page cache {}",
        count(totals.processes, "process", "processes"),
        size(totals.cached_bytes)
    )];
    let Some((counted, interval)) = totals.counted.as_ref().zip(interval) else { return lines };
    let hits = counted.hits.map_or_else(String::new, |hits| format!("{} hits, ", grouped(hits)));
    lines.push(format!(
        "{}: {hits}{} locked, {} misses; waited {}; read {}, {} evicted unused{}",
        time(interval.as_micros() as u64),
        grouped(counted.locked),
        grouped(counted.misses),
        time(counted.wait().as_micros() as u64),
        size(pages(counted.issued_pages)),
        size(pages(counted.wasted_pages)),
        if totals.lost_events > 0 { format!("; {} events lost", grouped(totals.lost_events)) } else { String::new() },
    ));
    let ratio = readahead_hit_ratio(totals).map(|ratio| share((ratio * 1e6) as u64, 1_000_000));
    if let Some(unread) = totals.unread_pages {
        let ratio = ratio.map_or_else(|| "–".into(), |ratio| ratio + " used");
        lines.push(format!("read-ahead: {ratio}; {} in memory and not yet used", size(pages(unread))));
    }
    lines
}

/// The totals and the table as text.
pub fn text(sample: &Sample, screen: Screen) -> String {
    let columns = fitting(columns(sample.interval.is_some()), screen.width.unwrap_or(usize::MAX));
    let mut table = Table::new(columns.iter().map(|column| (column.name, column.kind)));
    for file in &sample.files {
        table.row(columns.iter().map(|column| (column.cell)(file, sample.interval)));
    }
    let totals: String = totals(&sample.totals, sample.interval).into_iter().map(|line| line + "\n").collect();
    format!("{totals}\n{}", table.render(screen))
}

/// Columns of a number or a name take about this much space each.
const COLUMN_WIDTH: usize = 9;
/// The least space for the path.
const PATH_WIDTH: usize = 24;

/// The columns for which there is room, without those of the highest ranks.
pub fn fitting(columns: &'static [Column], width: usize) -> Vec<&'static Column> {
    let mut kept: Vec<&Column> = columns.iter().collect();
    while kept.len() > 4 && kept.len().saturating_sub(1) * COLUMN_WIDTH + PATH_WIDTH > width {
        let highest = kept.iter().map(|column| column.rank).max().unwrap_or(0);
        let at = kept.iter().rposition(|column| column.rank == highest).unwrap_or(0);
        kept.remove(at);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_top::{Pattern, Window};

    pub fn sample() -> Sample {
        let counted = Counted {
            hits: Some(12_000),
            misses: 40,
            wait_ns: 300_000_000,
            issued_pages: 1280,
            used_pages: Some(40),
            ..Counted::default()
        };
        let file = OpenFile {
            pid: 71,
            comm: b"db\x1b[2J".into(),
            descriptor: Some(4),
            path: Some(b"/srv/a\n.db".into()),
            file_bytes: 1 << 30,
            cached_pages: 300,
            window: Some(Window { limit_pages: 32, async_pages: 8, ..Window::default() }),
            pattern: Pattern::RandomMapped,
            counted: Some(counted),
            ..OpenFile::default()
        };
        let closed = OpenFile { pid: 72, closed_files: 3, ..OpenFile::default() };
        let totals = Totals {
            open_files: 1234,
            processes: 1,
            counted: Some(counted),
            unread_pages: Some(512),
            ..Totals::default()
        };
        Sample { interval: Some(Duration::from_secs(2)), totals, files: vec![file, closed] }
    }

    #[test]
    fn table_has_one_line_for_each_file_without_control_characters() {
        let text = text(&sample(), Screen::default());
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert_eq!(lines[0], "1,234 open files of 1 process; page cache 0 B");
        assert_eq!(
            lines[1],
            "2.00 s: 12,000 hits, 0 locked, 40 misses; waited 300.0 ms; read 5.0 MiB, 0 B evicted unused"
        );
        assert_eq!(lines[2], "read-ahead: 3 % used; 2.0 MiB in memory and not yet used");
        for part in
            ["71  db\\u{1b}[2J", "random mmap    128K", "6,020", "300.0 ms", "5M", "160K", "32.0", "/srv/a\\n.db"]
        {
            assert!(lines[5].contains(part), "{part}: {text}");
        }
        assert!(lines[6].contains("(3 files closed meanwhile)"), "{text}");
    }

    #[test]
    fn states_alone_have_no_columns_of_counts() {
        let mut sample = sample();
        sample.interval = None;
        let text = text(&sample, Screen::default());
        assert!(text.contains("cached") && !text.contains("misses"), "{text}");
    }

    #[test]
    fn narrow_screens_keep_the_columns_of_low_rank() {
        let names = |width| fitting(&WITH_COUNTS, width).iter().map(|column| column.name).collect::<Vec<_>>();
        assert_eq!(names(1000).len(), WITH_COUNTS.len());
        assert_eq!(names(80), ["pid", "command", "pattern", "window", "wait", "issued", "path"]);
        assert_eq!(names(10), ["pid", "command", "pattern", "path"]);
    }

    #[test]
    fn compact_sizes() {
        for (bytes, expected) in
            [(0, "0"), (512, "512"), (131_072, "128K"), (1_572_864, "1.5M"), (u64::MAX, "16E"), (4096, "4K")]
        {
            assert_eq!(compact(bytes), expected);
        }
    }
}

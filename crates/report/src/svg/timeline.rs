//! Uses of files by time: files from top to bottom in order of first use, time from left to right, a dot for each use. Larger dots
//! are larger uses.
//!
//! A profile may have a hundred thousand extents, more than a browser can draw quickly or an eye can distinguish. Therefore
//! dots that would overlap are drawn as one.

use super::{Anchor, Canvas, WIDTH, ticks};
use crate::number;
use crate::text::shorten;
use ahead_model::sorting;
use std::collections::BTreeMap;

/// A row of the picture: a file or a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its name, printable.
    pub label: String,
    /// Used bytes. If there is no room for all names, the rows with the most used bytes get one.
    pub bytes: u64,
    /// Whether it is a device whose metadata was used.
    pub metadata: bool,
}

/// A use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dot {
    /// Index of the row.
    pub row: usize,
    pub time_us: u64,
    /// Bytes used.
    pub bytes: u64,
}

/// An event, drawn as a line across all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub time_us: u64,
    /// Its name, printable.
    pub label: String,
}

/// The content of the picture.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
    /// Uses, in any order.
    pub dots: Vec<Dot>,
    /// Events, in order of time.
    pub events: Vec<Event>,
    /// Minimum length of the time axis, microseconds.
    pub duration_us: u64,
}

const LEFT: f64 = 250.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
/// Height of a row if every row has its name.
const NAMED_ROW: f64 = 15.0;
/// Maximum number of rows that all get their name.
const MOST_NAMED: usize = 36;
/// Height of the plot with more rows.
const HEIGHT: f64 = 460.0;
/// Minimum vertical distance between two names.
const NAME_GAP: f64 = 13.0;
/// Approximate width of a character in an event's name.
const CHARACTER: f64 = 6.6;
/// Maximum length of a row's name, characters.
const NAME_LENGTH: usize = 36;
/// Maximum length of an event's name, characters.
const EVENT_LENGTH: usize = 16;
/// Dots in the same cell of this size are drawn as one.
const CELL: f64 = 3.0;
/// Maximum number of dots with tooltips, which make the file several times as large.
const MOST_TITLES: usize = 2500;

/// Draws the picture.
pub fn timeline(timeline: &Timeline) -> String {
    let rows = timeline.rows.len().max(1) as f64;
    let plot = if timeline.rows.len() <= MOST_NAMED { rows * NAMED_ROW } else { HEIGHT };
    let end = timeline.dots.iter().map(|dot| dot.time_us).chain([timeline.duration_us, 1]).max().unwrap_or(1);
    let x = |time_us: u64| LEFT + time_us as f64 / end as f64 * (WIDTH - LEFT - RIGHT);
    let y = |row: usize| TOP + (row as f64 + 0.5) / rows * plot;
    let mut canvas = Canvas::new(TOP + plot + 30.0);
    for tick in ticks(end as f64, 7.0) {
        let at = x(tick as u64);
        canvas.line("grid", (at, TOP), (at, TOP + plot));
        canvas.text("axis", (at, TOP + plot + 20.0), Anchor::Middle, &axis_time(tick, end));
    }
    names(&mut canvas, &timeline.rows, &y);
    events(&mut canvas, &timeline.events, &x, plot);
    dots(&mut canvas, timeline, &x, &y);
    canvas.finish("Files by time of use")
}

/// A label of the time axis. All labels have the unit that suits the end of the axis.
fn axis_time(time_us: f64, end_us: u64) -> String {
    match end_us {
        0..2_000 => format!("{} µs", super::short(time_us)),
        2_000..2_000_000 => format!("{} ms", super::short(time_us / 1e3)),
        _ => format!("{} s", super::short(time_us / 1e6)),
    }
}

/// Draws the names of rows: all, or those with the most used bytes if there is no room.
fn names(canvas: &mut Canvas, rows: &[Row], y: &impl Fn(usize) -> f64) {
    let mut by_bytes: Vec<usize> = (0..rows.len()).collect();
    sorting::sort_by_key(&mut by_bytes, |row| std::cmp::Reverse((rows[*row].metadata, rows[*row].bytes)));
    let mut taken: Vec<f64> = Vec::new();
    for row in by_bytes {
        let at = y(row);
        if taken.iter().any(|other| (at - other).abs() < NAME_GAP) {
            continue;
        }
        taken.push(at);
        canvas.text("axis", (LEFT - 12.0, at + 4.0), Anchor::End, &shorten(&rows[row].label, NAME_LENGTH));
        canvas.line("grid", (LEFT - 8.0, at), (LEFT, at));
        if taken.len() as f64 > HEIGHT * 2.0 / NAME_GAP {
            break;
        }
    }
}

/// Draws a line for each event, and the names that do not overlap the one before.
fn events(canvas: &mut Canvas, events: &[Event], x: &impl Fn(u64) -> f64, plot: f64) {
    let mut last_line = f64::NEG_INFINITY;
    let mut names_end = f64::NEG_INFINITY;
    for event in events {
        let at = x(event.time_us);
        if at - last_line >= 1.0 {
            canvas.line("mark", (at, TOP - 6.0), (at, TOP + plot));
            last_line = at;
        }
        let name = shorten(&event.label, EVENT_LENGTH);
        let width = CHARACTER * (name.chars().count() + 1) as f64;
        // At the right edge the name is drawn to the left of its line.
        let (left, anchor) = if at + width > WIDTH { (at - width, Anchor::End) } else { (at, Anchor::Start) };
        if left >= names_end {
            canvas.text("axis", (at, TOP - 12.0), anchor, &name);
            names_end = left + width;
        }
    }
}

/// Uses that are drawn as one dot.
#[derive(Clone, Copy, Default)]
struct Merged {
    bytes: u64,
    uses: u64,
    first: Option<Dot>,
}

fn dots(canvas: &mut Canvas, timeline: &Timeline, x: &impl Fn(u64) -> f64, y: &impl Fn(usize) -> f64) {
    let mut cells: BTreeMap<(u32, u32), Merged> = BTreeMap::new();
    for dot in timeline.dots.iter().filter(|dot| dot.row < timeline.rows.len()) {
        let cell = ((y(dot.row) / CELL) as u32, (x(dot.time_us) / CELL) as u32);
        let merged = cells.entry(cell).or_default();
        merged.bytes = merged.bytes.saturating_add(dot.bytes);
        merged.uses += 1;
        merged.first.get_or_insert(*dot);
    }
    let titles = cells.len() <= MOST_TITLES;
    for merged in cells.values() {
        let Some(dot) = merged.first else { continue };
        let row = &timeline.rows[dot.row];
        let class = if row.metadata { "metadata dot" } else { "data dot" };
        let more = if merged.uses > 1 { format!(" in {}", number::grouped(merged.uses)) } else { String::new() };
        let title = titles
            .then(|| format!("{}\n{}{more} at {}", row.label, number::size(merged.bytes), number::time(dot.time_us)));
        canvas.circle(class, (x(dot.time_us), y(dot.row)), radius(merged.bytes), title.as_deref());
    }
}

/// The radius of a dot: the minimum for 4 KiB, and the same increment for each doubling.
fn radius(bytes: u64) -> f64 {
    // The whole part of the logarithm, and a straight line between two of them: the exact function would load libm at each start.
    let bytes = bytes.max(4096);
    let whole = (bytes / 4096).ilog2();
    let doublings = f64::from(whole) + bytes as f64 / (4096_u64 << whole) as f64 - 1.0;
    (1.5 + 0.4 * doublings).min(6.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str) -> Row {
        Row { label: label.into(), bytes: 1, metadata: false }
    }

    #[test]
    fn overlapping_uses_are_one_dot() {
        let dots = (0..1000).map(|time_us| Dot { row: 0, time_us, bytes: 4096 }).collect();
        let svg = timeline(&Timeline { rows: vec![row("/a")], dots, events: Vec::new(), duration_us: 1_000_000 });
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("3.9 MiB in 1,000 at 0 µs"), "{svg}");
    }

    #[test]
    fn names_are_escaped_and_do_not_overlap() {
        let rows: Vec<Row> = (0..5000).map(|number| row(&format!("/<b>{number}"))).collect();
        let svg = timeline(&Timeline { rows, ..Timeline::default() });
        assert!(!svg.contains("<b>"));
        assert!(svg.matches("&lt;b&gt;").count() < 40);
    }

    #[test]
    fn invalid_values_do_not_panic() {
        let dots = vec![Dot { row: 9, time_us: u64::MAX, bytes: u64::MAX }, Dot { row: 0, time_us: 0, bytes: 0 }];
        let events = vec![Event { time_us: u64::MAX, label: String::new() }];
        assert!(timeline(&Timeline { rows: vec![row("")], dots, events, duration_us: 0 }).starts_with("<svg"));
        assert!(timeline(&Timeline::default()).starts_with("<svg"));
    }
}

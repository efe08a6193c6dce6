//! The used parts of files: one strip for each file, from its first byte to its last.

use super::{Anchor, Canvas, WIDTH};
use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMap {
    /// Its name, printable.
    pub label: String,
    /// The text at the right: `1.2 MiB of 9.4 MiB`.
    pub note: String,
    pub size_bytes: u64,
    /// Used byte ranges, in any order.
    pub used: Vec<Range<u64>>,
}

const STEP: f64 = 42.0;
const STRIP: f64 = 14.0;
/// Columns of a strip: each is two units wide, which a usual screen can show.
const COLUMNS: usize = 480;
/// Number of shades from unused to completely used.
const SHADES: f64 = 8.0;

/// Draws the strips from top to bottom.
pub fn page_map(files: &[FileMap]) -> String {
    let mut canvas = Canvas::new(STEP * files.len() as f64);
    for (index, file) in files.iter().enumerate() {
        let top = STEP * index as f64;
        canvas.text("label", (0.0, top + 14.0), Anchor::Start, &file.label);
        canvas.text("value", (WIDTH, top + 14.0), Anchor::End, &file.note);
        canvas.rectangle("unused", (0.0, top + 20.0), (WIDTH, STRIP), 1.0);
        let unit = WIDTH / COLUMNS as f64;
        for (columns, shade) in runs(&shades(file)) {
            let left = columns.start as f64 * unit;
            let size = ((columns.end - columns.start) as f64 * unit, STRIP);
            canvas.rectangle("data", (left, top + 20.0), size, f64::from(shade) / SHADES);
        }
    }
    canvas.finish("Used parts of the files with the most used bytes")
}

/// The used share of each column in eighths, rounded up, so that every use is visible.
fn shades(file: &FileMap) -> Vec<u8> {
    let mut used = vec![0.0; COLUMNS];
    if file.size_bytes == 0 {
        return vec![0; COLUMNS];
    }
    let per_byte = COLUMNS as f64 / file.size_bytes as f64;
    for range in &file.used {
        let from = (range.start as f64 * per_byte).min(COLUMNS as f64);
        let to = (range.end as f64 * per_byte).min(COLUMNS as f64);
        let first = from.floor() as usize;
        for (index, part) in used[first..(to.ceil() as usize).max(first)].iter_mut().enumerate() {
            let column = (first + index) as f64;
            *part += (to.min(column + 1.0) - from.max(column)).max(0.0);
        }
    }
    used.into_iter().map(|part: f64| (part * SHADES - 1e-6).ceil().clamp(0.0, SHADES) as u8).collect()
}

/// Runs of columns with the same shade, without unused ones.
fn runs(shades: &[u8]) -> Vec<(Range<usize>, u8)> {
    let mut runs: Vec<(Range<usize>, u8)> = Vec::new();
    for (column, shade) in shades.iter().enumerate().filter(|(_, shade)| **shade > 0) {
        match runs.last_mut() {
            Some((columns, last)) if columns.end == column && last == shade => columns.end = column + 1,
            _ => runs.push((column..column + 1, *shade)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size_bytes: u64, used: &[(u64, u64)]) -> FileMap {
        FileMap { size_bytes, used: used.iter().map(|(from, to)| *from..*to).collect(), ..FileMap::default() }
    }

    #[test]
    fn used_parts_are_drawn_at_their_offsets() {
        let half = file(480 * 4096, &[(0, 240 * 4096)]);
        assert_eq!(runs(&shades(&half)), [(0..240, 8)]);
        let all = file(100, &[(0, 40), (40, 100)]);
        assert_eq!(runs(&shades(&all)), [(0..480, 8)]);
    }

    #[test]
    fn single_page_of_a_large_file_is_visible() {
        let one = file(100 << 30, &[(50 << 30, (50 << 30) + 4096)]);
        assert_eq!(runs(&shades(&one)), [(240..241, 1)]);
    }

    #[test]
    fn invalid_sizes_do_not_panic() {
        let beyond = file(4096, &[(0, 1 << 62), (1 << 62, (1 << 62) + 1)]);
        assert_eq!(runs(&shades(&beyond)), [(0..480, 8)]);
        assert_eq!(runs(&shades(&file(0, &[(0, 4096), (4096, 8192)]))), []);
    }
}

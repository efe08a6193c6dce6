//! Tables: text aligned to the left, numbers to the right, one column that is shortened on a narrow terminal.

use crate::text::{one_line, shorten};
use console::{Style, Term, measure_text_width};
use std::io::IsTerminal;

/// The output device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Width in columns; `None`: unlimited (a pipe or file).
    pub width: Option<usize>,
    /// Whether colour escape sequences are permitted.
    pub colour: bool,
}

impl Screen {
    /// Standard output: its width if it is a terminal, and colour if permitted (`NO_COLOR`, `CLICOLOR`, `TERM` and
    /// `CLICOLOR_FORCE` are respected).
    pub fn stdout() -> Self {
        let width = if std::io::stdout().is_terminal() { Term::stdout().size_checked() } else { None };
        Screen { width: width.map(|(_, columns)| usize::from(columns)), colour: console::colors_enabled() }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colour { style.force_styling(true).apply_to(text).to_string() } else { text.to_owned() }
    }

    /// Formats a heading.
    pub fn heading(&self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Formats a warning.
    pub fn warning(&self, text: &str) -> String {
        self.paint(Style::new().red().bold(), text)
    }

    /// Formats less important text.
    pub fn faint(&self, text: &str) -> String {
        self.paint(Style::new().dim(), text)
    }
}

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Aligned to the left.
    Text,
    /// Aligned to the right.
    Number,
    /// Aligned to the left; shortened at its beginning if the table is wider than the screen. One per table.
    Path,
}

/// A table with named columns. Each cell is one line of printable characters: others are escaped as by [`one_line`], which does
/// not change text that [`crate::text::printable`] has already escaped.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<(String, Kind)>,
    rows: Vec<Vec<String>>,
}

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of a path column; in a narrower terminal, lines wrap.
const NARROWEST: usize = 12;

impl Table {
    /// A table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Kind)>) -> Self {
        let columns = columns.into_iter().map(|(name, kind)| (one_line(name), kind)).collect();
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty, surplus cells are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| one_line(&cell.into())).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Names and kinds of the columns.
    pub fn columns(&self) -> &[(String, Kind)] {
        &self.columns
    }

    /// The rows, each with one cell per column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Renders the table as lines of text.
    pub fn render(&self, screen: Screen) -> String {
        let widths = self.widths(screen);
        let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut text = screen.heading(&self.line(&names, &widths)) + "\n";
        for row in &self.rows {
            text += &self.line(row, &widths);
            text.push('\n');
        }
        text
    }

    fn widths(&self, screen: Screen) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| measure_text_width(name)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = measure_text_width(cell).max(*width);
            }
        }
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let path = self.columns.iter().position(|(_, kind)| *kind == Kind::Path);
        if let (Some(path), Some(screen_width)) = (path, screen.width) {
            let excess = total.saturating_sub(screen_width);
            widths[path] = widths[path].min(widths[path].saturating_sub(excess).max(NARROWEST));
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, kind)) in cells.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line += &" ".repeat(GAP);
            }
            let cell = if *kind == Kind::Path { shorten(cell, *width) } else { cell.clone() };
            let padding = " ".repeat(width.saturating_sub(measure_text_width(&cell)));
            line += &if *kind == Kind::Number { padding + &cell } else { cell + &padding };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([("used", Kind::Number), ("file", Kind::Path), ("note", Kind::Text)]);
        table.row(["4.0 KiB", "/usr/lib/libm.so", ""]);
        table.row(["12 B", "/é", "stale"]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "   used  file              note\n4.0 KiB  /usr/lib/libm.so\n   12 B  /é                stale\n";
        assert_eq!(sample().render(Screen::default()), expected);
    }

    #[test]
    fn path_column_is_shortened_on_a_narrow_screen() {
        let text = sample().render(Screen { width: Some(28), colour: false });
        assert_eq!(text, "   used  file          note\n4.0 KiB  …lib/libm.so\n   12 B  /é            stale\n");
        assert!(text.lines().all(|line| measure_text_width(line) <= 28), "{text}");
    }

    #[test]
    fn colour_is_used_only_if_permitted() {
        assert!(!sample().render(Screen::default()).contains('\u{1b}'));
        let colourful = sample().render(Screen { width: None, colour: true });
        assert!(colourful.starts_with("\u{1b}[1m") && colourful.matches('\u{1b}').count() == 2, "{colourful:?}");
    }

    /// Regression: names of scenarios, jobs and policies reached the terminal without escaping.
    #[test]
    fn control_characters_in_cells_are_escaped() {
        let mut table = Table::new([("a\u{1b}[2J", Kind::Text)]);
        table.row(["\u{1b}]0;x\u{7}\ny"]);
        table.row([crate::text::printable(b"/a\\b\x1b")]);
        let shown = table.render(Screen::default());
        assert!(!shown.contains('\u{1b}') && shown.lines().count() == 3, "{shown:?}");
        assert_eq!(table.rows()[1], [r"/a\\b\u{1b}"], "escaped text is not escaped again");
    }

    #[test]
    fn short_rows_are_filled() {
        let mut table = Table::new([("a", Kind::Text), ("b", Kind::Number)]);
        table.row(["x"]);
        assert_eq!(table.rows(), [["x", ""]]);
    }
}

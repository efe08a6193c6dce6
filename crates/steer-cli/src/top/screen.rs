//! The screen of `ahead top`: its state, the keys that change it, and how it is drawn. No terminal and no sampler is used here.
//!
//! ```text
//!     1,234 open files of 56 processes; page cache 3.1 GiB            totals
//!     1.00 s: 12,000 hits, 0 locked, 40 misses; …
//!      pid  command  pattern      window   wait▼   issued  path       one row for each open file
//!     ▌ 71  db       random mmap    128K  300 ms       5M  /srv/a.db
//!     ┌ /srv/a.db: 300 of 262,144 pages cached, 1.0 MiB a sign ─┐     page map of the selected file, with Enter
//!     │ ··▁▁█                                                   │
//!     └─────────────────────────────────────────────────────────┘
//!      q quit  ↑↓ select  ←→ order  Enter page map  space pause       keys
//! ```

use super::columns::{columns, fitting, path, totals};
use ahead_report::number::grouped;
use ahead_report::table::Kind;
use ahead_report::text::{height, shorten};
use ahead_sys::machine::page_size;
use ahead_top::{OpenFile, PageMap, Sample, SortKey, sort};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Paragraph, Row, Table, TableState};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Redraw,
    Quit,
    /// Ctrl-C.
    Interrupt,
}

/// The state of the screen.
pub struct Display {
    sample: Sample,
    key: SortKey,
    selected: usize,
    /// Signs that a page map may have.
    map_signs: usize,
    pub shows_map: bool,
    pub is_paused: bool,
    map: Option<Result<PageMap, String>>,
    first_row: usize,
    /// Rows of files on the screen when it was drawn last.
    pub visible_rows: usize,
}

/// Lines of a page map without its frame.
const MAP_LINES: u16 = 4;
const HELP: &str = " q quit  ↑↓ select  ←→ order  Enter page map  space pause";

impl Display {
    pub fn new(key: SortKey) -> Display {
        Display {
            sample: Sample::default(),
            key,
            selected: 0,
            map_signs: 0,
            shows_map: false,
            is_paused: false,
            map: None,
            first_row: 0,
            visible_rows: 0,
        }
    }

    /// Takes over a sample. The same file stays selected, where it still is.
    pub fn update(&mut self, sample: Sample) {
        self.sample = sample;
        self.arrange();
    }

    /// The selected file.
    pub fn selected(&self) -> Option<&OpenFile> {
        self.sample.files.get(self.selected)
    }

    /// Looks up the paths of the visible files, and the pages of the selected one if they are shown.
    pub fn look_up(&mut self, map: impl FnOnce(&OpenFile, usize) -> Result<PageMap, String>) {
        let visible = self.first_row..(self.first_row + self.visible_rows.max(1)).min(self.sample.files.len());
        self.sample.files.get_mut(visible).into_iter().flatten().for_each(OpenFile::look_up_path);
        if let Some(file) = self.sample.files.get_mut(self.selected) {
            file.look_up_path();
        }
        let signs = self.map_signs;
        self.map = self.selected().filter(|_| self.shows_map).map(|file| map(file, signs));
    }

    fn arrange(&mut self) {
        let identity = |file: &OpenFile| (file.pid, file.open, file.closed_files > 0);
        let before = self.selected().map(identity);
        sort(&mut self.sample.files, self.key);
        let found = self.sample.files.iter().position(|file| Some(identity(file)) == before);
        self.select(found.unwrap_or(self.selected));
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.sample.files.len().saturating_sub(1));
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: KeyEvent) -> Action {
        let page = self.visible_rows.max(1);
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Action::Interrupt,
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(page)),
            KeyCode::PageDown => self.select(self.selected + page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Left => self.change_order(false),
            KeyCode::Right => self.change_order(true),
            KeyCode::Enter => self.shows_map = !self.shows_map,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            _ => {}
        }
        Action::Redraw
    }

    /// The next or the previous column that can decide the order.
    fn change_order(&mut self, is_next: bool) {
        let keys: Vec<SortKey> =
            columns(self.sample.interval.is_some()).iter().filter_map(|column| column.key).collect();
        let at = keys.iter().position(|key| *key == self.key).unwrap_or(0);
        let step = if is_next { 1 } else { keys.len() - 1 };
        self.key = keys[(at + step) % keys.len()];
        self.arrange();
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let totals = totals(&self.sample.totals, self.sample.interval);
        let map_lines = if self.shows_map { MAP_LINES + 2 } else { 0 };
        let heights = [
            Constraint::Length(totals.len() as u16),
            Constraint::Min(2),
            Constraint::Length(map_lines),
            Constraint::Length(1),
        ];
        let [top, middle, bottom, help] = Layout::vertical(heights).areas(frame.area());
        frame.render_widget(Paragraph::new(Text::from_iter(totals)), top);
        self.draw_table(frame, middle);
        self.map_signs = usize::from(bottom.width.saturating_sub(2)) * usize::from(MAP_LINES);
        if self.shows_map {
            self.draw_map(frame, bottom);
        }
        let state = if self.is_paused { "  PAUSED" } else { "" };
        let faint = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Line::styled(format!("{HELP}  order: {}{state}", self.key.name()), faint), help);
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        self.visible_rows = usize::from(area.height.saturating_sub(1));
        // The selected row is visible, and the table does not move more than that needs.
        let last_first = self.selected.saturating_sub(self.visible_rows.saturating_sub(1));
        self.first_row = self.first_row.clamp(last_first, self.selected.max(last_first));
        let columns = fitting(columns(self.sample.interval.is_some()), usize::from(area.width));
        let files = self.sample.files.iter().skip(self.first_row).take(self.visible_rows);
        let mut cells: Vec<Vec<String>> = files
            .map(|file| columns.iter().map(|column| (column.cell)(file, self.sample.interval)).collect())
            .collect();
        let title = |name: &str, is_key: bool| if is_key { format!("{name}▼") } else { name.to_owned() };
        let titles: Vec<String> =
            columns.iter().map(|column| title(column.name, column.key == Some(self.key))).collect();
        let width = |text: &String| Line::raw(text.as_str()).width();
        let mut widths: Vec<usize> = titles.iter().map(width).collect();
        for row in &cells {
            widths
                .iter_mut()
                .zip(row)
                .for_each(|(width, cell)| *width = (*width).max(Line::raw(cell.as_str()).width()));
        }
        // The path is the last column, and has the rest.
        let others: usize = widths.iter().rev().skip(1).map(|width| width + 1).sum();
        let rest = usize::from(area.width).saturating_sub(others);
        cells.iter_mut().filter_map(|row| row.last_mut()).for_each(|path| *path = shorten(path, rest));
        let line = |cells: Vec<String>| {
            Row::new(cells.into_iter().zip(&columns).map(|(cell, column)| match column.kind {
                Kind::Number => Text::from(cell).right_aligned(),
                _ => Text::from(cell),
            }))
        };
        if let Some(path) = widths.last_mut() {
            *path = rest;
        }
        let widths = widths.into_iter().map(|width| Constraint::Length(width as u16));
        let header = line(titles).style(Style::new().add_modifier(Modifier::BOLD));
        let table = Table::new(cells.into_iter().map(line), widths)
            .header(header)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(Some(self.selected - self.first_row));
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn draw_map(&self, frame: &mut Frame<'_>, area: Rect) {
        let (title, lines) = match (self.selected(), &self.map) {
            (Some(file), Some(Ok(map))) => {
                let title = format!(
                    "{}: {} of {} pages cached, {} pages a sign",
                    path(file),
                    grouped(file.cached_pages),
                    grouped(file.file_bytes.div_ceil(page_size())),
                    grouped(map.part_pages),
                );
                (title, signs(map, file, usize::from(area.width.saturating_sub(2))))
            }
            (Some(file), Some(Err(why))) => (path(file), vec![why.clone()]),
            _ => ("page map".into(), Vec::new()),
        };
        let room = usize::from(area.width).saturating_sub(4);
        let block = Block::bordered().title(format!(" {} ", shorten(&title, room)));
        frame.render_widget(Paragraph::new(Text::from_iter(lines)).block(block), area);
    }
}

/// One sign for each part of the file: the more pages are cached, the higher. The marker of the next read-ahead is `>`.
fn signs(map: &PageMap, file: &OpenFile, width: usize) -> Vec<String> {
    let marker = file.window.and_then(|window| window.marker()).map(|page| map.part_of(page));
    let sign = |(part, share): (usize, &f64)| match Some(part) == marker {
        true => '>',
        false => height(*share),
    };
    let signs: Vec<char> = map.shares.iter().enumerate().map(sign).collect();
    signs.chunks(width.max(1)).map(|line| line.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_top::{Counted, Totals, Window};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    fn file(pid: u32, misses: u64) -> OpenFile {
        let counted = Counted { hits: Some(1), misses, wait_ns: misses * 1_000_000, ..Counted::default() };
        OpenFile {
            pid,
            open: u64::from(pid),
            comm: b"reader".into(),
            path: Some(format!("/srv/\u{1b}[2J/{pid}.db").into()),
            file_bytes: 100 * 4096,
            window: Some(Window { limit_pages: 32, start: 8, pages: 8, async_pages: 4, ..Window::default() }),
            counted: Some(counted),
            ..OpenFile::default()
        }
    }

    fn display(files: Vec<OpenFile>) -> Display {
        let mut display = Display::new(SortKey::Wait);
        let totals = Totals { open_files: 7, counted: Some(Counted::default()), ..Totals::default() };
        display.update(Sample { interval: Some(Duration::from_secs(1)), totals, files });
        display
    }

    /// Draws twice, as the interface does: the first drawing finds the number of rows that fit.
    fn drawn(display: &mut Display, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        for _ in 0..2 {
            terminal.draw(|frame| display.draw(frame)).unwrap();
            display.look_up(|_, signs| Ok(PageMap { shares: vec![0.0, 0.01, 1.0, 0.5], part_pages: signs as u64 }));
        }
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    fn press(display: &mut Display, code: KeyCode) -> Action {
        display.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn totals_table_and_keys_are_drawn() {
        let lines = drawn(&mut display(vec![file(1, 5), file(2, 50)]), 100, 12);
        assert!(lines[0].starts_with("7 open files of 0 processes"), "{lines:#?}");
        assert!(lines[2].contains("wait▼") && lines[2].ends_with("path"), "{lines:#?}");
        assert!(lines[3].contains("50.0 ms") && lines[3].ends_with("/srv/\\u{1b}[2J/2.db"), "{lines:#?}");
        assert!(lines[4].contains("5.0 ms") && lines[11].contains("q quit"), "{lines:#?}");
    }

    #[test]
    fn keys_select_and_change_the_order() {
        let mut display = display((1..=50).map(|pid| file(pid, 100 - u64::from(pid))).collect());
        drawn(&mut display, 100, 12);
        assert_eq!((display.selected().unwrap().pid, display.visible_rows), (1, 8));
        for (code, pid) in [
            (KeyCode::Down, 2),
            (KeyCode::PageDown, 10),
            (KeyCode::End, 50),
            (KeyCode::Down, 50),
            (KeyCode::PageUp, 42),
            (KeyCode::Home, 1),
            (KeyCode::Up, 1),
        ] {
            assert_eq!(press(&mut display, code), Action::Redraw);
            assert_eq!(display.selected().unwrap().pid, pid, "{code:?}");
        }
        press(&mut display, KeyCode::End);
        let lines = drawn(&mut display, 100, 12);
        assert!(lines.iter().any(|line| line.ends_with("/50.db")), "{lines:#?}");
        press(&mut display, KeyCode::Left);
        assert_eq!((display.key, display.selected().unwrap().pid), (SortKey::Misses, 50));
        for _ in 0..20 {
            press(&mut display, KeyCode::Right);
        }
        assert_eq!(press(&mut display, KeyCode::Char('q')), Action::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(display.press(interrupt), Action::Interrupt);
    }

    #[test]
    fn selection_follows_its_file_and_survives_its_end() {
        let mut display = display(vec![file(1, 9), file(2, 5)]);
        press(&mut display, KeyCode::Down);
        display.update(Sample { files: vec![file(1, 1), file(2, 5), file(3, 4)], ..Sample::default() });
        assert_eq!(display.selected().unwrap().pid, 2);
        display.update(Sample { files: vec![file(1, 1)], ..Sample::default() });
        assert_eq!(display.selected().unwrap().pid, 1);
        display.update(Sample::default());
        assert!(display.selected().is_none());
        drawn(&mut display, 80, 24);
    }

    #[test]
    fn page_map_shows_resident_parts_and_the_marker() {
        let mut display = display(vec![file(1, 5)]);
        press(&mut display, KeyCode::Enter);
        let lines = drawn(&mut display, 80, 16);
        assert!(lines[9].contains("1.db: 0 of 100 pages cached, 312 pages a sign"), "{lines:#?}");
        assert!(lines[10].starts_with("│>▁█▄"), "{lines:#?}");
        display.look_up(|_, _| Err("not here".into()));
        let mut terminal = Terminal::new(TestBackend::new(80, 16)).unwrap();
        terminal.draw(|frame| display.draw(frame)).unwrap();
        assert!(format!("{}", terminal.backend()).contains("not here"));
    }

    #[test]
    fn any_size_of_a_terminal_is_drawn() {
        let mut display = display(vec![file(1, 5), file(2, 6)]);
        display.shows_map = true;
        for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 100)] {
            drawn(&mut display, width, height);
        }
    }
}

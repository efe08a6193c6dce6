//! The pages: an index, and one for each paper with its lines and figures.

use super::{PaperResult, counts};
use crate::{Figure, Line, Outcome, Paper, Plot, Series};
use ahead_report::html::Page;
use ahead_report::svg::{Axis, Curve, SERIES, lines, stacked};
use ahead_report::table::{Kind, Table};

/// File name of the page with links to the others.
pub const INDEX: &str = "index.html";

/// The pages: file names and contents.
pub fn pages(results: &[PaperResult]) -> Vec<(String, String)> {
    let file = |paper: &Paper| format!("{}.html", paper.name);
    let mut pages: Vec<(String, String)> =
        results.iter().map(|PaperResult { paper, outcome }| (file(paper), page(paper, outcome))).collect();
    let mut index = Page::new("Papers on read-ahead, and the results here");
    let link = |PaperResult { paper, outcome }: &PaperResult| {
        let text = format!("{}: {} ({}): {}", paper.authors, paper.title, paper.year, counts(&outcome.lines));
        (file(paper), text)
    };
    index.links(&results.iter().map(link).collect::<Vec<_>>());
    pages.push((INDEX.to_owned(), index.render()));
    pages
}

fn page(paper: &Paper, outcome: &Outcome) -> String {
    let mut page = Page::new(paper.title);
    page.text(&format!("{}, {}", paper.authors, paper.year)).text(paper.story).text(&counts(&outcome.lines));
    page.links(&[(INDEX.to_owned(), "all papers".to_owned())]);
    page.section("Claims of the paper, and the results here").table(&table(&outcome.lines));
    for figure in &outcome.figures {
        draw(&mut page, figure);
    }
    page.section("Inputs").table(&inputs(outcome));
    page.render()
}

fn table(lines: &[Line]) -> Table {
    let is_live = lines.iter().any(|line| line.live.is_some());
    let names = ["claim", "quoted", "ours", "verdict", "tolerance"].into_iter().chain(is_live.then_some("live"));
    let mut table = Table::new(names.map(|name| (name, Kind::Text)));
    for line in lines {
        let cells =
            [&line.claim, &line.quoted, &line.ours, &line.verdict.to_string(), &line.tolerance].map(Clone::clone);
        table.row(cells.into_iter().chain(line.live_text()));
    }
    table
}

fn inputs(outcome: &Outcome) -> Table {
    let mut table = Table::new(["what", "value", "from"].map(|name| (name, Kind::Text)));
    for input in &outcome.inputs {
        table.row([&input.what, &input.value, &input.source].map(Clone::clone));
    }
    table
}

fn axis(axis: &crate::Axis) -> Axis<'_> {
    Axis { label: &axis.label, is_logarithmic: axis.is_logarithmic }
}

fn curve(series: &Series) -> Curve<'_> {
    Curve { name: &series.name, points: &series.points }
}

fn draw(page: &mut Page, figure: &Figure) {
    page.section(&figure.title);
    let (picture, names) = match &figure.plot {
        Plot::Lines { x, y, series } => {
            let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
            (lines(axis(x), axis(y), &series.iter().map(curve).collect::<Vec<_>>()), names)
        }
        Plot::Stacked { x, y, parts, bars } => {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let bars: Vec<(&str, &[f64])> =
                bars.iter().map(|bar| (bar.label.as_str(), bar.values.as_slice())).collect();
            (stacked(x, y, &parts, &bars), parts)
        }
    };
    page.legend(&SERIES.into_iter().zip(names).collect::<Vec<_>>());
    page.picture(&picture, &figure.caption);
}

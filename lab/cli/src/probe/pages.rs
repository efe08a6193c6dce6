//! Pelouin's figures from the data of this disk: a picture for each, and a page with all of them.

use super::shown;
use ahead_measure::probe::figures::Figure;
use ahead_report::html::Page;
use ahead_report::svg::{Axis, Curve, lines, standalone};
use std::path::Path;

/// File name of the page with all figures.
pub const PAGE: &str = "index.html";

/// The files: names and contents.
pub fn render(path: &Path, figures: &[Figure]) -> Vec<(String, String)> {
    let mut page = Page::new("Results from times of reads");
    page.text(&format!(
        "Figures 1 to 5 of Pelouin, Investigating ext2 optimizations in Linux (2009), from data of {}.",
        shown(path)
    ));
    let mut files = Vec::new();
    for figure in figures {
        let axis = |label| Axis { label, is_logarithmic: false };
        let curve = Curve { name: figure.title, points: &figure.points };
        let picture = lines(axis(figure.x), axis(figure.y), &[curve]);
        page.section(&format!("Figure {}: {}", figure.number, figure.title)).picture(&picture, figure.title);
        files.push((format!("figure-{}.svg", figure.number), standalone(&picture)));
    }
    files.push((PAGE.to_owned(), page.render()));
    files
}

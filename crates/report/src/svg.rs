//! Pictures as inline SVG: shapes with classes. The style sheet of the page sets their colours for light and dark mode.
//!
//! The classes are those of `html/style.css`: `data`, `metadata`, `unused`, `cold`, `ahead`, `warm`, `other`, `grid`, `axis`,
//! `mark`, `label`, `value`, `curve`, and the classes in [`SERIES`].

mod bars;
mod lines;
mod page_map;
mod rows;
mod timeline;

pub use bars::{Bar, Tone, bars};
pub use lines::{Axis, Curve, lines, stacked};
pub use page_map::{FileMap, page_map};
pub use rows::rows;
pub use timeline::{Dot, Event, Row, Timeline, timeline};

use crate::html::{STYLE, escape};
use std::fmt::Write;

/// The classes of series, in their order.
pub const SERIES: [&str; 6] = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"];

/// Width of every picture in SVG units; the page scales it.
const WIDTH: f64 = 960.0;

/// A picture as a separate file, with the style sheet in it.
pub fn standalone(picture: &str) -> String {
    let head = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" ");
    let picture = picture.replacen("<svg ", &head, 1);
    match picture.find('>') {
        Some(end) => format!("{}\n<style>\n{STYLE}</style>{}\n", &picture[..=end], &picture[end + 1..]),
        None => picture,
    }
}

/// The point of a text at its coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture under construction.
struct Canvas {
    height: f64,
    body: String,
}

impl Canvas {
    fn new(height: f64) -> Self {
        Canvas { height, body: String::new() }
    }

    fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64), opacity: f64) {
        let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{}\"", short(opacity)) } else { String::new() };
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{opacity}/>",
            short(at.0),
            short(at.1),
            short(size.0.max(0.0)),
            short(size.1.max(0.0))
        ));
    }

    fn circle(&mut self, class: &str, at: (f64, f64), radius: f64, title: Option<&str>) {
        let head =
            format!("<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\"", short(at.0), short(at.1), short(radius));
        match title {
            Some(title) => self.push(format_args!("{head}><title>{}</title></circle>", escape(title))),
            None => self.push(format_args!("{head}/>")),
        }
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            short(from.0),
            short(from.1),
            short(to.0),
            short(to.1)
        ));
    }

    fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            short(at.0),
            short(at.1),
            escape(text)
        ));
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        writeln!(self.body, "{element}").expect("a string takes every character");
    }

    /// Returns the picture. `name` is its text for screen readers.
    fn finish(self, name: &str) -> String {
        let (width, height) = (short(WIDTH), short(self.height));
        let name = escape(name);
        format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{name}\">\n{}</svg>\n", self.body)
    }
}

/// Formats with at most two decimals: a hundredth of a unit is invisible.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    // The sum of no values is -0.0.
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// About `about` round numbers from 0 to `end`: steps of 1, 2 or 5 times a power of ten.
fn ticks(end: f64, about: f64) -> Vec<f64> {
    if !(end > 0.0 && end.is_finite()) {
        return vec![0.0];
    }
    let rough = end / about;
    let power = power_of_ten(rough);
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    (0..).map(|number| f64::from(number) * step).take_while(|at| *at <= end * 1.0001).collect()
}

/// The largest power of ten that is not above a positive number. Without the logarithm, which would load libm at each start.
fn power_of_ten(number: f64) -> f64 {
    let (mut power, mut divisor) = (1.0, 1.0);
    while power * 10.0 <= number {
        power *= 10.0;
    }
    while power / divisor > number && divisor < f64::MAX / 10.0 {
        divisor *= 10.0;
    }
    power / divisor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_are_not_above_the_number() {
        let powers = [0.000_05, 0.02, 0.1, 0.99, 1.0, 9.9, 10.0, 12_345.0].map(power_of_ten);
        assert_eq!(powers, [0.000_01, 0.01, 0.1, 0.1, 1.0, 1.0, 10.0, 10_000.0]);
    }

    /// Regression: a count of nothing was drawn as "-0".
    #[test]
    fn negative_zero_is_formatted_as_zero() {
        assert_eq!(
            (short(-0.0), short(-0.001), short(-1.5), short(0.25)),
            ("0".into(), "0".into(), "-1.5".into(), "0.25".into())
        );
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(ticks(10.0, 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.7, 7.0).len(), 8);
        assert_eq!(ticks(0.0, 5.0), [0.0]);
        assert_eq!(ticks(f64::NAN, 5.0), [0.0]);
        assert!(ticks(i64::MAX as f64, 8.0).len() <= 12);
    }

    #[test]
    fn numbers_have_at_most_two_decimals() {
        assert_eq!([short(1.0), short(0.256), short(100.0), short(-0.5)], ["1", "0.26", "100", "-0.5"]);
    }
}

//! Line charts and stacked bars, in the style of papers.

use super::{Anchor, Canvas, SERIES, WIDTH, short, ticks};
use crate::html::escape;

const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 10.0;
const HEIGHT: f64 = 300.0;
const BOTTOM: f64 = TOP + HEIGHT;
const AXIS: f64 = 48.0;
/// Maximum number of labels on the lower axis: more would overlap.
const MOST_LABELS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis<'a> {
    /// The quantity with its unit.
    pub label: &'a str,
    /// Whether the scale is logarithmic.
    pub is_logarithmic: bool,
}

/// A series of points, from left to right.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve<'a> {
    /// The name of the series.
    pub name: &'a str,
    /// Coordinates of the points.
    pub points: &'a [(f64, f64)],
}

/// Maps values to positions.
struct Scale {
    first: f64,
    last: f64,
    is_logarithmic: bool,
    length: f64,
}

impl Scale {
    /// A scale from the smallest value (from 0 unless it is logarithmic, or some values are negative) to the largest.
    fn of(values: impl Iterator<Item = f64> + Clone, is_logarithmic: bool, length: f64) -> Scale {
        let values = values.filter(|value| value.is_finite() && (!is_logarithmic || *value > 0.0));
        let last = values.clone().fold(if is_logarithmic { f64::MIN_POSITIVE } else { 0.0 }, f64::max);
        let first = values.fold(if is_logarithmic { last } else { 0.0 }, f64::min);
        Scale { first, last, is_logarithmic, length }
    }

    /// The position of a value. `None`: not finite, or not positive on a logarithmic scale.
    fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.is_logarithmic && value <= 0.0) {
            return None;
        }
        let part = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let span = part(self.last) - part(self.first);
        Some(if span > 0.0 { (part(value) - part(self.first)) / span * self.length } else { 0.0 })
    }

    fn ticks(&self, about: f64) -> Vec<f64> {
        if !self.is_logarithmic {
            return ticks(self.last, about);
        }
        let powers: Vec<f64> = (-40..=60)
            .map(|power| 2f64.powi(power))
            .filter(|at| (self.first * 0.999..=self.last * 1.001).contains(at))
            .collect();
        let every = powers.len().div_ceil(MOST_LABELS).max(1);
        powers.into_iter().step_by(every).collect()
    }
}

/// A line chart with a dot at each value, in the colours of [`SERIES`].
pub fn lines(x: Axis, y: Axis, curves: &[Curve]) -> String {
    let mut canvas = Canvas::new(BOTTOM + AXIS);
    let points = || curves.iter().flat_map(|curve| curve.points);
    let across = Scale::of(points().map(|point| point.0), x.is_logarithmic, WIDTH - LEFT - RIGHT);
    let up = Scale::of(points().map(|point| point.1), y.is_logarithmic, HEIGHT);
    frame(&mut canvas, &up, x.label, y.label);
    for tick in across.ticks(10.0) {
        let Some(at) = across.at(tick) else { continue };
        canvas.line("grid", (LEFT + at, TOP), (LEFT + at, BOTTOM));
        canvas.text("axis", (LEFT + at, BOTTOM + 16.0), Anchor::Middle, &short(tick));
    }
    for (curve, class) in curves.iter().zip(SERIES) {
        let placed = curve.points.iter().filter_map(|point| Some((point, across.at(point.0)?, up.at(point.1)?)));
        let placed: Vec<_> = placed.map(|(point, x, y)| (point, LEFT + x, BOTTOM - y)).collect();
        let path: Vec<String> = placed.iter().map(|(_, x, y)| format!("{},{}", short(*x), short(*y))).collect();
        canvas.push(format_args!("<polyline class=\"curve {class}\" points=\"{}\"/>", path.join(" ")));
        for (point, x, y) in placed {
            let title = format!("{}: {}, {}", curve.name, short(point.0), short(point.1));
            canvas.circle(class, (x, y), 3.0, Some(&title));
        }
    }
    canvas.finish(&spoken(y.label, x.label, curves.iter().map(|curve| curve.name)))
}

/// Stacked bars from left to right, each a label and a value for each part, the first part lowest, in the colours of [`SERIES`].
pub fn stacked(x: &str, y: &str, parts: &[&str], bars: &[(&str, &[f64])]) -> String {
    let mut canvas = Canvas::new(BOTTOM + AXIS);
    let sums = bars.iter().map(|(_, values)| values.iter().filter(|value| value.is_finite()).sum::<f64>());
    let up = Scale::of(sums, false, HEIGHT);
    frame(&mut canvas, &up, x, y);
    let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    let labelled = bars.len().div_ceil(MOST_LABELS).max(1);
    for (index, (label, values)) in bars.iter().enumerate() {
        let left = LEFT + step * index as f64;
        let mut from = 0.0;
        for ((value, part), class) in values.iter().zip(parts).zip(SERIES) {
            let Some(height) = up.at(*value) else { continue };
            let title = escape(&format!("{label}: {part} {}", short(*value)));
            canvas.push(format_args!("<g><title>{title}</title>"));
            canvas.rectangle(class, (left + step * 0.12, BOTTOM - from - height), (step * 0.76, height), 1.0);
            canvas.push(format_args!("</g>"));
            from += height;
        }
        if index % labelled == 0 {
            canvas.text("axis", (left + step / 2.0, BOTTOM + 16.0), Anchor::Middle, label);
        }
    }
    canvas.finish(&spoken(y, x, parts.iter().copied()))
}

fn frame(canvas: &mut Canvas, up: &Scale, x: &str, y: &str) {
    for tick in up.ticks(6.0) {
        let Some(at) = up.at(tick) else { continue };
        canvas.line("grid", (LEFT, BOTTOM - at), (WIDTH - RIGHT, BOTTOM - at));
        canvas.text("axis", (LEFT - 8.0, BOTTOM - at + 4.0), Anchor::End, &short(tick));
    }
    canvas.text("label", ((LEFT + WIDTH - RIGHT) / 2.0, BOTTOM + 40.0), Anchor::Middle, x);
    let (across, middle) = (16.0, TOP + HEIGHT / 2.0);
    canvas.push(format_args!("<g transform=\"rotate(-90 {} {})\">", short(across), short(middle)));
    canvas.text("label", (across, middle), Anchor::Middle, y);
    canvas.push(format_args!("</g>"));
}

fn spoken<'a>(y: &str, x: &str, names: impl Iterator<Item = &'a str>) -> String {
    format!("{y} against {x}: {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(label: &str) -> Axis<'_> {
        Axis { label, is_logarithmic: false }
    }

    /// The numbers in an attribute, in the order of the elements that have it.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let (opens, names) = (format!("<{element} "), format!(" {attribute}=\""));
        let value = |text: &str| text.split(&names).nth(1)?.split('"').next()?.parse().ok();
        svg.split(&opens).skip(1).filter_map(value).collect()
    }

    #[test]
    fn points_are_drawn_at_their_values() {
        let points = [(0.0, 0.0), (5.0, 1.0), (10.0, 4.0)];
        let svg = lines(plain("x"), plain("<y>"), &[Curve { name: "a&b", points: &points }]);
        let (x, y) = (numbers(&svg, "circle", "cx"), numbers(&svg, "circle", "cy"));
        assert_eq!((x.len(), y.len()), (3, 3));
        assert!(((x[1] - x[0]) - (x[2] - x[1])).abs() < 0.02, "{x:?}");
        assert!(((y[0] - y[2]) / (y[0] - y[1]) - 4.0).abs() < 0.01, "{y:?}");
        assert!(svg.contains("&lt;y&gt;") && svg.contains("a&amp;b") && !svg.contains("<y>"));
    }

    #[test]
    fn logarithmic_axis_maps_equal_factors_to_equal_distances() {
        let x = Axis { label: "pages", is_logarithmic: true };
        let points = [(1.0, 1.0), (16.0, 1.0), (256.0, 1.0), (0.0, 1.0), (-4.0, 1.0)];
        let svg = lines(x, plain("s"), &[Curve { name: "n", points: &points }]);
        let x = numbers(&svg, "circle", "cx");
        assert_eq!(x.len(), 3, "values that are not positive are left out");
        assert!(((x[1] - x[0]) - (x[2] - x[1])).abs() < 0.02, "{x:?}");
    }

    #[test]
    fn stacked_parts_adjoin() {
        let svg = stacked("n", "s", &["user", "idle"], &[("1", &[1.0, 3.0]), ("2", &[2.0, 0.0])]);
        let (y, height) = (numbers(&svg, "rect", "y"), numbers(&svg, "rect", "height"));
        assert!((height[1] / height[0] - 3.0).abs() < 0.01 && (height[2] / height[0] - 2.0).abs() < 0.01);
        assert!((y[1] + height[1] - y[0]).abs() < 0.02, "{y:?} {height:?}");
    }

    #[test]
    fn empty_and_invalid_values_do_not_panic() {
        for points in [&[][..], &[(f64::NAN, 1.0)], &[(0.0, f64::INFINITY)]] {
            let curve = Curve { name: "n", points };
            assert!(lines(plain("x"), plain("y"), &[curve]).starts_with("<svg"));
        }
        assert!(stacked("x", "y", &["a"], &[]).starts_with("<svg"));
        assert!(stacked("x", "y", &["a"], &[("b", &[f64::NAN])]).starts_with("<svg"));
    }
}

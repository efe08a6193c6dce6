//! Bars with whiskers: measured times, cold, with `ahead`, warm.

use super::{Anchor, Canvas, WIDTH, short, ticks};

/// The meaning of a bar, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Cold cache.
    Cold,
    /// With `ahead`.
    Ahead,
    /// Warm cache.
    Warm,
    /// Any other.
    Other,
}

/// A bar of the median, with the minimum and maximum as a whisker.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The name of the measurement.
    pub label: String,
    /// Its colour.
    pub tone: Tone,
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

const LABELS: f64 = 190.0;
const VALUES: f64 = 200.0;
const BAR: f64 = 22.0;
const STEP: f64 = 36.0;
const TOP: f64 = 6.0;
const AXIS: f64 = 26.0;

/// Horizontal bars on one scale from 0. `marker`: a line across all of them, such as a lower bound.
pub fn bars(bars: &[Bar], unit: &str, marker: Option<(f64, &str)>) -> String {
    let bottom = TOP + STEP * bars.len() as f64;
    let mut canvas = Canvas::new(bottom + AXIS + if marker.is_some() { 18.0 } else { 0.0 });
    let values = bars.iter().flat_map(|bar| [bar.median, bar.max]).chain(marker.map(|(at, _)| at));
    let end = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let scale = if end > 0.0 { (WIDTH - LABELS - VALUES) / end } else { 0.0 };
    let x = |value: f64| LABELS + value * scale;
    for tick in ticks(end, 6.0) {
        canvas.line("grid", (x(tick), TOP), (x(tick), bottom));
        canvas.text("axis", (x(tick), bottom + 16.0), Anchor::Middle, &format!("{} {unit}", short(tick)));
    }
    for (index, bar) in bars.iter().enumerate() {
        draw(&mut canvas, bar, unit, TOP + STEP * index as f64 + (STEP - BAR) / 2.0, &x);
    }
    if let Some((at, label)) = marker {
        canvas.line("mark", (x(at), TOP), (x(at), bottom + 22.0));
        let anchor = if x(at) < WIDTH / 2.0 { Anchor::Start } else { Anchor::End };
        canvas.text("label", (x(at), bottom + 36.0), anchor, label);
    }
    let spoken: Vec<_> = bars.iter().map(|bar| format!("{}: {} {unit}", bar.label, short(bar.median))).collect();
    canvas.finish(&spoken.join(", "))
}

fn draw(canvas: &mut Canvas, bar: &Bar, unit: &str, top: f64, x: &impl Fn(f64) -> f64) {
    let class = match bar.tone {
        Tone::Cold => "cold",
        Tone::Ahead => "ahead",
        Tone::Warm => "warm",
        Tone::Other => "other",
    };
    let middle = top + BAR / 2.0;
    canvas.text("label", (LABELS - 12.0, middle + 4.5), Anchor::End, &bar.label);
    canvas.rectangle(class, (LABELS, top), (x(bar.median) - LABELS, BAR), 1.0);
    for (from, to) in
        [((bar.min, 0.0), (bar.max, 0.0)), ((bar.min, -4.0), (bar.min, 4.0)), ((bar.max, -4.0), (bar.max, 4.0))]
    {
        canvas.line("whisker", (x(from.0), middle + from.1), (x(to.0), middle + to.1));
    }
    let spread = format!("{:.2} {unit} ({:.2} – {:.2})", bar.median, bar.min, bar.max);
    canvas.text("value", (x(bar.max.max(bar.median)) + 10.0, middle + 4.5), Anchor::Start, &spread);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, median: f64) -> Bar {
        Bar { label: label.into(), tone: Tone::Cold, median, min: median * 0.9, max: median * 1.1 }
    }

    #[test]
    fn bar_lengths_are_proportional() {
        let svg = bars(&[bar("cold", 4.0), bar("<warm>", 1.0)], "s", Some((0.5, "bound")));
        let widths: Vec<f64> = svg
            .split("<rect")
            .skip(1)
            .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 2);
        assert!((widths[0] / widths[1] - 4.0).abs() < 0.01, "{widths:?}");
        assert!(svg.contains("&lt;warm&gt;") && !svg.contains("<warm>"));
        assert!(svg.contains("bound"));
    }

    #[test]
    fn empty_and_invalid_values_do_not_panic() {
        for values in [vec![], vec![bar("zero", 0.0)], vec![bar("nan", f64::NAN)]] {
            assert!(bars(&values, "s", None).starts_with("<svg"));
        }
    }
}

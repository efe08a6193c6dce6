//! Stacked horizontal bars, for many items with long names.

use super::{Anchor, Canvas, SERIES, WIDTH, short, ticks};
use crate::html::escape;

const LABELS: f64 = 190.0;
const VALUES: f64 = 90.0;
const BAR: f64 = 16.0;
const STEP: f64 = 24.0;
const TOP: f64 = 6.0;
const AXIS: f64 = 26.0;

/// Rows from top to bottom on one scale from 0. Each row has a label, a value for each part (the first part leftmost) and their
/// sum at the end. Colours are from [`SERIES`]. Values that are not positive are left out.
pub fn rows(unit: &str, parts: &[&str], rows: &[(&str, &[f64])]) -> String {
    let shown = |value: &f64| value.is_finite() && *value > 0.0;
    let sum = |values: &[f64]| values.iter().filter(|value| shown(value)).sum::<f64>();
    let bottom = TOP + STEP * rows.len() as f64;
    let mut canvas = Canvas::new(bottom + AXIS);
    let end = rows.iter().map(|(_, values)| sum(values)).fold(0.0, f64::max);
    let scale = if end > 0.0 { (WIDTH - LABELS - VALUES) / end } else { 0.0 };
    for tick in ticks(end, 6.0) {
        let x = LABELS + tick * scale;
        canvas.line("grid", (x, TOP), (x, bottom));
        canvas.text("axis", (x, bottom + 16.0), Anchor::Middle, &format!("{} {unit}", short(tick)));
    }
    for (index, (label, values)) in rows.iter().enumerate() {
        let top = TOP + STEP * index as f64 + (STEP - BAR) / 2.0;
        let middle = top + BAR / 2.0 + 4.5;
        canvas.text("label", (LABELS - 12.0, middle), Anchor::End, label);
        let mut from = LABELS;
        for ((value, part), class) in values.iter().zip(parts).zip(SERIES).filter(|((value, _), _)| shown(value)) {
            let title = escape(&format!("{label}: {part} {} {unit}", short(*value)));
            canvas.push(format_args!("<g><title>{title}</title>"));
            canvas.rectangle(class, (from, top), (value * scale, BAR), 1.0);
            canvas.push(format_args!("</g>"));
            from += value * scale;
        }
        canvas.text("value", (from + 8.0, middle), Anchor::Start, &short(sum(values)));
    }
    let spoken: Vec<String> = rows.iter().map(|(label, values)| format!("{label}: {}", short(sum(values)))).collect();
    let picture = canvas.finish(&format!("{} in {unit}, {}", parts.join(" and "), spoken.join(", ")));
    // Few letters: on a narrow page they are larger, and the picture shrinks.
    picture.replacen("<svg ", "<svg class=\"rows\" ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in an attribute, in the order of the elements that have it.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let (opens, names) = (format!("<{element} "), format!(" {attribute}=\""));
        let value = |text: &str| text.split(&names).nth(1)?.split('"').next()?.parse().ok();
        svg.split(&opens).skip(1).filter_map(value).collect()
    }

    #[test]
    fn parts_adjoin_and_are_proportional() {
        let svg = rows("s", &["user", "idle"], &[("<a>", &[1.0, 3.0]), ("b", &[2.0, 0.0])]);
        let (x, width) = (numbers(&svg, "rect", "x"), numbers(&svg, "rect", "width"));
        assert_eq!(width.len(), 3, "a part of length 0 is not drawn");
        assert!((width[1] / width[0] - 3.0).abs() < 0.01 && (width[2] / width[0] - 2.0).abs() < 0.01, "{width:?}");
        assert!((x[0] + width[0] - x[1]).abs() < 0.02 && x[2] == x[0], "{x:?}");
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"));
    }

    #[test]
    fn empty_and_invalid_values_do_not_panic() {
        assert!(rows("s", &["a"], &[]).starts_with("<svg"));
        assert!(rows("s", &["a", "b"], &[("x", &[f64::NAN, -1.0])]).starts_with("<svg"));
    }
}

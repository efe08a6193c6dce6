//! Pictures as data: axes, series and values. Other modules draw them.

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity, with its unit: `read-ahead, pages`.
    pub label: String,
    /// Whether the axis is logarithmic: each step doubles the value.
    pub is_logarithmic: bool,
}

/// A named line of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the line.
    pub name: String,
    /// Coordinates on the two axes, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A bar of parts that add up.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBar {
    pub label: String,
    /// One value for each part, none negative.
    pub values: Vec<f64>,
}

/// The content of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Lines through points.
    Lines {
        /// The horizontal axis.
        x: Axis,
        /// The vertical axis.
        y: Axis,
        /// The lines, at most six.
        series: Vec<Series>,
    },
    /// Bars of stacked parts.
    Stacked {
        /// The meaning of the bars.
        x: String,
        /// The vertical axis; never logarithmic.
        y: String,
        /// The names of the parts, at most six.
        parts: Vec<String>,
        /// The bars, from left to right.
        bars: Vec<StackedBar>,
    },
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The number in the source, such as `Figure 3`. If the source has no such figure, its content.
    pub title: String,
    /// The statement of the picture.
    pub caption: String,
    /// The content.
    pub plot: Plot,
}

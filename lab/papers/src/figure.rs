//! Pictures as data: what stands on which axis. Others draw them.

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is shown, with its unit: `read-ahead, pages`.
    pub label: String,
    /// Each step doubles.
    pub is_logarithmic: bool,
}

impl Axis {
    /// Equal distances are equal differences.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), is_logarithmic: false }
    }

    /// Equal distances are equal factors; every value is above 0.
    pub fn logarithmic(label: &str) -> Axis {
        Axis { label: label.to_owned(), is_logarithmic: true }
    }
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What they are.
    pub name: String,
    /// Places on the two axes, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Parts that add up.
#[derive(Clone, Debug, PartialEq)]
pub struct StackedBar {
    /// What the bar stands for.
    pub label: String,
    /// One value for each part, none negative.
    pub values: Vec<f64>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Lines through points.
    Lines {
        /// To the right.
        x: Axis,
        /// Upwards.
        y: Axis,
        /// The lines, at most six.
        series: Vec<Series>,
    },
    /// Bars whose parts lie on top of each other.
    Stacked {
        /// What the bars stand for.
        x: String,
        /// Upwards; never logarithmic.
        y: String,
        /// What the parts are, at most six.
        parts: Vec<String>,
        /// The bars, from left to right.
        bars: Vec<StackedBar>,
    },
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// `Figure 3`, as the source counts, or what it shows if the source has none.
    pub title: String,
    /// What is to be seen.
    pub caption: String,
    /// What is drawn.
    pub plot: Plot,
}

/// One line through points.
pub fn series(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series { name: name.to_owned(), points: points.into_iter().collect() }
}

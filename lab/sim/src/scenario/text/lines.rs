//! The lines of a scenario's text, and the errors that name them.

use crate::scenario::ScenarioError;

pub(super) const POLICIES_ARE: &str =
    "name one at least, as in policies = [\"linux-6.18\", \"ahead\"] (ahead sim policies lists them)";
pub(super) const WORKLOAD_IS: &str = "begin one with [[workload]] (two brackets: there may be several), with a pattern and file_mb, a profile, or a \
                           trace";

/// The lines of a text.
pub(super) struct Lines<'a>(pub(super) &'a str);

impl Lines<'_> {
    pub(super) fn of(&self, at: usize) -> usize {
        1 + self.0.as_bytes()[..at.min(self.0.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    /// The message of the TOML parser for this position. The function adds the field's name and the accepted values if
    /// the message has neither.
    pub(super) fn explain(&self, at: usize, message: &str) -> String {
        let message = message.replace('\n', " ");
        let line = self.0.lines().nth(self.of(at) - 1).unwrap_or_default();
        let key = line.split('=').next().unwrap_or_default().trim().trim_matches(['[', ']', ' ']);
        let has_type = message.starts_with("invalid type") || message.starts_with("invalid value");
        match (key, message.as_str()) {
            (_, "missing field `workload`") => format!("{message}; {WORKLOAD_IS}"),
            ("policies", _) if has_type => format!("{message}; {POLICIES_ARE}"),
            ("workload", _) if has_type => format!("{message}; {WORKLOAD_IS}"),
            (_, "duplicate key") => format!("`{key}` is here twice"),
            (_, _) if has_type && line.contains('=') && !message.contains(key) => format!("{key}: {message}"),
            _ => message,
        }
    }

    /// The line of a field in the `index`th table with this header. If the table does not have the field, the header's
    /// line.
    pub(super) fn key(&self, header: &str, index: usize, field: &str) -> Option<usize> {
        self.written(header, index, field).or_else(|| Some(1 + self.header(header, index)?))
    }

    /// The same; `None` if the table does not have the field.
    pub(super) fn written(&self, header: &str, index: usize, field: &str) -> Option<usize> {
        self.below(self.header(header, index)? + 1, field)
    }

    /// The line of a field in the table whose header is on this line.
    fn below(&self, header: usize, field: &str) -> Option<usize> {
        let table = self.0.lines().enumerate().skip(header).take_while(|(_, line)| !line.trim_start().starts_with('['));
        let is_field = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == field);
        table.into_iter().find(|(_, line)| is_field(line)).map(|(line, _)| line + 1)
    }

    /// The number of lines before the `index`th header.
    fn header(&self, header: &str, index: usize) -> Option<usize> {
        let is_header = |line: &str| line.split('#').next().is_some_and(|line| line.trim() == header);
        Some(self.0.lines().enumerate().filter(|(_, line)| is_header(line)).nth(index)?.0)
    }

    /// An error at `line`; `None`: the text does not have the field.
    pub(super) fn wrong_at<T>(&self, line: Option<usize>, message: impl Into<String>) -> Result<T, ScenarioError> {
        Err(ScenarioError::Field { line: line.unwrap_or(1), message: message.into() })
    }

    pub(super) fn wrong<T>(
        &self,
        span: std::ops::Range<usize>,
        message: impl Into<String>,
    ) -> Result<T, ScenarioError> {
        Err(ScenarioError::Field { line: self.of(span.start), message: message.into() })
    }

    /// An error at the first of these fields that the table has; if it has none, at the table's header.
    pub(super) fn wrong_in<S, T>(
        &self,
        table: &toml::Spanned<S>,
        fields: &[&str],
        message: impl Into<String>,
    ) -> Result<T, ScenarioError> {
        let header = self.of(table.span().start);
        let line = fields.iter().find_map(|field| self.below(header, field)).unwrap_or(header);
        self.wrong_at(Some(line), message)
    }
}

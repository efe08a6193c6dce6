//! A report as one HTML file: no script, no network, light and dark, escaped throughout.

use crate::table::{Kind, Table};
use crate::text::is_format;
use std::fmt::Write;

pub(crate) const STYLE: &str = include_str!("html/style.css");

/// Escapes text and attribute values. Characters that HTML does not allow, and characters that change the text direction,
/// become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            hidden if hidden.is_control() || is_format(hidden) => escaped.push('\u{fffd}'),
            shown => escaped.push(shown),
        }
    }
    escaped
}

/// A page under construction. Parts are shown in the order in which they are added. All arguments are plain text and are
/// escaped here, except pictures, which come from [`crate::svg`].
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
    open_section: bool,
}

impl Page {
    /// A page with this title.
    pub fn new(title: &str) -> Self {
        Page { title: escape(title), body: String::new(), open_section: false }
    }

    /// Begins a section with a heading.
    pub fn section(&mut self, heading: &str) -> &mut Self {
        self.close_section();
        self.open_section = true;
        self.push(format_args!("<section>\n<h2>{}</h2>", escape(heading)))
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.push(format_args!("<p>{}</p>", escape(text)))
    }

    /// Adds a paragraph in the typeface of code: a command line.
    pub fn code(&mut self, text: &str) -> &mut Self {
        self.push(format_args!("<pre><code>{}</code></pre>", escape(text)))
    }

    /// Adds links to other pages in the same directory: file names and titles.
    pub fn links(&mut self, links: &[(String, String)]) -> &mut Self {
        self.push(format_args!("<ul>"));
        for (file, text) in links {
            // Without "./" a name with a colon would be a URL scheme.
            self.push(format_args!("<li><a href=\"./{}\">{}</a></li>", escape(file), escape(text)));
        }
        self.push(format_args!("</ul>"))
    }

    /// Adds a warning.
    pub fn warning(&mut self, text: &str) -> &mut Self {
        self.push(format_args!("<p class=\"warning\" role=\"alert\">{}</p>", escape(text)))
    }

    /// Adds the most important numbers, in large type, each with its label.
    pub fn figures(&mut self, figures: &[(String, String)]) -> &mut Self {
        self.push(format_args!("<dl class=\"figures\">"));
        for (label, value) in figures {
            self.push(format_args!("<div><dt>{}</dt><dd>{}</dd></div>", escape(label), escape(value)));
        }
        self.push(format_args!("</dl>"))
    }

    /// Adds names and values.
    pub fn facts(&mut self, facts: &[(String, String)]) -> &mut Self {
        self.push(format_args!("<dl class=\"facts\">"));
        for (name, value) in facts {
            self.push(format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
        }
        self.push(format_args!("</dl>"))
    }

    /// Adds a picture made by [`crate::svg`].
    pub fn picture(&mut self, svg: &str, caption: &str) -> &mut Self {
        self.push(format_args!("<figure>\n<div class=\"scroll\">\n{svg}</div>"));
        if !caption.is_empty() {
            self.push(format_args!("<figcaption>{}</figcaption>", escape(caption)));
        }
        self.push(format_args!("</figure>"))
    }

    /// The legend of a picture: class names of [`crate::svg`] and their meanings.
    pub fn legend(&mut self, entries: &[(&str, &str)]) -> &mut Self {
        self.push(format_args!("<p class=\"legend\">"));
        for (class, meaning) in entries {
            let swatch = format!("<svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"{}\"", escape(class));
            let swatch = swatch + " width=\"10\" height=\"10\" rx=\"2\"/></svg>";
            self.push(format_args!("<span>{swatch} {}</span>", escape(meaning)));
        }
        self.push(format_args!("</p>"))
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) -> &mut Self {
        let class = |kind: Kind| match kind {
            Kind::Number => " class=\"number\"",
            Kind::Path => " class=\"path\"",
            Kind::Text => "",
        };
        self.push(format_args!("<div class=\"scroll\"><table>\n<thead><tr>"));
        for (name, kind) in table.columns() {
            self.push(format_args!("<th scope=\"col\"{}>{}</th>", class(*kind), escape(name)));
        }
        self.push(format_args!("</tr></thead>\n<tbody>"));
        for row in table.rows() {
            let cells = row.iter().zip(table.columns());
            let cells = cells.map(|(cell, (name, kind))| {
                // The name is shown beside the cell where the page is narrow.
                format!("<td data-column=\"{}\"{}>{}</td>", escape(name), class(*kind), escape(cell))
            });
            let cells: String = cells.collect();
            self.push(format_args!("<tr>{cells}</tr>"));
        }
        self.push(format_args!("</tbody>\n</table></div>"))
    }

    fn close_section(&mut self) {
        if std::mem::replace(&mut self.open_section, false) {
            self.push(format_args!("</section>"));
        }
    }

    fn push(&mut self, html: std::fmt::Arguments) -> &mut Self {
        writeln!(self.body, "{html}").expect("a string takes every character");
        self
    }

    /// Returns the file. Its content security policy prevents browsers from running or loading anything, in case an escape is
    /// missing.
    pub fn render(mut self) -> String {
        self.close_section();
        let Page { title, body, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n<footer>ahead {version}</footer>\n\
             </body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_escaped() {
        let hostile = "<script>alert('1')</script>\"&\u{1b}\u{202e}";
        let mut table = Table::new([(hostile, Kind::Path)]);
        table.row([hostile]);
        let pair = (hostile.to_owned(), hostile.to_owned());
        let mut page = Page::new(hostile);
        page.section(hostile)
            .text(hostile)
            .code(hostile)
            .warning(hostile)
            .figures(std::slice::from_ref(&pair))
            .links(std::slice::from_ref(&pair))
            .facts(&[pair]);
        page.table(&table).picture("", hostile).legend(&[(hostile, hostile)]);
        let html = page.render();
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("\"&\u{1b}") && !html.contains(['\u{1b}', '\u{202e}']));
        assert_eq!(html.matches("&lt;script&gt;").count(), 18);
    }

    /// Regression: a narrow page cut off a table with many columns.
    #[test]
    fn each_cell_has_the_name_of_its_column_for_narrow_pages() {
        let mut table = Table::new([("policy", Kind::Text), ("a & b", Kind::Number)]);
        table.row(["none", "7"]);
        let mut page = Page::new("t");
        page.table(&table);
        let html = page.render();
        assert!(html.contains("<td data-column=\"policy\">none</td>"), "{html}");
        assert!(html.contains("<td data-column=\"a &amp; b\" class=\"number\">7</td>"), "{html}");
    }

    #[test]
    fn sections_are_closed() {
        let mut page = Page::new("t");
        page.section("a").text("x").section("b").text("y");
        let html = page.render();
        assert_eq!(html.matches("<section>").count(), 2);
        assert_eq!(html.matches("</section>").count(), 2);
    }
}

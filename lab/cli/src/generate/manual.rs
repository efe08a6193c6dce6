//! Sections of ahead(1) that its options do not have: examples from the help of its commands, files and exit statuses from docs/reference.

use clap_mangen::roff::{Roff, bold, roman};

const EXIT_STATUSES: &str = include_str!("../../../../docs/reference/exit-status.md");
const FILES: &str = include_str!("../../../../docs/reference/files.md");
/// Where the package `ahead` has the guide.
const GUIDE: &str = "/usr/share/doc/ahead/guide";

/// The sections EXAMPLES, FILES, EXIT STATUS and SEE ALSO of the page of `ahead` itself.
pub fn sections(ahead: &clap::Command) -> String {
    let commands: Vec<&clap::Command> = ahead.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let mut page = Roff::new();
    page.control("SH", ["EXAMPLES"]).control("nf", []);
    for example in commands.iter().flat_map(|command| examples(command)) {
        page.text([roman(example)]);
    }
    page.control("fi", []).control("SH", ["FILES"]);
    entries(&mut page, FILES, "## Files");
    page.control("SH", ["EXIT STATUS"]);
    entries(&mut page, EXIT_STATUSES, "# Exit statuses");
    page.control("PP", []).text([roman("run and record pass on the status of the program, and have more:")]);
    entries(&mut page, EXIT_STATUSES, "## ahead run, ahead record");
    page.control("SH", ["SEE ALSO"]);
    let pages: String = commands.iter().map(|command| format!("ahead-{}(1), ", command.get_name())).collect();
    page.text([roman(pages + "ahead-lab(1), libahead(3)")]);
    page.control("PP", []).text([roman(format!("The guide: {GUIDE}"))]);
    page.to_roff()
}

/// The examples in the help of a command, without the heading.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(str::to_owned).collect()
}

/// The first two columns of the first table below a heading.
fn entries(page: &mut Roff, document: &str, heading: &str) {
    let text = document.split_once(&format!("{heading}\n")).map_or("", |(_, after)| after);
    // The first row names the columns, the second one is a line.
    let rows = text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|')).skip(2);
    for row in rows {
        let mut cells = row.trim_matches('|').split(" | ").map(plain);
        let (name, content) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        page.control("TP", []).text([bold(name)]).text([roman(content)]);
    }
}

/// A cell without the marks of Markdown: `code` and [links](to).
fn plain(cell: &str) -> String {
    let mut parts = cell.trim().replace('`', "");
    while let Some((name_at, link_at)) = parts.find('[').zip(parts.find("]("))
        && let Some(length) = parts[link_at..].find(')')
    {
        parts.replace_range(link_at..=link_at + length, "");
        parts.remove(name_at);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn marks_of_markdown_are_left_out() {
        assert_eq!(plain(" [a description](x.md#y) of `ahead` "), "a description of ahead");
        assert_eq!(plain("`a`, or [b](c), [d](e)"), "a, or b, d");
    }

    #[test]
    fn page_of_ahead_has_examples_files_exit_statuses_and_other_pages() {
        let text = sections(&crate::generate::complete_command(&crate::cli::Cli::command()));
        let headings = ["EXAMPLES", "FILES", "\"EXIT STATUS\"", "\"SEE ALSO\""];
        let places = headings.map(|name| text.find(&format!(".SH {name}\n")));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?}: {text}");
        for part in ["sudo ahead record \\-\\-cold", "/run/ahead", "\\fB125\\fR", "ahead\\-sim(1)"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

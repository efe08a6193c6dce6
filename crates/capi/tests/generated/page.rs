//! A man page of each function, and one of the library.

use crate::parse::{Declaration, Header};

/// The sections that a comment is split into.
#[derive(Default)]
struct Sections {
    description: Vec<String>,
    parameters: Vec<(String, String)>,
    returns: Vec<String>,
    errors: Vec<String>,
    threads: String,
}

/// File name and text of a function's page.
pub fn of_function(function: &Declaration, header: &Header) -> (String, String) {
    let sections = sections(&function.comment);
    let (summary, rest) = sections.description[0].split_once(". ").unwrap_or((&sections.description[0], ""));
    let mut page = Page::new(&function.name, &lower_first(summary.trim_end_matches('.')));
    page.synopsis(&function.declaration);
    let more = Some(rest.to_owned()).filter(|rest| !rest.is_empty());
    let description: Vec<String> = more.into_iter().chain(sections.description[1..].iter().cloned()).collect();
    if !description.is_empty() || !sections.parameters.is_empty() {
        page.section("DESCRIPTION");
    }
    page.paragraphs(&description);
    page.list(sections.parameters.iter().map(|(name, text)| (format!("\\fI{}\\fR", escaped(name)), text.as_str())));
    page.types(&function.declaration, header);
    page.titled("RETURN VALUE", &sections.returns);
    if !sections.errors.is_empty() {
        page.section("ERRORS");
        let of = |error: &String| error.split_once(": ").map(|(name, text)| (name.to_owned(), text.to_owned()));
        let named: Vec<(String, String)> = sections.errors.iter().filter_map(of).collect();
        page.list(named.iter().map(|(name, text)| (format!("\\fB{}\\fR", escaped(name)), text.as_str())));
        let other: Vec<String> = sections.errors.iter().filter(|error| of(error).is_none()).cloned().collect();
        page.paragraphs(&other);
    }
    page.titled("THREADS", std::slice::from_ref(&sections.threads));
    let group = group(&function.name);
    let others = header.functions.iter().map(|other| other.name.as_str());
    page.see_also(others.filter(|other| *other != function.name && self::group(other) == group).chain(["libahead"]));
    (format!("{}.3", function.name), page.text)
}

/// File name and text of the page about the library: the first comment of the header.
pub fn of_library(header: &Header) -> (String, String) {
    let (summary, lines) = header.overview.split_first().expect("the header has an overview");
    let summary = summary.split_once(": ").map_or(summary.as_str(), |(_, summary)| summary);
    let mut page = Page::new("libahead", summary.trim_end_matches('.'));
    page.text += ".SH SYNOPSIS\n.B #include <ahead.h>\n";
    page.section("DESCRIPTION");
    for block in blocks(lines) {
        if block[0].starts_with("    ") {
            page.example(block.iter().map(|line| line.strip_prefix("    ").unwrap_or(line)));
        } else {
            page.paragraphs(&[block.join(" ")]);
        }
    }
    page.see_also(header.functions.iter().map(|function| function.name.as_str()));
    ("libahead.3".into(), page.text)
}

/// Functions with one kind of handle: the same first two words of the name.
fn group(name: &str) -> &str {
    let word = name.split('_').nth(1).unwrap_or(name);
    if word == "advised" { "advise" } else { word }
}

fn lower_first(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_lowercase() + rest
}

/// Lines between empty lines.
fn blocks(lines: &[String]) -> Vec<&[String]> {
    lines.split(|line| line.is_empty()).filter(|block| !block.is_empty()).collect()
}

fn sections(comment: &[String]) -> Sections {
    let mut sections = Sections::default();
    for block in blocks(comment) {
        if block[0].starts_with("@param ") {
            let parameter = |text: String| text.split_once("  ").map(|(name, text)| (name.to_owned(), text.to_owned()));
            sections.parameters.extend(items(block, "@param ").into_iter().filter_map(parameter));
        } else if block[0].starts_with("Returns ") {
            let list = block.iter().position(|line| line.starts_with("- ")).unwrap_or(block.len());
            sections.returns.push(block[..list].join(" ").replace("negative errno:", "negative errno."));
            sections.errors = items(&block[list..], "- ");
        } else if let Some(text) = block[0].strip_prefix("Threads: ") {
            let (first, rest) = text.split_at(1);
            sections.threads = [&[first.to_uppercase() + rest], &block[1..]].concat().join(" ");
        } else {
            sections.description.push(block.join(" "));
        }
    }
    sections
}

/// The items of a list whose first lines have this prefix.
fn items(lines: &[String], prefix: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in lines {
        match (line.strip_prefix(prefix), items.last_mut()) {
            (Some(first), _) => items.push(first.to_owned()),
            (None, Some(item)) => *item = format!("{item} {}", line.trim_start()),
            (None, None) => panic!("a list begins with {line:?}"),
        }
    }
    items
}

/// Text for troff, without a meaning for it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

/// A paragraph: what is between backticks in italics, functions and system calls in bold.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        1 => format!("\\fI{}\\fR", escaped(part)),
        _ => part.split_inclusive(' ').map(word).collect(),
    });
    let text: String = parts.collect();
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

fn word(text: &str) -> String {
    let Some((name, rest)) = text.split_once('(') else { return escaped(text) };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match rest.split_once(')') {
        Some(("", rest)) if is_name => format!("\\fB{name}\\fR(3){}", escaped(rest)),
        Some((section @ ("1" | "2" | "3" | "7"), rest)) if is_name => {
            format!("\\fB{name}\\fR({section}){}", escaped(rest))
        }
        _ => escaped(text),
    }
}

/// A page that is written.
struct Page {
    text: String,
}

impl Page {
    fn new(name: &str, summary: &str) -> Page {
        let (version, escaped_name) = (env!("CARGO_PKG_VERSION"), escaped(name));
        Page {
            text: format!(
                ".TH {name} 3 \"\" \"ahead {version}\" \"ahead library\"\n.SH NAME\n{escaped_name} \\- {}\n",
                prose(summary)
            ),
        }
    }

    fn section(&mut self, title: &str) {
        self.text += &format!(".SH {title}\n");
    }

    fn synopsis(&mut self, declaration: &str) {
        self.text += ".SH SYNOPSIS\n.nf\n.B #include <ahead.h>\n.PP\n";
        for line in declaration.lines() {
            self.text += &format!("\\fB{}\\fR\n", escaped(line));
        }
        self.text += ".fi\n.PP\nLink with \\fB`pkg\\-config \\-\\-cflags \\-\\-libs ahead`\\fR.\n";
    }

    fn paragraphs(&mut self, paragraphs: &[String]) {
        for paragraph in paragraphs {
            self.text += &format!(".PP\n{}\n", prose(paragraph));
        }
    }

    fn titled(&mut self, title: &str, paragraphs: &[String]) {
        if !paragraphs.is_empty() {
            self.section(title);
            self.paragraphs(paragraphs);
        }
    }

    fn list<'a>(&mut self, items: impl Iterator<Item = (String, &'a str)>) {
        for (name, text) in items {
            self.text += &format!(".TP\n{name}\n{}\n", prose(text));
        }
    }

    fn example<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        self.text += ".PP\n.EX\n";
        for line in lines {
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            self.text += &format!("{guard}{}\n", escaped(line));
        }
        self.text += ".EE\n";
    }

    /// The types with fields or arguments that a declaration has, with their comments.
    fn types(&mut self, declaration: &str, header: &Header) {
        let mut text = declaration.to_owned();
        let mut is_first = true;
        let has_parts = |part: &&Declaration| part.declaration.contains(['{', '(']);
        // In reverse: a type of a function comes after the structures of its arguments.
        for part in header.types.iter().rev().filter(has_parts) {
            if !text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == part.name) {
                continue;
            }
            if std::mem::take(&mut is_first) {
                self.section("TYPES");
            }
            text += &part.declaration;
            for block in blocks(&part.comment) {
                self.paragraphs(&[block.join(" ")]);
            }
            self.example(part.declaration.lines());
        }
    }

    fn see_also<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.section("SEE ALSO");
        let names: Vec<String> = names.map(|name| format!(".BR {} (3)", escaped(name))).collect();
        self.text += &(names.join(" ,\n") + "\n");
    }
}

//! Comments and declarations of the header.

/// A declaration with its comment.
pub struct Declaration {
    /// Name of the function or type.
    pub name: String,
    /// Lines of the comment, without its stars.
    pub comment: Vec<String>,
    /// The text of the declaration.
    pub declaration: String,
}

/// The header in its parts.
pub struct Header {
    /// Lines of the first comment: what holds for all functions.
    pub overview: Vec<String>,
    pub functions: Vec<Declaration>,
    /// Constants, structures and types of functions.
    pub types: Vec<Declaration>,
}

/// Splits the text that cbindgen writes. Comments and declarations at the beginning of a line are the parts.
pub fn header(text: &str) -> Header {
    let (mut header, mut comment) =
        (Header { overview: Vec::new(), functions: Vec::new(), types: Vec::new() }, Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line {
            "/*" => header.overview = comment_lines(&mut lines),
            "/**" => comment = comment_lines(&mut lines),
            _ if line.starts_with("/** ") => {
                comment = vec![line.trim_start_matches("/** ").trim_end_matches(" */").to_owned()]
            }
            "" => {}
            _ if comment.is_empty() => {}
            _ => {
                let declaration = declaration(line, &mut lines);
                let part = Declaration { name: name(&declaration), comment: std::mem::take(&mut comment), declaration };
                let is_function = !part.declaration.starts_with("typedef") && !part.declaration.starts_with('#');
                if is_function { header.functions.push(part) } else { header.types.push(part) }
            }
        }
    }
    header
}

fn comment_lines<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
    let inside = lines.take_while(|line| *line != " */");
    inside.map(|line| line.strip_prefix(" * ").unwrap_or("").to_owned()).collect()
}

/// The lines up to the one that ends the declaration.
fn declaration<'a>(first: &str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut text = first.to_owned();
    let is_end = |line: &str| match first.ends_with('{') {
        true => line.starts_with('}'),
        false => line.ends_with(';') || first.starts_with('#'),
    };
    let mut last = first;
    while !is_end(last) {
        last = lines.next().expect("the declaration ends");
        text = text + "\n" + last;
    }
    text
}

/// The name that a declaration declares.
fn name(declaration: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (first, last) = (declaration.lines().next().unwrap_or(""), declaration.lines().last().unwrap_or(""));
    let before = match first {
        _ if first.starts_with('#') => first.split(' ').nth(1).unwrap_or(""),
        _ if first.starts_with("typedef struct") => last,
        _ if first.contains("(*") => {
            first.split_once("(*").map_or("", |(_, rest)| rest.split(')').next().unwrap_or(""))
        }
        _ => first.split('(').next().unwrap_or(""),
    };
    before.trim_end_matches(';').rsplit(|c| !is_name(c)).next().unwrap_or("").to_owned()
}

#[test]
fn parts_of_a_header_are_found() {
    let text = "/*
 * about
 *
 *     code
 */
#ifndef X

/** one */
#define ONE 1

/**
 * two
 */
typedef struct two {
  /** field */
  int a;
} two;

/**
 * three
 */
typedef int (*three)(void *context);

/**
 * four
 */
int four(int a,
         int b);
";
    let header = header(text);
    assert_eq!(header.overview, ["about", "", "    code"]);
    let names = |parts: &[Declaration]| parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&header.types), names(&header.functions)),
        (vec!["ONE".into(), "two".into(), "three".into()], vec!["four".into()])
    );
    assert_eq!(header.functions[0].comment, ["four"]);
}

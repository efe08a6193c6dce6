//! Files that are made from the docstrings of this crate are what these say: the header and the man pages. The exported functions are those of
//! `abi/libahead.symbols`: a function that is missing there, or here, changes the ABI.
//!
//! ```text
//!     src/*.rs ──cbindgen──▶ include/ahead.h ──page.rs──▶ dist/man3/*.3
//!                                 └── names ── compared with abi/libahead.symbols
//! ```
//!
//! With AHEAD_UPDATE=1 in the environment (scripts/c-header) the header and the pages are written instead.

mod page;
mod parse;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn crate_directory() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn is_update() -> bool {
    env::var_os("AHEAD_UPDATE").is_some_and(|value| value == "1")
}

/// The header, as it would be written.
fn header() -> String {
    let config = cbindgen::Config::from_file(crate_directory().join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config).with_src(crate_directory().join("src/lib.rs"));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    short_comments(&String::from_utf8(text).unwrap())
}

/// Comments of one line on one line: a fifth of the header.
fn short_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut short, mut at) = (String::new(), 0);
    while at < lines.len() {
        match lines[at..] {
            [first, text, last, ..] if first.trim() == "/**" && last.trim() == "*/" => {
                let indent = &first[..first.len() - 3];
                short += &format!("{indent}/** {} */\n", text.trim().trim_start_matches("* "));
                at += 3;
            }
            _ => {
                short = short + lines[at] + "\n";
                at += 1;
            }
        }
    }
    short
}

/// The man pages by file name, as they would be written.
fn pages() -> BTreeMap<String, String> {
    let header = parse::header(&header());
    let functions = header.functions.iter().map(|function| page::of_function(function, &header));
    functions.chain([page::of_library(&header)]).collect()
}

fn write_or_compare(path: &Path, expected: &str) {
    if is_update() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        return fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    if let Some((line, (is, should))) =
        (1..).zip(found.lines().zip(expected.lines())).find(|(_, (is, should))| is != should)
    {
        panic!("{}:{line}: is {is:?}, should be {should:?}; run: scripts/c-header", path.display());
    }
    assert!(found == expected, "{} has another length; run: scripts/c-header", path.display());
}

#[test]
fn header_is_what_the_docstrings_say() {
    write_or_compare(&crate_directory().join("include/ahead.h"), &header());
}

#[test]
fn man_pages_are_what_the_docstrings_say() {
    let directory = crate_directory().join("../../dist/man3");
    let pages = pages();
    if is_update() {
        let _ = fs::remove_dir_all(&directory);
    }
    for (name, text) in &pages {
        write_or_compare(&directory.join(name), text);
    }
    let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let unexpected: Vec<String> = names.filter(|name| !pages.contains_key(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?} in {}: no such function", directory.display());
}

#[test]
fn functions_of_the_header_are_the_listed_ones() {
    let listed = fs::read_to_string(crate_directory().join("abi/libahead.symbols")).unwrap();
    let mut names: Vec<String> = parse::header(&header()).functions.into_iter().map(|function| function.name).collect();
    names.sort_unstable();
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        names,
        "abi/libahead.symbols: programs need every function that was released"
    );
}

#[test]
fn each_function_says_what_it_returns_and_which_threads_may_call_it() {
    for function in parse::header(&header()).functions {
        let comment = function.comment.join("\n");
        assert!(comment.contains("Threads: "), "{}", function.name);
        assert!(function.declaration.starts_with("void ") || comment.contains("Returns "), "{}", function.name);
    }
}

//! Names of types: one name for many things is not found by grep.

use crate::crates::{packages, sources};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};

/// Maximum number of types with one name.
const MOST: usize = 3;

/// How many types have these names at most: words of Rust and of the field, which the name of their module completes. A new type gets another
/// name, and a renamed one lowers the number.
const EXCEPTIONS: [(usize, &[&str]); 6] = [
    (10, &["Error", "Result"]),
    (8, &["Reader"]),
    (7, &["Counters", "Kind", "Progress", "Run"]),
    (6, &["Device", "Disk", "Limits", "Request", "Shared", "Source"]),
    (5, &["Event", "Found", "Job", "Sample", "State", "Value", "Verdict", "Window"]),
    (
        4,
        &[
            "Answer", "Asked", "Command", "File", "Files", "Kept", "Measured", "Observer", "Options", "Outcome",
            "Part", "Plan", "Reason", "Settings", "Sizes", "Start", "Step", "Stream", "Use", "Work", "Worker",
        ],
    ),
];

/// The names of the types in a file, without those of its tests.
#[derive(Default)]
struct TypeNames(Vec<String>);

impl<'a> Visit<'a> for TypeNames {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let name = match item {
            syn::Item::Enum(item) => &item.ident,
            syn::Item::Struct(item) => &item.ident,
            syn::Item::Trait(item) => &item.ident,
            syn::Item::Type(item) => &item.ident,
            syn::Item::Mod(item) if item.ident == "tests" => return,
            _ => return visit::visit_item(self, item),
        };
        self.0.push(name.to_string());
    }
}

#[test]
fn no_type_name_is_used_more_than_three_times() {
    let (mut files, mut uses) = (Vec::new(), BTreeMap::<String, usize>::new());
    for directory in packages("crates").into_values().chain(packages("lab").into_values()) {
        sources(&directory.join("src"), &mut files);
    }
    files.retain(|path| !path.ends_with("tests.rs") && path.parent().is_none_or(|parent| !parent.ends_with("tests")));
    for path in files {
        let mut found = TypeNames::default();
        found.visit_file(&syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap());
        found.0.into_iter().for_each(|name| *uses.entry(name).or_default() += 1);
    }
    let most = |name: &str| EXCEPTIONS.iter().find(|(_, names)| names.contains(&name)).map_or(MOST, |(most, _)| *most);
    let wrong: Vec<_> = uses.iter().filter(|(name, count)| **count > most(name)).collect();
    assert!(wrong.is_empty(), "name them by their task: {wrong:?}");
}

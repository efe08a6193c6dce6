//! No modules of a crate import each other in a circle.
//!
//! ```text
//!     crate ─┬─ prefetch ─┬─ pool ───▶ worker
//!            │            └─ worker ─▶ pool         a circle: in prefetch, pool uses worker, worker uses pool
//!            └─ record ───▶ prefetch::pool          no circle
//! ```
//!
//! Modules with the same parent are compared, each including its submodules. A module and its submodules may use each
//! other. `use crate::…`, `use super::…` and paths in the code are followed through `pub use` to the module that
//! defines the name.
//!
//! Tests inside the crates do not count: a test may use any module that uses its module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names of a module and its parents, from the root of its crate.
type Name = Vec<String>;

/// A word or a sign of a source file, and its line.
type Token = (String, usize);

/// The names that a source file uses and defines.
#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Imported names, and their paths.
    imports: BTreeMap<String, Name>,
    /// Modules of which all names are imported.
    globs: Vec<Name>,
    /// Every path to another module, with its line.
    paths: Vec<(Name, usize)>,
    /// Names of functions, types, traits and constants.
    defined: BTreeSet<String>,
    /// Modules that exist only in tests.
    for_tests: BTreeSet<String>,
}

/// The modules of a crate.
struct Modules(BTreeMap<Name, Module>);

/// For each module that is used by a sibling module: the place of the use.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Splits source text into words and signs, without comments, strings and characters.
fn tokens(text: &str) -> Vec<Token> {
    let (bytes, mut found, mut at, mut line) = (text.as_bytes(), Vec::new(), 0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let length = match bytes[at] {
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            b'r' if rest.starts_with("r\"") => rest[2..].find('"').map_or(rest.len(), |end| end + 3),
            b'r' if rest.starts_with("r#\"") => rest[3..].find("\"#").map_or(rest.len(), |end| end + 5),
            b'"' => quoted(rest),
            b'\'' if rest[1..].starts_with('\\') => rest[3..].find('\'').map_or(rest.len(), |end| end + 4),
            b'\'' if rest.chars().nth(2) == Some('\'') => rest.chars().take(3).map(char::len_utf8).sum(),
            byte if is_of_word(char::from(byte)) => {
                let length = rest.find(|sign| !is_of_word(sign)).unwrap_or(rest.len());
                found.push((rest[..length].to_owned(), line));
                length
            }
            _ if rest.starts_with("::") => {
                found.push(("::".into(), line));
                2
            }
            _ => {
                let sign = rest.chars().next().unwrap();
                if !sign.is_whitespace() {
                    found.push((sign.to_string(), line));
                }
                sign.len_utf8()
            }
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found
}

fn is_of_word(sign: char) -> bool {
    sign == '_' || sign.is_ascii_alphanumeric()
}

/// The length of the string literal at the beginning of a text.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, sign)| {
        let ends = *sign == '"' && !is_escaped;
        is_escaped = *sign == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// The length of the item at the beginning: up to its semicolon, or to the end of its block.
fn item(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (index, (word, _)) in tokens.iter().enumerate() {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" if depth == 1 => return index + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The paths of the tree at the beginning, `a::{b, c::*}`, each with its name in this module, and the length of the tree.
fn tree(tokens: &[Token], prefix: &Name) -> (Vec<(Name, String)>, usize) {
    let word = |at: usize| tokens.get(at).map_or("", |(word, _)| word.as_str());
    let (mut path, mut at) = (prefix.clone(), 0);
    loop {
        if word(at) == "{" {
            let mut found = Vec::new();
            at += 1;
            while !["}", ""].contains(&word(at)) {
                let (inner, length) = tree(&tokens[at..], &path);
                found.extend(inner);
                at += length + usize::from(word(at + length) == ",");
            }
            return (found, at + 1);
        }
        if word(at) != "self" || path.is_empty() {
            path.push(word(at).to_owned());
        }
        at += 1;
        if word(at) != "::"
            || !(is_of_word(word(at + 1).chars().next().unwrap_or(' ')) || ["{", "*"].contains(&word(at + 1)))
        {
            break;
        }
        at += 1;
    }
    let name = if word(at) == "as" { word(at + 1) } else { path.last().map_or("", String::as_str) }.to_owned();
    (vec![(path, name)], at + 2 * usize::from(word(at) == "as"))
}

impl Module {
    fn parse(file: &Path) -> Module {
        let tokens = tokens(&fs::read_to_string(file).unwrap());
        let words: Vec<&str> = tokens.iter().map(|(word, _)| word.as_str()).collect();
        let (mut module, mut at) = (Module { file: file.into(), ..Module::default() }, 0);
        while at < words.len() {
            let before = at.checked_sub(1).map_or("", |before| words[before]);
            at += match words[at] {
                "#" if words[at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) => {
                    let length = item(&tokens[at + 7..]);
                    let skipped = &words[at + 7..][..length];
                    let module_of_file = skipped.windows(3).find(|words| words[0] == "mod" && words[2] == ";");
                    module.for_tests.extend(module_of_file.map(|words| words[1].to_owned()));
                    7 + length
                }
                "use" => {
                    let (found, length) = tree(&tokens[at + 1..], &Name::new());
                    for (path, name) in found {
                        module.paths.push((path.clone(), tokens[at].1));
                        match name.as_str() {
                            "*" => module.globs.push(path[..path.len() - 1].to_vec()),
                            _ => drop(module.imports.insert(name, path)),
                        }
                    }
                    1 + length
                }
                "crate" | "super" if before != "::" && words.get(at + 1) == Some(&"::") => {
                    let (found, length) = tree(&tokens[at..], &Name::new());
                    module.paths.extend(found.into_iter().map(|(path, _)| (path, tokens[at].1)));
                    length
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                    module.defined.extend(words.get(at + 1).map(|name| name.to_string()));
                    1
                }
                _ => 1,
            };
        }
        module
    }
}

impl Modules {
    /// The modules of the crate in this directory.
    fn read(directory: &Path) -> Modules {
        let mut modules = Modules(BTreeMap::new());
        modules.add(&directory.join("src"), &Name::new());
        let is_for_tests = |modules: &Modules, name: &Name| {
            (1..=name.len()).any(|end| {
                modules.0.get(&name[..end - 1]).is_some_and(|parent| parent.for_tests.contains(&name[end - 1]))
            })
        };
        let for_tests: Vec<Name> = modules.0.keys().filter(|name| is_for_tests(&modules, name)).cloned().collect();
        for_tests.iter().for_each(|name| drop(modules.0.remove(name)));
        modules
    }

    fn add(&mut self, directory: &Path, parent: &Name) {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let is_root = parent.is_empty() && ["lib", "main"].contains(&stem.as_str());
            let name = [parent.as_slice(), if is_root { &[] } else { std::slice::from_ref(&stem) }].concat();
            if path.is_dir() {
                self.add(&path, &name);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let parsed = Module::parse(&path);
                // The command lines have a library and a program with the same root.
                let module = self.0.entry(name).or_insert_with(|| Module { file: path.clone(), ..Module::default() });
                module.imports.extend(parsed.imports);
                module.globs.extend(parsed.globs);
                module.paths.extend(parsed.paths);
                module.defined.extend(parsed.defined);
                module.for_tests.extend(parsed.for_tests);
            }
        }
    }

    /// The module that defines the item at this path, as seen from the module `from`; `None`: another crate.
    fn definer(&self, from: &Name, path: &[String], links: u32) -> Option<Name> {
        let mut at = from.clone();
        let mut rest = path;
        let child = |at: &Name, name: &String| [at.as_slice(), std::slice::from_ref(name)].concat();
        match path.first()?.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            _ if self.0.contains_key(&child(&at, &path[0])) => at.push(path[0].clone()),
            _ => return None,
        }
        rest = &rest[1..];
        while let Some(name) = rest.first() {
            let inner = child(&at, name);
            let module = self.0.get(&at)?;
            if name == "super" {
                at.pop();
            } else if self.0.contains_key(&inner) {
                at = inner;
            } else if let Some(import) = module.imports.get(name).filter(|_| links > 0) {
                return self.definer(&at, &[import, &rest[1..]].concat(), links - 1);
            } else if module.defined.contains(name) {
                return Some(at);
            } else {
                let globs = module.globs.iter().filter(|_| links > 0);
                let globs = globs.filter_map(|glob| self.definer(&at, glob, links - 1));
                let mut by_glob =
                    globs.filter(|glob| self.0.get(glob).is_some_and(|module| module.defined.contains(name)));
                return by_glob.next().or(Some(at));
            }
            rest = &rest[1..];
        }
        Some(at)
    }

    /// The uses between modules with the same parent, by parent.
    fn uses(&self) -> BTreeMap<Name, Uses> {
        let mut uses: BTreeMap<Name, Uses> = BTreeMap::new();
        for (name, module) in &self.0 {
            for (path, line) in &module.paths {
                let Some(used) = self.definer(name, path, 16) else { continue };
                let common = name.iter().zip(&used).take_while(|(one, other)| one == other).count();
                // One of them is a submodule of the other.
                if common == name.len() || common == used.len() {
                    continue;
                }
                let beside = uses.entry(name[..common].to_vec()).or_default().entry(name[common].clone()).or_default();
                let file = module.file.file_name().unwrap().to_str().unwrap();
                beside.entry(used[common].clone()).or_insert_with(|| format!("{file}:{line}"));
            }
        }
        uses
    }

    /// Each circle as text: every module with the file and line of its use of the next module.
    fn circles(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (parent, uses) in self.uses() {
            let mut done = BTreeSet::new();
            for module in uses.keys() {
                follow(&uses, module, &mut Vec::new(), &mut done, &mut |circle| {
                    let next = |index: usize| &circle[(index + 1) % circle.len()];
                    let link = |(index, module): (usize, &String)| {
                        format!("{module} uses {} ({})", next(index), uses[module][next(index)])
                    };
                    let links: Vec<String> = circle.iter().enumerate().map(link).collect();
                    let of = if parent.is_empty() { String::new() } else { format!("in {}: ", parent.join("::")) };
                    found.push(of + &links.join(", "));
                });
            }
        }
        found
    }
}

/// Follows the uses of a module in depth, and reports each path that returns to a module on it.
fn follow(
    uses: &Uses,
    module: &str,
    on_path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
    report: &mut dyn FnMut(&[String]),
) {
    if let Some(at) = on_path.iter().position(|other| other == module) {
        return report(&on_path[at..]);
    }
    if done.contains(module) {
        return;
    }
    on_path.push(module.into());
    for used in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
        follow(uses, used, on_path, done, report);
    }
    on_path.pop();
    done.insert(module.into());
}

fn crates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let floors = ["crates", "lab"].map(|floor| fs::read_dir(root.join(floor)).unwrap());
    let mut found: Vec<PathBuf> = floors.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.join("Cargo.toml").exists());
    found.sort();
    found
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let crates = crates();
    assert!(crates.len() > 20, "{crates:?}");
    let of_crate = |directory: &PathBuf| {
        let modules = Modules::read(directory);
        assert!(!modules.0.is_empty(), "{directory:?}");
        let circles = modules.circles().into_iter().map(|circle| format!("{}: {circle}", directory.display()));
        circles.collect::<Vec<String>>()
    };
    let circles: Vec<String> = crates.iter().flat_map(of_crate).collect();
    assert!(circles.is_empty(), "modules import each other in a circle:\n{}", circles.join("\n"));
}

/// The circles of a crate with these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = home.path().join("src").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    Modules::read(home.path()).circles()
}

#[test]
fn circle_is_found_and_named() {
    let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::{Other, Thing as Renamed};\n");
    let a = ("a.rs", "use std::fs;\nuse crate::{\n    Other,\n    Renamed,\n};\nfn f() {}\n");
    let b = (
        "b.rs",
        "// crate::a is a comment.\npub struct Thing;\npub struct Other;\nfn g() { \"\\\"\"; '\"'; super::c::h() }\n",
    );
    let c = ("c.rs", "pub fn h() { crate::a::f(); }\n");
    assert_eq!(circles_of(&[lib, a, b, c]), ["a uses b (a.rs:2), b uses c (b.rs:4), c uses a (c.rs:1)"]);
    let free = ("c.rs", "pub fn h() { \"crate::a\"; }\n#[cfg(test)]\nmod tests {\n    use crate::a::f;\n}\n");
    assert!(circles_of(&[lib, a, b, free]).is_empty());
}

/// A parent and its submodules may use each other. Sibling modules are compared.
#[test]
fn submodules_count_as_part_of_their_module() {
    let lib = ("lib.rs", "mod a;\nmod b;\npub struct Root;\n");
    let a = ("a.rs", "mod x;\nmod y;\n#[cfg(test)]\nmod tests;\npub use x::X;\npub struct A;\n");
    let x = ("a/x.rs", "use super::A;\nuse crate::Root;\npub struct X;\n");
    let y = ("a/y.rs", "use super::X;\n");
    let tests = ("a/tests.rs", "use crate::b::B;\n");
    let b = ("b.rs", "use crate::a::X;\npub struct B;\n");
    assert!(circles_of(&[lib, a, x, y, tests, b]).is_empty());
    let x_uses_y = ("a/x.rs", "use super::y;\npub struct X;\n");
    assert_eq!(circles_of(&[lib, a, x_uses_y, y, tests, b]), ["in a: x uses y (x.rs:1), y uses x (y.rs:1)"]);
    let y_uses_b = ("a/y.rs", "use crate::b::*;\n");
    assert_eq!(circles_of(&[lib, a, x, y_uses_b, tests, b]), ["a uses b (y.rs:1), b uses a (b.rs:1)"]);
}

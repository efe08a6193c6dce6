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
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The names of a module and its parents, from the root of its crate.
type Name = Vec<String>;

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

impl Module {
    fn parse(file: &Path) -> Module {
        let mut module = Module { file: file.into(), ..Module::default() };
        module.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
        module
    }

    /// The paths of a tree of imports, `a::{b, c::*}`, each with its name in this module.
    fn import(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        let inner = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.import(&path.tree, &inner(&path.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix)),
            syn::UseTree::Name(own) if own.ident == "self" => {
                self.add_import(own, prefix.last().cloned(), prefix.to_vec())
            }
            syn::UseTree::Name(name) => self.add_import(name, Some(name.ident.to_string()), inner(&name.ident)),
            syn::UseTree::Rename(renamed) => {
                self.add_import(renamed, Some(renamed.rename.to_string()), inner(&renamed.ident))
            }
            syn::UseTree::Glob(star) => {
                self.globs.push(prefix.to_vec());
                self.paths.push((prefix.to_vec(), star.span().start().line));
            }
        }
    }

    fn add_import(&mut self, tree: &impl Spanned, name: Option<String>, path: Name) {
        self.paths.push((path.clone(), tree.span().start().line));
        self.imports.extend(name.map(|name| (name, path)));
    }

    /// A path in the code, if it leads out of the module.
    fn add_path(&mut self, segments: Vec<&syn::Ident>) {
        if ["crate", "super"].iter().any(|root| segments[0] == root) {
            self.paths.push((segments.iter().map(ToString::to_string).collect(), segments[0].span().start().line));
        }
    }
}

impl<'a> Visit<'a> for Module {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        match is_for_tests(&item.attrs) {
            false => visit::visit_item_mod(self, item),
            true => {
                self.for_tests.extend(Some(&item.ident).filter(|_| item.content.is_none()).map(ToString::to_string))
            }
        }
    }

    fn visit_item(&mut self, item: &'a syn::Item) {
        let name = match item {
            syn::Item::Const(item) => &item.ident,
            syn::Item::Enum(item) => &item.ident,
            syn::Item::Fn(item) if is_for_tests(&item.attrs) => return,
            syn::Item::Fn(item) => &item.sig.ident,
            syn::Item::Static(item) => &item.ident,
            syn::Item::Struct(item) => &item.ident,
            syn::Item::Trait(item) => &item.ident,
            syn::Item::Type(item) => &item.ident,
            _ => return visit::visit_item(self, item),
        };
        self.defined.insert(name.to_string());
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.add_path(path.segments.iter().map(|segment| &segment.ident).collect());
        visit::visit_path(self, path);
    }

    /// The arguments of most macros are expressions.
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let arguments = call.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        arguments.iter().flatten().for_each(|argument| self.visit_expr(argument));
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |list: &syn::MetaList| list.path.is_ident("cfg") && list.tokens.to_string() == "test";
    attributes.iter().any(|attribute| attribute.meta.require_list().is_ok_and(is_test))
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
    assert_eq!(circles_of(&[lib, a, b, c]), ["a uses b (a.rs:3), b uses c (b.rs:4), c uses a (c.rs:1)"]);
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

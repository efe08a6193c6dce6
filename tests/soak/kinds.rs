//! The kinds of input: how each is made, and how it is used.

mod list;
mod profile;
mod state;
mod text;
mod trace;

use crate::mutate::Chance;
use std::path::{Path, PathBuf};

/// Makes an input.
pub type Make = Box<dyn Fn(&mut Chance) -> Vec<u8>>;
/// Reads and uses an input. Returns whether it was accepted.
pub type Run = Box<dyn Fn(&[u8]) -> bool>;

/// One kind of input.
pub struct Kind {
    pub name: &'static str,
    /// The share of the cases, relative to the other kinds.
    pub weight: usize,
    pub make: Make,
    pub run: Run,
}

impl Kind {
    fn new(
        name: &'static str,
        weight: usize,
        make: impl Fn(&mut Chance) -> Vec<u8> + 'static,
        run: impl Fn(&[u8]) -> bool + 'static,
    ) -> Kind {
        Kind { name, weight, make: Box::new(make), run: Box::new(run) }
    }
}

pub fn all() -> Vec<Kind> {
    vec![
        profile::kind(),
        trace::kind(),
        text::models(),
        text::scenarios(),
        state::undo_notes(),
        state::disks(),
        state::disk_protocol(),
        state::mount_tables(),
        state::windows(),
        state::rules(),
        list::lists(),
        list::ureadahead_packs(),
        list::steer_rules(),
        list::pack_records(),
    ]
}

/// The kind with this name.
pub fn named(name: &str) -> Kind {
    all().into_iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no kind {name}"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The contents of the files in a directory of the repository, sorted by name.
fn files_of(directory: &str) -> Vec<Vec<u8>> {
    let directory = repository().join(directory);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

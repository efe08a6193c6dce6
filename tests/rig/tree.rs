//! Files and directories: what lies in them, and how they are made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files and links below a directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let of = |path: PathBuf| if path.is_dir() && !path.is_symlink() { files_below(&path) } else { vec![path] };
    paths.flat_map(of).collect()
}

/// A directory's names that begin with this.
pub fn names_with(directory: impl AsRef<Path>, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort_unstable();
    names
}

pub fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A script of the shell.
pub fn write_script(path: &Path, lines: &str) {
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    set_mode(path, 0o755);
}

pub fn make_directories<const N: usize>(parent: &Path, names: [&str; N]) -> [PathBuf; N] {
    names.map(|name| {
        let path = parent.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    })
}

pub fn make_fifo(path: &Path) {
    super::program::program("mkfifo").arg(path).ok();
}

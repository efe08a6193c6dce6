//! Files of rules: written completely or not at all, removed, and restored.

use crate::tune::rule::{Rule, RulePlace};
use crate::tune::{Error, Result};
use ahead_sys::directory::DirectoryEntry;
use ahead_sys::root::Root;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directory of units, and suffix of the directories of units that a mount wants.
const UNITS: &str = "etc/systemd/system";
const WANTS: &str = ".mount.wants";

/// The files of a rule, below a root.
pub(super) struct RuleFiles<'a> {
    root: &'a Path,
    place: RulePlace,
}

/// The earlier content of a rule's files.
pub(super) struct Before {
    root: PathBuf,
    path: PathBuf,
    text: Option<String>,
    link: Option<(PathBuf, Option<PathBuf>)>,
}

impl<'a> RuleFiles<'a> {
    pub fn new(root: &'a Path, place: RulePlace) -> RuleFiles<'a> {
        RuleFiles { root, place }
    }

    pub fn path(&self) -> PathBuf {
        self.root.join(&self.place.path)
    }

    fn name(&self) -> &OsStr {
        self.place.path.file_name().expect("a rule has a name")
    }

    fn link(&self) -> Option<PathBuf> {
        self.place.link.as_ref().map(|link| self.root.join(link))
    }

    /// The target of the link.
    fn destination(&self) -> PathBuf {
        Path::new("..").join(self.name())
    }

    /// The content of the file, if it is ours.
    pub fn text(&self) -> Option<String> {
        read(self.root, &self.path()).filter(|text| Rule::is_ours(text))
    }

    /// Whether the unit is enabled.
    pub fn is_linked(&self) -> bool {
        self.link().is_none_or(|link| read_link(self.root, &link).is_some_and(|to| to == self.destination()))
    }

    /// Writes the files, and returns their earlier content. Errors: then nothing has changed.
    pub fn write(&self, text: &str) -> Result<Before> {
        let (path, link) = (self.path(), self.link());
        let before = Before {
            root: self.root.into(),
            text: read(self.root, &path),
            link: link.clone().map(|link| (read_link(self.root, &link), link)).map(|(old, link)| (link, old)),
            path,
        };
        if before.text.as_ref().is_some_and(|text| !Rule::is_ours(text)) {
            return Err(Error::State { path: before.path, why: "`ahead tune` did not write it".into() });
        }
        let written = replace(self.root, &before.path, text).and_then(|()| match &link {
            Some(link) => relink(self.root, link, &self.destination()),
            None => Ok(()),
        });
        match written {
            Ok(()) => Ok(before),
            Err(error) => {
                before.put_back();
                Err(error)
            }
        }
    }

    /// Removes links that enable the unit for other mount points.
    pub fn remove_other_links(&self) -> Result<Vec<PathBuf>> {
        let own = self.link();
        let others = self.links().into_iter().filter(|link| Some(link) != own.as_ref());
        others.filter_map(|link| remove(self.root, &link).map(|is_gone| is_gone.then_some(link)).transpose()).collect()
    }

    /// All links to the unit.
    fn links(&self) -> Vec<PathBuf> {
        if self.place.link.is_none() {
            return Vec::new();
        }
        let units = self.root.join(UNITS);
        let Ok(Some(place)) = find_place(self.root, &units.join(self.name())) else { return Vec::new() };
        let names = place.directory().names().unwrap_or_default();
        let wants = names.iter().filter(|name| name.to_string_lossy().ends_with(WANTS));
        let links = wants.map(|name| units.join(name).join(self.name()));
        links.filter(|link| read_link(self.root, link).is_some()).collect()
    }

    /// Removes the files if they are ours, and returns those removed.
    pub fn remove(&self) -> Result<Vec<PathBuf>> {
        remove(self.root, &temporary(&self.path()))?;
        let path = self.path();
        if self.text().is_none() && find_place(self.root, &path)?.is_some_and(|place| place.path().exists()) {
            return Ok(Vec::new());
        }
        // The links first: systemd would report a broken one at each start.
        let mut gone = self.links();
        gone.iter().try_for_each(|link| remove(self.root, link).map(drop))?;
        if remove(self.root, &path)? {
            gone.insert(0, path);
        }
        Ok(gone)
    }
}

impl Before {
    /// Restores the earlier files. Errors are ignored: if the disk is full, for example, the new files were not written
    /// either.
    pub fn put_back(&self) {
        let _ = match &self.text {
            Some(text) if read(&self.root, &self.path).is_some_and(|now| now == *text) => Ok(()),
            Some(text) => replace(&self.root, &self.path, text),
            None => remove(&self.root, &self.path).map(drop),
        };
        let _ = match &self.link {
            Some((link, Some(destination))) => relink(&self.root, link, destination),
            Some((link, None)) if read_link(&self.root, link).is_some() => remove(&self.root, link).map(drop),
            _ => Ok(()),
        };
    }
}

/// Creates a symbolic link, or changes its target.
fn relink(root: &Path, link: &Path, destination: &Path) -> Result<()> {
    let place = make_place(root, link)?;
    let there = place.path();
    if fs::read_link(&there).is_ok_and(|now| now == destination) {
        return Ok(());
    }
    if there.symlink_metadata().is_ok_and(|there| !there.is_symlink()) {
        return Err(Error::State { path: link.into(), why: "`ahead tune` did not create it".into() });
    }
    Ok(place.directory().replace_link(place.name(), destination)?)
}

/// The place of a file below the root, and its missing directories. Symbolic links are followed as in a chroot of the root.
fn make_place(root: &Path, path: &Path) -> Result<DirectoryEntry> {
    let (directory, name) = parts(root, path);
    match Root::at(root)?.make_directory(&directory) {
        Err(ahead_sys::Error::Io { source, .. }) => Err(unwritable(path.parent().unwrap_or(path), source).into()),
        made => Ok(made?.entry(name)),
    }
}

/// As [`make_place`]; `None`: there is no such directory.
pub(super) fn find_place(root: &Path, path: &Path) -> Result<Option<DirectoryEntry>> {
    let (directory, name) = parts(root, path);
    match Root::at(root)?.directory(&directory) {
        Err(error) if matches!(error.raw_os_error(), Some(NOT_FOUND | NOT_A_DIRECTORY)) => Ok(None),
        found => Ok(Some(found?.entry(name))),
    }
}

/// The error numbers of a path of which a directory is missing.
const NOT_FOUND: i32 = Errno::NOENT.raw_os_error();
const NOT_A_DIRECTORY: i32 = Errno::NOTDIR.raw_os_error();

/// The directory of a file below the root, as the root has it, and the file's name.
fn parts<'a>(root: &Path, path: &'a Path) -> (PathBuf, &'a OsStr) {
    let inner = Path::new("/").join(path.strip_prefix(root).unwrap_or(path));
    (inner.parent().unwrap_or(Path::new("/")).into(), path.file_name().unwrap_or_default())
}

pub(super) fn unwritable(directory: &Path, error: std::io::Error) -> ahead_sys::Error {
    ahead_sys::Error::unwritable("keeping a window", directory, error)
}

/// Temporary name of a file that is being written. It is always the same, so that the file of a killed process is found later.
/// udev and systemd ignore such names.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{TEMPORARY}"))
}

/// Suffix of temporary names.
pub(super) const TEMPORARY: &str = ".new";

/// Writes a temporary file and renames it: a partial rule would be worse than none.
pub(super) fn replace(root: &Path, path: &Path, text: &str) -> Result<()> {
    let (place, new) = (make_place(root, path)?, temporary(path));
    let new = new.file_name().unwrap_or_default();
    let directory = place.directory();
    let write = || -> ahead_sys::Result<()> {
        directory.remove_file(new)?;
        let mut file = directory.create_file(new)?;
        let failed = |error| ahead_sys::Error::io(format!("write {}", path.display()), error);
        file.write_all(text.as_bytes()).map_err(failed)?;
        // Users may read it, with any umask.
        file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        directory.rename(new, place.name())
    };
    write().map_err(|error| {
        let _ = directory.remove_file(new);
        match error {
            ahead_sys::Error::Io { source, .. } => unwritable(path.parent().unwrap_or(Path::new("/")), source).into(),
            error => error.into(),
        }
    })
}

/// Removes a file. Returns whether it existed.
pub(super) fn remove(root: &Path, path: &Path) -> Result<bool> {
    let Some(place) = find_place(root, path)? else { return Ok(false) };
    match fs::remove_file(place.path()) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        done => done.map(|()| true).map_err(|e| Error::io(format!("remove {}", path.display()), e)),
    }
}

/// The text of a file below the root.
fn read(root: &Path, path: &Path) -> Option<String> {
    fs::read_to_string(find_place(root, path).ok()??.path()).ok()
}

/// The target of a symbolic link below the root.
fn read_link(root: &Path, path: &Path) -> Option<PathBuf> {
    fs::read_link(find_place(root, path).ok()??.path()).ok()
}

/// Removes a directory if it is empty.
pub(super) fn remove_empty(root: &Path, path: &Path) {
    if let Ok(Some(place)) = find_place(root, path) {
        // It may be in use, or gone.
        let _ = place.directory().remove_directory(place.name());
    }
}

//! Files of rules: written completely or not at all, removed, and restored.

use crate::rule::{Rule, RulePlace};
use crate::{Error, Result};
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
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
        fs::read_to_string(self.path()).ok().filter(|text| Rule::is_ours(text))
    }

    /// Whether the unit is enabled.
    pub fn is_linked(&self) -> bool {
        self.link().is_none_or(|link| fs::read_link(link).is_ok_and(|destination| destination == self.destination()))
    }

    /// Writes the files, and returns their earlier content. Errors: then nothing has changed.
    pub fn write(&self, text: &str) -> Result<Before> {
        let (path, link) = (self.path(), self.link());
        let before = Before {
            text: fs::read_to_string(&path).ok(),
            link: link.clone().map(|link| (fs::read_link(&link).ok(), link)).map(|(old, link)| (link, old)),
            path,
        };
        if before.text.as_ref().is_some_and(|text| !Rule::is_ours(text)) {
            return Err(Error::State { path: before.path, why: "`ahead tune` did not write it".into() });
        }
        let written = replace(&before.path, text).and_then(|()| match &link {
            Some(link) => relink(link, &self.destination()),
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
        others.filter_map(|link| remove(&link).map(|is_gone| is_gone.then_some(link)).transpose()).collect()
    }

    /// All links to the unit.
    fn links(&self) -> Vec<PathBuf> {
        if self.place.link.is_none() {
            return Vec::new();
        }
        let entries = fs::read_dir(self.root.join(UNITS)).into_iter().flatten().flatten();
        let wants = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(WANTS));
        wants.map(|entry| entry.path().join(self.name())).filter(|link| link.is_symlink()).collect()
    }

    /// Removes the files if they are ours, and returns those removed.
    pub fn remove(&self) -> Result<Vec<PathBuf>> {
        remove(&temporary(&self.path()))?;
        let path = self.path();
        if self.text().is_none() && path.exists() {
            return Ok(Vec::new());
        }
        // The links first: systemd would report a broken one at each start.
        let mut gone = self.links();
        gone.iter().try_for_each(|link| remove(link).map(drop))?;
        if remove(&path)? {
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
            Some(text) if fs::read_to_string(&self.path).is_ok_and(|now| now == *text) => Ok(()),
            Some(text) => replace(&self.path, text),
            None => remove(&self.path).map(drop),
        };
        let _ = match &self.link {
            Some((link, Some(destination))) => relink(link, destination),
            Some((link, None)) if link.is_symlink() => remove(link).map(drop),
            _ => Ok(()),
        };
    }
}

/// Creates a symbolic link, or changes its target.
fn relink(link: &Path, destination: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|now| now == destination) {
        return Ok(());
    }
    make_parent(link)?;
    if link.is_symlink() {
        remove(link)?;
    }
    match symlink(destination, link) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Err(Error::State { path: link.into(), why: "`ahead tune` did not create it".into() })
        }
        done => done.map_err(|e| Error::io(format!("create {}", link.display()), e)),
    }
}

pub(super) fn make_parent(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    Ok(fs::create_dir_all(directory).map_err(|e| unwritable(directory, e))?)
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
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    let new = temporary(path);
    remove(&new)?;
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        file.write_all(text.as_bytes())?;
        // Users may read it, with any umask.
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&new);
        unwritable(path.parent().unwrap_or(Path::new("/")), e).into()
    })
}

/// Removes a file. Returns whether it existed.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        done => done.map(|()| true).map_err(|e| Error::io(format!("remove {}", path.display()), e)),
    }
}

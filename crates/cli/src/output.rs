//! Files that a command writes for somebody: the whole of it, or what was there before.

use ahead_kernel::user::User;
use anyhow::{Context, bail};
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// How our pages begin.
const PAGE_BEGINS: &[u8; 15] = b"<!DOCTYPE html>";

/// Where something is to be written.
enum Place {
    /// A pipe or a device, or what somebody has opened already (`/dev/stdout`): it is added to.
    Open,
    /// A link to a file that is not there yet: the kernel makes that file, if it lets us follow the link.
    Dangling,
    /// A file, behind any link, and what it is now; `None`: it is not there yet.
    File(PathBuf, Option<Metadata>),
}

/// Works with the rights to files of the user behind sudo, or else with our own: what is made is his, and a link of his
/// leads to nothing that he could not change himself.
pub fn with_rights_of<T: Send>(
    user: Option<&User>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    match user {
        Some(user) => user.with_file_rights(work)?.with_context(|| format!("as {}", user.name.display())),
        None => work(),
    }
}

/// Finds out before the work whether [`replace`] could write its result here.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let possible = match place_of(path)? {
        Place::Open => Ok(()),
        Place::Dangling => fs::read_link(path).and_then(|target| beside(&path.with_file_name(target), None).map(drop)),
        Place::File(file, there) => match beside(&file, there.as_ref()).map(drop) {
            Err(error) if there.is_some() && is_refused(&error) => File::options().append(true).open(&file).map(drop),
            done => done,
        },
    };
    possible.with_context(|| format!("cannot write {}", path.display()))
}

/// The same of a page: it is not written over something else, the scenario itself, say.
pub fn check_page(path: &Path) -> anyhow::Result<()> {
    check(path)?;
    if let Ok(Place::File(file, Some(there))) = place_of(path) {
        let mut begins = [0; PAGE_BEGINS.len()];
        let is_page =
            File::open(&file).and_then(|mut file| file.read_exact(&mut begins)).is_ok() && &begins == PAGE_BEGINS;
        if there.len() > 0 && !is_page {
            bail!("{} is there, and no page of HTML: name another file, or remove it first", path.display());
        }
    }
    Ok(())
}

/// Writes a file under a temporary name beside it and renames it: a disk that is full leaves what was there, and no part
/// of something new. Mode and owner stay. Where that may not be done, and what is there may be written, that is done.
pub fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let in_place = || File::options().write(true).truncate(true).clone();
    let written = match place_of(path)? {
        Place::Open => write(File::options().append(true), path, content),
        Place::Dangling => write(in_place().create(true), path, content),
        Place::File(file, there) => match write_beside(&file, there.as_ref(), content) {
            // It was no link when it was found.
            Err(error) if there.is_some() && is_refused(&error) => {
                write(in_place().custom_flags(OFlags::NOFOLLOW.bits() as i32), &file, content)
            }
            done => done,
        },
    };
    written.with_context(|| format!("write {}", path.display()))
}

/// What is written as root goes nowhere that another user's link leads to.
pub fn check_link(path: &Path) -> anyhow::Result<()> {
    let link = fs::symlink_metadata(path).ok().filter(|there| there.is_symlink() && there.uid() != 0);
    match link.filter(|_| acts_as_root()) {
        Some(link) => {
            bail!("cannot write {}: it is a link of user {}; name what it leads to", path.display(), link.uid())
        }
        None => Ok(()),
    }
}

fn place_of(path: &Path) -> anyhow::Result<Place> {
    // These lead to what is open, and that may be a file: to rename another one over it would lose what is in it.
    let is_open = ["/proc", "/dev/fd", "/dev/stdout", "/dev/stderr"].iter().any(|open| path.starts_with(open));
    if !is_open {
        check_link(path)?;
    }
    let is_link = path.is_symlink();
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => bail!("cannot write {}: it is a directory", path.display()),
        Ok(there) if is_open || !there.is_file() => Ok(Place::Open),
        Ok(_) => {
            let found = if is_link { fs::canonicalize(path) } else { without_links_before(path) };
            let file = found.with_context(|| format!("find {}", path.display()))?;
            // What has become a link meanwhile is replaced, and not followed.
            let there = fs::symlink_metadata(&file).with_context(|| format!("look at {}", file.display()))?;
            Ok(Place::File(file, Some(there)))
        }
        Err(_) if path.is_symlink() => Ok(Place::Dangling),
        // To make it tells what else is wrong.
        Err(_) => Ok(Place::File(path.to_owned(), None)),
    }
}

/// A path whose last part is not followed.
fn without_links_before(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(fs::canonicalize(parent)?.join(path.file_name().unwrap_or_default()))
}

/// Whether this thread may write everything: not where it acts for the user behind sudo, whose links lead to nothing that is not his.
fn acts_as_root() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // Real, effective, saved, and that for files.
    ids.and_then(|ids| ids.split_whitespace().nth(3)) == Some("0")
}

fn write(how: &OpenOptions, path: &Path, content: &[u8]) -> io::Result<()> {
    how.open(path)?.write_all(content)
}

fn write_beside(file: &Path, there: Option<&Metadata>, content: &[u8]) -> io::Result<()> {
    let mut temporary = beside(file, there)?;
    temporary.write_all(content)?;
    temporary.persist(file)?;
    Ok(())
}

/// Whether it is the directory that may not be changed, or the owner; a full disk is another matter. A file that is a mount
/// point is busy.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy)
}

/// A temporary file with the mode and owner of what is there, or else as any new file: the user's mask decides.
fn beside(file: &Path, there: Option<&Metadata>) -> io::Result<NamedTempFile> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.exists() {
        return Err(io::Error::new(ErrorKind::NotFound, format!("there is no directory {}", directory.display())));
    }
    let mut builder = tempfile::Builder::new();
    let temporary = builder.prefix(".ahead-").permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
    if let Some(there) = there {
        let made = temporary.as_file().metadata()?;
        if (made.uid(), made.gid()) != (there.uid(), there.gid()) {
            fchown(temporary.as_file(), Some(there.uid()), Some(there.gid()))?;
        }
        temporary.as_file().set_permissions(Permissions::from_mode(there.mode() & 0o777))?;
    }
    Ok(temporary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_behind_its_link_and_nothing_else_is_left() {
        let home = tempfile::tempdir().unwrap();
        let (file, link) = (home.path().join("report"), home.path().join("link"));
        symlink("report", &link).unwrap();
        replace(&file, b"first").unwrap();
        check(&link).unwrap();
        replace(&link, b"second").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert_eq!(names(home.path()), ["link", "report"]);
    }

    /// Regression: the link was replaced.
    #[test]
    fn a_link_to_nothing_yet_stays_a_link() {
        let home = tempfile::tempdir().unwrap();
        let (file, link) = (home.path().join("report"), home.path().join("link"));
        symlink("report", &link).unwrap();
        check(&link).unwrap();
        assert_eq!(names(home.path()), ["link"]);
        replace(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let astray = home.path().join("astray");
        symlink("missing/report", &astray).unwrap();
        assert!(check(&astray).is_err() && replace(&astray, b"").is_err());
    }

    /// Regression: the new file was ours, for everybody to read, and a file in a directory of somebody else was refused.
    #[test]
    fn mode_and_owner_stay_and_a_file_that_may_be_written_is() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("report");
        fs::write(&file, "longer than the new one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        if !ahead_kernel::machine::is_root() {
            eprintln!("skipped: the rest needs root");
            return;
        }
        let user = User { name: "ada".into(), uid: 54_321, gid: 54_322, home: "/".into() };
        std::os::unix::fs::chown(&file, Some(user.uid), Some(user.gid)).unwrap();
        replace(&file, b"newer").unwrap();
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.uid(), now.gid(), now.mode() & 0o777), (user.uid, user.gid, 0o640));
        // The directory is root's.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let written = user.with_file_rights(|| check(&file).and_then(|()| replace(&file, b"his")));
        written.unwrap().unwrap();
        assert_eq!((fs::read(&file).unwrap(), names(home.path())), (b"his".to_vec(), vec!["report".to_owned()]));
        let other = home.path().join("other");
        assert!(user.with_file_rights(|| check(&other)).unwrap().is_err());
    }

    /// Regression: root's page replaced the file that a link of another user's led to, whatever that was.
    #[test]
    fn root_follows_no_link_of_another_user() {
        if !ahead_kernel::machine::is_root() {
            return eprintln!("skipped: needs root");
        }
        let user = User { name: "ada".into(), uid: 54_321, gid: 54_322, home: "/".into() };
        let home = tempfile::tempdir().unwrap();
        let [victim, link, dangling] = ["victim", "link", "dangling"].map(|name| home.path().join(name));
        fs::write(&victim, "kept").unwrap();
        symlink("victim", &link).unwrap();
        symlink("new", &dangling).unwrap();
        for link in [&link, &dangling] {
            std::os::unix::fs::lchown(link, Some(user.uid), Some(user.gid)).unwrap();
            assert!(
                check(link).is_err() && replace(link, b"x").unwrap_err().to_string().contains("link of user 54321")
            );
        }
        assert_eq!((fs::read(&victim).unwrap(), home.path().join("new").exists()), (b"kept".to_vec(), false));
        // With the user's own rights it leads to nothing but what is his.
        for path in [home.path(), &victim] {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).unwrap();
        }
        user.with_file_rights(|| replace(&link, b"his")).unwrap().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"his");
    }

    #[test]
    fn what_cannot_be_written_is_said_before() {
        let home = tempfile::tempdir().unwrap();
        assert!(check(home.path()).unwrap_err().to_string().contains("directory"));
        assert!(check(&home.path().join("missing/report")).is_err());
        check(Path::new("/dev/null")).unwrap();
        replace(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}

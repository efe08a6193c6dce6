//! Output files of a command. A file has either all of the new content or all of the old one.
//!
//! ```text
//!     prepare ──▶ opens the directory, and the file if it exists ──▶ …work… ──▶ commit: writes there
//! ```
//!
//! The path is resolved once, before the work: the measured program, or its user, may replace a directory of the path by a link
//! meanwhile.

pub mod pages;
pub mod system;

use crate::{Error, Result};
use ahead_files::Replacement;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, stat, statat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The first bytes of our HTML pages.
const PAGE_BEGINS: &[u8; 15] = b"<!DOCTYPE html>";

/// Maximum number of dangling symbolic links in a chain. The kernel follows 40; longer chains than this are not in use.
const MAX_LINKS: u32 = 8;

/// The destination of a result.
#[derive(Debug)]
pub struct Output {
    /// The path that the user gave.
    path: PathBuf,
    place: OutputPlace,
}

#[derive(Debug)]
enum OutputPlace {
    /// A pipe, a device, or an open file of the caller (`/dev/stdout`): the result is appended. The descriptor is O_PATH.
    Open(OwnedFd),
    /// A name in a directory.
    File(InDirectory),
}

#[derive(Debug)]
struct InDirectory {
    directory: OwnedFd,
    /// The path of the directory.
    path: PathBuf,
    name: OsString,
    /// An O_PATH descriptor of the file that has this name, if any.
    there: Option<OwnedFd>,
}

/// Checks before the work whether [`replace`] could write its result here.
fn check(path: &Path) -> Result<()> {
    Output::prepare(path).map(drop)
}

/// Writes a file at once, if there is no work between check and write.
///
/// # Errors
/// The file cannot be written. It still has the old content.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    Output::prepare(path)?.commit(content)
}

impl Output {
    /// Opens the destination of a result before the work, and checks that it can be written.
    ///
    /// # Errors
    /// The result could not be written.
    pub fn prepare(path: &Path) -> Result<Output> {
        let place =
            OutputPlace::prepare(path).map_err(|error| Error::io(format!("cannot write {}", path.display()), error))?;
        Ok(Output { path: path.into(), place })
    }

    /// The same for an HTML page. It replaces no file of another kind, the scenario itself, for example.
    ///
    /// # Errors
    /// The page could not be written; the existing file is not an HTML page.
    pub fn prepare_page(path: &Path) -> Result<Output> {
        let output = Output::prepare(path)?;
        if let OutputPlace::File(InDirectory { there: Some(there), .. }) = &output.place {
            let mut begins = [0; PAGE_BEGINS.len()];
            let read = reopen(OpenOptions::new().read(true), there).and_then(|mut file| file.read_exact(&mut begins));
            let is_page = read.is_ok() && &begins == PAGE_BEGINS;
            let is_empty = fstat(there).is_ok_and(|there| there.st_size == 0);
            if !is_empty && !is_page {
                let path = path.display();
                return Err(Error::Failed(format!(
                    "{path} is not a page of HTML: name another file, or remove it first"
                )));
            }
        }
        Ok(output)
    }

    /// Replaces the file in one step: on a full disk it keeps the old content. Mode and owner stay. If the directory may not be
    /// changed but the file may be written, writes the file itself.
    ///
    /// # Errors
    /// The file cannot be written; its directory was moved or replaced meanwhile.
    pub fn commit(&self, content: &[u8]) -> Result<()> {
        let written = match &self.place {
            OutputPlace::Open(open) => {
                reopen(OpenOptions::new().append(true), open).and_then(|mut to| to.write_all(content))
            }
            OutputPlace::File(file) => file.write(content),
        };
        written.map_err(|error| Error::io(format!("write {}", self.path.display()), error))
    }
}

/// Whether a path leads to an open descriptor of this process.
pub fn is_open(path: &Path) -> bool {
    ["/proc", "/dev/fd", "/dev/stdout", "/dev/stderr"].iter().any(|open| path.starts_with(open))
}

/// Refuses, for root, a path whose last component is a symbolic link of another user.
fn check_link(path: &Path) -> Result<()> {
    match link_of_another_user(path) {
        Some(owner) => Err(Error::Failed(format!("cannot write {}: {}", path.display(), refusal(owner)))),
        None => Ok(()),
    }
}

fn refusal(owner: u32) -> String {
    format!("it is a symbolic link of another user ({owner}); give the path of its target")
}

/// The owner of a symbolic link that root would follow. `None`: there is no link, root owns it, or this thread does not act as
/// root.
fn link_of_another_user(path: &Path) -> Option<u32> {
    let link = fs::symlink_metadata(path).ok().filter(|there| there.is_symlink() && there.uid() != 0)?;
    acts_as_root().then(|| link.uid())
}

/// Whether this thread may write every file. If it has the file rights of the user behind sudo, a link of that user leads only to
/// files that the user may change anyway.
fn acts_as_root() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // Real, effective, saved, and file system user id.
    ids.and_then(|ids| ids.split_whitespace().nth(3)) == Some("0")
}

impl OutputPlace {
    /// Opens the place of a path, and checks that it can be written.
    fn prepare(path: &Path) -> io::Result<OutputPlace> {
        let place = find(path)?;
        if let OutputPlace::File(file) = &place {
            match (file.replacement(), &file.there) {
                (Err(error), Some(there)) if is_refused(&error) => {
                    reopen(OpenOptions::new().append(true), there).map(drop)?;
                }
                (made, _) => made.map(drop)?,
            }
        }
        Ok(place)
    }
}

fn find(path: &Path) -> io::Result<OutputPlace> {
    // An open file must not be replaced: the descriptor would still refer to the old one.
    let is_open = is_open(path);
    if !is_open && acts_as_root() {
        return match follow_own_links(path)? {
            (last, Ok(found)) => of_kind(&last, found, false),
            // Creating the file reports any other error. A link that appears meanwhile is refused.
            (last, Err(_)) => Ok(OutputPlace::File(find_new(&last, MAX_LINKS)?)),
        };
    }
    match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(_) => Ok(OutputPlace::File(find_new(path, 0)?)),
        Ok(found) => of_kind(path, found, is_open),
    }
}

fn of_kind(path: &Path, found: OwnedFd, is_open: bool) -> io::Result<OutputPlace> {
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::Directory => Err(io::Error::other("it is a directory")),
        FileType::RegularFile if !is_open => find_file(path, found).map(OutputPlace::File),
        _ => Ok(OutputPlace::Open(found)),
    }
}

/// Opens what a path leads to, and returns it with the path behind its last link. Opens each link itself and follows it only if
/// root owns it. So a link that another user creates meanwhile is refused, too.
fn follow_own_links(path: &Path) -> io::Result<(PathBuf, rustix::io::Result<OwnedFd>)> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let found = openat(CWD, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let Ok(link) = &found else { return Ok((path, found)) };
        let there = fstat(link)?;
        if !FileType::from_raw_mode(there.st_mode).is_symlink() {
            return Ok((path, found));
        }
        if there.st_uid != 0 {
            return Err(io::Error::other(refusal(there.st_uid)));
        }
        let target = PathBuf::from(OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes()));
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    Err(io::Error::other(format!("it leads through more than {MAX_LINKS} symbolic links")))
}

/// The directory of the file that a path leads to: that of the path, or that of the link's target.
fn find_file(path: &Path, found: OwnedFd) -> io::Result<InDirectory> {
    let by_kernel = fs::read_link(link_to(&found))?;
    for path in [path, &by_kernel] {
        let Ok(mut place) = open_directory(path) else { continue };
        let there = statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| fstat(&found).is_ok_and(|found| is_same(&there, &found))) {
            place.there = Some(found);
            return Ok(place);
        }
    }
    Err(io::Error::other("it was moved or removed while it was opened"))
}

/// The place of a file that does not exist yet; for a dangling link, the place of its target.
fn find_new(path: &Path, links: u32) -> io::Result<InDirectory> {
    let place = open_directory(path)?;
    let Ok(there) = statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(place) };
    if !FileType::from_raw_mode(there.st_mode).is_symlink() {
        return Ok(place);
    }
    // The rule of the kernel (fs.protected_symlinks). The kernel does not apply it here, because it does not follow the link.
    let directory = fstat(&place.directory)?;
    let is_shared = directory.st_mode & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE;
    if is_shared && there.st_uid != directory.st_uid || links == MAX_LINKS {
        let why = "it is a dangling symbolic link that another user may have created: remove it, or name another file";
        return Err(io::Error::other(why));
    }
    let target = PathBuf::from(OsString::from_vec(readlinkat(&place.directory, &place.name, Vec::new())?.into_bytes()));
    find_new(&place.path.join(target), links + 1)
}

/// Mode of a directory in which every user may create files and remove only own files (`S_ISVTX | S_IWOTH`).
const STICKY_AND_WRITABLE: u32 = 0o1002;

fn open_directory(path: &Path) -> io::Result<InDirectory> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it is a directory"))?.to_owned();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, parent, flags, Mode::empty()) {
        Ok(directory) => Ok(InDirectory { directory, path: parent.into(), name, there: None }),
        Err(Errno::NOENT | Errno::NOTDIR) => {
            Err(io::Error::other(format!("there is no directory {}", parent.display())))
        }
        Err(error) => Err(error.into()),
    }
}

impl InDirectory {
    fn write(&self, content: &[u8]) -> io::Result<()> {
        let is_there = stat(&self.path).is_ok_and(|now| fstat(&self.directory).is_ok_and(|own| is_same(&now, &own)));
        if !is_there {
            return Err(io::Error::other("its directory was moved, replaced or removed meanwhile"));
        }
        let written = self.replacement().and_then(|mut replacement| {
            replacement.file().write_all(content)?;
            replacement.rename_to(&self.name)
        });
        match (written, &self.there) {
            (Err(error), Some(there)) if is_refused(&error) => {
                reopen(OpenOptions::new().write(true).truncate(true), there)?.write_all(content)
            }
            (written, _) => written,
        }
    }

    /// A new file with the mode and owner of the existing one; if there is none, with the default mode and the user's umask.
    fn replacement(&self) -> io::Result<Replacement<'_>> {
        let mut replacement = Replacement::create(self.directory.as_fd(), Mode::from_raw_mode(0o666))?;
        let there = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if let Some(there) = there.filter(|there| FileType::from_raw_mode(there.st_mode).is_file()) {
            let file = replacement.file();
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (there.st_uid, there.st_gid) {
                fchown(&*file, Some(there.st_uid), Some(there.st_gid))?;
            }
            file.set_permissions(Permissions::from_mode(there.st_mode & 0o777))?;
        }
        Ok(replacement)
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// A path to an open file, through `/proc`.
fn link_to(open: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()).into()
}

fn reopen(how: &OpenOptions, handle: &OwnedFd) -> io::Result<File> {
    how.open(link_to(handle))
}

/// Whether an error means that the directory, or the owner of a file in it, may not be changed; a full disk is another error. A file
/// that is a mount point is busy.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_sys::user::User;
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

    /// Regression: the new file belonged to this process's user and was readable by all users. A file in a directory of another
    /// user was refused.
    #[test]
    fn mode_and_owner_stay_and_a_file_that_may_be_written_is() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("report");
        fs::write(&file, "longer than the new one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: the rest needs root");
            return;
        }
        let user = User { name: "ada".into(), uid: 54_321, gid: 54_322, home: "/".into(), shell: "/bin/sh".into() };
        std::os::unix::fs::chown(&file, Some(user.uid), Some(user.gid)).unwrap();
        replace(&file, b"newer").unwrap();
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.uid(), now.gid(), now.mode() & 0o777), (user.uid, user.gid, 0o640));
        // The directory belongs to root.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let written = user.with_file_rights(|| check(&file).and_then(|()| replace(&file, b"newest")));
        written.unwrap().unwrap();
        assert_eq!((fs::read(&file).unwrap(), names(home.path())), (b"newest".to_vec(), vec!["report".to_owned()]));
        let other = home.path().join("other");
        assert!(user.with_file_rights(|| check(&other)).unwrap().is_err());
    }

    /// Regression: the path was resolved again at the end, when it could lead to another place.
    #[test]
    fn a_directory_that_is_replaced_meanwhile_leads_nowhere() {
        let home = tempfile::tempdir().unwrap();
        let [directory, moved, elsewhere] = ["d", "moved", "elsewhere"].map(|name| home.path().join(name));
        for made in [&directory, &elsewhere] {
            fs::create_dir(made).unwrap();
            fs::write(made.join("old"), "old").unwrap();
        }
        let outputs = ["old", "new"].map(|name| Output::prepare(&directory.join(name)).unwrap());
        fs::rename(&directory, &moved).unwrap();
        symlink(&elsewhere, &directory).unwrap();
        for output in &outputs {
            let error = format!("{:#}", output.commit(b"ours").unwrap_err());
            assert!(error.contains("replaced"), "{error}");
        }
        assert_eq!((names(&elsewhere), fs::read(elsewhere.join("old")).unwrap()), (names(&moved), b"old".to_vec()));
        // If the file was replaced by a link, the link is replaced, and its target stays.
        fs::remove_file(&directory).unwrap();
        fs::rename(&moved, &directory).unwrap();
        fs::remove_file(directory.join("old")).unwrap();
        symlink(elsewhere.join("old"), directory.join("old")).unwrap();
        outputs.iter().for_each(|output| output.commit(b"ours").unwrap());
        assert_eq!(fs::read(elsewhere.join("old")).unwrap(), b"old");
        assert!(["old", "new"].iter().all(|name| fs::read(directory.join(name)).unwrap() == b"ours"));
    }

    /// The kernel does the same with fs.protected_symlinks = 1.
    #[test]
    fn a_strangers_link_to_nothing_in_a_shared_directory_is_not_followed() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o1777)).unwrap();
        let link = home.path().join("link");
        symlink("made", &link).unwrap();
        check(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(54_321), None).unwrap();
        let error = format!("{:#}", check(&link).unwrap_err());
        assert!(error.contains("another user"), "{error}");
        assert_eq!(names(home.path()), ["link"]);
    }

    /// Regression: root replaced the target of another user's link by a page.
    #[test]
    fn root_follows_no_link_of_another_user() {
        if !ahead_sys::machine::is_root() {
            return eprintln!("skipped: needs root");
        }
        let user = User { name: "ada".into(), uid: 54_321, gid: 54_322, home: "/".into(), shell: "/bin/sh".into() };
        let home = tempfile::tempdir().unwrap();
        let [victim, link, dangling] = ["victim", "link", "dangling"].map(|name| home.path().join(name));
        fs::write(&victim, "kept").unwrap();
        symlink("victim", &link).unwrap();
        symlink("new", &dangling).unwrap();
        for link in [&link, &dangling] {
            std::os::unix::fs::lchown(link, Some(user.uid), Some(user.gid)).unwrap();
            assert!(check(link).is_err() && format!("{:#}", replace(link, b"x").unwrap_err()).contains("(54321)"));
        }
        assert_eq!((fs::read(&victim).unwrap(), home.path().join("new").exists()), (b"kept".to_vec(), false));
        // With the rights of that user, the link leads only to files of that user.
        for path in [home.path(), &victim] {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).unwrap();
        }
        user.with_file_rights(|| replace(&link, b"newest")).unwrap().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"newest");
    }

    #[test]
    fn check_refuses_an_output_that_cannot_be_written() {
        let home = tempfile::tempdir().unwrap();
        assert!(format!("{:#}", check(home.path()).unwrap_err()).contains("directory"));
        assert!(check(&home.path().join("missing/report")).is_err());
        check(Path::new("/dev/null")).unwrap();
        replace(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}

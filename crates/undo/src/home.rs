//! `/run/ahead`: where notes, locks and the disks there are lie.
//!
//! Root does what the notes there say, so nobody else may write there, whatever the umask. And nobody else may open a lock:
//! flock(2) asks for no more than that, and who holds a lock keeps everybody waiting.

use ahead_sys::{Error, Result};
use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The directory itself.
pub const HOME: &str = "/run/ahead";

/// Everybody may look, only the owner may write.
const DIRECTORY_MODE: u32 = 0o755;
const LOCK_MODE: u32 = 0o600;

/// Makes a directory (and [`HOME`] above it) that everybody may look into and nobody else may write, whatever the umask.
/// One that is there already has to be like that. `purpose`: what cannot be done without it.
pub fn make_directory(purpose: &str, directory: &Path) -> Result<()> {
    let parent = directory.parent().filter(|parent| parent.starts_with(HOME));
    parent.map_or(Ok(()), |parent| make_directory(purpose, parent))?;
    let made = match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        // The umask may have taken away what everybody needs.
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE)),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return check_directory(purpose, directory),
        Err(e) => Err(e),
    };
    made.map_err(|e| Error::unwritable(purpose, directory, e))
}

/// Refuses a directory that others may write, or could have written. `false`: there is none.
pub fn look_for_directory(purpose: &str, directory: &Path) -> Result<bool> {
    match fs::symlink_metadata(directory) {
        Ok(metadata) if metadata.is_dir() && is_ours_alone(&metadata) => Ok(true),
        Ok(_) => Err(Error::NotPermitted {
            what: purpose.into(),
            remedy: format!(
                "others may write {0}; see what is there, then make it root's alone: chown root: {0}; chmod 755 {0}",
                directory.display()
            ),
        }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::unwritable(purpose, directory, e)),
    }
}

fn check_directory(purpose: &str, directory: &Path) -> Result<()> {
    look_for_directory(purpose, directory).map(drop)
}

/// Whether nobody but root, or who runs this, can have written it.
pub(crate) fn is_ours_alone(metadata: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    [0, own].contains(&metadata.uid()) && metadata.mode() & 0o022 == 0
}

/// Opens the file of a lock, in a directory that [`make_directory`] makes. `purpose`: what cannot be done without it.
pub fn open_lock(purpose: &str, path: &Path) -> Result<File> {
    path.parent().map_or(Ok(()), |directory| make_directory(purpose, directory))?;
    open_unreadable(path).map_err(|e| Error::unwritable(purpose, path, e))
}

/// How often a lock that another process holds is asked for; there is no event to wait for.
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// Locks a file for ourselves. While another process holds the lock, `pause` waits as long as it is told, and may end the
/// wait by an error. After `limit` the other process is taken for stopped.
pub fn lock_within<E: From<Error>>(
    file: &File,
    path: &Path,
    limit: Duration,
    mut pause: impl FnMut(Duration) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let deadline = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => pause(LOCK_EVERY)?,
            Err(TryLockError::WouldBlock) => {
                let remedy = format!("another process has held {0} for {limit:?}; see: fuser -v {0}", path.display());
                let error = io::Error::new(ErrorKind::TimedOut, remedy);
                return Err(Error::io(format!("lock {}", path.display()), error).into());
            }
            Err(TryLockError::Error(e)) => return Err(Error::io(format!("lock {}", path.display()), e).into()),
        }
    }
}

fn open_unreadable(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).mode(LOCK_MODE).open(path)?;
    // Earlier versions let everybody read it.
    if file.metadata()?.mode() & 0o777 != LOCK_MODE {
        file.set_permissions(Permissions::from_mode(LOCK_MODE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// Regression: everybody could read it, and that is enough to hold it.
    #[test]
    fn a_lock_is_its_owner_s_alone_also_an_older_one() {
        let home = tempfile::tempdir().unwrap();
        let lock = home.path().join("d/lock");
        make_directory("testing", lock.parent().unwrap()).unwrap();
        drop(open_lock("testing", &lock).unwrap());
        assert_eq!(mode(&lock), 0o600);
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        drop(open_lock("testing", &lock).unwrap());
        assert_eq!(mode(&lock), 0o600);
    }

    /// Regression: a process that was stopped while it held a lock kept all others waiting without a limit.
    #[test]
    fn lock_that_another_process_keeps_is_given_up() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("d/lock");
        let open = || open_lock("testing", &path).unwrap();
        let (held, other) = (open(), open());
        held.lock().unwrap();
        let mut pauses = 0;
        let mut wait = |limit| {
            lock_within(&other, &path, limit, |pause| -> Result<()> {
                pauses += 1;
                std::thread::sleep(pause);
                Ok(())
            })
        };
        let given_up = wait(Duration::from_millis(50)).unwrap_err().to_string();
        assert!(given_up.contains("fuser -v"), "{given_up}");
        held.unlock().unwrap();
        wait(Duration::ZERO).unwrap();
        assert!(pauses > 0);
    }

    #[test]
    fn a_directory_is_made_once_and_everybody_may_look_into_it() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("d");
        make_directory("testing", &directory).unwrap();
        make_directory("testing", &directory).unwrap();
        assert_eq!(mode(&directory), 0o755);
    }

    /// Regression: notes and locks were made where anybody could have put others.
    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("d");
        fs::create_dir(&directory).unwrap();
        for mode in [0o777, 0o775, 0o1777] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            let refused = make_directory("testing", &directory).unwrap_err();
            assert!(refused.to_string().contains("chmod 755"), "{refused}");
            assert!(open_lock("testing", &directory.join("lock")).is_err());
        }
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        assert!(make_directory("testing", &link).is_err());
    }
}

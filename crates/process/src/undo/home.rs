//! `/run/ahead`: the directory of notes, locks and emulated disks.
//!
//! Root executes the notes there, so only root may write the directory, with any umask. And only root may open a lock: flock(2)
//! needs no more than an open file, and a process that holds a lock blocks all others.

use ahead_sys::{Error, Result};
use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The directory itself.
pub const HOME: &str = "/run/ahead";

/// All users may read, only the owner may write.
const DIRECTORY_MODE: u32 = 0o755;
const LOCK_MODE: u32 = 0o600;

/// Creates a directory (and [`HOME`] above it) that all users may read and only the owner may write, with any umask. An
/// existing directory must have such permissions. `purpose`: the operation that needs it, for messages.
pub fn make_directory(purpose: &str, directory: &Path) -> Result<()> {
    let parent = directory.parent().filter(|parent| parent.starts_with(HOME));
    parent.map_or(Ok(()), |parent| make_directory(purpose, parent))?;
    let made = match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        // The umask may have removed permissions.
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE)),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return check_directory(purpose, directory),
        Err(e) => Err(e),
    };
    made.map_err(|e| Error::unwritable(purpose, directory, e))
}

/// Whether the directory exists. Errors: users other than root may write it, or may have written it.
pub fn look_for_directory(purpose: &str, directory: &Path) -> Result<bool> {
    match fs::symlink_metadata(directory) {
        Ok(metadata) if metadata.is_dir() && is_ours_alone(&metadata) => Ok(true),
        Ok(_) => Err(Error::NotPermitted {
            what: purpose.into(),
            remedy: format!(
                "other users may write {0}; check its content, then make it root's alone: chown root: {0}; chmod 755 {0}",
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

/// Whether only root, or the user of this process, can have written the file.
pub(crate) fn is_ours_alone(metadata: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    [0, own].contains(&metadata.uid()) && metadata.mode() & 0o022 == 0
}

/// Opens a lock file, in a directory created as by [`make_directory`]. `purpose`: the operation that needs it, for messages.
pub fn open_lock(purpose: &str, path: &Path) -> Result<File> {
    path.parent().map_or(Ok(()), |directory| make_directory(purpose, directory))?;
    open_unreadable(path).map_err(|e| Error::unwritable(purpose, path, e))
}

/// Interval between attempts to take a lock; there is no event to wait for.
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// Locks a file exclusively. While another process holds the lock, `pause` waits for the given time; its error ends the wait.
/// After `limit` the other process is considered stopped.
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
    // A user who can read it can hold it.
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

    /// Regression: all users could read the lock, which is enough to hold it.
    #[test]
    fn lock_file_is_private_to_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let lock = home.path().join("d/lock");
        make_directory("testing", lock.parent().unwrap()).unwrap();
        drop(open_lock("testing", &lock).unwrap());
        assert_eq!(mode(&lock), 0o600);
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        drop(open_lock("testing", &lock).unwrap());
        assert_eq!(mode(&lock), 0o600);
    }

    /// Regression: a process that was stopped while it held a lock blocked all others without a limit.
    #[test]
    fn lock_held_by_another_process_times_out() {
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
        let timeout = wait(Duration::from_millis(50)).unwrap_err().to_string();
        assert!(timeout.contains("fuser -v"), "{timeout}");
        held.unlock().unwrap();
        wait(Duration::ZERO).unwrap();
        assert!(pauses > 0);
    }

    #[test]
    fn created_directory_is_readable_by_all_users() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("d");
        make_directory("testing", &directory).unwrap();
        make_directory("testing", &directory).unwrap();
        assert_eq!(mode(&directory), 0o755);
    }

    /// Regression: notes and locks were created in directories that other users could write.
    #[test]
    fn directory_that_others_may_write_is_refused() {
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

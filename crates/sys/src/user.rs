//! Users: who they are and which groups they are in, asked of whatever the system is set up to ask (`nsswitch.conf`: files,
//! LDAP, sssd), by way of the C library.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A user to run a program as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: OsString,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

/// The largest entry of a user that is read, bytes. The lists of members that make entries long are the groups'.
const ENTRY_MAX_BYTES: usize = 1 << 20;

/// More groups than the kernel lets a process have (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

impl User {
    /// Looks a user up by name, or else by number.
    pub fn lookup(name: &str) -> Result<User> {
        let by_name = Self::by_name(name.as_ref())?;
        let found = match (by_name, name.parse()) {
            (None, Ok(uid)) => Self::by_number(uid)?,
            (found, _) => found,
        };
        found.ok_or_else(|| unknown(name))
    }

    /// The user behind sudo: `SUDO_USER`, or else `SUDO_UID`, when we are root. An unknown one is an error: nothing may
    /// run as root instead.
    pub fn behind_sudo() -> Result<Option<User>> {
        if !crate::machine::is_root() {
            return Ok(None);
        }
        Self::named(std::env::var_os("SUDO_USER").as_deref(), std::env::var_os("SUDO_UID").as_deref())
    }

    /// The user of this name or else of this number; `None` only where there is neither.
    fn named(name: Option<&OsStr>, uid: Option<&OsStr>) -> Result<Option<User>> {
        let Some(given) = name.or(uid) else { return Ok(None) };
        let uid = uid.and_then(|uid| uid.to_str()?.parse().ok());
        // A name can be one of several for a number, and a number can have lost its name since: either will do.
        let found = match (name.map(Self::by_name).transpose()?.flatten(), uid) {
            (None, Some(uid)) => Self::by_number(uid)?,
            (found, _) => found,
        };
        found.map(Some).ok_or_else(|| unknown(&given.to_string_lossy()))
    }

    fn by_name(name: &OsStr) -> Result<Option<User>> {
        // No user has a name with a NUL byte in it.
        let Ok(c_name) = CString::new(name.as_bytes()) else { return Ok(None) };
        // SAFETY: `entry` hands in room for an entry, a buffer of that length and room for the result.
        entry(name, |passwd, buffer, length, result| unsafe {
            libc::getpwnam_r(c_name.as_ptr(), passwd, buffer, length, result)
        })
    }

    fn by_number(uid: u32) -> Result<Option<User>> {
        // SAFETY: as above.
        entry(OsStr::new(&uid.to_string()), |passwd, buffer, length, result| unsafe {
            libc::getpwuid_r(uid, passwd, buffer, length, result)
        })
    }

    /// All groups of the user, the primary one included.
    pub fn groups(&self) -> Result<Vec<libc::gid_t>> {
        let what = || format!("groups of {}", self.name.display());
        let name = CString::new(self.name.as_bytes()).map_err(|e| Error::io(what(), io::Error::other(e)))?;
        let mut groups: Vec<libc::gid_t> = vec![0; 64];
        loop {
            let mut count = groups.len() as libc::c_int;
            // SAFETY: `groups` has `count` elements; getgrouplist writes at most that many, and how many there are.
            let found = unsafe { libc::getgrouplist(name.as_ptr(), self.gid, groups.as_mut_ptr(), &mut count) };
            if found >= 0 {
                groups.truncate(count as usize);
                return Ok(groups);
            }
            if groups.len() >= GROUPS_MAX {
                return Err(Error::io(what(), io::Error::other(format!("more than {GROUPS_MAX}"))));
            }
            groups.resize(groups.len() * 2, 0);
        }
    }
}

impl User {
    /// Does some work with this user's rights to files and no others, in a thread of its own: what it makes is the user's,
    /// and a path leads it nowhere where the user could not go. For root, or for the user himself.
    pub fn with_file_rights<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        if rustix::process::geteuid().as_raw() == self.uid {
            return Ok(work());
        }
        let groups = self.groups()?;
        let done = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                // The thread ends with its rights.
                take_file_rights(self, &groups)?;
                Ok(work())
            });
            worker.join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The user and groups of the calling thread alone, as far as files are concerned. When the user is no longer root, the
/// kernel takes away the capabilities that pass by permissions.
fn take_file_rights(user: &User, groups: &[libc::gid_t]) -> Result<()> {
    let failed = || Error::io(format!("take the rights of {}", user.name.display()), io::Error::last_os_error());
    // SAFETY: `groups` has as many elements as is said. The system call, other than the function, is for one thread.
    if unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } != 0 {
        return Err(failed());
    }
    // SAFETY: numbers only. Both give the number before and tell no error: asked again with an impossible number.
    let (uid, gid) = unsafe {
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    if (uid as u32, gid as u32) != (user.uid, user.gid) {
        return Err(Error::needs_root("acting for another user"));
    }
    Ok(())
}

fn unknown(name: &str) -> Error {
    Error::Unsupported {
        what: format!("user {name:?}"),
        why: "no such user (getent passwd shows those that this system knows)".into(),
    }
}

/// Asks for one entry, with a larger buffer as long as the C library wants one.
fn entry(
    who: &OsStr,
    ask: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> Result<Option<User>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut passwd = MaybeUninit::<libc::passwd>::uninit();
        let mut result = std::ptr::null_mut();
        match ask(passwd.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut result) {
            libc::ERANGE if buffer.len() < ENTRY_MAX_BYTES => buffer.resize(buffer.len() * 2, 0),
            0 if !result.is_null() => {
                // SAFETY: a result that is not null says that the entry is filled; its strings lie in `buffer`.
                let (passwd, text) = unsafe { (passwd.assume_init_ref(), |p| CStr::from_ptr(p).to_bytes().to_vec()) };
                let home = OsString::from_vec(text(passwd.pw_dir)).into();
                let shell = Some(text(passwd.pw_shell)).filter(|shell| !shell.is_empty());
                // An empty one means this (passwd(5)).
                let shell = OsString::from_vec(shell.unwrap_or_else(|| b"/bin/sh".to_vec())).into();
                let name = OsString::from_vec(text(passwd.pw_name));
                return Ok(Some(User { name, uid: passwd.pw_uid, gid: passwd.pw_gid, home, shell }));
            }
            // Systems differ in how they say that there is none (getpwnam(3)).
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            number => {
                let what = format!("look up user {}", who.display());
                return Err(Error::io(what, io::Error::from_raw_os_error(number)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_by_number() {
        let root = User::lookup("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(User::lookup("0").unwrap(), root);
        assert!(root.groups().unwrap().contains(&0));
    }

    /// Regression: with a number alone a program ran as root.
    #[test]
    fn a_user_behind_sudo_is_named_by_name_or_by_number_alone() {
        let named = |name: Option<&str>, uid: Option<&str>| User::named(name.map(OsStr::new), uid.map(OsStr::new));
        let root = Some(User::lookup("root").unwrap());
        for (name, uid) in [(None, Some("0")), (Some("root"), None), (Some("no-such-user-here"), Some("0"))] {
            assert_eq!(named(name, uid).unwrap(), root, "{name:?} {uid:?}");
        }
        assert_eq!(named(None, None).unwrap(), None);
        for (name, uid) in [(None, Some("4294967294")), (None, Some("x")), (None, Some("")), (Some(""), None)] {
            assert!(named(name, uid).unwrap_err().is_unavailable(), "{name:?} {uid:?}");
        }
    }

    #[test]
    fn an_unknown_user_is_one_line_that_names_him() {
        for name in ["no-such-user-here", "4294967294", "a\0b", ""] {
            let error = User::lookup(name).unwrap_err();
            assert!(error.is_unavailable(), "{error}");
            assert!(error.to_string().contains(&format!("{name:?}")) && error.to_string().lines().count() == 1);
        }
    }

    #[test]
    fn work_with_a_users_rights_makes_what_is_his_and_only_where_he_may() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        if !crate::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let user = User { name: "ada".into(), uid: 54_321, gid: 54_322, home: "/".into(), shell: "/bin/sh".into() };
        let home = tempfile::tempdir().unwrap();
        let allow = |mode| std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o700);
        let closed = user.with_file_rights(|| std::fs::write(home.path().join("closed"), "")).unwrap();
        assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        allow(0o777);
        let open = home.path().join("open");
        user.with_file_rights(|| std::fs::write(&open, "")).unwrap().unwrap();
        let made = std::fs::metadata(&open).unwrap();
        assert_eq!((made.uid(), made.gid()), (user.uid, user.gid));
        // We ourselves are as before.
        std::fs::write(home.path().join("mine"), "").unwrap();
        assert_eq!(std::fs::metadata(home.path().join("mine")).unwrap().uid(), 0);
    }
}

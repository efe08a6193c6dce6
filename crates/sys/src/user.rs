//! Users and their groups. The C library looks them up in the sources that `nsswitch.conf` names (files, LDAP, sssd).

#![allow(unsafe_code)]

use crate::exec::Identity;
use crate::{Error, Result};
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};
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
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

/// The largest passwd entry that is read. Group entries may be long, since they contain their members. Unit: bytes.
const ENTRY_MAX_BYTES: usize = 1 << 20;

/// The maximum number of groups of a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

impl User {
    /// Looks a user up by name, or by number if no user has that name.
    pub fn lookup(name: &str) -> Result<User> {
        let by_name = Self::by_name(name.as_ref())?;
        let found = match (by_name, name.parse()) {
            (None, Ok(uid)) => Self::by_number(uid)?,
            (found, _) => found,
        };
        found.ok_or_else(|| unknown(name))
    }

    /// When run as root through sudo: the calling user (`SUDO_USER`, or else `SUDO_UID`). An unknown user is an error: no program
    /// may run as root instead.
    pub fn behind_sudo() -> Result<Option<User>> {
        if !crate::machine::is_root() {
            return Ok(None);
        }
        Self::named(std::env::var_os("SUDO_USER").as_deref(), std::env::var_os("SUDO_UID").as_deref())
    }

    /// The user with this name, or else with this number. `None` only if both are missing.
    fn named(name: Option<&OsStr>, uid: Option<&OsStr>) -> Result<Option<User>> {
        let Some(given) = name.or(uid) else { return Ok(None) };
        let uid = uid.and_then(|uid| uid.to_str()?.parse().ok());
        // A number can have several names, and a name can be deleted while its number is in use: one match is enough.
        let found = match (name.map(Self::by_name).transpose()?.flatten(), uid) {
            (None, Some(uid)) => Self::by_number(uid)?,
            (found, _) => found,
        };
        found.map(Some).ok_or_else(|| unknown(&given.to_string_lossy()))
    }

    fn by_name(name: &OsStr) -> Result<Option<User>> {
        // No user name contains a NUL byte.
        let Ok(c_name) = CString::new(name.as_bytes()) else { return Ok(None) };
        // SAFETY: `entry` passes room for an entry, a buffer of that length, and room for the result.
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

    /// All groups of the user, including the primary group.
    pub fn groups(&self) -> Result<Vec<libc::gid_t>> {
        let what = || format!("groups of {}", self.name.display());
        let name = CString::new(self.name.as_bytes()).map_err(|e| Error::io(what(), io::Error::other(e)))?;
        let mut groups: Vec<libc::gid_t> = vec![0; 64];
        loop {
            let mut count = groups.len() as libc::c_int;
            // SAFETY: `groups` has `count` elements; getgrouplist writes at most that many, and sets `count` to the total.
            let found = unsafe { libc::getgrouplist(name.as_ptr(), self.gid, groups.as_mut_ptr(), &mut count) };
            if found >= 0 {
                groups.truncate(count as usize);
                return Ok(groups);
            }
            if groups.len() >= GROUPS_MAX {
                return Err(Error::io(what(), io::Error::other(format!("more than {GROUPS_MAX} groups"))));
            }
            groups.resize(groups.len() * 2, 0);
        }
    }
}

impl User {
    /// Runs `work` in a separate thread with this user's file access rights: new files belong to the user, and paths are
    /// restricted as for the user. For root, or for the user.
    pub fn with_file_rights<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        if rustix::process::geteuid().as_raw() == self.uid {
            return Ok(work());
        }
        let groups = self.groups()?;
        let done = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                // The changed ids end with the thread.
                take_file_rights(self, &groups)?;
                Ok(work())
            });
            worker.join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Sets the file system user and the groups of the calling thread. When the user is no longer root, the kernel removes the
/// capabilities that bypass permissions.
fn take_file_rights(user: &User, groups: &[libc::gid_t]) -> Result<()> {
    let failed = || Error::io(format!("switch to user {}", user.name.display()), io::Error::last_os_error());
    // SAFETY: `groups` has `groups.len()` elements. Unlike the C function, the system call changes only this thread.
    if unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } != 0 {
        return Err(failed());
    }
    // SAFETY: numbers only. Both calls return the previous id and no error; a call with an invalid id reads the current one.
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
        why: "no such user (getent passwd lists the known users)".into(),
    }
}

/// Looks one entry up, with a larger buffer while the C library requires it.
fn entry(
    user: &OsStr,
    lookup: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> Result<Option<User>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut passwd = MaybeUninit::<libc::passwd>::uninit();
        let mut result = std::ptr::null_mut();
        match lookup(passwd.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut result) {
            libc::ERANGE if buffer.len() < ENTRY_MAX_BYTES => buffer.resize(buffer.len() * 2, 0),
            0 if !result.is_null() => {
                // SAFETY: a non-null result means that the entry is filled; its strings lie in `buffer`.
                let (passwd, text) = unsafe { (passwd.assume_init_ref(), |p| CStr::from_ptr(p).to_bytes().to_vec()) };
                let home = OsString::from_vec(text(passwd.pw_dir)).into();
                let shell = Some(text(passwd.pw_shell)).filter(|shell| !shell.is_empty());
                // The default for an empty field (passwd(5)).
                let shell = OsString::from_vec(shell.unwrap_or_else(|| b"/bin/sh".to_vec())).into();
                let name = OsString::from_vec(text(passwd.pw_name));
                return Ok(Some(User { name, uid: passwd.pw_uid, gid: passwd.pw_gid, home, shell }));
            }
            // Systems report a missing user in different ways (getpwnam(3)).
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            number => {
                let what = format!("look up user {}", user.display());
                return Err(Error::io(what, io::Error::from_raw_os_error(number)));
            }
        }
    }
}

/// What a process that becomes one of a user keeps of root's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptRights {
    /// Nothing.
    None,
    /// It sees which pages of any file that the user may read are cached (`CAP_FOWNER`: cachestat and mincore ask for the owner's rights).
    Residency,
}

/// Makes the calling process, which has one thread, one of this user for good, without other capabilities. For root, nothing changes but the
/// groups.
///
/// Other processes of the user may not look into its memory, which may have been that of root.
pub fn become_user(identity: &Identity, rights: KeptRights) -> Result<()> {
    let what = || format!("become user {}", identity.uid);
    let failed = |error: rustix::io::Errno| Error::io(what(), error);
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    thread::set_thread_groups(&groups).map_err(failed)?;
    if identity.uid == 0 {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    thread::set_keep_capabilities(true).map_err(failed)?;
    thread::set_thread_res_gid(gid, gid, gid).map_err(failed)?;
    thread::set_thread_res_uid(uid, uid, uid).map_err(failed)?;
    let none = CapabilitySet::empty();
    // A service may not have it; then residency is unknown.
    let permitted = thread::capabilities(None).map_err(failed)?.permitted;
    let kept = if rights == KeptRights::Residency { permitted & CapabilitySet::FOWNER } else { none };
    thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })
        .map_err(failed)?;
    thread::set_no_new_privs(true).map_err(failed)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)
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
    fn sudo_user_is_found_by_name_or_by_number_alone() {
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
    fn unknown_user_is_a_one_line_error_with_its_name() {
        for name in ["no-such-user-here", "4294967294", "a\0b", ""] {
            let error = User::lookup(name).unwrap_err();
            assert!(error.is_unavailable(), "{error}");
            assert!(error.to_string().contains(&format!("{name:?}")) && error.to_string().lines().count() == 1);
        }
    }

    #[test]
    fn file_rights_limit_access_and_set_the_owner() {
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
        // This thread still has its own rights.
        std::fs::write(home.path().join("mine"), "").unwrap();
        assert_eq!(std::fs::metadata(home.path().join("mine")).unwrap().uid(), 0);
    }
}

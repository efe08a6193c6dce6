//! Finds out what is started, from an exec that waits. All of it is a user's: the memory, the working directory, the script. It may hang anywhere.

use super::FoundStart;
use ahead_apps::{AppVersion, key_of_command};
use ahead_sys::directory::path_of;
use ahead_sys::exec::Identity;
use ahead_sys::exec_call::ExecCall;
use ahead_sys::fanotify::ExecEvent;
use ahead_sys::openat;
use ahead_sys::user::{self, KeptRights};
use std::os::unix::ffi::OsStrExt;

/// What is started. `None`: it has no key, is another program than the marked one (of which that is the loader), or does not see the files of the machine.
pub(super) fn read(event: &ExecEvent) -> Option<FoundStart> {
    let call = ExecCall::of(event.pid).ok()??;
    let ids = call.ids().ok()?;
    let ([uid, effective_uid], [gid, effective_gid]) = (ids.users, ids.groups);
    if !call.sees_the_machine().ok()? || uid != effective_uid || gid != effective_gid {
        return None;
    }
    let (path, arguments, directory) = (call.path().ok()?, call.arguments().ok()?, call.directory().ok()?);
    let program = path_of(&event.file).ok()?;
    let file = openat::identity(&event.file).ok()?;
    // A script is read with the rights of its user.
    user::become_user(&Identity { uid, gid, groups: Vec::new() }, KeptRights::None).ok()?;
    let start = key_of_command(&path, &arguments, &directory)?;
    let version = AppVersion { inode: file.inode, size_bytes: file.size_bytes, mtime_ns: file.mtime_ns };
    let is_marked = start.app.program == program.as_os_str().as_bytes();
    let (app, variant) = (start.app, start.variant);
    is_marked.then_some(FoundStart { pid: event.pid, app, variant, version, user: (uid, gid) })
}

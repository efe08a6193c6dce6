//! Files that a command writes, with the rights of the user behind sudo.

pub use ahead::output::pages::{check_pages, replace_pages};
pub use ahead::output::{Output, is_open, replace};
use ahead_sys::user::User;
use anyhow::Context;
use std::path::Path;

/// Replaces a file with the rights of the user behind sudo.
pub fn replace_for_user(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    with_rights_of(User::behind_sudo()?.as_ref(), || replace(path, content))
}

/// Works with the rights to files of the user behind sudo, or else with our own: new files belong to that user, and a link of theirs leads
/// only to files that they may change anyway.
pub fn with_rights_of<T: Send, E>(user: Option<&User>, work: impl FnOnce() -> Result<T, E> + Send) -> anyhow::Result<T>
where
    E: Into<anyhow::Error> + Send,
{
    match user {
        Some(user) => {
            let done = user.with_file_rights(work)?.map_err(Into::into);
            done.with_context(|| format!("as {}", user.name.display()))
        }
        None => work().map_err(Into::into),
    }
}

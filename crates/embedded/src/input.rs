//! What to prefetch: a profile, or a plain list as `ahead export` writes it.
//!
//! ```text
//!     FILE        begins with / or #: a list      otherwise a profile, whose first byte is 0x89
//!     -           a list from standard input
//!     -0          a list whose entries end with a NUL byte
//! ```
//!
//! So a damaged profile is never read as a list.

use ahead::Profile;
use ahead_files::lists::{List, Syntax};
use ahead_profile::{DecodeError, LoadError, MAX_FILE_BYTES};
use ahead_sys::directory;
use std::io::{self, Read};
use std::path::Path;

/// What to prefetch.
pub enum Input {
    /// What was recorded.
    Profile(Box<Profile>),
    /// Files that are still to be looked up.
    List(List),
}

/// Loads the profile or list at this path. `nul`: it is a list, and its entries end with a NUL byte.
///
/// Errors: the message for the user, with the path.
pub fn load(path: &Path, nul: bool) -> Result<Input, String> {
    let not_a_profile = match path == Path::new("-") || nul {
        true => None,
        false => match ahead::load(path) {
            Ok(profile) => return Ok(Input::Profile(Box::new(profile))),
            Err(error @ LoadError::Decode { source: DecodeError::NotAProfile, .. }) => Some(error),
            Err(error) => return Err(error.to_string()),
        },
    };
    let named = |why: &dyn std::fmt::Display| match path == Path::new("-") {
        true => format!("standard input: {why}"),
        false => format!("{}: {why}", path.display()),
    };
    let bytes = read(path).map_err(|error| named(&error))?;
    match not_a_profile {
        Some(error) if !matches!(bytes.first(), Some(b'/' | b'#')) => Err(error.to_string()),
        _ => ahead_files::lists::parse(&bytes, Syntax { nul, paths_only: false })
            .map(Input::List)
            .map_err(|error| named(&error)),
    }
}

/// Reads a list, at most one byte more than its limit.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match path == Path::new("-") {
        true => io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?,
        false => directory::open_regular_file(path, false)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

//! What to prefetch.

use ahead::Profile;
use std::path::Path;

/// Loads the profile at this path.
///
/// Errors: the message for the user, with the path.
pub fn load(path: &Path) -> Result<Profile, String> {
    ahead::load(path).map_err(|error| error.to_string())
}

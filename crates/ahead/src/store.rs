//! The store of profiles: where the profile of a command is kept when the user names no file.
//!
//! ```text
//!     $XDG_STATE_HOME/ahead/NAME-HASH.ahead        NAME: the program's; HASH: of its arguments and of the working directory
//! ```

use ahead_sys::user::User;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where `record` keeps the profile of a command that is run in this directory, when `-o` is not given:
/// `$XDG_STATE_HOME/ahead/NAME-HASH.ahead`. NAME is the program's; HASH tells apart its arguments and directories
/// (`git status` reads other files in another repository, `python3` with another script).
///
/// `user`: whose directory, if not our own (a recording that root makes for somebody else). It is `~/.local/state` then:
/// the user's environment has not come through sudo.
pub fn new_profile_path_for(argv: &[OsString], user: Option<&User>) -> PathBuf {
    places(argv, user).swap_remove(0)
}

/// Where the profile of such a command is, when `-p` is not given: where we would keep it, or else where root has kept it
/// for us. If it is in neither place, it is looked for in the first.
pub fn profile_path_for(argv: &[OsString], user: Option<&User>) -> PathBuf {
    first_taken(places(argv, user))
}

fn first_taken(mut places: Vec<PathBuf>) -> PathBuf {
    let taken = places.iter().position(|place| place.symlink_metadata().is_ok());
    places.swap_remove(taken.unwrap_or(0))
}

fn places(argv: &[OsString], user: Option<&User>) -> Vec<PathBuf> {
    let directory = std::env::current_dir().unwrap_or_default();
    let name = profile_name(argv, &directory);
    state_directories(user).map(|state| state.join("ahead").join(&name)).collect()
}

fn profile_name(argv: &[OsString], directory: &Path) -> OsString {
    let program = argv.first().map_or(Path::new(""), Path::new);
    let name = program.file_name().unwrap_or(OsStr::new("program"));
    let mut hash = crc32fast::Hasher::new();
    hash.update(directory.as_os_str().as_bytes());
    for argument in argv.iter().skip(1) {
        // NUL can stand in no argument: `a b` and `ab` differ.
        hash.update(&[0]);
        hash.update(argument.as_bytes());
    }
    let mut file = name.to_owned();
    file.push(format!("-{:08x}.ahead", hash.finalize()));
    file
}

/// The first is the one to write to.
fn state_directories(user: Option<&User>) -> impl Iterator<Item = PathBuf> {
    let named = match user {
        Some(_) => None,
        None => std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()),
    };
    named.into_iter().chain([home(user).join(".local/state")])
}

/// What systems write where a user has no home.
const NO_HOME: &str = "/nonexistent";

/// The home directory of this user, or our own: what the environment says, or else the system's list of users. Never a
/// relative one: it would be another one in each directory.
pub fn home(user: Option<&User>) -> PathBuf {
    let own = || std::env::var_os("HOME").map(PathBuf::from);
    let listed = || User::lookup(&geteuid().to_string()).ok().map(|user| user.home);
    let usable = |home: &PathBuf| home.is_absolute();
    let home = match user {
        Some(user) => Some(user.home.clone()).filter(usable),
        None => own().filter(usable).or_else(|| listed().filter(usable)),
    };
    home.unwrap_or_else(|| NO_HOME.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(argv: &[&str], directory: &str) -> OsString {
        profile_name(&argv.iter().map(OsString::from).collect::<Vec<_>>(), Path::new(directory))
    }

    #[test]
    fn the_same_command_in_the_same_directory_has_one_profile() {
        let first = name(&["/usr/bin/git", "status"], "/a");
        assert_eq!(first, name(&["git", "status"], "/a"));
        for other in [name(&["git", "log"], "/a"), name(&["git", "status"], "/b"), name(&["git", "st", "atus"], "/a")] {
            assert_ne!(first, other);
        }
        assert!(first.to_str().unwrap().starts_with("git-"));
    }

    #[test]
    fn a_profile_for_somebody_else_lies_in_his_home() {
        let user = User { name: "ada".into(), uid: 7, gid: 7, home: "/home/ada".into(), shell: "/bin/sh".into() };
        for path_for in [new_profile_path_for, profile_path_for] {
            let path = path_for(&["ls".into()], Some(&user));
            assert!(path.starts_with("/home/ada/.local/state/ahead"), "{}", path.display());
        }
    }
}

//! The store of profiles: the place of a command's profile if the user names no file.
//!
//! ```text
//!     $XDG_STATE_HOME/ahead/NAME-HASH.ahead        NAME: the program's; HASH: of its arguments and of the working directory
//!     $XDG_STATE_HOME/ahead/NAME-any-HASH.ahead    HASH: of the working directory alone, for any arguments
//! ```
//!
//! A lookup tries the profile of the command with its arguments first, then that for any arguments. Root's store is tried last if the
//! program runs as another user.

mod output;

use ahead_model::sorting;
use ahead_profile::{LoadError, Profile};
use ahead_sys::user::User;
pub use output::ProfileOutput;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Which arguments of a command a profile is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arguments {
    /// Exactly the arguments of the command.
    #[default]
    Same,
    /// Any arguments.
    Any,
}

/// Where `record` without `-o` stores the profile of a command that runs in this directory:
/// `$XDG_STATE_HOME/ahead/NAME-HASH.ahead`. NAME is the program's; HASH distinguishes its arguments and directories
/// (`git status` reads other files in another repository, `python3` with another script).
///
/// `user`: the owner of the store, if it is not the calling user (root records for another user). Its store is in `~/.local/state`,
/// because sudo does not pass on the user's environment.
pub fn new_profile_path_for(argv: &[OsString], user: Option<&User>, arguments: Arguments) -> PathBuf {
    places(argv, user, arguments).swap_remove(0)
}

/// The profile of a command without `-p`: in the store of this user, then in that of root; in each of them for the same arguments, then
/// for any. If there is none, the first of these paths.
pub fn profile_path_for(argv: &[OsString], user: Option<&User>) -> PathBuf {
    let (same, any) = (places(argv, user, Arguments::Same), places(argv, user, Arguments::Any));
    first_taken(same.into_iter().zip(any).flat_map(|(same, any)| [same, any]).collect())
}

/// A profile in the store.
#[derive(Debug)]
pub struct Stored {
    /// Its file.
    pub path: PathBuf,
    /// Which arguments it is for.
    pub arguments: Arguments,
    /// The profile, or why it cannot be read.
    pub profile: Result<Profile, LoadError>,
}

/// The profiles in the store of the calling user, in order of their files' names.
///
/// Errors: a directory of the store cannot be listed. One that does not exist is empty.
pub fn list() -> io::Result<Vec<Stored>> {
    let mut stored = Vec::new();
    for state in state_directories(None) {
        let entries = match std::fs::read_dir(state.join("ahead")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>()?;
        let is_profile = |path: &PathBuf| path.extension() == Some(OsStr::new("ahead"));
        stored.extend(paths.into_iter().filter(is_profile).map(Stored::load));
    }
    sorting::sort_by(&mut stored, |a, b| a.path.cmp(&b.path));
    stored.dedup_by(|a, b| a.path == b.path);
    Ok(stored)
}

/// The number of profiles for the same program according to their file names. Reads no file, so that a start is not delayed.
pub fn count_similar(argv: &[OsString]) -> usize {
    let name = program_name(argv).as_bytes();
    // `-HASH.ahead`, and `-any` before it.
    let is_similar = |file: &OsStr| {
        let rest = file.as_bytes().strip_prefix(name).and_then(|rest| rest.strip_suffix(b".ahead"));
        rest.is_some_and(|rest| rest.len() == HASH_DIGITS + 1 || rest.len() == HASH_DIGITS + ANY.len())
    };
    let entries = state_directories(None).filter_map(|state| std::fs::read_dir(state.join("ahead")).ok());
    entries.flatten().flatten().filter(|entry| is_similar(&entry.file_name())).count()
}

impl Stored {
    fn load(path: PathBuf) -> Stored {
        let stem = path.file_stem().unwrap_or_default().as_bytes();
        let is_any = stem.len() > HASH_DIGITS && stem[..stem.len() - HASH_DIGITS].ends_with(ANY.as_bytes());
        let arguments = if is_any { Arguments::Any } else { Arguments::Same };
        Stored { arguments, profile: ahead_profile::load(&path), path }
    }
}

/// The profiles of the same program with other arguments or in another directory, as a hint for a command without a profile.
pub fn similar(argv: &[OsString]) -> Vec<Stored> {
    let Some(name) = argv.first().and_then(|program| Path::new(program).file_name()) else { return Vec::new() };
    let is_similar = |stored: &Stored| {
        let program = stored.profile.as_ref().ok().and_then(|profile| profile.recording.command.first());
        program.and_then(|program| Path::new(OsStr::from_bytes(program)).file_name()) == Some(name)
    };
    list().unwrap_or_default().into_iter().filter(is_similar).collect()
}

fn first_taken(mut places: Vec<PathBuf>) -> PathBuf {
    let taken = places.iter().position(|place| place.symlink_metadata().is_ok());
    places.swap_remove(taken.unwrap_or(0))
}

fn places(argv: &[OsString], user: Option<&User>, arguments: Arguments) -> Vec<PathBuf> {
    let directory = std::env::current_dir().unwrap_or_default();
    let name = match arguments {
        Arguments::Same => profile_name(argv, &directory),
        Arguments::Any => any_name(argv, &directory),
    };
    state_directories(user).map(|state| state.join("ahead").join(&name)).collect()
}

/// Precedes the hash in the name of a profile for any arguments.
const ANY: &str = "-any-";
/// Digits of a hash.
const HASH_DIGITS: usize = 8;

fn program_name(argv: &[OsString]) -> &OsStr {
    let program = argv.first().map_or(Path::new(""), Path::new);
    program.file_name().unwrap_or(OsStr::new("program"))
}

fn any_name(argv: &[OsString], directory: &Path) -> OsString {
    let mut file = program_name(argv).to_owned();
    file.push(format!("{ANY}{:08x}.ahead", crc32fast::hash(directory.as_os_str().as_bytes())));
    file
}

fn profile_name(argv: &[OsString], directory: &Path) -> OsString {
    let name = program_name(argv);
    let mut hash = crc32fast::Hasher::new();
    hash.update(directory.as_os_str().as_bytes());
    for argument in argv.iter().skip(1) {
        // No argument contains NUL: so `a b` and `ab` differ.
        hash.update(&[0]);
        hash.update(argument.as_bytes());
    }
    let mut file = name.to_owned();
    file.push(format!("-{:08x}.ahead", hash.finalize()));
    file
}

/// The directories of the store. New profiles go to the first.
pub(crate) fn state_directories(user: Option<&User>) -> impl Iterator<Item = PathBuf> {
    let named = match user {
        Some(_) => None,
        None => std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()),
    };
    named.into_iter().chain([home(user).join(".local/state")])
}

/// The home directory in passwd of users without one.
const NO_HOME: &str = "/nonexistent";

/// The home directory of this user or of the calling one: from the environment, or else from the user database. A relative path is
/// ignored, because it would depend on the working directory.
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
    fn profile_for_any_arguments_has_one_name_in_each_directory() {
        let any = |argv: &[&str], directory: &str| {
            any_name(&argv.iter().map(OsString::from).collect::<Vec<_>>(), Path::new(directory))
        };
        let first = any(&["git", "log"], "/a");
        assert_eq!(first, any(&["/usr/bin/git", "status", "-s"], "/a"));
        assert_ne!(first, any(&["git", "log"], "/b"));
        assert_ne!(first, name(&["git"], "/a"));
        let arguments = |name: OsString| Stored::load(Path::new("/nonexistent").join(name)).arguments;
        assert_eq!((arguments(first), arguments(name(&["git"], "/a"))), (Arguments::Any, Arguments::Same));
    }

    #[test]
    fn a_profile_for_another_user_lies_in_that_users_home() {
        let user = User { name: "ada".into(), uid: 7, gid: 7, home: "/home/ada".into(), shell: "/bin/sh".into() };
        let new = |argv: &[OsString], user: Option<&User>| new_profile_path_for(argv, user, Arguments::Same);
        for path in [new(&["ls".into()], Some(&user)), profile_path_for(&["ls".into()], Some(&user))] {
            assert!(path.starts_with("/home/ada/.local/state/ahead"), "{}", path.display());
        }
    }
}

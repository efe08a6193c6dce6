//! The store of profiles: the place of a command's profile if the user names no file.
//!
//! ```text
//!     $XDG_STATE_HOME/ahead/NAME-HASH.ahead        NAME: the program's; HASH: of its arguments and of the working directory
//!     $XDG_STATE_HOME/ahead/NAME-any-HASH.ahead    HASH: of the working directory alone, for any arguments
//!     $XDG_STATE_HOME/ahead/NAME-HASH.note         why `run` leaves that profile alone ([`note`])
//! ```
//!
//! A lookup tries the profile of the command with its arguments first, then that for any arguments. Root's store is tried last if the
//! program runs as another user. If there is none, it tries other names of the same program: the name of the file to which the given one
//! is a link, and links to the given file: beside it, in PATH, or where they were recorded. The names of two links to one file are not
//! tried: such a program (`busybox`) goes by its name.

pub mod note;
mod output;

use ahead_model::sorting;
use ahead_process::Command;
use ahead_profile::{LoadError, Profile};
use ahead_sys::user::User;
pub use output::ProfileOutput;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
pub(crate) fn new_profile_path_for(argv: &[OsString], user: Option<&User>, arguments: Arguments) -> PathBuf {
    places(argv, user, arguments).swap_remove(0)
}

/// The profile of a command without `-p`: in the store of this user, then in that of root; in each of them for the same arguments, then
/// for any. If there is none, that of the same program by another name. If there is none either, the first of these paths.
pub fn profile_path_for(argv: &[OsString], user: Option<&User>) -> PathBuf {
    let other = || {
        other_names(argv, user)
            .iter()
            .flat_map(|name| candidates(&renamed(argv, name), user))
            .find(|place| is_taken(place))
    };
    let first = || places(argv, user, Arguments::Same).swap_remove(0);
    candidates(argv, user).into_iter().find(|place| is_taken(place)).or_else(other).unwrap_or_else(first)
}

/// The profile of a command: the recorded one or, where there is none, what the launch service has learned of the program.
pub(crate) fn load_for(argv: &[OsString]) -> Result<Profile, LoadError> {
    ahead_files::load(&profile_path_for(argv, None)).or_else(|error| {
        let is_missing = matches!(&error, LoadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let learned = || {
            let start = start_key_of(argv, None)?;
            ahead_apps::profile_of_command(Path::new(ahead_apps::HOME), geteuid().as_raw(), &start)
        };
        is_missing.then(learned).flatten().ok_or(error)
    })
}

/// Gives a recorded profile to the launch service, too, which prefetches it at each start of the program from then on. Returns what to tell
/// its user; nothing without a service. A failure is a part of that: the profile itself is saved already.
pub fn share_recorded(argv: &[OsString], user: Option<&User>, profile: &Profile) -> Option<String> {
    let start = start_key_of(argv, user)?;
    let owner = user.map_or_else(ahead_apps::calling_user, |user| (user.uid, user.gid));
    match ahead_apps::pin_recorded(Path::new(ahead_apps::HOME), owner, &start, profile) {
        Ok(key) => Some(format!("pinned for the launch service, too: {}", key?.name())),
        Err(error) => Some(format!("not kept for the launch service: {error}")),
    }
}

fn start_key_of(argv: &[OsString], user: Option<&User>) -> Option<ahead_apps::StartKey> {
    let program = Command::new(argv).user(user.cloned()).program_path()?;
    let words: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
    ahead_apps::key_of_command(&program, &words, &std::env::current_dir().ok()?)
}

fn is_taken(place: &Path) -> bool {
    place.symlink_metadata().is_ok()
}

/// The command by another name of its program.
fn renamed(argv: &[OsString], name: &OsStr) -> Vec<OsString> {
    [name.to_owned()].into_iter().chain(argv.iter().skip(1).cloned()).collect()
}

/// The other names of a command's program: that of the file to which it is a link or, if it is none, those of links to it, as far as a
/// profile in the store has them.
fn other_names(argv: &[OsString], user: Option<&User>) -> Vec<OsString> {
    let path_of = |name: &OsString| Command::new([name]).user(user.cloned()).program_path();
    let Some(program) = argv.first().and_then(path_of) else { return Vec::new() };
    let Ok(file) = program.canonicalize() else { return Vec::new() };
    let own = program_name(argv);
    if let Some(name) = file.file_name().filter(|name| *name != own) {
        return vec![name.to_owned()];
    }
    // The path by which the profile of that name was recorded in this directory.
    let recorded = |name: &OsString| {
        let place = candidates(&renamed(argv, name), user).into_iter().find(|place| is_taken(place))?;
        let program = ahead_files::load(&place).ok()?.recording.command.into_iter().next()?;
        // Without a slash it is in PATH.
        program.contains(&b'/').then(|| PathBuf::from(OsString::from_vec(program)))
    };
    // A link beside the program, in PATH, or where it was recorded.
    let is_link = |name: &OsString| {
        let places = [Some(program.with_file_name(name)), path_of(name), recorded(name)];
        places.into_iter().flatten().any(|link| link.canonicalize().is_ok_and(|path| path == file))
    };
    stored_names(user).into_iter().filter(|name| name != own && is_link(name)).collect()
}

/// The names of programs that have a profile in the store of this user, according to the names of the files.
fn stored_names(user: Option<&User>) -> BTreeSet<OsString> {
    let entries = state_directories(user).filter_map(|state| std::fs::read_dir(state.join("ahead")).ok());
    let name = |file: OsString| {
        let stem = file.as_bytes().strip_suffix(b".ahead")?;
        let name = &stem[..stem.len().checked_sub(HASH_DIGITS + 1)?];
        let any = &ANY.as_bytes()[..ANY.len() - 1];
        Some(OsStr::from_bytes(name.strip_suffix(any).unwrap_or(name)).to_owned())
    };
    entries.flatten().flatten().filter_map(|entry| name(entry.file_name())).collect()
}

/// The places of a command's profile, in the order of the search.
fn candidates(argv: &[OsString], user: Option<&User>) -> Vec<PathBuf> {
    let (same, any) = (places(argv, user, Arguments::Same), places(argv, user, Arguments::Any));
    same.into_iter().zip(any).flat_map(|(same, any)| [same, any]).collect()
}

/// A profile in the store.
#[derive(Debug)]
#[non_exhaustive]
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
    let names = [vec![program_name(argv).to_owned()], other_names(argv, None)].concat();
    let is_similar = |file: &OsStr| names.iter().any(|name| is_profile_of(file, name));
    let entries = state_directories(None).filter_map(|state| std::fs::read_dir(state.join("ahead")).ok());
    entries.flatten().flatten().filter(|entry| is_similar(&entry.file_name())).count()
}

/// Whether a file in the store is named after this program.
fn is_profile_of(file: &OsStr, name: &OsStr) -> bool {
    let rest = file.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_suffix(b".ahead"));
    rest.is_some_and(|rest| {
        ["-", ANY].iter().any(|mark| rest.starts_with(mark.as_bytes()) && rest.len() == mark.len() + HASH_DIGITS)
    })
}

impl Stored {
    fn load(path: PathBuf) -> Stored {
        let stem = path.file_stem().unwrap_or_default().as_bytes();
        let is_any = stem.len() > HASH_DIGITS && stem[..stem.len() - HASH_DIGITS].ends_with(ANY.as_bytes());
        let arguments = if is_any { Arguments::Any } else { Arguments::Same };
        Stored { arguments, profile: ahead_files::load(&path), path }
    }
}

/// The profiles of the same program with other arguments or in another directory, as a hint for a command without a profile.
pub fn similar(argv: &[OsString]) -> Vec<Stored> {
    let Some(name) = argv.first().and_then(|program| Path::new(program).file_name()) else { return Vec::new() };
    let names = [vec![name.to_owned()], other_names(argv, None)].concat();
    let is_similar = |stored: &Stored| {
        let program = stored.profile.as_ref().ok().and_then(|profile| profile.recording.command.first());
        let name = program.and_then(|program| Path::new(OsStr::from_bytes(program)).file_name());
        name.is_some_and(|name| names.iter().any(|other| other == name))
    };
    list().unwrap_or_default().into_iter().filter(is_similar).collect()
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

    /// Regression: the name of a longer program that begins alike was counted, if it has four letters more.
    #[test]
    fn profile_belongs_to_the_program_of_its_name_alone() {
        let git = |file: &str| is_profile_of(OsStr::new(file), OsStr::new("git"));
        assert!(git("git-12345678.ahead") && git("git-any-12345678.ahead"));
        for other in ["gitlink-12345678.ahead", "gitk-12345678.ahead", "git-12345678.note", "git-lfs-12345678.ahead"] {
            assert!(!git(other), "{other}");
        }
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

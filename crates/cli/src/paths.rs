//! Where profiles are kept when nobody says where.

use ahead_kernel::process::User;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The profile of a command that is run in this directory, for `record -o` and `run -p` when they are not given:
/// `$XDG_STATE_HOME/ahead/NAME-HASH.ahead`. NAME is the program's; HASH tells apart its arguments and directories
/// (`git status` reads other files in another repository, `python3` with another script).
///
/// `user`: whose directory, if not our own (a recording that root makes for somebody else).
pub fn profile_path_for(argv: &[OsString], user: Option<&User>) -> PathBuf {
    let directory = std::env::current_dir().unwrap_or_default();
    state_directory(user).join(profile_name(argv, &directory))
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

fn state_directory(user: Option<&User>) -> PathBuf {
    let own_state = || std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let state = match user {
        Some(user) => user.home.join(".local/state"),
        None => own_state().unwrap_or_else(|| home().join(".local/state")),
    };
    state.join("ahead")
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
        let user = User { name: "ada".into(), uid: 7, gid: 7, home: "/home/ada".into() };
        let path = profile_path_for(&["ls".into()], Some(&user));
        assert!(path.starts_with("/home/ada/.local/state/ahead"), "{}", path.display());
    }
}

//! The store as `ahead run` and `ahead record` share it: what the service learned of a command, and what was recorded by hand.

use crate::decision::UserChoice;
use crate::key::{AppKey, StartKey};
use crate::store::{App, AppStore, AppsError};
use ahead_profile::Profile;
use ahead_sys::directory::open_regular_file;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE`), bytes.
const SHEBANG_BYTES: u64 = 256;

/// The key of a command, as if its program were started now. `program`: the file that it runs.
pub fn key_of_command(program: &Path, arguments: &[Vec<u8>], directory: &Path) -> Option<StartKey> {
    let program = program.canonicalize().ok()?;
    let mut begins = Vec::new();
    open_regular_file(&program, false).ok()?.take(SHEBANG_BYTES).read_to_end(&mut begins).ok()?;
    let Some(line) = begins.strip_prefix(b"#!") else {
        return StartKey::of(program.as_os_str().as_bytes(), arguments, directory.as_os_str().as_bytes());
    };
    // As the kernel: the interpreter, all that follows as one word, the script.
    let line = line.split(|at| *at == b'\n').next()?.trim_ascii();
    let (interpreter, option) = line.split_at(line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len()));
    let option = Some(option.trim_ascii().to_vec()).filter(|option| !option.is_empty());
    let script = program.as_os_str().as_bytes().to_vec();
    let words = [interpreter.to_vec()].into_iter().chain(option).chain([script]);
    let words: Vec<Vec<u8>> = words.chain(arguments.iter().skip(1).cloned()).collect();
    let interpreter = Path::new(std::ffi::OsStr::from_bytes(interpreter)).canonicalize().ok()?;
    StartKey::of(interpreter.as_os_str().as_bytes(), &words, directory.as_os_str().as_bytes())
}

/// The profile that the service has of a command of this user. `None`: it has none, or the user has excluded the program.
pub fn profile_of_command(home: &Path, user: u32, start: &StartKey) -> Option<Profile> {
    let store = AppStore::open(home).ok()??.user(user).ok()??;
    let base = store.load(&start.app)?;
    let is_own = start.variant.as_ref().is_some_and(|variant| base.variants.is_own(variant));
    let app = if is_own { store.load(&start.split())? } else { base };
    (app.choice != UserChoice::Excluded).then(|| store.profile(&app))?
}

/// Pins a profile that was recorded by hand, if the service has a store. Returns what it was pinned for.
///
/// # Errors
/// The store cannot be written.
pub fn pin_recorded(
    home: &Path,
    (user, group): (u32, u32),
    start: &StartKey,
    profile: &Profile,
) -> Result<Option<AppKey>, AppsError> {
    let Some(store) = AppStore::open(home)? else { return Ok(None) };
    let store = store.make_user(user, group)?;
    let known = |key: &AppKey| store.load(key).unwrap_or_else(|| App::new(key.clone()));
    let mut app = known(&start.app);
    if let Some(variant) = &start.variant {
        // Other arguments have not been recorded.
        app.variants.set_own(variant);
        store.save(&app)?;
        app = known(&start.split());
    }
    store.pin(&mut app, Some(profile.clone()))?;
    Ok(Some(app.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::tests::recording;

    #[test]
    fn recorded_profile_is_found_by_run_for_the_same_arguments() {
        let home = tempfile::tempdir().unwrap();
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let start = |line: &str| {
            let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            StartKey::of(&words[0], &words, b"/").unwrap()
        };
        let (log, status) = (start("/bin/git log"), start("/bin/git status"));
        let none = home.path().join("none");
        assert_eq!(pin_recorded(&none, (user, group), &log, &recording("/a", 0..4)).unwrap(), None);
        AppStore::make(home.path()).unwrap();
        let pinned = pin_recorded(home.path(), (user, group), &log, &recording("/a", 0..4)).unwrap();
        assert_eq!(pinned, Some(log.split()));
        let found = |start| profile_of_command(home.path(), user, start);
        assert_eq!((found(&log), found(&status)), (Some(recording("/a", 0..4)), None));
        let store = AppStore::open(home.path()).unwrap().unwrap().user(user).unwrap().unwrap();
        store.choose(&mut store.load(&log.split()).unwrap(), UserChoice::Excluded).unwrap();
        assert_eq!(found(&log), None);
    }

    #[test]
    fn script_goes_by_its_interpreter() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let script = home.join("tool");
        std::fs::write(&script, "#! /bin/sh -e\nexit\n").unwrap();
        let key = key_of_command(&script, &[b"./tool".to_vec(), b"check".to_vec()], &home).unwrap();
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        assert_eq!(key.app.to_string(), format!("{} {}", shell.display(), script.display()));
        assert_eq!(key.variant.as_deref(), Some("check"));
        std::fs::write(&script, b"\x7fELF").unwrap();
        let key = key_of_command(&script, &[b"tool".to_vec()], &home).unwrap();
        assert_eq!(key.app.to_string(), script.display().to_string());
    }
}

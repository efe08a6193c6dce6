//! The replay at the start of the machine.

use super::packages::{self, Known, PACKAGE_PROFILES};
use super::store::BootStore;
use super::{Circumstances, Initramfs, Off};
use ahead::output::system;
use ahead::prefetch::{Account, HeadStart, Options, PrefetchProcess, Priority, ProfileFile, Request};
use ahead::{Error, Notify, Result};
use ahead_process::Signals;
use ahead_process::undo::home;
use ahead_profile::Profile;
use ahead_sys::directory;
use ahead_sys::root::Root;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What became of a replay.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// `ahead` leaves this boot alone.
    Off(Off),
    /// This boot is recorded again, without replay.
    Recording,
    /// The hook of the initramfs has started a replay.
    Early,
    /// There is no profile for this root.
    NoProfile,
    /// The profile was prefetched.
    Done(PathBuf, Box<Account>),
}

/// The longest replay. A boot from the slowest disk takes as long without one.
const DEADLINE: Duration = Duration::from_secs(120);

/// The hook of an initramfs creates it: `/run` stays when the root is handed over.
const EARLY: &str = "/run/ahead-replayed-early";

/// The account of that replay (`start-replay`).
const EARLY_ACCOUNT: &str = "/run/initramfs/ahead-replay";
/// What the account of an older version begins with, which had one name and one value per line.
const OLDER_ACCOUNT: &[u8] = b"requests ";
/// The largest account that is read. It has some twenty short lines, and ten for each device.
const MAX_ACCOUNT_BYTES: u64 = 64 << 10;

/// The account of the last replay: read when the boot is done.
pub(super) const ACCOUNT: &str = "/run/ahead/boot-replay.json";

/// Prefetches what earlier boots read. Returns when everything is submitted.
///
/// # Errors
/// The profile cannot be used, its file system does not answer, or a signal arrived. The boot goes on without it.
pub fn replay(signals: &Signals, notify: Notify<'_>) -> Result<Replayed> {
    let (began, circumstances) = (Instant::now(), Circumstances::now());
    if let Some(off) = circumstances.off() {
        return Ok(Replayed::Off(off));
    }
    let store = BootStore::here();
    if circumstances.asks_for_recording() || store.state().requested {
        return Ok(Replayed::Recording);
    }
    if Path::new(EARLY).exists() {
        return Ok(Replayed::Early);
    }
    let profile = match store.profile_to_replay() {
        Some(profile) => profile,
        None if save_packages_profile(notify)? => PACKAGES.into(),
        None => return Ok(Replayed::NoProfile),
    };
    // The boot waits for these pages: they are not less urgent than its own reads.
    let options = Options::default().priority(Priority::Normal).head_start(HeadStart::None);
    let options = options.deadline(Some(DEADLINE)).since(Some(began));
    let request = Request::new(ProfileFile::Named(profile.clone()), options).send_account(true);
    let mut process = PrefetchProcess::start(&request, notify, &|error: &Error| error.to_string())?;
    if let Some(signal) = process.wait(signals, began, Some(DEADLINE))? {
        return Err(Error::Stopped(ahead::Stopped(signal)));
    }
    if let Some(why) = process.failure() {
        return Err(Error::Failed(why));
    }
    let account = process.account()?.ok_or_else(|| not_answering(&profile))?;
    // Without it the boot is recorded a little too seldom.
    keep(&account).unwrap_or_else(|error| notify(&error.to_string()));
    Ok(Replayed::Done(profile, Box::new(account)))
}

/// What packages carry, as one profile. The root is not writable yet.
const PACKAGES: &str = "/run/ahead/boot-packages.ahead";
/// Time to look up the packages' files: the boot reads some of these meanwhile.
const LOOKUP_TIME: Duration = Duration::from_secs(10);

/// Saves the packages' profiles for a machine that has recorded no boot yet. Returns whether there is anything to replay.
fn save_packages_profile(notify: Notify<'_>) -> Result<bool> {
    let root = Root::default();
    let packages = packages::load(&root, Path::new(PACKAGE_PROFILES));
    let (mut profile, until) = (Profile::default(), Instant::now() + LOOKUP_TIME);
    packages::add_to(&mut profile, &packages, &Known::new(), &root, until, notify)?;
    if profile.files.is_empty() {
        return Ok(false);
    }
    home::make_directory("replay the profiles of packages", Path::new(home::HOME))?;
    ahead_profile::fit(&mut profile);
    ahead_files::save(&profile, Path::new(PACKAGES))?;
    Ok(true)
}

fn not_answering(profile: &Path) -> Error {
    Error::Failed(format!("{}: its file system does not answer", profile.display()))
}

fn keep(account: &Account) -> Result<()> {
    home::make_directory("keep the account of a boot", Path::new(home::HOME))?;
    let text = serde_json::to_vec(account).map_err(|error| Error::io("write the account", error.into()))?;
    system::replace(Path::new(ACCOUNT), &text)
}

/// The account of this boot's replay, and whether that began before PID 1; `None`: there was none, or it has not ended.
///
/// Errors: the account cannot be read; a line for the user.
pub(super) fn last_account() -> std::result::Result<Option<(Account, bool)>, String> {
    // The unit replays after an early replay has failed.
    if let Some(account) = read_account(Path::new(ACCOUNT))? {
        return Ok(Some((account, false)));
    }
    Ok(read_account(Path::new(EARLY_ACCOUNT))?.map(|account| (account, true)))
}

/// `None`: there is no such file, or the replay that writes it has not ended.
fn read_account(path: &Path) -> std::result::Result<Option<Account>, String> {
    let read = || {
        let mut bytes = Vec::new();
        directory::open_regular_file(path, false)?.take(MAX_ACCOUNT_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = match read() {
        Err(error) if io::Error::kind(&error) == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(&error)),
        Ok(bytes) => bytes,
    };
    match bytes.len() as u64 {
        0 => Ok(None),
        1..=MAX_ACCOUNT_BYTES if bytes.starts_with(OLDER_ACCOUNT) => Err(named(&older_account())),
        1..=MAX_ACCOUNT_BYTES => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| named(&format!("not an account: {error}")))
        }
        _ => Err(named(&format!("not an account: larger than {MAX_ACCOUNT_BYTES} bytes"))),
    }
}

fn older_account() -> String {
    let renew = Initramfs::in_tree(Path::new("/"))
        .maker
        .map(|maker| format!("renew the initramfs ({}), then ", maker.command()));
    format!("written in the format of an older version of ahead; {}restart", renew.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> std::result::Result<Option<Account>, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("account");
        std::fs::write(&path, content).unwrap();
        read_account(&path)
    }

    #[test]
    fn account_is_read_back_and_lacks_nothing_that_an_older_version_did_not_have() {
        let mut account = Account::default();
        (account.requests, account.issued_bytes, account.arrived_us) = (5, 4096, Some(7));
        account.skip(ahead::prefetch::Reason::Missing, 9);
        account.fail(3, "open /x:\nno");
        for json in [serde_json::to_vec(&account), serde_json::to_vec_pretty(&account)] {
            assert_eq!(read(&json.unwrap()), Ok(Some(account.clone())));
        }
        let of_few_fields = read(br#"{"requests": 5, "of_a_newer_version": [1]}"#).unwrap().unwrap();
        assert_eq!((of_few_fields.requests, of_few_fields.issued_bytes), (5, 0));
    }

    #[test]
    fn replay_without_an_end_has_no_account() {
        assert_eq!(read(b""), Ok(None));
        assert_eq!(read_account(Path::new("/proc/none")), Ok(None));
    }

    #[test]
    fn lines_of_an_older_version_are_named_with_the_remedy() {
        let why = read(b"requests 178\nissued_bytes 10171187\nsubmitted_us 352110\n").unwrap_err();
        assert!(why.contains("/account: written in the format of an older version of ahead; "), "{why}");
        assert!(why.ends_with("restart") && why.lines().count() == 1, "{why}");
    }

    #[test]
    fn damaged_account_is_an_error_in_one_line() {
        let json = serde_json::to_vec_pretty(&Account::default()).unwrap();
        for end in 1..json.len() {
            let why = read(&json[..end]).unwrap_err();
            assert!(why.contains("/account: not an account: ") && why.lines().count() == 1, "{end}: {why}");
        }
        let nested = "[".repeat(MAX_ACCOUNT_BYTES as usize);
        let large = format!("{{\"first_failure\": \"{nested}\"}}");
        for (content, expected) in [
            (&b"\0\xff\x1b[2J"[..], "expected value at line 1 column 1"),
            (b"ahead-replay: /x: no such file\n", "expected value at line 1 column 1"),
            (br#"{"requests": -1}"#, "invalid value: integer `-1`"),
            (br#"{"requests": 18446744073709551616}"#, "invalid type: floating point"),
            (br#"{"skipped": {"x": {"spans": 1, "bytes": 1}}}"#, "unknown variant `x`"),
            (br#"{"requests": 1} {"requests": 2}"#, "trailing characters"),
            (nested.as_bytes(), "invalid type"),
            (large.as_bytes(), "larger than 65536 bytes"),
        ] {
            let why = read(content).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        assert!(read_account(Path::new("/dev/zero")).unwrap_err().ends_with("not a regular file"));
    }
}

//! The units of systemd: written into this system or into a tree, and removed again.

use super::store::HOME;
use ahead::output::system;
use ahead::{Error, Result};
use ahead_sys::directory::Directory;
use ahead_sys::file_identity::FileIdentity;
use ahead_sys::root::Root;
use ahead_sys::trusted::{Use, trusted_path};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The units: names, texts with `@AHEAD@`, `@LINGER@` and `@STALE@`, and the target that starts them.
pub const UNITS: [(&str, &str, Option<&str>); 4] = [
    (
        "ahead-boot-replay.service",
        include_str!("../../../dist/systemd/ahead-boot-replay.service"),
        Some("sysinit.target"),
    ),
    (
        "ahead-boot-record.service",
        include_str!("../../../dist/systemd/ahead-boot-record.service"),
        Some("sysinit.target"),
    ),
    ("ahead-boot-done.timer", include_str!("../../../dist/systemd/ahead-boot-done.timer"), Some("default.target")),
    ("ahead-boot-done.service", include_str!("../../../dist/systemd/ahead-boot-done.service"), None),
];

/// Where an administrator's units are. Those of a package are elsewhere, and keep their place.
const DIRECTORY: &str = "/etc/systemd/system";
/// Where packages put units.
const PACKAGED: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
/// A unit of ours has some hundred bytes.
const MAX_UNIT_BYTES: u64 = 64 << 10;

/// What to install.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The root of the system: `/`, or a tree.
    pub root: PathBuf,
    /// The program, by its path in that system.
    pub program: PathBuf,
    /// How long after default.target the observation goes on.
    pub linger: Duration,
    /// The share of the last replay that may be stale without a new recording, percent.
    pub stale_limit_percent: u32,
}

/// Checks that the program can be written into units, and that only root can replace it: the units make root run it at each boot.
///
/// # Errors
/// There is no such program, its path cannot be written into a unit, or another user can write it or a directory above it.
pub fn check_program(installation: &Installation) -> Result<()> {
    let Installation { root, program, .. } = installation;
    plain_path(program)?;
    let purpose = format!("running {} at each boot as root", program.display());
    match trusted_path(&purpose, &Root::at(root)?, program, Use::Later) {
        Ok(file) if file.is_regular_file() => Ok(()),
        Ok(_) => Err(Error::Failed(format!("{}: it is not a program", program.display()))),
        Err(error) if is_missing(&error) => {
            Err(Error::Failed(format!("{}: there is no such program in {}", program.display(), root.display())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes and enables the units. Symbolic links in a tree are followed as in a chroot of it, never outside. Returns the files that were made.
///
/// # Errors
/// The path of the program cannot be written into a unit, or a file cannot be written.
pub fn install(installation: &Installation) -> Result<Vec<PathBuf>> {
    let Installation { root, program, linger, stale_limit_percent } = installation;
    let (path, tree) = (plain_path(program)?, Root::at(root)?);
    let directory = tree.make_directory(Path::new(DIRECTORY))?;
    let mut made = Vec::new();
    for (name, text, target) in UNITS {
        let (linger, stale) = (format!("{}s", linger.as_secs_f64()), stale_limit_percent.to_string());
        let text = text.replace("@AHEAD@", path).replace("@LINGER@", &linger).replace("@STALE@", &stale);
        let unit = write_unit(&tree, &directory, name, &text)?;
        if let Some(target) = target {
            let wants = tree.make_directory(&wants(target))?;
            wants.replace_link(name.as_ref(), &Path::new(unit).join(name))?;
            made.push(wants.path().join(name));
        }
        if unit == DIRECTORY {
            made.push(directory.path().join(name));
        }
    }
    tree.make_directory(Path::new(HOME))?;
    reload(root);
    Ok(made)
}

/// Writes a unit, unless a package has the same. Returns its directory.
fn write_unit(tree: &Root, directory: &Directory, name: &str, text: &str) -> Result<&'static str> {
    let is_same = |below: &&str| read_unit(tree, &Path::new(below).join(name)).is_some_and(|have| have == text);
    if let Some(packaged) = PACKAGED.into_iter().find(is_same) {
        directory.remove_file(name.as_ref())?;
        return Ok(packaged);
    }
    system::replace_in(directory, name.as_ref(), text.as_bytes())?;
    Ok(DIRECTORY)
}

/// The text of a unit; `None`: there is none that could be ours.
fn read_unit(tree: &Root, path: &Path) -> Option<String> {
    let (file, _) = tree.find(path).ok()?;
    let mut text = String::new();
    File::from(file.reopen().ok()?).take(MAX_UNIT_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The directory of the units that a target starts.
fn wants(target: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{target}.wants"))
}

/// The directory in a tree, if it is there.
fn find(tree: &Root, path: &Path) -> Result<Option<Directory>> {
    match tree.directory(path) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_missing(error: &ahead_sys::Error) -> bool {
    let error = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(error, Some(Errno::NOENT | Errno::NOTDIR))
}

/// Disables the units, removes those that [`install`] wrote, and with `purge` what was learned. Symbolic links in a tree are followed as in
/// [`install`]; one at the name of what is removed is removed itself. Returns the removed files.
///
/// # Errors
/// A file cannot be removed.
pub fn remove(root: &Path, purge: bool) -> Result<Vec<PathBuf>> {
    let tree = Root::at(root)?;
    let mut removed = Vec::new();
    for (name, _, target) in UNITS {
        for directory in target.map(wants).into_iter().chain([DIRECTORY.into()]) {
            let Some(directory) = find(&tree, &directory)? else { continue };
            if directory.has(name.as_ref()) {
                directory.remove_file(name.as_ref())?;
                removed.push(directory.path().join(name));
            }
        }
    }
    if let Some(directory) = find(&tree, Path::new(DIRECTORY))? {
        for target in ["sysinit.target.wants", "default.target.wants"] {
            // Other units may be wanted, too.
            let _ = directory.remove_directory(target.as_ref());
        }
    }
    if purge {
        removed.extend(remove_learned(&tree)?);
    }
    reload(root);
    Ok(removed)
}

/// Removes the recordings of boots. Returns their directory; `None`: there was none.
fn remove_learned(tree: &Root) -> Result<Option<PathBuf>> {
    let home = Path::new(HOME);
    let (parent, name) = (home.parent().unwrap_or(home), home.file_name().unwrap_or_default());
    let Some(directory) = find(tree, parent)?.filter(|directory| directory.has(name)) else { return Ok(None) };
    let path = directory.path().join(name);
    match directory.directory(name) {
        Ok(learned) => {
            if !directory.remove_tree(name, FileIdentity::of(&learned.metadata()?))? {
                let why = "another process replaced it, or a file system is mounted on it; unmount that first";
                return Err(Error::Failed(format!("remove {}: {why}", path.display())));
            }
        }
        // A link or a file: what a link leads to is not ours.
        Err(error) if is_missing(&error) => directory.remove_file(name)?,
        Err(error) => return Err(error.into()),
    }
    // That of other parts of ahead, if they keep something there.
    if let (Some(above), Some(name)) = (parent.parent(), parent.file_name()) {
        let _ = find(tree, above)?.map(|above| above.remove_directory(name));
    }
    Ok(Some(path))
}

/// Whether the replay is enabled.
pub fn is_installed(root: &Path) -> bool {
    let (name, _, target) = UNITS[0];
    let is_linked =
        |target| Ok::<_, Error>(find(&Root::at(root)?, &wants(target))?.is_some_and(|wants| wants.has(name.as_ref())));
    target.is_some_and(|target| is_linked(target).unwrap_or(false))
}

/// Whether systemd is the service manager of this machine, as sd_booted(3) finds out.
pub fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// The path as text of a unit: systemd gives a meaning to spaces, quotes, `%` and `$`.
fn plain_path(program: &Path) -> Result<&str> {
    let is_plain = |path: &&str| {
        path.starts_with('/') && path.chars().all(|at| at.is_ascii_alphanumeric() || "/._+-".contains(at))
    };
    program.to_str().filter(is_plain).ok_or_else(|| {
        let why = "has characters that units give a meaning to; install it at a path of letters, digits and ./_+-";
        Error::Failed(format!("{}: {why}", program.display()))
    })
}

/// Lets a running systemd read the units again.
fn reload(root: &Path) {
    if root == Path::new("/") && systemd_runs() {
        // The units are read at the next boot in any case.
        let _ = Command::new("systemctl").arg("daemon-reload").status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A path of the machine, below a tree.
    fn at(root: &Path, path: &str) -> PathBuf {
        root.join(&path[1..])
    }

    fn tree() -> (tempfile::TempDir, Installation) {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("usr/bin")).unwrap();
        fs::write(home.path().join("usr/bin/ahead"), "x").unwrap();
        let root = home.path().to_path_buf();
        let linger = Duration::from_secs(45);
        (home, Installation { root, program: "/usr/bin/ahead".into(), linger, stale_limit_percent: 7 })
    }

    fn files(root: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![root.to_path_buf()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() { left.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        found
    }

    #[test]
    fn installed_units_name_the_program_and_are_removed_again() {
        let (home, installation) = tree();
        assert!(!is_installed(home.path()));
        install(&installation).unwrap();
        install(&installation).unwrap();
        assert!(is_installed(home.path()));
        let directory = at(home.path(), DIRECTORY);
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        assert!(read("ahead-boot-replay.service").contains("ExecStart=/usr/bin/ahead boot replay\n"));
        assert!(read("ahead-boot-done.timer").contains("OnActiveSec=45s\n"));
        assert!(read("ahead-boot-done.service").contains("ExecStart=/usr/bin/ahead boot done --stale 7\n"));
        assert!(UNITS.iter().all(|(name, _, _)| !read(name).contains('@')));
        let target = fs::read_link(directory.join("sysinit.target.wants/ahead-boot-record.service")).unwrap();
        assert_eq!(target, Path::new("/etc/systemd/system/ahead-boot-record.service"));
        remove(home.path(), true).unwrap();
        assert_eq!(files(home.path()), [home.path().join("usr/bin/ahead")]);
        assert!(!home.path().join("var/lib/ahead").exists());
    }

    #[test]
    fn units_of_a_package_are_only_enabled() {
        let (home, installation) = tree();
        let packaged = at(home.path(), PACKAGED[0]);
        fs::create_dir_all(&packaged).unwrap();
        for (name, text, _) in UNITS {
            let text = text.replace("@AHEAD@", "/usr/bin/ahead").replace("@LINGER@", "45s").replace("@STALE@", "7");
            fs::write(packaged.join(name), text).unwrap();
        }
        install(&installation).unwrap();
        let link = at(home.path(), DIRECTORY).join("default.target.wants/ahead-boot-done.timer");
        assert_eq!(fs::read_link(link).unwrap(), Path::new("/usr/lib/systemd/system/ahead-boot-done.timer"));
        assert!(!at(home.path(), DIRECTORY).join("ahead-boot-done.timer").exists());
    }

    #[test]
    fn paths_that_units_would_misread_are_refused() {
        let (_home, installation) = tree();
        for program in ["/usr/bin/a head", "/usr/bin/%n", "usr/bin/ahead", "/usr/bin/a\nhead", "/usr/bin/nothing"] {
            assert!(
                check_program(&Installation { program: program.into(), ..installation.clone() }).is_err(),
                "{program}"
            );
        }
    }

    /// Regression: `boot remove --purge --root TREE` deleted, and `boot install --root TREE` overwrote, what links in the tree lead to.
    #[test]
    fn links_in_a_tree_lead_to_no_file_outside() {
        let (home, installation) = tree();
        let host = tempfile::tempdir().unwrap();
        for directory in ["etc/sysinit.target.wants", "learned", "var"] {
            fs::create_dir_all(host.path().join(directory)).unwrap();
        }
        for file in ["etc/unit", "learned/kept", "var/kept"] {
            fs::write(host.path().join(file), "of the host").unwrap();
        }
        let units = at(home.path(), DIRECTORY);
        fs::create_dir_all(&units).unwrap();
        fs::create_dir_all(home.path().join("var/lib/ahead")).unwrap();
        symlink(host.path().join("etc/unit"), units.join(UNITS[0].0)).unwrap();
        fs::hard_link(host.path().join("etc/unit"), units.join(UNITS[3].0)).unwrap();
        symlink(host.path().join("etc"), units.join("default.target.wants")).unwrap();
        symlink(host.path().join("etc/sysinit.target.wants"), units.join("sysinit.target.wants")).unwrap();
        symlink(host.path().join("learned"), at(home.path(), HOME)).unwrap();
        let before = files(host.path());
        let made = install(&installation).unwrap();
        assert!(made.iter().all(|path| path.starts_with(fs::canonicalize(home.path()).unwrap())), "{made:?}");
        assert_eq!(fs::read_to_string(host.path().join("etc/unit")).unwrap(), "of the host");
        assert_eq!(files(host.path()), before);
        assert!(is_installed(home.path()));
        remove(home.path(), true).unwrap();
        assert_eq!(files(host.path()), before);
        assert!(!is_installed(home.path()) && at(home.path(), HOME).symlink_metadata().is_err());
        // A link above what is purged.
        fs::rename(host.path().join("learned"), host.path().join("var/boot")).unwrap();
        symlink(host.path().join("var"), home.path().join("var/lib/ahead")).unwrap();
        let before = files(host.path());
        remove(home.path(), true).unwrap();
        assert_eq!(files(host.path()), before);
    }
}

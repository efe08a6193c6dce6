//! The units of systemd: written into this system or into a tree, and removed again.

use super::store::HOME;
use crate::error::IoContext;
use crate::{Error, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The units: names, texts with `@AHEAD@`, `@LINGER@` and `@STALE@`, and the target that starts them.
pub const UNITS: [(&str, &str, Option<&str>); 4] = [
    (
        "ahead-boot-replay.service",
        include_str!("../../../../dist/systemd/ahead-boot-replay.service"),
        Some("sysinit.target"),
    ),
    (
        "ahead-boot-record.service",
        include_str!("../../../../dist/systemd/ahead-boot-record.service"),
        Some("sysinit.target"),
    ),
    ("ahead-boot-done.timer", include_str!("../../../../dist/systemd/ahead-boot-done.timer"), Some("default.target")),
    ("ahead-boot-done.service", include_str!("../../../../dist/systemd/ahead-boot-done.service"), None),
];

/// Where an administrator's units are. Those of a package are elsewhere, and keep their place.
const DIRECTORY: &str = "etc/systemd/system";
/// Where packages put units.
const PACKAGED: [&str; 2] = ["usr/lib/systemd/system", "lib/systemd/system"];

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

/// Writes and enables the units. Returns the files that were made.
///
/// # Errors
/// There is no such program, its path cannot be written into a unit, or a file cannot be written.
pub fn install(installation: &Installation) -> Result<Vec<PathBuf>> {
    let Installation { root, program, linger, stale_limit_percent } = installation;
    let path = plain_path(program)?;
    let inside = root.join(program.strip_prefix("/").unwrap_or(program));
    if !inside.exists() {
        return Err(Error::Failed(format!("{}: there is no such program in {}", program.display(), root.display())));
    }
    let directory = root.join(DIRECTORY);
    let mut made = Vec::new();
    for (name, text, target) in UNITS {
        let (linger, stale) = (format!("{}s", linger.as_secs_f64()), stale_limit_percent.to_string());
        let text = text.replace("@AHEAD@", path).replace("@LINGER@", &linger).replace("@STALE@", &stale);
        let unit = write_unit(root, &directory, name, &text)?;
        if let Some(target) = target {
            let wants = directory.join(format!("{target}.wants"));
            fs::create_dir_all(&wants).what(&format!("create {}", wants.display()))?;
            let link = wants.join(name);
            remove_file(&link)?;
            symlink(format!("/{unit}/{name}"), &link).what(&format!("create {}", link.display()))?;
            made.push(link);
        }
        if unit == DIRECTORY {
            made.push(directory.join(name));
        }
    }
    fs::create_dir_all(root.join(&HOME[1..])).what(&format!("create {HOME}"))?;
    reload(root);
    Ok(made)
}

/// Writes a unit, unless a package has the same. Returns its directory below the root.
fn write_unit(root: &Path, directory: &Path, name: &str, text: &str) -> Result<&'static str> {
    let packaged = PACKAGED
        .into_iter()
        .find(|below| fs::read_to_string(root.join(below).join(name)).is_ok_and(|have| have == text));
    let own = directory.join(name);
    if let Some(packaged) = packaged {
        remove_file(&own)?;
        return Ok(packaged);
    }
    fs::create_dir_all(directory).what(&format!("create {}", directory.display()))?;
    fs::write(&own, text).what(&format!("write {}", own.display()))?;
    Ok(DIRECTORY)
}

/// Disables the units, removes those that [`install`] wrote, and with `purge` what was learned. Returns the removed files.
///
/// # Errors
/// A file cannot be removed.
pub fn remove(root: &Path, purge: bool) -> Result<Vec<PathBuf>> {
    let directory = root.join(DIRECTORY);
    let mut removed = Vec::new();
    for (name, _, target) in UNITS {
        let link = target.map(|target| directory.join(format!("{target}.wants")).join(name));
        for path in link.into_iter().chain([directory.join(name)]) {
            if remove_file(&path)? {
                removed.push(path);
            }
        }
    }
    for target in ["sysinit.target", "default.target"] {
        // Other units may be wanted, too.
        let _ = fs::remove_dir(directory.join(format!("{target}.wants")));
    }
    let learned = root.join(&HOME[1..]);
    if purge && learned.exists() {
        fs::remove_dir_all(&learned).what(&format!("remove {}", learned.display()))?;
        // That of other parts of ahead, if they keep something there.
        let _ = learned.parent().map(fs::remove_dir);
        removed.push(learned);
    }
    reload(root);
    Ok(removed)
}

/// Whether the replay is enabled.
pub fn is_installed(root: &Path) -> bool {
    let (name, _, target) = UNITS[0];
    target.is_some_and(|target| {
        root.join(DIRECTORY).join(format!("{target}.wants")).join(name).symlink_metadata().is_ok()
    })
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

fn remove_file(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(format!("remove {}", path.display()), error)),
    }
}

/// Lets a running systemd read the units again.
fn reload(root: &Path) {
    if root == Path::new("/") && Path::new("/run/systemd/system").exists() {
        // The units are read at the next boot in any case.
        let _ = Command::new("systemctl").arg("daemon-reload").status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let directory = home.path().join(DIRECTORY);
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
        let packaged = home.path().join(PACKAGED[0]);
        fs::create_dir_all(&packaged).unwrap();
        for (name, text, _) in UNITS {
            let text = text.replace("@AHEAD@", "/usr/bin/ahead").replace("@LINGER@", "45s").replace("@STALE@", "7");
            fs::write(packaged.join(name), text).unwrap();
        }
        install(&installation).unwrap();
        let link = home.path().join(DIRECTORY).join("default.target.wants/ahead-boot-done.timer");
        assert_eq!(fs::read_link(link).unwrap(), Path::new("/usr/lib/systemd/system/ahead-boot-done.timer"));
        assert!(!home.path().join(DIRECTORY).join("ahead-boot-done.timer").exists());
    }

    #[test]
    fn paths_that_units_would_misread_are_refused() {
        let (_home, installation) = tree();
        for program in ["/usr/bin/a head", "/usr/bin/%n", "usr/bin/ahead", "/usr/bin/a\nhead", "/usr/bin/nothing"] {
            assert!(install(&Installation { program: program.into(), ..installation.clone() }).is_err(), "{program}");
        }
    }
}

//! What acts need: found at the start, instead of a refusal for each process.

use ahead_sys::{Error, Result, machine};
use rustix::fs::{Access, access};
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::path::Path;

/// The operation, for messages.
const WHAT: &str = "steering read-ahead";

/// The settings of all disks.
const SETTINGS: &str = "/sys/class/bdi";

/// Errors: no descriptor of another process could be taken, or the window of no disk could be set.
pub(crate) fn check() -> Result<()> {
    let own = capabilities(None).map_err(|e| Error::io("read the capabilities of this process", e))?;
    check_descriptors(own.effective)?;
    check_settings(Path::new(SETTINGS))
}

fn check_descriptors(effective: CapabilitySet) -> Result<()> {
    if effective.contains(CapabilitySet::SYS_PTRACE) {
        return Ok(());
    }
    if !machine::is_root() {
        return Err(Error::needs_root(WHAT));
    }
    let remedy = "give root CAP_SYS_PTRACE (in a container it may be missing), or see what would be done: --dry-run";
    Err(Error::NotPermitted { what: WHAT.into(), remedy: remedy.into() })
}

/// Disks may come later, but all of them lie in the same file system.
fn check_settings(directory: &Path) -> Result<()> {
    let is_writable = |entry: fs::DirEntry| access(entry.path().join("read_ahead_kb"), Access::WRITE_OK).is_ok();
    if fs::read_dir(directory).into_iter().flatten().flatten().any(is_writable) {
        return Ok(());
    }
    let remedy = format!(
        "make {}/*/read_ahead_kb writable (in a container /sys may be read-only: mount -o remount,rw /sys), or see what would be done: \
         --dry-run",
        directory.display()
    );
    Err(Error::NotPermitted { what: WHAT.into(), remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: without the capability, nothing was steered, and each process had a refusal in the log.
    #[test]
    fn start_without_ptrace_is_not_permitted() {
        assert!(check_descriptors(CapabilitySet::SYS_PTRACE | CapabilitySet::BPF).is_ok());
        let refused = check_descriptors(!CapabilitySet::SYS_PTRACE).unwrap_err();
        let text = refused.to_string();
        assert!(refused.is_unavailable() && !text.contains('\n'), "{text}");
        assert_eq!(text.contains("CAP_SYS_PTRACE"), machine::is_root(), "{text}");
    }

    #[test]
    fn start_without_a_writable_setting_is_not_permitted() {
        let home = tempfile::tempdir().unwrap();
        let refused = check_settings(home.path()).unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains("read_ahead_kb"), "{refused}");
        // As with a read-only /sys: a disk whose setting cannot be written, because it is missing.
        fs::create_dir(home.path().join("7:0")).unwrap();
        assert!(check_settings(home.path()).is_err());
        fs::create_dir(home.path().join("8:0")).unwrap();
        fs::write(home.path().join("8:0/read_ahead_kb"), "128").unwrap();
        assert!(check_settings(home.path()).is_ok());
    }
}

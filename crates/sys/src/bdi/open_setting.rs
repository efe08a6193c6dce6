//! The window of a disk through a file that stays open: no path is looked up at each change.

use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest value, with the line end: a number of 64 bits. Unit: bytes.
const LONGEST_BYTES: usize = 24;

/// An open `read_ahead_kb`. The kernel keeps the device removable: then every call is an error (`ENODEV`).
#[derive(Debug)]
pub struct OpenSetting {
    file: File,
    path: PathBuf,
}

impl OpenSetting {
    /// Opens the file. It is never created.
    pub fn open(path: &Path) -> Result<OpenSetting> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::unwritable("changing a read-ahead window", path, e))?;
        Ok(OpenSetting { file, path: path.into() })
    }

    /// Its path, for notes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value. Unit: KiB.
    pub fn read_kb(&self) -> Result<u64> {
        let mut text = [0; LONGEST_BYTES];
        let length = self.file.read_at(&mut text, 0);
        let length = length.map_err(|e| Error::io(format!("read {}", self.path.display()), e))?;
        let text = String::from_utf8_lossy(&text[..length]);
        let line = text.lines().next().unwrap_or_default();
        line.trim().parse().map_err(|_| Error::Parse { path: self.path.clone(), text: text.into_owned() })
    }

    /// Sets the value. The kernel rounds it down to whole pages.
    pub fn write_kb(&self, kb: u64) -> Result<()> {
        // With a line end, as the kernel writes it: in a file of a test, what is left of a longer value follows on another line.
        let text = format!("{kb}\n");
        let written = self.file.write_all_at(text.as_bytes(), 0);
        written.map_err(|e| Error::io(format!("write {kb} to {}", self.path.display()), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn value_is_read_and_written_again_and_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("read_ahead_kb");
        assert!(OpenSetting::open(&path).is_err());
        fs::write(&path, "128\n").unwrap();
        let setting = OpenSetting::open(&path).unwrap();
        for kb in [4096, 128, 8192] {
            setting.write_kb(kb).unwrap();
            assert_eq!(setting.read_kb().unwrap(), kb);
        }
        fs::write(&path, "many\n").unwrap();
        assert!(matches!(setting.read_kb(), Err(Error::Parse { .. })));
    }
}

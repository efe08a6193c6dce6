//! Settings of the kernel that a test changes.

use std::fs;
use std::path::{Path, PathBuf};

/// A setting, which gets its old value back when this is dropped.
#[derive(Debug)]
pub struct Setting {
    pub file: PathBuf,
    before: String,
}

impl Setting {
    /// Keeps the value of now.
    pub fn kept(file: impl AsRef<Path>) -> Setting {
        let file = file.as_ref().to_owned();
        Setting { before: read(&file), file }
    }

    pub fn set(file: impl AsRef<Path>, value: impl ToString) -> Setting {
        let setting = Setting::kept(file);
        setting.change(value);
        setting
    }

    pub fn change(&self, value: impl ToString) {
        fs::write(&self.file, value.to_string()).unwrap_or_else(|error| panic!("{}: {error}", self.file.display()));
    }

    pub fn now(&self) -> String {
        read(&self.file)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.before);
    }
}

fn read(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.trim().to_owned()
}

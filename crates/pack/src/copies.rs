//! Root's own copies of the records of relocations: a record is used only if it is, byte for byte, one that this machine wrote.
//!
//! ```text
//!     MOUNT/.ahead-pack/record.json        may come with the image of a user, or with a foreign disk
//!     /var/lib/ahead/pack/FSID-DONOR-TIME  root's alone; written before the record, removed after it
//! ```
//!
//! `FSID` is that of statvfs(2), which ext4 derives from the file system's UUID: only file systems with a copy are looked at. A copy whose
//! record is gone stays from a crash; the next relocation of the profile there removes it.

use ahead::Result;
use ahead_plan::relocation::Record;
use ahead_sys::Error;
use ahead_sys::directory::{self, Directory};
use ahead_sys::root::Root;
use ahead_sys::trusted::{Use, trusted_path};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const STATE: &str = "/var/lib/ahead";
const NAME: &str = "pack";

/// The directory of the copies.
#[derive(Debug)]
pub struct Copies(Directory);

impl Copies {
    /// Opens it; `None`: there is no copy.
    ///
    /// # Errors
    /// Another user may write it.
    pub fn open() -> Result<Option<Copies>> {
        let path = Path::new(STATE).join(NAME);
        if !path.exists() {
            return Ok(None);
        }
        trusted_path("using the records of relocations", &Root::default(), &path, Use::Later)?;
        Ok(Some(Copies(Directory::open(&path)?)))
    }

    fn open_or_create() -> Result<Copies> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(STATE);
        let path = Path::new(STATE).join(NAME);
        made.and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(&path))
            .map_err(|error| Error::io(format!("create {}", path.display()), error))?;
        match Copies::open()? {
            Some(copies) => Ok(copies),
            None => Err(Error::io(path.display().to_string(), io::ErrorKind::NotFound).into()),
        }
    }

    /// The names of the copies for a file system.
    pub fn of(&self, file_system: u64) -> Result<Vec<OsString>> {
        let prefix = prefix(file_system);
        Ok(self.0.names()?.into_iter().filter(|name| name.as_bytes().starts_with(prefix.as_bytes())).collect())
    }

    /// Whether this is the text of a copy for a file system.
    pub fn has(&self, file_system: u64, text: &[u8]) -> Result<bool> {
        for name in self.of(file_system)? {
            if self.read(&name).is_ok_and(|copy| copy == text) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let file = directory::open_regular_file(&self.0.descriptor_path().join(name), false)?;
        file.take(ahead_plan::relocation::MAX_RECORD_BYTES + 1).read_to_end(&mut text)?;
        Ok(text)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.0.descriptor_path())?.sync_all()
    }
}

/// Keeps a copy of a record, durably. Removes those of earlier relocations of its profile in this file system, which have ended.
///
/// # Errors
/// The copy cannot be written.
pub fn add(file_system: u64, record: &Record, text: &str) -> Result<()> {
    let copies = Copies::open_or_create()?;
    for name in copies.of(file_system)? {
        let earlier = copies.read(&name).ok().and_then(|text| Record::decode(&text).ok());
        if earlier.is_none_or(|earlier| earlier.profile == record.profile) {
            copies.0.remove_file(&name)?;
        }
    }
    let name = OsString::from(name_of(file_system, record));
    let mut file = copies.0.create_file(&name)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| copies.sync());
    Ok(written.map_err(|error| Error::io(format!("write {STATE}/{NAME}/{}", Path::new(&name).display()), error))?)
}

/// Removes the copy of a record.
///
/// # Errors
/// It cannot be removed.
pub fn remove(file_system: u64, record: &Record) -> Result<()> {
    match Copies::open()? {
        Some(copies) => Ok(copies.0.remove_file(OsStr::new(&name_of(file_system, record)))?),
        None => Ok(()),
    }
}

fn prefix(file_system: u64) -> String {
    format!("{file_system:016x}-")
}

fn name_of(file_system: u64, record: &Record) -> String {
    format!("{}{}-{}.json", prefix(file_system), record.donor_inode, record.created_unix_s)
}

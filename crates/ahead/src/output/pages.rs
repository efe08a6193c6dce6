//! A directory of files: pages with an index.

use super::{check, check_link, replace};
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// Checks before the work whether [`replace_pages`] could write there. Makes nothing: an interrupt leaves nothing behind.
///
/// # Errors
/// The files could not be written.
pub fn check_pages(directory: &Path, index: &str) -> Result<()> {
    check_link(directory)?;
    if directory.is_dir() {
        return check(&directory.join(index));
    }
    if directory.exists() {
        return Err(Error::Failed(format!("{} is not a directory", directory.display())));
    }
    // A directory can be made where a file can.
    check(directory)
}

/// Writes all files, by their names in the directory, each one atomically. Makes the directory where there is none.
///
/// # Errors
/// A file cannot be written. The earlier ones are replaced, the later ones are not.
pub fn replace_pages(directory: &Path, files: &[(String, String)]) -> Result<()> {
    check_link(directory)?;
    if !directory.exists() {
        fs::create_dir(directory).map_err(|error| Error::io(format!("make {}", directory.display()), error))?;
    }
    files.iter().try_for_each(|(name, page)| replace(&directory.join(name), page.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_written_to_a_new_and_to_an_earlier_directory() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("pages");
        let page = |text: &str| [("index.html".to_owned(), text.to_owned())];
        for text in ["first", "second"] {
            check_pages(&directory, "index.html").unwrap();
            assert_eq!(directory.exists(), text == "second");
            replace_pages(&directory, &page(text)).unwrap();
            assert_eq!(fs::read_to_string(directory.join("index.html")).unwrap(), text);
        }
        fs::write(home.path().join("file"), "").unwrap();
        fs::create_dir_all(home.path().join("full/index.html")).unwrap();
        for refused in ["file", "missing/pages", "full"] {
            assert!(check_pages(&home.path().join(refused), "index.html").is_err(), "{refused}");
        }
    }
}

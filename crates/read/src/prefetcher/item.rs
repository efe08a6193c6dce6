//! What is read ahead: a file, or a range of one.

use std::collections::TryReserveError;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file, or a range of its bytes, that the program is going to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Item {
    /// Path of the file. Symbolic links are followed, as when the program opens it; a relative path starts in the current directory.
    pub path: PathBuf,
    /// Bytes of the file. `None`: the whole file. The part beyond the end of the file is ignored.
    pub range: Option<Range<u64>>,
}

impl Item {
    /// An item, for callers that have to go on without memory.
    ///
    /// Errors: there is no memory for the path.
    pub fn try_new(path: &Path, range: Option<Range<u64>>) -> Result<Item, TryReserveError> {
        let mut copy = OsString::new();
        copy.try_reserve_exact(path.as_os_str().len())?;
        copy.push(path);
        Ok(Item { path: copy.into(), range })
    }
}

impl From<PathBuf> for Item {
    fn from(path: PathBuf) -> Item {
        Item { path, range: None }
    }
}

impl From<&Path> for Item {
    fn from(path: &Path) -> Item {
        path.to_path_buf().into()
    }
}

impl From<&str> for Item {
    fn from(path: &str) -> Item {
        PathBuf::from(path).into()
    }
}

impl From<String> for Item {
    fn from(path: String) -> Item {
        PathBuf::from(path).into()
    }
}

impl<P: Into<PathBuf>> From<(P, Range<u64>)> for Item {
    fn from((path, range): (P, Range<u64>)) -> Item {
        Item { path: path.into(), range: Some(range) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_made_from_paths_with_and_without_ranges() {
        let whole = Item { path: PathBuf::from("a/b"), range: None };
        assert_eq!(Item::from("a/b"), whole);
        assert_eq!(Item::from("a/b".to_owned()), whole);
        assert_eq!(Item::from(Path::new("a/b")), whole);
        assert_eq!(Item::from(PathBuf::from("a/b")), whole);
        assert_eq!(Item::try_new(Path::new("a/b"), None), Ok(whole.clone()));
        assert_eq!(Item::from(("a/b", 5..9)), Item { range: Some(5..9), ..whole });
    }
}

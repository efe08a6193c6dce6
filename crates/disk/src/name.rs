//! Names of disks, which become file names under `/run/ahead/disk`.

use std::path::Path;

/// Longest name: with `/run/ahead/disk/` and `.sock` it must fit into a socket path of 108 bytes (unix(7)).
const NAME_MAX_BYTES: usize = 64;

/// Whether this can be the name of a disk: letters, digits, `.`, `_`, `-`, not starting with a dot, at most 64 bytes.
pub fn is_valid_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX_BYTES && !name.starts_with(['.', '-']) && name.bytes().all(allowed)
}

/// The default name of a disk: its image's name without extension, with `_` for characters that a name cannot have.
pub fn default_name(image: &Path) -> String {
    let stem = image.file_stem().unwrap_or_default().to_string_lossy();
    let mut name: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    name.truncate(NAME_MAX_BYTES);
    if is_valid_name(&name) { name } else { "disk".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_cannot_leave_its_directory() {
        for bad in ["", ".", "..", "a/b", ".hidden", "-x", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_valid_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn default_name_is_the_image_without_extension() {
        assert_eq!(default_name(Path::new("/tmp/slow.img")), "slow");
        assert_eq!(default_name(Path::new("/tmp/my disk.img")), "my_disk");
        assert_eq!(default_name(Path::new("/")), "disk");
    }

    proptest! {
        #[test]
        fn every_default_name_is_valid(image in "\\PC{0,100}") {
            prop_assert!(is_valid_name(&default_name(Path::new(&image))));
        }
    }
}

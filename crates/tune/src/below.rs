//! The cache below a target, which may answer in place of its disk.
//!
//! A loop device without direct I/O reads through the page cache of the file behind it, which can be evicted. Which files a FUSE server has
//! in memory is not known, and a measurement on it is reported as doubtful.

use crate::{Kind, System, Target};
use ahead_sys::{evict, openat};
use std::path::PathBuf;

/// A cache below a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Below {
    /// No cache but the one that is evicted in any case.
    Nothing,
    /// A file, which is cached.
    File(PathBuf),
    /// A cache that cannot be reached.
    Hidden,
}

impl Below {
    /// The cache below this target.
    pub fn of(system: &System, target: &Target) -> Below {
        let directory = system.block(target.number).join("loop");
        match target.kind {
            Kind::Fuse => Below::Hidden,
            Kind::Loop if System::text(&directory.join("dio")).as_deref() == Some("0") => {
                let file = System::text(&directory.join("backing_file")).map(PathBuf::from);
                // What is removed, or lies in another container, has no name here.
                file.filter(|file| file.is_file()).map_or(Below::Hidden, Below::File)
            }
            _ => Below::Nothing,
        }
    }

    /// Evicts it.
    pub fn evict(&self) -> crate::Result<()> {
        let Below::File(path) = self else { return Ok(()) };
        // Its directory may be another user's: a link or a FIFO that was put in its place is not opened.
        Ok(evict::file(openat::handle(path)?.reopen()?)?)
    }

    /// What speaks against a recommendation.
    pub fn doubt(&self) -> Option<&'static str> {
        (*self == Below::Hidden).then_some(
            "what lies below keeps a cache of its own, which may answer in place of the disk: the recommendation may be about memory",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::testing::machine;
    use ahead_model::DeviceNumber;

    /// Regression: of a loop device over a cached file, and of a FUSE server, memory was measured without a word.
    #[test]
    fn what_is_cached_below_is_known() {
        let home = tempfile::tempdir().unwrap();
        let image = home.path().join("image");
        std::fs::write(&image, "x").unwrap();
        let of = |kind, file: &str, dio: &str| {
            let (_home, system) = machine(&[("loop0", (7, 0), &[("loop/backing_file", file), ("loop/dio", dio)], "")]);
            let (setting, name, identity) = ("".into(), "loop0".into(), Err("".into()));
            let (directory, device, notes) = (None, None, Vec::new());
            Below::of(
                &system,
                &Target { number: DeviceNumber::new(7, 0), setting, kind, name, directory, device, identity, notes },
            )
        };
        let cached = of(Kind::Loop, image.to_str().unwrap(), "0");
        assert_eq!(cached, Below::File(image.clone()));
        assert!(cached.doubt().is_none() && cached.evict().is_ok());
        assert_eq!(of(Kind::Loop, image.to_str().unwrap(), "1"), Below::Nothing);
        assert_eq!(of(Kind::Loop, "/no/such (deleted)", "0"), Below::Hidden);
        assert!(of(Kind::Fuse, "", "").doubt().unwrap().contains("memory"));
        assert_eq!(of(Kind::Disk, "", ""), Below::Nothing);
    }
}

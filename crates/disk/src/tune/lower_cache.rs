//! The page cache below a target, which may answer in place of its disk.
//!
//! A loop device without direct I/O reads through the page cache of its backing file, which can be evicted. The cache
//! of a FUSE server is unknown; a measurement on FUSE is reported as doubtful.

use crate::tune::{Kind, System, Target};
use ahead_sys::{evict, openat};
use std::path::PathBuf;

/// A cache below a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LowerCache {
    /// No cache except the target's page cache, which is evicted in any case.
    None,
    /// The page cache of this file.
    File(PathBuf),
    /// A cache that cannot be evicted.
    Unreachable,
}

impl LowerCache {
    /// The cache below this target.
    pub fn of(system: &System, target: &Target) -> LowerCache {
        let directory = system.block(target.number).join("loop");
        match target.kind {
            Kind::Fuse => LowerCache::Unreachable,
            Kind::Loop if System::text(&directory.join("dio")).as_deref() == Some("0") => {
                let file = System::text(&directory.join("backing_file")).map(PathBuf::from);
                // A file that was removed, or lies in another container, has no path here.
                file.filter(|file| file.is_file()).map_or(LowerCache::Unreachable, LowerCache::File)
            }
            _ => LowerCache::None,
        }
    }

    pub fn evict(&self) -> crate::tune::Result<()> {
        let LowerCache::File(path) = self else { return Ok(()) };
        // Another user may own the directory: a link or a FIFO in its place is not opened.
        Ok(evict::file(openat::handle(path)?.reopen()?)?)
    }

    /// The reason to doubt a recommendation.
    pub fn doubt(&self) -> Option<&'static str> {
        (*self == LowerCache::Unreachable).then_some(
            "a cache below the target may answer in place of the disk: the recommendation may be about memory",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::system::testing::machine;
    use ahead_model::DeviceNumber;

    /// Regression: on a loop device over a cached file, and on FUSE, memory was measured without a warning.
    #[test]
    fn lower_cache_of_loop_devices_and_fuse_is_found() {
        let home = tempfile::tempdir().unwrap();
        let image = home.path().join("image");
        std::fs::write(&image, "x").unwrap();
        let of = |kind, file: &str, dio: &str| {
            let (_home, system) = machine(&[("loop0", (7, 0), &[("loop/backing_file", file), ("loop/dio", dio)], "")]);
            let (setting, name, identity) = ("".into(), "loop0".into(), Err("".into()));
            let (directory, device, notes) = (None, None, Vec::new());
            LowerCache::of(
                &system,
                &Target { number: DeviceNumber::new(7, 0), setting, kind, name, directory, device, identity, notes },
            )
        };
        let cached = of(Kind::Loop, image.to_str().unwrap(), "0");
        assert_eq!(cached, LowerCache::File(image.clone()));
        assert!(cached.doubt().is_none() && cached.evict().is_ok());
        assert_eq!(of(Kind::Loop, image.to_str().unwrap(), "1"), LowerCache::None);
        assert_eq!(of(Kind::Loop, "/no/such (deleted)", "0"), LowerCache::Unreachable);
        assert!(of(Kind::Fuse, "", "").doubt().unwrap().contains("memory"));
        assert_eq!(of(Kind::Disk, "", ""), LowerCache::None);
    }
}

//! The one rig of the tests: images with file systems, emulated disks, servers that do not answer, control groups, cold files, programs beside a test.
//! Tests that cross crates are in this package, too; it has no other code.

pub mod rig {
    //! What a test needs, each in one place. A function that returns `None` has printed `skipped: why`.

    pub mod cold;
    #[cfg(feature = "machine")]
    pub mod emulated;
    #[cfg(feature = "machine")]
    pub mod group;
    #[cfg(feature = "machine")]
    pub mod machine;
    #[cfg(feature = "machine")]
    pub mod mounted;
    #[cfg(feature = "machine")]
    pub mod prelude;
    #[cfg(feature = "machine")]
    pub mod process;
    #[cfg(feature = "machine")]
    pub mod profile;
    #[cfg(feature = "machine")]
    pub mod program;
    #[cfg(feature = "machine")]
    pub mod reclaim;
    #[cfg(feature = "machine")]
    pub mod setting;
    #[cfg(feature = "machine")]
    pub mod silent_files;
    #[cfg(feature = "machine")]
    pub mod silent_mount;
    #[cfg(feature = "machine")]
    pub mod tree;
    pub mod wait;
}

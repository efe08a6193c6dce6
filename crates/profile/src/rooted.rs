//! Makes the paths of a profile relative to a directory: the root of an image or a container, which has another place, or is `/`, where
//! the profile is used.
//!
//! ```text
//!     root /mnt/image       /mnt/image/usr/bin/x   ──▶ /usr/bin/x
//!                           /mnt/image (a mount)   ──▶ /
//!                           /usr/lib/libc.so.6     ──▶ left out
//! ```

use crate::model::{File, PathBytes, Profile};

/// Entries that a profile loses because they are outside its root directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outside {
    /// Files.
    pub files: u64,
    /// Looked-up paths.
    pub lookups: u64,
    /// Devices whose mount point is outside: a mount above the directory has blocks of other files, too.
    pub devices: u64,
}

/// Keeps the entries below `root`, an absolute path without symbolic links, with paths relative to it.
///
/// A file that lies elsewhere (in a layer of an overlay) is kept by the path that the program saw, if that is below `root`.
pub fn relative_to(profile: Profile, root: &[u8]) -> (Profile, Outside) {
    let mut outside = Outside::default();
    let mut recording = profile.recording;
    recording.directory = below(&recording.directory, root).unwrap_or_default();
    recording.root = root.to_vec();
    let files = keep(profile.files, &mut outside.files, |file| relative_file(file, root));
    let metadata = keep(profile.metadata, &mut outside.devices, |mut device| {
        device.mount_point = below(&device.mount_point, root)?;
        Some(device)
    });
    let lookups = keep(profile.lookups, &mut outside.lookups, |mut lookup| {
        lookup.path = below(&lookup.path, root)?.into();
        Some(lookup)
    });
    let milestones = profile.milestones.into_iter().filter_map(|mut milestone| {
        // The end of the run has no path.
        if !milestone.path.is_empty() {
            milestone.path = below(&milestone.path, root)?;
        }
        Some(milestone)
    });
    let milestones = milestones.collect();
    (Profile { recording, files, metadata, lookups, milestones, timeline: profile.timeline }, outside)
}

fn keep<T>(entries: Vec<T>, left_out: &mut u64, relative: impl Fn(T) -> Option<T>) -> Vec<T> {
    let before = entries.len();
    let kept: Vec<T> = entries.into_iter().filter_map(relative).collect();
    *left_out += (before - kept.len()) as u64;
    kept
}

fn relative_file(file: File, root: &[u8]) -> Option<File> {
    let seen = file.seen_path.as_deref().and_then(|seen| below(seen, root));
    let path = below(&file.path, root).or_else(|| seen.clone())?;
    Some(File { seen_path: seen.filter(|seen| *seen != path), path, ..file })
}

/// The rest of a path below `root`, with a leading slash; `/` for the directory itself.
fn below(path: &[u8], root: &[u8]) -> Option<PathBytes> {
    let rest = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(root))?;
    match rest {
        b"" => Some(b"/".to_vec()),
        [b'/', ..] => Some(rest.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Lookup, Metadata, Milestone, MilestoneKind, Recording};

    fn file(path: &str, seen: Option<&str>) -> File {
        File { path: path.into(), seen_path: seen.map(Into::into), ..File::default() }
    }

    #[test]
    fn only_entries_below_the_root_stay_and_have_relative_paths() {
        let device = |point: &str| Metadata { mount_point: point.into(), ..Metadata::default() };
        let lookup = |path: &'static str| Lookup { path: path.as_bytes().into(), ..Lookup::default() };
        let milestone =
            |path: &str| Milestone { path: path.into(), kind: MilestoneKind::Exec, time_us: 1, warm_us: None };
        let profile = Profile {
            recording: Recording { runs: 1, directory: b"/home".to_vec(), ..Recording::default() },
            files: vec![
                file("/mnt/image/usr/bin/x", Some("/usr/bin/x")),
                file("/var/lower/usr/lib/y", Some("/mnt/image/usr/lib/y")),
                file("/mnt/images/z", None),
                file("/usr/lib/libc.so.6", None),
            ],
            metadata: vec![device("/mnt/image"), device("/"), device("/mnt/image/boot"), device("")],
            lookups: vec![lookup("/mnt/image"), lookup("/mnt/image/etc"), lookup("/etc")],
            milestones: vec![milestone("/mnt/image/usr/bin/x"), milestone(""), milestone("/usr/bin/env")],
            timeline: None,
        };
        let (profile, outside) = relative_to(profile, b"/mnt/image");
        assert_eq!(outside, Outside { files: 2, lookups: 1, devices: 2 });
        assert_eq!((&profile.recording.root[..], &profile.recording.directory[..]), (&b"/mnt/image"[..], &b""[..]));
        assert_eq!(profile.files, [file("/usr/bin/x", None), file("/usr/lib/y", None)]);
        assert_eq!(profile.metadata, [device("/"), device("/boot")]);
        assert_eq!(profile.lookups, [lookup("/"), lookup("/etc")]);
        assert_eq!(profile.milestones, [milestone("/usr/bin/x"), milestone("")]);
        crate::encode(&profile).unwrap();
    }

    #[test]
    fn root_of_the_machine_changes_no_path() {
        let profile = Profile { files: vec![file("/usr/bin/x", None)], ..Profile::default() };
        assert_eq!(relative_to(profile.clone(), b"/").0.files, profile.files);
        assert_eq!(below(b"/a/b", b"/a/"), Some(b"/b".to_vec()));
        assert_eq!(below(b"", b"/a"), None);
    }
}

//! Profiles that packages carry: what their programs read during a boot, for machines that have not learned it yet.
//!
//! ```text
//!     /usr/share/ahead/boot.d/NAME.list    a plain list: PATH[:START-END]      ─┐
//!     /usr/share/ahead/boot.d/NAME.ahead   a profile, paths relative to the root ├─▶ bound to the files that are installed ─▶ Profile
//! ```
//!
//! A package's build knows neither inodes nor times. A list is bound by path: its ranges are cut at the end of the file. An entry of a profile
//! is bound by path and size, and by its content check if it has one.
//!
//! The packages' data has a limited life. Before the first recording it is all there is. Later it is fetched last, until one boot with the
//! package is recorded. From then on only what boots read counts: reading what a distribution thinks that machines use is what made Fedora's
//! boots slower.
//!
//! These files are untrusted: sizes and numbers are limited, and one that breaks a rule is skipped with a message that names it.

use ahead::prefetch::file_as_it_is;
use ahead::{Notify, Result};
use ahead_files::lists::content::{ContentReader, Examined, used_ranges};
use ahead_files::lists::{Joined, Syntax};
use ahead_model::RangeSet;
use ahead_profile::{File, Profile, Recording, check_path};
use ahead_sys::mounts;
use ahead_sys::root::Root;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The directory of the packages' profiles, below the root.
pub const PACKAGE_PROFILES: &str = "/usr/share/ahead/boot.d";

/// Profiles that are looked at: a distribution has some ten packages that every boot starts.
const MAX_PROFILES: usize = 256;
/// Size of one profile: a desktop's whole boot has 2 MB.
const MAX_PROFILE_BYTES: u64 = 4 << 20;
/// Files in one profile.
const MAX_FILES: usize = 1 << 14;
/// Bytes that one profile may let a boot read. The largest desktop programs use less than half of it.
const MAX_USED_BYTES: u64 = 512 << 20;

/// A package's profile.
#[derive(Clone, Debug)]
pub(super) struct PackageProfile {
    /// The name of its file.
    pub name: String,
    /// The CRC-32 of its file.
    pub digest: u32,
    /// The files, in their order; or why it is skipped, with the path of the profile.
    pub files: std::result::Result<Vec<PackageFile>, String>,
}

/// A file of a package's profile.
#[derive(Clone, Debug)]
pub(super) enum PackageFile {
    Listed(Vec<u8>, RangeSet),
    /// Of a profile.
    Recorded(File),
}

/// Names and digests of the packages' profiles that recorded boots already include.
pub(super) type Known = Vec<(String, u32)>;

/// The profiles of a directory below the root, by name. One that cannot be read is in the result, with its message.
pub(super) fn load(root: &Root, directory: &Path) -> Vec<PackageProfile> {
    let listed = root.handle(directory).and_then(|handle| handle.entries(MAX_PROFILES + 1));
    let mut names: Vec<PathBuf> = match listed {
        Ok(entries) => entries.into_iter().map(|(name, _)| directory.join(name)).collect(),
        // No package has one.
        Err(error) => {
            tracing::debug!("{}: {error}", directory.display());
            return Vec::new();
        }
    };
    // Others are temporary files of a package manager (`x.list.dpkg-new`).
    names.retain(|path| path.extension().is_some_and(|extension| extension == "ahead" || extension == "list"));
    names.sort();
    names.truncate(MAX_PROFILES);
    names.iter().map(|path| load_one(root, path)).collect()
}

fn load_one(root: &Root, path: &Path) -> PackageProfile {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |reason: String| format!("{}: {reason}", path.display());
    match read(root, path) {
        Ok(bytes) => {
            let files = parse(path, &bytes).and_then(limit).map_err(failed);
            PackageProfile { name, digest: crc32fast::hash(&bytes), files }
        }
        Err(reason) => PackageProfile { name, digest: 0, files: Err(failed(reason)) },
    }
}

/// The content of a regular file. A link is not followed: its target is no part of the package.
fn read(root: &Root, path: &Path) -> std::result::Result<Vec<u8>, String> {
    let handle = root.handle(path).map_err(|error| error.to_string())?;
    if !handle.is_regular_file() {
        return Err("not a regular file".into());
    }
    let fd = handle.reopen().map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = std::fs::File::from(fd).take(MAX_PROFILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_PROFILE_BYTES {
        return Err(format!("larger than {} MiB", MAX_PROFILE_BYTES >> 20));
    }
    Ok(bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> std::result::Result<Vec<PackageFile>, String> {
    if path.extension() == Some(OsStr::new("ahead")) {
        let profile = ahead_profile::decode(bytes).map_err(|error| error.to_string())?;
        let used = profile.files.into_iter().filter(|file| !file.deleted && !file.extents.is_empty());
        return Ok(used.map(PackageFile::Recorded).collect());
    }
    let list = ahead_files::lists::parse(bytes, Syntax::default()).map_err(|error| error.to_string())?;
    let absolute = |listed: &ahead_files::lists::Listed| {
        let path = &listed.path;
        check_path(path).map_err(|reason| format!("{}: {reason}", String::from_utf8_lossy(path).escape_debug()))?;
        Ok(PackageFile::Listed(path.clone(), listed.everything()))
    };
    list.files().iter().map(absolute).collect()
}

fn limit(files: Vec<PackageFile>) -> std::result::Result<Vec<PackageFile>, String> {
    if files.len() > MAX_FILES {
        return Err(format!("{} files, more than the {MAX_FILES} allowed", files.len()));
    }
    Ok(files)
}

impl PackageProfile {
    /// Whether recorded boots include it.
    pub fn is_known(&self, known: &Known) -> bool {
        known.iter().any(|(name, digest)| *name == self.name && *digest == self.digest)
    }
}

/// Names and digests of all readable profiles.
pub(super) fn digests(profiles: &[PackageProfile]) -> Known {
    let readable = profiles.iter().filter(|profile| profile.files.is_ok());
    readable.map(|profile| (profile.name.clone(), profile.digest)).collect()
}

/// Adds the profiles that no recorded boot includes to `profile`, after all that it has. Returns their number. `until`: files that are not
/// looked at by then are left out.
///
/// # Errors
/// The mount table cannot be read.
pub(super) fn add_to(
    profile: &mut Profile,
    packages: &[PackageProfile],
    known: &Known,
    root: &Root,
    until: Instant,
    notify: Notify<'_>,
) -> Result<usize> {
    let mut bound: Vec<File> = Vec::new();
    let mut added = 0;
    for package in packages.iter().filter(|package| !package.is_known(known)) {
        match &package.files {
            Ok(files) => {
                let found = bind(files, root, until)?;
                let used_bytes: u64 = found.iter().map(File::used_bytes).sum();
                if used_bytes > MAX_USED_BYTES {
                    let path = Path::new(PACKAGE_PROFILES).join(&package.name);
                    notify(&format!("{}: more than {} MiB to read", path.display(), MAX_USED_BYTES >> 20));
                    continue;
                }
                added += 1;
                bound.extend(found);
            }
            Err(message) => notify(message),
        }
    }
    append(profile, bound);
    Ok(added)
}

/// The files as they are installed now, without those that are missing or differ from the package's.
fn bind(files: &[PackageFile], root: &Root, until: Instant) -> Result<Vec<File>> {
    let table = mounts::own()?;
    let mut reader = ContentReader::new(root, MAX_USED_BYTES, until.saturating_duration_since(Instant::now()));
    let mut bound = Vec::new();
    for file in files.iter().take_while(|_| Instant::now() < until) {
        let (path, wanted) = match file {
            PackageFile::Listed(path, wanted) => (path, wanted.clone()),
            PackageFile::Recorded(file) => (&file.path, used_ranges(file)),
        };
        let Some(now) = file_as_it_is(root, &table, path, &wanted) else { continue };
        match file {
            PackageFile::Recorded(recorded) if recorded.size_bytes != now.size_bytes => {}
            PackageFile::Recorded(recorded) if recorded.content.is_some() => {
                // The path without links: the content is read from the file that is prefetched.
                let mut own = File { path: now.path.clone(), ..recorded.clone() };
                match reader.examine(&own) {
                    Examined::Same => bound.push(now),
                    Examined::Replaced(replaced) => {
                        replaced.apply(&mut own);
                        bound.extend(file_as_it_is(root, &table, &own.path, &used_ranges(&own)));
                    }
                    Examined::Stale | Examined::Missing | Examined::Unknown => {}
                }
            }
            _ => bound.push(now),
        }
    }
    bound.retain(|file| !file.extents.is_empty());
    Ok(bound)
}

/// Adds files after all that the profile has: of a file that it has, the bytes that it lacks.
fn append(profile: &mut Profile, files: Vec<File>) {
    if profile.recording.runs == 0 {
        profile.recording = Recording { runs: 1, ..Recording::default() };
    }
    let last_us = profile.files.iter().flat_map(|file| &file.extents).map(|extent| extent.first_use_us).max();
    // A boot that is not recorded yet has no late list. Times beyond the end of the early list make the plan fetch these files last.
    let mut time_us = profile.ready_us().max(last_us).unwrap_or(0);
    let mut by_path: HashMap<Vec<u8>, usize> =
        profile.files.iter().enumerate().map(|(index, file)| (file.path.clone(), index)).collect();
    let mut joined: BTreeMap<usize, Joined> = BTreeMap::new();
    for mut file in files {
        time_us = (time_us + 1).min(i64::MAX as u64);
        file.extents.iter_mut().for_each(|extent| extent.first_use_us = time_us);
        match by_path.get(&file.path).copied() {
            Some(index) => {
                let there = &mut profile.files[index];
                let is_same = (there.size_bytes, there.mtime_ns) == (file.size_bytes, file.mtime_ns);
                if !is_same || there.deleted {
                    // What is known about an earlier version is not prefetched.
                    joined.remove(&index);
                    *there = file;
                } else {
                    joined.entry(index).or_insert_with(|| Joined::new(&there.extents)).add(&file.extents);
                }
            }
            None => {
                by_path.insert(file.path.clone(), profile.files.len());
                profile.files.push(file);
            }
        }
    }
    for (index, joined) in joined {
        if !joined.is_complete() {
            joined.complete(&mut profile.files[index], profile.recording.runs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, Milestone, MilestoneKind};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    /// A root with files of packages. Not in /tmp, which may be in memory.
    struct System {
        _home: tempfile::TempDir,
        path: PathBuf,
        root: Root,
    }

    impl System {
        fn new() -> System {
            let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let path = fs::canonicalize(home.path()).unwrap();
            fs::create_dir_all(path.join("usr/lib")).unwrap();
            fs::create_dir_all(path.join(&PACKAGE_PROFILES[1..])).unwrap();
            symlink("usr/lib", path.join("lib")).unwrap();
            for name in ["a", "b"] {
                fs::write(path.join("usr/lib").join(name), vec![1; 40_000]).unwrap();
            }
            let root = Root::at(&path).unwrap();
            System { _home: home, path, root }
        }

        fn carry(&self, name: &str, content: &[u8]) {
            fs::write(self.path.join(&PACKAGE_PROFILES[1..]).join(name), content).unwrap();
        }

        fn load(&self) -> Vec<PackageProfile> {
            load(&self.root, Path::new(PACKAGE_PROFILES))
        }

        /// What the packages add to a profile, as path, first use and extents, and the messages.
        fn add(&self, profile: &mut Profile, known: &Known) -> (usize, Vec<String>) {
            let messages = std::cell::RefCell::new(Vec::new());
            let notify = |message: &str| messages.borrow_mut().push(message.to_owned());
            let until = Instant::now() + Duration::from_secs(60);
            let added = add_to(profile, &self.load(), known, &self.root, until, &notify).unwrap();
            (added, messages.into_inner())
        }
    }

    fn used(profile: &Profile) -> Vec<(&str, u64)> {
        profile.files.iter().map(|file| (str::from_utf8(&file.path).unwrap(), file.used_bytes())).collect()
    }

    fn recorded(path: &str, size_bytes: u64, length_bytes: u64) -> Profile {
        let extents = vec![Extent { length_bytes, runs: 1, ..Extent::default() }];
        let file = File { path: path.into(), size_bytes, extents, inode: 1, mtime_ns: 7, ..File::default() };
        Profile { recording: Recording { runs: 1, ..Recording::default() }, files: vec![file], ..Profile::default() }
    }

    #[test]
    fn list_is_bound_by_path_and_profile_by_size() {
        let system = System::new();
        system.carry("10-a.list", b"# of package a\n/lib/a:0-8K\n/usr/lib/none\n/usr/lib\n");
        system.carry("20-b.ahead", &ahead_profile::encode(&recorded("/usr/lib/b", 40_000, 4096)).unwrap());
        system.carry("30-other.ahead", &ahead_profile::encode(&recorded("/usr/lib/b", 40_001, 8192)).unwrap());
        system.carry("x.list.dpkg-new", b"/usr/lib/b\n");
        let mut profile = Profile::default();
        assert_eq!(system.add(&mut profile, &Known::new()), (3, vec![]));
        assert_eq!(used(&profile), [("/usr/lib/a", 8192), ("/usr/lib/b", 4096)]);
        let now = fs::metadata(system.path.join("usr/lib/b")).unwrap();
        assert_eq!(profile.files[1].inode, std::os::unix::fs::MetadataExt::ino(&now));
        ahead_profile::encode(&profile).unwrap();
        // A second time nothing is added twice.
        let once = profile.clone();
        system.add(&mut profile, &Known::new());
        assert_eq!(profile, once);
    }

    #[test]
    fn content_check_of_a_package_drops_what_differs() {
        let system = System::new();
        let mut carried = recorded("/usr/lib/a", 40_000, 32_768);
        let equal = ahead_files::lists::content::digest(&[1; 16_384]);
        let check = |pieces: Vec<u32>| Some(Box::new(ahead_profile::ContentCheck { layout: 0, pieces }));
        carried.files[0].content = check(vec![equal, 5]);
        system.carry("a.ahead", &ahead_profile::encode(&carried).unwrap());
        let mut profile = Profile::default();
        system.add(&mut profile, &Known::new());
        assert_eq!(used(&profile), [("/usr/lib/a", 16_384)]);
        carried.files[0].content = check(vec![4, 5]);
        system.carry("a.ahead", &ahead_profile::encode(&carried).unwrap());
        let mut profile = Profile::default();
        system.add(&mut profile, &Known::new());
        assert!(profile.files.is_empty(), "{profile:?}");
    }

    #[test]
    fn packages_come_last_and_only_until_a_boot_includes_them() {
        let system = System::new();
        system.carry("a.list", b"/usr/lib/a\n");
        system.carry("b.list", b"/usr/lib/b:0-4K\n");
        let learned = || {
            let mut profile = recorded("/usr/lib/x", 100, 100);
            profile.recording.runs = 5;
            profile.milestones =
                vec![Milestone { time_us: 900, kind: MilestoneKind::Ready, path: Vec::new(), warm_us: None }];
            profile
        };
        let mut profile = learned();
        assert_eq!(system.add(&mut profile, &Known::new()).0, 2);
        assert_eq!(used(&profile), [("/usr/lib/x", 100), ("/usr/lib/a", 40_000), ("/usr/lib/b", 4096)]);
        assert!(profile.files[1..].iter().all(|file| file.extents[0].first_use_us > 900));
        let pieces = ahead_plan::pieces(&profile, 4096);
        assert!(pieces.iter().all(|piece| piece.late || piece.first_use_us == 0), "{pieces:?}");
        let known = digests(&system.load());
        let mut profile = learned();
        assert_eq!(system.add(&mut profile, &known).0, 0);
        assert_eq!(profile, learned());
        // The next version of one package is not known.
        system.carry("b.list", b"/usr/lib/b:0-8K\n");
        assert_eq!(system.add(&mut profile, &known).0, 1);
        assert_eq!(used(&profile)[1..], [("/usr/lib/b", 8192)]);
    }

    #[test]
    fn known_version_of_a_file_keeps_its_pages_and_a_stale_one_is_replaced() {
        let system = System::new();
        system.carry("a.list", b"/usr/lib/a:0-8K\n");
        let mut profile = Profile::default();
        system.add(&mut profile, &Known::new());
        let mut both = profile.clone();
        (both.files[0].extents[0].length_bytes, both.files[0].extents[0].first_use_us) = (4096, 5);
        system.add(&mut both, &Known::new());
        assert_eq!((used(&both), both.files[0].extents[0].first_use_us), (vec![("/usr/lib/a", 8192)], 5));
        let mut stale = recorded("/usr/lib/a", 3, 3);
        system.add(&mut stale, &Known::new());
        assert_eq!((used(&stale), stale.files[0].size_bytes), (vec![("/usr/lib/a", 8192)], 40_000));
    }

    #[test]
    fn broken_profile_is_skipped_with_its_name_and_the_others_are_used() {
        let system = System::new();
        let good = ahead_profile::encode(&recorded("/usr/lib/b", 40_000, 4096)).unwrap();
        system.carry("a.ahead", &good[..good.len() - 1]);
        system.carry("b.list", b"/usr/lib/a\nrelative\n");
        system.carry("c.list", b"/usr/lib/../../etc/passwd\n");
        system.carry("d.list", &vec![b'#'; (MAX_PROFILE_BYTES + 1) as usize]);
        system.carry("e.list", "/x\n".repeat(3).replace("/x", "/x:9-8").as_bytes());
        system.carry("f.list", (0..=MAX_FILES).map(|number| format!("/{number}\n")).collect::<String>().as_bytes());
        symlink("/etc/passwd", system.path.join(&PACKAGE_PROFILES[1..]).join("g.list")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, system.path.join(&PACKAGE_PROFILES[1..]).join("h.list"), 0o600.into())
            .unwrap();
        system.carry("z.ahead", &good);
        let mut profile = Profile::default();
        let (added, messages) = system.add(&mut profile, &Known::new());
        assert_eq!((added, used(&profile)), (1, vec![("/usr/lib/b", 4096)]));
        let reasons = [
            "a.ahead: truncated at byte",
            "b.list: relative: the path is not absolute",
            "c.list: /usr/lib/../../etc/passwd: the path contains \"..\"",
            "d.list: larger than 4 MiB",
            "e.list: line 1: the range",
            "f.list: 16385 files, more than",
            "g.list: ",
            "h.list: not a regular file",
        ];
        assert_eq!(messages.len(), reasons.len(), "{messages:#?}");
        for (message, reason) in messages.iter().zip(reasons) {
            assert!(message.starts_with(&format!("{PACKAGE_PROFILES}/{reason}")), "{message}");
        }
        assert_eq!(digests(&system.load()).len(), 1);
    }

    #[test]
    fn directory_may_be_missing_or_a_file() {
        let system = System::new();
        assert!(load(&system.root, Path::new("/usr/share/none")).is_empty());
        assert!(load(&system.root, Path::new("/usr/lib/a")).is_empty());
    }
}

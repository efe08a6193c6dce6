//! Recordings of programs, and file systems for what they read.

use ahead_profile::Profile;
use ahead_tests::rig::machine::Held;
use ahead_tests::rig::mounted::Image;
use ahead_tests::rig::prelude::*;
pub use ahead_tests::rig::profile::{entry, find, joined, paths, ranges};
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::RwLockWriteGuard;
use std::sync::atomic::{AtomicU16, Ordering};

/// `None`, with the reason printed: recordings are not possible here. Checked once, with a short recording.
pub fn needs_recorder() -> Option<()> {
    static CAN: OnceLock<bool> = OnceLock::new();
    CAN.get_or_init(|| needs_root().is_some() && is_possible(&[])).then_some(())
}

/// Whether a short recording with these options is possible; prints the reason if not.
pub fn is_possible(options: &[&str]) -> bool {
    let home = in_memory();
    let probe = ahead(["record", "-o"]).arg(home.path().join("p.ahead")).args(options).arg("true").done();
    if probe.status.code() == Some(77) {
        return skip::<()>(probe.err).is_some();
    }
    probe.success();
    true
}

/// A file system. The test itself, or a cold recording, takes the lock of the machine.
pub fn volume(fs_type: &'static str) -> Option<Mounted> {
    needs_recorder()?;
    Mounted::of(Image::of(fs_type), || Held::ByTest)
}

/// The same, while no cold recording runs.
pub fn volume_undisturbed(fs_type: &'static str) -> Option<Mounted> {
    needs_recorder()?;
    Mounted::new(fs_type)
}

/// The same for a test that has the machine alone.
pub fn volume_alone(fs_type: &'static str) -> Option<Mounted> {
    needs_recorder()?;
    Mounted::alone(fs_type)
}

/// A directory for profiles and scripts.
pub struct Home {
    pub directory: tempfile::TempDir,
    _machine: Held,
}

impl Home {
    pub fn new() -> Home {
        Home::of(Held::ByTest)
    }

    fn of(machine: Held) -> Home {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), 0o755);
        Home { directory, _machine: machine }
    }

    /// While no cold recording runs. `None`, with the reason printed, where recordings are not possible.
    pub fn undisturbed() -> Option<Home> {
        let machine = Held::shared();
        needs_recorder().map(|()| Home::of(machine))
    }

    /// The same for a test that has the machine alone, as for one with mount namespaces.
    pub fn alone() -> Option<Home> {
        let machine = Held::alone();
        needs_recorder().map(|()| Home::of(machine))
    }

    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.directory.path().join(name.as_ref())
    }

    pub fn profile(&self) -> PathBuf {
        self.path("p.ahead")
    }

    /// `ahead record -o` with the path of the profile.
    pub fn recorder(&self, options: &[&str]) -> Program {
        ahead(["record", "-o"]).arg(self.profile()).args(options)
    }

    /// Records a command with these options, asserts success, and loads the profile.
    pub fn record<A: AsRef<OsStr>>(&self, options: &[&str], command: &[A]) -> (Done, Profile) {
        (self.try_record(options, command).success(), self.load())
    }

    /// The same without the assertion.
    pub fn try_record<A: AsRef<OsStr>>(&self, options: &[&str], command: &[A]) -> Done {
        // A cold recording changes the whole machine: no other test may measure during it.
        let _alone = options.contains(&"--cold").then(alone);
        self.recorder(options).arg("--").args(command).done()
    }

    /// Records a cold, precise run. No other test changes a cache until the returned guard is dropped.
    pub fn record_cold<A: AsRef<OsStr>>(&self, command: &[A]) -> (Profile, RwLockWriteGuard<'static, ()>) {
        let alone = alone();
        self.recorder(&["--cold", "--precise", "--"]).args(command).ok();
        (self.load(), alone)
    }

    pub fn load(&self) -> Profile {
        ahead_files::load(&self.profile()).unwrap()
    }
}

/// Copies programs with their libraries, as the loader lists them, to the same paths below this directory.
pub fn install_below(directory: &Path, programs: &[&str]) {
    for path in programs {
        let libraries = program("ldd").arg(path).done().out;
        let libraries = libraries.split_ascii_whitespace().filter(|word| word.starts_with('/'));
        for file in libraries.chain([*path]) {
            let place = directory.join(&file[1..]);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(file, place).unwrap();
        }
    }
}

/// An unused port below the kernel's range of automatic ports. The search does not open a socket: a program that another test
/// starts at that moment would inherit it until its exec.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    20_000 + (std::process::id() * 16 % 10_000) as u16 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Every regular file below a directory with its resident ranges, cut at its end.
pub fn resident_below(directory: &Path) -> Vec<(PathBuf, Vec<Range<u64>>)> {
    let files = files_below(directory).into_iter().filter(|path| path.is_file() && !path.is_symlink());
    let resident = |path: PathBuf| {
        let size = fs::metadata(&path).unwrap().len();
        let ranges = resident(&path).into_iter().filter(|range| range.start < size);
        let ranges = ranges.map(|range| range.start..range.end.min(size)).collect();
        (path, ranges)
    };
    files.map(resident).collect()
}

//! The launch service: real programs on an emulated disk, with a store of each test.

use ahead_apps::{App, AppStore, StartKey, Treatment, UserStore};
use ahead_tests::rig::emulated::stall;
use ahead_tests::rig::prelude::*;

/// Files that the program reads, of this size.
const FILES: u64 = 24;
const FILE_BYTES: u64 = 64 * KIB as u64;

/// A service, and a program on a disk whose reads take long: `slow-cat GATE FILES…` reads the files after the gate was opened and closed.
struct Served {
    service: Running,
    home: tempfile::TempDir,
    mount: PathBuf,
    files: Vec<PathBuf>,
    _disks: Disks,
}

fn start_service(store: &Path) -> Running {
    let mut service = program(built("aheadd")).arg("--store").arg(store).env("AHEAD_LOG", "debug").start();
    service.says("is served");
    service
}

impl Served {
    /// `None`, with the reason printed, where it cannot run.
    fn new() -> Option<Served> {
        needs_root()?;
        let mut disks = Disks::new()?;
        let (disk, mount) = disks.mounted("service", &["--size", "64M", "--model", "ssd", "--fs", "ext4"]);
        set_mode(mount.parent().unwrap(), 0o755);
        fs::copy("/bin/cat", mount.join("slow-cat")).unwrap();
        let files: Vec<PathBuf> = (0..FILES).map(|number| mount.join(format!("file-{number}"))).collect();
        files.iter().for_each(|file| fs::write(file, vec![7; FILE_BYTES as usize]).unwrap());
        make_fifo(&mount.join("gate"));
        set_mode(&mount.join("gate"), 0o666);
        stall(&disk, 10);
        let home = tempfile::tempdir().unwrap();
        let service = start_service(&home.path().join("apps"));
        Some(Served { service, home, mount, files, _disks: disks })
    }

    fn program(&self) -> PathBuf {
        self.mount.join("slow-cat")
    }

    fn make_cold(&self) {
        self.files.iter().chain([&self.program()]).for_each(|file| make_cold(file));
    }

    /// Starts the program with everything on the disk, and waits for the gate. Not yet read: the files.
    fn start_cold(&self) -> Running {
        self.make_cold();
        let start = program(self.program()).arg(self.mount.join("gate")).args(&self.files);
        start.as_stranger().output_file(File::create("/dev/null").unwrap()).start()
    }

    /// Lets the program read, and waits until the service knows of its end.
    fn finish(&mut self, running: Running) {
        drop(File::options().write(true).open(self.mount.join("gate")).unwrap());
        running.ends_with(0);
        self.service.says(&format!("{}: AppStart", self.program().display()));
    }

    fn run_cold(&mut self) {
        let running = self.start_cold();
        self.finish(running);
    }

    fn user(&self) -> UserStore {
        let store = AppStore::open(&self.home.path().join("apps")).unwrap().unwrap();
        store.user(STRANGER).unwrap().unwrap()
    }

    fn app(&self) -> App {
        let key = StartKey::of(self.program().as_os_str().as_bytes(), &[], b"/").unwrap();
        self.user().load(&key.app).unwrap()
    }

    /// Starts it until this many starts are recorded: other programs of the machine may have been first.
    fn run_until_recorded(&mut self, recordings: usize) {
        let program = self.program().display().to_string();
        wait_until("a recording", || {
            self.service.says(&format!("next start of: {program}"));
            self.run_cold();
            let claimed = self.service.says_any(&[&format!("{program}: recorded"), "the recorder waits for"]);
            drop(claimed);
            let known = self.user().load(&StartKey::of(program.as_bytes(), &[], b"/").unwrap().app);
            known.is_some_and(|app| self.user().recordings(&app.key).is_some_and(|it| it.numbers().len() >= recordings))
        });
    }
}

#[test]
fn third_start_of_a_program_finds_its_pages_in_the_cache() {
    let Some(mut served) = Served::new() else { return };
    served.run_cold();
    served.run_until_recorded(1);
    let running = served.start_cold();
    wait_until("the pages of the files", || served.files.iter().all(|file| resident_bytes(file) >= FILE_BYTES));
    served.finish(running);
    served.service.signal("TERM");
    assert!(served.service.status().success());
    let app = served.app();
    let last = app.history.recent.back().unwrap();
    assert_eq!((last.treatment, last.is_cold()), (Treatment::Prefetched, true), "{app:?}");
    assert!(last.issued_bytes >= FILES * FILE_BYTES, "{last:?}");
    assert!(app.history.gain().is_some_and(|gain| gain.saved_us > 0 && !gain.is_measured), "{app:?}");
    for file in files_below(&served.home.path().join("apps").join(STRANGER.to_string())) {
        let metadata = fs::symlink_metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (STRANGER, 0o600), "{}", file.display());
    }
}

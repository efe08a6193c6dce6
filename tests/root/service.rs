//! The launch service: real programs on an emulated disk, with a store of each test.

use ahead_apps::{App, AppStore, StartKey, Treatment, UserStore};
use ahead_tests::rig::emulated::stall;
use ahead_tests::rig::prelude::*;

/// Files that the program reads, of this size.
const FILES: u64 = 24;
const FILE_BYTES: u64 = 64 * KIB;

/// A service, and a program on a disk whose reads take long: `slow-cat GATE FILES…` reads the files after the gate was opened and closed.
struct Served {
    service: Running,
    home: tempfile::TempDir,
    mount: PathBuf,
    files: Vec<PathBuf>,
    _disks: Disks,
}

fn start_service(store: &Path) -> Running {
    let mut service = program_for_store(store).env("AHEAD_LOG", "debug").start();
    service.says("is served");
    service
}

impl Served {
    /// `None`, with the reason printed, where it cannot run. `model`: of the disk; `stall_ms`: each read takes longer by this.
    fn new(model: &str, stall_ms: u64) -> Option<Served> {
        needs_root()?;
        // A service acts on all programs of the machine: also on those of other tests.
        let mut disks = Disks::alone()?;
        let (disk, mount) = disks.mounted("service", &["--size", "64M", "--model", model, "--fs", "ext4"]);
        set_mode(mount.parent().unwrap(), 0o755);
        fs::copy("/bin/cat", mount.join("slow-cat")).unwrap();
        let files: Vec<PathBuf> = (0..FILES).map(|number| mount.join(format!("file-{number}"))).collect();
        files.iter().for_each(|file| fs::write(file, vec![7; FILE_BYTES as usize]).unwrap());
        make_fifo(&mount.join("gate"));
        set_mode(mount.join("gate"), 0o666);
        stall(&disk, stall_ms);
        let home = tempfile::tempdir().unwrap();
        set_mode(home.path(), 0o755);
        let service = start_service(&home.path().join("apps"));
        Some(Served { service, home, mount, files, _disks: disks })
    }

    fn store(&self) -> PathBuf {
        self.home.path().join("apps")
    }

    fn program(&self) -> PathBuf {
        self.mount.join("slow-cat")
    }

    fn make_cold(&self) {
        self.files.iter().chain([&self.program()]).for_each(|file| make_cold(file));
    }

    fn command(&self) -> Program {
        let start = program(self.program()).arg(self.mount.join("gate")).args(&self.files);
        start.output_file(File::create("/dev/null").unwrap())
    }

    /// Starts the program with everything on the disk. It waits for the gate before it reads the files.
    fn start_cold(&self) -> Running {
        self.make_cold();
        self.command().as_stranger().start()
    }

    fn open_gate(&self) {
        drop(File::options().write(true).open(self.mount.join("gate")).unwrap());
    }

    /// Lets the program read, and waits until the service knows of its end. Returns what the service said until then.
    fn finish(&mut self, running: Running) -> String {
        self.open_gate();
        running.ends_with(0);
        self.service.says(&format!("{}: AppStart", self.program().display()))
    }

    fn run_cold(&mut self) -> String {
        let running = self.start_cold();
        self.finish(running)
    }

    fn user(&self) -> UserStore {
        let store = AppStore::open(&self.store()).unwrap().unwrap();
        store.user(STRANGER).unwrap().unwrap()
    }

    fn key(&self) -> StartKey {
        StartKey::of(self.program().as_os_str().as_bytes(), &[], b"/").unwrap()
    }

    fn app(&self) -> App {
        self.user().load(&self.key().app).unwrap()
    }

    /// Starts it until one is recorded, and the service knows of that: other programs of the machine may have been first.
    fn run_until_recorded(&mut self) {
        wait_until("a recording", || {
            self.run_cold();
            let known = self.user().load(&self.key().app);
            known.is_some_and(|app| u64::from(app.history.starts_since_recording) < app.history.starts)
        });
    }
}

#[test]
fn third_start_of_a_program_finds_its_pages_in_the_cache() {
    let Some(mut served) = Served::new("ssd", 10) else { return };
    served.run_cold();
    served.run_until_recorded();
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
    for file in files_below(&served.store().join(STRANGER.to_string())) {
        let metadata = fs::symlink_metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (STRANGER, 0o600), "{}", file.display());
    }
}

/// Of a file of root, a user may not ask what is cached. A warm start must not count as a cold one.
#[test]
fn warm_start_of_a_program_of_root_is_seen_as_warm() {
    let Some(mut served) = Served::new("ssd", 10) else { return };
    served.run_cold();
    served.run_until_recorded();
    let running = served.command().as_stranger().start();
    served.finish(running);
    served.service.signal("TERM");
    assert!(served.service.status().success());
    let app = served.app();
    let last = app.history.recent.back().unwrap();
    assert_eq!((last.treatment, last.is_cold()), (Treatment::Prefetched, false), "{app:?}");
    assert!(last.absent_percent.is_some(), "{last:?}");
}

/// On a disk that seeks, the service that was started again finds the profile, and the exec waits for the head start.
#[test]
fn killed_service_goes_on_with_what_it_knew() {
    let Some(mut served) = Served::new("hdd", 10) else { return };
    // A loop device does not say so by itself.
    let device = fs::metadata(&served.mount).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::write(format!("/sys/dev/block/{major}:{minor}/queue/rotational"), "1").unwrap();
    served.run_cold();
    served.run_until_recorded();
    served.service.kill();
    served.service = start_service(&served.store());
    wait_until("a head start", || served.run_cold().contains("slow-cat: waits for its head start"));
    let refused = program_for_store(&served.store()).fails(1);
    assert!(refused.err.contains("another aheadd serves"), "{refused}");
    served.service.signal("TERM");
    assert!(served.service.status().success());
    assert!(served.app().history.recent.iter().any(|start| start.treatment == Treatment::Prefetched));
}

fn program_for_store(store: &Path) -> Program {
    // The machine has one socket for metrics, and each test a service.
    let settings = store.with_extension("toml");
    fs::write(&settings, "metrics = \"off\"\n").unwrap();
    program(built("aheadd")).arg("--store").arg(store).arg("--config").arg(settings)
}

/// Programs of users of whom nothing is known: all wait for the disk.
#[test]
fn elevated_programs_and_those_with_other_mounts_are_left_alone() {
    let Some(mut served) = Served::new("ssd", 10) else { return };
    let (elevated, apart, plain) = (STRANGER - 1, STRANGER - 2, STRANGER - 3);
    let store = AppStore::open(&served.store()).unwrap().unwrap();
    let run = |start: Program| {
        served.make_cold();
        let running = start.start();
        served.open_gate();
        running.ends_with(0);
    };
    run(served.command().as_user(apart).apart("exec \"$@\""));
    set_mode(served.program(), 0o4755);
    // The disk may be mounted without setuid programs.
    let options = program("findmnt").args(["-no", "OPTIONS", "-T"]).arg(&served.mount).done().out;
    if !options.contains("nosuid") {
        run(served.command().as_user(elevated));
    }
    set_mode(served.program(), 0o755);
    run(served.command().as_user(plain));
    wait_until("the plain start", || store.user(plain).is_ok_and(|user| user.is_some()));
    assert!(store.user(elevated).unwrap().is_none() && store.user(apart).unwrap().is_none());
    served.service.signal("TERM");
    assert!(served.service.status().success());
}

/// Each exec costs it far less than it costs the machine, and it still knows of the last one.
#[test]
fn two_thousand_execs_leave_the_service_small_and_awake() {
    const EXECS: usize = 2000;
    let Some(mut served) = Served::new("ssd", 10) else { return };
    served.run_cold();
    program("sh").args(["-c", &format!("for i in $(seq {EXECS}); do /bin/true; done")]).as_stranger().ok();
    served.run_cold();
    let status = fs::read_to_string(format!("/proc/{}/status", served.service.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident_kib: u64 = resident.split_ascii_whitespace().next().unwrap().parse().unwrap();
    // Without optimisation; the release build has another limit.
    assert!(resident_kib < 40 << 10, "{resident_kib} KiB");
    served.service.signal("TERM");
    assert!(served.service.status().success());
    assert_eq!(served.app().history.starts, 2);
    // Memory may be reclaimed beside this test, so the two programs may have waited once, too.
    assert!(served.user().apps().len() < 10);
}

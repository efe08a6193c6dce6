//! The commands to kill, and their scene.

use crate::{LATEST_KILL, LONGEST, holders_of};
use ahead_process::undo::{Action, Guard, ProcessId};
use ahead_sys::{bdi, block, mounting};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A window that neither the kernel nor the commands set, KiB.
const ODD_WINDOW_KB: &str = "776";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Record,
    RecordPrecise,
    RecordFtrace,
    Compare,
    Create,
    CreateXfs,
    Attach,
    Detach,
    TuneMeasure,
    TuneApply,
    TunePersist,
    Bench,
    BenchPolicy,
}

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::Record,
        Kind::RecordPrecise,
        Kind::RecordFtrace,
        Kind::Compare,
        Kind::Create,
        Kind::CreateXfs,
        Kind::Attach,
        Kind::Detach,
        Kind::TuneMeasure,
        Kind::TuneApply,
        Kind::TunePersist,
        Kind::Bench,
        Kind::BenchPolicy,
    ];
}

/// The scene of the commands:
///
/// ```text
///     HOME/ahead          the program to kill; its processes are found by their executable
///     HOME/mnt            mount point of the disk whose commands are killed; its image is HOME/new.img or HOME/old.img
///     HOME/target         an emulated disk for tune and for jobs
///     HOME/root           the directories for rules and units of `tune`
///     HOME/other/…        the bystander: another program file with its own disk
/// ```
pub struct Scene {
    home: tempfile::TempDir,
    name: String,
    target: Disk,
    bystander: Disk,
    /// A change that this process has noted.
    _note: Guard,
    _debugfs: Guard,
}

/// An emulated disk. It is detached on drop.
struct Disk {
    name: String,
    mount: PathBuf,
}

impl Disk {
    fn new(program: &Path, name: String, home: &Path) -> Disk {
        let mount = home.join("mnt");
        fs::create_dir_all(&mount).expect("create a directory in memory");
        let mut create = Command::new(program);
        create
            .args(["disk", "create"])
            .arg(home.join("image"))
            .args(["--size", "192M", "--model", "nvme", "--name", &name]);
        succeed(create.arg("--mount").arg(&mount));
        for index in 0..8u8 {
            fs::write(mount.join(format!("file{index}")), vec![index; 1 << 20]).expect("room on the disk");
        }
        Disk { name, mount }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Ok(disk) = ahead_disk::find(&self.name)
            && let Err(error) = ahead_disk::detach(&disk)
        {
            eprintln!("not detached: {error}");
        }
    }
}

fn succeed(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().expect("the command starts");
    assert!(done.status.success(), "{command:?}: {} {}", done.status, String::from_utf8_lossy(&done.stderr));
}

/// The two programs lie in one directory.
const PROGRAMS: [&str; 2] = ["ahead", "ahead-lab"];

impl Scene {
    pub fn new() -> Scene {
        let home = tempfile::tempdir_in("/dev/shm").expect("create a directory in memory");
        let (path, name) = (home.path(), format!("kills-{}", std::process::id()));
        let bystander = path.join("other");
        for directory in [
            "mnt",
            "out",
            "root/etc/udev/rules.d",
            "root/etc/systemd/system",
            "root/var/lib",
            "debugfs",
            "other",
            "target",
        ] {
            fs::create_dir_all(path.join(directory)).expect("create a directory in memory");
        }
        let programs = PROGRAMS.map(assert_cmd::cargo::cargo_bin);
        for directory in [path, &bystander] {
            succeed(Command::new("cp").args(&programs).arg(directory));
        }
        let own = ProcessId::own().expect("this process exists");
        let debugfs = ahead_process::undo::mounts::mount_noted(
            own,
            "debugfs".as_ref(),
            &path.join("debugfs"),
            "debugfs",
            false,
            "",
        );
        let debugfs = debugfs.expect("root may mount debugfs");
        let others = bystander.join("ahead");
        let bystander = Disk::new(&others, format!("{name}-other"), &bystander);
        let target = Disk::new(&others, format!("{name}-target"), &path.join("target"));
        let device = ahead_disk::find(&bystander.name).expect("the disk was just created").device;
        let number = block::device_number(&device).expect("a block device has a number");
        let setting = bdi::read_ahead_file(number).expect("a disk has a window");
        let note = ahead_process::undo::set_file(&setting, ODD_WINDOW_KB).expect("root may set a window");
        let scene = Scene { home, name, target, bystander, _note: note, _debugfs: debugfs };
        succeed(&mut scene.create("old.img", "ext4"));
        scene.detach();
        succeed(scene.ahead(&["record", "--cold", "-o"]).arg(scene.path("p.ahead")).arg("--").args(scene.program()));
        scene
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The mount point of the target disk.
    pub fn target(&self) -> &Path {
        &self.target.mount
    }

    /// The mount point of the bystander's disk.
    pub fn bystander(&self) -> &Path {
        &self.bystander.mount
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn debugfs(&self) -> PathBuf {
        self.path("debugfs")
    }

    fn ahead(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("ahead"));
        command.args(arguments).env_remove("SUDO_USER").env_remove("SUDO_UID").current_dir(self.home());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command
    }

    /// A program that reads the target's files and ends.
    fn program(&self) -> Vec<String> {
        let files = (0..8).map(|index| self.target.mount.join(format!("file{index}")).display().to_string());
        ["cat".to_owned()].into_iter().chain(files).collect()
    }

    fn create(&self, image: &str, filesystem: &str) -> Command {
        let size = if filesystem == "xfs" { "320M" } else { "64M" };
        let mut command = self.on_victim("create", image);
        command.args(["--size", size, "--fs", filesystem]);
        command
    }

    fn on_victim(&self, what: &str, image: &str) -> Command {
        let mut command = self.ahead(&["disk", what]);
        command
            .arg(self.path(image))
            .args(["--model", "ssd", "--name", &self.name])
            .arg("--mount")
            .arg(self.path("mnt"));
        command
    }

    /// The command of this kind.
    pub fn command(&self, kind: Kind) -> Command {
        let target = self.target.mount.to_str().expect("the path is UTF-8");
        let root = self.path("root");
        let root = root.to_str().expect("the path is UTF-8");
        let record = |how: &[&str]| {
            let mut record = self.ahead(&[&["record", "--cold"], how, &["-o"]].concat());
            record.arg(self.path("out/p.ahead")).arg("--").args(self.program());
            record
        };
        let bench = |policy: &str| {
            let how = ["--size", "4M", "--streams", "1,2", "--runs", "1", "--policy", policy];
            self.ahead(&[&["bench", "streams", "--directory", target], &how[..]].concat())
        };
        match kind {
            Kind::Record => record(&[]),
            Kind::RecordPrecise => record(&["--precise"]),
            Kind::RecordFtrace => record(&["--source", "ftrace"]),
            Kind::Compare => {
                let mut compare = self.ahead(&["compare", "--runs", "1", "-p"]);
                compare.arg(self.path("p.ahead")).arg("--").args(self.program());
                compare
            }
            Kind::Create => self.create("new.img", "ext4"),
            Kind::CreateXfs => self.create("new.img", "xfs"),
            Kind::Attach => self.on_victim("attach", "old.img"),
            Kind::Detach => self.ahead(&["disk", "detach", &self.name]),
            Kind::TuneMeasure => self.ahead(&["tune", target]),
            Kind::TuneApply => self.ahead(&["tune", target, "--root", root, "--kb", "512", "--apply"]),
            Kind::TunePersist => self.ahead(&["tune", target, "--root", root, "--kb", "640", "--persist"]),
            Kind::Bench => bench("kernel"),
            Kind::BenchPolicy => bench("ahead"),
        }
    }

    /// Creates the inputs of a command of this kind.
    pub fn prepare(&self, kind: Kind) {
        if kind == Kind::Detach {
            succeed(&mut self.on_victim("attach", "old.img"));
        }
    }

    /// Removes the command's results, complete or not.
    pub fn clean_up(&self, kind: Kind) {
        match kind {
            Kind::Record | Kind::RecordPrecise | Kind::RecordFtrace => drop(fs::remove_file(self.path("out/p.ahead"))),
            Kind::Create | Kind::CreateXfs => drop(fs::remove_file(self.path("new.img"))),
            Kind::TuneApply | Kind::TunePersist => {
                let (target, root) = (&self.target.mount, self.path("root"));
                succeed(self.ahead(&["tune"]).arg(target).arg("--root").arg(root).arg("--restore"));
            }
            _ => {}
        }
    }

    /// The duration of a command without a kill.
    pub fn undisturbed(&self, kind: Kind) -> Duration {
        if kind == Kind::TuneMeasure {
            // The whole command takes minutes; every phase but the last begins within the first seconds.
            return LATEST_KILL;
        }
        self.prepare(kind);
        let began = Instant::now();
        let status = self.command(kind).status().expect("the command starts");
        let took = began.elapsed();
        assert!(status.success() || kind == Kind::TunePersist && status.code() == Some(77), "{kind:?}: {status}");
        self.detach();
        self.clean_up(kind);
        took
    }

    /// Detaches the victim, if it exists; its daemon may be ending already.
    pub fn detach(&self) {
        if let Ok(disk) = ahead_disk::find(&self.name) {
            let _ = ahead_disk::detach(&disk);
        }
    }

    pub fn restore(&self) {
        let began = Instant::now();
        succeed(self.ahead(&["restore"]).stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(began.elapsed() < LONGEST, "restore took {:?}", began.elapsed());
    }

    /// The processes that have the victim's log open: the daemon, from before its start, and its children.
    pub fn daemons(&self) -> Vec<ProcessId> {
        holders_of(&Path::new("/run/ahead/disk").join(format!("{}.log", self.name)))
    }

    /// Processes of the program to kill.
    pub fn own_processes(&self) -> Vec<ProcessId> {
        PROGRAMS.iter().flat_map(|program| self.processes_of(&self.path(program))).collect()
    }

    /// These, and the bystander's processes.
    pub fn all_processes(&self) -> Vec<ProcessId> {
        let bystander = PROGRAMS.iter().flat_map(|program| self.processes_of(&self.path("other").join(program)));
        self.own_processes().into_iter().chain(bystander).collect()
    }

    fn processes_of(&self, program: &Path) -> Vec<ProcessId> {
        let entries = fs::read_dir("/proc").expect("proc is mounted").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let runs = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
        pids.filter(runs).filter_map(|pid| ProcessId::of(pid).ok().flatten()).collect()
    }

    pub fn is_bystander(&self, process: ProcessId) -> bool {
        let disks =
            [&self.target, &self.bystander].map(|disk| ahead_disk::find(&disk.name).ok().map(|disk| disk.daemon));
        ProcessId::own().is_ok_and(|own| own == process) || disks.contains(&Some(process))
    }

    /// Whether this process's note still exists.
    pub fn has_own_note(&self) -> bool {
        let own = ProcessId::own().expect("this process exists");
        let notes = ahead_process::undo::notes().expect("read the notes");
        notes.iter().any(|(_, note)| note.owner == own && matches!(note.action, Action::SetFile { .. }))
    }
}

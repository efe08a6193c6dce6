//! The image of the initramfs: whether it has the program that replays before PID 1, and how to put it there.
//!
//! ```text
//!     initramfs-tools, dracut ─▶ hook of the package ─▶ image with usr/lib/ahead/ahead-replay ─▶ the replay starts before PID 1
//!     no image, or without it ─▶ ahead-boot-replay.service ─────────────────────────────────────▶ the replay starts when systemd has begun
//! ```
//!
//! An image is a chain of archives in several formats. The distribution's own program lists it.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The program in the image, as its archives name it.
const PROGRAM: &str = "usr/lib/ahead/ahead-replay";
/// The longest listing. An image of 100 MB takes one to three seconds.
const LIST_TIME: Duration = Duration::from_secs(20);
/// The longest listing, bytes: an image has some thousand files.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Where the distributions keep the programs that list an image: initramfs-tools, dracut.
const LISTERS: [&str; 2] = ["usr/bin/lsinitramfs", "usr/bin/lsinitrd"];

/// The program that makes images of the initramfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// initramfs-tools (Debian, Ubuntu).
    InitramfsTools,
    /// dracut (Fedora, SUSE, Debian).
    Dracut,
    /// mkinitcpio (Arch). The package has no hook for it.
    Mkinitcpio,
}

impl Maker {
    pub fn name(self) -> &'static str {
        match self {
            Maker::InitramfsTools => "initramfs-tools",
            Maker::Dracut => "dracut",
            Maker::Mkinitcpio => "mkinitcpio",
        }
    }

    /// The command that makes the image again.
    pub(super) fn command(self) -> &'static str {
        match self {
            Maker::InitramfsTools => "sudo update-initramfs -u",
            Maker::Dracut => "sudo dracut --force",
            Maker::Mkinitcpio => "sudo mkinitcpio -P",
        }
    }

    /// What the package installs for it.
    fn hook(self) -> Option<&'static str> {
        match self {
            Maker::InitramfsTools => Some("usr/share/initramfs-tools/hooks/ahead"),
            Maker::Dracut => Some("usr/lib/dracut/modules.d/90ahead/module-setup.sh"),
            Maker::Mkinitcpio => None,
        }
    }

    /// That of the system in a directory. With two of them, the one that makes an image for each new kernel.
    fn of(root: &Path) -> Option<Maker> {
        let places = [
            (Maker::InitramfsTools, &["etc/kernel/postinst.d/initramfs-tools"][..]),
            (Maker::Dracut, &["etc/kernel/postinst.d/dracut", "usr/bin/dracut", "usr/sbin/dracut", "sbin/dracut"]),
            (Maker::InitramfsTools, &["usr/sbin/update-initramfs", "sbin/update-initramfs"]),
            (Maker::Mkinitcpio, &["usr/bin/mkinitcpio"]),
        ];
        let is_there = |paths: &[&str]| paths.iter().any(|path| root.join(path).symlink_metadata().is_ok());
        places.into_iter().find(|(_, paths)| is_there(paths)).map(|(maker, _)| maker)
    }
}

/// The image with which this kernel is booted, and whether it has the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initramfs {
    /// The program that makes images here.
    pub maker: Option<Maker>,
    /// Whether the hook for that program is installed.
    pub has_hook: bool,
    /// The image of the running kernel.
    pub image: Option<PathBuf>,
    /// Whether the image has the replay; an error: why that is not known.
    pub has_replay: Result<bool, String>,
}

impl Initramfs {
    /// That of this machine. Lists the image, which takes some seconds at most.
    pub fn here() -> Initramfs {
        Initramfs::below(Path::new("/"), &ahead_sys::machine::kernel_release())
    }

    /// Only the maker and its hook, for a system in a directory: no program of it is started.
    pub fn in_tree(root: &Path) -> Initramfs {
        let maker = Maker::of(root);
        let hook = maker.and_then(Maker::hook);
        let has_hook = hook.is_some_and(|hook| root.join(hook).symlink_metadata().is_ok());
        Initramfs { maker, has_hook, image: None, has_replay: Ok(false) }
    }

    fn below(root: &Path, release: &str) -> Initramfs {
        let image = images(root, release).into_iter().find(|image| image.symlink_metadata().is_ok());
        let has_replay = image.as_deref().map_or(Ok(false), |image| has_replay(root, image));
        Initramfs { image, has_replay, ..Initramfs::in_tree(root) }
    }

    /// The command that puts the replay into the image; `None`: it is there, there is no image to put it into, or no hook that does.
    pub fn command(&self) -> Option<&'static str> {
        let wanted = self.has_hook && self.has_replay != Ok(true);
        self.maker.filter(|_| wanted).map(Maker::command)
    }

    /// Where the replay of the next boot starts, as text.
    pub fn text(&self) -> String {
        let by_systemd = "by systemd, after the initramfs";
        let image = self.image.as_deref().map(|image| image.display().to_string());
        match (&image, &self.has_replay, self.command(), self.maker) {
            (Some(image), Ok(true), ..) => format!("before PID 1: {image} has ahead-replay"),
            (Some(image), Ok(false), Some(command), _) => {
                format!("{by_systemd}: {image} has no ahead-replay; run: {command}")
            }
            (Some(image), Err(why), ..) => format!("not known: {image}: {why}"),
            (None, _, Some(command), _) => format!("{by_systemd}: no image is found in /boot; run: {command}"),
            (_, _, None, Some(maker)) => format!(
                "{by_systemd}: no hook for {} is installed (the packages have one for initramfs-tools and dracut)",
                maker.name()
            ),
            (Some(image), ..) => format!("{by_systemd}: {image} has no ahead-replay"),
            (None, ..) => "by systemd: no initramfs is found here".into(),
        }
    }
}

/// The places in which the distributions keep the image of a kernel: Debian, Fedora, SUSE, Arch, and the boot loader specification.
fn images(root: &Path, release: &str) -> Vec<PathBuf> {
    let machine = fs::read_to_string(root.join("etc/machine-id")).unwrap_or_default();
    let machine = machine.trim();
    let mut names = vec![
        format!("boot/initrd.img-{release}"),
        format!("boot/initramfs-{release}.img"),
        format!("boot/initrd-{release}"),
    ];
    if !machine.is_empty() {
        let by_machine = ["efi", "boot/efi", "boot"].map(|home| format!("{home}/{machine}/{release}/initrd"));
        names.extend(by_machine);
    }
    names.push("boot/initramfs-linux.img".into());
    names.iter().map(|name| root.join(name)).collect()
}

/// Whether an image has the program. Errors: why that is not known.
fn has_replay(root: &Path, image: &Path) -> Result<bool, String> {
    match fs::File::open(image) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err("only root may read it; run: sudo ahead boot status".into());
        }
        Err(error) => return Err(error.to_string()),
        Ok(_) => {}
    }
    let listers = LISTERS.iter().map(|lister| root.join(lister));
    let lister = listers.into_iter().find(|lister| lister.exists());
    let lister = lister.ok_or("neither lsinitramfs nor lsinitrd is here to list it")?;
    let lines = list(&lister, image, Instant::now() + LIST_TIME).map_err(|e| format!("{}: {e}", lister.display()))?;
    if lines.is_empty() {
        return Err(format!("{} lists no file of it", lister.display()));
    }
    Ok(lines.iter().any(|line| names_program(line)))
}

/// Whether a line of a listing is that of the program: `usr/lib/ahead/ahead-replay`, or `-rwxr-xr-x 1 root root … usr/lib/ahead/ahead-replay`.
fn names_program(line: &[u8]) -> bool {
    let before = line.trim_ascii_end().strip_suffix(PROGRAM.as_bytes());
    before.is_some_and(|before| before.last().is_none_or(|at| b" /".contains(at)))
}

/// Starts a program that lists an image, and returns its lines. It is ended when the time is over.
fn list(lister: &Path, image: &Path, until: Instant) -> io::Result<Vec<Vec<u8>>> {
    let mut child = Command::new(lister)
        .arg(image)
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("LC_ALL", "C")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    let (sender, receiver) = mpsc::channel();
    // It ends with the output, or with this process.
    std::thread::Builder::new().name("list-image".into()).spawn(move || sender.send(read_lines(output)))?;
    let lines = receiver.recv_timeout(until.saturating_duration_since(Instant::now()));
    let lines = lines.unwrap_or_else(|_| {
        let why = format!("it has not ended in {} s", LIST_TIME.as_secs());
        Err(io::Error::new(ErrorKind::TimedOut, why))
    });
    match lines {
        // Its output ends with it.
        Ok(lines) => {
            let status = child.wait()?;
            let is_whole = status.success() || lines.iter().any(|line| names_program(line));
            if is_whole { Ok(lines) } else { Err(io::Error::other(format!("it failed ({status})"))) }
        }
        Err(error) => {
            // It may wait for a dead disk: nothing here waits for it.
            let group = Pid::from_raw(child.id().cast_signed());
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            Err(error)
        }
    }
}

fn read_lines(output: ChildStdout) -> io::Result<Vec<Vec<u8>>> {
    BufReader::new(output.take(MAX_LIST_BYTES)).split(b'\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A system with a program that lists an image by a script.
    fn system(maker: &str, hook: &str, lister: &str, script: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for path in [maker, hook, lister, "boot/initrd.img-6.1"].into_iter().filter(|path| !path.is_empty()) {
            fs::create_dir_all(home.path().join(path).parent().unwrap()).unwrap();
            fs::write(home.path().join(path), format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(home.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
        }
        home
    }

    fn debian(script: &str) -> Initramfs {
        let home = system("usr/sbin/update-initramfs", Maker::InitramfsTools.hook().unwrap(), LISTERS[0], script);
        Initramfs::below(home.path(), "6.1")
    }

    #[test]
    fn image_with_the_program_starts_the_replay_before_pid_1() {
        let found = debian("echo kernel; echo usr/lib/ahead; echo usr/lib/ahead/ahead-replay; echo usr/bin");
        assert_eq!((found.has_replay.clone(), found.command()), (Ok(true), None));
        assert!(found.text().starts_with("before PID 1: "), "{}", found.text());
        let home = system(
            "usr/bin/dracut",
            Maker::Dracut.hook().unwrap(),
            LISTERS[1],
            "echo 'drwxr-xr-x 1 root root 0 Jan 1 2026 usr/lib/ahead'; echo '-rwxr-xr-x 1 root root 9 Jan 1 2026 usr/lib/ahead/ahead-replay'",
        );
        assert_eq!(Initramfs::below(home.path(), "6.1").has_replay, Ok(true));
    }

    #[test]
    fn image_without_the_program_names_the_command_that_puts_it_there() {
        let script = "echo usr/lib/ahead/ahead-replay-other; echo xusr/lib/ahead/ahead-replay; echo ahead-replay";
        let found = debian(script);
        assert_eq!((found.has_replay.clone(), found.command()), (Ok(false), Some("sudo update-initramfs -u")));
        assert!(found.text().contains("by systemd") && found.text().ends_with("sudo update-initramfs -u"), "{found:?}");
        let home = system("usr/bin/dracut", Maker::Dracut.hook().unwrap(), LISTERS[1], "echo usr");
        assert_eq!(Initramfs::below(home.path(), "6.1").command(), Some("sudo dracut --force"));
        assert_eq!(Initramfs::below(home.path(), "6.2").image, None);
        assert_eq!(Initramfs::in_tree(home.path()).command(), Some("sudo dracut --force"));
        // Both are installed: the one that is called for each new kernel makes the image.
        fs::create_dir_all(home.path().join("etc/kernel/postinst.d")).unwrap();
        fs::write(home.path().join("etc/kernel/postinst.d/initramfs-tools"), "").unwrap();
        assert_eq!(Maker::of(home.path()), Some(Maker::InitramfsTools));
    }

    #[test]
    fn maker_without_a_hook_and_no_maker_leave_it_to_systemd() {
        let home = system("usr/bin/mkinitcpio", "", LISTERS[1], "echo usr");
        let found = Initramfs::below(home.path(), "6.1");
        assert_eq!(found.command(), None);
        assert!(found.text().contains("no hook for mkinitcpio"), "{}", found.text());
        let none = tempfile::tempdir().unwrap();
        let found = Initramfs::below(none.path(), "6.1");
        assert_eq!((found.command(), found.text().as_str()), (None, "by systemd: no initramfs is found here"));
    }

    #[test]
    fn listing_that_fails_is_not_taken_for_an_image_without_the_program() {
        for (script, why) in [("exit 0", "lists no file"), ("echo usr; exit 2", "it failed (exit status: 2)")] {
            let found = debian(script);
            assert!(found.has_replay.clone().unwrap_err().contains(why), "{found:?}");
            assert!(found.text().starts_with("not known: "), "{}", found.text());
        }
    }

    #[test]
    fn listing_that_hangs_is_ended_and_not_awaited() {
        let home = tempfile::tempdir().unwrap();
        let (lister, pid) = (home.path().join("hangs"), home.path().join("pid"));
        // The output stays open in a process that the script has started.
        fs::write(&lister, format!("#!/bin/sh\nsleep 1000 & echo $! >{}; wait\n", pid.display())).unwrap();
        fs::set_permissions(&lister, fs::Permissions::from_mode(0o755)).unwrap();
        let mut began = Instant::now();
        // As soon as the script has started the other process.
        let until = || Instant::now() + Duration::from_millis(200);
        loop {
            assert_eq!(list(&lister, Path::new("/"), until()).unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(began.elapsed() < Duration::from_secs(60));
            if fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
                break;
            }
            began = began.min(Instant::now());
        }
        let sleeps = fs::read_to_string(&pid).unwrap();
        let stat = format!("/proc/{}/stat", sleeps.trim());
        // Killed processes end at once, but for those that wait for a device.
        while fs::read_to_string(&stat).is_ok_and(|stat| stat.contains("(sleep)") && !stat.contains(" Z ")) {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }
}

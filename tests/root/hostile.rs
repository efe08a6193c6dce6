//! Attacks of another user on root: through files in the user's own directory while `ahead` works there, and through entries
//! in the mount table.

use crate::crash::wait_until;
use crate::mounted::Mounted;
use ahead_sys::mounting;
use assert_cmd::cargo::cargo_bin;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The attacker: user id 65534 is unprivileged everywhere.
const STRANGER: u32 = 65_534;
const KEPT: &str = "only root may write this";

/// A directory of the other user, and a file that only root may write.
fn ground(mounted: &Mounted) -> (PathBuf, PathBuf) {
    let (home, victim) = (mounted.root.join("home"), mounted.root.join("victim"));
    fs::create_dir(&home).unwrap();
    chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
    fs::write(&victim, KEPT).unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    (home, victim)
}

fn begun(arguments: &[&str], last: &Path) -> Child {
    let mut command = Command::new(cargo_bin("ahead"));
    command.args(arguments).arg(last).env_remove("SUDO_USER").env_remove("SUDO_UID");
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The directory that a measurement has created in `home`, once its first file has one mebibyte.
fn tree_in(home: &Path) -> PathBuf {
    let found = RefCell::new(None);
    wait_until("the files", || {
        let names = fs::read_dir(home).unwrap().flatten().map(|entry| entry.path());
        let mut trees = names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("ahead-bench-"));
        *found.borrow_mut() = trees.find(|tree| fs::metadata(tree.join("0")).is_ok_and(|file| file.len() >= 1 << 20));
        found.borrow().is_some()
    });
    found.into_inner().unwrap()
}

/// The attack: moves the tree away and puts links to the victim in its place.
fn replace(tree: &Path, victim: &Path) {
    let script = "mv \"$1\" \"$1.away\" && mkdir \"$1\" && ln -s \"$2\" \"$1/0\" && ln -s \"$2\" \"$1/1\"";
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={STRANGER}"), &format!("--regid={STRANGER}"), "--clear-groups"]);
    let done = command.args(["sh", "-c", script, "sh"]).arg(tree).arg(victim).status();
    assert!(done.unwrap().success());
}

/// Regression: `bench` opened its files by path for each run, and recreated the files that it writes: any file was overwritten.
#[test]
fn bench_does_not_follow_links_that_replace_its_files() {
    for policy in ["kernel", "linux-6.18"] {
        let Some(mounted) = Mounted::new("ext4") else { return };
        let (home, victim) = ground(&mounted);
        let runs = ["bench", "bonnie", "--size", "1M", "--runs", "1000", "--policy", policy, "--directory"];
        let child = RefCell::new(begun(&runs, &home));
        let tree = tree_in(&home);
        replace(&tree, &victim);
        let is_written = || fs::read(&victim).unwrap() != KEPT.as_bytes();
        wait_until("its end", || is_written() || child.borrow_mut().try_wait().unwrap().is_some());
        let mut child = child.into_inner();
        let ended = child.try_wait().unwrap();
        // Only jobs that continue to write.
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(fs::read_to_string(&victim).unwrap(), KEPT, "{policy}");
        assert!(ended.is_some_and(|status| status.code() == Some(1)), "{policy}: {stderr}");
        assert!(stderr.contains("vanished during the measurement"), "{policy}: {stderr}");
        assert!(tree.join("0").is_symlink(), "another's stays");
        assert_eq!(fs::read_dir(tree.with_extension("away")).unwrap().count(), 0, "bench left its own files");
    }
}

/// With sudo a page is written with the user's rights: it belongs to the user, and a link cannot lead to root's files.
#[test]
fn page_written_with_sudo_belongs_to_the_user_and_root_follows_no_link() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let (home, victim) = ground(&mounted);
    let scenario = mounted.root.join("scan.toml");
    let text = "policies = [\"none\"]\n[disk]\nmodel = \"ssd\"\n[[workload]]\npattern = \"sequential\"\nfile_mb = 1\n";
    fs::write(&scenario, text).unwrap();
    let (directory, scenario) = (home.to_str().unwrap(), scenario.to_str().unwrap());
    let commands = [
        vec!["bench", "mmapit", "--size", "64K", "--runs", "1", "--directory", directory, "--html"],
        vec!["sim", "run", scenario, "--html"],
        vec!["sim", "sweep", scenario, "--html"],
    ];
    for (number, command) in commands.iter().enumerate() {
        let write = |page: &Path| {
            let mut ahead = Command::new(cargo_bin("ahead"));
            ahead.args(command).arg(page).env_remove("SUDO_USER").env("SUDO_UID", STRANGER.to_string());
            ahead.output().unwrap()
        };
        let (page, link) = (home.join(format!("{number}.html")), home.join(format!("{number}.link")));
        symlink(&victim, &link).unwrap();
        let (written, led) = (write(&page), write(&link));
        assert!(written.status.success(), "{command:?}: {written:?}");
        assert_eq!(fs::metadata(&page).unwrap().uid(), STRANGER, "{command:?}");
        assert!(!led.status.success(), "{command:?}: {led:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), KEPT, "{command:?}");
    }
}

/// A stopped FUSE server, which does not answer.
struct Silent {
    server: Child,
    point: tempfile::TempDir,
}

impl Silent {
    /// `None`: bindfs is missing.
    fn new(below: &Path) -> Option<Silent> {
        let point = tempfile::tempdir().unwrap();
        let at = point.path().canonicalize().unwrap();
        // Timeouts of 0: the kernel must ask the server each time.
        let options = "attr_timeout=0,entry_timeout=0,negative_timeout=0";
        let server = Command::new("bindfs").args(["-f", "-o", options]).arg(below).arg(&at).spawn().ok()?;
        let silent = Silent { server, point };
        wait_until("the mount", || mounting::is_mount_point(&at).unwrap());
        silent.signal("STOP");
        Some(silent)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.server.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.signal("CONT");
        let _ = Command::new("umount").arg("--lazy").arg(self.point.path()).status();
        let _ = self.server.wait();
    }
}

/// Regression: `bench`, `tune` and `probe` waited without end for a silent server, and `tune --all` for any user's server.
#[test]
fn a_silent_server_is_reported_and_does_not_delay_the_others() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let Some(silent) = Silent::new(&mounted.root) else { return eprintln!("skipped: no bindfs") };
    let root = tempfile::tempdir().unwrap();
    let (point, kept) = (silent.point.path(), root.path());
    let of_one: Vec<Child> =
        [&["bench", "streams", "--size", "1M", "--directory"][..], &["probe"], &["tune", "--check"]]
            .iter()
            .map(|arguments| begun(arguments, point))
            .collect();
    let all = RefCell::new(begun(&["tune", "--all", "--check", "--root"], kept));
    for child in of_one {
        let child = RefCell::new(child);
        wait_until("the end of one", || child.borrow_mut().try_wait().unwrap().is_some());
        let output = child.into_inner().wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(77) && stderr.contains("has not answered for"), "{stderr}");
    }
    wait_until("the end of all", || all.borrow_mut().try_wait().unwrap().is_some());
}

/// Files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Regression: the type of a FUSE mount, which any user may choose, was written into a unit unchanged. Root executed the text
/// after a line feed in it.
#[test]
fn the_type_of_a_fuse_mount_does_not_become_a_line_of_a_unit() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let (above, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in ["etc/udev", "etc/systemd"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let bound = Command::new("bindfs")
        .args(["-o", "subtype=x\nExecStartPre=/bin/false"])
        .args([&mounted.root, above.path()])
        .status();
    if !bound.is_ok_and(|bound| bound.success()) {
        return eprintln!("skipped: no bindfs");
    }
    let tune = |arguments: &[&str]| {
        let mut command = Command::new(cargo_bin("ahead"));
        command.arg("tune").arg(above.path()).arg("--root").arg(root.path()).args(arguments).output().unwrap()
    };
    let refused = tune(&["--kb", "512", "--persist"]);
    let kept = files(root.path());
    let (applied, restored) = (tune(&["--kb", "512", "--apply"]), tune(&["--restore"]));
    let unmounted = Command::new("umount").arg(above.path()).status().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), kept), (Some(77), Vec::new()), "{stderr}");
    // Escaped, and on one line; other lines may report a wait for other commands.
    let lines = || stderr.lines().filter(|line| line.contains("ExecStartPre"));
    assert!(lines().count() == 1 && lines().all(|line| line.contains("cannot be written to a unit")), "{stderr}");
    assert!(applied.status.success() && restored.status.success() && unmounted.success(), "{applied:?} {restored:?}");
    assert_eq!(files(root.path()), Vec::<PathBuf>::new());
}

//! Attacks of another user on root: through files in the user's own directory while `ahead` works there, and through entries
//! in the mount table.

use ahead_sys::mounting;
use ahead_sys::root::Root;
use ahead_sys::trusted::{Use, trusted_path};
use ahead_sys::within::within;
use ahead_tests::rig::mounted::bindfs;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::silent_mount::SilentMount;
use std::cell::RefCell;
use std::os::unix::fs::{chown, symlink};

const KEPT: &str = "only root may write this";

/// A directory of the other user, and a file that only root may write.
fn ground(mounted: &Mounted) -> (PathBuf, PathBuf) {
    let (home, victim) = (mounted.root.join("home"), mounted.root.join("victim"));
    fs::create_dir(&home).unwrap();
    chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
    fs::write(&victim, KEPT).unwrap();
    set_mode(&victim, 0o600);
    (home, victim)
}

/// The directory that a measurement has created in `home`, once its first file has one mebibyte.
fn tree_in(home: &Path) -> PathBuf {
    let found = RefCell::new(None);
    wait_until("the files", || {
        let mut trees = names_with(home, "ahead-bench-").into_iter().map(|name| home.join(name));
        *found.borrow_mut() = trees.find(|tree| fs::metadata(tree.join("0")).is_ok_and(|file| file.len() >= 1 << 20));
        found.borrow().is_some()
    });
    found.into_inner().unwrap()
}

/// The attack: moves the tree away and puts links to the victim in its place.
fn replace(tree: &Path, victim: &Path) {
    let script = "mv \"$1\" \"$1.away\" && mkdir \"$1\" && ln -s \"$2\" \"$1/0\" && ln -s \"$2\" \"$1/1\"";
    program(tree).arg(victim).by_script(script).as_stranger().ok();
}

/// Regression: `bench` opened its files by path for each run, and recreated the files that it writes: any file was overwritten.
#[test]
fn bench_does_not_follow_links_that_replace_its_files() {
    for policy in ["kernel", "linux-6.18"] {
        let Some(mounted) = Mounted::new("ext4") else { return };
        let (home, victim) = ground(&mounted);
        let runs = ["bench", "bonnie", "--size", "1M", "--runs", "1000", "--policy", policy, "--directory"];
        let mut child = ahead(runs).arg(&home).start();
        let tree = tree_in(&home);
        replace(&tree, &victim);
        let is_written = || fs::read(&victim).unwrap() != KEPT.as_bytes();
        wait_until("its end", || is_written() || child.has_ended());
        assert_eq!(fs::read_to_string(&victim).unwrap(), KEPT, "{policy}");
        child.ends_with(1).says("vanished during the measurement");
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
        let write = |page: &Path| ahead(command).arg(page).env("SUDO_UID", STRANGER.to_string()).done();
        let (page, link) = (home.join(format!("{number}.html")), home.join(format!("{number}.link")));
        symlink(&victim, &link).unwrap();
        let (written, led) = (write(&page), write(&link));
        assert!(written.status.success(), "{command:?}: {written:?}");
        assert_eq!(fs::metadata(&page).unwrap().uid(), STRANGER, "{command:?}");
        assert!(!led.status.success(), "{command:?}: {led:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), KEPT, "{command:?}");
    }
}

/// Regression: `bench`, `tune` and `probe` waited without end for a silent server, and `tune --all` for any user's server.
#[test]
fn a_silent_server_is_reported_and_does_not_delay_the_others() {
    // Another target of --all.
    let Some(_mounted) = Mounted::new("ext4") else { return };
    let (home, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(silent) = SilentMount::not_read(home.path().canonicalize().unwrap().join("silent")) else { return };
    let (point, kept) = (silent.point.as_path(), root.path());
    let commands = [&["bench", "streams", "--size", "1M", "--directory"][..], &["probe"], &["tune", "--check"]];
    let limit = Duration::from_secs(60);
    let of_one = commands.map(|arguments| ahead(arguments).arg(point).limit(limit).start());
    let mut all = ahead(["tune", "--all", "--check", "--root"]).arg(kept).limit(limit).start();
    for command in of_one {
        command.ends_with(77).says("has not answered for");
    }
    all.status();
}

/// Regression: the process behind a user's FUSE mount says that its files belong to root, and root believed it.
#[test]
fn files_on_a_fuse_mount_are_trusted_only_if_root_has_mounted_it() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let Some(silent) = SilentMount::not_read_of_user(home.join("silent"), STRANGER) else { return };
    // As programs and rules are looked at.
    let trusted = |path: &'static str, when: Use| {
        let root = Root::at(&home).unwrap();
        let looked = within(Duration::from_secs(60), move || trusted_path("testing", &root, Path::new(path), when));
        looked.expect("the process of the other user is not asked").map(drop)
    };
    symlink("/silent/program", home.join("link")).unwrap();
    let expected = format!("{} is on a FUSE mount of user {STRANGER}", silent.point.display());
    for (path, when) in [("/silent/program", Use::Later), ("/silent", Use::Now), ("/link", Use::Later)] {
        let refused = trusted(path, when).unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains(&expected), "{path}: {refused}");
    }
    let [above, below] = make_directories(&home, ["above", "below"]);
    fs::write(below.join("program"), "").unwrap();
    let Some(_bound) = bindfs(&[], &below, &above) else { return };
    assert!(mounting::is_mount_point(&above).unwrap());
    assert!(trusted("/above/program", Use::Later).is_ok());
}

/// Regression: the type of a FUSE mount, which any user may choose, was written into a unit unchanged. Root executed the text
/// after a line feed in it.
#[test]
fn the_type_of_a_fuse_mount_does_not_become_a_line_of_a_unit() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let (above, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_directories(root.path(), ["etc/udev", "etc/systemd"]);
    let options = ["-o", "subtype=x\nExecStartPre=/bin/false"];
    let Some(_bound) = bindfs(&options, &mounted.root, above.path()) else { return };
    let tune =
        |arguments: &[&str]| ahead(["tune"]).arg(above.path()).arg("--root").arg(root.path()).args(arguments).done();
    let refused = tune(&["--kb", "512", "--persist"]);
    let kept = files_below(root.path());
    let (applied, restored) = (tune(&["--kb", "512", "--apply"]), tune(&["--restore"]));
    // Escaped, and on one line; other lines may report a wait for other commands.
    let lines = || refused.err.lines().filter(|line| line.contains("ExecStartPre"));
    assert!(lines().count() == 1 && lines().all(|line| line.contains("cannot be written to a unit")), "{refused}");
    assert_eq!((refused.status.code(), kept), (Some(77), Vec::new()), "{refused}");
    applied.success();
    restored.success();
    assert_eq!(files_below(root.path()), Vec::<PathBuf>::new());
}

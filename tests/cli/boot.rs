//! `ahead boot`: units in a tree, status, and the bad inputs. Boots themselves: `make bench-boot`.

use crate::documents;
use ahead_tests::rig::prelude::*;
use std::os::unix::fs::{chown, symlink};

#[test]
fn install_and_remove_leave_a_tree_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().to_str().unwrap();
    let missing = ahead(["boot", "install", "--root", root]).done();
    if !ahead_sys::machine::is_root() {
        missing.code(77);
        return;
    }
    missing.code(1).says("/usr/bin/ahead: there is no such program");
    let home = tree();
    let root = home.path().to_str().unwrap();
    let before = files_below(home.path());
    ahead(["boot", "install", "--root", root, "--linger", "1500ms", "--stale", "25"]).ok();
    let unit = |name: &str| fs::read_to_string(home.path().join("etc/systemd/system").join(name)).unwrap();
    assert!(unit("ahead-boot-done.timer").contains("\nOnActiveSec=1.5s\n"));
    assert!(unit("ahead-boot-done.service").contains(" boot done --stale 25\n"));
    ahead(["boot", "install", "--root", root, "--stale", "101"]).fails(2);
    assert_eq!(files_below(home.path()).len(), before.len() + 7);
    ahead(["boot", "remove", "--purge", "--root", root]).ok();
    assert_eq!(files_below(home.path()), before);
    ahead(["boot", "remove", "--root", root]).done().prints("nothing is installed");
}

/// A tree with a program, in which only root may write, with any umask of this test.
fn tree() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("usr/bin")).unwrap();
    fs::write(home.path().join("usr/bin/ahead"), "x").unwrap();
    for path in ["usr", "usr/bin", "usr/bin/ahead"] {
        set_mode(home.path().join(path), 0o755);
    }
    home
}

/// Regression: with umask 0 units and the directory of recordings could be written by all users.
#[test]
fn modes_of_installed_files_do_not_depend_on_the_umask() {
    let Some(()) = needs_root() else { return };
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    for umask in ["0", "077"] {
        let home = tree();
        ahead(["boot", "install", "--root"]).arg(home.path()).by_script(&format!("umask {umask}; exec \"$@\"")).ok();
        for unit in files_below(&home.path().join("etc")).iter().filter(|path| !path.is_symlink()) {
            assert_eq!(mode(unit), 0o644, "{} with umask {umask}", unit.display());
        }
        let units = "etc etc/systemd etc/systemd/system etc/systemd/system/sysinit.target.wants".split(' ');
        for directory in units.chain(["var", "var/lib", "var/lib/ahead", "var/lib/ahead/boot"]) {
            assert_eq!(mode(&home.path().join(directory)), 0o755, "{directory} with umask {umask}");
        }
    }
}

/// Regression: `boot install` made root run a program at each boot that a user could replace.
#[test]
fn program_that_a_user_can_replace_is_refused() {
    let Some(()) = needs_root() else { return };
    let home = tree();
    let install = || ahead(["boot", "install", "--root", home.path().to_str().unwrap()]).done();
    for path in ["usr/bin/ahead", "usr/bin", "usr"] {
        let path = home.path().join(path);
        chown(&path, Some(54_321), None).unwrap();
        let parts = ["running /usr/bin/ahead at each boot as root", "belongs to user 54321", "chown root:"];
        install().code(77).says_all(&parts);
        chown(&path, Some(0), None).unwrap();
        set_mode(&path, 0o777);
        install().code(77);
        set_mode(&path, 0o755);
    }
    assert!(!home.path().join("etc").exists(), "nothing half done");
    install().success();
}

/// Regression: the first deleted and the second overwrote what a link in the tree leads to.
#[test]
fn install_and_purge_in_a_tree_leave_the_host_alone() {
    let Some(()) = needs_root() else { return };
    let (home, host) = (tree(), tempfile::tempdir().unwrap());
    let root = home.path().to_str().unwrap();
    fs::create_dir_all(home.path().join("etc/systemd/system")).unwrap();
    fs::create_dir_all(home.path().join("var/lib")).unwrap();
    for file in ["unit", "boot/kept"] {
        fs::create_dir_all(host.path().join("boot")).unwrap();
        fs::write(host.path().join(file), "of the host").unwrap();
    }
    let unit = "etc/systemd/system/ahead-boot-replay.service";
    symlink(host.path().join("unit"), home.path().join(unit)).unwrap();
    symlink(host.path(), home.path().join("var/lib/ahead")).unwrap();
    ahead(["boot", "install", "--root", root]).ok();
    assert_eq!(fs::read_to_string(host.path().join("unit")).unwrap(), "of the host");
    ahead(["boot", "remove", "--purge", "--root", root]).ok();
    assert_eq!(fs::read_to_string(host.path().join("boot/kept")).unwrap(), "of the host");
}

#[test]
fn installation_in_a_tree_ends_with_the_step_that_its_initramfs_needs() {
    let Some(()) = needs_root() else { return };
    let home = tree();
    let install = || ahead(["boot", "install", "--root", home.path().to_str().unwrap()]).done().out;
    assert!(!install().contains("next: "));
    for path in ["usr/sbin/update-initramfs", "usr/share/initramfs-tools/hooks/ahead"] {
        fs::create_dir_all(home.path().join(path).parent().unwrap()).unwrap();
        fs::write(home.path().join(path), "").unwrap();
    }
    let output = install();
    assert!(output.contains("\nnext: sudo update-initramfs -u, in the system in "), "{output}");
}

#[test]
fn every_key_of_the_status_is_documented() {
    let mut status = ahead(["boot", "status", "--json"]).json();
    // Its keys are documented with `ahead replay --json`.
    status["account"].take();
    documents::assert_documented(&["### ahead boot status --json"], &status);
}

#[test]
fn linger_without_readiness_is_a_mistake() {
    ahead(["record", "--linger", "1s", "--", "true"]).fails(2).says("--linger begins when the run is ready");
}

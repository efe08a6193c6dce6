//! `ahead boot`: units in a tree, status, and the bad inputs. Boots themselves: `make bench-boot`.

use crate::documents;
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn ahead(arguments: &[&str]) -> std::process::Output {
    Command::cargo_bin("ahead").unwrap().args(arguments).output().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// All files and links below a directory.
fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

#[test]
fn install_and_remove_leave_a_tree_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().to_str().unwrap();
    let missing = ahead(&["boot", "install", "--root", root]);
    if !is_root() {
        assert_eq!(missing.status.code(), Some(77), "{missing:?}");
        return;
    }
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        missing.status.code() == Some(1) && message.contains("/usr/bin/ahead: there is no such program"),
        "{message}"
    );
    fs::create_dir_all(home.path().join("usr/bin")).unwrap();
    fs::write(home.path().join("usr/bin/ahead"), "x").unwrap();
    let before = files(home.path());
    let installed = ahead(&["boot", "install", "--root", root, "--linger", "1500ms", "--stale", "25"]);
    assert!(installed.status.success(), "{installed:?}");
    let unit = |name: &str| fs::read_to_string(home.path().join("etc/systemd/system").join(name)).unwrap();
    assert!(unit("ahead-boot-done.timer").contains("\nOnActiveSec=1.5s\n"));
    assert!(unit("ahead-boot-done.service").contains(" boot done --stale 25\n"));
    let refused = ahead(&["boot", "install", "--root", root, "--stale", "101"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(files(home.path()).len(), before.len() + 7);
    assert!(ahead(&["boot", "remove", "--purge", "--root", root]).status.success());
    assert_eq!(files(home.path()), before);
    let again = ahead(&["boot", "remove", "--root", root]);
    assert!(String::from_utf8_lossy(&again.stdout).starts_with("nothing is installed"), "{again:?}");
}

#[test]
fn every_key_of_the_status_is_documented() {
    let status = ahead(&["boot", "status", "--json"]);
    assert!(status.status.success(), "{status:?}");
    let mut status: Value = serde_json::from_slice(&status.stdout).unwrap();
    // Its keys are documented with `ahead replay --json`.
    status["account"].take();
    documents::assert_documented(&["### ahead boot status --json"], &status);
}

#[test]
fn linger_without_readiness_is_a_mistake() {
    let output = ahead(&["record", "--linger", "1s", "--", "true"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && message.contains("--linger begins when the run is ready"), "{message}");
}

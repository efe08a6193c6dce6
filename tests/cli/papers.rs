//! `ahead papers`: the papers' figures beside the measured ones. These tests use Roudier's paper, which takes the least
//! time.

use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.arg("papers").args(arguments);
    command
}

#[test]
fn json_is_a_list_of_lines() {
    let output = ahead(&["roudier", "--json"]).assert().success().get_output().stdout.clone();
    let list: Value = serde_json::from_slice(&output).unwrap();
    let list = list.as_array().unwrap();
    assert!(list.len() > 20);
    for line in list {
        assert_eq!(line["paper"], "roudier");
        for key in ["claim", "quoted", "ours", "tolerance", "verdict"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
        assert!(line["live"].is_null() && line["live_verdict"].is_null());
        assert!(["holds", "differs", "not-shown", "answered"].contains(&line["verdict"].as_str().unwrap()), "{line}");
        assert_eq!(line.as_object().unwrap().len(), 8, "{line}");
    }
    let speed = list.iter().find(|line| line["claim"] == "synchronous: speed").unwrap();
    assert_eq!(
        (&speed["quoted"], &speed["ours"], &speed["verdict"]),
        (&"2.67 MB/s".into(), &"2.67 MB/s".into(), &"holds".into())
    );
}

#[test]
fn text_shows_the_inputs_of_a_run() {
    let says = predicate::str::contains("Asynchronous read-ahead")
        .and(predicate::str::contains("quoted: 2.67 MB/s  ours: 2.67 MB/s"))
        .and(predicate::str::contains("the disk's platter: 4 MB/s (stated)"))
        .and(predicate::str::is_match(r"\d+ hold, \d+ differ, \d+ answered, \d+ not shown").unwrap());
    ahead(&["roudier"]).assert().success().stdout(says).stderr("");
}

#[test]
fn pages_are_written() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("pages");
    ahead(&["roudier", "--html", pages.to_str().unwrap()]).assert().success();
    let page = fs::read_to_string(pages.join("roudier.html")).unwrap();
    assert!(
        page.contains("<polyline class=\"curve series-1\"")
            && page.contains("<h2>Inputs</h2>")
            && !page.contains("<script")
    );
    let index = fs::read_to_string(pages.join("index.html")).unwrap();
    assert!(index.contains("href=\"./roudier.html\""), "{index}");
    assert_eq!(fs::read_dir(&pages).unwrap().count(), 2);
}

/// Regression: an interrupted run left an empty directory. (SIGINT may be ignored where tests run.)
#[test]
fn an_interrupted_run_leaves_no_pages() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("pages");
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["papers", "wu", "--html", pages.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A run takes some seconds; its first step creates the directory.
    crate::until_it_computes(child.id(), 20);
    let kill = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn mistakes_are_reported_before_the_work() {
    let unknown = predicate::str::contains("no paper is called \"card\"; there are roudier, oconnor-tracy");
    ahead(&["card"]).assert().code(2).stdout("").stderr(unknown);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "kept").unwrap();
    let no_directory = predicate::str::contains("is not a directory");
    ahead(&["roudier", "--html", file.to_str().unwrap()]).assert().code(1).stdout("").stderr(no_directory);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    ahead(&["roudier", "--html", "/no/such/place/pages"]).assert().code(1).stdout("");
}

#[test]
fn without_root_the_real_page_cache_is_not_used() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: this is root; tests/root runs these commands");
        return;
    }
    ahead(&["roudier", "--live"]).assert().code(77).stdout("").stderr(predicate::str::contains("as root"));
}

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
fn boots_of_real_systems_stand_beside_table_1() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/papers/tests/boot.json");
    let shown =
        predicate::str::contains("live: whole files -50.0 %, our replay before PID 1 -62.5 %, warm -75.0 % (holds)")
            .and(predicate::str::contains(
                "real boots: x86_64, 2 CPUs, 24 GiB, Linux 6.18.44, commit ca7467d, 2026-11-24",
            ));
    ahead(&["opdenacker", "--boots", fixture]).assert().success().stdout(shown).stderr("");
}

#[test]
fn unusable_boots_are_reported_before_the_work() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("boot.json");
    let named = |why: &'static str| predicate::str::contains("boot.json: ").and(predicate::str::contains(why));
    let refused = |path: &std::path::Path, why| {
        let one_line = predicate::function(|text: &str| text.lines().count() == 1);
        ahead(&["--boots"]).arg(path).assert().code(1).stdout("").stderr(one_line.and(why));
    };
    refused(&file, named("No such file"));
    fs::write(&file, "{\"commit\": 7}").unwrap();
    refused(&file, named("line 1 column 12; make bench-boot writes such a file"));
    fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    refused(&file, named("longer than 1048576 bytes"));
    fs::write(&file, "[".repeat(100_000)).unwrap();
    refused(&file, named("make bench-boot writes such a file"));
    fs::remove_file(&file).unwrap();
    // Opening it would wait for a writer.
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    refused(&file, named("not a regular file"));
}

#[test]
fn without_root_the_real_page_cache_is_not_used() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: this is root; tests/root runs these commands");
        return;
    }
    ahead(&["roudier", "--live"]).assert().code(77).stdout("").stderr(predicate::str::contains("as root"));
}

//! `ahead papers`: the papers' figures beside the measured ones. These tests use Roudier's paper, which takes the least
//! time.

use ahead_tests::rig::prelude::*;
use ahead_tests::rig::program::signal_of;

fn papers(arguments: &[&str]) -> Program {
    ahead(["papers"]).args(arguments)
}

#[test]
fn json_is_a_list_of_lines() {
    let output = papers(&["roudier", "--json"]).ok().out_bytes;
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
    let done = papers(&["roudier"]).ok().err_is("").prints_all(&[
        "Asynchronous read-ahead",
        "quoted: 2.67 MB/s  ours: 2.67 MB/s",
        "the disk's platter: 4 MB/s (stated)",
    ]);
    let sums = done.out.lines().filter(|line| {
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let pairs = words.chunks(2).map(|pair| (pair[0].parse::<u32>().is_ok(), &pair[1..]));
        pairs.eq([(true, &["hold"][..]), (true, &["differ"]), (true, &["answered"]), (true, &["not"]), (false, &[])])
    });
    assert_eq!(sums.count(), 1, "{done}");
}

#[test]
fn pages_are_written() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("pages");
    papers(&["roudier", "--html", pages.to_str().unwrap()]).ok();
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
    let mut child = papers(&["wu", "--html", pages.to_str().unwrap()]).start();
    // A run takes some seconds; its first step creates the directory.
    crate::until_it_computes(child.pid(), 20);
    child.signal("TERM");
    assert_eq!(signal_of(child.status()), Some(15));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn mistakes_are_reported_before_the_work() {
    let unknown = ["no paper is called \"card\"; there are roudier, oconnor-tracy"];
    papers(&["card"]).fails(2).out_is("").says_all(&unknown);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "kept").unwrap();
    let no_directory = ["is not a directory"];
    papers(&["roudier", "--html", file.to_str().unwrap()]).fails(1).out_is("").says_all(&no_directory);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    papers(&["roudier", "--html", "/no/such/place/pages"]).fails(1).out_is("");
}

#[test]
fn boots_of_real_systems_stand_beside_table_1() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/papers/tests/boot.json");
    let shown = [
        "live: whole files -50.0 %, our replay before PID 1 -62.5 %, warm -75.0 % (holds)",
        "real boots: x86_64, 2 CPUs, 24 GiB, Linux 6.18.44, commit ca7467d, 2026-11-24",
    ];
    papers(&["opdenacker", "--boots", fixture]).ok().prints_all(&shown).err_is("");
}

#[test]
fn unusable_boots_are_reported_before_the_work() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("boot.json");
    let refused = |path: &Path, why: &str| {
        papers(&["--boots"]).arg(path).fails(1).out_is("").says("boot.json: ").says(why).in_one_line();
    };
    refused(&file, "No such file");
    fs::write(&file, "{\"commit\": 7}").unwrap();
    refused(&file, "line 1 column 12; make bench-boot writes such a file");
    fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    refused(&file, "longer than 1048576 bytes");
    fs::write(&file, "[".repeat(100_000)).unwrap();
    refused(&file, "make bench-boot writes such a file");
    fs::remove_file(&file).unwrap();
    // Opening it would wait for a writer.
    make_fifo(&file);
    refused(&file, "not a regular file");
}

#[test]
fn without_root_the_real_page_cache_is_not_used() {
    if ahead_sys::machine::is_root() {
        eprintln!("skipped: this is root; tests/root runs these commands");
        return;
    }
    papers(&["roudier", "--live"]).fails(77).out_is("").says("as root");
}

//! The examples run.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Cargo builds the examples with the tests, into `examples` beside the directory of this test.
fn run(example: &str, arguments: &[&str]) -> Output {
    let deps = std::env::current_exe().unwrap();
    let path: PathBuf = deps.parent().unwrap().with_file_name("examples").join(example);
    Command::new(&path).args(arguments).output().unwrap_or_else(|error| {
        panic!(
            "{}: {error} (cargo test -p ahead builds the examples, cargo test --test alone does not)",
            path.display()
        )
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number before a word.
fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at =
        words.iter().position(|found| found.trim_matches(';') == word).unwrap_or_else(|| panic!("no {word}: {text}"));
    words[at - 1].parse().unwrap()
}

#[test]
#[cfg(feature = "observe")]
fn replay_records_a_file_and_prefetches_it() {
    let output = run("replay", &[]);
    if output.status.code() == Some(77) {
        eprintln!("skipped: {}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let recorded = out.lines().find(|line| line.starts_with("recorded: ")).unwrap();
    let prefetched = out.lines().find(|line| line.starts_with("prefetched: ")).unwrap();
    // The sample has 4 MiB; `cat` and its libraries are cached or not.
    assert!(number_before(recorded, "bytes") >= 4 << 20, "{out}");
    assert!(number_before(prefetched, "bytes") >= 4 << 20, "{out}");
}

#[test]
fn ranges_are_prefetched_or_were_cached() {
    let file = std::env::current_exe().unwrap();
    let output = run("ranges", &[file.to_str().unwrap(), "0", "4096", file.to_str().unwrap(), "8192", "4096"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let issued = number_before(&out, "bytes");
    let resident = number_before(out.split_once("; ").unwrap().1, "bytes");
    assert_eq!(issued + resident, 8192, "{out}");
    assert_eq!(run("ranges", &["/dev/null", "0", "1"]).status.code(), Some(1));
    assert_eq!(run("ranges", &["/dev/null", "0"]).status.code(), Some(2));
}

#[test]
#[cfg(feature = "observe")]
fn compare_measures_both_ways() {
    let output = run("compare", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    assert!(out.contains("page by page") && out.contains("with prefetch"), "{out}");
}

//! Each example program gives the same result in each way of reading, and the result of the standard tool.

use assert_cmd::Command;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// On a disk where the build directory is on one: a tmpfs has no read-ahead.
fn home() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn example<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::cargo_bin(name).unwrap();
    command.args(arguments);
    command
}

fn printed(mut command: Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn report(mut command: Command) -> Value {
    serde_json::from_str(&printed({
        command.arg("--json");
        command
    }))
    .unwrap()
}

/// Marsaglia's xorshift64: the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Lines of 0 to 59 bytes with few different bytes, so that many have the same beginning; some are equal, and the last has no end.
fn random_lines(count: usize) -> Vec<u8> {
    let (mut numbers, mut text) = (Numbers(1996), Vec::new());
    for _ in 0..count {
        let length = numbers.below(60);
        text.extend((0..length).map(|_| b"\0\t abz\xff"[numbers.below(7) as usize]));
        text.push(b'\n');
    }
    text.pop();
    text
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut numbers = Numbers(2000);
    (0..count.div_ceil(8)).flat_map(|_| numbers.next().to_le_bytes()).take(count).collect()
}

fn write(home: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = home.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn sort_equals_the_systems_sort_in_the_order_of_bytes() {
    let home = home();
    let file = write(home.path(), "lines", &random_lines(200_000));
    let mut system = std::process::Command::new("sort");
    let expected = system.env("LC_ALL", "C").arg(&file).output().unwrap();
    assert!(expected.status.success());
    for way in ["plain", "fadvise", "ahead", "ahead-direct"] {
        let output = home.path().join(way);
        let mut command = example("ahead-sort", ["--memory", "1M", "--reader", way, "--evict-runs", "-o"]);
        command.arg(&output).arg(&file);
        let report = report(command);
        assert!(fs::read(&output).unwrap() == expected.stdout, "--reader {way}: the order differs");
        // One mebibyte holds the pairs of groups of eight runs.
        assert!(report["runs"].as_u64().unwrap() > 8 && report["merges"].as_u64().unwrap() > 1, "{report}");
        assert_eq!(report["waits"].is_null(), !way.starts_with("ahead"), "{report}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 5, "a run stays");
}

#[test]
fn sort_of_few_and_of_long_lines() {
    let home = home();
    let long = [vec![b'x'; 300_000], b"\n".to_vec(), vec![b'x'; 299_999], b"\na".to_vec()].concat();
    for (number, text) in
        [b"".to_vec(), b"\n".to_vec(), b"b\na".to_vec(), b"b\0\nb\n".to_vec(), long].iter().enumerate()
    {
        let (file, output) = (write(home.path(), "in", text), home.path().join("out"));
        let mut command = example("ahead-sort", ["--memory", "128K", "-o"]);
        command.arg(&output).arg(&file).assert().success();
        let mut lines: Vec<&[u8]> = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n').collect();
        lines.sort_unstable();
        let expected = if text.is_empty() { Vec::new() } else { [lines.join(&b'\n'), b"\n".to_vec()].concat() };
        assert!(fs::read(&output).unwrap() == expected, "text {number}");
    }
}

#[test]
fn grep_equals_the_systems_grep() {
    let home = home();
    let file = write(home.path(), "lines", &random_lines(100_000));
    for string in ["ab", "zzz", "b a", "not there"] {
        let mut system = std::process::Command::new("grep");
        // -a: the lines have zero bytes.
        let counted = system.env("LC_ALL", "C").args(["-acF", string]).arg(&file).output().unwrap();
        let expected = String::from_utf8(counted.stdout).unwrap();
        for who in ["none", "kernel-sequential", "ahead"] {
            let mut command = example("ahead-grep", ["--advise", who, string]);
            command.arg(&file);
            assert_eq!(printed(command), expected, "{string:?} with --advise {who}");
        }
    }
}

#[test]
fn grep_prints_each_line_once_and_none_of_an_empty_file() {
    let home = home();
    let file = write(home.path(), "lines", b"xx xx\nyy\n\nxx");
    let mut command = example("ahead-grep", ["--lines", "xx"]);
    command.arg(&file);
    assert_eq!(printed(command), "xx xx\nxx\n");
    let mut command = example("ahead-grep", ["xx"]);
    command.arg(write(home.path(), "empty", b""));
    assert_eq!(printed(command), "0\n");
}

#[test]
fn checksum_equals_that_of_the_bytes() {
    let home = home();
    let bytes = random_bytes((3 << 20) + 777);
    let (file, empty) = (write(home.path(), "bytes", &bytes), write(home.path(), "empty", b""));
    let expected = [format!("{:08x}", crc32fast::hash(&bytes)), "00000000".to_owned()];
    for way in ["plain", "std", "fadvise", "ahead", "ahead-direct"] {
        for buffer in ["1000", "4K", "64K", "1M"] {
            let mut command = example("ahead-checksum", ["--reader", way, "--buffer", buffer]);
            command.args([&file, &empty]);
            let report = report(command);
            assert_eq!(report["checksums"], serde_json::json!(expected), "--reader {way} --buffer {buffer}");
            assert_eq!(report["bytes"], bytes.len());
        }
    }
}

#[test]
fn missing_file_is_named_in_the_error() {
    let missing = "/nonexistent/file";
    let commands = [
        example("ahead-checksum", [missing]),
        example("ahead-grep", ["x", missing]),
        example("ahead-readers", [missing, missing]),
        example("ahead-sort", [missing, "-o", "/nonexistent/out"]),
        example("ahead-index-scan", [missing, "--index", "i"]),
        example("ahead-loader", [missing]),
    ];
    for mut command in commands {
        let done = command.assert().failure().code(1);
        let message = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        assert!(message.contains("/nonexistent"), "{message}");
    }
}

#[test]
fn readers_within_a_small_budget_read_everything() {
    let home = home();
    let bytes = random_bytes(300_000);
    let files: Vec<PathBuf> = (0..16).map(|number| write(home.path(), &format!("f{number}"), &bytes)).collect();
    for (way, budget) in [("plain", "1M"), ("ahead", "1M"), ("ahead", "4K"), ("ahead-direct", "1M")] {
        let mut command = example("ahead-readers", ["--reader", way, "--budget", budget]);
        command.args(&files);
        let report = report(command);
        assert_eq!(report["bytes"], 16 * 300_000, "--reader {way} --budget {budget}");
        assert_eq!(report["reader_bytes_per_s"].as_array().unwrap().len(), 16);
    }
}

#[test]
fn loader_uses_the_files_in_the_order_of_the_list() {
    let home = home();
    let (mut numbers, mut all, mut list) = (Numbers(64), Vec::new(), String::new());
    for number in 0..200 {
        let bytes = random_bytes(numbers.below(20_000) as usize);
        let path = write(home.path(), &format!("f{number}"), &bytes);
        all.extend(bytes);
        list += &format!("{}\n", path.display());
    }
    let list = write(home.path(), "list", list.as_bytes());
    for ways in [&[][..], &["--threads", "1"], &["--threads", "16"], &["--ahead"], &["--ahead", "--window", "8K"]] {
        let mut command = example("ahead-loader", ways);
        command.arg(&list);
        let report = report(command);
        assert_eq!(report["checksum"], format!("{:08x}", crc32fast::hash(&all)), "{ways:?}");
        assert_eq!(report["files"], 200);
    }
}

/// Rows of about 200 bytes in 8 MiB, with an index whose order is not that of the rows.
const DATABASE: &str = r#"
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("CREATE TABLE filler (a TEXT)")
database.execute("CREATE TABLE people (name TEXT, number INTEGER, photo BLOB)")
rows = ((f"name {n * 7919 % 30011:06}", n, bytes([n % 251]) * (n % 300)) for n in range(30000))
database.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
database.execute("DELETE FROM people WHERE number % 10 = 3")
database.execute("CREATE INDEX by_name ON people (name)")
database.commit()
rows = database.execute("SELECT name, photo FROM people INDEXED BY by_name ORDER BY name").fetchall()
sys.stdout.buffer.write(b"".join(name.encode() + photo for name, photo in rows))
"#;

#[test]
fn index_scan_reads_the_rows_in_the_order_of_the_index() {
    let home = home();
    let database = home.path().join("people.db");
    let python = std::process::Command::new("python3").args(["-c", DATABASE]).arg(&database).output();
    let Some(made) = python.ok().filter(|made| made.status.success()) else {
        println!("skipped: no python3 with sqlite3, which makes the database");
        return;
    };
    let expected = format!("{:08x}  27000 rows, {} bytes of text\n", crc32fast::hash(&made.stdout), made.stdout.len());
    for reader in ["plain", "ahead"] {
        let mut command = example("ahead-index-scan", ["--reader", reader, "--index", "by_name"]);
        command.arg(&database);
        assert_eq!(printed(command), expected, "--reader {reader}");
    }
    let mut command = example("ahead-index-scan", ["--index", "by_age"]);
    command.arg(&database).assert().failure().code(1);
}

//! `ahead top` beside programs whose reads are known.

use ahead_sys::mapping::Mapping;
use ahead_sys::{bdi, cache};
use ahead_tests::rig::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;

fn top(arguments: &[&str]) -> Program {
    ahead(["top"]).args(arguments).limit(Duration::from_secs(120))
}

/// The files of this process that `ahead top --once --json` lists.
fn listed(arguments: &[&str]) -> Vec<Value> {
    let own = std::process::id().to_string();
    let rows = top(&[&["--once", "--json", "--pid", &own], arguments].concat()).json();
    rows.as_array().unwrap().clone()
}

fn row(path: &Path, arguments: &[&str]) -> Value {
    let rows = listed(&[&["--path", path.to_str().unwrap()], arguments].concat());
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows[0].clone()
}

/// Repeats work until `ahead top` with these arguments has ended, and returns its output.
fn top_beside(arguments: &[&str], mut work: impl FnMut()) -> Done {
    let mut child = top(arguments).start();
    while !child.has_ended() {
        work();
    }
    child.ends_with(0)
}

#[test]
fn open_file_is_listed_with_its_window_and_advice() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("plain", MIB);
    let disk_pages = bdi::read_ahead_kb(mounted.number()).unwrap() / 4;
    let file = File::open(&path).unwrap();
    let seen = row(&path, &[]);
    assert_eq!((&seen["window_pages"], &seen["pattern"]), (&disk_pages.into(), &"unknown".into()), "{seen:#}");
    assert_eq!((&seen["descriptor"], &seen["file_bytes"]), (&file.as_raw_fd().into(), &MIB.into()));
    assert_eq!((&seen["path"], &seen["advice"]), (&path.to_str().unwrap().into(), &Value::Null));
    for key in ["hits", "locked", "misses", "wait_us", "issued_bytes", "used_bytes", "wasted_bytes", "amplification"] {
        // A running `ahead steer` has counts.
        let is_counted = Path::new("/run/ahead/steer.counters").exists();
        assert!(seen.get(key).is_some_and(|value| value.is_null() || is_counted), "{key}: {seen:#}");
    }
    cache::sequential_reads(&file).unwrap();
    let seen = row(&path, &[]);
    assert_eq!((&seen["window_pages"], &seen["advice"]), (&(2 * disk_pages).into(), &"sequential".into()), "{seen:#}");
    cache::exact_reads(&file).unwrap();
    let seen = row(&path, &[]);
    assert_eq!((&seen["pattern"], &seen["advice"]), (&"advised".into(), &"random".into()), "{seen:#}");
}

#[test]
fn state_of_a_stream_shows_its_last_window() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("stream", 8 * MIB);
    let file = File::open(&path).unwrap();
    evict(&path);
    let mut buffer = vec![0; 1 << 14];
    for at in (0..MIB).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, at).unwrap();
    }
    let seen = row(&path, &[]);
    assert_eq!(seen["pattern"], "sequential", "{seen:#}");
    let number = |key: &str| seen[key].as_u64().unwrap_or_else(|| panic!("{key}: {seen:#}"));
    assert!(number("last_pages") > 0 && number("last_start_page") + number("last_pages") > MIB / 4096, "{seen:#}");
    assert!(number("cached_pages") >= MIB / 4096 && number("async_pages") > 0, "{seen:#}");
}

#[test]
fn interval_fills_the_counts_of_a_stream() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("stream", 8 * MIB);
    let file = File::open(&path).unwrap();
    let (own, pattern) = (std::process::id().to_string(), path.to_str().unwrap());
    let mut buffer = vec![0; 1 << 14];
    let output = top_beside(&["--once", "--json", "--interval", "1s", "--pid", &own, "--path", pattern], || {
        evict(&path);
        for at in (0..8 * MIB).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, at).unwrap();
        }
    });
    let seen = output.json();
    let number = |key: &str| seen[0][key].as_u64().unwrap_or_else(|| panic!("{key}: {seen:#}"));
    assert!(number("hits") > 0 && number("misses") > 0 && number("markers") > 0, "{seen:#}");
    assert!(number("issued_bytes") >= MIB && number("used_bytes") > 0, "{seen:#}");
    let amplification = seen[0]["amplification"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&amplification), "{seen:#}");
    assert!(["sequential", "once-only"].contains(&seen[0]["pattern"].as_str().unwrap()), "{seen:#}");
}

#[test]
fn random_faults_are_explained() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let bytes = 64 * MIB;
    let path = mounted.file("mapped", bytes);
    let file = File::open(&path).unwrap();
    evict(&path);
    let mapping = Mapping::new(&file, bytes as usize).unwrap();
    let (own, pattern) = (std::process::id().to_string(), path.to_str().unwrap());
    let mut at = 1u64;
    let output = top_beside(&["--explain", &own, "--path", pattern, "--interval", "1s"], || {
        // Multiples of a large odd number are in no order. A few faults each time: the file must not become resident.
        for _ in 0..4 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            mapping.touch(((at >> 33) * 4096 % bytes) as usize).unwrap();
        }
        let _ = mapping.page_out(0..bytes as usize);
        evict(&path);
    });
    for part in ["random mmap", "window of at most", "faults at random pages: each reads", "MADV_RANDOM", "ahead steer"]
    {
        assert!(output.out.contains(part), "{part}: {output}");
    }
}

#[test]
fn mapping_without_a_descriptor_is_found() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("library", 4 * MIB);
    let file = File::open(&path).unwrap();
    let mapping = Mapping::new(&file, 4 * MIB as usize).unwrap();
    drop(file);
    let (own, pattern) = (std::process::id().to_string(), path.to_str().unwrap());
    let output = top_beside(&["--once", "--json", "--interval", "1s", "--pid", &own, "--path", pattern], || {
        let _ = mapping.page_out(0..4 * MIB as usize);
        evict(&path);
        for at in (0..4 * MIB as usize).step_by(1 << 18) {
            mapping.touch(at).unwrap();
        }
    });
    let seen = output.json();
    let row = seen.as_array().unwrap().iter().find(|row| row["descriptor"].is_null() && row["closed_files"] == 0);
    let row = row.unwrap_or_else(|| panic!("{seen:#}"));
    assert_eq!(row["path"], pattern, "{seen:#}");
    assert!(row["faults"].as_u64().unwrap() > 0, "{seen:#}");
}

#[test]
fn filters_and_limits_bound_the_list() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let mut files = ["a.db", "b.db", "c.log"].map(|name| (File::open(mounted.file(name, MIB)).unwrap(), name));
    // Other tests of this process close descriptors meanwhile: a later file may get a lower number, by which the list is sorted.
    files.sort_by_key(|(file, _)| file.as_raw_fd());
    let all = files.each_ref().map(|(_, name)| *name);
    let databases: Vec<&str> = all.into_iter().filter(|name| name.ends_with(".db")).collect();
    let root = mounted.place();
    let names = |arguments: &[&str]| -> Vec<String> {
        let rows = listed(&[&["--mount", root, "--sort", "pid"], arguments].concat());
        rows.iter().map(|row| row["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), all);
    assert_eq!(names(&["--path", "*.db"]), databases);
    assert_eq!(names(&["--file", &format!("{root}/*.log"), "--cgroup", "/"]), ["c.log"]);
    assert_eq!(names(&["--limit", "2"]), all[..2]);
    assert!(names(&["--cgroup", "/no/such/group"]).is_empty());
    drop(files);
    assert!(names(&[]).is_empty());
}

#[test]
fn stream_has_one_line_for_each_interval() {
    let Some(_mounted) = Mounted::new("ext4") else { return };
    let text = top(&["--json", "--interval", "100ms", "--count", "3", "--limit", "2"]).text();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(line["time"].is_f64() && line["interval_s"].as_f64().unwrap() >= 0.1, "{line:#}");
        assert!(line["totals"]["open_files"].as_u64().unwrap() > 0 && line["files"].as_array().unwrap().len() <= 2);
    }
    // Without a terminal a table is printed for each interval.
    let text = top(&["--interval", "100ms", "--count", "2", "--limit", "1"]).text();
    assert_eq!(text.matches("access/s").count(), 2, "{text}");
}

#[test]
fn signal_ends_the_stream() {
    let Some(_mounted) = Mounted::new("ext4") else { return };
    let mut child = top(&["--json", "--interval", "100ms", "--limit", "1"]).start();
    let first = child.line();
    assert!(serde_json::from_str::<Value>(&first).unwrap()["files"].is_array());
    child.end_by("TERM").code(143);
}

#[test]
fn ten_thousand_open_files_are_listed() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let many = 10_000;
    let limit = getrlimit(Resource::Nofile);
    let room = limit.current.unwrap_or(u64::MAX).max(many + 2000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(room), maximum: limit.maximum.map(|most| most.max(room)) })
        .unwrap();
    let path = mounted.file("many", MIB);
    let files: Vec<File> = (0..many).map(|_| File::open(&path).unwrap()).collect();
    let root = mounted.place();
    let rows = listed(&["--mount", root]);
    assert_eq!(rows.len(), files.len());
    assert!(rows.iter().all(|row| row["path"] == path.to_str().unwrap()));
    assert_eq!(listed(&["--mount", root, "--limit", "3", "--sort", "cached"]).len(), 3);
    let own = std::process::id().to_string();
    let said = top(&["--explain", &own, "--mount", root, "--interval", "10ms", "--limit", "5"]).text();
    assert_eq!(said.matches("descriptor").count(), 5, "{said}");
}

/// Faults of a mapping with MADV_RANDOM, again and again.
const ADVISED_FAULTS: &str =
    "import mmap,os,sys; f=os.open(sys.argv[1],os.O_RDONLY); m=mmap.mmap(f,0,prot=mmap.PROT_READ)
m.madvise(mmap.MADV_RANDOM); print(flush=True)
while True:
    m.madvise(mmap.MADV_DONTNEED); os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED)
    for at in range(0,len(m),4096): m[at]";

/// Regression: `--explain` said "it was not read" during 974 major faults.
#[test]
fn major_faults_that_cause_no_decision_are_not_denied() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let path = mounted.file("advised", MIB);
    let mut reader = program("python3").args(["-c", ADVISED_FAULTS]).arg(&path).start();
    reader.line();
    let pid = reader.pid().to_string();
    let said = top(&["--explain", &pid, "--path", path.to_str().unwrap(), "--interval", "1s", "--json"]).json();
    drop(reader);
    let text = |key: &str| said[0][key].as_str().unwrap_or_else(|| panic!("{key}: {said:#}"));
    assert!(said[0]["process_major_faults"].as_u64() > Some(0), "{said:#}");
    assert!(text("seen").contains("MADV_RANDOM cause no decision; its process had"), "{said:#}");
    for key in ["now", "seen", "better"] {
        assert!(!text(key).contains("not read") && !text(key).contains("nothing"), "{said:#}");
    }
}

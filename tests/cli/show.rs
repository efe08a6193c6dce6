//! `ahead show` with valid profiles, and with files that are not profiles.

use crate::documents;
use ahead_profile::{
    Extent, File, Lookup, Metadata, Milestone, MilestoneKind, Precision, Profile, Recording, Thread, Timeline,
    TimelineSource, Wakeup, WarmUse,
};
use ahead_tests::rig::prelude::*;
use serde_json::json;

fn show(profile: &Path, options: &[&str]) -> Done {
    ahead(["show"]).arg(profile).args(options).env_remove("CLICOLOR_FORCE").done()
}

fn text(profile: &Path, options: &[&str]) -> String {
    show(profile, options).success().err_is("").out
}

fn json(profile: &Path, options: &[&str]) -> Value {
    serde_json::from_str(&text(profile, &[&["--json"], options].concat())).unwrap()
}

fn extent(offset_bytes: u64, length_bytes: u64, first_use_us: u64) -> Extent {
    Extent { offset_bytes, length_bytes, first_use_us, runs: 1, physical_bytes: None, warm_use: None }
}

/// An entry for the file at `path`, as it is now or as it would be with this size.
fn recorded(path: &Path, extents: Vec<Extent>) -> File {
    let now = fs::symlink_metadata(path);
    File {
        path: path.as_os_str().as_bytes().to_vec(),
        fs_type: "ext4".into(),
        size_bytes: now.as_ref().map_or(20_000, |now| now.len()),
        mtime_ns: now.map_or(0, |now| now.mtime() * 1_000_000_000 + now.mtime_nsec()),
        extents,
        ..File::default()
    }
}

/// Five files, with each state that root can see: two unchanged, one changed, one missing, one deleted.
struct Sample {
    directory: tempfile::TempDir,
    profile: PathBuf,
}

impl Sample {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Profile)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Recorded paths have no symbolic links, and /tmp may be one.
        let home = fs::canonicalize(directory.path()).unwrap();
        let named = |name: &str| home.join(name);
        for name in ["early", "late", "changed"] {
            fs::write(named(name), vec![0; 20_000]).unwrap();
        }
        let mut files = vec![
            recorded(&named("early"), vec![extent(4096, 8192, 100), extent(0, 4096, 900)]),
            recorded(&named("late"), vec![extent(0, 16_384, 500)]),
            recorded(&named("changed"), vec![extent(0, 4096, 600)]),
            recorded(&named("missing"), vec![extent(0, 4096, 700)]),
            File { deleted: true, ..recorded(&named("gone"), vec![extent(0, 4096, 800)]) },
        ];
        files[2].mtime_ns -= 1;
        let mut profile = Profile {
            recording: Recording {
                command: vec![b"python3".to_vec(), b"-c".to_vec(), b"import json".to_vec()],
                directory: b"/home".to_vec(),
                created_unix_s: 1_785_000_000,
                kernel: "6.18.2".into(),
                machine: "x86_64, 2 CPUs, 24 GiB".into(),
                source: "tp_btf".into(),
                precision: Precision::Precise,
                cold: true,
                metadata_seen: true,
                lost_events: 0,
                runs: 1,
                duration_us: 69_000,
                cpu_us: 41_000,
                root: Vec::new(),
                devices: Vec::new(),
                read_ahead_kb: 0,
            },
            files,
            metadata: vec![Metadata {
                device_path: b"/dev/vda".to_vec(),
                mount_point: b"/".to_vec(),
                fs_type: "ext4".into(),
                device: 0,
                extents: vec![extent(1 << 20, 4096, 10), extent(1 << 30, 8192, 20)],
            }],
            lookups: vec![Lookup { path: b"/etc"[..].into(), ..Lookup::default() }],
            milestones: vec![Milestone {
                time_us: 7,
                kind: MilestoneKind::Exec,
                path: b"/usr/bin/python3".to_vec(),
                warm_us: None,
            }],
            timeline: None,
        };
        change(&mut profile);
        let path = home.join("p.ahead");
        ahead_files::save(&profile, &path).unwrap();
        Sample { directory, profile: path }
    }
}

#[test]
fn json_has_every_promised_key() {
    let sample = Sample::new();
    let value = json(&sample.profile, &[]);
    for (key, expected) in [
        ("files", json!(5)),
        ("extents", json!(6)),
        ("bytes", json!(4096 * 10)),
        ("metadata_bytes", json!(12_288)),
        ("metadata_extents", json!(2)),
        ("precise", json!(true)),
        ("lost_events", json!(0)),
        ("stale_files", json!(2)),
        ("missing_files", json!(1)),
        ("changed_files", json!(1)),
        ("deleted_files", json!(1)),
        ("unknown_files", json!(0)),
        ("milestones", json!([{ "time_us": 7, "kind": "exec", "path": "/usr/bin/python3" }])),
        ("runs", json!(1)),
        ("duration_us", json!(69_000)),
        ("kernel", json!("6.18.2")),
        ("command", json!(["python3", "-c", "import json"])),
        ("cold", json!(true)),
        ("metadata_seen", json!(true)),
        ("lookups", json!(1)),
    ] {
        assert_eq!(value[key], expected, "{key}");
    }
    let states: Vec<_> = value["file_list"].as_array().unwrap().iter().map(|file| &file["state"]).collect();
    assert_eq!(states, ["current", "current", "changed", "missing", "deleted"]);
    assert_eq!(value["file_list"][0]["used_bytes"], 12_288);
    assert_eq!(value["file_list"][0]["first_use_us"], 100);
    assert_eq!(value["metadata"][0]["mount_point"], "/");
    assert!(value.get("extent_list").is_none());
}

#[test]
fn json_lists_extents_in_the_named_order() {
    let sample = Sample::new();
    let value = json(&sample.profile, &["--extents"]);
    let times: Vec<_> = value["extent_list"].as_array().unwrap().iter().map(|e| e["first_use_us"].as_u64()).collect();
    assert_eq!(times, [100, 500, 600, 700, 800, 900].map(Some));
    assert!(value["extent_list"][5]["path"].as_str().unwrap().ends_with("/early"));
    assert_eq!(value["extent_order"], "first_use");
    // Regression: this was named the order of fetching, which differs on a rotating disk.
    let people = text(&sample.profile, &["--extents"]);
    assert!(people.contains("Extents by first use") && people.contains("from a rotating disk"), "{people}");
}

/// Two uses in two threads: the second file comes first if everything is cached.
fn with_timeline() -> Sample {
    Sample::with(|profile| {
        let thread = |parent| Thread { parent, parent_cpu_us: 2, cpu_us: 9000 };
        profile.timeline = Some(Box::new(Timeline {
            source: TimelineSource::ProcessorClocks,
            warm_us: 12_000,
            reading_ns: 21_000,
            threads: vec![thread(None), thread(Some(0))],
            wakeups: vec![Wakeup { by: 1, by_cpu_us: 8, woken: 0, woken_cpu_us: 7 }],
        }));
        profile.files[0].extents[0].warm_use = Some(WarmUse { time_us: 5000, thread: 0, cpu_us: 4000 });
        profile.files[1].extents[0].warm_use = Some(WarmUse { time_us: 3000, thread: 1, cpu_us: 1000 });
    })
}

#[test]
fn timeline_lists_uses_in_the_order_without_waits() {
    let sample = with_timeline();
    assert!(json(&sample.profile, &[]).get("timeline").is_none());
    let value = json(&sample.profile, &["--timeline"]);
    documents::assert_documented(&["### ahead show --json"], &value);
    let timeline = &value["timeline"];
    assert_eq!((&timeline["source"], &timeline["warm_us"]), (&json!("processor_clocks"), &json!(12_000)));
    assert_eq!(timeline["reading_ns"], 21_000);
    assert_eq!(timeline["threads"][1], json!({ "parent": 0, "parent_cpu_us": 2, "cpu_us": 9000 }));
    assert_eq!(timeline["wakeups"], json!([{ "by": 1, "by_cpu_us": 8, "woken": 0, "woken_cpu_us": 7 }]));
    let uses: Vec<_> =
        timeline["uses"].as_array().unwrap().iter().map(|at| (&at["warm_use_us"], &at["thread"])).collect();
    assert_eq!(uses, [(&json!(3000), &json!(1)), (&json!(5000), &json!(0))]);
    let text = text(&sample.profile, &["--timeline"]);
    assert!(
        text.contains("12.0 ms (from the processor clocks of its threads, without waits for a disk), 2 threads"),
        "{text}"
    );
}

#[test]
fn profile_without_a_timeline_says_so() {
    let sample = Sample::new();
    assert_eq!(json(&sample.profile, &["--timeline"])["timeline"], Value::Null);
    assert!(text(&sample.profile, &["--timeline"]).contains("No timeline"));
}

#[test]
fn text_shows_totals_and_stale_files() {
    let sample = Sample::new();
    let text = text(&sample.profile, &[]);
    for expected in [
        "python3 -c 'import json'",
        "precise: exactly the pages that were used",
        "cold, with metadata",
        "2 of 5 files are stale (1 missing, 1 changed); a run skips them.",
        "5 files, 6 extents, 40.0 KiB data used, 12.0 KiB metadata used",
        "/usr/bin/python3",
        "Metadata blocks",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing from\n{text}");
    }
    assert!(!text.contains("lost while recording") && !text.contains('\u{1b}'));
}

#[test]
fn symbolic_link_in_place_of_a_recorded_file_is_stale() {
    let sample = Sample::new();
    let late = fs::canonicalize(sample.directory.path()).unwrap().join("late");
    fs::remove_file(&late).unwrap();
    std::os::unix::fs::symlink("early", &late).unwrap();
    let text = text(&sample.profile, &[]);
    assert!(text.contains("3 of 5 files are stale (1 missing, 2 changed)"), "{text}");
}

#[test]
fn lost_events_are_a_warning() {
    let sample = Sample::with(|profile| profile.recording.lost_events = 1204);
    assert!(text(&sample.profile, &[]).contains("WARNING: 1,204 events were lost while recording"));
    let page = sample.directory.path().join("page.html");
    text(&sample.profile, &["--html", page.to_str().unwrap()]);
    assert!(fs::read_to_string(page).unwrap().contains("1,204 events were lost while recording"));
}

#[test]
fn an_upper_bound_is_named() {
    let sample = Sample::with(|profile| profile.recording.precision = Precision::UpperBound);
    assert!(text(&sample.profile, &[]).contains("upper bound"));
    assert_eq!(json(&sample.profile, &[])["precise"], false);
}

#[test]
fn sort_and_top_order_and_limit_the_files() {
    let sample = Sample::new();
    let names = |options: &[&str]| -> Vec<String> {
        let text = text(&sample.profile, options);
        let home = fs::canonicalize(sample.directory.path()).unwrap();
        let rows = text.lines().filter_map(|line| line.split_once(&format!("{}/", home.display())));
        rows.map(|(_, rest)| rest.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["early", "late", "changed", "missing", "gone"]);
    assert_eq!(names(&["--sort", "bytes", "--top", "2"]), ["late", "early"]);
    assert_eq!(names(&["--sort=path", "--all"]), ["changed", "early", "gone", "late", "missing"]);
    assert!(text(&sample.profile, &["--top", "2"]).contains("… and 3 more files (--all)"));
}

#[test]
fn names_from_a_profile_cannot_move_the_cursor_or_break_a_page() {
    let hostile = b"/a\x1b[2J<script>alert(1)</script>\xff\n\"&'";
    let sample = Sample::with(|profile| {
        profile.recording.command = vec![hostile.to_vec()];
        profile.recording.kernel = "6.18\u{1b}[31m".into();
        profile.files[0].path = hostile.to_vec();
        profile.milestones[0].path = hostile.to_vec();
        profile.metadata[0].mount_point = hostile.to_vec();
    });
    let people = text(&sample.profile, &["--extents"]);
    assert!(!people.contains('\u{1b}'));
    assert!(people.contains(r#"/a\u{1b}[2J<script>alert(1)</script>\xff\n"&'"#), "{people}");
    let page = sample.directory.path().join("page.html");
    let value = json(&sample.profile, &["--html", page.to_str().unwrap()]);
    let exact = "/a%1B%5B2J%3Cscript%3Ealert%281%29%3C/script%3E%FF%0A%22%26%27";
    assert_eq!(value["milestones"][0]["path_percent"], exact);
    assert_eq!(value["file_list"][0]["path_percent"], exact);
    assert_eq!(value["file_list"][1].get("path_percent"), None);
    let html = fs::read_to_string(page).unwrap();
    assert!(!html.contains("<script") && !html.contains('\u{1b}'));
    assert_tags_match(&html);
}

#[test]
fn page_loads_no_external_file() {
    let sample = Sample::new();
    let page = sample.directory.path().join("page.html");
    text(&sample.profile, &["--html", page.to_str().unwrap()]);
    let html = fs::read_to_string(page).unwrap();
    for foreign in ["http:", "https:", "//", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    for expected in ["default-src 'none'", "prefers-color-scheme: dark", "Timeline", "Page map", "<circle", "missing"] {
        assert!(html.contains(expected), "{expected}");
    }
    assert_tags_match(&html);
}

/// Asserts that every element is closed, in order, and attribute values contain no markup.
fn assert_tags_match(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in html.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("an open bracket: {part}"));
        let name = tag.split([' ', '\n', '/']).find(|name| !name.is_empty()).unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes: {tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

/// Asserts status 1, one line on standard error and an empty standard output.
fn refused(path: &Path) -> String {
    let done = show(path, &[]).code(1).out_is("").in_one_line().never_says("panicked");
    assert!(done.err.starts_with("ahead: "), "{done}");
    done.err
}

#[test]
fn every_bad_profile_of_the_corpus_is_one_clear_line() {
    let corpus: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "fuzz", "corpus", "profile_decode"].iter().collect();
    let mut bad = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("good-") {
            text(&path, &["--json"]);
        } else if name.starts_with("bad-") {
            refused(&path);
            bad += 1;
        }
        for (which, expected) in [
            ("bad-truncated-body", "truncated at byte"),
            ("bad-flipped-body", "damaged: bytes 0 to"),
            ("bad-flipped-major", "newer than this ahead can read (1.x); upgrade ahead"),
            ("bad-offset-2-63", "files[0].extents[0]: it ends beyond 2^63 bytes"),
            ("bad-path-upwards", "files[0].path: the path contains \"..\""),
        ] {
            assert!(name != which || refused(&path).contains(expected), "{which}");
        }
    }
    assert!(bad > 30, "only {bad} bad profiles in the corpus");
}

#[test]
fn a_special_file_is_refused_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    let socket = directory.path().join("socket");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(refused(&fifo).contains("fifo is a FIFO, not a profile: name a file that `ahead record` wrote"));
    assert!(refused(&socket).contains("is a socket"));
    assert!(refused(directory.path()).contains("is a directory"));
    assert!(refused(Path::new("/dev/zero")).contains("is a device"));
    assert!(refused(&directory.path().join("none")).contains("No such file"));
    assert!(refused(Path::new("/proc/self/status")).contains("not an ahead profile"));
    let huge = directory.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    assert!(refused(&huge).contains("1099511627776 bytes are more than a profile may have"));
}

#[test]
fn an_unwritable_page_is_an_error() {
    let done = show(&Sample::new().profile, &["--html", "/nonexistent/page.html"]).code(1);
    done.says("write /nonexistent/page.html: there is no directory /nonexistent");
}

#[test]
fn wrong_usage_is_status_2() {
    let sample = Sample::new();
    for options in [&["--top", "many"][..], &["--sort", "colour"], &["--all", "--top", "3"], &["--color"]] {
        show(&sample.profile, options).code(2);
    }
}

/// `ahead show … | head`: a reader that stops early is not an error.
#[test]
fn a_closed_pipe_is_no_error() {
    let sample = Sample::with(|profile| {
        // More than the pipe's buffer, so that a write meets the closed end.
        profile.milestones = vec![profile.milestones[0].clone(); 20_000];
    });
    let page = sample.profile.with_extension("html");
    for option in ["--json", "--all"] {
        let (reader, writer) = std::io::pipe().unwrap();
        let show = ahead(["show"]).arg(&sample.profile).arg(option).arg("--html").arg(&page);
        let running = show.output_file(std::os::fd::OwnedFd::from(writer).into()).start();
        drop(reader);
        running.ends_with(0).err_is("");
        // Regression: the page was written after the text, and was therefore missing.
        fs::remove_file(&page).expect(option);
    }
}

/// Regression: another file replaced the file at standard output.
#[test]
fn page_on_standard_output_follows_the_tables() {
    let sample = Sample::new();
    let path = sample.profile.with_extension("out");
    let file = fs::File::create(&path).unwrap();
    let written = |options: &[&str]| {
        file.set_len(0).unwrap();
        let output = fs::OpenOptions::new().append(true).open(&path).unwrap();
        ahead(["show"]).arg(&sample.profile).args(["--html", "/dev/stdout"]).args(options).output_file(output).ok();
        fs::read_to_string(&path).unwrap()
    };
    let both = written(&["--all"]);
    assert!(both.contains("<!DOCTYPE html>") && !both.starts_with("<!DOCTYPE html>"), "{both}");
    let alone = written(&[]);
    assert!(alone.starts_with("<!DOCTYPE html>") && alone.ends_with("</html>\n"), "{alone}");
    assert_eq!(file.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
}

/// Regression: the whole table was printed, too.
#[test]
fn page_replaces_the_tables_unless_these_are_requested() {
    let sample = Sample::new();
    let page = sample.directory.path().join("page.html");
    let html = ["--html", page.to_str().unwrap()];
    let place = format!("wrote {}\n", page.display());
    assert_eq!(text(&sample.profile, &html), place);
    for option in [&["--all"][..], &["--top", "3"], &["--sort", "path"], &["--extents"]] {
        let printed = text(&sample.profile, &[&html[..], option].concat());
        assert!(printed.contains("5 files, 6 extents") && printed.ends_with(&place), "{option:?}: {printed}");
    }
    assert_eq!(json(&sample.profile, &html)["files"], 5);
}

/// A browser that ignores the viewport width lays the page out for a desktop. Parts that are wider than a phone scroll
/// separately.
#[test]
fn page_fits_a_narrow_screen() {
    let sample = Sample::new();
    let page = sample.directory.path().join("page.html");
    text(&sample.profile, &["--html", page.to_str().unwrap()]);
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("width=device-width, initial-scale=1") && html.contains("@media (max-width: 720px)"));
    for wide in ["<table>", "<svg viewBox=\"0 0 960"] {
        let parents = html.split(wide).map(|before| before.trim_end().ends_with("<div class=\"scroll\">"));
        let pieces = html.split(wide).count();
        assert!(pieces > 1 && parents.take(pieces - 1).all(|scrolls| scrolls), "{wide}");
    }
}

#[test]
fn colour_follows_its_environment_variables() {
    let sample = Sample::new();
    let with = |name: &str, value: &str| {
        ahead(["show"]).arg(&sample.profile).env_remove("NO_COLOR").env(name, value).done().out
    };
    assert!(with("CLICOLOR_FORCE", "1").contains("\u{1b}[1m"));
    assert!(!with("NO_COLOR", "1").contains('\u{1b}'));
}

#[test]
fn every_key_is_documented() {
    let sample = Sample::with(|profile| profile.files[0].seen_path = Some(b"/inside".to_vec()));
    documents::assert_documented(&["### ahead show --json"], &json(&sample.profile, &["--extents"]));
}

//! `ahead sim`: policies in a simulated machine.

use ahead_tests::rig::prelude::*;
use ahead_tests::rig::program::signal_of;

const SCENARIO: &str = "name = \"a scan\"\npolicies = [\"none\", \"linux-6.18\", \"true-readahead(64)\"]\n[disk]\nmodel = \"ssd\"\n\
                        [[workload]]\npattern = \"sequential\"\nfile_mb = 2\n[[workload]]\npattern = \"random\"\nfile_mb = 2\n";

fn scenario(text: &str) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("scan.toml");
    fs::write(&path, text).unwrap();
    (home, path)
}

fn json(arguments: &[&str]) -> Value {
    ahead(arguments).json()
}

#[test]
fn json_has_every_figure_of_a_run() {
    let (_home, path) = scenario(SCENARIO);
    let whole = json(&["sim", "run", path.to_str().unwrap(), "--json"]);
    let policies = whole["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 3);
    for row in policies {
        for key in ["elapsed_s", "user_s", "system_s", "idle_s", "throughput_bytes_per_s"] {
            assert!(row[key].is_f64(), "{key}: {row}");
        }
        for key in
            ["hits", "locked", "misses", "queue_waits", "issued_bytes", "used_bytes", "wasted_bytes", "thrashings"]
        {
            assert!(row[key].is_u64(), "{key}: {row}");
        }
        assert!(
            row["device"]["requests"].is_u64() && row["device"]["bytes"].is_u64() && row["device"]["busy_s"].is_f64()
        );
        let accesses = ["hits", "locked", "misses"].map(|key| row[key].as_u64().unwrap()).iter().sum::<u64>();
        assert_eq!(accesses, 1024, "{row}");
    }
    assert_eq!(policies[0]["policy"], "none");
    assert_eq!(policies[0]["wasted_bytes"], 0);
    // A sequential reader of 2 MiB misses once.
    assert!(policies[1]["misses"].as_u64().unwrap() < policies[0]["misses"].as_u64().unwrap() / 2);
}

#[test]
fn a_run_is_printed_as_text_and_as_csv() {
    let (_home, path) = scenario(SCENARIO);
    let path = path.to_str().unwrap();
    let table = ["a scan on ssd", "true-readahead(64, 16)"];
    ahead(["sim", "run", path]).ok().prints_all(&table);
    let csv = ahead(["sim", "run", path, "--csv"]).text();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].split(',').any(|name| name == "device_busy_s"), "{csv}");
    ahead(["sim", "run", path, "--csv", "--json"]).fails(2);
}

#[test]
fn policies_of_the_command_line_replace_those_of_the_scenario() {
    let (_home, path) = scenario(SCENARIO);
    let run = |policies: &str| ahead(["sim", "run", path.to_str().unwrap(), "--json", "--policy", policies]);
    let result = run("linux-6.18, true-readahead(8, 2)").json();
    let names: Vec<&Value> = result["policies"].as_array().unwrap().iter().map(|row| &row["policy"]).collect();
    assert_eq!(names, ["linux-6.18", "true-readahead(8, 2)"]);
    let (_home, without) = scenario(&SCENARIO.replacen("policies", "# policies", 1));
    for command in ["run", "sweep"] {
        let words = ["sim", command, without.to_str().unwrap(), "--json"];
        ahead(words).fails(1).out_is("").says("names no policies").says("--policy");
        ahead(words).args(["--policy", "linux-6.18"]).ok();
    }
    run("linux-9").fails(2).says("no policy is called");
    run("ahead,ahead").fails(1).out_is("").says("--policy ahead is given twice");
    run("fixed(1000000)").fails(1).out_is("").says("is larger than the memory").says("change --policy");
}

#[test]
fn acts_of_steering_have_reasons() {
    let text = "policies = [\"steer\"]\n[disk]\nmodel = \"cloud\"\n[[workload]]\npattern = \"backward\"\nblock_kb = 16\nfile_mb = 4\n";
    let (_home, path) = scenario(text);
    let path = path.to_str().unwrap();
    let acts = json(&["sim", "run", path, "--acts", "--json"]);
    let first = &acts.as_array().unwrap()[0];
    assert_eq!((first["act"].as_str(), first["open"].as_u64()), (Some("fetch"), Some(1)), "{first}");
    let reason = "backward, step -16 KiB, confirmed by 3 accesses";
    assert!(first["reason"].as_str().unwrap().starts_with(reason), "{first}");
    ahead(["sim", "run", path, "--acts"]).ok().prints(reason);
    ahead(["sim", "run", path, "--acts", "--csv"]).fails(2);
}

#[test]
fn a_sweep_runs_each_workload_alone() {
    let (_home, path) = scenario(SCENARIO);
    let axes = ["--policy", "linux-2.6", "--policy", "fixed(8)", "--window", "32K,128K", "--device", "hdd,ssd"];
    let whole = json(&[&["sim", "sweep", path.to_str().unwrap(), "--json"], &axes[..]].concat());
    let runs = whole["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 2 * 2);
    let fits = |row: &&Value| row["policy"] == "linux-2.6" && row["workload"] == "sequential" && row["disk"] == "hdd";
    let mut rows = runs.iter().filter(fits);
    let (small, large) = (rows.next().unwrap(), rows.next().unwrap());
    assert_eq!((&small["window_bytes"], &large["window_bytes"]), (&32768.into(), &131_072.into()));
    assert!(small["device"]["requests"].as_u64() > large["device"]["requests"].as_u64());
    let csv = ahead([&["sim", "sweep", path.to_str().unwrap(), "--csv"], &axes[..]].concat()).ok();
    let csv = csv.out;
    assert_eq!(csv.lines().count(), 1 + runs.len());
    assert!(csv.lines().all(|line| line.split(',').count() == csv.lines().next().unwrap().split(',').count()), "{csv}");
    // With one processor the result is the same.
    let alone = json(&[&["sim", "sweep", path.to_str().unwrap(), "--json", "--jobs", "1"], &axes[..]].concat());
    assert_eq!(alone, whole);
}

/// A profile of `ahead record` runs as a workload: exactly the used ranges.
#[test]
fn a_profile_is_a_workload() {
    let text = "policies = [\"none\", \"linux-6.18\"]\n[[workload]]\nprofile = \"program.ahead\"\nvia = \"mmap\"\n";
    let (home, path) = scenario(text);
    let profile = profile();
    let place = home.path().join("program.ahead");
    ahead_files::save(&profile, &place).unwrap();
    let whole = json(&["sim", "run", path.to_str().unwrap(), "--json"]);
    for row in whole["policies"].as_array().unwrap() {
        assert_eq!((&row["used_bytes"], &row["user_s"]), (&(128 << 10).into(), &0.002.into()), "{row}");
    }
    // Alone, on the default machine: `--window` sets its window.
    let swept = json(&["sim", "sweep", place.to_str().unwrap(), "--window", "128K,4M", "--json"]);
    let windows: Vec<_> = swept["runs"].as_array().unwrap().iter().map(|run| run["window_bytes"].as_u64()).collect();
    assert_eq!(windows.len(), 8, "{swept}");
    assert!(windows.contains(&Some(128 << 10)) && windows.contains(&Some(4 << 20)), "{swept}");
    let bare = ["has no unit: write 4096K"];
    ahead(["sim", "sweep", place.to_str().unwrap(), "--window", "4096"]).fails(2).says_all(&bare);
    // Regression: "program.ahead: line 4: program.ahead: truncated", with a line number of a text that does not exist.
    let whole_bytes = fs::read(&place).unwrap();
    fs::write(&place, &whole_bytes[..whole_bytes.len() - 7]).unwrap();
    for command in ["run", "sweep"] {
        let done = ahead(["sim", command, place.to_str().unwrap()]).fails(1).out_is("").never_says("line");
        assert_eq!(done.err.matches("program.ahead").count(), 1, "{done}");
        done.says("program.ahead: truncated at byte");
    }
    fs::write(&place, "no profile").unwrap();
    let done = ahead(["sim", "run", path.to_str().unwrap()]).fails(1).out_is("").says("scan.toml: line 3:");
    assert_eq!(done.err.matches("program.ahead").count(), 1, "{done}");
}

/// The planner on a simulated disk.
#[test]
fn profile_is_replayed_on_any_disk() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("program.ahead");
    let extent = |index: u64| ahead_profile::Extent {
        offset_bytes: index * 16_384,
        length_bytes: 4096,
        first_use_us: index * 37 % 100,
        runs: 1,
        physical_bytes: Some(index * 16_384 + (1 << 30)),
        warm_use: None,
    };
    let extents = (0..100).map(extent).collect();
    let file =
        ahead_profile::File { path: b"/x".to_vec(), size_bytes: 2 << 20, extents, ..ahead_profile::File::default() };
    let mut profile = ahead_profile::Profile { files: vec![file], ..ahead_profile::Profile::default() };
    profile.recording.runs = 1;
    ahead_files::save(&profile, &place).unwrap();
    let place = place.to_str().unwrap();
    let replay = |more: &[&str]| json(&[&["sim", "replay", place, "--json"], more].concat());
    let cloud = replay(&["--disk", "cloud"]);
    for key in ["arrived_s", "submitted_s"] {
        assert!(cloud[key].as_f64().unwrap() > 0.0, "{key}: {cloud}");
    }
    assert_eq!(cloud["device"]["bytes"], cloud["issued_bytes"], "{cloud}");
    // 100 requests without a burst take a third of a millisecond each. On a device without this limit, no gap is read.
    let unlimited = home.path().join("ssd.toml");
    fs::write(&unlimited, ahead_device::Model::builtin_toml("ssd").unwrap()).unwrap();
    let as_flash = replay(&["--disk", "cloud", "--device", unlimited.to_str().unwrap()]);
    assert!(cloud["requests"].as_u64() < as_flash["requests"].as_u64(), "{cloud} {as_flash}");
    assert!(cloud["arrived_s"].as_f64() < as_flash["arrived_s"].as_f64(), "{cloud} {as_flash}");
    let lines = ["hdd: ", "arrived after "];
    ahead(["sim", "replay", place, "--disk", "hdd"]).ok().prints_all(&lines);
    let unknown = ["\"floppy\" is neither a model"];
    ahead(["sim", "replay", place, "--disk", "floppy"]).fails(2).says_all(&unknown);
    ahead(["sim", "replay", place]).fails(2).says("--disk");
}

/// A trace of the kernel's runs as a workload, one process for each thread, under any policy.
#[test]
fn a_trace_is_a_workload() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/sim/traces/6.18-ext4-128k-all.trace");
    let text = format!("policies = [\"none\", \"linux-6.18\", \"ahead\"]\n[[workload]]\ntrace = \"{trace}\"\n");
    let (_home, path) = scenario(&text);
    let whole = json(&["sim", "run", path.to_str().unwrap(), "--json"]);
    let by_itself = json(&["sim", "run", trace, "--json"]);
    assert_eq!(by_itself["policies"][1], whole["policies"][1]);
    let rows = whole["policies"].as_array().unwrap();
    let figure = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let accesses = |row: &Value| ["hits", "locked", "misses"].map(|key| figure(row, key)).iter().sum::<u64>();
    assert!(rows.iter().all(|row| accesses(row) == accesses(&rows[0]) && accesses(row) > 1000), "{whole}");
    assert!(figure(&rows[1], "misses") * 2 < figure(&rows[0], "misses"), "{whole}");
}

/// One page without scripts or external files, complete or not at all.
#[test]
fn a_run_and_a_sweep_are_shown_in_a_page() {
    let (home, path) = scenario(&SCENARIO.replace("a scan", "a <scan>"));
    let (run, sweep) = (home.path().join("run.html"), home.path().join("sweep.html"));
    ahead(["sim", "run", path.to_str().unwrap(), "--html", run.to_str().unwrap()]).ok();
    let axes = ["--window", "32K,128K", "--policy", "fixed(8)", "--policy", "linux-6.18"];
    let out = ["--html", sweep.to_str().unwrap()];
    ahead([&["sim", "sweep", path.to_str().unwrap()], &out[..], &axes].concat()).ok();
    for (page, says) in [
        (&run, ["<h2>Times</h2>", "Page accesses", "true-readahead(64, 16)", "pattern = &quot;random&quot;"]),
        (&sweep, ["sequential on ssd", "random on ssd", "window, KiB", "fixed(8)"]),
    ] {
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains("a &lt;scan&gt;") && !page.contains("a <scan>"), "{page}");
        assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
        assert!(page.contains("<svg") && says.iter().all(|part| page.contains(part)), "{page}");
    }
    // If the page cannot be written, nothing runs.
    let nowhere = home.path().join("no/such/directory/page.html");
    ahead(["sim", "run", path.to_str().unwrap(), "--html", nowhere.to_str().unwrap()]).fails(1).out_is("");
}

/// A signal ends a sweep at once, without a page. (SIGINT may be ignored where tests run.)
#[test]
fn a_sweep_can_be_interrupted() {
    // The whole sweep takes minutes.
    let (home, path) = scenario(&SCENARIO.replace("file_mb = 2", "file_mb = 1000000\npasses = 10"));
    let page = home.path().join("page.html");
    let mut running = ahead(["sim", "sweep", "--policy", "linux-6.18", "--html"]).args([&page, &path]).start();
    crate::until_it_computes(running.pid(), 20);
    assert!(!running.has_ended());
    running.signal("TERM");
    assert_eq!(signal_of(running.status()), Some(15));
    assert!(!page.exists());
}

#[test]
fn policies_are_listed() {
    let list = json(&["sim", "policies", "--json"]);
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|policy| policy["name"].as_str().unwrap()).collect();
    for name in ["none", "roudier", "true-readahead", "linux-6.18", "ahead", "oracle"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    ahead(["sim", "policies"]).ok().prints("fixed(n)");
}

/// The range of each parameter, and its default.
#[test]
fn parameters_are_listed_with_range_and_default() {
    let list = json(&["sim", "policies", "--json"]);
    let of = |name: &str| {
        list.as_array().unwrap().iter().find(|policy| policy["name"] == name).unwrap()["parameters"].clone()
    };
    let parameters = of("true-readahead");
    let [n, period] = [&parameters[0], &parameters[1]];
    assert_eq!((&n["name"], &n["unit"], &n["default"]), (&"n".into(), &"pages".into(), &Value::Null));
    assert_eq!((&n["least"], &n["most"], &n["words"]), (&1.into(), &16_777_216.into(), &Value::Array(vec![])));
    assert_eq!((&period["name"], &period["unit"], &period["default"]), (&"P".into(), &"accesses".into(), &16.into()));
    assert_eq!(period["words"], Value::from(vec!["adaptive"]));
    assert_eq!(of("linux-6.18"), Value::Array(vec![]));
    let says = ["P: a number of accesses from 1 to 16777216 or adaptive", "default 16"];
    ahead(["sim", "policies"]).ok().prints_all(&says);
}

/// A run that ends at `end_s` before its programs is not reported as complete.
#[test]
fn an_incomplete_run_is_marked_everywhere() {
    let slow = "rate_kb_per_s = 64\nblock_kb = 256";
    let text = format!(
        "policies = [\"none\"]\n[machine]\nend_s = 5\n[[workload]]\npattern = \"sequential\"\nfile_mb = 1\n{slow}\n"
    );
    let (home, path) = scenario(&text);
    let (path, page) = (path.to_str().unwrap(), home.path().join("page.html"));
    let warns = "none: ended after 5 s (end_s)";
    let json_says = ["\"ended\": false"];
    ahead(["sim", "run", path, "--json"]).ok().prints_all(&json_says).says(warns);
    ahead(["sim", "sweep", path, "--json"]).ok().prints_all(&json_says).says(warns);
    let csv = ahead(["sim", "run", path, "--csv"]).text();
    let cells: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = cells[0].iter().position(|name| *name == "ended").unwrap();
    assert_eq!(cells[1][column], "false");
    let marked = "cut at 5.000 s";
    let out = ["--html", page.to_str().unwrap()];
    ahead([&["sim", "run", path], &out[..]].concat()).ok().prints(marked).says(warns);
    assert!(fs::read_to_string(&page).unwrap().contains(marked));
    // A complete run has "ended" in its JSON, and no warning.
    let (_home, path) = scenario(SCENARIO);
    let whole = ahead(["sim", "run", path.to_str().unwrap(), "--json"]).ok().err_is("").prints("\"ended\": true");
    assert!(!whole.out.contains("false"), "{whole}");
}

/// Names come from the scenario's author; none of them controls the terminal.
#[test]
fn control_characters_of_names_do_not_reach_the_terminal() {
    let evil = |text: &str| {
        text.replace("a scan", "a \\u001b[2J scan")
            .replace("file_mb = 2\n[[", "file_mb = 2\nname = \"x\\u001b]0;y\"\n[[")
    };
    let (_home, path) = scenario(&evil(SCENARIO));
    for command in ["run", "sweep"] {
        let done = ahead(["sim", command, path.to_str().unwrap()]).ok();
        assert!(![done.out, done.err].concat().contains('\x1b'), "{command}");
    }
    let shown = ["a \\u{1b}[2J scan on ssd"];
    ahead(["sim", "run", path.to_str().unwrap()]).ok().prints_all(&shown);
    ahead(["sim", "sweep", path.to_str().unwrap()]).ok().prints("x\\u{1b}]0;y");
}

/// Runs with equal settings are an error.
#[test]
fn a_sweep_refuses_equal_runs() {
    let (_home, path) = scenario(SCENARIO);
    for (axis, says) in [
        (["--device", "hdd,hdd"], "--device hdd is given twice"),
        (["--window", "1M,1024K"], "--window 1024K is given twice"),
        (["--policy", "true-readahead(8),true-readahead(8,16)"], "--policy true-readahead(8, 16) is given twice"),
    ] {
        let arguments = [&["sim", "sweep", path.to_str().unwrap()], &axis[..]].concat();
        ahead(&arguments).fails(1).out_is("").says(says);
    }
    // Windows that are equal after rounding are not equal.
    ahead(["sim", "sweep", path.to_str().unwrap(), "--window", "1024K,1028K"]).ok();
    let (_home, path) = scenario(&SCENARIO.replace("random", "sequential"));
    let says = ["scan.toml: line 8: an earlier workload has the same name \"sequential\"; give it another name"];
    ahead(["sim", "sweep", path.to_str().unwrap()]).fails(1).out_is("").says_all(&says);
}

/// A profile of 128 KiB in a file of 10 MiB.
pub fn profile() -> ahead_profile::Profile {
    let extent = |offset_bytes: u64, first_use_us: u64| ahead_profile::Extent {
        offset_bytes,
        length_bytes: 64 << 10,
        first_use_us,
        runs: 1,
        physical_bytes: None,
        warm_use: None,
    };
    let file = ahead_profile::File {
        path: b"/bin/program".to_vec(),
        fs_path: b"/bin/program".to_vec(),
        size_bytes: 10 << 20,
        extents: vec![extent(0, 0), extent(5 << 20, 1000)],
        ..ahead_profile::File::default()
    };
    let mut profile = ahead_profile::Profile { files: vec![file], ..ahead_profile::Profile::default() };
    (profile.recording.runs, profile.recording.duration_us, profile.recording.cpu_us) = (1, 4000, 2000);
    profile
}

/// Every command of `ahead sim` in the guide that needs no privilege works, if its files exist.
#[test]
fn the_guides_commands_work() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let (home, path) = scenario(SCENARIO);
    fs::rename(path, home.path().join("S.toml")).unwrap();
    ahead_files::save(&profile(), &home.path().join("P.ahead")).unwrap();
    fs::copy(root.join("lab/sim/traces/6.18-ext4-16k-all.trace"), home.path().join("T")).unwrap();
    std::os::unix::fs::symlink(root.join("bench"), home.path().join("bench")).unwrap();
    let guide = fs::read_to_string(root.join("docs/guide/sim.md")).unwrap();
    let commands: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("    ahead sim ")).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split('#').next().unwrap().split_whitespace().collect();
        ahead([&["sim"], &words[..]].concat()).current_dir(&home).ok();
    }
}

/// Regression: a page replaced the scenario itself.
#[test]
fn a_page_replaces_only_pages() {
    let (home, path) = scenario(SCENARIO);
    let says = ["is not a page of HTML"];
    for command in ["run", "sweep"] {
        let arguments = ["sim", command, path.to_str().unwrap(), "--html", path.to_str().unwrap()];
        ahead(arguments).fails(1).out_is("").says_all(&says);
        assert_eq!(fs::read_to_string(&path).unwrap(), SCENARIO);
        let page = home.path().join("page.html");
        for _ in 0..2 {
            ahead(["sim", command, path.to_str().unwrap(), "--html", page.to_str().unwrap()]).ok();
        }
    }
}

#[test]
fn mistakes_name_file_and_line() {
    let (_home, path) = scenario(&SCENARIO.replace("random", "rondom"));
    let says = ["scan.toml: line 9: unknown variant `rondom`"];
    ahead(["sim", "run", path.to_str().unwrap()]).fails(1).out_is("").says_all(&says);
    let missing = ["No such file"];
    ahead(["sim", "run", "/no/such/scenario.toml"]).fails(1).says_all(&missing);
    let no_file = ["not a regular file"];
    ahead(["sim", "run", "/dev/zero"]).fails(1).says_all(&no_file);
    let (_home, path) = scenario(SCENARIO);
    let too_wide =
        ["a window (read_ahead_kb) (2097152 KiB) is larger than the memory", "change --window, or memory_mb ("];
    ahead(["sim", "sweep", path.to_str().unwrap(), "--window", "2G"]).fails(1).out_is("").says_all(&too_wide);
    for wrong in
        [["--policy", "linux-9"], ["--window", "wide"], ["--window", "6K"], ["--device", "tape"], ["--jobs", "0"]]
    {
        ahead([&["sim", "sweep", path.to_str().unwrap()], &wrong[..]].concat()).fails(2).out_is("");
    }
}

/// Regression: the kernel's name in a trace, which may be another user's file, reached the terminal unescaped.
#[test]
fn control_characters_of_a_trace_do_not_reach_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("hostile\u{1b}[31m.trace");
    let kernel = "6.18\u{1b}[2J\u{1b}]0;owned\u{7}\nroot#\u{202e}".to_owned();
    let header =
        ahead_policy::traces::Header { kernel, machine: "x86_64".into(), page_bytes: 4096, command: Vec::new() };
    ahead_policy::traces::Writer::new(fs::File::create(&path).unwrap(), &header).unwrap().finish(0).unwrap();
    let sim = |arguments: &[&str]| ahead(["sim", "conform"]).args(arguments).arg(&path).done();
    for arguments in [&[][..], &["--policy", "linux-6.18"], &["--policy", "x\u{1b}[2J"]] {
        let output = sim(arguments);
        for text in [output.out, output.err] {
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']) && !text.contains("\nroot#"), "{text:?}");
        }
    }
}

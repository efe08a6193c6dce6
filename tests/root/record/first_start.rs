//! Recordings of a program's first start: it builds a cache, which its second start reads instead of what the first has read.

use super::rig::{Home, find, needs_recorder, volume};
use ahead_sys::mapping::Mapping;
use ahead_tests::rig::machine::target_directory;
use ahead_tests::rig::prelude::*;
use std::time::SystemTime;

/// A program with a cache.
struct Program {
    directory: tempfile::TempDir,
    home: Home,
}

type Recorder = ahead_tests::rig::program::Program;

const BYTES: usize = 300_000;

impl Program {
    /// `later`: what the starts after the first do beside reading the cache. `None`: nothing can be recorded here.
    fn new(later: &str) -> Option<Program> {
        needs_recorder().map(|()| Program::below(&target_directory(), later))
    }

    /// The same below a directory.
    fn below(directory: &Path, later: &str) -> Program {
        let directory = tempfile::tempdir_in(directory).unwrap();
        let program = Program { directory, home: Home::new() };
        fs::write(program.path("source"), vec![7; BYTES]).unwrap();
        // It is there before: a file that grows is not a new one.
        fs::write(program.path("starts"), "").unwrap();
        let (state, source, starts) = (program.quoted("state"), program.quoted("source"), program.quoted("starts"));
        let script = format!(
            "echo start >> {starts}\n\
             if [ -f {state}/index ]; then cat {state}/index > /dev/null; {later}\n\
             else cat {source} > /dev/null; mkdir {state}; head -c 5000 {source} > {state}/new; mv {state}/new {state}/index; fi"
        );
        write_script(&program.path("program"), &script);
        program
    }

    fn assert_second_run_is_kept(&self) {
        let (output, json) = self.record(&[]);
        output.success().says("recording a second run");
        assert_eq!((self.starts(), self.used()), (2, (false, true)));
        let index = self.path("state/index").display().to_string();
        let start = &json["first_start"];
        assert_eq!(start["written"], Value::from(vec![index]));
        assert_eq!(
            [&start["written_files"], &start["runs"], &start["kept_run"]],
            [1, 2, 2].map(Value::from).each_ref()
        );
        assert_eq!((&start["failure"], &json["runs"]), (&Value::Null, &Value::from(1)));
    }

    /// A path as a word of the shell.
    fn quoted(&self, name: &str) -> String {
        format!("'{}'", self.path(name).display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.path("starts")).unwrap().lines().count()
    }

    fn record(&self, options: &[&str]) -> (Done, Value) {
        self.record_with(options, |program| program)
    }

    fn record_with(&self, options: &[&str], with: impl Fn(Recorder) -> Recorder) -> (Done, Value) {
        let _alone = alone();
        let options = [&["--cold", "--json"], options, &["--"]].concat();
        let done = with(self.home.recorder(&options).arg(self.path("program"))).done();
        let json = done.err_json();
        (done, json)
    }

    /// Whether the recorded run read the source, and whether it read the cache.
    fn used(&self) -> (bool, bool) {
        let profile = self.home.load();
        let uses = |name: &str| find(&profile, &self.path(name)).is_some_and(|file| !file.deleted);
        (uses("source"), uses("state/index"))
    }
}

#[test]
fn second_run_after_a_first_start_is_kept() {
    let Some(program) = Program::new(":") else { return };
    program.assert_second_run_is_kept();
    // The cache is there: one run, and no sign.
    let (_, json) = program.record(&[]);
    assert_eq!((program.starts(), program.used(), &json["first_start"]), (3, (false, true), &Value::Null));
}

/// Regression: everything below `/tmp` counted as temporary.
#[test]
fn first_start_below_a_directory_for_temporary_files_is_seen() {
    let Some(()) = needs_recorder() else { return };
    Program::below(Path::new("/tmp"), ":").assert_second_run_is_kept();
}

#[test]
fn first_start_on_a_file_system_that_is_mounted_below_tmp_is_seen() {
    let Some(volume) = volume("ext4") else { return };
    Program::below(&volume.root, ":").assert_second_run_is_kept();
}

/// A program that reads its cache, finds it too old, and writes it again in place.
#[test]
fn first_start_that_rewrites_its_cache_in_place_is_seen() {
    let Some(program) = Program::new(":") else { return };
    fs::create_dir(program.path("state")).unwrap();
    fs::write(program.path("state/index"), "old\n").unwrap();
    let script = format!(
        "echo start >> {starts}\nread first < {index}\n\
         if [ \"$first\" = old ]; then cat {source} > /dev/null; echo new > {index}; fi",
        starts = program.quoted("starts"),
        index = program.quoted("state/index"),
        source = program.quoted("source"),
    );
    write_script(&program.path("program"), &script);
    program.assert_second_run_is_kept();
}

/// A file that this process has mapped and touched, so that an eviction leaves its pages.
fn mapped(path: &str) -> Mapping {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    let mapping = Mapping::new(&file, bytes).unwrap();
    (0..bytes).step_by(4096).for_each(|at| assert!(mapping.touch(at).is_some()));
    mapping
}

/// Regression: a program that writes a file that it reads at every start was recorded twice each time.
#[test]
fn program_that_rewrites_its_state_at_every_start_is_recorded_again_only_the_first_time() {
    let Some(program) = Program::new(":") else { return };
    fs::write(program.path("state"), "0\n").unwrap();
    let script = format!(
        "echo start >> {starts}\nread count < {state}\necho $((count + 1)) > {state}\ncat {source} > /dev/null",
        starts = program.quoted("starts"),
        state = program.quoted("state"),
        source = program.quoted("source"),
    );
    write_script(&program.path("program"), &script);
    // Regression: the pages of the list of libraries are seen only while no other process has it mapped, too.
    let libraries = mapped("/etc/ld.so.cache");
    let (_, json) = program.record(&[]);
    assert_eq!((program.starts(), &json["first_start"]["kept_run"]), (3, &Value::from(3)));
    drop(libraries);
    // Regression: the pages of the shell are seen only while no other process has them mapped, and the run counted as another first start.
    let shell = ahead_tests::rig::program::program("sh").args(["-c", "read line; true"]).open_input().start();
    let (_, json) = program.record(&[]);
    assert_eq!((program.starts(), &json["first_start"]), (4, &Value::Null));
    shell.end();
    let (_, json) = program.record(&[]);
    assert_eq!((program.starts(), &json["first_start"]), (5, &Value::Null));
}

/// A repository whose index does not know the times of its files: the next `git status` reads all of them, and writes the index again. Git
/// compares contents also if a file is as new as the index, to the second.
fn fresh_clone(directory: &Path, modified: SystemTime) {
    const FILES: usize = 300;
    for number in 0..FILES {
        fs::write(directory.join(format!("file-{number}")), format!("{number}\n").repeat(2000)).unwrap();
    }
    let git = |arguments: &[&str]| {
        let git = program("git").args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        git.current_dir(directory).env("HOME", directory).ok();
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "all"]);
    let modified = fs::FileTimes::new().set_modified(modified);
    for number in 0..FILES {
        let file = File::options().append(true).open(directory.join(format!("file-{number}"))).unwrap();
        file.set_times(modified).unwrap();
    }
}

/// Regression: the profile of a fresh clone held every file, and each later `git status` read them for nothing.
#[test]
fn profile_of_git_status_in_a_fresh_clone_is_of_a_later_start() {
    let Some(()) = needs_recorder() else { return };
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (below, modified) in [(PathBuf::from("/tmp"), SystemTime::now()), (target_directory(), long_ago)] {
        let (clone, home) = (tempfile::tempdir_in(below).unwrap(), Home::new());
        fresh_clone(clone.path(), modified);
        let _alone = alone();
        let record = home.recorder(&["--cold", "--", "git", "status", "--short"]);
        record.current_dir(clone.path()).env("HOME", clone.path()).ok().says("/.git/index");
        let profile = home.load();
        let of_work = profile.files.iter().filter(|file| file.path.windows(6).any(|part| part == b"/file-")).count();
        assert_eq!(of_work, 0);
        assert!(find(&profile, &clone.path().join(".git/index")).is_some());
    }
}

#[test]
fn first_start_is_recorded_once_if_that_was_requested_or_its_input_was_read() {
    for (options, has_input) in [(&["--runs", "1"][..], false), (&[][..], true)] {
        let Some(program) = Program::new(":") else { return };
        let with = |recorder: Recorder| if has_input { recorder.input("") } else { recorder };
        let (output, json) = program.record_with(options, with);
        output.success();
        assert_eq!((program.starts(), program.used()), (1, (true, false)), "{options:?}");
        let start = &json["first_start"];
        assert_eq!([&start["runs"], &start["kept_run"]], [1, 1].map(Value::from).each_ref());
    }
}

#[test]
fn first_run_is_kept_if_the_second_fails() {
    let Some(program) = Program::new("exit 3") else { return };
    let (output, json) = program.record(&[]);
    // The status of the run that is kept.
    output.success();
    assert_eq!((program.starts(), program.used()), (2, (true, false)));
    assert_eq!((&json["first_start"]["kept_run"], &json["kept"]), (&Value::from(1), &Value::from(true)));
    assert_eq!(json["first_start"]["failure"], "failed with status 3");
}

#[test]
fn several_runs_are_merged_and_a_first_start_is_reported() {
    let Some(program) = Program::new(":") else { return };
    let (_, json) = program.record(&["--runs", "2"]);
    assert_eq!((program.starts(), program.used(), &json["runs"]), (2, (true, true), &Value::from(2)));
    assert_eq!((&json["first_start"]["runs"], &json["first_start"]["kept_run"]), (&Value::from(2), &Value::from(0)));
}

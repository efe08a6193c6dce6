//! Recordings of a program's first start: it builds a cache, which its second start reads instead of what the first has read.

use super::rig::{Home, ahead, can_record, find};
use crate::machine_lock;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};

/// A program with a cache, outside of directories for temporary files.
struct Program {
    directory: tempfile::TempDir,
    home: Home,
}

const BYTES: usize = 300_000;

impl Program {
    /// `later`: what the starts after the first do beside reading the cache. `None`: nothing can be recorded here.
    fn new(later: &str) -> Option<Program> {
        if !can_record() {
            return None;
        }
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = Program { directory, home: Home::new() };
        fs::write(program.path("source"), vec![7; BYTES]).unwrap();
        // It is there before: a file that grows is not a new one.
        fs::write(program.path("starts"), "").unwrap();
        let path = |name: &str| program.path(name).display().to_string();
        let (state, source, starts) = (path("state"), path("source"), path("starts"));
        let script = format!(
            "#!/bin/sh\necho start >> {starts}\n\
             if [ -f {state}/index ]; then cat {state}/index > /dev/null; {later}\n\
             else cat {source} > /dev/null; mkdir {state}; head -c 5000 {source} > {state}/new; mv {state}/new {state}/index; fi\n"
        );
        fs::write(program.path("program"), script).unwrap();
        fs::set_permissions(program.path("program"), fs::Permissions::from_mode(0o755)).unwrap();
        Some(program)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.path("starts")).unwrap().lines().count()
    }

    fn record(&self, options: &[&str], input: Stdio) -> (Output, Value) {
        let _alone = machine_lock::alone();
        let mut command = ahead();
        command.args(["record", "--cold", "--json", "-o"]).arg(self.home.profile()).args(options);
        let output = command.arg("--").arg(self.path("program")).stdin(input).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let json = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{text}"));
        (output.clone(), serde_json::from_str(json).unwrap())
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
    let (output, json) = program.record(&[], Stdio::null());
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("recording a second run"), "{output:?}");
    assert_eq!((program.starts(), program.used()), (2, (false, true)));
    let index = program.path("state/index").display().to_string();
    let start = &json["first_start"];
    assert_eq!(start["created"], Value::from(vec![index]));
    assert_eq!([&start["created_files"], &start["runs"], &start["kept_run"]], [1, 2, 2].map(Value::from).each_ref());
    assert_eq!((&start["failure"], &json["runs"]), (&Value::Null, &Value::from(1)));
    // The cache is there: one run, and no sign.
    let (_, json) = program.record(&[], Stdio::null());
    assert_eq!((program.starts(), program.used(), &json["first_start"]), (3, (false, true), &Value::Null));
}

#[test]
fn first_start_is_recorded_once_if_that_was_requested_or_its_input_was_read() {
    for (options, input) in [(&["--runs", "1"][..], Stdio::null()), (&[][..], Stdio::piped())] {
        let Some(program) = Program::new(":") else { return };
        let (output, json) = program.record(options, input);
        assert!(output.status.success(), "{output:?}");
        assert_eq!((program.starts(), program.used()), (1, (true, false)), "{options:?}");
        let start = &json["first_start"];
        assert_eq!([&start["runs"], &start["kept_run"]], [1, 1].map(Value::from).each_ref());
    }
}

#[test]
fn first_run_is_kept_if_the_second_fails() {
    let Some(program) = Program::new("exit 3") else { return };
    let (output, json) = program.record(&[], Stdio::null());
    // The status of the run that is kept.
    assert!(output.status.success(), "{output:?}");
    assert_eq!((program.starts(), program.used()), (2, (true, false)));
    assert_eq!((&json["first_start"]["kept_run"], &json["kept"]), (&Value::from(1), &Value::from(true)));
    assert_eq!(json["first_start"]["failure"], "failed with status 3");
}

#[test]
fn several_runs_are_merged_and_a_first_start_is_reported() {
    let Some(program) = Program::new(":") else { return };
    let (_, json) = program.record(&["--runs", "2"], Stdio::null());
    assert_eq!((program.starts(), program.used(), &json["runs"]), (2, (true, true), &Value::from(2)));
    assert_eq!((&json["first_start"]["runs"], &json["first_start"]["kept_run"]), (&Value::from(2), &Value::from(0)));
}

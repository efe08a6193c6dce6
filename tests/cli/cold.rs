//! `ahead cold` without privilege.

use ahead_tests::rig::prelude::*;

fn cold(arguments: &[&str]) -> Program {
    ahead(["cold"]).args(arguments)
}

/// As root the test is one of root's: `ahead cold` then evicts everything. Here any user measures a small program.
#[test]
fn the_keys_are_those_of_hyperfine_and_each_result_has_all_runs() {
    let _alone = alone();
    let result = cold(&["--json", "--runs", "2", "--", "sh", "-c", "exit 0"]).json();
    let results = result["results"].as_array().unwrap();
    assert_eq!(
        results.iter().map(|one| one["parameters"]["cache"].as_str().unwrap()).collect::<Vec<_>>(),
        ["cold", "warm"]
    );
    for one in results {
        assert_eq!(one["command"], "sh -c 'exit 0'");
        for key in ["mean", "stddev", "median", "user", "system", "min", "max"] {
            assert!(one[key].is_f64(), "{key}: {result}");
        }
        let times: Vec<f64> = one["times"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
        assert_eq!((times.len(), &one["exit_codes"]), (2, &serde_json::json!([0, 0])), "{result}");
        assert!(one["min"].as_f64() <= one["mean"].as_f64() && one["mean"].as_f64() <= one["max"].as_f64(), "{result}");
        assert!(one["median_interval"].is_null(), "two runs have no interval: {result}");
    }
    assert_eq!(
        (&result["enough"], &result["is_precise"], &result["runs"]),
        (&"asked".into(), &false.into(), &2.into())
    );
}

#[test]
fn failing_missing_and_unusable_commands_are_refused() {
    let _alone = alone();
    cold(&["--", "nosuchprogram-9"]).fails(127).says("nosuchprogram-9: not found");
    cold(&["--", "/etc/passwd"]).fails(126).says("cannot execute");
    cold(&["--", "false"]).fails(1).says("exit status 1").says("--ignore-failure");
    let result = cold(&["-i", "--json", "-r", "1", "--", "sh", "-c", "exit 3"]).json();
    assert_eq!(result["results"][0]["exit_codes"], serde_json::json!([3]), "{result}");
    cold(&[]).fails(2).says("<CMD>");
    cold(&["--runs", "0", "--", "true"]).fails(2);
    cold(&["--json", "--show-output", "--", "true"]).fails(2).says("cannot be used with");
    cold(&["--prepare", "exit 5", "--", "true"]).fails(1).says("--prepare failed (exit status 5)");
}

#[test]
fn output_is_shown_only_if_asked_for_and_too_few_rounds_are_reported() {
    let _alone = alone();
    let shown = cold(&["--show-output", "--runs", "1", "--", "echo", "shown by it"]).ok();
    // Two runs, and the command in the heading.
    assert_eq!(shown.out.matches("shown by it").count(), 3, "{shown}");
    let silent = cold(&["--runs", "1", "--", "echo", "shown by it"]).ok();
    assert_eq!(silent.out.matches("shown by it").count(), 1, "{silent}");
    silent.prints("too few rounds for an interval: it takes 6");
}

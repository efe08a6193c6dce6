//! `ahead steer` without privilege: its arguments and rules. tests/root/steer.rs has the rest.

use ahead_tests::rig::prelude::*;

#[test]
fn wrong_arguments_are_status_2_with_the_reason() {
    for (arguments, reason) in [
        (&["--duration", "10"][..], r#""10" is not a time"#),
        (&["--sample-hits", "0"], "invalid value '0'"),
        (&["--max-window", "4096"], "has no unit"),
        (&["--max-window", "6K"], "is not a window"),
        (&["--max-window", "2G"], "is not a window"),
        (&["--metrics", ""], "expected a file"),
        (&["surplus"], "unexpected argument"),
    ] {
        let done = ahead([&["steer"], arguments].concat()).fails(2).out_is("");
        done.says(reason);
    }
}

/// Rules are text from outside. A mistake is one line with its position, and nothing is started.
#[test]
fn hostile_rules_are_refused_with_their_position() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("rules.toml");
    for (text, position) in [
        ("[limits]\nmax_window = \"16\"\n", "line 2, column 14"),
        ("[limits]\nmax_windows = \"16M\"\n", "line 2, column 1"),
        ("[[exclude]]\ncommand = 7\n", "line 2, column 11"),
        ("[[include]]\n", "line 1"),
        ("\u{1b}[2J", "line 1"),
        (&"[[exclude]]\ncommand = \"x\"\n".repeat(257), "line 513"),
        (&"#".repeat(100 << 10), "at most 65536 bytes"),
    ] {
        fs::write(&path, text).unwrap();

        let done = ahead(["steer", "--dry-run", "--rules", path.to_str().unwrap()]).fails(1).out_is("");
        done.says(position).never_says("\u{1b}").in_one_line();
    }
    for (path, reason) in [("/no/such/rules", "No such file"), ("/dev", "regular file")] {
        let done = ahead(["steer", "--rules", path]).fails(1).out_is("");
        done.says(reason);
    }
}

/// The page is made from the definitions. It prints the expected page where it differs.
#[test]
fn reference_of_metrics_is_that_of_the_code() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md")).unwrap();
    let table = &page[page.find("| metric |").expect("a table")..];
    assert_eq!(table, ahead_steer::metrics_reference() + &ahead_service::metrics_reference());
}

/// The unit is not enabled by installing it, and has no more capabilities than the guide names.
#[test]
fn unit_has_the_documented_capabilities() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let unit = fs::read_to_string(format!("{root}dist/systemd/ahead-steer.service")).unwrap();
    let guide = fs::read_to_string(format!("{root}docs/guide/steer.md")).unwrap();
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    assert_eq!(set.split(' ').count(), 5);
    for capability in set.split(' ') {
        assert!(guide.contains(&format!("`{capability}`")), "{capability} is not in the guide");
    }
    for line in ["Type=notify", "ExecReload=kill -HUP $MAINPID", "NoNewPrivileges=yes", "ProtectSystem=strict"] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}

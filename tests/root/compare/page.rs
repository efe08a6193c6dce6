//! Permitted targets of `compare --html` and `show --html`.

use super::Small;
use ahead_tests::rig::prelude::*;
use std::os::unix::fs::symlink;

/// Regression: the report's path was checked after the measurement, and the measurement was lost.
#[test]
fn an_unwritable_report_is_an_error_before_the_first_run() {
    let Some(small) = Small::new() else { return };
    let out = small.path("missing/report.html");
    small.compare(&["--html", out.to_str().unwrap()], r#"touch "$0/ran""#).fails(1).says("report.html");
    assert!(!small.path("ran").exists());
}

/// Regression: a partial report replaced the earlier one.
#[test]
fn a_full_disk_keeps_the_earlier_report() {
    let Some(small) = Small::new() else { return };
    let script = r#"mount -t tmpfs -o size=16k none "$2" && cd "$2" && echo earlier >report &&
        { head -c 16k /dev/zero >fill 2>&1 || true; } && ! "$1" show "$3" --html report && cat report && ls -A"#;
    let [full] = make_directories(small.home.path(), ["full"]);
    let done = program(built("ahead")).args([full, small.path("p.ahead")]).apart(script).ok().says("No space left");
    assert!(done.out.ends_with("earlier\nfill\nreport\n"), "{done}");
}

/// Regression: root followed the user's link and replaced a file of root; a report in the user's directory belonged to root.
#[test]
fn report_belongs_to_the_user_and_root_follows_no_link() {
    let Some(small) = Small::new() else { return };
    let [users] = make_directories(small.home.path(), ["users"]);
    let roots = small.path("roots");
    fs::write(&roots, "root's").unwrap();
    for (name, mode) in [("", 0o755), ("users", 0o777), ("roots", 0o644), ("p.ahead", 0o644)] {
        set_mode(small.path(name), mode);
    }
    let (link, report) = (users.join("link"), users.join("report"));
    symlink(&roots, &link).unwrap();
    let show = |out: &Path| ahead(["show", "--html"]).args([out, &small.path("p.ahead")]).behind_sudo();
    show(&link).fails(1).says("as nobody").says("ermission denied");
    let compared = |out: &Path, why: &str| {
        let html = ["--html", out.to_str().unwrap()];
        small.compare(&html, r#"touch "$0/users/ran""#).behind_sudo().fails(1).says(why);
        assert!(!users.join("ran").exists());
    };
    compared(&link, "as nobody");
    assert_eq!((small.read("roots").as_str(), fs::metadata(&roots).unwrap().uid()), ("root's", 0));
    show(&report).ok();
    assert_eq!(fs::metadata(&report).unwrap().uid(), STRANGER);
    // The user may not replace a file of root there; ahead reports this before the runs.
    std::os::unix::fs::chown(&report, Some(0), Some(0)).unwrap();
    compared(&report, "cannot write");
}

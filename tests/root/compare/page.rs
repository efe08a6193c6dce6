//! Permitted targets of `compare --html` and `show --html`.

use super::{BEHIND_SUDO, Small, ahead, stderr_of};
use crate::machine_lock;
use assert_cmd::Command;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// Regression: the report's path was checked after the measurement, and the measurement was lost.
#[test]
fn an_unwritable_report_is_an_error_before_the_first_run() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let out = small.path("missing/report.html");
    let done = small.compare(&["--html", out.to_str().unwrap()], r#"touch "$0/ran""#).assert().code(1);
    assert!(stderr_of(&done).contains("report.html"), "{}", stderr_of(&done));
    assert!(!small.path("ran").exists());
}

/// Regression: a partial report replaced the earlier one.
#[test]
fn a_full_disk_keeps_the_earlier_report() {
    // A mount namespace holds a copy of every mount.
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let script = r#"mount -t tmpfs -o size=16k none "$1" && cd "$1" && echo earlier >report &&
        { head -c 16k /dev/zero >fill 2>&1 || true; } && ! "$0" show "$2" --html report && cat report && ls -A"#;
    fs::create_dir(small.path("full")).unwrap();
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .args([small.path("full"), small.path("p.ahead")])
        .assert()
        .success();
    assert!(stderr_of(&done).contains("No space left"), "{}", stderr_of(&done));
    assert!(String::from_utf8_lossy(&done.get_output().stdout).ends_with("earlier\nfill\nreport\n"));
}

/// Regression: root followed the user's link and replaced a file of root; a report in the user's directory belonged to root.
#[test]
fn report_belongs_to_the_user_and_root_follows_no_link() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let (users, roots) = (small.path("users"), small.path("roots"));
    fs::create_dir(&users).unwrap();
    fs::write(&roots, "root's").unwrap();
    for (name, mode) in [("", 0o755), ("users", 0o777), ("roots", 0o644), ("p.ahead", 0o644)] {
        fs::set_permissions(small.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (link, report) = (users.join("link"), users.join("report"));
    symlink(&roots, &link).unwrap();
    let show = |out: &Path| ahead(&["show", "--html"]).args([out, &small.path("p.ahead")]).envs(BEHIND_SUDO).assert();
    let message = stderr_of(&show(&link).code(1));
    assert!(message.contains("as nobody") && message.contains("ermission denied"), "{message}");
    let html = ["--html", link.to_str().unwrap()];
    let done = small.compare(&html, r#"touch "$0/users/ran""#).envs(BEHIND_SUDO).assert().code(1);
    assert!(stderr_of(&done).contains("as nobody") && !users.join("ran").exists(), "{}", stderr_of(&done));
    assert_eq!((small.read("roots").as_str(), fs::metadata(&roots).unwrap().uid()), ("root's", 0));
    show(&report).success();
    assert_eq!(fs::metadata(&report).unwrap().uid(), 65_534);
    // The user may not replace a file of root there; ahead reports this before the runs.
    std::os::unix::fs::chown(&report, Some(0), Some(0)).unwrap();
    let html = ["--html", report.to_str().unwrap()];
    let done = small.compare(&html, r#"touch "$0/users/ran""#).envs(BEHIND_SUDO).assert().code(1);
    assert!(stderr_of(&done).contains("cannot write") && !users.join("ran").exists(), "{}", stderr_of(&done));
}

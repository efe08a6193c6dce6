//! How programs are started: what they find of whoever started us.

use std::process::Command;

/// Starts this script by way of `ahead run`, as systemd would: a socket is descriptor 3, and the process that it is for is
/// named by its number, which is ours.
fn started(script: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let activated = r#"exec 3</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_PIDFDID=1 WATCHDOG_PID=$$ OTHER=$$
        exec "$0" run -- sh -c "$1""#;
    let output = Command::new("sh")
        .args(["-c", activated])
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .arg(script)
        .env("XDG_STATE_HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Regression: `LISTEN_PID` was our number and not the program's, and the program ignored its sockets.
#[test]
fn sockets_and_watchdog_of_systemd_are_the_programs() {
    let script = "test $LISTEN_PID = $$ && test $WATCHDOG_PID = $$ && test $OTHER != $$ && echo named; \
                  test $LISTEN_FDS = 1 && test -e /proc/self/fd/3 && echo open; test -z \"$LISTEN_PIDFDID\" && echo by number";
    assert_eq!(started(script), "named\nopen\nby number\n");
}

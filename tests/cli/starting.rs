//! Variables of the service manager that `ahead run` passes on to the program.

use ahead_tests::rig::prelude::*;

/// Runs this script through `ahead run` as systemd would: descriptor 3 is a socket, and `LISTEN_PID` is the process id of
/// `ahead run`. Returns the script's output.
fn run_activated(script: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let activated =
        "exec 3</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_PIDFDID=1 WATCHDOG_PID=$$ OTHER=$$; exec \"$@\"";
    ahead(["run", "--", "sh", "-c", script]).by_script(activated).env("XDG_STATE_HOME", home.path()).text()
}

/// Regression: `LISTEN_PID` kept the process id of `ahead run`, so the program ignored its sockets.
#[test]
fn systemd_sockets_and_watchdog_name_the_program() {
    let script = "test $LISTEN_PID = $$ && test $WATCHDOG_PID = $$ && test $OTHER != $$ && echo named; \
                  test $LISTEN_FDS = 1 && test -e /proc/self/fd/3 && echo open; test -z \"$LISTEN_PIDFDID\" && echo by number";
    assert_eq!(run_activated(script), "named\nopen\nby number\n");
}

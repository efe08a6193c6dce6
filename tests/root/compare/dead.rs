//! Comparisons with a file system that does not answer.

use super::Small;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::silent_mount::SilentMount;

/// Whether a thread of a process waits in openat2(2); the number is the same on all machines.
fn is_opening(pid: u32) -> bool {
    let mut calls =
        process::threads(pid).into_iter().filter_map(|thread| fs::read_to_string(thread.join("syscall")).ok());
    calls.any(|call| call.starts_with("437 "))
}

/// Regression: root waited for a file system that did not answer, and only SIGKILL ended the wait.
#[test]
fn a_comparison_on_a_silent_file_system_can_be_interrupted() {
    let Some(small) = Small::new() else { return };
    let mut profile = ahead_files::load(&small.path("p.ahead")).unwrap();
    profile.files[0].path = small.path("dead/file").into_os_string().into_vec();
    ahead_files::save(&profile, &small.path("p.ahead")).unwrap();
    let Some(_dead) = SilentMount::not_read(small.path("dead")) else { return };
    let mut comparing = small.compare(&[], "true").start();
    // Several samples in a row: the program opens other files, too.
    let mut looks = 0;
    while looks < 100 && !comparing.has_ended() {
        // The command may first wait for another measurement on this machine, without a limit.
        looks = if is_opening(comparing.pid()) { looks + 1 } else { 0 };
    }
    comparing.signal("TERM");
    let interrupted = Instant::now();
    assert_eq!(comparing.status().code(), Some(128 + 15));
    assert!(interrupted.elapsed() < Duration::from_secs(60));
}

/// Regression: before its start, a recording waited without end for its --until-file on a silent file system.
#[test]
fn an_until_file_on_a_silent_file_system_is_reported() {
    let Some(small) = Small::new() else { return };
    let Some(_dead) = SilentMount::not_read(small.path("dead")) else { return };
    let record =
        ahead(["record", "-o"]).arg(small.path("other.ahead")).arg("--until-file").arg(small.path("dead/ready"));
    let done = record.args(["--", "echo", "started"]).limit(Duration::from_secs(60)).fails(125);
    done.says("does not answer").out_is("");
}

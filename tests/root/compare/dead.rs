//! Comparisons with a file system that does not answer.

use super::Small;
use crate::machine_lock;
use ahead_sys::mounting;
use assert_cmd::Command;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A FUSE file system whose daemon never answers. It is unmounted on drop.
struct Dead {
    _device: fs::File,
    point: PathBuf,
}

impl Dead {
    fn mount(point: PathBuf) -> Option<Dead> {
        fs::create_dir(&point).unwrap();
        let device = fs::File::options().read(true).write(true).open("/dev/fuse");
        let device = device.inspect_err(|error| eprintln!("skipped: /dev/fuse: {error}")).ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mounting::mount(Path::new("dead"), &point, "fuse", false, &options).unwrap();
        Some(Dead { _device: device, point })
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        mounting::unmount_lazy(&self.point).unwrap();
    }
}

/// Whether a thread of a process waits in openat2(2); the number is the same on all machines.
fn is_opening(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut calls = threads.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    calls.any(|call| call.starts_with("437 "))
}

/// Regression: root waited for a file system that did not answer, and only SIGKILL ended the wait.
#[test]
fn a_comparison_on_a_silent_file_system_can_be_interrupted() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let mut profile = ahead_profile::load(&small.path("p.ahead")).unwrap();
    profile.files[0].path = small.path("dead/file").into_os_string().into_vec();
    ahead_profile::save(&profile, &small.path("p.ahead")).unwrap();
    let Some(_dead) = Dead::mount(small.path("dead")) else { return };
    let mut comparing = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["compare", "--runs", "1", "--no-reference", "-p"])
        .arg(small.path("p.ahead"))
        .args(["--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Several samples in a row: the program opens other files, too.
    let mut looks = 0;
    while looks < 100 && comparing.try_wait().unwrap().is_none() {
        // The command may first wait for another measurement on this machine, without a limit.
        looks = if is_opening(comparing.id()) { looks + 1 } else { 0 };
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    Command::new("kill").args(["-TERM", &comparing.id().to_string()]).assert().success();
    let mut status = None;
    while status.is_none() && Instant::now() < deadline {
        status = comparing.try_wait().unwrap();
        std::thread::yield_now();
    }
    let _ = comparing.kill();
    assert_eq!(status.and_then(|status| status.code()), Some(128 + 15));
}

/// Regression: before its start, a recording waited without end for its --until-file on a silent file system.
#[test]
fn an_until_file_on_a_silent_file_system_is_reported() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let Some(_dead) = Dead::mount(small.path("dead")) else { return };
    let done = Command::cargo_bin("ahead")
        .unwrap()
        .args(["record", "-o"])
        .arg(small.path("other.ahead"))
        .arg("--until-file")
        .arg(small.path("dead/ready"))
        .args(["--", "echo", "started"])
        .timeout(Duration::from_secs(60))
        .assert()
        .code(125);
    assert!(super::stderr_of(&done).contains("does not answer"), "{}", super::stderr_of(&done));
    assert!(done.get_output().stdout.is_empty());
}

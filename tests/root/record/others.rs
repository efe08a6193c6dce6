//! Recordings of running processes: a process with all its descendants, a cgroup, all processes of the machine.

use super::rig::{Home, entry, find, free_port, ranges, volume_undisturbed};
use ahead_profile::{MilestoneKind, Profile};
use ahead_tests::rig::group::Group;
use ahead_tests::rig::prelude::*;
use std::net::TcpListener;

/// A shell that reads commands from the test: the test chooses the time of each.
fn shell() -> Running {
    program("sh").open_input().start()
}

/// Records running processes while `work` runs; then ends the recorder.
fn observe(home: &Home, whom: &[&str], work: impl FnOnce()) -> Profile {
    let recorder = start_observing(home, whom);
    work();
    recorder.end_by("TERM").success();
    home.load()
}

#[test]
fn running_processes_can_be_observed() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let [mine, others] = ["mine", "others"].map(|name| volume.pages(name, 2));
    let done = volume.root.join("done");
    let home = Home::new();
    let (mut own, mut stranger) = (shell(), shell());
    let pid = own.pid().to_string();
    let mut observed = |whom: &[&str]| {
        let work = |shell: &mut Running, file: &Path| {
            shell.send(&format!("cat {} >/dev/null; : > {}", file.display(), done.display()));
            wait_until("the shell has read", || done.exists());
            fs::remove_file(&done).unwrap();
        };
        let profile = observe(&home, whom, || {
            work(&mut own, &mine);
            work(&mut stranger, &others);
        });
        assert_eq!(ranges(entry(&profile, &mine)), vec![0..2 * PAGE], "{whom:?}");
        find(&profile, &others).map(ranges)
    };
    assert_eq!(observed(&["--pid", &pid]), None);
    assert_eq!(observed(&["--all"]), Some(vec![0..2 * PAGE]));
    let Some(outer) = Group::of_v2() else { return };
    let inner = outer.inner();
    inner.add(pid.parse().unwrap());
    assert_eq!(observed(&["--cgroup", outer.0.to_str().unwrap()]), None);
}

/// A recorder of running processes that has started to observe.
fn start_observing(home: &Home, whom: &[&str]) -> Running {
    let mut recorder = home.recorder(whom).start();
    recorder.says("observing");
    recorder
}

fn assert_ready(home: &Home, recorder: Running) {
    recorder.ends_with(0);
    assert!(home.load().milestones.iter().any(|milestone| milestone.kind == MilestoneKind::Ready));
}

#[test]
fn readiness_ends_the_recording_of_running_processes_and_not_the_processes() {
    let Some(home) = Home::undisturbed() else { return };
    let mut shell = shell();
    let pid = shell.pid().to_string();
    let ready = home.path("ready");

    let recorder = start_observing(&home, &["--pid", &pid, "--until-file", ready.to_str().unwrap()]);
    shell.send(&format!(": > {}", ready.display()));
    assert_ready(&home, recorder);
    assert!(!shell.has_ended(), "the shell was ended");

    for whom in [vec!["--all"], vec!["--pid", &pid]] {
        let port = free_port();
        let recorder = start_observing(&home, &[&whom[..], &["--until-port", &port.to_string()]].concat());
        let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_ready(&home, recorder);
    }

    let Some(outer) = Group::of_v2() else { return };
    let inner = outer.inner();
    inner.add(shell.pid());
    let port = free_port();
    let whom = ["--cgroup", outer.0.to_str().unwrap(), "--until-port", &port.to_string()];
    let recorder = start_observing(&home, &whom);
    let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    assert_ready(&home, recorder);
    drop(shell);
}

/// Each process forks the next one and waits for it; the last one reads the file.
const CHAIN: &str = r#"my ($file, $go) = @ARGV;
for (1..500) {
    last if -e $go;
    if (my $child = fork()) { waitpid($child, 0); exit }
    select(undef, undef, undef, 0.004);
}
select(undef, undef, undef, 0.01) until -e $go;
open(F, "<", $file); sysread(F, $b, 100000);"#;

#[test]
fn a_child_that_is_forked_while_its_family_is_listed_is_followed() {
    let Some(volume) = volume_undisturbed("ext4") else { return };
    let file = volume.pages("read-by-the-last", 2);
    let home = Home::new();
    let go = home.path("go");
    let chain = program("perl").args(["-e", CHAIN]).args([&file, &go]).start();
    let recorder = start_observing(&home, &["--pid", &chain.pid().to_string()]);
    fs::write(&go, "").unwrap();
    chain.ends_with(0);
    // The recording ends with the named process.
    recorder.ends_with(0);
    assert_eq!(ranges(entry(&home.load(), &file)), vec![0..2 * PAGE]);
}

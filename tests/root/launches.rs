//! Every exec of the machine, and what each start waits for: real programs.

use ahead_observe::{Launch, LaunchEvent, LaunchOptions, Launches, StartAccount, StartId};
use ahead_tests::rig::emulated::stall;
use ahead_tests::rig::prelude::*;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The observer, and everything that it has reported.
struct Watch {
    launches: Launches,
    seen: Vec<LaunchEvent>,
}

impl Watch {
    /// `None`, with the reason printed, where execs cannot be observed.
    fn new(options: &LaunchOptions) -> Option<Watch> {
        needs_root()?;
        match Launches::start(options) {
            Ok(launches) => Some(Watch { launches, seen: Vec::new() }),
            Err(error) => skip(error),
        }
    }

    fn take(&mut self) -> usize {
        let seen = &mut self.seen;
        self.launches.take(Launches::MOST_AT_ONCE, |event| seen.push(event.clone())).unwrap()
    }

    /// The first exec for which this holds.
    fn exec(&mut self, what: &str, is_it: impl Fn(&Launch) -> bool) -> Launch {
        let mut found = None;
        wait_until(what, || {
            self.take();
            found = self.execs().find(|launch| is_it(launch)).cloned();
            found.is_some()
        });
        found.unwrap()
    }

    fn ended(&mut self, start: StartId) -> StartAccount {
        let mut found = None;
        wait_until("the end of the start", || {
            self.take();
            found = self.seen.iter().find_map(|event| match event {
                LaunchEvent::Ended(id, account) if *id == start => Some(*account),
                _ => None,
            });
            found.is_some()
        });
        found.unwrap()
    }

    fn execs(&self) -> impl Iterator<Item = &Launch> {
        self.seen.iter().filter_map(|event| match event {
            LaunchEvent::Exec(launch) => Some(launch),
            LaunchEvent::Ended(..) => None,
        })
    }
}

/// Whether the program has this name, by its last component.
fn is_named(launch: &Launch, name: &str) -> bool {
    launch.name.split(|byte| *byte == b'/').next_back() == Some(name.as_bytes())
}

/// A directory with links to programs, with names that no other process of the machine uses.
fn programs(of: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = in_memory();
    for (name, program) in of {
        fs::copy(fs::canonicalize(program).unwrap(), directory.path().join(name)).unwrap();
    }
    set_mode(directory.path(), 0o755);
    directory
}

#[test]
fn programs_started_by_a_program_are_starts_nested_in_it() {
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let home = programs(&[("outer-shell", "/bin/sh"), ("inner-true", "/bin/true"), ("last-cat", "/bin/cat")]);
    let place = home.path().display();
    // The shell executes itself again, starts a program, and replaces itself by another one.
    let script = format!("{place}/outer-shell -c ': ; exit 0'; {place}/inner-true; exec {place}/last-cat /dev/null");
    let mut child = Command::new(home.path().join("outer-shell")).args(["-c", &script]).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());

    let outer = watch.exec("the shell", |launch| launch.pid == pid && is_named(launch, "outer-shell"));
    let own = outer.new_start().expect("a separate start");
    let file = fs::metadata(home.path().join("outer-shell")).unwrap();
    assert_eq!((outer.parent, outer.uid, outer.gid, outer.is_elevated), (std::process::id(), 0, 0, false));
    assert_eq!((outer.program.inode, outer.program.device.to_stat()), (file.ino(), file.dev()));
    assert_eq!(outer.mount_namespace, ahead_sys::mounts::namespace(None).unwrap());
    assert!(!outer.is_script && outer.interpreter.is_empty() && !outer.is_truncated);
    let again = watch.exec("the shell again", |launch| launch.pid != pid && is_named(launch, "outer-shell"));
    assert_eq!((again.start, again.new_start(), again.parent), (Some(own), None, pid));
    let inner = watch.exec("the inner program", |launch| is_named(launch, "inner-true"));
    let inner_start = inner.new_start().expect("a separate start");
    assert_eq!((inner.nested_in, inner.parent), (Some(own), pid));
    let last = watch.exec("the last program", |launch| is_named(launch, "last-cat"));
    assert_eq!((last.pid, last.nested_in), (pid, Some(own)));
    let last_start = last.new_start().expect("a separate start");
    assert_ne!(last_start, own);
    for start in [inner_start, own, last_start] {
        let account = watch.ended(start);
        assert!(account.processes == 0 && account.waited <= account.elapsed + account.waited_in_exec, "{account:?}");
        assert_eq!(watch.launches.account(start).unwrap(), None);
    }
    assert_eq!(watch.launches.losses().unwrap().starts, 0);
}

#[test]
fn script_is_a_start_with_the_names_of_itself_and_its_interpreter() {
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let home = in_memory();
    for name in ["first-script", "second-script"] {
        write_script(&home.path().join(name), "[ -z \"$1\" ] || \"$1\"");
    }
    let [first, second] = ["first-script", "second-script"].map(|name| home.path().join(name));
    assert!(Command::new(&first).arg(&second).status().unwrap().success());
    let outer = watch.exec("the first script", |launch| is_named(launch, "first-script"));
    let inner = watch.exec("the second script", |launch| is_named(launch, "second-script"));
    for (launch, path) in [(&outer, &first), (&inner, &second)] {
        assert!(launch.is_script && launch.name == path.as_os_str().as_bytes(), "{launch:?}");
        assert_eq!(launch.interpreter, b"/bin/sh");
        assert_eq!(launch.program.inode, fs::metadata("/bin/sh").unwrap().ino());
    }
    // Both have the same interpreter, and are two programs.
    assert_eq!(inner.nested_in, outer.new_start());
    assert!(inner.new_start().is_some());
}

#[test]
fn setuid_program_is_elevated_and_has_the_real_user() {
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let home = programs(&[("elevated-true", "/bin/true"), ("plain-true", "/bin/true")]);
    set_mode(home.path().join("elevated-true"), 0o4755);
    let status = |name: &str| Command::new(home.path().join(name)).uid(STRANGER).gid(STRANGER).status();
    // Memory may be mounted without setuid programs.
    let honours = !program("findmnt").args(["-no", "OPTIONS", "-T"]).arg(home.path()).done().out.contains("nosuid");
    assert!(status("elevated-true").unwrap().success() && status("plain-true").unwrap().success());
    for (name, is_elevated) in [("elevated-true", honours), ("plain-true", false)] {
        let launch = watch.exec(name, |launch| is_named(launch, name));
        assert_eq!((launch.uid, launch.gid, launch.is_elevated), (STRANGER, STRANGER, is_elevated), "{name}");
    }
}

/// The processes of the loop have few numbers, so that each is used again, while starts with the same number are known.
#[test]
fn reused_process_number_is_another_start() {
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let home = programs(&[("reused-true", "/bin/true")]);
    // A PID namespace would have its own numbers, so the next number of the machine is set.
    let last = Path::new("/proc/sys/kernel/ns_last_pid");
    if !last.exists() {
        return eprintln!("skipped: this kernel cannot set the next process number");
    }
    let _alone = alone();
    let mut starts: Vec<StartId> = Vec::new();
    let first =
        Command::new(home.path().join("reused-true")).spawn().map(|mut child| (child.id(), child.wait())).unwrap().0;
    wait_until("the number is used again", || {
        fs::write(last, (first - 1).to_string()).unwrap();
        let mut child = Command::new(home.path().join("reused-true")).spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        pid == first
    });
    wait_until("both starts", || {
        watch.take();
        starts = watch
            .execs()
            .filter(|launch| launch.pid == first && is_named(launch, "reused-true"))
            .filter_map(Launch::new_start)
            .collect();
        starts.len() >= 2
    });
    assert!(starts[0].began_ns < starts[1].began_ns);
    for start in starts {
        assert!(watch.ended(start).elapsed < Duration::from_secs(60));
    }
}

#[test]
fn account_of_a_running_start_is_given_until_it_is_ended() {
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let home = programs(&[("running-shell", "/bin/sh"), ("later-true", "/bin/true")]);
    let mut shell = program(home.path().join("running-shell")).open_input().start();
    let start = watch.exec("the shell", |launch| is_named(launch, "running-shell")).new_start().unwrap();
    let account = watch.launches.account(start).unwrap().unwrap();
    assert!(account.processes == 1 && account.elapsed > Duration::ZERO);
    assert!(watch.launches.account(StartId { began_ns: start.began_ns + 1, ..start }).unwrap().is_none());
    assert!(watch.launches.end(start).unwrap().is_some());
    assert_eq!((watch.launches.account(start).unwrap(), watch.launches.end(start).unwrap()), (None, None));
    // What it starts now is nested in nothing.
    shell.send(&home.path().join("later-true").display().to_string());
    let later = watch.exec("the later program", |launch| is_named(launch, "later-true"));
    assert!(later.nested_in.is_none() && later.new_start().is_some());
}

/// The table has room for one start: the others are announced without an account, and counted.
#[test]
fn starts_beyond_the_table_are_announced_and_counted() {
    let Some(mut watch) = Watch::new(&LaunchOptions { starts: 1, ..LaunchOptions::default() }) else { return };
    let home = programs(&[("full-shell", "/bin/sh"), ("full-true", "/bin/true")]);
    let script = format!("for i in 1 2 3; do {}/full-true; done; exit 0", home.path().display());
    // A start of another program may have the entry, which it leaves at its end.
    wait_until("a start without an account", || {
        assert!(Command::new(home.path().join("full-shell")).args(["-c", &script]).status().unwrap().success());
        watch.take();
        watch.launches.losses().unwrap().starts > 0
    });
    let without = watch.exec("a start without an account", |launch| launch.start.is_none());
    assert_eq!(without.new_start(), None);
}

#[test]
fn two_thousand_execs_are_all_announced_or_counted() {
    const EXECS: usize = 2000;
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let home = programs(&[("many-true", "/bin/true")]);
    let path = home.path().join("many-true");
    let script = format!("for i in $(seq {EXECS}); do {}; done", path.display());
    let shell = program("sh").args(["-c", &script]).start();
    let lost = |watch: &Watch| watch.launches.losses().unwrap().events as usize;
    let count = |watch: &Watch| watch.execs().filter(|launch| is_named(launch, "many-true")).count();
    let before = lost(&watch);
    wait_until("all execs", || {
        watch.take();
        count(&watch) + lost(&watch) - before >= EXECS
    });
    shell.ends_with(0);
    assert!(count(&watch) <= EXECS);
    // Here the reader is not slow, so nothing is lost.
    assert_eq!((count(&watch), lost(&watch)), (EXECS, before));
    let starts: Vec<StartId> =
        watch.execs().filter(|launch| is_named(launch, "many-true")).filter_map(Launch::new_start).collect();
    assert_eq!(starts.len(), EXECS);
    starts.into_iter().for_each(|start| assert_eq!(watch.ended(start).processes, 0));
}

#[test]
fn events_beyond_the_ring_buffer_are_counted() {
    const EXECS: u64 = 1000;
    let Some(watch) = Watch::new(&LaunchOptions { ring_bytes: 1, ..LaunchOptions::default() }) else { return };
    let script = format!("for i in $(seq {EXECS}); do /bin/true; done");
    program("sh").args(["-c", &script]).ok();
    let lost = watch.launches.losses().unwrap().events;
    // 16 KiB have room for fewer than 200 events of at least 104 bytes.
    assert!(lost >= EXECS - 200, "{lost}");
}

#[test]
fn waits_for_a_slow_disk_are_in_the_account_of_the_innermost_start() {
    const STALL_MS: u64 = 200;
    const READS: u64 = 5;
    let Some(mut disks) = Disks::new() else { return };
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let (disk, mount) = disks.mounted("waits", &["--size", "64M", "--model", "ssd", "--fs", "ext4"]);
    let file = mount.join("file");
    fs::write(&file, vec![7; 64 * MIB as usize / 8]).unwrap();
    make_cold(&file);
    let home = programs(&[("waiting-shell", "/bin/sh"), ("waiting-dd", "/bin/dd")]);
    stall(&disk, STALL_MS);
    // Direct reads: each is one wait, whatever is cached.
    let script = format!(
        "{}/waiting-dd if={} of=/dev/null bs=4096 count={READS} iflag=direct; exit 0",
        home.path().display(),
        file.display()
    );
    program(home.path().join("waiting-shell")).args(["-c", &script]).ok();
    let reader = watch.exec("the reader", |launch| is_named(launch, "waiting-dd"));
    let outer = reader.nested_in.expect("the shell's start");
    let inner = watch.ended(reader.new_start().unwrap());
    let stalls = Duration::from_millis(READS * STALL_MS);
    assert!(u64::from(inner.waits) >= READS && inner.waited >= stalls, "{inner:?}");
    assert!(inner.read_bytes >= READS * PAGE && inner.waited <= inner.elapsed + inner.waited_in_exec, "{inner:?}");
    // The shell only waited for its child, which is no wait for I/O.
    let outer = watch.ended(outer);
    assert!(outer.waited < stalls && outer.elapsed >= stalls, "{outer:?}");
}

/// execve reads the program before it is announced: a program on a cold disk has waited at its begin.
#[test]
fn wait_of_the_exec_itself_belongs_to_the_new_start() {
    const STALL_MS: u64 = 200;
    let Some(mut disks) = Disks::new() else { return };
    let Some(mut watch) = Watch::new(&LaunchOptions::default()) else { return };
    let (disk, mount) = disks.mounted("exec", &["--size", "64M", "--model", "ssd", "--fs", "ext4"]);
    let program_file = mount.join("cold-true");
    fs::copy("/bin/true", &program_file).unwrap();
    make_cold(&program_file);
    stall(&disk, STALL_MS);
    assert!(Command::new(&program_file).status().unwrap().success());
    let launch = watch.exec("the program", |launch| is_named(launch, "cold-true"));
    let account = watch.ended(launch.new_start().unwrap());
    assert!(account.waited_in_exec >= Duration::from_millis(STALL_MS), "{account:?}");
    assert!(account.waited >= account.waited_in_exec && account.waits >= 1, "{account:?}");
}

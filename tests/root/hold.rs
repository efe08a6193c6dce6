//! Execs of marked programs wait for the launch service, and for nothing else: real programs.

use ahead_process::messages::{self, Received};
use ahead_service::hold::{HeldExec, Holder};
use ahead_sys::fork::{fork_worker, run_in_child};
use ahead_tests::rig::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// A process that holds execs, as the service does, until it is ordered to release them.
struct Service {
    socket: OwnedFd,
    pid: u32,
}

/// An exec that waits.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    pid: u32,
    program: String,
    variant: Option<String>,
    user: (u32, u32),
}

impl Service {
    /// `None`, with the reason printed, where execs cannot be held.
    fn start(programs: &[&Path]) -> Option<Service> {
        needs_root()?;
        let (socket, theirs) = messages::pair().unwrap();
        let programs: Vec<PathBuf> = programs.iter().map(|path| path.to_path_buf()).collect();
        let null = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
        let (kept, errors) = ([theirs, null()], null());
        // A copy has one thread, as the service. The copy of the copy has none of our descriptors: a pipe of a start beside it would stay open.
        let forked = run_in_child(|| drop(fork_worker(kept, errors, |[socket, _]| hold(&socket, &programs))));
        assert_eq!(forked.unwrap(), 0);
        match messages::get::<Result<u32, String>>(&socket, deadline()) {
            Received::Answer(Ok(pid)) => Some(Service { socket, pid }),
            Received::Answer(Err(why)) => skip(why),
            other => panic!("{other:?}"),
        }
    }

    /// The next exec that waits; `None`: none does now.
    fn seen(&self) -> Option<Seen> {
        match messages::get(&self.socket, Some(Instant::now())) {
            Received::Answer(seen) => Some(seen),
            _ => None,
        }
    }

    fn next(&self) -> Seen {
        match messages::get(&self.socket, deadline()) {
            Received::Answer(seen) => seen,
            other => panic!("no exec waits: {other:?}"),
        }
    }

    fn release(&self, seen: &Seen) {
        messages::put(&self.socket, &seen.pid).unwrap();
    }

    /// Starts the program until an exec of it waits: files are marked a little later.
    fn held(&self, start: impl Fn() -> Program + Clone + Send + 'static) -> (Seen, JoinHandle<Done>) {
        let until = deadline();
        while Some(Instant::now()) < until {
            let start = start.clone();
            let running = std::thread::spawn(move || start().done());
            while !running.is_finished() {
                if let Some(seen) = self.seen() {
                    return (seen, running);
                }
                std::thread::yield_now();
            }
        }
        panic!("no exec waits");
    }

    /// The process of the gate.
    fn gate(&self) -> u32 {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap();
        let mut children = children.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
        children.find(|pid| comm(*pid) == "aheadd-gate\n").expect("a gate")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        kill(self.pid);
    }
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// The process may have ended.
fn kill(pid: u32) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
}

fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(30))
}

/// The service: reports each exec that waits, and lets it go on at an order.
fn hold(socket: &OwnedFd, programs: &[PathBuf]) {
    let started = Holder::start().and_then(|holder| {
        programs.iter().try_for_each(|program| holder.mark(program))?;
        Ok(holder)
    });
    let answer = started.as_ref().map(|_| std::process::id()).map_err(ToString::to_string);
    messages::put(socket, &answer).unwrap();
    let (Ok(mut holder), mut waiting) = (started, Vec::<HeldExec>::new()) else { return };
    loop {
        poll(&mut [PollFd::new(socket, PollFlags::IN), PollFd::new(&holder, PollFlags::IN)], None).unwrap();
        let taken = holder.take(|held| {
            let (program, variant) = (held.start.app.to_string(), held.start.variant.clone());
            messages::put(socket, &Seen { pid: held.pid, program, variant, user: held.user }).unwrap();
            waiting.push(held);
        });
        match messages::get::<u32>(socket, Some(Instant::now())) {
            Received::Answer(pid) => waiting.retain(|held| held.pid != pid),
            Received::Nothing => {}
            Received::Ended => return,
        }
        if taken.is_err() {
            return;
        }
    }
}

/// Copies of programs, on a disk: no other process executes these.
fn copies(names: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let home = on_disk();
    for (name, program) in names {
        fs::copy(fs::canonicalize(program).unwrap(), home.path().join(name)).unwrap();
    }
    set_mode(home.path(), 0o755);
    let path = fs::canonicalize(home.path()).unwrap();
    (home, path)
}

#[test]
fn marked_program_waits_until_it_is_released_and_others_do_not() {
    let (_home, home) = copies(&[("marked", "/bin/echo"), ("other", "/bin/echo")]);
    let (marked, other) = (home.join("marked"), home.join("other"));
    let Some(service) = Service::start(&[&marked]) else { return };
    let start = marked.clone();
    let (seen, running) = service.held(move || program(&start).args(["-n", "word"]).as_stranger());
    assert_eq!((&seen.program, seen.variant.as_deref()), (&marked.display().to_string(), Some("word")));
    assert_eq!(seen.user, (STRANGER, STRANGER));
    assert_eq!(program(&other).arg("free").ok().out, "free\n");
    assert!(!running.is_finished() && comm(seen.pid) != "marked\n");
    service.release(&seen);
    assert_eq!(running.join().unwrap().out, "word");
    assert!(service.seen().is_none());
}

#[test]
fn script_is_held_with_its_marked_interpreter() {
    let (_home, home) = copies(&[("sh", "/bin/sh")]);
    let script = home.join("tool");
    fs::write(&script, format!("#!{} -e\necho \"$1\"\n", home.join("sh").display())).unwrap();
    set_mode(&script, 0o755);
    let Some(service) = Service::start(&[&home.join("sh")]) else { return };
    let directory = home.clone();
    let (seen, running) = service.held(move || program("./tool").arg("check").current_dir(&directory));
    assert_eq!(seen.program, format!("{} {}", home.join("sh").display(), script.display()));
    assert_eq!(seen.variant.as_deref(), Some("check"));
    service.release(&seen);
    assert_eq!(running.join().unwrap().out, "check\n");
    // Code on the command line has no name.
    let shell = home.join("sh");
    let (seen, running) = service.held(move || program(&shell).args(["-c", "echo code"]));
    assert_eq!((&seen.program, &seen.variant), (&home.join("sh").display().to_string(), &None));
    service.release(&seen);
    assert_eq!(running.join().unwrap().out, "code\n");
}

#[test]
fn killed_service_or_gate_lets_the_program_go_on() {
    for kills_gate in [false, true] {
        let (_home, home) = copies(&[("marked", "/bin/echo")]);
        let marked = home.join("marked");
        let Some(service) = Service::start(&[&marked]) else { return };
        let (seen, running) = service.held(move || program(&marked).arg("x"));
        assert!(!running.is_finished(), "{seen:?}");
        kill(if kills_gate { service.gate() } else { service.pid });
        assert_eq!(running.join().unwrap().out, "x\n");
    }
}

/// Stopped, as if it waited for a disk.
#[test]
fn service_that_does_not_answer_delays_one_start_and_no_other() {
    let (_home, home) = copies(&[("marked", "/bin/echo")]);
    let marked = home.join("marked");
    let Some(service) = Service::start(&[&marked]) else { return };
    let start = marked.clone();
    let (seen, running) = service.held(move || program(&start));
    service.release(&seen);
    assert_eq!(running.join().unwrap().out, "\n");
    let stopped = Pid::from_raw(service.pid as i32).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    for _ in 0..20 {
        program(&marked).ok();
    }
    kill_process(stopped, Signal::CONT).unwrap();
    // What was offered while it was stopped has gone on; from the first order on, execs are held again.
    let (seen, running) = service.held(move || program(&marked).arg("again"));
    service.release(&seen);
    wait_until("the last one", || {
        service.seen().iter().for_each(|seen| service.release(seen));
        running.is_finished()
    });
    assert_eq!(running.join().unwrap().out, "again\n");
}

#[test]
fn setuid_program_is_not_held() {
    let (_home, home) = copies(&[("elevated", "/bin/echo"), ("marked", "/bin/echo")]);
    let (elevated, marked) = (home.join("elevated"), home.join("marked"));
    set_mode(&elevated, 0o4755);
    let Some(service) = Service::start(&[&elevated, &marked]) else { return };
    // Marks are made in order.
    let (seen, running) = service.held(move || program(&marked));
    service.release(&seen);
    running.join().unwrap();
    program(&elevated).as_stranger().ok();
    assert!(service.seen().is_none());
}

#[test]
fn programs_start_while_services_are_killed_a_thousand_times() {
    let (_home, home) = copies(&[("marked", "/bin/true")]);
    let marked = home.join("marked");
    let Some(_) = Service::start(&[&marked]) else { return };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                program(&marked).limit(Duration::from_secs(20)).ok();
            }
        });
        for number in 0..1000 {
            let service = Service::start(&[&marked]).unwrap();
            if number % 2 == 0 {
                service.next();
            }
            if number % 4 == 0 {
                kill(service.gate());
            }
        }
        ended.store(true, Relaxed);
    });
}

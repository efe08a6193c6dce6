//! Programs whose first process waits while others read: a supervisor, a shell's job in the background, a client of a daemon.
//!
//! Regression: a plan was chosen by the timeline of the program. The first process asks at intervals, and no process of the program wakes it, so
//! that the timeline was that of a program which needs some milliseconds. It reads one page itself, the last one of a sweep over the disk, and
//! without a prefetch that page was expected earlier: nothing was prefetched.

use super::{Disk, FIRST_BYTES, words};
use ahead_tests::rig::prelude::*;

/// A script of a shell that asks at intervals whether a job in the background has read the first pages of every file. `start`: the command
/// that executes the job's script. The job is not the shell's child: the end of a child wakes the shell.
fn asking_script(disk: &Disk, start: &str) -> String {
    let done = disk.disks.path("done");
    let (done, last, program) = (done.display(), disk.file(39), disk.program().join(" "));
    format!(
        "rm -f {done}; ({start} '{program} >/dev/null; : >{done}' &); until [ -e {done} ]; do sleep 0.1; done; \
         tail -c 4096 {last} >/dev/null"
    )
}

/// Records a program cold on the disk, and starts it with its profile. Nearly everything that it uses has to be prefetched.
fn is_prefetched(name: &str, program: impl Fn(&Disk) -> Vec<String>) {
    unless_reclaimed(|| {
        let Some(disk) = Disk::new(name) else { return };
        let program = program(&disk);
        disk.record(&program);
        let used = ahead_files::load(&disk.profile()).unwrap();
        let recorded = used.files.iter().filter(|file| is_read(&disk, &file.path)).count();
        assert_eq!(recorded, 40, "not all was recorded");
        let account = account(&disk, &program);
        // A container may not read the block device of the machine's own file system.
        let skipped = account["skipped"].as_object().unwrap().iter().filter(|(reason, _)| *reason != "not_permitted");
        let left: u64 = skipped.map(|(_, skipped)| skipped["bytes"].as_u64().unwrap()).sum();
        assert!(left * 20 <= used.data_bytes(), "{left} of {} are not prefetched: {account}", used.data_bytes());
        // The program may be the first to read a page.
        let brought = ["issued_bytes", "already_resident_bytes"].map(|key| account[key].as_u64().unwrap());
        assert!(brought.iter().sum::<u64>() >= 40 * FIRST_BYTES, "{account}");
    });
}

fn is_read(disk: &Disk, path: &[u8]) -> bool {
    path.starts_with(disk.mount.as_os_str().as_encoded_bytes())
}

/// The account of a cold start with the profile.
fn account(disk: &Disk, program: &[String]) -> Value {
    let file = disk.disks.path("account.json");
    drop_caches();
    ahead(["run", "-p"]).arg(disk.profile()).arg("--account").arg(&file).arg("--").args(program).ok();
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// As a supervisor that looks at its child at intervals: the end of a child does not wake poll(2).
#[test]
fn program_behind_a_process_that_waits_in_poll_is_prefetched() {
    const WAIT: &str = "use IO::Poll; use POSIX ':sys_wait_h'; my $last = shift; my $job = fork; exec @ARGV unless $job; \
        pipe(my $never, my $writer); my $poll = IO::Poll->new; $poll->mask($never => POLLIN); $poll->poll(0.1) until waitpid($job, WNOHANG); \
        open(my $file, '<', $last) or die; seek($file, -4096, 2); read($file, my $page, 4096) == 4096 or die";
    is_prefetched("poll", |disk| [words("perl -e"), vec![WAIT.into(), disk.file(39)], disk.program()].concat());
}

#[test]
fn program_on_a_pseudo_terminal_of_script_is_prefetched() {
    if !Path::new("/usr/bin/script").exists() {
        eprintln!("skipped: no script(1) here");
        return;
    }
    is_prefetched("script", |disk| {
        ["script", "-q", "-e", "-c", &asking_script(disk, "eval"), "/dev/null"].map(str::to_owned).to_vec()
    });
}

#[test]
fn job_in_the_background_of_a_shell_is_prefetched() {
    is_prefetched("job", |disk| ["sh", "-c", &asking_script(disk, "eval")].map(str::to_owned).to_vec());
}

#[test]
fn daemon_for_which_its_client_waits_is_prefetched() {
    is_prefetched("daemon", |disk| ["sh", "-c", &asking_script(disk, "setsid sh -c")].map(str::to_owned).to_vec());
}
